"""Checkpoints of the Trainer: which are whole, which one a run resumes from, and which run they belong to."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from datasets import IterableDataset
from datasets.fingerprint import Hasher
from safetensors import SafetensorError, safe_open
from transformers import TrainerState, TrainingArguments

from ..arguments import TokenizerArguments, TrainArguments, Values
from ..data.columns import ROLES
from .callbacks import find_end
from .dataset import Pairs

logger = logging.getLogger(__name__)

STATE_FILE = "trainer_state.json"  # of the Trainer, which writes it last
METRICS_FILE = "{}_results.json"  # of a split; of the Trainer as well
RECORD_FILE = "run_record.json"
FINGERPRINT, NUM_PROCESSES, SECONDS = "train_pairs", "num_processes", "seconds"
# Must be passed again, being in no checkpoint.
KEPT = ("freeze_encoder", "vocabulary_dropout", "compound_copies", "guided_attention")
OPTIMIZER = ("optim", "learning_rate", "encoder_learning_rate", "weight_decay")  # in the checkpoint
TOKENIZER = {entry.name: entry.default for entry in dataclasses.fields(TokenizerArguments)}


def list_checkpoints(folder: Path) -> list[Path]:
    """The Trainer's checkpoints in a folder, oldest first."""
    steps = {path.parent: path.parent.name.partition("-")[2] for path in folder.glob(f"checkpoint-*/{STATE_FILE}")}
    return sorted((path for path in steps if steps[path].isdecimal()), key=lambda path: int(steps[path]))


def find_resume_checkpoint(
    resume_from_checkpoint: str | bool | None, output_dir: Path, overwrite: bool = False
) -> str | None:
    """The checkpoint that a run continues from, or None for a new run.

    Args:
        resume_from_checkpoint: a checkpoint; True for the last whole one in `output_dir`; "auto" for the same, or for
            a new run if there is none, and no finished run.
        overwrite: whether a new run may replace a finished one.
    """
    value = str(resume_from_checkpoint or False)
    if value.lower() == "false":
        return None
    if value.lower() not in ("true", "auto"):
        if not (Path(value) / STATE_FILE).is_file():
            raise ValueError(
                f"--resume_from_checkpoint {value} is not a checkpoint: pass a folder checkpoint-N of an earlier run"
            )
        if damage := find_damage(Path(value)):
            raise ValueError(f"--resume_from_checkpoint {value} is damaged ({damage}): use another checkpoint")
        _check_optimizer(Path(value))
        return value
    checkpoints = list_checkpoints(output_dir)
    for checkpoint in reversed(checkpoints):
        damage = find_damage(checkpoint)
        if damage is None:
            _check_optimizer(checkpoint)
            logger.info("resuming from %s", checkpoint)
            return str(checkpoint)
        logger.warning("%s is damaged (%s)", checkpoint, damage)
    if checkpoints:
        raise ValueError(f"every checkpoint in {output_dir} is damaged: start again with --overwrite_output_dir")
    if (output_dir / METRICS_FILE.format("all")).exists() and not overwrite:
        raise ValueError(
            f"the run in {output_dir} is finished, and its checkpoints are removed: train its model further with "
            f"--model_name_or_path {output_dir} and another --output_dir, or start again with --overwrite_output_dir"
        )
    if value.lower() == "true":
        raise ValueError(f"--resume_from_checkpoint is True, but {output_dir} holds no checkpoint: leave it out")
    return None


def _check_optimizer(checkpoint: Path) -> None:
    """Raises ValueError for a checkpoint without an optimizer, with which the learning rate would start again."""
    if not any(
        path.name.startswith(("optimizer", "global_step", "pytorch_model_fsdp")) for path in checkpoint.iterdir()
    ):
        raise ValueError(
            f"{checkpoint} holds no optimizer (--save_only_model), so that its run cannot go on: start a new one with "
            f"--model_name_or_path {checkpoint}"
        )


def is_checkpoint_in(folder: Path, checkpoint: str | None) -> bool:
    """Whether there is a checkpoint and it is one of the run in the folder."""
    return checkpoint is not None and Path(checkpoint).resolve().parent == folder.resolve()


def find_damage(checkpoint: Path) -> str | None:
    """The first damaged file of a checkpoint and the reason, or None if all are whole."""
    for file in sorted(checkpoint.iterdir()):
        try:
            if file.suffix == ".json":
                json.loads(file.read_text(encoding="utf-8"))
            elif file.suffix == ".safetensors":
                with safe_open(file, framework="pt"):
                    pass
            elif file.suffix in (".pt", ".pth", ".bin"):  # of torch.save: a zip archive with checksums
                with zipfile.ZipFile(file) as archive:
                    if archive.testzip() is not None:
                        raise ValueError("wrong checksum")
        except (OSError, ValueError, zipfile.BadZipFile, SafetensorError) as error:
            return f"{file.name}: {error}"
    num_processes = read_run_record(checkpoint).get(NUM_PROCESSES, 1)
    if num_processes > 1:  # each process writes the state of its random generators, in its own time
        names = (f"rng_state_{rank}.pth" for rank in range(num_processes))
        return next((f"{name} is missing" for name in names if not (checkpoint / name).exists()), None)
    return None


def remove_checkpoints(folder: Path) -> None:
    """Deletes the Trainer's checkpoints in a folder, so that they are not taken for those of a new run."""
    for checkpoint in list_checkpoints(folder):
        shutil.rmtree(checkpoint)


def read_metrics(folder: Path) -> dict[str, dict[str, float]]:
    """The metrics of training and validation, by split, that the Trainer has saved whole."""
    metrics = {}
    for split in ("train", "eval"):
        with suppress(FileNotFoundError, json.JSONDecodeError):
            metrics[split] = dict(json.loads((folder / METRICS_FILE.format(split)).read_text(encoding="utf-8")))
    return metrics


def is_trained(
    checkpoint: str, training_args: TrainingArguments, results: Iterable[str], patience: int | None
) -> bool:
    """Whether nothing is left to train; then the run goes on with what follows the training.

    Args:
        results: the names of the files that are written last.
        patience: as for `find_end`.

    Raises:
        ValueError: nothing is left at all: these files are beside the checkpoint.
    """
    folder = Path(checkpoint).parent
    state = TrainerState.load_from_json(str(Path(checkpoint) / STATE_FILE))
    by_steps = training_args.max_steps > 0
    name, done = ("max_steps", state.global_step) if by_steps else ("num_train_epochs", state.epoch or 0)
    length, earlier = getattr(training_args, name), state.max_steps if by_steps else state.num_train_epochs
    is_as_long = math.ceil(length) == earlier
    if done < length and not (is_as_long and find_end(training_args, state, patience)):
        return False
    if all((folder / result).exists() for result in results):
        raise ValueError(
            f"the run in {folder} is finished, with {done:g} of {length:g} "
            f"{'steps' if by_steps else 'epochs'}: use a larger --{name} to continue it"
        )
    return True


def make_run_record(train_pairs: Pairs, args: TrainArguments, optimizer: Values | None = None) -> dict[str, object]:
    """What a resumed run must have in common with the run of its checkpoint; saved with each checkpoint.

    Args:
        args: as they were given.
        optimizer: `OPTIMIZER`, complete.
    """
    given = {name: getattr(args, name) for name in (*KEPT, *TOKENIZER)}
    return {FINGERPRINT: _fingerprint(train_pairs), **given, **(optimizer or {})}


def read_run_record(checkpoint: str | Path) -> Values:
    """What was saved with a checkpoint; empty for one of an unmodified Trainer."""
    path = Path(checkpoint) / RECORD_FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def read_trained_seconds(checkpoint: str | Path) -> float:
    """How long the run had trained, over all its parts, when it saved the checkpoint."""
    return float(read_run_record(checkpoint).get(SECONDS, 0))


def check_run_record(checkpoint: str, record: Mapping[str, object], arguments: Iterable[str] = ()) -> None:
    """Checks that a resumed run continues the run of its checkpoint. Arguments of the tokenizer and the optimizer,
    which the checkpoint has, may be left out.

    Args:
        arguments: the names of those that were given.
    """
    saved = {**record, **read_run_record(checkpoint)}
    given = [name for name, default in TOKENIZER.items() if record[name] != default]
    given += [name for name in OPTIMIZER if name in arguments]
    for name in (*KEPT, *given):
        if saved[name] != record[name]:
            raise ValueError(
                f"--{name} is {record[name]}, but {saved[name]} in the run of {checkpoint}: leave --{name} as it "
                f"was, or start a new run{f' with --model_name_or_path {checkpoint}' if name in OPTIMIZER else ''}"
            )
    if saved[FINGERPRINT] != record[FINGERPRINT]:
        raise ValueError(
            f"the training pairs are not those of the run of {checkpoint}: pass the same pairs, or start a new run "
            f"with --model_name_or_path {checkpoint}"
        )


def _fingerprint(pairs: Pairs) -> str | None:
    """A hash of the number of pairs and of up to 2,000 of them; None for a stream."""
    if isinstance(pairs, IterableDataset):
        return None
    step = max(1, len(pairs) // 1000)
    columns = [name for name in ROLES if name in pairs.column_names]
    return Hasher.hash([len(pairs), pairs.select_columns(columns).select(range(0, len(pairs), step))[:]])
