"""Table 4 and Figure 5 of Gu et al. 2016: single-turn dialogue, with entities known (DS-I) and unknown (DS-II)."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from .cards import Card
from .dialogue import dialogue_pairs, read_patterns, says_more
from .pages import baseline_rows, facts, how_made, model_rows, side_by_side, table
from .runs import MODELS, Results, Row, Settings, compared, rounded

DATA = {"DS-I": "entities of one pool", "DS-II": "entities that no training pair has"}
PAPER = {("DS-I", "RNNSearch"): (44.1, 57.7), ("DS-I", "CopyNet"): (61.2, 71.0)}
PAPER |= {("DS-II", "RNNSearch"): (13.5, 15.9), ("DS-II", "CopyNet"): (50.5, 64.8)}
SCORES = ("exact_match", "exact_match_top_10", "accepted")
BEAMS = 10
TRAINING: dict[str, Any] = {
    "segmenter": "char",
    "vocab_size": 3_000,
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 256,
    "attention_size": 256,
    "dropout": 0.3,
    "max_source_length": 60,
    "max_target_length": 60,
    "num_train_epochs": 20,
    "load_best_model_at_end": False,  # exact match still rises when the loss does
    "num_beams": BEAMS,
}

NAMES = tuple(MODELS)
CARD = Card(
    file="dialogue-zh",
    title="Chinese small talk by pattern",
    summary="Answers messages of 173 patterns, with the names, places and numbers that a message holds.",
    language="zh",
    licence="apache-2.0",
    datasets=("copynet-dialogue",),
    pipeline_tag="text-generation",
    data="6,500 pairs made from 173 patterns that were written for this project; the words in their slots are "
    "jieba's dictionary's (MIT), numbers and dates are made.",
    limits="It knows 173 ways to begin a conversation and answers anything else with one of its replies. Where a "
    "pattern has several replies, or one with a name that the message does not have, it cannot know which is "
    "wanted.",
    tests=DATA,
    metrics={
        "exact_match": ("exact_match", "top-1"),
        "exact_match_top_10": ("exact_match", "top-10"),
        "accepted": ("exact_match", "accepted"),
    },
    examples="DS-II",
)


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("table4", settings)
    pairs = {
        data: {name: settings.first(rows) for name, rows in dialogue_pairs(data, settings.seed).items()}
        for data in DATA
    }
    results.note(
        signature=metric_signature([row["summary"] for row in pairs["DS-I"]["test"]])["exact_match"],
        examples={data: {name: len(rows) for name, rows in splits.items()} for data, splits in pairs.items()},
        baselines={data: baselines(splits) for data, splits in pairs.items()},
    )
    learned = {name: pairs["DS-I"][name] for name in ("train", "validation")}  # DS-II has the same
    tests = {data: splits["test"] for data, splits in pairs.items()}
    score = partial(_score, tests)
    compared(results, MODELS, learned, tests, TRAINING, settings, score=score, shown=15, num_return_sequences=BEAMS)
    return results


def _score(
    tests: Mapping[str, Sequence[Row]], data: str, scores: dict[str, Any], outputs: list[Row]
) -> dict[str, Any]:
    answers = [row["answers"] for row in tests[data]]
    accepted = score_outputs([output["prediction"] for output in outputs], answers)
    return scores | {"accepted": round(accepted["exact_match"], 2)}


def baselines(splits: dict[str, list[Row]]) -> dict[str, dict[str, float]]:
    """The message itself, the most frequent reply, and whoever knows the patterns but not which reply was drawn."""
    test = splits["test"]
    replies = Counter(row["summary"] for row in splits["train"]).most_common(BEAMS)
    frequent = [reply for reply, _ in replies]
    made = {
        "the message itself": [[row["text"]] for row in test],
        "the most frequent replies": [frequent for _ in test],
    }
    return {name: _baseline(outputs, test) for name, outputs in made.items()} | {
        "whoever knows the patterns": {
            "exact_match": round(100 * statistics.mean(_guessable(row) for row in test), 2),
        }
    }


def _guessable(row: Row) -> float:
    """The chance of naming the reply that was drawn, of those that only have words of the message."""
    replies = read_patterns()[row["pattern"]].replies
    return 0.0 if all(map(says_more, replies)) else 1 / len(replies)


def _baseline(outputs: list[list[str]], test: list[Row]) -> dict[str, float]:
    scores = rounded(score_outputs(outputs, [row["summary"] for row in test]))
    accepted = score_outputs(outputs, [row["answers"] for row in test])["exact_match"]
    top = scores.get("exact_match_top_10", scores["exact_match"])
    return {"exact_match": scores["exact_match"], "exact_match_top_10": top, "accepted": round(accepted, 2)}


def page(results: dict[str, Any]) -> str:
    """What table4.md says."""
    lines = [
        "# Table 4: single-turn dialogue",
        "",
        "173 patterns of message and reply with slots for names, places, foods, dates, ... (section 5.3 of Gu et al. "
        "2016). Theirs are not public: these were written for this project, and the slots are filled with words of "
        "jieba's dictionary. So the figures are not comparable one by one; what is to be seen is what becomes of a "
        "model when the entities of the test were never seen in training. Characters, beam 10. Top-1 and top-10: "
        "the output, or one of ten, is the very reply that was drawn for the message; accepted: the output is one of "
        "the replies that the pattern allows with these entities.",
    ]
    known = facts(results)
    for data, title in DATA.items():
        count = known["examples"][data]
        trivial = baseline_rows(results, data, SCORES)
        paper = [[f"{model}, in the paper", *PAPER[data, model], None, "", ""] for model in MODELS]
        lines += ["", f"## {data}: {title}", "", f"{count['train']:,} training and {count['test']:,} test pairs.", ""]
        lines += [
            table(
                ["", "top-1", "top-10", "accepted", "seeds", "minutes"],
                [*trivial, *paper, *model_rows(results, data, MODELS, SCORES)],
            )
        ]
    lines += ["", f"Exact match: `{known['signature']}`.", "", "## Figure 5", ""]
    lines += ["The first test messages of DS-II. Bold: characters that the copy mode gave more than half of"]
    lines += ["the probability.", "", side_by_side(results, "DS-II", MODELS), "", how_made(results)]
    return "\n".join(lines) + "\n"
