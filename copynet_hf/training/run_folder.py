"""The folder that a training run writes to: never over another model, and resumed where it stopped.

And the file that an evaluation writes to: never over another file.
"""

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


def checked_output_dir(output_dir: str | None, overwrite: bool, resumes: bool) -> Path:
    """`output_dir`, unless writing there would destroy something.

    Raises:
        ValueError: none given, a file, or a folder with a model, a card or an unfinished run in it.
    """
    if not output_dir:
        raise ValueError("no --output_dir: give a folder to write to")
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output_dir {folder} is a file: give a folder")
    if overwrite or resumes:
        return folder
    held = [name for name in RESULT_FILES if (folder / name).exists()]
    if held:
        raise ValueError(
            f"output_dir {folder} already holds {held[0]}: give another folder, or --overwrite_output_dir"
        )
    if checkpoints := checkpoints_of(folder):
        raise ValueError(
            f"output_dir {folder} holds an unfinished run: continue it with --resume_from_checkpoint "
            f"{checkpoints[-1]}, or start anew with --overwrite_output_dir"
        )
    return folder


def checked_output_file(output_file: str, overwrite: bool, read: str | None = None) -> Path:
    """`output_file`, unless writing there would destroy something or cannot be done; nothing is left behind.

    Args:
        read: a file that is read in the same run, and which may not be overwritten in any case.

    Raises:
        ValueError: it is that file, another one that is there, or a place that cannot be written to.
    """
    path = Path(output_file)
    if path.is_dir():
        raise ValueError(f"--output_file {path} is a folder: give a file")
    if path.exists():
        other = None if read is None else Path(read).expanduser()
        if other is not None and other.exists() and path.samefile(other):
            raise ValueError(f"--output_file {path} is the file that is read: give another one")
        if not overwrite:
            raise ValueError(f"--output_file {path} is already there: give another file, or --overwrite_output_file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with path.open("r+b") if path.exists() else tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise ValueError(f"--output_file {path} cannot be written ({error.strerror}): give another file") from None


def checkpoints_of(folder: Path) -> list[Path]:
    """The Trainer's checkpoints in a folder, oldest first."""
    found = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def resume_point(asked: str | bool | None, output_dir: Path) -> str | None:
    """The checkpoint to go on from: the one that is named, or the last one for "True"."""
    if not asked or str(asked).lower() == "false":
        return None
    if str(asked).lower() != "true":
        if not (Path(str(asked)) / "trainer_state.json").is_file():
            raise ValueError(f"--resume_from_checkpoint {asked} is no checkpoint of the Trainer")
        return str(asked)
    checkpoints = checkpoints_of(output_dir)
    if not checkpoints:
        raise ValueError(f"--resume_from_checkpoint: {output_dir} holds no checkpoint; leave it out to start anew")
    return str(checkpoints[-1])


def remove_checkpoints(folder: Path) -> None:
    """Deletes the checkpoints of an earlier run, which would mix with those of the next."""
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)
