"""Transformers of our own, pre-trained on the texts of training pairs.

Encoders: with random weights, or pre-trained by masked characters as BERT (Devlin et al. 2019, section 3.1), without
its next-sentence task. Every character is a piece, whitespace too.

Encoder-decoders: T5's, pre-trained by its span corruption (Raffel et al. 2020, section 3.1.4).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
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
MASKED = 0.15  # of the characters, or pieces
MEAN_SPAN = 3  # pieces, of what T5 has to restore
NUM_SENTINELS = 32
IGNORED = -100  # label of a piece that is not to be restored
T5_FIELDS = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads")


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
    texts = {split: _read_texts(arguments[f"{split}_file"]) for split in ("train", "validation")}
    model, tokenizer = _make_encoder(arguments, texts["train"])
    encoded = {split: _encode(tokenizer, rows, arguments["max_pieces"]) for split, rows in texts.items()}

    def mask(seed: int | None = None) -> DataCollatorForLanguageModeling:
        return DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED, seed=seed)

    return _pretrain(model, tokenizer, encoded, mask, arguments)


def pretrain_seq2seq(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Trains a T5 to restore spans of the sources and targets of training pairs, and saves it.

    Args:
        arguments: train_file, validation_file, vocab_size, max_pieces, `T5_FIELDS` of `T5Config`, seed, output_dir,
            and Transformers' training arguments.

    Returns:
        as `pretrain_encoder`.
    """
    texts = {split: _read_texts(arguments[f"{split}_file"]) for split in ("train", "validation")}
    tokenizer = train_piece_tokenizer(texts["train"], arguments["vocab_size"], arguments["max_pieces"])
    set_seed(arguments["seed"])
    sizes = {name: arguments[name] for name in T5_FIELDS}
    start = {"decoder_start_token_id": tokenizer.pad_token_id}
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **sizes, **start))
    encoded = {
        split: Dataset.from_dict({"input_ids": tokenizer(rows, add_special_tokens=False, truncation=True).input_ids})
        for split, rows in texts.items()
    }

    def corrupt(seed: int | None = None) -> SpanCorruption:
        return SpanCorruption(tokenizer, arguments["seed"] if seed is None else seed)

    return _pretrain(model, tokenizer, encoded, corrupt, arguments)


class SpanCorruption:
    """Collates texts for T5: spans of random places are replaced by sentinels, and restored in the labels."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        self.tokenizer, self.random = tokenizer, np.random.default_rng(seed)
        vocabulary = tokenizer.get_vocab()
        self.sentinels = [vocabulary[f"<extra_id_{n}>"] for n in range(NUM_SENTINELS)]

    def __call__(self, rows: Sequence[Mapping[str, list[int]]]) -> dict[str, Tensor]:
        """The batch `input_ids`, `attention_mask` (B, P) and `labels` (B, T), int64, of rows with `input_ids`."""
        pairs = [self._corrupt(row["input_ids"]) for row in rows]
        batch = self.tokenizer.pad({"input_ids": [source for source, _ in pairs]}, return_tensors="pt")
        labels = [torch.tensor(target) for _, target in pairs]
        return {**batch, "labels": torch.nn.utils.rnn.pad_sequence(labels, True, IGNORED)}

    def _corrupt(self, pieces: list[int]) -> tuple[list[int], list[int]]:
        num_masked = max(1, round(MASKED * len(pieces)))
        num_spans = min(max(1, round(num_masked / MEAN_SPAN)), len(self.sentinels))
        *kept, last = self._split(len(pieces) - num_masked, num_spans + 1, at_least=0)
        source: list[int] = []
        target: list[int] = []
        at = 0
        for sentinel, before, length in zip(self.sentinels, kept, self._split(num_masked, num_spans), strict=False):
            masked_from = at + before
            source += [*pieces[at:masked_from], sentinel]
            target += [sentinel, *pieces[masked_from : masked_from + length]]
            at = masked_from + length
        end = [self.tokenizer.eos_token_id]
        return source + pieces[len(pieces) - last :] + end, target + end

    def _split(self, total: int, parts: int, at_least: int = 1) -> list[int]:
        """Random lengths whose sum is `total`."""
        free = total - parts * at_least
        cuts = np.sort(self.random.integers(0, free + 1, parts - 1))
        lengths: list[int] = (np.diff([0, *cuts, free]) + at_least).tolist()
        return lengths


def _pretrain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, Dataset],
    collate: Callable[..., Any],
    arguments: Mapping[str, Any],
) -> dict[str, float]:
    """Trains the model to restore what `collate` hides, and saves it.

    Args:
        encoded: the splits `train` and `validation`.
        collate: makes a data collator, from a seed if one is passed.
    """
    torch.set_num_threads(arguments["threads"])
    folder = Path(arguments["output_dir"])
    fixed = {"eval_strategy": "no", "save_strategy": "steps", "logging_steps": 100}
    trainer = Trainer(
        model=model,
        args=build_training_arguments({**arguments, **fixed}, encoded["train"], has_validation=False),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        data_collator=collate(),
        compute_metrics=_measure_accuracy,
        preprocess_logits_for_metrics=_take_best,
        callbacks=[TimeLimit(arguments["max_minutes"])] if arguments.get("max_minutes") else None,
    )
    checkpoint = find_resume_checkpoint(arguments.get("resume_from_checkpoint"), folder)
    with lock_output_dir(folder):
        metrics: dict[str, float] = trainer.train(resume_from_checkpoint=checkpoint).metrics
        trainer.save_model()
        trainer.save_state()
        trainer.data_collator = collate(seed=0)  # the same pieces are hidden whatever the training was
        evaluated = trainer.evaluate()
        trainer.save_metrics("eval", evaluated)
    return metrics | evaluated


def train_piece_tokenizer(texts: Iterable[str], vocab_size: int, max_pieces: int) -> T5Tokenizer:
    """T5's tokenizer with pieces of the texts (Kudo 2018)."""
    special = ["<pad>", "</s>", "<unk>"]
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=special, unk_token="<unk>")
    backend.train_from_iterator(texts, trainer)
    vocab = [tuple(piece) for piece in json.loads(backend.to_str())["model"]["vocab"]]
    return T5Tokenizer(vocab=vocab, extra_ids=NUM_SENTINELS, model_max_length=max_pieces)


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


def _take_best(logits: Tensor | tuple[Tensor, ...], labels: Tensor) -> Tensor:
    return (logits if isinstance(logits, Tensor) else logits[0]).argmax(-1)


def _measure_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The percentage of what was hidden that is restored."""
    labels = np.asarray(prediction.label_ids)
    is_right = np.asarray(prediction.predictions) == labels
    return {"accuracy": 100 * float(is_right[labels != IGNORED].mean())}
