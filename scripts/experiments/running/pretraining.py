"""Transformer encoders of our own: with random weights, or pre-trained by masked characters on training pairs.

As BERT (Devlin et al. 2019, section 3.1), without its next-sentence task. Every character is a piece, whitespace too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    EvalPrediction,
    PreTrainedTokenizerFast,
    Trainer,
    set_seed,
)

from copynet_hf.training.callbacks import TimeLimit
from copynet_hf.training.checkpoints import find_resume_checkpoint
from copynet_hf.training.defaults import build_training_arguments
from copynet_hf.training.run_folder import lock_output_dir

from ..data.rows import Row, read_rows

logger = logging.getLogger(__name__)

SPECIAL_PIECES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ENCODER_FIELDS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
MASKED = 0.15  # of the characters
IGNORED = -100  # label of a character that is not masked


def save_new_encoder(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Saves an encoder with random weights, the initial ones of `pretrain_encoder`, and its tokenizer.

    Args:
        arguments: train_file, vocab_size, max_pieces, `ENCODER_FIELDS` of `BertConfig`, seed, output_dir.

    Returns:
        the metrics of a training that takes no time.
    """
    model, tokenizer = _make_encoder(arguments, _read_texts(arguments["train_file"]))
    for part in (model, tokenizer):
        part.save_pretrained(arguments["output_dir"])
    return {"train_runtime": 0.0, "train_samples_per_second": 0.0, "epoch": 0.0}


def pretrain_encoder(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Trains an encoder to restore masked characters in the sources and targets of training pairs, and saves it.

    Args:
        arguments: those of `save_new_encoder`, validation_file, and Transformers' training arguments.

    Returns:
        the Trainer's metrics; those of the validation texts begin with `eval_` and are saved as eval_results.json.
    """
    torch.set_num_threads(arguments["threads"])
    folder = Path(arguments["output_dir"])
    texts = {split: _read_texts(arguments[f"{split}_file"]) for split in ("train", "validation")}
    model, tokenizer = _make_encoder(arguments, texts["train"])
    encoded = {split: _encode(tokenizer, rows, arguments["max_pieces"]) for split, rows in texts.items()}
    fixed = {"eval_strategy": "no", "save_strategy": "steps", "logging_steps": 100}
    trainer = Trainer(
        model=model,
        args=build_training_arguments({**arguments, **fixed}, encoded["train"], has_validation=False),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED),
        compute_metrics=_measure_accuracy,
        preprocess_logits_for_metrics=_take_best,
        callbacks=[TimeLimit(arguments["max_minutes"])] if arguments.get("max_minutes") else None,
    )
    checkpoint = find_resume_checkpoint(arguments.get("resume_from_checkpoint"), folder)
    with lock_output_dir(folder):
        metrics: dict[str, float] = trainer.train(resume_from_checkpoint=checkpoint).metrics
        trainer.save_model()
        trainer.save_state()
        # the same characters are masked whatever the training was
        trainer.data_collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED, seed=0)
        evaluated = trainer.evaluate()
        trainer.save_metrics("eval", evaluated)
    return metrics | evaluated


def train_character_tokenizer(texts: Iterable[str], vocab_size: int, max_pieces: int) -> PreTrainedTokenizerFast:
    """A tokenizer of the most frequent characters. The segmenter `char` gives the same pieces."""
    backend = Tokenizer(models.WordLevel(unk_token=SPECIAL_PIECES["unk_token"]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    special = list(SPECIAL_PIECES.values())
    backend.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=special))
    start, end = SPECIAL_PIECES["cls_token"], SPECIAL_PIECES["sep_token"]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(piece, backend.token_to_id(piece)) for piece in (start, end)],
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=max_pieces, **SPECIAL_PIECES)


def _make_encoder(
    arguments: Mapping[str, Any], texts: Iterable[str]
) -> tuple[BertForMaskedLM, PreTrainedTokenizerFast]:
    tokenizer = train_character_tokenizer(texts, arguments["vocab_size"], arguments["max_pieces"])
    set_seed(arguments["seed"])
    sizes = {name: arguments[name] for name in ENCODER_FIELDS}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=arguments["max_pieces"], **sizes)
    return BertForMaskedLM(config), tokenizer


def _read_texts(file: str) -> list[str]:
    """The sources and targets of a file of pairs."""
    rows: list[Row] = read_rows(Path(file))
    return [text for row in rows for text in (row["text"], row["summary"])]


def _encode(tokenizer: PreTrainedTokenizerFast, texts: list[str], max_pieces: int) -> Dataset:
    encoded = tokenizer(texts, truncation=True, max_length=max_pieces, return_special_tokens_mask=True)
    return Dataset.from_dict({name: encoded[name] for name in ("input_ids", "attention_mask", "special_tokens_mask")})


def _take_best(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(-1)


def _measure_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The percentage of the masked characters that are restored."""
    labels = np.asarray(prediction.label_ids)
    is_right = np.asarray(prediction.predictions) == labels
    return {"accuracy": 100 * float(is_right[labels != IGNORED].mean())}
