"""A folder that is replaced is the old one or the new one, whatever stops the process; so are all exports."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from helpers import read_files, save_tiny_model

from copynet_hf.cli import main
from copynet_hf.saved import whole_folder
from copynet_hf.saved.whole_folder import replace_folder
from copynet_hf.serving import web_export
from copynet_hf.training.run_folder import lock_output_dir

OLD = {"config.json": "old", "encoder": "old", "model/decoder": "old", "notes.txt": "mine", ".git/HEAD": "mine"}
NEW = {"config.json": "new", "encoder": "new", "model/decoder": "new"}


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(files: dict[str, str]) -> dict[str, bytes]:
    return {name: content.encode() for name, content in files.items()}


def replace_and_kill(target: Path, step: int) -> int:
    """Replaces the folder in a process that kills itself at a file operation; returns its exit code."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    operations, code = 0, 1

    def count_operation(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal operations
        operations += event.startswith(("open", "os.", "shutil."))
        if operations > step and event != "os.kill":
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count_operation)
        replace(target)
        code = 0
    finally:
        os._exit(code)


def replace(target: Path, error: Exception | None = None) -> None:
    with replace_folder(target) as unfinished:
        write_files(unfinished, NEW)
        if error:
            raise error


@pytest.mark.skipif(sys.platform != "linux", reason="folders are exchanged on Linux only")
def test_a_process_killed_at_any_file_operation_leaves_the_old_folder_or_the_new_one(tmp_path: Path) -> None:
    code, found = -signal.SIGKILL, []
    while code == -signal.SIGKILL:
        target = tmp_path / str(len(found)) / "target"
        write_files(target, OLD)
        code = replace_and_kill(target, step=len(found))
        found.append(read_files(target))
        assert found[-1] in (contents(OLD), contents(OLD | NEW))
        replace(target)
        assert read_files(target) == contents(OLD | NEW)
        assert names_in(target.parent) == ["target"]
    assert code == 0
    assert found.count(contents(OLD)) > 20
    assert found.count(contents(OLD | NEW)) > 5  # killed while it removed the old folder


def test_a_folder_is_replaced_although_the_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    write_files(tmp_path / "model", OLD)
    monkeypatch.chdir(gone)
    gone.rmdir()
    replace(tmp_path / "model")
    assert read_files(tmp_path / "model").items() >= contents(NEW).items()


@pytest.mark.parametrize(
    ("code", "message"),
    [(errno.ENOSPC, r"target cannot be written \(No space left on device\)"), (errno.EIO, "a file")],
)
def test_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path, code: int, message: str) -> None:
    write_files(tmp_path / "target", OLD)
    with pytest.raises(OSError, match=message):
        replace(tmp_path / "target", OSError(code, "a file"))
    assert read_files(tmp_path / "target") == contents(OLD)
    assert names_in(tmp_path) == ["target"]


@pytest.mark.parametrize("obstacle", ["no exchange", "working directory", "parent is read-only"])
def test_where_folders_cannot_be_exchanged_the_config_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    target, moved = tmp_path / "target", []
    write_files(target, OLD)
    if obstacle == "working directory":
        monkeypatch.chdir(target)
    elif obstacle == "no exchange":
        monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    move = whole_folder.shutil.move

    def record_move(source: Path, place: Path) -> None:
        assert not (target / "config.json").exists()
        moved.append(place.name)
        move(source, place)

    monkeypatch.setattr(whole_folder.shutil, "move", record_move)
    with replace_folder("." if obstacle == "working directory" else target) as unfinished:
        write_files(unfinished, NEW)
    assert moved[-1] == "config.json"
    assert read_files(target) == contents(OLD | NEW)
    assert names_in(tmp_path) == ["target"]


@pytest.mark.parametrize("exchanges", [True, False])
def test_files_of_the_old_model_are_dropped_and_those_of_its_checkpoints_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    stale = {"model-00001-of-00002.safetensors": "old", "encoder_tokenizer.json": "old", "encoder.onnx": "old"}
    kept = OLD | {"checkpoint-5/model.safetensors": "mine"}
    write_files(tmp_path / "target", kept | stale)
    with replace_folder(tmp_path / "target", whole_folder.OLD_MODEL_FILES) as unfinished:
        write_files(unfinished, NEW | {"model.safetensors": "new"})
    assert read_files(tmp_path / "target") == contents(kept | NEW | {"model.safetensors": "new"})


def test_links_and_permissions_stay_and_two_at_once_are_refused(tmp_path: Path) -> None:
    write_files(tmp_path / "real", OLD)
    (tmp_path / "real").chmod(0o750)
    (tmp_path / "link").symlink_to("real")
    with replace_folder(tmp_path / "link") as unfinished:
        write_files(unfinished, NEW)
        with (
            pytest.raises(ValueError, match="real is being written by another process"),
            replace_folder(tmp_path / "real"),
        ):
            pass
    assert (tmp_path / "link").is_symlink()
    assert read_files(tmp_path / "real") == contents(OLD | NEW)
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o750


# ---- the exports


@contextmanager
def watch_writes(check: Callable[[str], None]) -> Iterator[None]:
    """Calls `check` with the name of each file that is opened for writing, before that."""
    active = True

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:  # audit hooks cannot be removed
        nonlocal active
        if active and event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax"):
            active = False
            check(os.fsdecode(arguments[0]))
            active = True

    sys.addaudithook(on_event)
    try:
        yield
    finally:
        active = False


@pytest.mark.parametrize(
    "target", ["ensemble", *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnx", "web, int8"))]
)
def test_an_export_is_the_old_one_until_it_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    if target != "ensemble":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    monkeypatch.setattr(web_export, "load_runtime", lambda folder: {"LICENSE": b"MIT"})
    models = [str(save_tiny_model(tmp_path / f"model{seed}", seed=seed)) for seed in (0, 1)]
    options = ["--target=web", "--quantize=int8"] if target == "web, int8" else []
    output, written = tmp_path / "output", []

    def run_export(models: list[str]) -> None:
        command = ["ensemble", "--models", *models] if target == "ensemble" else ["export", f"--model={models[0]}"]
        assert main([*command, *options, f"--output_dir={output}", "--overwrite_output_dir"]) == 0

    run_export(models)
    old = read_files(output)

    def check_target(name: str) -> None:
        written.append(name)
        assert read_files(output) == old, name

    with watch_writes(check_target):
        run_export(models[::-1])
    new = read_files(output)
    graphs = [name for name in old if name.endswith((".onnx", ".safetensors"))]
    assert graphs
    assert all(new[name] != old[name] for name in graphs)
    assert old.keys() == new.keys()
    assert sum(".output.unfinished" in name for name in written) >= 3
    assert names_in(tmp_path) == ["model0", "model1", "output"]


@pytest.mark.parametrize("hold", [replace_folder, lock_output_dir])
def test_a_lock_file_is_removed_while_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold: Callable[[Path], AbstractContextManager[object]]
) -> None:
    """After its release it may be that of another process, and a third one would lock a new file."""
    left: list[bool] = []
    release = FileLock.release

    def note(self: FileLock, force: bool = False) -> None:
        left.append(Path(self.lock_file).exists())
        release(self, force)

    monkeypatch.setattr(FileLock, "release", note)
    with hold(tmp_path / "out"):
        assert not left
    assert left
    assert not any(left)
