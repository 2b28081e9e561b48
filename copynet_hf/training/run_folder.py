"""The folder and the files that a run writes to: nothing is overwritten by accident, and checkpoints are found."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

RESULT_FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer_config.json",
    "generation_config.json",
    "README.md",
    "test_predictions.jsonl",
)


def check_output_dir(output_dir: str | None, overwrite: bool, resumes: bool) -> Path:
    """The path of `output_dir`, after checking that writing there destroys nothing.

    Args:
        overwrite: whether the folder may hold a model.
        resumes: whether the run continues one that the folder holds.

    Raises:
        ValueError: no folder, a file, or a folder that holds a model, a card or an unfinished run.
    """
    if not output_dir:
        raise ValueError("no --output_dir: give a folder to write to")
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: give a folder")
    if overwrite or resumes:
        return folder
    existing = [name for name in RESULT_FILES if (folder / name).exists()]
    if existing:
        raise ValueError(
            f"--output_dir {folder} already holds {existing[0]}: give another folder, or --overwrite_output_dir"
        )
    if checkpoints := list_checkpoints(folder):
        raise ValueError(
            f"--output_dir {folder} holds an unfinished run: continue it with --resume_from_checkpoint "
            f"{checkpoints[-1]}, or start again with --overwrite_output_dir"
        )
    return folder


def check_output_file(output_file: str, overwrite: bool, input_file: str | None = None) -> Path:
    """The path of `output_file`, after checking that it can be written and that writing it destroys nothing.

    Args:
        overwrite: whether the file may exist.
        input_file: a file that the same run reads, which is never overwritten.

    Raises:
        ValueError: a folder, the input file, an existing file, or a path that cannot be written.
    """
    path = Path(output_file)
    if path.is_dir():
        raise ValueError(f"--output_file {path} is a folder: give a file")
    if path.exists():
        read = None if input_file is None else Path(input_file).expanduser()
        if read is not None and read.exists() and path.samefile(read):
            raise ValueError(f"--output_file {path} is the input file: give another one")
        if not overwrite:
            raise ValueError(f"--output_file {path} exists: give another file, or --overwrite_output_file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with path.open("r+b") if path.exists() else tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise ValueError(f"--output_file {path} cannot be written ({error.strerror}): give another file") from None


def list_checkpoints(folder: Path) -> list[Path]:
    """The Trainer's checkpoints in a folder, oldest first."""
    checkpoints = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return sorted(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]))


def find_resume_checkpoint(resume_from_checkpoint: str | bool | None, output_dir: Path) -> str | None:
    """The checkpoint that a run continues from: the given one, the last one in `output_dir` for True, or None.

    Raises:
        ValueError: there is no such checkpoint.
    """
    value = str(resume_from_checkpoint or False)
    if value.lower() == "false":
        return None
    if value.lower() != "true":
        if not (Path(value) / "trainer_state.json").is_file():
            raise ValueError(f"--resume_from_checkpoint {value} is no checkpoint: give a folder of the Trainer's")
        return value
    checkpoints = list_checkpoints(output_dir)
    if not checkpoints:
        raise ValueError(f"--resume_from_checkpoint is True, but {output_dir} holds no checkpoint: leave it out")
    return str(checkpoints[-1])


def remove_checkpoints(folder: Path) -> None:
    """Deletes the Trainer's checkpoints in a folder, so that a new run does not resume from them."""
    for checkpoint in list_checkpoints(folder):
        shutil.rmtree(checkpoint)
