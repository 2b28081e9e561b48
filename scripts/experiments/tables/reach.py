"""The default command on generated tasks whose outputs are not words of their sources, with chains and without."""

from __future__ import annotations

from typing import Any

from ..data.mixed_tasks import HELD_BACK, SIZES, TASKS, make_mixed_pairs
from ..data.rows import write_pairs
from ..reports.markdown import model_rows, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, train_once

MODELS: dict[str, dict[str, Any]] = {
    "default": {},
    "no letters": {"letters": False},
    "whole words": {"chains": False},
    "words": {"segmenter": "word_punct"},
    "characters": {"segmenter": "char"},
}
MODEL_NAMES = tuple(f"{task}, {model}" for task in TASKS for model in MODELS)


def run(settings: Settings) -> ResultsFile:
    """Trains the models of each task and scores them on its test pairs."""
    results = ResultsFile("reach", settings)
    results.add_data_facts(signature="exact match", baselines={}, sizes=SIZES, held_back=list(HELD_BACK))
    for task in TASKS:
        splits = settings.limit_splits(make_mixed_pairs(task, settings.seed))
        for name, arguments in MODELS.items():
            if not settings.includes(f"{task}, {name}"):
                continue
            files = write_pairs(settings.seed_folder(task, "data"), splits)
            folder = settings.seed_folder(task, name)
            record = train_once(folder, files | arguments, settings)
            scores, _ = evaluate_once(folder, "test", splits["test"], settings)
            results.add_run(task, name, scores, record)
    return results


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/reach.md."""
    found = {task: {row[0]: row[1:] for row in model_rows(results, task, MODELS, ["exact_match"])} for task in TASKS}
    models = [name for name in MODELS if any(name in rows for rows in found.values())]
    lines = []
    for task, rows in found.items():
        if rows:
            _, seeds, minutes = rows.get("default", (None, None, None))
            held = " (held back)" if task in HELD_BACK else ""
            lines.append([task + held, *(rows[name][0] if name in rows else None for name in models), seeds, minutes])
    return {"scores": table(["", *models, "seeds of default", "minutes"], lines), "models": models}
