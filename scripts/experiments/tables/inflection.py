"""Inflection (SIGMORPHON–UniMorph 2022): the default command on 53 sets, beside the task's baselines and systems."""

from __future__ import annotations

import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from copynet_hf.arguments import NUM_BEAMS

from ..data.inflection import COLUMNS, SIZES, list_files, read_accuracies, read_test_rows
from ..data.rows import Row
from ..reports.markdown import find_runs, get_data_facts, read_published, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, join_once, train_once
from ..scores.texts import score_exact_match

# One model for each set; `--models` chooses sets.
SETS = {f"{language}_{size}": (language, size) for size, languages in SIZES.items() for language in languages}
MODEL_NAMES = tuple(SETS)
COPYNET = "CopyNet"
ENSEMBLE_SEEDS = range(3)
TRAINING: dict[str, Any] = {}  # the defaults
COUNTS = ("train_pairs", "test_words")  # the columns of the published accuracies that are none
PUBLISHED = {"nonneural": "non-neural", "neural": "neural", "cluzh": "CLUZH", "ubc": "UBC"}


def run(settings: Settings) -> ResultsFile:
    """Trains and scores a model for each set, and an ensemble of the seeds' models once all of them are there."""
    results = ResultsFile("inflection", settings)
    results.add_data_facts(
        signature="exact match|NFC|case:mixed", baselines={}, published=read_accuracies(settings.data_dir)
    )
    for name, (language, size) in SETS.items():
        if settings.includes(name):
            rows = settings.limit(read_test_rows(settings.data_dir, language))
            arguments = {**list_files(settings.data_dir, language, size), **COLUMNS, **TRAINING}
            add_set(results, name, arguments, rows, settings, ENSEMBLE_SEEDS)
    return results


def add_set(
    results: ResultsFile,
    name: str,
    arguments: Mapping[str, Any],
    rows: Sequence[Row],
    settings: Settings,
    seeds: Sequence[int],
) -> None:
    """Trains and scores the model of a set, and joins the models of `seeds` once all of them are there.

    Args:
        arguments: of `copynet-hf train`.
        rows: the test triples.
    """
    folder = settings.seed_folder(name)
    record = train_once(folder, arguments, settings)
    _, outputs = evaluate_once(folder, "test", rows, settings, batch_size=128)
    results.add_run(name, COPYNET, _score(rows, outputs), record)
    members = [replace(settings, seed=seed).seed_folder(name) for seed in seeds]
    if all((member / "training.json").exists() for member in members):
        ensemble = settings.output_dir / "ensemble" / name
        record = join_once(ensemble, members)
        _, outputs = evaluate_once(ensemble, "test", rows, settings, batch_size=128)
        shared = ResultsFile(results.path.stem, replace(settings, seed=seeds[0]))
        shared.add_run(name, name_ensemble(seeds), _score(rows, outputs), record)


def name_ensemble(seeds: Sequence[int]) -> str:
    return f"ensemble of {len(seeds)}"


def _score(rows: Sequence[Row], outputs: Sequence[Row]) -> dict[str, Any]:
    ranked = [[unicodedata.normalize("NFC", output["prediction"])] for output in outputs]
    accuracy = score_exact_match(ranked, [[row["summary"]] for row in rows], normalize=str)
    return {"exact_match": round(accuracy, 2), "words": len(rows)}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/inflection.md."""
    published = _complete_published(results)
    found = {
        size: [name for name in SETS if name.endswith(size) and find_runs(results, name, COPYNET)] for size in SIZES
    }
    scores = {size: _read_scores(results, published, names) for size, names in found.items() if names}
    means = {size: _average_by_word(of_sets, results) for size, of_sets in scores.items()}
    means_of_sets = {size: _average_over_sets(of_sets) for size, of_sets in scores.items()}
    complete = [size for size in scores if len(found[size]) == len(SIZES[size])]
    for size in complete:
        of_size = published[f"all {size} (by word)"]
        means[size] |= {title: of_size[system] for system, title in PUBLISHED.items() if of_size[system]}
    systems = dict.fromkeys(system for size in complete for system in means[size])
    columns = [means[size] for size in complete] + [means_of_sets[size] for size in complete]
    rows = [[system, *(format_mean(column.get(system)) for column in columns)] for system in systems]
    has_ensembles = any(run["model"] == name_ensemble(ENSEMBLE_SEEDS) for run in results["runs"])
    return {
        "beams": NUM_BEAMS,
        "ensemble_size": len(ENSEMBLE_SEEDS) if has_ensembles else None,
        "means": table(["", *complete, *(f"{size}, mean of sets" for size in complete)], rows) if complete else "",
        "sets": {
            size: {
                "number": len(of_sets),
                "scores": _size_table(results, published, of_sets, means[size], means_of_sets[size]),
                "won": _count_best(of_sets, published),
                "means_of_sets": means_of_sets[size],
                "differences": _compare(of_sets),
            }
            for size, of_sets in scores.items()
        },
    }


def _complete_published(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The published accuracies that the results have, and those that the data folder lacks."""
    lacking: dict[str, dict[str, float]] = read_published("inflection")
    return {
        name: of_set | {system: scores[name] for system, scores in lacking.items() if name in scores}
        for name, of_set in get_data_facts(results)["published"].items()
    }


def _read_scores(
    results: dict[str, Any], published: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Of each set the scores of our models and of the published systems; of the ensembles where every set has one."""
    ensemble = name_ensemble(ENSEMBLE_SEEDS)
    has_ensembles = all(find_runs(results, name, ensemble) for name in names)
    models = [COPYNET, *([ensemble] if has_ensembles else [])]
    scores: dict[str, dict[str, float | None]] = {}
    for name in names:
        runs = {model: find_runs(results, name, model) for model in models}
        of_models = {model: statistics.mean(run["scores"]["exact_match"] for run in runs[model]) for model in models}
        scores[name] = of_models | {title: published[name][system] for system, title in PUBLISHED.items()}
    return scores


def _average_by_word(scores: Mapping[str, Mapping[str, float | None]], results: dict[str, Any]) -> dict[str, float]:
    """The mean of each system over the words of all sets, without systems that have no score for one of them."""
    words = {name: find_runs(results, name, COPYNET)[0]["scores"]["words"] for name in scores}
    first = next(iter(scores.values()))
    means = {}
    for system in first:
        values = {name: of_set[system] for name, of_set in scores.items()}
        if None not in values.values():
            means[system] = sum(words[name] * (value or 0.0) for name, value in values.items()) / sum(words.values())
    return means


def _average_over_sets(scores: Mapping[str, Mapping[str, float | None]]) -> dict[str, float]:
    """The mean of each system over the sets, without systems that have no score for one of them."""
    columns = {system: [of_set[system] for of_set in scores.values()] for system in next(iter(scores.values()))}
    return {
        system: statistics.mean(value for value in values if value is not None)
        for system, values in columns.items()
        if None not in values
    }


def _compare(scores: Mapping[str, Mapping[str, float | None]]) -> dict[str, str]:
    """By how much CopyNet is above each published system, on average over the sets ± its standard error."""
    shown = {}
    for system in PUBLISHED.values():
        pairs = [(of_set[COPYNET], of_set[system]) for of_set in scores.values()]
        differences = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
        if len(pairs) > 1 and len(differences) == len(pairs):
            error = statistics.stdev(differences) / len(differences) ** 0.5
            shown[system] = f"{statistics.mean(differences):.1f} ± {error:.1f}".replace("-", "−")
    return shown


def _count_best(
    scores: Mapping[str, Mapping[str, float | None]], published: Mapping[str, Mapping[str, float | None]]
) -> int:
    """The number of sets on which one CopyNet scores higher than every published system, also those without a
    column."""
    return sum((of_set[COPYNET] or 0.0) > max(_list_published(published[name])) for name, of_set in scores.items())


def _list_published(of_set: Mapping[str, float | None]) -> list[float]:
    return [value for name, value in of_set.items() if name not in COUNTS and value is not None]


def _size_table(
    results: dict[str, Any],
    published: Mapping[str, Mapping[str, Any]],
    scores: Mapping[str, Mapping[str, float | None]],
    means: Mapping[str, float],
    means_of_sets: Mapping[str, float],
) -> str:
    """A row for each set, then the means over the words of these sets, and over the sets."""
    rows: list[list[Any]] = []
    for name, of_set in scores.items():
        minutes = statistics.mean(run["minutes"] for run in find_runs(results, name, COPYNET))
        language, triples = name.split("_")[0], round(published[name]["train_pairs"])
        rows.append([language, triples, *of_set.values(), f"{minutes:.1f}"])
    systems = list(next(iter(scores.values())))
    for title, of_systems in {"all, by word": means, "all, mean of sets": means_of_sets}.items():
        rows.append([title, "", *(format_mean(of_systems.get(system)) for system in systems), ""])
    return table(["", "training triples", *systems, "minutes"], rows)


def format_mean(mean: float | None) -> str:
    return "" if mean is None else f"{mean:.2f}"
