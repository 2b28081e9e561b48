"""CoreQA (He et al. 2017): answers with names and dates that come from the question and from facts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from .birthdays import PATTERNS, accuracy, birthday_rows
from .cards import Card
from .pages import baseline_rows, escaped, facts, how_made, model_rows, runs_of, table
from .runs import RNNSEARCH, Results, Row, Settings, compared

RETRIEVAL = {"copy_mechanism": "retrieval"}
MODELS: dict[str, dict[str, Any]] = {
    "CoreQA": RETRIEVAL,
    "CoreQA without retrieval": RETRIEVAL | {"copies_from": ["question"]},
    "CoreQA without copying": RETRIEVAL | {"copies_from": ["facts"]},
    "CopyNet, question and facts as one text": {},
    "RNNSearch, question and facts as one text": RNNSEARCH,
}
TESTS = ("new persons", "new persons and dates")
SCORES = ("name or pronoun", "year", "month", "day", "all")
# [recalled, low confidence]: of 80,000 persons, names and dates of the same kind as in training
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

NAMES = tuple(MODELS)
CARD = Card(
    file="birthdays",
    title="Answers about birthdays",
    summary="Answers questions about a person's birthday from facts that are given with them.",
    language="en",
    licence="apache-2.0",
    datasets=("copynet-birthdays",),
    pipeline_tag="question-answering",
    data="12,000 pairs made by rule of 4,000 persons who do not exist, after the synthetic data of CoreQA: a "
    "question, four facts, an answer by one of 108 patterns.",
    limits="It knows birthdays and nothing else.",
    tests={test: test for test in TESTS},
    metrics={score: ("accuracy", score) for score in SCORES},
    examples=TESTS[1],
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


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("coreqa", settings)
    rows = {split: settings.first(made) for split, made in birthday_rows(settings.seed).items()}
    tests = {name: rows.pop(name) for name in TESTS}
    results.note(
        signature="the words that must be there, and no other number",
        examples={name: len(split) for name, split in {**rows, **tests}.items()},
        baselines={name: baselines(rows["train"], test) for name, test in tests.items()},
    )
    compared(results, MODELS, rows, tests, TRAINING, settings, score=partial(_score, tests), shown=8)
    return results


def _score(tests: dict[str, list[Row]], data: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, Any]:
    return accuracy([output["prediction"] for output in outputs], tests[data])


def baselines(train: Sequence[Row], test: Sequence[Row]) -> dict[str, dict[str, float]]:
    """The question itself, and the answer of the training pair with the same question but for the name."""
    known = {row["text"].replace(row["name"], ""): row["summary"] for row in train}
    alike = [known.get(row["text"].replace(row["name"], ""), "") for row in test]
    return {
        "the question itself": accuracy([row["text"] for row in test], test),
        "the answer to the same question about another": accuracy(alike, test),
    }


def page(results: dict[str, Any]) -> str:
    """What coreqa.md says."""
    known = facts(results)
    count = known["examples"]
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
        paper = [[name, *cells, None, "", ""] for name, cells in PAPER.items()] if test == TESTS[0] else []
        rows = [*baseline_rows(results, test, SCORES), *paper, *model_rows(results, test, MODELS, SCORES)]
        lines += [
            "",
            f"## {test.capitalize()}, {count[test]:,} questions",
            "",
            table(["", *SCORES, "seeds", "minutes"], rows),
        ]
    lines += ["", "## The first answers about new persons and dates", ""]
    for output in next((run["outputs"] for run in runs_of(results, TESTS[1], "CoreQA")), []):
        known_facts = "; ".join(f"{name}: {value}" for _, name, value in output["facts"])
        lines += [f"- {escaped(output['text'])} ({known_facts}) **{escaped(output['prediction'])}**"]
    return "\n".join([*lines, "", how_made(results)]) + "\n"
