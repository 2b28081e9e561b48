"""What a training does beside learning: it ends in time, and says how much is copied."""

from __future__ import annotations

import time
from typing import Any

import torch
from datasets import Dataset
from transformers import Seq2SeqTrainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..evaluation.scoring import evaluate_pairs


class StopAfter(TrainerCallback):
    """Ends a training after so many minutes, evaluated and saved as at the end of an epoch."""

    def __init__(self, minutes: float) -> None:
        self.minutes, self.start = minutes, time.monotonic()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.start = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        over = time.monotonic() - self.start > 60 * self.minutes
        if args.world_size > 1:  # all processes stop at the same step, or the others would wait for ever
            said = torch.tensor(float(over), device=args.device)
            torch.distributed.all_reduce(said)
            over = said.item() > 0
        control.should_training_stop |= over

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if control.should_training_stop:  # with a rhythm of steps nothing is due here
            control.should_evaluate |= args.eval_strategy != "no"
            control.should_save |= args.save_strategy != "no"


class CopyStatistics(TrainerCallback):
    """At each evaluation answers a few of its texts and logs, in percent, `eval_copy_mode_fraction`, the share of the
    words that the copy mode wrote, and `eval_unk_rate`, that of unknown words.

    Both go wherever the Trainer logs to: the console, TensorBoard, its state, and what `evaluate()` returns.

    Args:
        trainer: that it belongs to.
        pairs: the evaluation's, with the columns `text` and `summary`; the first `ROWS` are answered.
        options: for `predict_in_batches`; greedy search by default, which is quick, with `<unk>` allowed.
    """

    ROWS = 64
    SHOWN = ("copy_mode_fraction", "unk_rate")

    def __init__(self, trainer: Seq2SeqTrainer, pairs: Dataset, **options: Any) -> None:
        self.trainer, self.pairs = trainer, pairs.select(range(min(self.ROWS, len(pairs))))
        self.options: dict[str, Any] = {"num_beams": 1, "forbid_unk": False, **options}

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        model, metrics = kwargs["model"], kwargs["metrics"]
        if not any(name.startswith("eval_") for name in metrics):  # of other pairs
            return
        scores, _ = evaluate_pairs(model, kwargs["processing_class"], self.pairs, **self.options)
        found = {f"eval_{name}": scores[name] for name in self.SHOWN if name in scores}
        self.trainer.log({name: value for name, value in found.items() if name not in metrics})
        metrics.update(found | metrics)
