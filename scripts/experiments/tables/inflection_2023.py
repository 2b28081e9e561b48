"""Inflection (SIGMORPHON–UniMorph 2023): the default command on each language (`inflection --year 2023`)."""

from __future__ import annotations

import statistics
from typing import Any

from copynet_hf.arguments import NUM_BEAMS

from ..data.inflection import COLUMNS_2023, SETS_2023, find_sets_2023, list_files_2023, read_test_rows_2023
from ..reports.markdown import find_runs, read_published, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from .inflection import COPYNET, add_set, format_mean, name_ensemble

# One model for each set; `--models` chooses sets.
MODEL_NAMES = SETS_2023
ENSEMBLE_SEEDS = range(3)
TRAINING: dict[str, Any] = {}  # the defaults


def run(settings: Settings) -> ResultsFile:
    """Trains and scores a model for each set that is complete, and an ensemble once all seeds are there."""
    results = ResultsFile("inflection_2023", settings)
    complete = find_sets_2023(settings.data_dir)
    results.add_data_facts(signature="exact match|NFC|case:mixed", baselines={}, complete=complete)
    for name in filter(settings.includes, complete):
        rows = settings.limit(read_test_rows_2023(settings.data_dir, name))
        arguments = {**list_files_2023(settings.data_dir, name), **COLUMNS_2023, **TRAINING}
        add_set(results, name, arguments, rows, settings, ENSEMBLE_SEEDS)
    return results


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/inflection_2023.md."""
    ensemble = name_ensemble(ENSEMBLE_SEEDS)
    found = [name for name in SETS_2023 if find_runs(results, name, COPYNET)]
    has_ensembles = all(find_runs(results, name, ensemble) for name in found)
    models = [COPYNET, *([ensemble] if has_ensembles else [])]
    scores = {
        name: [
            statistics.mean(run["scores"]["exact_match"] for run in find_runs(results, name, model))
            for model in models
        ]
        for name in found
    }
    rows: list[list[Any]] = []
    for name, of_models in scores.items():
        runs = find_runs(results, name, COPYNET)
        rows.append([name, *of_models, len(runs), f"{statistics.mean(run['minutes'] for run in runs):.1f}"])
    means = list(map(statistics.mean, zip(*scores.values(), strict=True)))
    rows.append(["mean of sets", *map(format_mean, means), "", ""])
    languages: dict[str, list[float]] = {}
    for name, of_models in scores.items():
        languages.setdefault(name.partition("_")[0], []).append(of_models[0])
    is_whole = found == list(SETS_2023)
    published = read_published("inflection_2023")
    ours = dict(zip(models, map(format_mean, means), strict=True))
    return {
        "beams": NUM_BEAMS,
        "ensemble_size": len(ENSEMBLE_SEEDS) if has_ensembles else None,
        "sets": len(found),
        "all_sets": len(SETS_2023),
        "mean_of_languages": format_mean(statistics.mean(map(statistics.mean, languages.values()))),
        "published": published,
        "scores": table(["", *models, "seeds", "minutes"], rows),
        "means": table(["", "mean of sets"], [*published.items(), *ours.items()]) if is_whole else "",
    }
