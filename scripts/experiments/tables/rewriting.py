"""Utterance rewriting (Su et al. 2019): the last utterance of a dialogue, completed so that it needs no context."""

from __future__ import annotations

from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.rows import Row
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import assemble_page, compare_outputs, get_data_facts, score_table
from ..reports.model_cards import Card
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import RNNSEARCH_AND_COPYNET, compare_models, round_scores

TEST = "test"
# Exact match, BLEU-4 and ROUGE-L on the same test set. The first row is from memory, the others are from the papers.
PUBLISHED = {
    "pointer-generator LSTM (recalled)": (50.5, None, None),
    "transformer with pointer and gate (Su et al. 2019)": (52.6, 77.1, 89.0),
    "RUN (Liu et al. 2020)": (53.6, None, None),
}
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
TRAINING: dict[str, Any] = {
    "segmenter": "char",
    "vocab_size": 5_000,
    "embedding_size": 256,
    "hidden_size": 384,
    "encoder_hidden_size": 256,
    "attention_size": 256,
    "dropout": 0.3,
    "tie_word_embeddings": True,
    "max_source_length": 100,
    "max_target_length": 50,
    "num_train_epochs": 10,
    "load_best_model_at_end": False,  # exact match still rises when the loss does
    "num_beams": 5,
}

MODEL_NAMES = tuple(RNNSEARCH_AND_COPYNET)
CARD = Card(
    file="utterance-rewriting-zh",
    title="Utterance rewriting in Chinese",
    summary="Writes out what the last utterance of a Chinese dialogue leaves out, so that it stands alone.",
    language="zh",
    datasets=("utterance-rewriting-zh",),
    pipeline_tag="text-generation",
    data="17,000 dialogues of Su et al. 2019 (github.com/chin-gyou/dialogue-utterance-rewriter), three utterances "
    "each, a line each. No licence is stated: for evaluation only.",
    limits="Two utterances of context, in Chinese, short. Trained on data without a licence, it is not for products.",
    tests={TEST: "test"},
    metrics={
        "exact_match": ("exact_match", "EM"),
        "bleu": ("bleu", "BLEU-4"),
        "rouge1": ("rouge", "R-1"),
        "rouge2": ("rouge", "R-2"),
        "rougeL": ("rouge", "R-L"),
    },
    examples="our own",
)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("rewriting", settings)
    splits = {
        name: settings.limit(read_dialogues(settings.data_dir, name)) for name in ("train", "validation", "test")
    }
    test = splits.pop("test")
    references = [row["summary"] for row in test]
    utterances = [row["text"].rpartition("\n")[2] for row in test]
    results.add_data_facts(
        signature=metric_signature(references),
        examples={"test": len(test), **{name: len(rows) for name, rows in splits.items()}},
        baselines={TEST: {"the utterance as it stands": round_scores(score_outputs(utterances, references))}},
        known=len({row["text"] for row in test} & {row["text"] for row in splits["train"]}),
    )
    own: list[Row] = [{"text": "\n".join(lines), "summary": reference} for lines, reference in OWN_DIALOGUES.items()]
    tests = {TEST: test, "our own": own}
    compare_models(results, RNNSEARCH_AND_COPYNET, splits, tests, TRAINING, settings, stored_outputs=len(own))
    return results


def render_page(results: dict[str, Any]) -> str:
    """The text of results/rewriting.md."""
    facts = get_data_facts(results)
    count = facts["examples"]
    published = [[name, em, bleu, None, None, rouge] for name, (em, bleu, rouge) in PUBLISHED.items()]
    lines = [
        "# Utterance rewriting",
        "",
        "Two lines of a Chinese dialogue and an utterance that leaves something out, to be rewritten so that it "
        f"stands alone (Su et al. 2019). {count['train']:,} training pairs, {count['validation']:,} for validation, "
        f"on which the settings were chosen, {count['test']:,} for this test, which was scored once for each seed; "
        f"{facts['known']} of these dialogues stand in the training part as well, as it was given out. Characters, "
        f"beam {TRAINING['num_beams']}.",
        "",
        score_table(results, TEST, RNNSEARCH_AND_COPYNET, SCORES, published),
        "",
        "EM: exact match in percent. “Unseen recalled”: of the reference's characters that the vocabulary lacks and "
        "the source has, the share that the output has too. “Copied”: the share of the output's characters that the "
        "source has.",
        "",
        *(f"- {name}: `{value}`" for name, value in facts["signature"].items()),
        "",
        "## Dialogues of our own",
        "",
        "Copied characters are bold. The data's own dialogues are not ours to print.",
        "",
        compare_outputs(results, "our own", RNNSEARCH_AND_COPYNET),
    ]
    return assemble_page(results, lines)
