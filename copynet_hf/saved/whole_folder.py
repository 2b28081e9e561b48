"""Folders that are replaced as a whole: a process that is killed leaves the old one or the new one."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from filelock import FileLock, Timeout

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux
# Of which a new model may have fewer than the old one, and loading would read the old ones.
OLD_MODEL_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*", "*.onnx", "encoder_tokenizer.json")


@contextmanager
def name_full_disk(path: Path) -> Iterator[None]:
    """Adds the path to the error of a full disk, which names no file.

    Raises:
        OSError: no space is left.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in NO_SPACE:
            raise OSError(f"{path} cannot be written ({os.strerror(error.errno)})") from error
        raise


@contextmanager
def replace_folder(folder: str | Path, drop: Sequence[str] = ()) -> Iterator[Path]:
    """Yields an empty folder to write to, which takes the place of `folder` when the block ends without an error.

    Files of the old folder that the new one does not have are kept. The two folders are exchanged in one step. Where
    that is impossible (systems other than Linux, the working directory, a mount point), the files are moved one by
    one, `config.json` last: without it, the folder does not load.

    Args:
        drop: patterns of file names, such as `OLD_MODEL_FILES`, which are not kept.

    Raises:
        ValueError: another process is replacing the folder.
        OSError: the folder cannot be written.
    """
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = folder.parent if os.access(folder.parent, os.W_OK) or not folder.exists() else folder
    unfinished = place / f".{folder.name}.unfinished"
    lock = FileLock(f"{unfinished}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{folder} is being written by another process: wait, or use another folder") from None
    except OSError as error:
        raise OSError(f"{folder} cannot be written ({error.strerror}): use another folder") from None
    try:
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
        unfinished.mkdir()
        with name_full_disk(folder):
            yield unfinished
            _put_in_place(unfinished, folder, drop)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)  # what was not finished, or the old folder
        Path(lock.lock_file).unlink(missing_ok=True)  # while it is held: later, it may be another process's
        lock.release()


def _put_in_place(new: Path, folder: Path, drop: Sequence[str]) -> None:
    if not folder.exists():
        new.rename(folder)
        return

    def find_dropped(place: str, names: list[str]) -> list[str]:
        is_here = Path(place) == folder  # not in the folders of checkpoints
        return [name for name in names if is_here and any(fnmatch(name, pattern) for pattern in drop)]

    written = [path.relative_to(new) for path in new.rglob("*") if path.is_file()]
    if not _holds_working_directory(folder) and not new.is_relative_to(folder):
        shutil.copytree(folder, new, True, find_dropped, _link_if_missing, dirs_exist_ok=True)  # links as links
        if _exchange(new, folder):
            return
    written.sort(key=lambda path: path.name == "config.json")
    for path in written:
        if path.name == "config.json":
            (folder / path).unlink(missing_ok=True)
    for name in find_dropped(str(folder), [path.name for path in folder.iterdir() if not path.is_dir()]):
        (folder / name).unlink()
    for path in written:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(new / path, folder / path)


def _holds_working_directory(folder: Path) -> bool:
    """Whether the working directory, which may have been removed, is the folder or inside it."""
    try:
        return Path.cwd().is_relative_to(folder)
    except FileNotFoundError:
        return False


def _link_if_missing(source: str, target: str) -> None:
    """A second name for the file, or a copy where the file system has one name a file."""
    if os.path.lexists(target):
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges the names of two folders in one step; returns whether the system can do that."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other))
    return renameat2 is not None and renameat2(*names, RENAME_EXCHANGE) == 0
