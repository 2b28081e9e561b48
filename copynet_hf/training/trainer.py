"""The Trainer's set-up: its arguments by the data, its callbacks and metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import IterableDataset
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)

from ..arguments import DataArguments
from ..evaluation.cards import CARD
from ..evaluation.compute_metrics import make_compute_metrics
from ..model.configuration_copynet import MEMORIES, CopyNetConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from .callbacks import CopyStatistics
from .dataset import Pairs, encode_pairs

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
