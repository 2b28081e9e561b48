"""CoreQA (He et al. 2017): answers with names from the question and dates from facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..data.birthdays import PATTERNS, make_birthday_rows
from ..data.rows import Row
from ..reports.markdown import find_runs, read_published, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH, compare_models
from ..scores.birthday_answers import score_answers

RETRIEVAL = {"copy_mechanism": "retrieval"}
COPYNET = "CopyNet, question and facts as one text"
MODELS: dict[str, dict[str, Any]] = {
    "CoreQA": RETRIEVAL,
    "CoreQA without retrieval": RETRIEVAL | {"copies_from": ["question"]},
    "CoreQA without copying": RETRIEVAL | {"copies_from": ["facts"]},
    COPYNET: {},
    "RNNSearch, question and facts as one text": RNNSEARCH,
}
TESTS = ("new persons", "new persons and dates")
SCORES = {name: name for name in ("name or pronoun", "year", "month", "day", "all")}
TRAINING = read_training("coreqa")

MODEL_NAMES = tuple(MODELS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("coreqa", settings)
    rows = settings.limit_splits(make_birthday_rows(settings.seed))
    tests = {name: rows.pop(name) for name in TESTS}
    results.add_data_facts(
        signature="the words that must be there, and no other number",
        examples={name: len(split) for name, split in {**rows, **tests}.items()},
        baselines={name: score_baselines(rows["train"], test) for name, test in tests.items()},
    )
    score = partial(_score, tests)
    compare_models(results, MODELS, rows, tests, TRAINING, settings, score=score, stored_outputs=8)
    return results


def _score(tests: dict[str, list[Row]], data: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, Any]:
    return score_answers([output["prediction"] for output in outputs], tests[data])


def score_baselines(train: Sequence[Row], test: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Scores the question itself, and a training answer to the same question about another person."""
    answers = {_remove_name(row): row["summary"] for row in train}
    return {
        "the question itself": score_answers([row["text"] for row in test], test),
        "the answer to the same question about another": score_answers(
            [answers.get(_remove_name(row), "") for row in test], test
        ),
    }


def _remove_name(row: Row) -> str:
    return row["text"].replace(row["name"], "")


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/coreqa.md."""
    published = read_published("coreqa")
    return {
        "beams": TRAINING["num_beams"],
        "patterns": 4 * sum(len(each["answers"]) for each in PATTERNS.values()),
        "tables": {
            test: score_table(results, test, MODELS, SCORES, published if test == TESTS[0] else None) for test in TESTS
        },
        "by_seed": [run["scores"]["all"] for run in find_runs(results, TESTS[1], COPYNET)],
        "outputs": next((run["outputs"] for run in find_runs(results, TESTS[1], "CoreQA")), []),
    }
