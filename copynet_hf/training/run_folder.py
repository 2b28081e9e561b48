"""The folder and the files that a run writes to: nothing is overwritten by accident, or by two runs at once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from .checkpoints import METRICS_FILE, STATE_FILE, is_checkpoint_in, list_checkpoints

PREDICTIONS_FILE = "test_predictions.jsonl"
LOCK_FILE = "_training.lock"  # pushes to the Hub leave out names that start with an underscore
RESULT_FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer_config.json",
    "generation_config.json",
    "README.md",
    PREDICTIONS_FILE,
)


def check_output_dir(output_dir: str | None, overwrite: bool, checkpoint: str | None = None) -> Path:
    """The path of `output_dir`, after checking that writing there destroys nothing.

    Args:
        overwrite: whether the folder may hold a model.
        checkpoint: the one that the run resumes from; if it is in the folder, the run there goes on.
    """
    if not output_dir:
        raise ValueError("no --output_dir: pass a folder to write to")
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: pass a folder")
    if overwrite or is_checkpoint_in(folder, checkpoint):
        return folder
    existing = [name for name in RESULT_FILES if (folder / name).exists()]
    if existing:
        raise ValueError(
            f"--output_dir {folder} already holds {existing[0]}: use another folder, or --overwrite_output_dir"
        )
    if list_checkpoints(folder):
        with lock_output_dir(folder):  # else it is being written, by a run that is not to be continued
            pass
        raise ValueError(
            f"--output_dir {folder} holds an unfinished run: continue it with --resume_from_checkpoint auto, or start "
            "again with --overwrite_output_dir"
        )
    return folder


def check_output_file(
    output_file: str, overwrite: bool, input_file: str | None = None, argument: str = "output_file"
) -> Path:
    """The path of `output_file`, after checking that it can be written and that writing it destroys nothing.

    Args:
        overwrite: whether the file may exist.
        input_file: a file that the same run reads, which is never overwritten.
        argument: that named the file, for messages.
    """
    path = Path(output_file)
    if path.exists():
        if not path.is_file():
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise ValueError(f"--{argument} {path} is {kind}: pass a file")
        read = None if input_file is None else Path(input_file).expanduser()
        if read is not None and read.exists() and path.samefile(read):
            raise ValueError(f"--{argument} {path} is the input file: use another one")
        if not overwrite:
            raise ValueError(f"--{argument} {path} exists: use another file, or --overwrite_output_file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with path.open("r+b") if path.exists() else tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise ValueError(f"--{argument} {path} cannot be written ({error.strerror}): use another file") from None


def is_first_process() -> bool:
    """Whether this process logs and locks for all of those that torchrun starts."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


@contextmanager
def lock_output_dir(folder: Path) -> Iterator[None]:
    """Creates the folder, and keeps other trainings out of it while the context lasts. The operating system frees the
    lock of a process that is killed."""
    if not is_first_process():
        yield
        return
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    lock_file = folder / LOCK_FILE
    lock = FileLock(lock_file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"--output_dir {folder} is in use by another training, which holds {lock_file}: use another folder"
        ) from None
    except OSError as error:
        _remove_empty(missing)
        raise ValueError(f"--output_dir {folder} cannot be written ({error.strerror}): use another folder") from None
    try:
        yield
    finally:
        lock_file.unlink(missing_ok=True)  # while it is held: later, it may be another process's
        lock.release()
        _remove_empty(missing)


def remove_results(folder: Path) -> None:
    """Deletes the metrics, the Trainer's state and the predictions of an earlier run in a folder."""
    for name in (*map(METRICS_FILE.format, ("train", "eval", "test", "all")), STATE_FILE, PREDICTIONS_FILE):
        (folder / name).unlink(missing_ok=True)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Removes those of the folders that hold nothing."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def explain_save_errors(folder: Path) -> Iterator[None]:
    """Turns errors while saving, such as those of a full disk, into an OSError that names the folder."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        free = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
        reason = str(error).splitlines()[0]
        raise OSError(
            f"{folder} cannot be saved ({reason}; {free / 1e9:.1f} GB of the disk are free): free space, and continue "
            "with --resume_from_checkpoint auto"
        ) from error
