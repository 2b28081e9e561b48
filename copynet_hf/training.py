"""From pairs of texts to a trained model: what `copynet-hf train` does, as functions.

Each step stands alone: `build_tokenizer`, `build_model`, `encode_pairs`, `make_trainer`; `train_from_arguments` calls
them in turn. Nothing of the Trainer is replaced.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import torch
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from .arguments import DataArguments, ModelArguments, RunArguments, TokenizerArguments, pick
from .configuration_copynet import CopyNetConfig
from .data import load_pairs
from .metrics import make_compute_metrics
from .modeling_copynet import CopyNetForConditionalGeneration
from .tokenization_copynet import CopyNetTokenizer

logger = logging.getLogger(__name__)

Pairs = Dataset | IterableDataset

# The paper's settings: the sizes and how its texts are cut into words.
PRESETS: dict[str, tuple[Callable[..., CopyNetConfig], str]] = {
    "synthetic": (CopyNetConfig.synthetic, "whitespace"),
    "lcsts_char": (CopyNetConfig.lcsts_char, "char"),
    "lcsts_word": (CopyNetConfig.lcsts_word, "jieba"),
}
# Without a preset: enough for a few thousand pairs, and quick on a CPU.
DEFAULT_SIZES: dict[str, Any] = {
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 128,
    "attention_size": 128,
    "dropout": 0.2,
}
TRAINING_DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 100,
    "max_grad_norm": 1.0,
    "logging_steps": 50,
    "save_total_limit": 2,
    "report_to": "none",
}
# How many updates a model of few pairs gets, and the bounds of the epochs that follow from it.
TRAINING_STEPS, MIN_EPOCHS, MAX_EPOCHS = 4000, 5, 60

STREAM_SAMPLE = 100_000  # pairs of a stream that make the vocabulary
FIXED_BY_MODEL = ("dropout", "use_fused")  # config fields that a trained model may change
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def train_from_arguments(said: Mapping[str, Any]) -> dict[str, float]:
    """The whole run, from arguments as `read_arguments` gives them; returns its figures.

    Writes model, tokenizer, generation config, trainer state and train_results.json to `output_dir`, and with a
    validation or a test file eval_results.json and test_results.json.

    Raises:
        ValueError: arguments or data that cannot work; nothing has been written then.
    """
    data, words, sizes, run = (
        pick(kind, said) for kind in (DataArguments, TokenizerArguments, ModelArguments, RunArguments)
    )
    output_dir = _checked_output_dir(said, run.overwrite_output_dir)
    _check_lengths(data)
    if run.threads:
        torch.set_num_threads(run.threads)
    pairs = read_training_pairs(data)
    training = training_arguments(said, pairs["train"], "validation" in pairs)
    set_seed(training.seed)

    resumed = resume_point(training.resume_from_checkpoint, output_dir)
    tokenizer = build_tokenizer(pairs, words, sizes, data, resumed)
    model = build_model(tokenizer, sizes, said)
    model.generation_config.update(
        num_beams=sizes.num_beams, forbid_unk=sizes.forbid_unk, max_new_tokens=data.max_target_length
    )
    if run.overwrite_output_dir and resumed is None:
        _remove_checkpoints(output_dir)
    trainer = make_trainer(model, tokenizer, pairs, training, data, run.early_stopping_patience)
    logger.info(
        "%s parameters, %s words, %s slots for unseen ones",
        f"{model.num_parameters():,}",
        f"{len(tokenizer):,}",
        model.config.max_source_oov,
    )
    figures = trainer.train(resume_from_checkpoint=resumed).metrics
    trainer.save_model()
    trainer.save_state()
    trainer.save_metrics("train", figures)
    if trainer.eval_dataset is not None:
        evaluated = trainer.evaluate()
        trainer.save_metrics("eval", evaluated)
        figures |= evaluated
    if "test" in pairs:
        figures |= _test(model, tokenizer, pairs["test"], trainer)
    return figures


# ---- data


def read_training_pairs(data: DataArguments) -> dict[str, Pairs]:
    """The splits `train`, and where given `validation` and `test`, with the columns `text` and `summary`.

    Raises:
        ValueError: no training pairs.
    """
    if data.train_file is None and data.dataset_name is None:
        raise ValueError("no training data: give --train_file (jsonl, csv, parquet, txt) or --dataset_name")
    given = {name: getattr(data, name) for name in ("train_file", "validation_file", "test_file")}
    source = {
        name: getattr(data, name)
        for name in ("dataset_name", "dataset_config_name", "text_column", "summary_column")
    }
    loaded: DatasetDict | IterableDatasetDict = load_pairs(**given, **source, streaming=data.streaming)
    if "train" not in loaded:
        raise ValueError(f"{data.dataset_name} has no split 'train', only {', '.join(loaded)}")
    limits = dict.fromkeys(("validation", "test"), data.max_eval_samples) | {"train": data.max_train_samples}
    pairs = {name: first_rows(loaded[name], limit) for name, limit in limits.items() if name in loaded}
    for name in ("validation", "test"):  # scored against their texts, which must therefore be at hand
        if isinstance(pairs.get(name), IterableDataset):
            pairs[name] = Dataset.from_list(list(pairs[name]))
    return pairs


def first_rows(pairs: Pairs, limit: int | None) -> Pairs:
    """At most `limit` rows; all of them for None."""
    if limit is None:
        return pairs
    return (
        pairs.take(limit)
        if isinstance(pairs, IterableDataset)
        else pairs.select(range(min(limit, len(pairs))))
    )


def encode_pairs(
    pairs: Pairs,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int,
    max_target_length: int,
    num_proc: int | None = None,
) -> Pairs:
    """`input_ids`, `attention_mask` and `labels` of each pair, for `DataCollatorForSeq2Seq`."""

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        if isinstance(tokenizer, CopyNetTokenizer):
            return dict(
                tokenizer(
                    rows["text"],
                    text_target=rows["summary"],
                    truncation=True,
                    max_length=max_source_length,
                    max_target_length=max_target_length,
                )
            )
        encoded = tokenizer(rows["text"], truncation=True, max_length=max_source_length)
        targets = tokenizer(text_target=rows["summary"], truncation=True, max_length=max_target_length)
        labels = [_ended(ids, tokenizer.eos_token_id, max_target_length) for ids in targets["input_ids"]]
        return {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": labels,
        }

    columns = list(pairs.column_names or next(iter(pairs)))
    options = {} if isinstance(pairs, IterableDataset) else {"num_proc": num_proc, "desc": "Tokenizing"}
    return pairs.map(encode, batched=True, remove_columns=columns, **options)


def _ended(ids: list[int], end: int, length: int) -> list[int]:
    """A target that stops: the end symbol last, whether or not the tokenizer puts it there."""
    return [*(ids[:-1] if ids and ids[-1] == end else ids)[: length - 1], end]


# ---- tokenizer


def build_tokenizer(
    pairs: Mapping[str, Pairs],
    words: TokenizerArguments,
    sizes: ModelArguments,
    data: DataArguments,
    resumed: str | None = None,
) -> PreTrainedTokenizerBase:
    """The tokenizer that is named, that comes with the model, or one trained on the training pairs' texts."""
    name = resumed or words.tokenizer_name or sizes.model_name_or_path
    if name is None:
        return train_tokenizer(pairs["train"], words, sizes.preset, data.max_source_length)
    tokenizer = AutoTokenizer.from_pretrained(name)
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"the tokenizer {name} has no {token}: set it and save the tokenizer again, for example "
                f"tokenizer.add_special_tokens({{{token!r}: '<{token.removesuffix('_token')}>'}})"
            )
    tokenizer.model_max_length = data.max_source_length
    return tokenizer


def train_tokenizer(
    train: Pairs, words: TokenizerArguments, preset: str | None, max_source_length: int
) -> CopyNetTokenizer:
    """A `CopyNetTokenizer` of the words in sources and targets, with slots for the unseen ones of every source."""
    config, segmenter = None, words.segmenter
    if preset is not None:
        make, of_preset = _preset(preset)
        config = make()
        segmenter = of_preset if segmenter == "auto" else segmenter
    if segmenter == "auto":
        segmenter = guess_segmenter(row["text"] for row in islice(train, 1000))
    vocab_size = words.vocab_size or (
        config.vocab_size if config else 3_000 if segmenter == "char" else 10_000
    )
    slots = words.max_source_oov if config is None or words.max_source_oov else config.max_source_oov
    sample = train.take(STREAM_SAMPLE) if isinstance(train, IterableDataset) else train
    tokenizer = CopyNetTokenizer.train_from_iterator(
        (text for row in sample for text in (row["text"], row["summary"])),
        vocab_size,
        segmenter=segmenter,
        min_frequency=words.min_frequency,
        max_source_oov=max_source_length if slots is None else slots,
        model_max_length=max_source_length,
    )
    if slots is None:
        tokenizer = _with_slots(tokenizer, _slots_needed(tokenizer, sample, max_source_length))
    return tokenizer


def guess_segmenter(texts: Iterable[str]) -> str:
    """char when a third of the letters are Chinese or Japanese, else word_punct."""
    text = "".join(texts)
    letters = sum(map(str.isalpha, text))
    return "char" if 3 * len(_CJK.findall(text)) >= max(letters, 1) else "word_punct"


def _slots_needed(tokenizer: CopyNetTokenizer, sample: Pairs, max_source_length: int) -> int:
    """A quarter more than the source with most unseen words has: later texts hold more of them."""
    most = max(len(tokenizer.oov_words(row["text"], max_source_length)) for row in sample)
    return min(max(16, math.ceil(1.25 * most)), max_source_length)


def _with_slots(tokenizer: CopyNetTokenizer, slots: int) -> CopyNetTokenizer:
    return CopyNetTokenizer(
        tokenizer.get_vocab(),
        segmenter=tokenizer.segmenter,
        max_source_oov=slots,
        model_max_length=tokenizer.model_max_length,
    )


def check_tokenizer(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError unless model and tokenizer count words, slots and special symbols alike."""
    mend = "load the tokenizer that was saved with the model"
    if len(tokenizer) != config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} words, the model vocab_size={config.vocab_size}: {mend}, or call "
            "model.resize_token_embeddings(len(tokenizer)) and train again"
        )
    slots = getattr(tokenizer, "max_source_oov", 0)
    if slots != getattr(config, "max_source_oov", 0):
        raise ValueError(
            f"the tokenizer has {slots} slots for unseen words, the model max_source_oov={config.max_source_oov}: "
            f"{mend}, or give both the same max_source_oov"
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        own, of_model = getattr(tokenizer, name, None), getattr(config, name, None)
        accepted = of_model if isinstance(of_model, list) else [of_model]
        if own is not None and own not in accepted:
            raise ValueError(f"{name} is {own} for the tokenizer and {of_model} for the model: {mend}")


# ---- model


def build_model(
    tokenizer: PreTrainedTokenizerBase, sizes: ModelArguments, said: Mapping[str, Any]
) -> PreTrainedModel:
    """The model to go on from, or a new one for this tokenizer.

    Raises:
        ValueError: sizes that make no sense or that contradict the model, or a tokenizer of another model.
    """
    fields = config_fields(said)
    if sizes.model_name_or_path is None:
        return CopyNetForConditionalGeneration(build_config(tokenizer, sizes.preset, fields))
    if sizes.preset is not None:
        raise ValueError("--preset is for a new model: leave it out, or --model_name_or_path")
    changed = {name: value for name, value in fields.items() if name in FIXED_BY_MODEL}
    model = AutoModelForSeq2SeqLM.from_pretrained(sizes.model_name_or_path, **changed)
    for name, value in fields.items():
        if getattr(model.config, name, None) != value:
            raise ValueError(
                f"{name}={value!r}, but the model {sizes.model_name_or_path} has {getattr(model.config, name, None)!r}: "
                f"leave --{name} out, or train a new model"
            )
    check_tokenizer(model.config, tokenizer)
    return model


def build_config(
    tokenizer: PreTrainedTokenizerBase, preset: str | None = None, fields: Mapping[str, Any] | None = None
) -> CopyNetConfig:
    """The config of a new model: the preset's sizes or our own, `fields` over them, the rest from the tokenizer."""
    make = CopyNetConfig if preset is None else _preset(preset)[0]
    given = dict(DEFAULT_SIZES if preset is None else {}) | dict(fields or {})
    pad, bos = tokenizer.pad_token_id, tokenizer.bos_token_id
    start = pad if bos is None else bos
    return make(
        **given
        | {
            "vocab_size": len(tokenizer),
            "max_source_oov": getattr(tokenizer, "max_source_oov", 0),
            "pad_token_id": pad,
            "bos_token_id": start,
            "decoder_start_token_id": start,
            "eos_token_id": tokenizer.eos_token_id,
            # A subword tokenizer has no unknown words; no word must be taken for one.
            "unk_token_id": pad if tokenizer.unk_token_id is None else tokenizer.unk_token_id,
        }
    )


def config_fields(said: Mapping[str, Any]) -> dict[str, Any]:
    """Those arguments that are fields of the config, but for what the tokenizer decides."""
    own = {entry.name for entry in dataclasses.fields(ModelArguments)}
    known = {entry.name for entry in dataclasses.fields(CopyNetConfig)}
    return {name: value for name, value in said.items() if name in own & known and value is not None}


def _preset(name: str) -> tuple[Callable[..., CopyNetConfig], str]:
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}: choose one of {', '.join(PRESETS)}")
    return PRESETS[name]


# ---- training


def training_arguments(said: Mapping[str, Any], train: Pairs, validated: bool) -> Seq2SeqTrainingArguments:
    """What was said, over defaults that suit the number of pairs and whether there are validation pairs."""
    known = {entry.name for entry in dataclasses.fields(Seq2SeqTrainingArguments) if entry.init}
    given = {name: value for name, value in said.items() if name in known}
    defaults = dict(TRAINING_DEFAULTS)
    if not isinstance(train, IterableDataset):
        batch = given.get("per_device_train_batch_size", defaults["per_device_train_batch_size"])
        batch *= given.get("gradient_accumulation_steps", 1)
        epochs = round(TRAINING_STEPS * batch / len(train))
        defaults["num_train_epochs"] = min(max(epochs, MIN_EPOCHS), MAX_EPOCHS)
    elif given.get("max_steps", -1) <= 0:
        raise ValueError("with --streaming the number of pairs is unknown: give --max_steps")
    generates = given.get("predict_with_generate", False)
    if not generates:
        defaults["train_sampling_strategy"] = "group_by_length"
    elif given.get("train_sampling_strategy") == "group_by_length":
        raise ValueError(
            "--train_sampling_strategy group_by_length also reorders the evaluation, whose outputs could then not be "
            "told apart: leave it out, or --predict_with_generate"
        )
    rhythm = given.get("eval_strategy") or given.get("save_strategy")
    rhythm = rhythm or ("steps" if isinstance(train, IterableDataset) else "epoch")
    defaults["save_strategy"] = rhythm
    if validated:
        steps = given.get("eval_steps", given.get("save_steps"))
        defaults |= {} if steps is None else {"eval_steps": steps, "save_steps": steps}
        defaults |= {
            "eval_strategy": rhythm,
            "load_best_model_at_end": str(rhythm) != "no",
            "metric_for_best_model": "rougeL" if generates else "loss",
        }
    return Seq2SeqTrainingArguments(**{name: v for name, v in defaults.items() if name in known} | given)


def make_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Mapping[str, Pairs],
    training: Seq2SeqTrainingArguments,
    data: DataArguments,
    early_stopping_patience: int = 0,
) -> Seq2SeqTrainer:
    """An ordinary `Seq2SeqTrainer` over the pairs' splits `train` and, where given, `validation`."""
    validation = pairs.get("validation")
    encoded = {
        name: encode_pairs(
            pairs[name],
            tokenizer,
            data.max_source_length,
            data.max_target_length,
            data.preprocessing_num_workers,
        )
        for name in ("train", "validation")
        if name in pairs
    }
    compute_metrics = None
    if training.predict_with_generate and validation is not None:
        compute_metrics = make_compute_metrics(
            tokenizer,
            list(validation["text"]),
            list(validation["summary"]),
            max_source_length=data.max_source_length,
        )
    stops = training.load_best_model_at_end and early_stopping_patience > 0
    return Seq2SeqTrainer(
        model=model,
        args=training,
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience)] if stops else None,
    )


def _test(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, test: Dataset, trainer: Seq2SeqTrainer
) -> dict[str, float]:
    from .inference import evaluate_pairs, write_predictions

    scores, predictions = evaluate_pairs(model, tokenizer, test)
    scores = {f"test_{name}": value for name, value in scores.items()}
    trainer.save_metrics("test", scores)
    write_predictions(Path(trainer.args.output_dir) / "test_predictions.jsonl", predictions)
    return scores


# ---- the output folder

RESULT_FILES = ("config.json", "model.safetensors", "tokenizer_config.json", "generation_config.json")


def _checked_output_dir(said: Mapping[str, Any], overwrite: bool) -> Path:
    """`output_dir`, unless writing there would destroy something.

    Raises:
        ValueError: none given, a file, or a folder with a model or an unfinished run in it.
    """
    if not said.get("output_dir"):
        raise ValueError("no --output_dir: give a folder for the model")
    folder = Path(said["output_dir"])
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output_dir {folder} is a file: give a folder")
    if overwrite or said.get("resume_from_checkpoint"):
        return folder
    held = [name for name in RESULT_FILES if (folder / name).exists()]
    if held:
        raise ValueError(
            f"output_dir {folder} already holds a model ({held[0]}): give another folder, or --overwrite_output_dir"
        )
    if checkpoints := checkpoints_of(folder):
        raise ValueError(
            f"output_dir {folder} holds an unfinished run: continue it with --resume_from_checkpoint "
            f"{checkpoints[-1]}, or start anew with --overwrite_output_dir"
        )
    return folder


def checkpoints_of(folder: Path) -> list[Path]:
    """The Trainer's checkpoints in a folder, oldest first."""
    found = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def resume_point(asked: str | bool | None, output_dir: Path) -> str | None:
    """The checkpoint to go on from: the one that is named, or the last one for "True"."""
    if not asked or str(asked).lower() == "false":
        return None
    if str(asked).lower() != "true":
        if not (Path(str(asked)) / "trainer_state.json").is_file():
            raise ValueError(f"--resume_from_checkpoint {asked} is no checkpoint of the Trainer")
        return str(asked)
    checkpoints = checkpoints_of(output_dir)
    if not checkpoints:
        raise ValueError(
            f"--resume_from_checkpoint: {output_dir} holds no checkpoint; leave it out to start anew"
        )
    return str(checkpoints[-1])


def _remove_checkpoints(folder: Path) -> None:
    for checkpoint in checkpoints_of(folder):
        shutil.rmtree(checkpoint)


def _check_lengths(data: DataArguments) -> None:
    limits = ("max_source_length", "max_target_length", "max_train_samples", "max_eval_samples")
    for name in limits:
        value = getattr(data, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value}: give 1 or more")


__all__ = ["build_config", "build_tokenizer", "check_tokenizer", "encode_pairs", "make_trainer"]
