"""Utterance rewriting (Su et al. 2019): the last utterance of a dialogue, completed so that it needs no context."""

from __future__ import annotations

from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.rows import Row
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import compare_outputs, read_published, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH_AND_COPYNET, compare_models, round_scores

TEST = "test"
SCORES = {
    "exact_match": "EM",
    "bleu": "BLEU-4",
    "rouge1": "R-1",
    "rouge2": "R-2",
    "rougeL": "R-L",
    "oov_recall": "unseen recalled",
    "copied_fraction": "copied",
}
# Dialogues of our own, whose outputs may be published; the data's may not.
OWN_DIALOGUES = {
    ("周杰伦的新歌你听了吗", "听了，很好听", "什么时候出的"): "周杰伦的新歌什么时候出的",
    ("我想去张家界玩", "张家界很美", "坐火车多久能到"): "坐火车多久能到张家界",
    ("你养了什么宠物", "我养了一只柯基", "它几岁了"): "柯基几岁了",
    ("小米17好用吗", "拍照不错", "多少钱"): "小米17多少钱",
    ("昨天的考试难不难", "数学很难", "为什么难"): "数学为什么难",
    ("你认识林语堂吗", "认识，是作家", "他写过什么书"): "林语堂写过什么书",
    ("晚上吃螺蛳粉怎么样", "太臭了", "我就喜欢"): "我就喜欢螺蛳粉",
    ("明天会下雨吗", "会的", "那后天呢"): "后天会下雨吗",
}
TRAINING = read_training("rewriting")

MODEL_NAMES = tuple(RNNSEARCH_AND_COPYNET)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("rewriting", settings)
    splits = settings.limit_splits(read_dialogues(settings.data_dir))
    test = splits.pop("test")
    references = [row["summary"] for row in test]
    trained = {row["text"] for row in splits["train"]}
    utterances = [row["text"].rpartition("\n")[2] for row in test]
    results.add_data_facts(
        signature=metric_signature(references),
        examples={"test": len(test), **{name: len(rows) for name, rows in splits.items()}},
        baselines={TEST: {"the utterance as it stands": round_scores(score_outputs(utterances, references))}},
        known=sum(row["text"] in trained for row in test),
    )
    own: list[Row] = [{"text": "\n".join(lines), "summary": reference} for lines, reference in OWN_DIALOGUES.items()]
    tests = {TEST: test, "our own": own}
    compare_models(results, RNNSEARCH_AND_COPYNET, splits, tests, TRAINING, settings, stored_outputs=len(own))
    return results


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/rewriting.md."""
    return {
        "beams": TRAINING["num_beams"],
        "scores": score_table(results, TEST, RNNSEARCH_AND_COPYNET, SCORES, read_published("rewriting")),
        "outputs": compare_outputs(results, "our own", RNNSEARCH_AND_COPYNET),
    }
