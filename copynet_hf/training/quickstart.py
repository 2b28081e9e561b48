"""`copynet-hf quickstart`: trains a small model and shows what it copies, in under three minutes."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..data import quickstart_pairs
from ..data.files import Row
from ..evaluation.scoring import Scores
from ..inference.part_files import write_json_lines
from ..model.prediction import predict
from ..saved.loading import load_model
from ..visualization.heatmap import plot_copy_heatmap
from ..visualization.highlighting import Style, highlight_copies
from .run import train_from_arguments
from .run_folder import PREDICTIONS_FILE

PICTURE = "copies.png"
# The requests are easier than most tasks, and a quarter of their words is outside the vocabulary anyway: fewer updates
# and less dropout than by default are enough.
ARGUMENTS = {
    "segmenter": "whitespace",
    "dropout": 0.2,
    "vocabulary_dropout": 0.0,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-3,
    "max_source_length": 64,
    "max_target_length": 32,
    "num_beams": 1,
    "save_strategy": "no",
    "logging_strategy": "no",
}
NUM_SHOWN = 6


def run_quickstart(
    output_dir: str | Path = "copynet-quickstart",
    seed: int = 0,
    threads: int = 1,
    *,
    overwrite_output_dir: bool = False,
    train_pairs: int = 4000,
    test_pairs: int = 500,
    epochs: float = 5,
) -> Scores:
    """Generates data, trains and evaluates as `copynet-hf train` does, shows outputs and draws; returns the scores.

    Args:
        seed: of the data and the model.
        overwrite_output_dir: whether the folder may hold a model.
    """
    start = time.perf_counter()
    folder = Path(output_dir)
    print(f"{train_pairs} training requests, {test_pairs} test requests with new names, numbers and files.")
    with tempfile.TemporaryDirectory() as data:
        arguments: dict[str, object] = {"output_dir": str(folder), "overwrite_output_dir": overwrite_output_dir}
        for split, number in {"train": train_pairs, "test": test_pairs}.items():
            path = Path(data, f"{split}.jsonl")
            write_json_lines(path, quickstart_pairs(split, number, seed))
            arguments[f"{split}_file"] = str(path)
        arguments |= {"seed": seed, "threads": threads, "num_train_epochs": epochs}
        metrics = train_from_arguments(ARGUMENTS | arguments)
    scores = {name.removeprefix("test_"): value for name, value in metrics.items() if name.startswith("test_")}
    model, tokenizer = load_model(str(folder))
    rows = [json.loads(line) for line in (folder / PREDICTIONS_FILE).read_text(encoding="utf-8").splitlines()]
    texts = [row["text"] for row in rows]
    scores["fewest_unseen_words"] = min(len(tokenizer.oov_words(text)) for text in texts)
    _show_outputs(rows, scores)
    print(f"\nSaved in {folder}.")
    drawn = max(rows, key=lambda row: len({*row["reference"].split()} & {*row["text"].split()}))
    output = predict(model, tokenizer, [drawn["text"]], return_copy_probs=True)[0][0]
    plot_copy_heatmap(output.copy_probs, output.source_words, output.words, folder / PICTURE)
    print(f"Heatmap of the source positions that an answer was copied from: {folder / PICTURE}")
    scores["total_seconds"] = round(time.perf_counter() - start, 1)
    print(f"\nDone in {scores['total_seconds']:.0f} seconds. Commands to try next:\n")
    print(f'copynet-hf generate --model {folder} --show_copies --text "{texts[0]}"')
    print("copynet-hf train --train_file train.jsonl --validation_file validation.jsonl --output_dir my-model")
    return scores


def _show_outputs(rows: Sequence[Row], scores: Scores) -> None:
    unseen = scores["fewest_unseen_words"]
    print(f"\nOn {len(rows)} test requests, each with at least {unseen} word(s) outside the vocabulary:")
    print(f"  exact match  {scores['exact_match']:5.1f} %")
    if scores["oov_recall"] is not None:
        print(f"  OOV recall   {scores['oov_recall']:5.1f} %   of the words that had to be copied")
    style: Style = "ansi" if sys.stdout.isatty() else "plain"
    print(f"\nCopied words {'in colour' if style == 'ansi' else 'in [brackets]'}:")
    for row in rows[:NUM_SHOWN]:
        answer = highlight_copies(row["words"], row["copied"], style, separator="")
        print(f"  {row['text']}\n    -> {answer}")
