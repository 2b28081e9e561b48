"""Replies in Japanese chat, after the Chainer article about CopyNet, each word marked "copy" or "gen"."""

from __future__ import annotations

from collections import Counter
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.japanese_pairs import read_japanese_pairs
from ..data.rows import Row
from ..reports.markdown import find_runs, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH_AND_COPYNET, compare_models, round_scores

DATA = "replies"
SCORES = {
    "rouge1": "R-1",
    "rouge2": "R-2",
    "rougeL": "R-L",
    "bleu": "BLEU",
    "exact_match": "EM",
    "copied_fraction": "copied",
}
TRAINING = read_training("japanese")
STORED_OUTPUTS = 60
ARTICLE_DATA = "the article's"
# The article's inputs, and its model's replies after seven epochs.
ARTICLE = {
    "おはよう": "おはようございます",
    "調子はどうですか？": "調子は",
    "お腹が空きました": "お腹が空きました",
    "今日は暑いです": "暑いです",
}

MODEL_NAMES = tuple(RNNSEARCH_AND_COPYNET)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("japanese", settings)
    pairs = settings.limit_splits(read_japanese_pairs(settings.data_dir, settings.seed))
    test = pairs.pop("test")
    results.add_data_facts(
        signature=metric_signature([row["summary"] for row in test])["rouge1"],
        examples={"test": len(test), **{name: len(rows) for name, rows in pairs.items()}},
        baselines={DATA: score_baselines(pairs["train"], test)},
    )
    article: list[Row] = [{"text": text, "summary": reply} for text, reply in ARTICLE.items()]
    tests = {DATA: test, ARTICLE_DATA: article}
    compare_models(results, RNNSEARCH_AND_COPYNET, pairs, tests, TRAINING, settings, stored_outputs=STORED_OUTPUTS)
    return results


def score_baselines(train: list[Row], test: list[Row]) -> dict[str, dict[str, Any]]:
    """Scores the most frequent reply, and the utterance repeated, with and without ですね."""
    ((frequent, _),) = Counter(row["summary"] for row in train).most_common(1)
    texts, references = [row["text"] for row in test], [row["summary"] for row in test]
    outputs_of = {
        "the most frequent reply": [frequent] * len(test),
        "the utterance itself": texts,
        "the utterance and ですね": [f"{text}ですね" for text in texts],
    }
    return {name: round_scores(score_outputs(outputs, references, texts)) for name, outputs in outputs_of.items()}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/japanese.md."""
    outputs: dict[str, list[Row]] = {
        data: next((run["outputs"] for run in find_runs(results, data, "CopyNet")), [])
        for data in (DATA, ARTICLE_DATA)
    }
    return {
        "scores": score_table(results, DATA, RNNSEARCH_AND_COPYNET, SCORES),
        "copynet": next((run["scores"] for run in find_runs(results, DATA, "CopyNet")), {}),
        "stored_outputs": STORED_OUTPUTS,
        "replies": [output for output in outputs[DATA] if any(output["copied"])],
        "article": outputs[ARTICLE_DATA],
    }
