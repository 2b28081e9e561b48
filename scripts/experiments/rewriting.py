"""Utterance rewriting (Su et al. 2019): the last utterance of a dialogue, with what it leaves out written out."""

from __future__ import annotations

from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from .cards import Card
from .pages import baseline_rows, facts, how_made, model_rows, side_by_side, table
from .runs import MODELS, Results, Row, Settings, compared, read_rows, rounded

TEST = "test"
# Exact match, BLEU-4 and ROUGE-L on the same test; the first is recalled, the others are from their papers.
PUBLISHED = {
    "pointer-generator LSTM (recalled)": (50.5, None, None),
    "transformer with pointer and gate (Su et al. 2019)": (52.6, 77.1, 89.0),
    "RUN (Liu et al. 2020)": (53.6, None, None),
}
SCORES = ("exact_match", "bleu", "rouge1", "rouge2", "rougeL", "oov_recall", "copied_fraction")
# Dialogues to look at, which the data do not have.
OWN = {
    ("周杰伦的新歌你听了吗", "听了，很好听", "什么时候出的"): "周杰伦的新歌什么时候出的",
    ("我想去张家界玩", "张家界很美", "坐火车多久能到"): "坐火车多久能到张家界",
    ("你养了什么宠物", "我养了一只柯基", "它几岁了"): "柯基几岁了",
    ("小米17好用吗", "拍照不错", "多少钱"): "小米17多少钱",
    ("昨天的考试难不难", "数学很难", "为什么难"): "数学为什么难",
    ("你认识林语堂吗", "认识，是作家", "他写过什么书"): "林语堂写过什么书",
    ("晚上吃螺蛳粉怎么样", "太臭了", "我就喜欢"): "我就喜欢螺蛳粉",
    ("明天会下雨吗", "会的", "那后天呢"): "后天会下雨吗",
}
SHOWN = len(OWN)
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

NAMES = tuple(MODELS)
CARD = Card(
    file="utterance-rewriting-zh",
    title="Utterance rewriting in Chinese",
    summary="Writes out what the last utterance of a Chinese dialogue leaves out, so that it stands alone.",
    language="zh",
    licence="other",
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


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("rewriting", settings)
    splits = {name: settings.first(dialogues(settings, name)) for name in ("train", "validation", "test")}
    test = splits.pop("test")
    references = [row["summary"] for row in test]
    utterances = [row["text"].rpartition("\n")[2] for row in test]
    results.note(
        signature=metric_signature(references),
        examples={"test": len(test), **{name: len(rows) for name, rows in splits.items()}},
        baselines={TEST: {"the utterance as it stands": rounded(score_outputs(utterances, references))}},
        known=len({row["text"] for row in test} & {row["text"] for row in splits["train"]}),
    )
    own = [{"text": "\n".join(text), "summary": reference} for text, reference in OWN.items()]
    compared(results, MODELS, splits, {TEST: test, "our own": own}, TRAINING, settings, shown=SHOWN)
    return results


def dialogues(settings: Settings, split: str) -> list[Row]:
    """Context and utterance, a line each, and the utterance rewritten."""
    rows = read_rows(settings.data_dir / "utterance_rewriting_zh" / f"{split}.jsonl")
    return [{"text": "\n".join([*row["context"], row["utterance"]]), "summary": row["target"]} for row in rows]


def page(results: dict[str, Any]) -> str:
    """What rewriting.md says."""
    known, names = facts(results), ("EM", "BLEU-4", "R-1", "R-2", "R-L", "unseen recalled", "copied")
    count = known["examples"]
    published = [
        [name, em, bleu, None, None, rouge, None, None, "", ""] for name, (em, bleu, rouge) in PUBLISHED.items()
    ]
    ours = [*baseline_rows(results, TEST, SCORES), *published, *model_rows(results, TEST, MODELS, SCORES)]
    lines = [
        "# Utterance rewriting",
        "",
        "Two lines of a Chinese dialogue and an utterance that leaves something out, to be rewritten so that it "
        f"stands alone (Su et al. 2019). {count['train']:,} training pairs, {count['validation']:,} for validation, "
        f"on which the settings were chosen, {count['test']:,} for this test, which was scored once for each seed; "
        f"{known['known']} of these dialogues stand in the training part as well, as it was given out. Characters, "
        f"beam {TRAINING['num_beams']}.",
        "",
        table(["", *names, "seeds", "minutes"], ours),
        "",
        "EM: exact match in percent. “Unseen recalled”: of the reference's characters that the vocabulary lacks and "
        "the source has, the share that the output has too. “Copied”: the share of the output's characters that the "
        "source has.",
        "",
        *(f"- {name}: `{value}`" for name, value in known["signature"].items()),
        "",
        "## Dialogues of our own",
        "",
        "Copied characters are bold. The data's own dialogues are not ours to print.",
        "",
        side_by_side(results, "our own", MODELS),
        "",
        how_made(results),
    ]
    return "\n".join(lines) + "\n"
