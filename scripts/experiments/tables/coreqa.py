"""CoreQA (He et al. 2017): answers with names from the question and dates from facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..data.birthdays import PATTERNS, make_birthday_rows
from ..data.rows import Row
from ..reports.markdown import assemble_page, escape_markdown, find_runs, get_data_facts, score_table
from ..reports.model_cards import Card
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import RNNSEARCH, compare_models
from ..scores.birthday_answers import score_answers

RETRIEVAL = {"copy_mechanism": "retrieval"}
MODELS: dict[str, dict[str, Any]] = {
    "CoreQA": RETRIEVAL,
    "CoreQA without retrieval": RETRIEVAL | {"copies_from": ["question"]},
    "CoreQA without copying": RETRIEVAL | {"copies_from": ["facts"]},
    "CopyNet, question and facts as one text": {},
    "RNNSearch, question and facts as one text": RNNSEARCH,
}
TESTS = ("new persons", "new persons and dates")
SCORES = {name: name for name in ("name or pronoun", "year", "month", "day", "all")}
# From memory, with low confidence: 80,000 persons, names and dates of the same kind as in training.
PAPER = {"CoreQA, in the paper (recalled)": (100.0, 84.8, 93.4, 81.0)}
TRAINING: dict[str, Any] = {
    "segmenter": "whitespace",
    "vocab_size": 400,
    "min_frequency": 20,
    "max_source_oov": 8,
    "embedding_size": 64,
    "hidden_size": 128,
    "encoder_hidden_size": 64,
    "attention_size": 64,
    "dropout": 0.1,
    "max_source_length": 40,
    "max_target_length": 24,
    "num_train_epochs": 8,
    "learning_rate": 2e-3,
    "num_beams": 5,
}

MODEL_NAMES = tuple(MODELS)
CARD = Card(
    file="birthdays",
    title="Answers about birthdays",
    summary="Answers questions about a person's birthday from facts that are given with them.",
    language="en",
    datasets=("copynet-birthdays",),
    pipeline_tag="question-answering",
    data="12,000 pairs made by rule of 4,000 persons who do not exist, after the synthetic data of CoreQA: a "
    "question, four facts, an answer by one of 108 patterns.",
    limits="It knows birthdays and nothing else.",
    tests={test: test for test in TESTS},
    metrics={score: ("accuracy", score) for score in SCORES},
    examples=TESTS[1],
    main_score="all",
    kind="It is a model of [copynet_hf](https://pypi.org/project/copynet-hf), `copy_mechanism` and all in its config; "
    "CoreQA is He et al. 2017, P17-1019.",
    use="""from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import copynet_hf  # registers the model

tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
text = {source}
facts = {facts}
inputs = tokenizer([text], facts=[facts], return_tensors="pt")
output = model.generate(**inputs)
print(tokenizer.batch_decode(output, source=[text], facts=[facts], skip_special_tokens=True))
""",
)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("coreqa", settings)
    rows = {split: settings.limit(of_split) for split, of_split in make_birthday_rows(settings.seed).items()}
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


def render_page(results: dict[str, Any]) -> str:
    """The text of results/coreqa.md."""
    facts = get_data_facts(results)
    count = facts["examples"]
    patterns = 4 * sum(len(answers) for _, answers in PATTERNS.values())
    lines = [
        "# CoreQA: answers from facts",
        "",
        "Questions about the birthday of a person, with four facts: year, month, day and gender (after the synthetic "
        f"data of He et al. 2017). {patterns} answer patterns, half with the name and half with a pronoun. "
        f"{count['train']:,} training pairs; none of the names of the tests stands in training, and in the second "
        "test no date either. An answer is right if it has the name or the pronoun of the person, and the year, the "
        "month, the day that were asked for; all: all of that and no number that was not asked for. Beam 5. “Without "
        "retrieval” and “without copying” read facts and question, and write from one of them alone.",
    ]
    for test in TESTS:
        paper = [[name, *cells] for name, cells in PAPER.items()] if test == TESTS[0] else []
        lines += ["", f"## {test.capitalize()}, {count[test]:,} questions"]
        lines += ["", score_table(results, test, MODELS, SCORES, paper)]
    lines += ["", "## The first answers about new persons and dates", ""]
    for output in next((run["outputs"] for run in find_runs(results, TESTS[1], "CoreQA")), []):
        triples = "; ".join(f"{name}: {value}" for _, name, value in output["facts"])
        lines += [f"- {escape_markdown(output['text'])} ({triples}) **{escape_markdown(output['prediction'])}**"]
    return assemble_page(results, lines)
