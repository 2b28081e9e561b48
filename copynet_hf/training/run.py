"""A training run, from arguments to a saved model with its card: what `copynet-hf train` does.

`train_from_arguments` calls in turn `read_training_pairs`, `complete_arguments`, `train_tokenizer`, `build_model` and
`make_trainer`, which can be used on their own as well. `CopyNetTrainer` says in what it differs from Transformers'
Trainer.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NoReturn

import torch
import transformers
from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase, Seq2SeqTrainingArguments, set_seed

from ..arguments import Values
from ..evaluation.metrics import metric_signature
from ..evaluation.scoring import Scores, evaluate_pairs, write_predictions
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..saved.cards import write_model_card
from ..saved.checks import check_tokenizer
from ..saved.loading import check_name
from ..saved.model_size import explain_memory_errors
from .callbacks import SigtermCheckpoint, TimeEstimate, TimeLimit
from .checkpoints import (
    check_run_record,
    check_unfinished,
    find_resume_checkpoint,
    is_checkpoint_in,
    make_run_record,
    read_trained_seconds,
    remove_earlier_run,
)
from .data_report import describe_training, describe_words, find_warnings
from .dataset import Pairs, read_training_pairs
from .defaults import CompleteArguments, complete_arguments, read_arguments
from .encoder_training import cached_encoder_states
from .model_setup import build_model, load_given_model, set_alignments, set_decoding
from .run_folder import check_output_dir, explain_save_errors, lock_output_dir
from .tokenizer_setup import load_given_tokenizer, train_tokenizer
from .trainer import CopyNetTrainer, make_trainer

logger = logging.getLogger(__name__)

PREDICTIONS_FILE = "test_predictions.jsonl"
# Of a dry run, for which the Trainer would otherwise create a repository, and a run of a tracker.
UNSEEN = {
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "report_to": "none",
}


def train_from_arguments(arguments: Values, change_trainer: Callable[[CopyNetTrainer], None] | None = None) -> Scores:
    """Trains, evaluates and saves a model, from the arguments of `copynet-hf train`; returns the metrics.

    With `dry_run` describes the run, measures a few updates, writes nothing and returns no metrics. Otherwise
    writes model, tokenizer, generation config, card, trainer state and train_results.json to `output_dir`; with
    validation pairs also eval_results.json, with test pairs test_results.json and test_predictions.jsonl.

    Args:
        arguments: by name, without those that keep their defaults.
        change_trainer: is called with the Trainer before it trains, to add callbacks for example.

    Raises:
        ValueError: arguments or data that cannot be used, and nothing has been written; or the memory is full.
        OSError: model or checkpoint could not be saved; earlier checkpoints are whole.
        SystemExit: with code 143, after SIGTERM, once a checkpoint is saved.
    """
    if arguments.get("dry_run"):
        with tempfile.TemporaryDirectory() as folder, explain_memory_errors():
            TrainingRun({**arguments, **UNSEEN, "output_dir": folder}).measure()
        return {}
    run = TrainingRun(arguments)
    with lock_output_dir(run.check_output_dir()), explain_memory_errors():
        run.set_up()
        if change_trainer is not None:
            change_trainer(run.trainer)
        metrics = run.train()
        metrics |= run.finish(metrics)
        run.leave_process_group()
    return metrics


class TrainingRun:
    """A training run, from its arguments to what it saves.

    Attributes:
        given: its arguments as they were given.
        checkpoint: the checkpoint that it resumes from, if any.
        args: those that depend on the data; these and what follows are there once it is set up.
        pairs: the splits `train` and, where given, `validation` and `test`.
    """

    args: CompleteArguments
    pairs: Mapping[str, Pairs]
    tokenizer: PreTrainedTokenizerBase
    model: CopyNetForConditionalGeneration
    trainer: CopyNetTrainer

    def __init__(self, arguments: Values) -> None:
        """Raises ValueError for a value that is out of its range."""
        self.given = read_arguments(arguments)
        self.checkpoint: str | None = None

    @property
    def output_dir(self) -> Path:
        """The folder of the model."""
        return Path(self.given.training.get("output_dir") or "")

    def check_output_dir(self) -> Path:
        """The folder of the model, after checking that writing there destroys nothing; finds the checkpoint.

        Raises:
            ValueError: the folder, or the checkpoint, cannot be used.
        """
        self.checkpoint = find_resume_checkpoint(self.given.training.get("resume_from_checkpoint"), self.output_dir)
        return check_output_dir(
            self.given.training.get("output_dir"), self.given.run.overwrite_output_dir, self.checkpoint
        )

    def measure(self) -> None:
        """Describes the run and measures its first updates."""
        self.set_up()
        self.log_plan()
        self.trainer.add_callback(TimeEstimate(is_dry_run=True))
        with redirect_stdout(StringIO()):  # the Trainer prints its metrics
            self.trainer.train()

    def set_up(self) -> None:
        """Reads the pairs, completes the arguments, and builds tokenizer, model and Trainer."""
        given, checkpoint = self.given, self.checkpoint
        if given.run.threads is not None:
            torch.set_num_threads(given.run.threads)
        pairs = self.pairs = read_training_pairs(given.data)
        set_seed(given.training.get("seed", Seq2SeqTrainingArguments.seed))
        tokenizer, model = self._load_start()
        args = self.args = complete_arguments(given, pairs, tokenizer, model)
        record = make_run_record(pairs["train"], given.tokenizer, given.run.freeze_encoder)
        if checkpoint is not None:
            check_unfinished(checkpoint, args.training)
            check_run_record(checkpoint, record, given.names)
        if args.new_tokenizer is not None:
            encoder = args.model.encoder_name_or_path
            tokenizer = train_tokenizer(pairs["train"], args.new_tokenizer, args.data.max_source_length, encoder)
        assert tokenizer is not None
        self.tokenizer, self.model = tokenizer, build_model(tokenizer, args.model) if model is None else model
        check_tokenizer(self.model.config, tokenizer)
        if given.run.freeze_encoder:
            self.model.freeze_encoder()
        tokenizer.model_max_length = args.data.max_source_length
        set_decoding(self.model, args.model.num_beams, args.model.forbid_unk, args.data.max_target_length)
        self.trainer = make_trainer(
            self.model,
            tokenizer,
            pairs,
            args.training,
            max_source_length=args.data.max_source_length,
            max_target_length=args.data.max_target_length,
            num_proc=args.data.preprocessing_num_workers,
            early_stopping_patience=args.early_stopping_patience,
            run_record=record,
            vocabulary_dropout=given.run.vocabulary_dropout if self.model.config.copies else 0.0,
            ema_decay=given.run.ema_decay,
            earlier_seconds=0.0 if checkpoint is None else read_trained_seconds(checkpoint),
            encoder_learning_rate=args.encoder_learning_rate,
        )
        if model is None:
            set_alignments(self.model, self.trainer.train_dataset)
        if given.run.max_minutes is not None:
            self.trainer.add_callback(TimeLimit(given.run.max_minutes))

    def _load_start(self) -> tuple[PreTrainedTokenizerBase | None, CopyNetForConditionalGeneration | None]:
        """The tokenizer and the model that the run starts from; None for new ones."""
        given, checkpoint = self.given, self.checkpoint
        starts = {
            "model_name_or_path": given.model.model_name_or_path,
            "encoder_name_or_path": given.model.encoder_name_or_path,
            "tokenizer_name": given.tokenizer.tokenizer_name,
        }
        for argument, name in starts.items():
            if name is not None:
                check_name(argument, name)
        model_name = checkpoint or given.model.model_name_or_path
        tokenizer_name = checkpoint or given.tokenizer.tokenizer_name or model_name
        tokenizer = model = None
        if tokenizer_name is not None:
            tokenizer = load_given_tokenizer(
                tokenizer_name,
                given.tokenizer if checkpoint is None else None,
                has_features=given.data.features_column is not None,
                trust_remote_code=given.model.trust_remote_code,
            )
        if model_name is not None:
            model = load_given_model(model_name, given.model, is_checkpoint=checkpoint is not None)
        return tokenizer, model

    def train(self) -> Scores:
        """Trains and saves the model, evaluates it on the validation pairs, and returns the metrics of both."""
        trainer = self.trainer
        self.log_plan()
        trainer.add_callback(TimeEstimate())
        run_args = self.given.run
        trainer.accelerator.wait_for_everyone()  # until all processes have loaded what may be deleted here
        if trainer.is_world_process_zero():
            if run_args.overwrite_output_dir and not is_checkpoint_in(self.output_dir, self.checkpoint):
                remove_earlier_run(self.output_dir)
            (self.output_dir / PREDICTIONS_FILE).unlink(missing_ok=True)  # of the model that is overwritten
        sigterm = SigtermCheckpoint()
        trainer.add_callback(sigterm)  # after the callbacks whose decisions it overrules
        with cached_encoder_states(self.model, self.output_dir) if run_args.cache_encoder_states else nullcontext():
            metrics: Scores = trainer.train(resume_from_checkpoint=self.checkpoint).metrics
        if sigterm.is_received:
            self._exit_after_sigterm()
        with explain_save_errors(self.output_dir):
            trainer.save_model(_internal_call=True)  # without a push, which waits for the card
            if trainer.state.best_model_checkpoint is not None:  # the state is pushed as well: no local paths in it
                trainer.state.best_model_checkpoint = Path(trainer.state.best_model_checkpoint).name
            trainer.save_state()
            trainer.save_metrics("train", metrics)
        if trainer.eval_dataset is not None:
            eval_metrics = trainer.evaluate()
            trainer.save_metrics("eval", eval_metrics)
            metrics |= eval_metrics
        return metrics

    def log_plan(self) -> None:
        """Logs what is trained on what, and what looks wrong with the data."""
        trainer, model = self.trainer, self.model
        encoded: dict[str, Pairs] = {"train": trainer.train_dataset, "validation": trainer.eval_dataset}
        for split in ("validation", "train"):
            if encoded[split] is not None:
                words = describe_words(encoded[split], len(self.tokenizer), self.tokenizer.unk_token_id)
                logger.info("%s pairs: %s", "training" if split == "train" else split, words)
                break
        num_features = len(getattr(self.tokenizer, "feature_vocab", ()))
        logger.info(
            "model: %s, %s parameters, a vocabulary of %s words (segmenter %s), %s%s slots for others",
            model.config.copy_mechanism,
            f"{model.num_parameters():,}",
            f"{len(self.tokenizer):,}",
            getattr(self.tokenizer, "segmenter", "of its own"),
            f"{num_features} features, " if num_features else "",
            model.config.max_source_oov,
        )
        num_pairs = None if isinstance(self.pairs["train"], IterableDataset) else len(self.pairs["train"])
        logger.info("training: %s", describe_training(num_pairs, trainer.args, trainer.eval_dataset is not None))
        lengths = (self.args.data.max_source_length, self.args.data.max_target_length)
        for warning in find_warnings(self.pairs, encoded["train"], *lengths):
            logger.warning("warning: %s", warning)

    def _exit_after_sigterm(self) -> NoReturn:
        logger.info("stopped by SIGTERM: continue with --resume_from_checkpoint auto")
        self.leave_process_group()
        sys.exit(128 + signal.SIGTERM)

    def finish(self, metrics: Scores) -> Scores:
        """Evaluates the model on the test pairs, writes its card and pushes it; returns the test metrics.

        Args:
            metrics: of training and validation, for the card.
        """
        is_main = self.trainer.is_world_process_zero()
        test_metrics: Scores = {}
        predictions: list[dict[str, object]] = []
        if "test" in self.pairs:
            scores, predictions = evaluate_pairs(self.model, self.tokenizer, self.pairs["test"])
            test_metrics = {f"test_{name}": value for name, value in scores.items()}
            self.trainer.save_metrics("test", test_metrics)
        if is_main:
            self._write_card({**metrics, **test_metrics})
        try:
            if self.trainer.args.push_to_hub:
                self.trainer.push_to_hub()
        finally:  # after the push: the predictions hold the test texts, which may not be public
            if is_main and predictions:
                write_predictions(self.output_dir / PREDICTIONS_FILE, predictions)
        return test_metrics

    def leave_process_group(self) -> None:
        """Ends the process group of a distributed training, once all processes have finished."""
        if self.trainer.args.world_size == 1:
            return
        self.trainer.accelerator.wait_for_everyone()  # torchrun stops processes that still save when another one fails
        # DDP's reducer must not hold the last reference to the group: it is freed under the GIL, for which the group's
        # thread, joined by its destructor, may be waiting.
        self.trainer.model_wrapped = self.model
        self.trainer.accelerator.free_memory()
        self.trainer.accelerator.end_training()

    def _write_card(self, metrics: Scores) -> None:
        data_args, card_args = self.args.data, self.given.card
        name = data_args.dataset_name
        is_local = name is not None and Path(name).exists()
        hub_datasets = [name] if name and not is_local else []
        paths = [name if is_local else None, data_args.train_file, data_args.validation_file, data_args.test_file]
        files = [Path(path).absolute().name for path in paths if path]
        counts = [
            f"{len(self.pairs[split]):,} of {split}"
            for split in ("train", "validation", "test")
            if split in self.pairs and not isinstance(self.pairs[split], IterableDataset)
        ]
        # `CopyStatistics` computes it from a part of the validation pairs.
        reported = {name: value for name, value in metrics.items() if name != "eval_copy_mode_fraction"}
        scores = {
            split: {name.removeprefix(prefix): value for name, value in reported.items() if name.startswith(prefix)}
            for split, prefix in {"validation": "eval_", "test": "test_"}.items()
        }
        training_args = self.trainer.args
        minutes = (self.trainer.earlier_seconds + metrics["train_runtime"]) / 60
        write_model_card(
            self.output_dir,
            self.model,
            self.tokenizer,
            title=self.trainer.hub_model_id if training_args.push_to_hub else None,
            language=card_args.language,
            license=card_args.license,
            datasets=hub_datasets,
            data=f"Pairs of texts from {', '.join([*hub_datasets, *files])}: "
            f"{', '.join(counts) or 'read as a stream'}.",
            training=f"{metrics['epoch']:g} epochs, {minutes:.1f} minutes, seed "
            f"{training_args.seed}; torch {torch.__version__}, transformers {transformers.__version__}.",
            command=self.given.command,
            scores=scores,
            signature=metric_signature(list(self.pairs["test"]["summary"])) if "test" in self.pairs else None,
        )
