"""The Trainer of a run: its datasets, callbacks and metrics."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset, IterableDataset, concatenate_datasets
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Sampler
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput, SaveStrategy, TrainOutput, get_last_checkpoint

from ..arguments import TrainArguments, Values
from ..evaluation.scoring import evaluate_pairs, find_right, predict_pairs
from ..evaluation.teacher_forcing import find_right_words, make_argmax, make_compute_accuracy, measure_accuracy
from ..model.loss import shift_right
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.outputs import SourceInputs
from ..model.tokenization_copynet import CopyNetTokenizer
from ..model.vocabularies import IGNORED_LABEL
from ..saved.cards import CARD
from .callbacks import (
    EarlyEnd,
    LogTable,
    SilentProgress,
    TimeLimit,
    find_end,
    get_metric,
    is_better,
    list_scores,
    selects_by_accuracy,
)
from .checkpoints import NUM_PROCESSES, RECORD_FILE, SECONDS, STATE_FILE, find_damage
from .compound_copies import add_compounds, count_versions, take_compounds
from .dataset import Pairs, encode_pairs, take_spread
from .encoder_training import split_parameter_groups
from .guided_attention import GUIDED_UPDATES, build_guide
from .label_smoothing import VocabularyLabelSmoother
from .run_folder import explain_save_errors
from .vocabulary_dropout import append_letters, drop_from_vocabulary, find_drop_probabilities
from .weight_average import WeightAverage

SAMPLE_SIZE = 64  # of the evaluation pairs, and of those with wrong words, for which outputs are generated
NUM_COMPOUNDS = 512  # augmented validation pairs
DRAWN = ("random", "group_by_length")  # the strategies of `EpochSampler`
STREAM_BUFFER = 10_000  # pairs in memory among which a stream is shuffled


class CopyNetTrainer(Trainer):
    """A `Trainer` with these differences:

    - The loss of a training step may have vocabulary dropout, guided attention, and label smoothing that decays; that
      of an evaluation has none of them. The encoder may have a learning rate of its own.
    - In each epoch another part of the pairs is augmented by compound copies; of a stream, and with the strategy
      `sequential`, always the same part.
    - With `ema_decay`, the moving average of the weights is evaluated and saved.
    - Where an accuracy selects the checkpoint, `callbacks.is_better` compares them. A training also ends by
      `callbacks.find_end`, and after `max_minutes`.
    - It resumes in the order of the interrupted run (a stream in that of its first pass). It removes a checkpoint that
      it could not complete, and pushes the model card in its folder rather than one of its own.

    An evaluation also generates outputs: with `predict_with_generate` for all pairs, as `evaluate_pairs` does; else
    greedily, with `<unk>` allowed, for the first `SAMPLE_SIZE`, of which it logs `eval_copy_mode_fraction` (the words
    written by the copy mode, in percent) and `eval_unk_rate`. Once teacher forcing finds at most half of the targets
    wrong, outputs are generated for up to `SAMPLE_SIZE` of these, too: one may be right in other tokens. If then half
    are right, it logs `eval_compound_accuracy`, the sequence accuracy on up to `NUM_COMPOUNDS` augmented validation
    pairs under teacher forcing.

    Args:
        pairs: the splits `train` and, where given, `validation`.
        run_args: the arguments of the run.
        run_record: saved with each checkpoint, see `make_run_record`.
    """

    def __init__(
        self,
        model: CopyNetForConditionalGeneration,
        tokenizer: PreTrainedTokenizerBase,
        pairs: Mapping[str, Pairs],
        training_args: Seq2SeqTrainingArguments,
        run_args: TrainArguments,
        *,
        run_record: Values | None = None,
    ) -> None:
        train, validation = pairs["train"], pairs.get("validation")
        limits = (run_args.max_target_length, run_args.preprocessing_num_workers)
        # encoded: augmented training pairs, of which `EpochSampler` draws some, and augmented validation pairs
        self.compounds: Dataset | None = None
        self.validation_compounds: Dataset | None = None
        self.compound_copies = run_args.compound_copies
        if self.compound_copies and model.config.copies and isinstance(tokenizer, CopyNetTokenizer):
            if validation is not None:
                changed = take_compounds(validation, tokenizer, NUM_COMPOUNDS, *limits)
                self.validation_compounds = None if changed is None else encode_pairs(changed, tokenizer, *limits)
            if isinstance(train, IterableDataset) or training_args.train_sampling_strategy not in DRAWN:
                train = add_compounds(train, tokenizer, self.compound_copies, *limits)
            else:
                versions = count_versions(len(train))
                changed = add_compounds(train, tokenizer, 1.0, *limits, num_versions=versions)
                self.compounds = None if changed is train else encode_pairs(changed, tokenizer, *limits)
        if isinstance(train, IterableDataset) and training_args.train_sampling_strategy == "random":
            train = train.shuffle(seed=_find_data_seed(training_args), buffer_size=STREAM_BUFFER)
        super().__init__(
            model=model,
            args=training_args,
            train_dataset=encode_pairs(train, tokenizer, *limits),
            eval_dataset=None if validation is None else encode_pairs(validation, tokenizer, *limits),
            processing_class=tokenizer,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            compute_metrics=make_compute_accuracy(model.config.unknown_word_id),
            preprocess_logits_for_metrics=make_argmax(model),
        )
        self.scored_pairs, self.run_record = validation, run_record or {}
        self.drop_probabilities: Tensor | None = None
        if run_args.vocabulary_dropout and model.config.copies:
            table = find_drop_probabilities(run_args.vocabulary_dropout, model.config, self.train_dataset)
            self.drop_probabilities = table.to(training_args.device)
        self.guided_attention = run_args.guided_attention or 0.0
        self.guide = build_guide(model, tokenizer, self.train_dataset) if self.guided_attention else None
        self.encoder_learning_rate = run_args.encoder_learning_rate
        self.letters: list[list[int]] = []  # of each word of the vocabulary, if the model reads letters
        if isinstance(tokenizer, CopyNetTokenizer) and tokenizer.letter_vocab:
            words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
            self.letters = [tokenizer.find_letter_ids([word]) for word in words]
        self.weight_average = WeightAverage(model, run_args.ema_decay) if run_args.ema_decay else None
        self.remove_callback(PrinterCallback if training_args.disable_tqdm else ProgressCallback)
        self.patience = run_args.early_stopping_patience
        callbacks = [
            self.weight_average,
            None if training_args.disable_tqdm else SilentProgress(),
            EarlyEnd(self.patience),
            None if run_args.max_minutes is None else TimeLimit(run_args.max_minutes),
            LogTable(),  # after those that ask for an evaluation
        ]
        for callback in callbacks:
            if callback is not None:
                self.add_callback(callback)

    @property
    def copynet(self) -> CopyNetForConditionalGeneration:
        """The model, without what distributes it over several processes."""
        return cast(CopyNetForConditionalGeneration, self.model)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        self._start = time.monotonic()
        average = self.weight_average
        if average is None:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        if resume_from_checkpoint is True:
            resume_from_checkpoint = get_last_checkpoint(str(self.args.output_dir))
        average.checkpoint = Path(str(resume_from_checkpoint)) if resume_from_checkpoint else None
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        if not self.args.load_best_model_at_end or self.state.best_model_checkpoint is None:
            average.keep()
        return output

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if is_new and self.encoder_learning_rate is not None:
            names = {id(weight): name for name, weight in (model or self.copynet).named_parameters()}
            split_parameter_groups(optimizer, names, self.encoder_learning_rate)
        return optimizer

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        if not (Path(str(self.args.output_dir)) / CARD).exists():
            super().create_model_card(*args, **kwargs)

    def get_train_dataloader(self) -> DataLoader:
        if self.compounds is None:
            return super().get_train_dataloader()
        both = concatenate_datasets([cast(Dataset, self.train_dataset), self.compounds])
        sampler_fn = cast(Any, self._get_train_sampler)
        return self._get_dataloader(both, "Training", self._train_batch_size, sampler_fn, is_training=True)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler[int] | None:
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        strategy = self.args.train_sampling_strategy
        if strategy not in DRAWN or isinstance(dataset, IterableDataset):
            return super()._get_train_sampler(train_dataset)
        return EpochSampler(
            self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size,
            _list_lengths(dataset) if strategy == "group_by_length" else [1] * len(dataset),
            _find_data_seed(self.args),
            lambda: int(self.state.epoch or 0),
            self.compound_copies,
            len(dataset) // len(cast(Dataset, self.train_dataset)) - 1,
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        """The order in which pairs are evaluated: the longest first, where training groups them by length."""
        rows = range(len(eval_dataset))
        if self.args.train_sampling_strategy != "group_by_length":
            return list(rows)
        return sorted(rows, key=_list_lengths(eval_dataset).__getitem__, reverse=True)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        if self.drop_probabilities is not None:
            # Here rather than in the collator, whose random numbers a resumed run would not repeat.
            config, encoder = self.copynet.config, self.copynet.get_encoder()
            source, labels, mask = inputs["input_ids"], inputs["labels"], inputs["attention_mask"].bool()
            can_copy = encoder.find_positions(mask, SourceInputs(*map(inputs.get, SourceInputs._fields))).copyable
            input_ids, labels = drop_from_vocabulary(source, labels, self.drop_probabilities, config, can_copy)
            if self.letters:
                letters = (inputs["letter_ids"], source, input_ids, self.letters, config.vocab_size)
                inputs["letter_ids"] = append_letters(*letters)
            decoder_input_ids = shift_right(labels, config)
            inputs |= {"input_ids": input_ids, "labels": labels, "decoder_input_ids": decoder_input_ids}
        return super().training_step(model, inputs, num_items_in_batch)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        if not model.training:
            self.label_smoother = None
            if num_items_in_batch is not None:  # a mean over pairs; `evaluation_loop` makes it one over words
                processes = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1
                num_items_in_batch = len(inputs["labels"]) * processes
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        num_updates = max(self.state.max_steps, 1)
        # What is left of the factor at the end, which may come early, makes scores too low.
        factor = self.args.label_smoothing_factor * self._decay(num_updates) * self._find_error_rate()
        ids = {"vocab_size": self.copynet.config.vocab_size, "unk_token_id": self.copynet.config.unk_token_id}
        # without a smoother the model computes the loss, which is faster
        self.label_smoother = VocabularyLabelSmoother(epsilon=factor, **ids) if factor > 0 else None
        if self.label_smoother is not None:
            inputs = {**inputs, "skip_logits": False}
        weight = self.guided_attention * self._decay(min(GUIDED_UPDATES, num_updates / 2))
        if self.guide is None or not weight:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        input_ids, labels = inputs["input_ids"], inputs["labels"]
        inputs = {**inputs, "output_attentions": True}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        guided = self.guide.compute_loss(outputs["cross_attentions"][0][:, 0], input_ids, labels)
        if num_items_in_batch is None:
            num_items_in_batch = (labels >= 0).sum()
        elif self.args.average_tokens_across_devices:  # the gradients are averaged, as the Trainer's own loss expects
            guided = guided * self.accelerator.num_processes
        loss = loss + weight * guided / num_items_in_batch
        return (loss, outputs) if return_outputs else loss

    def _decay(self, num_updates: float) -> float:
        """1 at the first update, decaying linearly to 0 after this number of updates."""
        return max(0.0, 1 - self.state.global_step / num_updates)

    def _find_error_rate(self) -> float:
        """The share of the validation targets that were wrong at the last evaluation; 1 before the first."""
        (*_, (score, _)) = [(0.0, 0), *list_scores(self.state, "sequence_accuracy")]
        return 1 - score / 100

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        output = super().evaluation_loop(*args, **kwargs)
        if output.label_ids is not None and output.metrics is not None:  # a loss over words, whatever the batches
            labels = np.asarray(output.label_ids)
            num_words = int((labels != IGNORED_LABEL).sum())
            output.metrics[f"{kwargs['metric_key_prefix']}_loss"] *= len(labels) / num_words
        model, tokenizer, pairs = self.copynet, cast(PreTrainedTokenizerBase, self.processing_class), self.scored_pairs
        if not pairs or len(args[0].dataset) != len(pairs) or kwargs.get("metric_key_prefix") != "eval":
            return output  # predict(), or evaluate() of another dataset
        if getattr(self.args, "predict_with_generate", False):
            scores, _ = evaluate_pairs(model, tokenizer, pairs)
            del scores["seconds"]
        else:
            sample = pairs.select(range(min(SAMPLE_SIZE, len(pairs))))
            scores, _ = evaluate_pairs(model, tokenizer, sample, num_beams=1, forbid_unk=False)
            scores = {name: scores[name] for name in ("copy_mode_fraction", "unk_rate") if name in scores}
            if output.predictions is not None:
                scores |= self._measure_accuracy(output, pairs)
        assert output.metrics is not None
        output.metrics.update({f"eval_{name}": value for name, value in scores.items() if value is not None})
        return output

    def _measure_accuracy(self, output: EvalLoopOutput, pairs: Dataset) -> dict[str, float]:
        """The accuracy on these pairs, for which the targets that a greedy search writes are right."""
        labels = np.asarray(output.label_ids)
        is_right = find_right_words(output.predictions, labels, self.copynet.config.unknown_word_id)
        # by one process, so that all have the same: rounding differs between machines
        written = [self._find_written(is_right, labels, pairs) if self.is_world_process_zero() else None]
        is_right[broadcast_object_list(written)[0]] = True
        scores = measure_accuracy(is_right, labels)
        if self.validation_compounds is not None and scores["sequence_accuracy"] >= 50:
            dataloader = self.callback_handler.eval_dataloader
            found = super().evaluation_loop(self._compound_dataloader, "Compounds", metric_key_prefix="compound")
            self.callback_handler.eval_dataloader = dataloader  # callbacks read that of the validation pairs
            scores["compound_accuracy"] = cast("dict[str, float]", found.metrics)["compound_sequence_accuracy"]
        return scores

    @cached_property  # else each evaluation would have worker processes of its own
    def _compound_dataloader(self) -> DataLoader:
        return self.get_test_dataloader(cast(Dataset, self.validation_compounds))

    def _find_written(self, is_right: np.ndarray, labels: np.ndarray, pairs: Dataset) -> list[int]:
        """Of the targets with wrong words, and at most `SAMPLE_SIZE` of them, those that a greedy search writes; none
        if they are more than half. Of another dataset of the same size none: its labels are not those of the pairs.

        Args:
            is_right, labels: (N, T) in the order of the evaluation.
        """
        encoded, wrong = cast(Any, self.eval_dataset), np.flatnonzero(~is_right.all(-1)).tolist()
        if not wrong or 2 * len(wrong) > len(is_right):
            return []
        order = self._get_eval_sampler(encoded)
        own = {row: encoded[order[row]]["labels"] for row in take_spread(wrong, SAMPLE_SIZE)}
        rows = [row for row, target in own.items() if labels[row][labels[row] != IGNORED_LABEL].tolist() == target]
        are_written = self._are_written(pairs.select([order[row] for row in rows]))
        return [row for row, is_written in zip(rows, are_written, strict=True) if is_written]

    def _are_written(self, pairs: Dataset) -> list[bool]:
        """Whether a greedy search writes the target of each pair."""
        tokenizer = cast(PreTrainedTokenizerBase, self.processing_class)
        outputs = predict_pairs(self.copynet, tokenizer, pairs, num_beams=1)
        return find_right(tokenizer, [row[0] for row in outputs], list(pairs["summary"]))

    def _run_epoch(self, *args: object, **kwargs: object) -> None:
        is_over = self.state.global_step >= self.state.max_steps
        if is_over or find_end(self.args, self.state, self.patience):
            self.control.should_training_stop = True  # resumed at its end, where the Trainer would train on
        else:
            super()._run_epoch(*args, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        uses_weights = self.control.should_evaluate or self.control.should_save
        average = self.weight_average
        with average.applied() if average is not None and uses_weights else nullcontext():
            super()._maybe_log_save_evaluate(*args, **kwargs)

    def _determine_best_metric(self, metrics: dict[str, float], trial: object) -> bool:
        metric = f"eval_{get_metric(self.args)}"
        if not selects_by_accuracy(self.args) or metric not in metrics:
            try:
                return super()._determine_best_metric(metrics, trial)
            except KeyError as error:  # a score that these validation pairs lack
                raise ValueError(error.args[0]) from None
        is_saved = self.control.should_save or self.args.save_strategy == SaveStrategy.BEST
        if is_best := is_saved and is_better(self.args, self.state, metrics):
            self.state.best_metric, self.state.best_global_step = metrics[metric], self.state.global_step
        return is_best

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        except ValueError as error:
            if "parameter group" not in str(error):
                raise
            raise ValueError(
                f"{checkpoint} has other weights than the model of this run: it is of another version of this "
                "package, or options such as --use_coverage differ. Resume it as it was trained, or start a new run "
                f"with --model_name_or_path {checkpoint}"
            ) from error

    def _save_checkpoint(self, model: nn.Module, trial: object) -> None:
        checkpoint = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        try:
            with explain_save_errors(checkpoint):
                if self.args.should_save:
                    checkpoint.mkdir(parents=True, exist_ok=True)
                    seconds = self.run_record.get(SECONDS, 0.0) + time.monotonic() - self._start
                    record = {**self.run_record, NUM_PROCESSES: self.args.world_size, SECONDS: seconds}
                    (checkpoint / RECORD_FILE).write_text(json.dumps(record), encoding="utf-8")
                    if self.weight_average is not None:
                        self.weight_average.save(checkpoint)
                super()._save_checkpoint(model, trial)
        except OSError:
            is_whole = (checkpoint / STATE_FILE).exists() and find_damage(checkpoint) is None
            if not is_whole:  # older ones are deleted only after this one is saved
                shutil.rmtree(checkpoint, ignore_errors=True)
            raise


class EpochSampler(LengthGroupedSampler):
    """Shuffles by seed and epoch alone, so that a resumed run continues in the order of the interrupted one.

    Transformers' sampler draws from a generator whose state at the start of an epoch is not part of a checkpoint.

    Args:
        batch_size: that of the batches into which pairs of about the same length are grouped: all pairs of an update,
            so that it has the same pairs with any number of processes.
        lengths: of all pairs; if they are all the same, the order is random.
        get_epoch: returns the number of epochs that are finished.
        share: of the pairs that are drawn in another version.
        num_versions: how many others each pair has. In `lengths`, all pairs come first, then the others of the first
            pair, of the second, ….
    """

    def __init__(
        self,
        batch_size: int,
        lengths: list[int],
        seed: int,
        get_epoch: Callable[[], int],
        share: float = 0.0,
        num_versions: int = 0,
    ) -> None:
        self.num_pairs, self.num_versions = len(lengths) // (1 + num_versions), num_versions
        super().__init__(batch_size, lengths=lengths[: self.num_pairs])
        self.all_lengths, self.seed, self.get_epoch, self.share = lengths, seed, get_epoch, share

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(self.seed + self.get_epoch())
        rows = list(range(self.num_pairs))
        if self.num_versions:
            size = (self.num_pairs,)
            is_other = torch.rand(size, generator=self.generator) < self.share
            version = torch.randint(self.num_versions, size, generator=self.generator)
            first = self.num_pairs + self.num_versions * torch.arange(self.num_pairs)
            rows = torch.where(is_other, first + version, torch.arange(self.num_pairs)).tolist()
            self.lengths = [self.all_lengths[row] for row in rows]
        return map(rows.__getitem__, super().__iter__())


def _list_lengths(dataset: Any) -> list[int]:
    """The number of words of each source."""
    return list(map(len, dataset["input_ids"]))


def _find_data_seed(args: TrainingArguments) -> int:
    return args.seed if args.data_seed is None else args.data_seed
