"""Replies in Japanese chat, after the Chainer article about CopyNet, each word marked "copy" or "gen"."""

from __future__ import annotations

from collections import Counter
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.japanese_pairs import read_japanese_pairs
from ..data.rows import Row
from ..reports.markdown import assemble_page, escape_markdown, find_runs, get_data_facts, score_table
from ..reports.model_cards import Card
from ..running.results_file import ResultsFile
from ..running.settings import Settings
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
    "load_best_model_at_end": False,  # the model with the lowest loss replies そうですね to everything
    "num_beams": 5,
}
STORED_OUTPUTS = 60
# The article's inputs, and its model's replies after seven epochs.
ARTICLE = {
    "おはよう": "おはようございます",
    "調子はどうですか？": "調子は",
    "お腹が空きました": "お腹が空きました",
    "今日は暑いです": "暑いです",
}

MODEL_NAMES = tuple(RNNSEARCH_AND_COPYNET)
CARD = Card(
    file="chat-ja",
    title="Japanese chat, an exercise",
    summary="Replies to Japanese utterances, and tells which words of a reply it copied.",
    language="ja",
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


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("japanese", settings)
    pairs = {
        name: settings.limit(rows) for name, rows in read_japanese_pairs(settings.data_dir, settings.seed).items()
    }
    test = pairs.pop("test")
    results.add_data_facts(
        signature=metric_signature([row["summary"] for row in test])["rouge1"],
        examples={"test": len(test), **{name: len(rows) for name, rows in pairs.items()}},
        baselines={DATA: score_baselines(pairs["train"], test)},
    )
    article: list[Row] = [{"text": text, "summary": reply} for text, reply in ARTICLE.items()]
    tests = {DATA: test, "the article's": article}
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


def render_page(results: dict[str, Any]) -> str:
    """The text of results/japanese.md."""
    facts = get_data_facts(results)
    count = facts["examples"]
    lines = [
        "# Japanese replies",
        "",
        f"What a user says to a chat system and what the system answers, {count['train']:,} pairs for training, "
        f"{count['validation']} for validation, {count['test']} for this test, from 150 dialogues of the dialogue "
        "breakdown detection challenge 3, no dialogue in two parts; MeCab's words. The Chainer article learns from an "
        "older and larger corpus of the same project and gives no scores.",
        "",
        score_table(results, DATA, RNNSEARCH_AND_COPYNET, SCORES),
        "",
        f"ROUGE on characters: `{facts['signature']}`. So few and such free replies cannot be learned well, and no "
        "score tells a sensible reply from an echo of the utterance. What is to be seen is which words are copied.",
    ]
    for title, data, other in (
        (f"Of the first {STORED_OUTPUTS} replies those that copied a word", DATA, "reference"),
        ("What the article asks its model", "the article's", "in the article"),
    ):
        outputs: list[Row] = next((run["outputs"] for run in find_runs(results, data, "CopyNet")), [])
        lines += ["", f"## {title}", ""]
        for output in outputs:
            if data != DATA or any(output["copied"]):
                lines += annotate_reply(output, other)
    return assemble_page(results, lines)


def annotate_reply(output: Row, other: str) -> list[str]:
    """The utterance, its reference labelled `other`, and the model's reply with "copy" or "gen" over each word."""
    words = zip(output["words"], output["copied"], strict=True)
    reply = " ".join(
        f"<ruby>{escape_markdown(word)}<rt>{'copy' if copied else 'gen'}</rt></ruby>" for word, copied in words
    )
    utterance = f"{escape_markdown(output['text'])} ({other}: {escape_markdown(output['reference'])})"
    return [f"- {utterance}<br>", f"  {reply or '(nothing)'}"]
