"""Utterance rewriting (Su et al. 2019): the last utterance of a dialogue, with what it leaves out written out."""

from __future__ import annotations

from typing import Any

from copynet_hf.metrics import metric_signature, score_outputs

from .cards import Card
from .pages import how_made, model_rows, side_by_side, table
from .runs import MODELS, Results, Row, Settings, compared, read_rows, rounded

DATA = "dialogues"
# Exact match, BLEU-4 and ROUGE-L on the same test; the first is recalled, the others are from their papers.
PUBLISHED = {
    "pointer-generator LSTM (recalled)": (50.5, None, None),
    "transformer with pointer and gate (Su et al. 2019)": (52.6, 77.1, 89.0),
    "RUN (Liu et al. 2020)": (53.6, None, None),
}
SCORES = ("exact_match", "bleu", "rouge1", "rouge2", "rougeL", "oov_recall", "copied_fraction")
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

CARDS = [
    Card(
        file="copynet-utterance-rewriting-zh",
        model="CopyNet",
        title="CopyNet for utterance rewriting",
        summary="Writes out what the last utterance of a Chinese dialogue leaves out, so that it stands alone.",
        language="zh",
        licence="other",
        datasets=("utterance-rewriting-zh",),
        pipeline_tag="text-generation",
        data="17,000 dialogues of Su et al. 2019 (github.com/chin-gyou/dialogue-utterance-rewriter), three utterances "
        "each, a line each. No licence is stated: for evaluation only.",
        limits="Two utterances of context, in Chinese, short. It now and then takes up the wrong one of two names. "
        "Trained on data without a licence, it is not for products.",
        tests={DATA: "test"},
        metrics={
            "exact_match": ("exact_match", "EM"),
            "bleu": ("bleu", "BLEU-4"),
            "rouge1": ("rouge", "R-1"),
            "rouge2": ("rouge", "R-2"),
            "rougeL": ("rouge", "R-L"),
        },
    )
]


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("rewriting", settings)
    splits = {name: settings.first(dialogues(settings, name)) for name in ("train", "validation", "test")}
    test = splits["test"]
    references = [row["summary"] for row in test]
    results.note(
        signature=metric_signature(references),
        examples={name: len(rows) for name, rows in splits.items()},
        baselines={
            DATA: {
                "the utterance as it stands": rounded(
                    score_outputs([row["text"].rpartition("\n")[2] for row in test], references)
                )
            }
        },
    )

    compared(results, MODELS, splits, {DATA: splits.pop("test")}, TRAINING, settings, shown=10)
    return results


def dialogues(settings: Settings, split: str) -> list[Row]:
    """Context and utterance, a line each, and the utterance rewritten."""
    rows = read_rows(settings.data_dir / "utterance_rewriting_zh" / f"{split}.jsonl")
    return [{"text": "\n".join([*row["context"], row["utterance"]]), "summary": row["target"]} for row in rows]


def page(results: dict[str, Any]) -> str:
    """What rewriting.md says."""
    count, names = results["examples"], ("EM", "BLEU-4", "R-1", "R-2", "R-L", "unseen recalled", "copied")
    trivial = [[name, *map(scores.get, SCORES), "", ""] for name, scores in results["baselines"][DATA].items()]
    published = [
        [name, em, bleu, None, None, rouge, None, None, "", ""] for name, (em, bleu, rouge) in PUBLISHED.items()
    ]
    lines = [
        "# Utterance rewriting",
        "",
        "Two lines of a Chinese dialogue and an utterance that leaves something out, to be rewritten so that it "
        f"stands alone (Su et al. 2019). {count['train']:,} training pairs, {count['validation']:,} for validation, "
        f"{count['test']:,} for this test, which was scored once for each seed; characters, beam "
        f"{TRAINING['num_beams']}; the settings were chosen on validation.",
        "",
        table(
            ["", *names, "seeds", "minutes"],
            [*trivial, *published, *model_rows(results, DATA, MODELS, SCORES)],
        ),
        "",
        "EM: exact match in percent. “Unseen recalled”: of the reference's characters that the vocabulary lacks and "
        "the source has, the share that the output has too. “Copied”: the share of the output's characters that the "
        "source has.",
        "",
        *(f"- {name}: `{value}`" for name, value in results["signature"].items()),
        "",
        "## The first test dialogues",
        "",
        side_by_side(results, DATA, MODELS),
        "",
        how_made(results),
    ]
    return "\n".join(lines) + "\n"
