"""Settings of a run of `scripts/reproduce.py`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from ..data.rows import Row, to_file_name


@dataclass(frozen=True)
class Settings:
    """The command line of `scripts/reproduce.py`.

    Attributes:
        output_dir: folder of models, outputs and scores; those that are there are used again.
        results_dir: folder of NAME.json, NAME.md and the figures.
        cards_dir: folder of the model cards.
        data_dir: folder of data that cannot be generated, with a folder for each data set.
        max_minutes: limit of each training; None for no limit.
        max_samples: limit of the rows of each split, to try a command; None for no limit.
        models: names of the models to train and score, or patterns of names (`fnmatch`); empty for all models of the
            experiment.
    """

    output_dir: Path
    results_dir: Path
    cards_dir: Path
    data_dir: Path
    seed: int = 0
    max_minutes: float | None = None
    max_samples: int | None = None
    models: tuple[str, ...] = ()
    bf16: bool = True
    threads: int = 2

    def limit(self, rows: Sequence[Row]) -> list[Row]:
        """The first `max_samples` rows."""
        return list(rows[: self.max_samples])

    def limit_splits(self, splits: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
        """The first `max_samples` rows of each split."""
        return {split: self.limit(rows) for split, rows in splits.items()}

    def includes(self, model: str) -> bool:
        return not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)

    def seed_folder(self, *names: str) -> Path:
        """The folder of a model, or of data, of this seed."""
        return self.output_dir.joinpath(f"seed_{self.seed}", *map(to_file_name, names))


def name_model(model: str, task: str) -> str:
    """The name of a model of one task, where an experiment has several tasks."""
    return f"{model} on {task}"


def format_command(experiment: str, model: str, seed: int) -> str:
    """The command that trains and scores a model of an experiment."""
    seed_arguments = ["--seed", str(seed)] if seed else []
    return shlex.join(["python", "scripts/reproduce.py", experiment, "--models", model, *seed_arguments])


def read_training(experiment: str) -> dict[str, Any]:
    """The arguments of an experiment's trainings, from experiments/training.yaml."""
    path = Path(__file__).parents[1] / "training.yaml"
    arguments: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return arguments[experiment]
