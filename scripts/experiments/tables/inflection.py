"""Inflection (SIGMORPHON–UniMorph 2022): the default command on 53 sets, beside the task's baselines and systems."""

from __future__ import annotations

import statistics
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..data.inflection import COLUMNS, FOLDER, SIZES, list_files, read_published, read_test_rows
from ..data.rows import Row
from ..reports.markdown import assemble_page, find_runs, get_data_facts, table
from ..reports.model_cards import COPYNET as COPYNET_KIND
from ..reports.model_cards import Card
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, join_once, train_once
from ..scores.texts import score_exact_match

CARD = None  # reproduce.py writes no cards: there are 53 models
# One model for each set; `--models` chooses sets.
SETS = {f"{language}_{size}": (language, size) for size, languages in SIZES.items() for language in languages}
MODEL_NAMES = tuple(SETS)
COPYNET = "CopyNet"
ENSEMBLE_SEEDS = range(5)
ENSEMBLE = f"ensemble of {len(ENSEMBLE_SEEDS)}"
ENSEMBLE_NOTE = (
    f"An ensemble averages the probabilities of the models of {len(ENSEMBLE_SEEDS)} seeds (`copynet-hf ensemble`)."
)
TRAINING: dict[str, Any] = {}  # the defaults
USE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import copynet_hf  # registers the model

tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
lemmas, features = ["a lemma"], [["V", "PST"]]
output = model.generate(**tokenizer(lemmas, features=features, return_tensors="pt"))
print(tokenizer.batch_decode(output, source=lemmas, skip_special_tokens=True))
"""
# The cards of published models.
CARDS = {
    name: Card(
        file="inflection",
        title="Inflection",
        summary="Writes the form of a lemma that has the given UniMorph features.",
        language="bul" if language == "poma" else language,  # Pomak has no code of its own
        datasets=(FOLDER,),
        pipeline_tag="text-generation",
        data=f"The triples `{name}` of SIGMORPHON–UniMorph 2022, task 0, part 1 (Kodner et al. 2022); UniMorph's data "
        "are under CC BY-SA.",
        limits="It inflects words of one language. Lemmas and features that are unlike those it was trained on are "
        "often inflected wrongly.",
        tests={name: "the task's test set"},
        metrics={"exact_match": ("exact_match", "exact match")},
        examples=None,
        kind=COPYNET_KIND,
        use=USE,
        model=COPYNET,
    )
    for name, (language, _) in SETS.items()
}
PUBLISHED = {"nonneural": "non-neural", "neural": "neural", "cluzh": "CLUZH", "ubc": "UBC"}


def run(settings: Settings) -> ResultsFile:
    """Trains and scores a model for each set, and an ensemble of the seeds' models once all of them are there."""
    results = ResultsFile("inflection", settings)
    results.add_data_facts(
        signature="exact match|NFC|case:mixed", baselines={}, published=read_published(settings.data_dir)
    )
    for name, (language, size) in SETS.items():
        if settings.includes(name):
            rows = settings.limit(read_test_rows(settings.data_dir, language))
            arguments = {**list_files(settings.data_dir, language, size), **COLUMNS, **TRAINING}
            folder = settings.seed_folder(name)
            record = train_once(folder, arguments, settings)
            _, outputs = evaluate_once(folder, "test", rows, settings, batch_size=128)
            results.add_run(name, COPYNET, _score(rows, outputs), record)
            members = [replace(settings, seed=seed).seed_folder(name) for seed in ENSEMBLE_SEEDS]
            if all((member / "training.json").exists() for member in members):
                ensemble = settings.output_dir / "ensemble" / name
                record = join_once(ensemble, members)
                _, outputs = evaluate_once(ensemble, "test", rows, settings, batch_size=128)
                shared = ResultsFile("inflection", replace(settings, seed=ENSEMBLE_SEEDS[0]))
                shared.add_run(name, ENSEMBLE, _score(rows, outputs), record)
    return results


def _score(rows: Sequence[Row], outputs: Sequence[Row]) -> dict[str, Any]:
    ranked = [[unicodedata.normalize("NFC", output["prediction"])] for output in outputs]
    accuracy = score_exact_match(ranked, [[row["summary"]] for row in rows], normalize=str)
    return {"exact_match": round(accuracy, 2), "words": len(rows)}


def render_page(results: dict[str, Any]) -> str:
    """The text of results/inflection.md."""
    facts = get_data_facts(results)
    has_ensembles = any(run["model"] == ENSEMBLE for run in results["runs"])
    lines = [
        "# Inflection: SIGMORPHON–UniMorph 2022",
        "",
        "The form of a lemma with given features, such as `walk` and `V;PST`: `walked` (Kodner et al. 2022, part 1). "
        "One model for each set, trained by the default command with `--features_column features` on the set's own "
        "triples, validated on the task's development set; then scored on the test set: "
        f"`{facts['signature']}`, beam 5. "
        "“Non-neural” and “neural” are the organisers' baselines, CLUZH and UBC the best teams; some of the published "
        "systems are ensembles or use augmented data." + (f" {ENSEMBLE_NOTE}" if has_ensembles else ""),
        *(["", facts["remark"]] if "remark" in facts else []),
    ]
    found = {
        size: [name for name in SETS if name.endswith(size) and find_runs(results, name, COPYNET)] for size in SIZES
    }
    tables = {size: _read_scores(results, facts["published"], names) for size, names in found.items() if names}
    means = {size: _average_by_word(scores, results) for size, scores in tables.items()}
    complete = [size for size in tables if _is_complete(size, found[size])]
    for size in complete:
        published = facts["published"][f"all {size} (by word)"]
        means[size] |= {title: published[system] for system, title in PUBLISHED.items() if published[system]}
    if complete:
        systems = list(dict.fromkeys(system for size in complete for system in means[size]))
        rows = [[system, *(_format(means[size].get(system)) for size in complete)] for system in systems]
        lines += ["", "Over the words of all sets of a size:", "", table(["", *complete], rows)]
    for size, scores in tables.items():
        sets = _size_table(results, facts["published"], scores, means[size])
        lines += ["", f"## {len(scores)} {size} sets", "", sets]
    return assemble_page(results, lines, num_commands=1)


def _is_complete(size: str, names: Sequence[str]) -> bool:
    return len(names) == sum(name.endswith(size) for name in SETS)


def _read_scores(
    results: dict[str, Any], published: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Of each set the scores of our models and of the published systems; of the ensembles where every set has one."""
    has_ensembles = all(find_runs(results, name, ENSEMBLE) for name in names)
    models = [COPYNET, *([ENSEMBLE] if has_ensembles else [])]
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


def _size_table(
    results: dict[str, Any],
    published: Mapping[str, Mapping[str, Any]],
    scores: Mapping[str, Mapping[str, float | None]],
    means: Mapping[str, float],
) -> str:
    """A row for each set, then the means over the words of these sets."""
    rows: list[list[Any]] = []
    for name, of_set in scores.items():
        minutes = statistics.mean(run["minutes"] for run in find_runs(results, name, COPYNET))
        language, triples = name.split("_")[0], round(published[name]["train_pairs"])
        rows.append([language, triples, *of_set.values(), f"{minutes:.1f}"])
    systems = list(next(iter(scores.values())))
    rows.append(["all, by word", "", *(_format(means.get(system)) for system in systems), ""])
    return table(["", "training triples", *systems, "minutes"], rows)


def _format(mean: float | None) -> str:
    return "" if mean is None else f"{mean:.2f}"
