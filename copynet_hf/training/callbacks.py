"""Callbacks of the Trainer: a time limit, and how much the model copies."""

from __future__ import annotations

import time
from typing import Any

import torch
from datasets import Dataset
from transformers import Seq2SeqTrainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..evaluation.scoring import evaluate_pairs


class TimeLimit(TrainerCallback):
    """Stops training after some minutes, with the evaluation and the checkpoint that end an epoch."""

    def __init__(self, minutes: float) -> None:
        self.minutes, self.start = minutes, time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.start = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        is_over = time.monotonic() - self.start > 60 * self.minutes
        if args.world_size > 1:  # all processes must stop at the same step, or the others wait forever
            over_in_processes = torch.tensor(float(is_over), device=args.device)
            torch.distributed.all_reduce(over_in_processes)
            is_over = over_in_processes.item() > 0
        control.should_training_stop |= is_over

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if control.should_training_stop:  # with eval_strategy steps, the Trainer would do neither here
            control.should_evaluate |= args.eval_strategy != "no"
            control.should_save |= args.save_strategy != "no"


class CopyStatistics(TrainerCallback):
    """At each evaluation generates outputs for a few sources and logs, in percent of the outputs' words,
    `eval_copy_mode_fraction` (written by the copy mode) and `eval_unk_rate` (`<unk>`).

    Both go wherever the Trainer logs: the console, TensorBoard, its state, and the metrics of `evaluate()`.

    Args:
        trainer: the Trainer that the callback is added to.
        pairs: the evaluation pairs, with the columns `text` and `summary`; the first `NUM_ROWS` are used.
        options: for `predict_in_batches`; by default greedy search, which is fast, with `<unk>` allowed.
    """

    NUM_ROWS = 64
    LOGGED_SCORES = ("copy_mode_fraction", "unk_rate")

    def __init__(self, trainer: Seq2SeqTrainer, pairs: Dataset, **options: Any) -> None:
        self.trainer, self.pairs = trainer, pairs.select(range(min(self.NUM_ROWS, len(pairs))))
        self.options: dict[str, Any] = {"num_beams": 1, "forbid_unk": False, **options}

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model, metrics = kwargs["model"], kwargs["metrics"]
        if not any(name.startswith("eval_") for name in metrics):  # predict() evaluates other pairs
            return
        scores, _ = evaluate_pairs(model, kwargs["processing_class"], self.pairs, **self.options)
        logged = {f"eval_{name}": scores[name] for name in self.LOGGED_SCORES if name in scores}
        self.trainer.log({name: value for name, value in logged.items() if name not in metrics})
        metrics.update(logged | metrics)
