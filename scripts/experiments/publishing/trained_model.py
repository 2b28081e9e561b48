"""A trained model of an experiment: its folder, its scores and its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..reports.model_cards import Card, format_command


@dataclass(frozen=True)
class TrainedModel:
    """A model that `scripts/reproduce.py` has trained and scored.

    Attributes:
        experiment: the experiment's name.
        runs: the model's runs in the results, by data set.
        results: the contents of the experiment's results file.
    """

    experiment: str
    name: str
    folder: Path
    card: Card
    runs: Mapping[str, dict[str, Any]]
    results: Mapping[str, Any]


def find_trained_model(
    name: str, experiment: ModuleType, model: str | None, seed: int, output_dir: Path, results_dir: Path
) -> TrainedModel:
    """Finds a trained model by its name in the experiment.

    Args:
        name: of the experiment.
        experiment: its module.
        model: the model's name; None: "CopyNet".
        output_dir: folder of the experiment's models.
        results_dir: folder of NAME.json.

    Raises:
        ValueError: the experiment has no such model or no cards, or the model is not trained, or is another one than
            the results are of.
    """
    chosen = "CopyNet" if model is None and "CopyNet" in experiment.MODEL_NAMES else model
    if chosen is None or chosen not in experiment.MODEL_NAMES:
        choices = ", ".join(map(repr, experiment.MODEL_NAMES))
        fault = "is missing" if chosen is None else f"is {chosen!r}"
        raise ValueError(f"--model {fault}: choose one of the models of {name}, {choices}")
    card: Card | None = getattr(experiment, "CARDS", {}).get(chosen, experiment.CARD)
    if card is None:
        raise ValueError(
            f"the models of {name} were trained for a comparison and have no cards: publish a model of another "
            "experiment"
        )
    file, command = results_dir / f"{name}.json", format_command(name, chosen, seed)
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"runs": []}
    key = (card.model or chosen, seed)
    runs = {run["data"]: run for run in results["runs"] if (run["model"], run["seed"]) == key}
    runs = {data: runs[data] for data in card.tests if data in runs}
    if not runs:
        raise ValueError(f"{file} has no scores of {chosen!r} with seed {seed}: run {command}")
    first = next(iter(runs.values()))
    folder = _find_folder(first["folder"], seed, output_dir)
    finished = folder / "training.json"
    if not finished.exists():
        raise ValueError(f"{folder} holds no trained model: run {command}, or give its --output_dir")
    fingerprint = json.loads(finished.read_text(encoding="utf-8"))["fingerprint"]
    if fingerprint != first["fingerprint"]:
        raise ValueError(f"{folder} holds another model than the one that {file} has the scores of: run {command}")
    # of the same name, trained on other pairs
    runs = {data: run for data, run in runs.items() if run["fingerprint"] == fingerprint}
    return TrainedModel(name, chosen, folder, card, runs, results)


def _find_folder(stored: str, seed: int, output_dir: Path) -> Path:
    """The model's folder in `output_dir`, which may have been moved after the model was scored."""
    parts = Path(stored).parts
    return output_dir.joinpath(*parts[parts.index(f"seed_{seed}") :])
