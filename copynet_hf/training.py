"""From pairs of texts to a trained model: what `copynet-hf train` does, as functions.

Each step stands alone: `build_tokenizer`, `build_model`, `encode_pairs`, `make_trainer`; `train_from_arguments` calls
them in turn. Nothing of the Trainer is replaced but its card.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainingArguments,
    set_seed,
)

from .arguments import (
    CardArguments,
    DataArguments,
    ModelArguments,
    RunArguments,
    TokenizerArguments,
    check_positive,
    pick,
)
from .building import Pairs, build_model, build_tokenizer, set_alignments, set_decoding
from .callbacks import CopyStatistics, StopAfter
from .cards import CARD, command_line, write_model_card
from .configuration_copynet import MEMORIES, CopyNetConfig
from .data import load_pairs
from .inference import evaluate_pairs, write_predictions
from .metrics import make_compute_metrics, metric_signature
from .modeling_copynet import CopyNetForConditionalGeneration
from .run_folder import checked_output_dir, remove_checkpoints, resume_point
from .tokenization_copynet import CopyNetTokenizer

logger = logging.getLogger(__name__)

PREDICTIONS = "test_predictions.jsonl"
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
    "hub_strategy": "end",  # what the Trainer pushes before lacks the model's code
    "dataloader_pin_memory": torch.accelerator.is_available(),
    "use_cpu": not torch.accelerator.is_available(),  # without this the Trainer refuses bf16 on a CPU
}
# How many updates a model of few pairs gets, and the bounds of the epochs that follow from it.
TRAINING_STEPS, MIN_EPOCHS, MAX_EPOCHS = 4000, 5, 60


def train_from_arguments(said: Mapping[str, Any]) -> dict[str, float]:
    """The whole run, from arguments as `read_arguments` gives them; returns its figures.

    Writes model, tokenizer, generation config, card, trainer state and train_results.json to `output_dir`, and with a
    validation or a test file eval_results.json and test_results.json.

    Raises:
        ValueError: arguments or data that cannot work; nothing has been written then.
    """
    data, words = pick(DataArguments, said), pick(TokenizerArguments, said)
    sizes, run = pick(ModelArguments, said), pick(RunArguments, said)
    output_dir = checked_output_dir(
        said.get("output_dir"), run.overwrite_output_dir, bool(said.get("resume_from_checkpoint"))
    )
    check_positive(data, "max_source_length", "max_target_length", "max_train_samples", "max_eval_samples")
    check_positive(words, "vocab_size", "min_frequency")
    check_positive(run, "threads")
    if run.max_minutes is not None and run.max_minutes <= 0:
        raise ValueError(f"--max_minutes {run.max_minutes:g}: give more than 0")
    check_positive(sizes, "num_beams")
    if run.threads is not None:
        torch.set_num_threads(run.threads)
    pairs = read_training_pairs(data)
    training = training_arguments(said, pairs["train"], "validation" in pairs)
    set_seed(training.seed)

    resumed = resume_point(training.resume_from_checkpoint, output_dir)
    tokenizer = build_tokenizer(pairs, words, sizes, data, resumed)
    model = build_model(tokenizer, sizes, said, resumed)
    check_smoothing(training, model.config)
    set_decoding(model, sizes.num_beams, sizes.forbid_unk, data.max_target_length)
    if run.overwrite_output_dir and resumed is None:
        remove_checkpoints(output_dir)
    trainer = make_trainer(model, tokenizer, pairs, training, data, run.early_stopping_patience)
    if resumed is None and sizes.model_name_or_path is None:
        set_alignments(model, trainer.train_dataset)
    if run.max_minutes is not None:
        trainer.add_callback(StopAfter(run.max_minutes))
    logger.info(
        "%s parameters, %s words, %s slots for unseen ones",
        f"{model.num_parameters():,}",
        f"{len(tokenizer):,}",
        model.config.max_source_oov,
    )
    if trainer.is_world_process_zero():
        (output_dir / PREDICTIONS).unlink(missing_ok=True)  # of an earlier model
    figures: dict[str, Any] = trainer.train(resume_from_checkpoint=resumed).metrics
    trainer.save_model(_internal_call=True)  # pushed when its card is complete
    if trainer.state.best_model_checkpoint is not None:  # pushed as well, and nobody's business
        trainer.state.best_model_checkpoint = Path(trainer.state.best_model_checkpoint).name
    trainer.save_state()
    trainer.save_metrics("train", figures)
    if trainer.eval_dataset is not None:
        evaluated = trainer.evaluate()
        trainer.save_metrics("eval", evaluated)
        figures |= evaluated
    _finish(said, trainer, model, tokenizer, pairs, figures)
    if training.world_size > 1:  # torchrun stops a process that still saves when another one ends badly
        trainer.accelerator.wait_for_everyone()
        trainer.accelerator.end_training()
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
    loaded: DatasetDict | IterableDatasetDict = load_pairs(**given, **data.source(), streaming=data.streaming)
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
    return pairs.take(limit) if isinstance(pairs, IterableDataset) else pairs.select(range(min(limit, len(pairs))))


def encode_pairs(
    pairs: Pairs,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int,
    max_target_length: int,
    num_proc: int | None = None,
) -> Pairs:
    """`input_ids`, `attention_mask` and `labels` of each pair, for `DataCollatorForSeq2Seq`; with a column `facts`,
    whose rows are lists of triples, `token_type_ids` too."""

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        if isinstance(tokenizer, CopyNetTokenizer):
            return dict(
                tokenizer(
                    rows["text"],
                    text_target=rows["summary"],
                    facts=rows.get("facts"),
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


# ---- training


def training_arguments(said: Mapping[str, Any], train: Pairs, validated: bool) -> Seq2SeqTrainingArguments:
    """What was said, over defaults that suit the number of pairs and whether there are validation pairs."""
    known = {entry.name for entry in dataclasses.fields(Seq2SeqTrainingArguments) if entry.init}
    given = {name: value for name, value in said.items() if name in known}
    if given.get("hub_token"):
        raise ValueError(
            "--hub_token would be saved in training_args.bin, which is pushed with the model: log in with "
            "hf auth login, or set HF_TOKEN"
        )
    defaults = dict(TRAINING_DEFAULTS)
    if not isinstance(train, IterableDataset):
        batch = given.get("per_device_train_batch_size", defaults["per_device_train_batch_size"])
        batch *= given.get("gradient_accumulation_steps", 1)
        epochs = round(TRAINING_STEPS * batch / len(train))
        defaults["num_train_epochs"] = min(max(epochs, MIN_EPOCHS), MAX_EPOCHS)
    elif given.get("max_steps", -1) <= 0:
        raise ValueError("with --streaming the number of pairs is unknown: give --max_steps")
    generates = given.get("predict_with_generate", False)
    if not generates and not isinstance(train, IterableDataset):
        defaults["train_sampling_strategy"] = "group_by_length"
    elif generates and given.get("train_sampling_strategy") == "group_by_length":
        raise ValueError(
            "--train_sampling_strategy group_by_length also reorders the evaluation, so that outputs would be scored "
            "against other texts: leave it out, or --predict_with_generate"
        )
    defaults |= _rhythm(given, isinstance(train, IterableDataset), validated)
    if validated:
        defaults["metric_for_best_model"] = "rougeL" if generates else "loss"
    return Seq2SeqTrainingArguments(**{name: v for name, v in defaults.items() if name in known} | given)


def _rhythm(given: Mapping[str, Any], streams: bool, validated: bool) -> dict[str, Any]:
    """When to evaluate and to save: after every epoch, a stream every 500 steps, the two always together."""
    rhythm = given.get("eval_strategy") or given.get("save_strategy") or ("steps" if streams else "epoch")
    defaults: dict[str, Any] = {"save_strategy": rhythm}
    if rhythm == "steps":
        steps = given.get("eval_steps") or given.get("save_steps") or min(500, given.get("max_steps", 500))
        defaults |= {"eval_steps": steps, "save_steps": steps}
    if validated:
        keeps = rhythm != "no" and given.get("save_strategy", rhythm) == rhythm
        defaults |= {"eval_strategy": rhythm, "load_best_model_at_end": keeps}
    return defaults


def check_smoothing(training: TrainingArguments, config: CopyNetConfig) -> None:
    """Raises ValueError where smoothed labels would mean another loss: the Trainer then computes it from the
    probabilities alone, and charges words that the model may not write."""
    lost = {
        "coverage_loss_weight": config.coverage_loss_weight > 0,
        "gate_loss_weight": config.copy_mechanism == "gated" and config.gate_loss_weight > 0,
        "aligned_words": config.aligned_words > 0,
        "copies_from": config.mechanism.retrieves and len(config.copies_from) < len(MEMORIES),
    }
    if training.label_smoothing_factor and any(lost.values()):
        names = " and ".join(name for name, holds in lost.items() if holds)
        raise ValueError(
            f"--label_smoothing_factor leaves the loss to the Trainer, which knows nothing of {names}: leave one out"
        )


class CardKeepingTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that pushes the card that is in its folder, where the library would write another one."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        if not (Path(str(self.args.output_dir)) / CARD).exists():
            super().create_model_card(*args, **kwargs)


def make_trainer(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Mapping[str, Pairs],
    training: Seq2SeqTrainingArguments,
    data: DataArguments,
    early_stopping_patience: int = 0,
) -> Seq2SeqTrainer:
    """A `Seq2SeqTrainer` over the pairs' splits `train` and, where given, `validation`."""
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
            facts=list(validation["facts"]) if "facts" in validation.column_names else None,
        )
    stops = training.load_best_model_at_end and early_stopping_patience > 0
    trainer = CardKeepingTrainer(
        model=model,
        args=training,
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics,
        callbacks=[EarlyStoppingCallback(early_stopping_patience)] if stops else None,
    )
    if validation is not None and len(validation):
        trainer.add_callback(CopyStatistics(trainer, validation, max_source_length=data.max_source_length))
    return trainer


def _finish(
    said: Mapping[str, Any],
    trainer: Seq2SeqTrainer,
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Mapping[str, Pairs],
    figures: dict[str, Any],
) -> None:
    """Scores the test pairs, adding to the figures; writes the card and pushes, where asked."""
    first = trainer.is_world_process_zero()
    predictions: list[dict[str, Any]] = []
    if "test" in pairs:
        scores, predictions = evaluate_pairs(model, tokenizer, pairs["test"])
        scores = {f"test_{name}": value for name, value in scores.items()}
        trainer.save_metrics("test", scores)
        figures |= scores
    if first:
        _describe(said, trainer, model, tokenizer, pairs, figures)
    try:
        if trainer.args.push_to_hub:  # without the texts that it was tested on, which may not be ours to give away
            trainer.push_to_hub()
    finally:
        if first and predictions:
            write_predictions(Path(str(trainer.args.output_dir)) / PREDICTIONS, predictions)


def _describe(
    said: Mapping[str, Any],
    trainer: Seq2SeqTrainer,
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Mapping[str, Pairs],
    figures: Mapping[str, Any],
) -> None:
    """Writes the card of what was trained."""
    data, card = pick(DataArguments, said), pick(CardArguments, said)
    files = [Path(name).name for name in (data.train_file, data.validation_file, data.test_file) if name]
    counts = [
        f"{len(pairs[split]):,} of {split}"
        for split in ("train", "validation", "test")
        if split in pairs and not isinstance(pairs[split], IterableDataset)
    ]
    read = [data.dataset_name] if data.dataset_name and not Path(data.dataset_name).exists() else []
    splits = {"validation": "eval_", "test": "test_"}
    # Not of all validation pairs, see `CopyStatistics`.
    figures = {name: value for name, value in figures.items() if name != "eval_copy_mode_fraction"}
    minutes = figures["train_runtime"] / 60
    write_model_card(
        str(trainer.args.output_dir),
        model,
        tokenizer,
        title=trainer.hub_model_id if trainer.args.push_to_hub else None,
        language=card.language,
        license=card.license,
        datasets=read,
        data=f"Pairs of texts from {', '.join([*read, *files])}: {', '.join(counts) or 'read as a stream'}.",
        training=f"{figures['epoch']:g} epochs, {minutes:.1f} minutes, seed {trainer.args.seed}; "
        f"torch {torch.__version__}, transformers {transformers.__version__}.",
        command=command_line(said),
        scores={
            split: {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}
            for split, prefix in splits.items()
        },
        signature=metric_signature(list(pairs["test"]["summary"])) if "test" in pairs else None,
    )
