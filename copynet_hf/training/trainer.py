"""The Trainer of a run: its arguments computed from the data, its datasets, callbacks and metrics."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import Sampler
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainingArguments,
)
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer_utils import get_last_checkpoint

from ..arguments import DataArguments, check_positive
from ..evaluation.compute_metrics import make_compute_metrics
from ..evaluation.metrics import LOWER_IS_BETTER
from ..evaluation.teacher_forcing import ACCURACIES, make_argmax, make_compute_accuracy
from ..model.configuration_copynet import SOURCE_PARTS, CopyNetConfig
from ..model.loss import shift_right
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..saved.cards import CARD, METRICS
from .callbacks import CopyStatistics, EarlyStopping
from .checkpoints import NUM_PROCESSES, RECORD_FILE, SECONDS, is_complete
from .data_report import count_updates
from .dataset import Pairs, encode_pairs
from .encoder_training import DECODER_LEARNING_RATE, split_parameter_groups
from .label_smoothing import VocabularyLabelSmoother
from .run_folder import explain_save_errors
from .sampler import EpochSampler
from .vocabulary_dropout import drop_from_vocabulary
from .weight_average import WeightAverage

TRAINING_DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "per_device_eval_batch_size": 64,
    "learning_rate": 2e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 100,
    "max_grad_norm": 1.0,
    "logging_steps": 50,
    "save_total_limit": 2,
    "report_to": "none",
    "hub_strategy": "end",  # earlier pushes of the Trainer lack the model's code
    "dataloader_pin_memory": torch.accelerator.is_available(),
    "use_cpu": not torch.accelerator.is_available(),  # without it the Trainer refuses bf16 on a CPU
}
NUM_EVALUATIONS = 40
OUTPUT_SCORES = (*METRICS, "copied_fraction", "oov_recall", *LOWER_IS_BETTER)  # with `predict_with_generate`
SPELLED_SMOOTHING = 0.1  # the label smoothing for words that are spelled
# As `copynet-hf train --help` shows the defaults that `build_training_arguments` computes.
COMPUTED_TRAINING_DEFAULTS: dict[str, Any] = {
    "learning_rate": f"{TRAINING_DEFAULTS['learning_rate']:g} or {DECODER_LEARNING_RATE:g}",
    "warmup_steps": f"{TRAINING_DEFAULTS['warmup_steps']}, at most half",
    "num_train_epochs": "5 to 60, computed from the number of pairs",
    "train_sampling_strategy": "group_by_length; random with streaming or predict_with_generate",
    "eval_strategy": "steps with validation",
    "eval_steps": f"{1 / NUM_EVALUATIONS:g}, a share of the training",
    "save_strategy": "as eval_strategy",
    "save_steps": "as eval_steps",
    "load_best_model_at_end": "with validation pairs",
    "metric_for_best_model": "accuracy, or rougeL with predict_with_generate",
    "label_smoothing_factor": f"{SPELLED_SMOOTHING} for words that are spelled, else 0",
    "dataloader_pin_memory": "with an accelerator",
    "use_cpu": "without an accelerator",
}
# The number of steps from which the number of epochs is computed, and its bounds.
TRAINING_STEPS, MIN_EPOCHS, MAX_EPOCHS = 8000, 5, 60
STREAM_BUFFER = 10_000  # pairs in memory among which a stream is shuffled
BATCH_SIZES = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")


def build_training_arguments(
    arguments: Mapping[str, Any], train_pairs: Pairs, has_validation: bool
) -> Seq2SeqTrainingArguments:
    """The `Seq2SeqTrainingArguments` among the arguments that were given, with defaults that follow from the data.

    Raises:
        ValueError: arguments that contradict each other.
    """
    names = {entry.name for entry in dataclasses.fields(Seq2SeqTrainingArguments) if entry.init}
    given = {name: value for name, value in arguments.items() if name in names}
    if given.get("hub_token"):
        raise ValueError(
            "--hub_token is saved in training_args.bin and pushed with the model: log in with hf auth login, or set "
            "HF_TOKEN instead"
        )
    _check_length(given)
    streams, generates = isinstance(train_pairs, IterableDataset), given.get("predict_with_generate", False)
    defaults = dict(TRAINING_DEFAULTS)
    if streams:
        # else the first process would read for all, and accelerate would join batches of different lengths
        defaults["accelerator_config"] = {"dispatch_batches": False}
        if given.get("max_steps", -1) <= 0:
            raise ValueError("no --max_steps: give the number of steps, because --streaming hides that of the pairs")
        if given.get("train_sampling_strategy") == "group_by_length":
            raise ValueError(
                "--train_sampling_strategy group_by_length needs all lengths: leave it out, or --streaming"
            )
    if generates and given.get("train_sampling_strategy") == "group_by_length":
        raise ValueError(
            "--train_sampling_strategy group_by_length also reorders the evaluation, whose outputs would be scored "
            "against other texts: leave it out, or --predict_with_generate"
        )
    if not generates and not streams:
        defaults["train_sampling_strategy"] = "group_by_length"
    defaults |= _evaluation_schedule(given, has_validation)
    if has_validation:
        metric = given.get("metric_for_best_model", "rougeL" if generates else "accuracy")
        _check_metric(metric, generates)
        is_better_lower = metric.removeprefix("eval_") in ("loss", *LOWER_IS_BETTER)
        defaults |= {"metric_for_best_model": metric, "greater_is_better": not is_better_lower}
    training_args = Seq2SeqTrainingArguments(
        **{name: value for name, value in defaults.items() if name in names} | given
    )
    check_positive(training_args, *BATCH_SIZES)
    if not streams and "num_train_epochs" not in given:
        batch_size = training_args.train_batch_size * training_args.world_size
        epochs = TRAINING_STEPS * batch_size * training_args.gradient_accumulation_steps / len(train_pairs)
        training_args.num_train_epochs = min(max(round(epochs), MIN_EPOCHS), MAX_EPOCHS)
    if "warmup_steps" not in given:  # else a short training would end before the learning rate falls
        updates = training_args.max_steps if streams else count_updates(len(train_pairs), training_args)[0]
        training_args.warmup_steps = min(training_args.warmup_steps, updates // 2)
    _check_report_to(training_args)
    return training_args


def _check_metric(metric: str, generates: bool) -> None:
    """Raises ValueError for a score that no evaluation has."""
    name = metric.removeprefix("eval_")
    scores, others = (OUTPUT_SCORES, ACCURACIES) if generates else (ACCURACIES, OUTPUT_SCORES)
    if name not in ("loss", *scores):
        hint = f", or --predict_with_generate {not generates}" if name in others else ""
        raise ValueError(f"--metric_for_best_model is {metric}: give one of loss, {', '.join(scores)}{hint}")


def _check_length(given: Mapping[str, Any]) -> None:
    """Raises ValueError if there is nothing to train."""
    epochs, max_steps = given.get("num_train_epochs", 1), given.get("max_steps", -1)
    if not 0 < epochs < math.inf:
        raise ValueError(f"--num_train_epochs is {epochs:g}: give a number above 0")
    if max_steps < 1 and max_steps != -1:  # -1 is Transformers' default
        raise ValueError(f"--max_steps is {max_steps}: give 1 or more")


def _check_report_to(training_args: TrainingArguments) -> None:
    """Raises ImportError if the package of a tracker is missing, before the data are read."""
    for name in training_args.report_to or ():
        try:
            get_reporting_integration_callbacks([name])[0]()
        except RuntimeError as error:
            fix = "pip install 'copynet-hf[tracking]'" if name == "tensorboard" else "install its package"
            raise ImportError(f"--report_to {name} cannot be used ({error}): {fix}, or leave it out") from None


def _evaluation_schedule(given: Mapping[str, Any], has_validation: bool) -> dict[str, Any]:
    """When to evaluate and save, by default together, `NUM_EVALUATIONS` times."""
    saves = given.get("save_strategy")
    strategy = given.get("eval_strategy") or (saves if saves == "epoch" else "steps")
    schedule: dict[str, Any] = {"save_strategy": strategy}
    if strategy == "steps":
        steps = given.get("eval_steps") or given.get("save_steps") or 1 / NUM_EVALUATIONS
        schedule |= {"eval_steps": steps, "save_steps": steps}
    if has_validation:
        saves_best = strategy != "no" and (saves or strategy) in (strategy, "best")
        schedule |= {"eval_strategy": strategy, "load_best_model_at_end": saves_best}
    return schedule


def set_label_smoothing(
    training_args: TrainingArguments, config: CopyNetConfig, *, is_given: bool, is_spelled: bool
) -> None:
    """Sets the default, `SPELLED_SMOOTHING` for words that are spelled, and checks that the config's loss can be
    smoothed: the smoothed loss is a function of the log-probabilities alone, without additional losses, and reads
    words that some models may not generate.

    Args:
        is_given: whether the arguments hold a factor.
        is_spelled: whether the pairs are words, split into letters.

    Raises:
        ValueError: label smoothing with such a loss.
    """
    is_ignored = {
        "coverage_loss_weight": config.coverage_loss_weight > 0,
        "gate_loss_weight": config.copy_mechanism == "gated" and config.gate_loss_weight > 0,
        "aligned_words": config.aligned_words > 0,
        "copies_from": config.mechanism.retrieves and len(config.copies_from) < len(SOURCE_PARTS),
    }
    ignored = [name for name, is_used in is_ignored.items() if is_used]
    if not is_given and is_spelled and not ignored and config.mechanism.generates:
        training_args.label_smoothing_factor = SPELLED_SMOOTHING
    if training_args.label_smoothing_factor and ignored:
        raise ValueError(
            f"--label_smoothing_factor is {training_args.label_smoothing_factor}, but the Trainer's smoothed loss "
            f"ignores {' and '.join(ignored)}: leave one of them out"
        )


class CopyNetTrainer(Seq2SeqTrainer):
    """A `Seq2SeqTrainer` that resumes in the order of the interrupted run (a stream in that of its first pass), and
    removes a checkpoint that it could not complete. It pushes the model card in its folder rather than one of its own.

    Args:
        run_record: saved with each checkpoint, see `make_run_record`.
        vocabulary_dropout: the probability of `drop_from_vocabulary`.
        ema_decay: of the `WeightAverage` that is evaluated and saved; 0: the weights themselves are.
        encoder_learning_rate: that of the Transformers encoder; None: the same as of the other weights.
        earlier_seconds: how long the run had trained when the checkpoint that it resumes from was saved.
    """

    def __init__(
        self,
        *args: Any,
        run_record: Mapping[str, Any] | None = None,
        vocabulary_dropout: float = 0.0,
        ema_decay: float = 0.0,
        encoder_learning_rate: float | None = None,
        earlier_seconds: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        trained: Any = self.model
        if self.label_smoother is not None:
            factor = self.args.label_smoothing_factor
            self.label_smoother = VocabularyLabelSmoother(epsilon=factor, vocab_size=trained.config.vocab_size)
        self.run_record, self.earlier_seconds = run_record, earlier_seconds
        self.vocabulary_dropout, self.encoder_learning_rate = vocabulary_dropout, encoder_learning_rate
        self._start = time.monotonic()
        self.weight_average: WeightAverage | None = None
        if ema_decay:
            self.weight_average = WeightAverage(trained, ema_decay)
            self.add_callback(self.weight_average)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        self._start = time.monotonic()
        average = self.weight_average
        if average is None:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(str(self.args.output_dir))
        if resume_from_checkpoint:
            average.resume_from(str(resume_from_checkpoint))
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        if not self.args.load_best_model_at_end or self.state.best_model_checkpoint is None:
            average.keep()
        return output

    def create_optimizer(self, model: Any = None) -> Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if is_new and self.encoder_learning_rate is not None:
            trained: Any = self.model if model is None else model
            names = {id(weight): name for name, weight in trained.named_parameters()}
            split_parameter_groups(optimizer, names, self.encoder_learning_rate)
        return optimizer

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        if not (Path(str(self.args.output_dir)) / CARD).exists():
            super().create_model_card(*args, **kwargs)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int] | None:
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        strategy = self.args.train_sampling_strategy
        if strategy not in ("random", "group_by_length") or isinstance(dataset, IterableDataset):
            return super()._get_train_sampler(train_dataset)
        return EpochSampler(
            len(dataset),
            _find_data_seed(self.args),
            lambda: int(self.state.epoch or 0),
            list(map(len, dataset["input_ids"])) if strategy == "group_by_length" else None,
            self.args.train_batch_size * self.args.gradient_accumulation_steps,
        )

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        if self.vocabulary_dropout:
            # Here rather than in the collator, whose random numbers a resumed run would not repeat.
            config = self.accelerator.unwrap_model(model).config
            dropped = drop_from_vocabulary(inputs["input_ids"], inputs["labels"], self.vocabulary_dropout, config)
            input_ids, labels = dropped
            decoder_input_ids = shift_right(labels, config)
            inputs |= {"input_ids": input_ids, "labels": labels, "decoder_input_ids": decoder_input_ids}
        return super().training_step(model, inputs, *args, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        uses_weights = self.control.should_evaluate or self.control.should_save
        average = self.weight_average
        with average.applied() if average is not None and uses_weights else nullcontext():
            super()._maybe_log_save_evaluate(*args, **kwargs)

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        name = f"eval_{str(self.args.metric_for_best_model).removeprefix('eval_')}"
        if self.args.metric_for_best_model is not None and name not in metrics:
            scores = [each for each in ("loss", *ACCURACIES, *OUTPUT_SCORES) if f"eval_{each}" in metrics]
            raise ValueError(
                f"--metric_for_best_model is {self.args.metric_for_best_model}, which these validation pairs have no "
                f"score of: give one of {', '.join(scores)}"
            )
        return super()._determine_best_metric(metrics, trial)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        try:
            with explain_save_errors(checkpoint):
                if self.args.should_save:
                    checkpoint.mkdir(parents=True, exist_ok=True)
                    if self.run_record is not None:
                        seconds = self.earlier_seconds + time.monotonic() - self._start
                        record = {**self.run_record, NUM_PROCESSES: self.args.world_size, SECONDS: seconds}
                        (checkpoint / RECORD_FILE).write_text(json.dumps(record), encoding="utf-8")
                    if self.weight_average is not None:
                        self.weight_average.save(checkpoint)
                super()._save_checkpoint(*args, **kwargs)
        except OSError:
            if not is_complete(checkpoint):  # older ones are deleted only after this one is saved
                shutil.rmtree(checkpoint, ignore_errors=True)
            raise


def _find_data_seed(args: TrainingArguments) -> int:
    return args.seed if args.data_seed is None else args.data_seed


def make_trainer(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Mapping[str, Pairs],
    training_args: Seq2SeqTrainingArguments,
    data_args: DataArguments,
    early_stopping_patience: int = 0,
    **options: Any,
) -> CopyNetTrainer:
    """A `CopyNetTrainer` for the splits `train` and, where given, `validation` of the pairs.

    Args:
        early_stopping_patience: evaluations without improvement before training stops; 0 turns early stopping off.
        options: further arguments of `CopyNetTrainer`.
    """
    train = pairs["train"]
    if isinstance(train, IterableDataset) and training_args.train_sampling_strategy == "random":
        pairs = {**pairs, "train": train.shuffle(seed=_find_data_seed(training_args), buffer_size=STREAM_BUFFER)}
    encoded = {
        split: encode_pairs(
            pairs[split],
            tokenizer,
            data_args.max_source_length,
            data_args.max_target_length,
            data_args.preprocessing_num_workers,
        )
        for split in ("train", "validation")
        if split in pairs
    }
    validation = pairs.get("validation")
    compute_metrics = make_compute_accuracy(tokenizer.unk_token_id)
    if training_args.predict_with_generate and validation is not None:
        compute_metrics = make_compute_metrics(
            tokenizer,
            list(validation["text"]),
            list(validation["summary"]),
            max_source_length=data_args.max_source_length,
            facts=list(validation["facts"]) if "facts" in validation.column_names else None,
        )
    trainer = CopyNetTrainer(
        model=model,
        args=training_args,
        train_dataset=encoded["train"],
        eval_dataset=encoded.get("validation"),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=None if training_args.predict_with_generate else make_argmax(model),
        callbacks=[EarlyStopping(early_stopping_patience)] if early_stopping_patience else None,
        **options,
    )
    if validation is not None and len(validation):
        trainer.add_callback(CopyStatistics(trainer, validation, max_source_length=data_args.max_source_length))
    return trainer
