"""Callbacks of the Trainer: a time limit and estimate, early stopping, SIGTERM, and the log."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..evaluation.teacher_forcing import ACCURACIES

logger = logging.getLogger(__name__)

SIGTERM_CODE = 128 + signal.SIGTERM  # as shells have it
# A training ends early after NUM_FULL evaluations without a mistake, over FULL_UPDATES: a short run evaluates often,
# and its loss still falls; where pairs are augmented, once the score of `_rank` has risen by at most LEAST_RISE in
# the last NUM_LEVEL evaluations, 1.5 points on augmented pairs. From the share EARLIEST_END of its updates on, it
# also ends if, for the share FLAT_SHARE of them and for NUM_FLAT evaluations, neither accuracy nor loss was better.
NUM_FULL, FULL_UPDATES = 3, 150
NUM_LEVEL, LEAST_RISE = 4, 0.45
EARLIEST_END, FLAT_SHARE, NUM_FLAT = 0.5, 0.25, 5
COMPOUND_SHARE = 0.3  # the weight of augmented pairs in the choice of a checkpoint; as many are in training


class SilentProgress(ProgressCallback):
    """The Trainer's progress bar alone: what it logs, `LogTable` logs."""

    def on_log(self, *_: object, **__: object) -> None:
        pass

    def on_prediction_step(self, *args: Any, **kwargs: Any) -> None:
        bar = self.prediction_bar
        if bar is not None and bar.n == bar.total:  # of these pairs; augmented ones follow
            bar.close()
            self.prediction_bar = None
        super().on_prediction_step(*args, **kwargs)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        if self.training_bar is not None:
            self.training_bar.delay = 0  # else a bar that `log_line` has shown earlier would not end its line
        super().on_train_end(*args, **kwargs)


class LogTable(TrainerCallback):
    """Logs each evaluation as a row of a table, with the training loss before it; without evaluations, the losses."""

    HIDDEN = ("epoch", "total_flos", "_runtime", "_per_second")  # suffixes of names

    def __init__(self) -> None:
        self._widths: dict[str, int] = {}
        self._loss: float | None = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        control.should_log |= control.should_evaluate  # so that each row has a training loss

    on_epoch_end = on_step_end

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        logs = cast("dict[str, float]", kwargs["logs"])
        shown = {name: value for name, value in logs.items() if not name.endswith(self.HIDDEN)}
        if not state.is_world_process_zero:
            return
        if "eval_loss" in shown:
            scores = {name.removeprefix("eval_"): value for name, value in shown.items() if name != "eval_loss"}
            losses = {"loss": self._loss, "eval_loss": shown["eval_loss"]}
            self._log_row({"step": f"{state.global_step:,}"} | _format({**losses, **scores}))
            self._loss = None  # that of no second evaluation
        elif "loss" in shown and args.eval_strategy != "no":
            self._loss = shown["loss"]
        else:
            values = ", ".join(f"{name} {value}" for name, value in _format(shown).items())
            log_line("step %s of %s: %s", f"{state.global_step:,}", f"{state.max_steps:,}", values)

    def _log_row(self, cells: dict[str, str]) -> None:
        if not cells.keys() <= self._widths.keys():
            self._widths |= {name: max(len(name), 6) for name in cells}
            log_line("%s", "  ".join(name.rjust(width) for name, width in self._widths.items()))
        log_line("%s", "  ".join(cells.get(name, "").rjust(width) for name, width in self._widths.items()).rstrip())


def _format(values: Mapping[str, float | None]) -> dict[str, str]:
    return {name: "-" if value is None else f"{value:.4g}" for name, value in values.items()}


def log_line(message: str, *values: object) -> None:
    """Logs a line of its own, above the progress bar."""
    with tqdm.external_write_mode():
        logger.info(message, *values)


class TimeLimit(TrainerCallback):
    """Stops training after some minutes, with an evaluation and a checkpoint."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes

    def on_train_begin(self, *_: object, **__: object) -> None:
        self.start = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        is_over = time.monotonic() - self.start > 60 * self.minutes
        if _is_true_in_any_process(is_over, args):
            log_line("the %g minutes of --max_minutes are over: the training ends", self.minutes)
            control.should_training_stop = True
            control.should_evaluate |= args.eval_strategy == "steps"  # else it comes with the end of the epoch
            control.should_save |= args.save_strategy == "steps"


class EarlyEnd(TrainerCallback):
    """Ends the training at an evaluation for which `find_end` has a reason."""

    def __init__(self, patience: int | None) -> None:
        self.patience = patience

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if control.should_training_stop:  # also after the training, when the kept checkpoint is evaluated
            return
        if reason := find_end(args, state, self.patience):
            log_line(
                "%s: the training ends (if new texts are harder, --load_best_model_at_end False trains on)", reason
            )
            control.should_training_stop = True


def find_end(args: TrainingArguments, state: TrainerState, patience: int | None) -> str | None:
    """Why the training need not go on to its last update, where it keeps the best checkpoint; None: it goes on.

    All validation targets were right in three evaluations or more, the last of them 150 updates or more after the
    first, and where pairs are augmented, the score of `_rank` is no longer rising (`_is_rising`). Or, in the second
    half, it has not risen for a quarter of the updates and for five evaluations, nor has the loss fallen: a model may
    get better for a long time before more targets are right to the last word. Counted in the log of the run, which a
    resumed run continues.

    Args:
        patience: replaces the second rule by a number of evaluations without a better score, counted from the start
            and whatever the metric; 0: there is no second rule; None: it is the one above.
    """
    name = get_metric(args)
    evaluations = [logs for logs in state.log_history if f"eval_{name}" in logs]
    if not evaluations or not args.load_best_model_at_end or state.global_step >= state.max_steps:
        return None
    ranks = [(_rank(args, logs), int(logs["step"])) for logs in evaluations]
    best_step, steps = _find_highest(ranks), [step for _, step in ranks]
    is_accuracy = selects_by_accuracy(args)
    has_compounds = is_accuracy and bool(list_scores(state, "compound_accuracy"))
    shown = f"the mean of {name} and compound_accuracy" if has_compounds else name
    full = [step for score, step in list_scores(state, name) if is_accuracy and score == 100.0]
    is_learned = not has_compounds or not _is_rising([score for score, _ in ranks])
    if len(full) >= NUM_FULL and full[-1] == steps[-1] >= full[0] + FULL_UPDATES and is_learned:
        return f"all validation targets were right in {len(full)} evaluations"
    if patience is not None:
        is_over = 0 < patience <= _count_after(best_step, steps)
        return f"{shown} has not been better since step {best_step}" if is_over else None
    best_step = max(best_step, _find_highest([(-loss, step) for loss, step in list_scores(state, "loss")]))
    # of the last evaluation, so that nothing ends between two of them, when an epoch begins
    is_flat = _count_after(best_step, steps) >= NUM_FLAT and steps[-1] - best_step >= FLAT_SHARE * state.max_steps
    is_over = is_accuracy and is_flat and steps[-1] >= EARLIEST_END * state.max_steps
    return f"neither {shown} nor the loss has been better since step {best_step}" if is_over else None


def list_scores(state: TrainerState, name: str) -> list[tuple[float, int]]:
    """A score on the validation pairs, and the step, of each evaluation."""
    return [(logs[f"eval_{name}"], int(logs["step"])) for logs in state.log_history if f"eval_{name}" in logs]


def _find_highest(scores: list[tuple[float, int]]) -> int:
    """The step of the highest score, the first of several; 0: there is none."""
    return max(scores, key=lambda pair: pair[0], default=(0.0, 0))[1]


def _is_rising(scores: list[float]) -> bool:
    """Whether the highest of the last `NUM_LEVEL` is above the highest before them by more than `LEAST_RISE`."""
    return max(scores[-NUM_LEVEL:]) > max(scores[:-NUM_LEVEL], default=0.0) + LEAST_RISE


def _count_after(first: int, steps: list[int]) -> int:
    """How many of the steps are later."""
    return sum(step > first for step in steps)


def is_better(args: TrainingArguments, state: TrainerState, metrics: Mapping[str, float]) -> bool:
    """Whether an evaluation is better than that of the best checkpoint so far, or as good at a lower loss. Ties are
    common: of a few validation targets, all are soon right, or the same ones stay wrong, while the model still
    improves."""
    evaluations = {logs["step"]: logs for logs in state.log_history if "eval_loss" in logs}
    best = evaluations.get(state.best_global_step or 0)
    rank = _rank(args, metrics), -metrics["eval_loss"]
    return best is None or rank > (_rank(args, best), -best["eval_loss"])


def _rank(args: TrainingArguments, metrics: Mapping[str, float]) -> float:
    """The score that selects the checkpoint, of which more is better: of an accuracy, its mean with that on augmented
    pairs, which counts as 0 where it was not measured."""
    score = metrics[f"eval_{get_metric(args)}"]
    if selects_by_accuracy(args):
        return (1 - COMPOUND_SHARE) * score + COMPOUND_SHARE * metrics.get("eval_compound_accuracy", 0.0)
    return score if args.greater_is_better else -score


def selects_by_accuracy(args: TrainingArguments) -> bool:
    """Whether an accuracy selects the checkpoint that a training keeps."""
    return bool(args.load_best_model_at_end) and get_metric(args) in ACCURACIES


def get_metric(args: TrainingArguments) -> str:
    """The name of the score that selects the checkpoint, as the log has it; empty: there is none."""
    return (args.metric_for_best_model or "").removeprefix("eval_")


def find_kept_step(state: TrainerState) -> int | None:
    """The step of the best checkpoint; that of the best evaluation may not have been saved."""
    name = Path(state.best_model_checkpoint or "").name
    return int(name.removeprefix("checkpoint-")) if name else None


class TimeEstimate(TrainerCallback):
    """Measures a few updates and logs how long the training will take, without checkpoints, and without evaluations
    if none has come by then, or if they come with the epochs.

    Args:
        is_dry_run: stops the training after the measured updates.
    """

    WARMUP_UPDATES, MEASURED_UPDATES = 2, 20

    def __init__(self, is_dry_run: bool = False) -> None:
        self.is_dry_run, self._num_updates, self._seconds, self._last = is_dry_run, 0, 0.0, 0.0
        self._evaluation_seconds: float | None = None  # of the last one

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self._num_updates, now = self._num_updates + 1, time.monotonic()
        if self._num_updates > self.WARMUP_UPDATES:
            self._seconds += now - self._last
        self._last = now
        if self._num_updates == self.WARMUP_UPDATES + self.MEASURED_UPDATES:
            seconds = self._seconds / self.MEASURED_UPDATES
            rest = state.max_steps - (0 if self.is_dry_run else state.global_step)
            log_line(
                "%.0f ms an update: about %s for %s%s updates, %s%s",
                1000 * seconds,
                _format_duration(seconds * rest),
                "" if self.is_dry_run else "the other ",
                f"{rest:,}",
                self._describe_evaluations(args, state),
                "; nothing was written" if self.is_dry_run else "",
            )
            control.should_training_stop |= self.is_dry_run

    def _describe_evaluations(self, args: TrainingArguments, state: TrainerState) -> str:
        """How long the other evaluations take."""
        if self._evaluation_seconds is None or args.eval_strategy != "steps" or not args.eval_steps:
            return "evaluations not included"
        number = math.ceil(state.max_steps / args.eval_steps) - int(state.global_step // args.eval_steps)
        noun = "evaluation" if number == 1 else "evaluations"
        return f"{_format_duration(number * self._evaluation_seconds)} for {number:,} {noun}"

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        start, self._last = self._last, time.monotonic()
        if self._num_updates:  # else it is one before the first update
            self._evaluation_seconds = self._last - start

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self._last = time.monotonic()


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


class SigtermCheckpoint(TrainerCallback):
    """At SIGTERM, which announces the end of a preemptible machine, saves a checkpoint after the step and stops.

    Attributes:
        is_received: whether the signal has come, to any process; after the last step as well.
        saved_step: the step of the last checkpoint.
    """

    def __init__(self) -> None:
        self.is_received = False
        self.saved_step: int | None = None
        self._handling = ExitStack()

    def on_train_begin(self, *_: object, **__: object) -> None:
        self._handling.enter_context(handle_sigterm(self._receive))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if _is_true_in_any_process(self.is_received, args):
            self.is_received = control.should_training_stop = True
            control.should_evaluate = False
            control.should_save = self.saved_step != state.global_step

    on_epoch_end = on_step_end

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.saved_step = state.global_step

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self._handling.close()
        self.is_received = _is_true_in_any_process(self.is_received, args)

    def _receive(self, *_: object) -> None:
        self.is_received = True


@contextmanager
def handle_sigterm(handler: Callable[..., None]) -> Iterator[None]:
    """Handles SIGTERM in this way within the context, in the main thread; others cannot handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _is_true_in_any_process(value: bool, args: TrainingArguments) -> bool:
    """The same for all processes, which must stop at the same step: the others would wait forever."""
    if args.world_size == 1:
        return value
    total = torch.tensor(float(value), device=args.device)
    torch.distributed.all_reduce(total)
    return total.item() > 0
