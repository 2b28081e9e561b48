"""`copynet-hf quickstart`: a model that copies words it has never seen, made and looked at in under three minutes."""

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

from ..arguments import DataArguments, TokenizerArguments
from ..data import quickstart_pairs
from ..evaluation.scoring import evaluate_pairs
from ..inference.heatmap import plot_copy_heatmap
from ..inference.highlighting import Style, highlight_copies
from ..inference.predictor import predict_in_batches
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.prediction import predict
from ..model.tokenization_copynet import CopyNetTokenizer
from .model_setup import build_config, set_decoding
from .tokenizer_setup import train_tokenizer
from .trainer import TRAINING_DEFAULTS, make_trainer

MARKER = "quickstart.json"  # says that a folder is ours, and which model we put there
PICTURE = "copies.png"
WEIGHTS = "model.safetensors"
MAX_LENGTHS = DataArguments(max_source_length=64, max_target_length=32)
SHOWN = 6

T = TypeVar("T")


def run_quickstart(
    output_dir: str | Path = "copynet-quickstart",
    seed: int = 0,
    threads: int = 1,
    *,
    train_pairs: int = 4000,
    test_pairs: int = 500,
    epochs: float = 5,
) -> dict[str, Any]:
    """Makes data, trains, scores, shows, saves, loads again and draws; returns the scores.

    Raises:
        ValueError: `output_dir` holds something that the quickstart did not make.
    """
    start = time.perf_counter()
    folder = _own_folder(Path(output_dir))
    torch.set_num_threads(threads)
    train = Dataset.from_list(quickstart_pairs("train", train_pairs, seed))
    test = Dataset.from_list(quickstart_pairs("test", test_pairs, seed))
    print(f"{train_pairs} requests to learn from, {test_pairs} with new names, numbers and files to be tested on.")
    model, tokenizer = train_quickstart(train, seed, epochs)
    scores = _score(model, tokenizer, test)
    _show_outputs(model, tokenizer, test)
    _save(model, tokenizer, folder, seed)
    _load_again(model, tokenizer, folder, test)
    _draw(model, tokenizer, _pair_to_draw(test), folder / PICTURE)
    scores["total_seconds"] = round(time.perf_counter() - start, 1)
    print(f"\nDone in {scores['total_seconds']:.0f} seconds. What to type next:\n")
    print(f'copynet-hf generate --model {folder} --show_copies --text "{test[0]["text"]}"')
    print("copynet-hf train --train_file pairs.jsonl --validation_file held_out.jsonl --output_dir my-model")
    return scores


def train_quickstart(
    train: Dataset, seed: int, epochs: float
) -> tuple[CopyNetForConditionalGeneration, CopyNetTokenizer]:
    """A small CopyNet for the quickstart's pairs; a progress bar on stderr, nothing else."""
    set_seed(seed)
    tokenizer = train_tokenizer(train, TokenizerArguments(segmenter="whitespace"), None, MAX_LENGTHS.max_source_length)
    model = CopyNetForConditionalGeneration(build_config(tokenizer))
    set_decoding(model, num_beams=1, forbid_unk=True, max_new_tokens=MAX_LENGTHS.max_target_length)
    print(
        f"Training a CopyNet of {model.num_parameters():,} parameters that knows {len(tokenizer)} words; "
        "all others it can only copy."
    )
    with tempfile.TemporaryDirectory() as scratch:
        settings = TRAINING_DEFAULTS | {
            "num_train_epochs": epochs,
            "seed": seed,
            "train_sampling_strategy": "group_by_length",
            "save_strategy": "no",
            "logging_strategy": "no",
        }
        training = Seq2SeqTrainingArguments(output_dir=scratch, **settings)
        trainer = _without_bars(make_trainer, model, tokenizer, {"train": train}, training, MAX_LENGTHS)
        with redirect_stdout(StringIO()):  # the Trainer prints its figures as a Python dict
            trainer.train()
    return model.eval(), tokenizer


def _score(model: CopyNetForConditionalGeneration, tokenizer: CopyNetTokenizer, test: Dataset) -> dict[str, Any]:
    scores, _ = evaluate_pairs(model, tokenizer, test)
    unseen = [len(tokenizer.oov_words(text)) for text in test["text"]]
    scores["fewest_unseen_words"] = min(unseen)
    print(f"\nOn {len(test)} held-out requests, each with at least {min(unseen)} word(s) never seen in training:")
    print(f"  exact match  {scores['exact_match']:5.1f} %")
    if scores["oov_recall"] is not None:
        print(f"  OOV recall   {scores['oov_recall']:5.1f} %   of the unseen words that belong into the answer")
    return scores


def _show_outputs(model: CopyNetForConditionalGeneration, tokenizer: CopyNetTokenizer, test: Dataset) -> None:
    style: Style = "ansi" if sys.stdout.isatty() else "plain"
    texts = list(test["text"][:SHOWN])
    print(f"\nCopied words {'in colour' if style == 'ansi' else 'in [brackets]'}:")
    for text, (output, *_) in zip(texts, predict_in_batches(model, tokenizer, texts), strict=True):
        answer = highlight_copies(output.words, output.copied, style, separator="")
        print(f"  {text}\n    -> {answer}")


def _save(model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path, seed: int) -> None:
    _without_bars(model.save_pretrained, folder)
    tokenizer.save_pretrained(folder)
    marker = {"made_by": "copynet-hf quickstart", "seed": seed, "sha256": _digest(folder / WEIGHTS)}
    (folder / MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")


def _load_again(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, folder: Path, test: Dataset
) -> None:
    """Shows that the saved model answers as the one in memory does.

    Raises:
        RuntimeError: it does not.
    """
    texts = list(test["text"])
    loaded: Any = _without_bars(AutoModelForSeq2SeqLM.from_pretrained, folder)
    again = predict_in_batches(loaded.to(model.device), AutoTokenizer.from_pretrained(folder), texts)
    before = predict_in_batches(model, tokenizer, texts)
    differing = sum(new[0].text != old[0].text for new, old in zip(again, before, strict=True))
    if differing:
        raise RuntimeError(f"{differing} of {len(texts)} outputs differ after loading {folder} again")
    print(f"\nSaved in {folder}. Loaded with AutoModelForSeq2SeqLM and AutoTokenizer: the same {len(texts)} outputs.")


def _draw(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, pair: dict[str, str], path: Path
) -> None:
    output = predict(model, tokenizer, [pair["text"]], return_copy_probs=True)[0][0]
    plot_copy_heatmap(output.copy_probs, output.source_words, output.words, path)
    print(f"Where each word of an answer was copied from: {path}")


def _pair_to_draw(test: Dataset) -> dict[str, str]:
    """The pair with most answer words that stand in the request: there is most to see."""
    return max(test, key=lambda pair: len(set(pair["summary"].split()) & set(pair["text"].split())))


def _own_folder(folder: Path) -> Path:
    """The folder, with our mark in it.

    Raises:
        ValueError: it is a file, or holds what we did not make or a model that has changed since.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output_dir {folder} is a file: give a folder")
    marker, weights = folder / MARKER, folder / WEIGHTS
    if not marker.exists():
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(
                f"--output_dir {folder} holds files that the quickstart did not make: give another folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}\n", encoding="utf-8")
    elif weights.exists() and json.loads(marker.read_text(encoding="utf-8")).get("sha256") != _digest(weights):
        raise ValueError(
            f"--output_dir {folder} holds another model than the quickstart put there: give another folder"
        )
    return folder


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _without_bars(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """The call's result, without the bars that `datasets` and `transformers` draw for work of a second."""
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    logging.disable_progress_bar()
    try:
        return call(*args, **kwargs)
    finally:
        logging.enable_progress_bar()
        if shown:
            datasets.enable_progress_bars()
