"""Replies in Japanese chat, after the Chainer article about CopyNet, with "copy" or "gen" over each word."""

from __future__ import annotations

from collections import Counter
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from .cards import Card
from .japanese_pairs import japanese_pairs
from .pages import baseline_rows, escaped, facts, how_made, model_rows, runs_of, table
from .runs import MODELS, Results, Row, Settings, compared, rounded

DATA = "replies"
SCORES = ("rouge1", "rouge2", "rougeL", "bleu", "exact_match", "copied_fraction")
TRAINING: dict[str, Any] = {
    "segmenter": "fugashi",
    "vocab_size": 2_000,
    "min_frequency": 2,
    "embedding_size": 128,
    "hidden_size": 128,
    "encoder_hidden_size": 128,
    "attention_size": 128,
    "dropout": 0.2,
    "max_source_length": 50,
    "max_target_length": 50,
    "num_train_epochs": 80,
    "load_best_model_at_end": False,  # where the loss is lowest every reply is そうですね
    "num_beams": 5,
}
SHOWN = 60
# What the article asks its model, and what that answers after seven epochs (its copied words are not marked here).
ARTICLE = {
    "おはよう": "おはようございます",
    "調子はどうですか？": "調子は",
    "お腹が空きました": "お腹が空きました",
    "今日は暑いです": "暑いです",
}

NAMES = tuple(MODELS)
CARD = Card(
    file="chat-ja",
    title="Japanese chat, an exercise",
    summary="Replies to Japanese utterances, and tells which words of a reply it copied.",
    language="ja",
    licence="mit",
    datasets=("dbdc3",),
    pipeline_tag="text-generation",
    data="1,050 pairs of an utterance and a chat system's reply from 105 dialogues of the dialogue breakdown "
    "detection challenge 3 (MIT); MeCab's words, with fugashi and unidic-lite (`pip install copynet-hf[ja]`).",
    limits="An exercise: a thousand free replies, many of them bad in themselves, teach a model little more than "
    "to agree.",
    tests={DATA: "test"},
    metrics={
        "rouge1": ("rouge", "R-1"),
        "rouge2": ("rouge", "R-2"),
        "rougeL": ("rouge", "R-L"),
        "bleu": ("bleu", "BLEU-4"),
        "exact_match": ("exact_match", "EM"),
    },
    examples=DATA,
)


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("japanese", settings)
    pairs = {name: settings.first(rows) for name, rows in japanese_pairs(settings.data_dir, settings.seed).items()}
    test = pairs.pop("test")
    results.note(
        signature=metric_signature([row["summary"] for row in test])["rouge1"],
        examples={"test": len(test), **{name: len(rows) for name, rows in pairs.items()}},
        baselines={DATA: baselines(pairs["train"], test)},
    )
    asked = [{"text": text, "summary": reply} for text, reply in ARTICLE.items()]
    compared(results, MODELS, pairs, {DATA: test, "the article's": asked}, TRAINING, settings, shown=SHOWN)
    return results


def baselines(train: list[Row], test: list[Row]) -> dict[str, dict[str, Any]]:
    """The most frequent reply, and the utterance said again, with and without agreeing."""
    ((frequent, _),) = Counter(row["summary"] for row in train).most_common(1)
    texts, references = [row["text"] for row in test], [row["summary"] for row in test]
    made = {
        "the most frequent reply": [frequent] * len(test),
        "the utterance itself": texts,
        "the utterance and ですね": [f"{text}ですね" for text in texts],
    }
    return {name: rounded(score_outputs(outputs, references, texts)) for name, outputs in made.items()}


def page(results: dict[str, Any]) -> str:
    """What japanese.md says."""
    known = facts(results)
    count = known["examples"]
    lines = [
        "# Japanese replies",
        "",
        f"What a user says to a chat system and what the system answers, {count['train']:,} pairs for training, "
        f"{count['validation']} for validation, {count['test']} for this test, from 150 dialogues of the dialogue "
        "breakdown detection challenge 3, no dialogue in two parts; MeCab's words. The Chainer article learns from an "
        "older and larger corpus of the same project and gives no scores.",
        "",
        table(
            ["", "R-1", "R-2", "R-L", "BLEU", "EM", "copied", "seeds", "minutes"],
            [*baseline_rows(results, DATA, SCORES), *model_rows(results, DATA, MODELS, SCORES)],
        ),
        "",
        f"ROUGE on characters: `{known['signature']}`. So few and such free replies cannot be learned well, and no "
        "score tells a sensible reply from an echo of the utterance. What is to be seen is which words are copied.",
    ]
    for title, data, other in (
        (f"Of the first {SHOWN} replies those that copied a word", DATA, "reference"),
        ("What the article asks its model", "the article's", "in the article"),
    ):
        outputs: list[Row] = next((run["outputs"] for run in runs_of(results, data, "CopyNet")), [])
        lines += ["", f"## {title}", ""]
        for output in outputs:
            if data != DATA or any(output["copied"]):
                lines += word_by_word(output, other)
    return "\n".join([*lines, "", how_made(results)]) + "\n"


def word_by_word(output: Row, other: str) -> list[str]:
    """The utterance, another reply, and the model's with what each word came from written over it."""
    words = zip(output["words"], output["copied"], strict=True)
    over = " ".join(f"<ruby>{escaped(word)}<rt>{'copy' if copied else 'gen'}</rt></ruby>" for word, copied in words)
    said = f"{escaped(output['text'])} ({other}: {escaped(output['reference'])})"
    return [f"- {said}<br>", f"  {over or '(nothing)'}"]
