"""`copynet-hf quickstart`: trains a small model and shows what it copies, in under three minutes."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import datasets
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.utils import logging

from ..arguments import TokenizerArguments
from ..data import quickstart_pairs
from ..evaluation.scoring import Scores, evaluate_pairs
from ..inference.predictor import predict_in_batches
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.prediction import predict
from ..model.tokenization_copynet import CopyNetTokenizer
from ..visualization.heatmap import plot_copy_heatmap
from ..visualization.highlighting import Style, highlight_copies
from .defaults import TRAINING_DEFAULTS, choose_tokenizer_settings
from .model_setup import build_config, set_decoding
from .tokenizer_setup import train_tokenizer
from .trainer import make_trainer

MARKER_FILE = "quickstart.json"  # marks a folder of the quickstart, with the checksum of its model
PICTURE = "copies.png"
WEIGHTS = "model.safetensors"
MAX_LENGTHS = {"max_source_length": 64, "max_target_length": 32}
# Easier than most tasks: fewer updates and less dropout than by default are enough.
CONFIG = {"dropout": 0.2}
TRAINING = TRAINING_DEFAULTS | {
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-3,
    "train_sampling_strategy": "group_by_length",
    "save_strategy": "no",
    "logging_strategy": "no",
}
NUM_SHOWN = 6

T = TypeVar("T")


def run_quickstart(
    output_dir: str | Path = "copynet-quickstart",
    seed: int = 0,
    threads: int = 1,
    *,
    train_pairs: int = 4000,
    test_pairs: int = 500,
    epochs: float = 5,
) -> Scores:
    """Generates data, trains, evaluates, shows outputs, saves, reloads and draws; returns the scores.

    Args:
        seed: of the data and the model.
        threads: number of PyTorch threads.
        train_pairs: number of training pairs.
        test_pairs: number of test pairs.

    Raises:
        ValueError: `output_dir` holds files that the quickstart did not write.
    """
    start = time.perf_counter()
    folder = _prepare_folder(Path(output_dir))
    torch.set_num_threads(threads)
    train = Dataset.from_list(quickstart_pairs("train", train_pairs, seed))
    test = Dataset.from_list(quickstart_pairs("test", test_pairs, seed))
    print(f"{train_pairs} training requests, {test_pairs} test requests with new names, numbers and files.")
    model, tokenizer = train_quickstart(train, seed, epochs)
    scores = _evaluate(model, tokenizer, test)
    _show_outputs(model, tokenizer, test)
    _save(model, tokenizer, folder, seed)
    _check_reloaded(model, tokenizer, folder, test)
    _draw(model, tokenizer, _select_pair_to_draw(test), folder / PICTURE)
    scores["total_seconds"] = round(time.perf_counter() - start, 1)
    print(f"\nDone in {scores['total_seconds']:.0f} seconds. Commands to try next:\n")
    print(f'copynet-hf generate --model {folder} --show_copies --text "{test[0]["text"]}"')
    print("copynet-hf train --train_file train.jsonl --validation_file validation.jsonl --output_dir my-model")
    return scores


def train_quickstart(
    train: Dataset, seed: int, epochs: float
) -> tuple[CopyNetForConditionalGeneration, CopyNetTokenizer]:
    """Trains a small CopyNet on the quickstart's pairs, with a progress bar on stderr."""
    set_seed(seed)
    settings = choose_tokenizer_settings(TokenizerArguments(segmenter="whitespace"), train)
    tokenizer = train_tokenizer(train, settings, MAX_LENGTHS["max_source_length"])
    model = CopyNetForConditionalGeneration(build_config(tokenizer, fields=CONFIG))
    set_decoding(model, num_beams=1, forbid_unk=True, max_new_tokens=MAX_LENGTHS["max_target_length"])
    print(
        f"Training a CopyNet with {model.num_parameters():,} parameters and a vocabulary of {len(tokenizer)} words; "
        "it can only copy other words."
    )
    with tempfile.TemporaryDirectory() as scratch:
        training_args = Seq2SeqTrainingArguments(
            output_dir=scratch, **TRAINING | {"num_train_epochs": epochs, "seed": seed}
        )
        trainer = _without_progress_bars(
            make_trainer, model, tokenizer, {"train": train}, training_args, **MAX_LENGTHS
        )
        with redirect_stdout(StringIO()):  # the Trainer prints its metrics as a Python dict
            trainer.train()
    return model.eval(), tokenizer


def _evaluate(model: CopyNetForConditionalGeneration, tokenizer: CopyNetTokenizer, test: Dataset) -> Scores:
    scores, _ = evaluate_pairs(model, tokenizer, test)
    fewest_unseen = scores["fewest_unseen_words"] = min(len(tokenizer.oov_words(text)) for text in test["text"])
    print(f"\nOn {len(test)} test requests, each with at least {fewest_unseen} word(s) outside the vocabulary:")
    print(f"  exact match  {scores['exact_match']:5.1f} %")
    if scores["oov_recall"] is not None:
        print(f"  OOV recall   {scores['oov_recall']:5.1f} %   of the out-of-vocabulary words of the answers")
    return scores


def _show_outputs(model: CopyNetForConditionalGeneration, tokenizer: CopyNetTokenizer, test: Dataset) -> None:
    style: Style = "ansi" if sys.stdout.isatty() else "plain"
    texts = list(test["text"][:NUM_SHOWN])
    print(f"\nCopied words {'in colour' if style == 'ansi' else 'in [brackets]'}:")
    for text, (output, *_) in zip(texts, predict_in_batches(model, tokenizer, texts), strict=True):
        answer = highlight_copies(output.words, output.copied, style, separator="")
        print(f"  {text}\n    -> {answer}")


def _save(model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path, seed: int) -> None:
    _without_progress_bars(model.save_pretrained, folder)
    tokenizer.save_pretrained(folder)
    marker = {"made_by": "copynet-hf quickstart", "seed": seed, "sha256": _checksum(folder / WEIGHTS)}
    (folder / MARKER_FILE).write_text(json.dumps(marker) + "\n", encoding="utf-8")


def _check_reloaded(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path, test: Dataset
) -> None:
    """Checks that the saved model generates the same outputs as the one in memory.

    Raises:
        RuntimeError: outputs differ.
    """
    texts = list(test["text"])
    reloaded: Any = _without_progress_bars(AutoModelForSeq2SeqLM.from_pretrained, folder)
    outputs = predict_in_batches(reloaded.to(model.device), AutoTokenizer.from_pretrained(folder), texts)
    expected = predict_in_batches(model, tokenizer, texts)
    num_different = sum(
        output[0].text != reference[0].text for output, reference in zip(outputs, expected, strict=True)
    )
    if num_different:
        raise RuntimeError(f"{num_different} of {len(texts)} outputs differ after reloading {folder}")
    print(
        f"\nSaved in {folder}. Reloaded with AutoModelForSeq2SeqLM and AutoTokenizer: the same {len(texts)} outputs."
    )


def _draw(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, pair: dict[str, str], path: Path
) -> None:
    output = predict(model, tokenizer, [pair["text"]], return_copy_probs=True)[0][0]
    plot_copy_heatmap(output.copy_probs, output.source_words, output.words, path)
    print(f"Heatmap of the source positions that an answer was copied from: {path}")


def _select_pair_to_draw(test: Dataset) -> dict[str, str]:
    """The pair with the most answer words that also occur in the request."""
    return max(test, key=lambda pair: len(set(pair["summary"].split()) & set(pair["text"].split())))


def _prepare_folder(folder: Path) -> Path:
    """Creates the folder with the quickstart's marker, or checks that it holds an earlier quickstart.

    Raises:
        ValueError: a file, or a folder with other files or with a model that has changed since.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: pass a folder")
    marker, weights = folder / MARKER_FILE, folder / WEIGHTS
    if not marker.exists():
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(
                f"--output_dir {folder} holds files that the quickstart did not write: use another folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}\n", encoding="utf-8")
    elif weights.exists() and json.loads(marker.read_text(encoding="utf-8")).get("sha256") != _checksum(weights):
        raise ValueError(
            f"--output_dir {folder} holds another model than the quickstart saved there: use another folder"
        )
    return folder


def _checksum(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _without_progress_bars(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls `call` with the progress bars of `datasets` and `transformers` turned off."""
    were_enabled = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    try:
        return call(*args, **kwargs)
    finally:
        logging.enable_progress_bar()
        if were_enabled:
            datasets.enable_progress_bars()
