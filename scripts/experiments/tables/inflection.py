"""Inflection (SIGMORPHON–UniMorph 2022): the default command on 53 sets, beside the task's baselines and systems."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ..data.inflection import COLUMNS, SIZES, list_files, read_published, read_test_rows
from ..data.rows import Row
from ..reports.markdown import assemble_page, find_runs, get_data_facts, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, train_once
from ..scores.texts import score_exact_match

CARD = None
# One model for each set; `--models` chooses sets.
SETS = {f"{language}_{size}": (language, size) for size, languages in SIZES.items() for language in languages}
MODEL_NAMES = tuple(SETS)
COPYNET = "CopyNet"
TRAINING: dict[str, Any] = {}  # the defaults
PUBLISHED = {"nonneural": "non-neural", "neural": "neural", "cluzh": "CLUZH", "ubc": "UBC"}


def run(settings: Settings) -> ResultsFile:
    """Trains and scores a model for each set."""
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
    return results


def _score(rows: Sequence[Row], outputs: Sequence[Row]) -> dict[str, Any]:
    ranked = [[unicodedata.normalize("NFC", output["prediction"])] for output in outputs]
    accuracy = score_exact_match(ranked, [[row["summary"]] for row in rows], normalize=str)
    return {"exact_match": round(accuracy, 2), "words": len(rows)}


def render_page(results: dict[str, Any]) -> str:
    """The text of results/inflection.md."""
    facts = get_data_facts(results)
    lines = [
        "# Inflection: SIGMORPHON–UniMorph 2022",
        "",
        "The form of a lemma with given features, such as `walk` and `V;PST`: `walked` (Kodner et al. 2022, part 1). "
        "One model for each set, trained by the default command with `--features_column features` on the set's own "
        "triples, validated on the task's development set; each test set scored once: "
        f"`{facts['signature']}`, beam 5. "
        "“Non-neural” and “neural” are the organisers' baselines, CLUZH and UBC the best teams; some of the published "
        "systems are ensembles or use augmented data.",
    ]
    for size in SIZES:
        names = [name for name in SETS if name.endswith(size) and find_runs(results, name, COPYNET)]
        if names:
            lines += ["", f"## {len(names)} {size} sets", "", _size_table(results, facts["published"], names)]
    return assemble_page(results, lines)


def _size_table(results: dict[str, Any], published: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> str:
    """A row for each set, then the mean over the words of these sets."""
    rows, totals = [], dict.fromkeys([COPYNET, *PUBLISHED], 0.0)
    words = 0
    for name in names:
        runs = find_runs(results, name, COPYNET)
        ours = sum(run["scores"]["exact_match"] for run in runs) / len(runs)
        theirs = {system: published[name][system] for system in PUBLISHED}
        minutes = round(sum(run["minutes"] for run in runs) / len(runs), 1)
        rows.append([name.split("_")[0], round(published[name]["train_pairs"]), ours, *theirs.values(), minutes])
        count = runs[0]["scores"]["words"]
        words += count
        for system, score in {COPYNET: ours, **theirs}.items():
            totals[system] += count * (score or 0.0)
    means = [round(total / words, 2) for total in totals.values()]
    rows.append(["all, by word", "", *means, ""])
    return table(["", "training triples", COPYNET, *PUBLISHED.values(), "minutes"], rows)
