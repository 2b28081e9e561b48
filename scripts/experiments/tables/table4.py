"""Table 4 and Figure 5 of Gu et al. 2016: single-turn dialogue with seen (DS-I) and unseen entities (DS-II)."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.dialogue import has_new_entity, make_dialogue_pairs, read_patterns
from ..data.rows import Row
from ..reports.markdown import compare_outputs, read_published, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH_AND_COPYNET, compare_models, round_scores

DATA = {"DS-I": "entities of one pool", "DS-II": "entities that no training pair has"}
SCORES = {"exact_match": "top-1", "exact_match_top_10": "top-10", "accepted": "accepted"}
TRAINING = read_training("table4")
BEAMS = TRAINING["num_beams"]

MODEL_NAMES = tuple(RNNSEARCH_AND_COPYNET)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("table4", settings)
    pairs = {data: settings.limit_splits(make_dialogue_pairs(data, settings.seed)) for data in DATA}
    results.add_data_facts(
        signature=metric_signature([row["summary"] for row in pairs["DS-I"]["test"]])["exact_match"],
        examples={data: {name: len(rows) for name, rows in splits.items()} for data, splits in pairs.items()},
        baselines={data: score_baselines(splits) for data, splits in pairs.items()},
    )
    training_pairs = {name: pairs["DS-I"][name] for name in ("train", "validation")}  # the same as in DS-II
    tests = {data: splits["test"] for data, splits in pairs.items()}
    compare_models(
        results,
        RNNSEARCH_AND_COPYNET,
        training_pairs,
        tests,
        TRAINING,
        settings,
        score=partial(_score, tests),
        stored_outputs=15,
        num_return_sequences=BEAMS,
    )
    return results


def _score(
    tests: Mapping[str, Sequence[Row]], data: str, scores: dict[str, Any], outputs: list[Row]
) -> dict[str, Any]:
    answers = [row["answers"] for row in tests[data]]
    accepted = score_outputs([output["prediction"] for output in outputs], answers)
    return scores | {"accepted": round(accepted["exact_match"], 2)}


def score_baselines(splits: dict[str, list[Row]]) -> dict[str, dict[str, float]]:
    """Scores the message itself, the most frequent replies, and the upper bound for top-1.

    The upper bound draws from the pattern's replies at random and copies the entities of the message.
    """
    test = splits["test"]
    replies = Counter(row["summary"] for row in splits["train"]).most_common(BEAMS)
    frequent = [reply for reply, _ in replies]
    outputs_of = {
        "the message itself": [[row["text"]] for row in test],
        "the most frequent replies": [frequent for _ in test],
    }
    return {name: _score_ranked(outputs, test) for name, outputs in outputs_of.items()} | {
        "oracle that knows the patterns": {
            "exact_match": round(100 * statistics.mean(_chance_of_reply(row) for row in test), 2),
        }
    }


def _chance_of_reply(row: Row) -> float:
    """The chance of guessing the reply that was drawn among the pattern's; 0 if all of them have new entities."""
    replies = read_patterns()[row["pattern"]].replies
    return 0.0 if all(map(has_new_entity, replies)) else 1 / len(replies)


def _score_ranked(outputs: list[list[str]], test: list[Row]) -> dict[str, float]:
    scores = round_scores(score_outputs(outputs, [row["summary"] for row in test]))
    accepted = score_outputs(outputs, [row["answers"] for row in test])["exact_match"]
    top = scores.get("exact_match_top_10", scores["exact_match"])
    return {"exact_match": scores["exact_match"], "exact_match_top_10": top, "accepted": round(accepted, 2)}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/table4.md."""
    published = {
        data: {f"{model}, in the paper": scores for model, scores in of_data.items()}
        for data, of_data in read_published("table4").items()
    }
    return {
        "patterns": len(read_patterns()),
        "beams": BEAMS,
        "titles": DATA,
        "tables": {data: score_table(results, data, RNNSEARCH_AND_COPYNET, SCORES, published[data]) for data in DATA},
        "outputs": compare_outputs(results, "DS-II", RNNSEARCH_AND_COPYNET),
    }
