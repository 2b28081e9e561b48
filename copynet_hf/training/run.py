"""A training run, from arguments to a saved model with its card: what `copynet-hf train` does.

`train_from_arguments` calls in turn `read_training_pairs`, `complete_arguments`, `train_tokenizer`, `build_model`,
`CopyNetTrainer` and, for a new model, `set_alignments` and `mark_rare_words`, which can be used on their own as well.
`CopyNetTrainer` says in what it differs from Transformers' Trainer.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, Seq2SeqTrainingArguments, set_seed

from ..arguments import TrainArguments, Values, build_arguments, expand_home
from ..data.remembered import remember_options
from ..evaluation.metrics import metric_signature
from ..evaluation.scoring import Scores, calibrate_model, evaluate_pairs
from ..inference.part_files import write_json_lines
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.tokenization_copynet import CopyNetTokenizer
from ..model.vocabularies import check_tokenizer
from ..saved.cards import command_line, write_model_card
from ..saved.checks import check_name
from ..saved.model_size import explain_memory_errors
from .callbacks import SIGTERM_CODE, LogTable, SigtermCheckpoint, TimeEstimate, find_kept_step, handle_sigterm
from .checkpoints import (
    METRICS_FILE,
    OPTIMIZER,
    SECONDS,
    check_run_record,
    find_resume_checkpoint,
    is_checkpoint_in,
    is_trained,
    list_checkpoints,
    make_run_record,
    read_metrics,
    read_trained_seconds,
    remove_checkpoints,
)
from .data_report import check_pointed_at, describe_training, describe_words, find_warnings
from .dataset import Pairs, choose_max_target_length, read_training_pairs
from .defaults import complete_arguments
from .encoder_training import cached_encoder_states
from .model_setup import build_model, load_given_model, mark_rare_words, set_alignments
from .run_folder import PREDICTIONS_FILE, check_output_dir, explain_save_errors, lock_output_dir, remove_results
from .tokenizer_setup import load_given_tokenizer, train_tokenizer
from .trainer import CopyNetTrainer

logger = logging.getLogger(__name__)

SAVING = {"save_strategy", "save_steps", "save_total_limit"}  # with one of them, checkpoints stay after the run
# Of a dry run, for which the Trainer would otherwise create a repository, and a run of a tracker.
UNSEEN = {
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "report_to": "none",
    "early_stopping_patience": 0,
}


def train_from_arguments(arguments: Values, change_trainer: Callable[[CopyNetTrainer], None] | None = None) -> Scores:
    """Trains, evaluates and saves a model, from the arguments of `copynet-hf train`; returns the metrics.

    With `dry_run` describes the run, measures a few updates, writes nothing and returns no metrics. Otherwise
    writes model, tokenizer, generation config, card, trainer state and train_results.json to `output_dir`; with
    validation pairs also eval_results.json, with test pairs test_results.json and test_predictions.jsonl; then
    all_results.json.

    Args:
        arguments: by name, without those that keep their defaults.
        change_trainer: is called with the Trainer before it trains, to add callbacks for example.

    Raises:
        ValueError: arguments or data that cannot be used, and nothing has been written; or the memory is full.
        OSError: model or checkpoint could not be saved; earlier checkpoints are whole.
        SystemExit: with code 143, after SIGTERM; during the training once a checkpoint is saved, and after its last
            step, where none is, once the model is.
    """
    if arguments.get("dry_run"):
        if arguments.get("output_dir"):
            try:
                TrainingRun(arguments).check_output_dir()
            except ValueError as error:
                logger.warning("warning: %s", error)
        with tempfile.TemporaryDirectory() as folder, explain_memory_errors():
            run = TrainingRun({**arguments, **UNSEEN, "output_dir": folder})
            run.set_up()
            run.log_plan()
            run.trainer.add_callback(TimeEstimate(is_dry_run=True))
            run.trainer.remove_callback(LogTable)
            run.trainer.train()
        return {}
    run = TrainingRun(arguments)
    exits = handle_sigterm(lambda *_: sys.exit(SIGTERM_CODE))  # wherever there is no `SigtermCheckpoint`
    with lock_output_dir(run.check_output_dir()), explain_memory_errors(), exits:
        try:
            run.set_up()
            if change_trainer is not None:
                change_trainer(run.trainer)
            metrics = run.train()
            metrics |= run.finish(metrics)
            run.leave_process_group()
        except (SystemExit, KeyboardInterrupt) as stop:
            fix = ": continue with --resume_from_checkpoint auto" if list_checkpoints(run.output_dir) else ""
            logger.info("stopped by %s%s", "SIGTERM" if isinstance(stop, SystemExit) else "Ctrl-C", fix)
            raise
    return metrics


class TrainingRun:
    """A training run, from its arguments to what it saves.

    Attributes:
        values: its arguments as they were given, by name.
        args: those that are not the Trainer's; complete once the run is set up, as is what follows.
        pairs: the splits `train` and, where given, `validation` and `test`.
        checkpoint: the checkpoint that it resumes from, if any.
        earlier: the metrics, by split, of a run in the same folder that was stopped after its training, before all
            results were written.
    """

    pairs: Mapping[str, Pairs]
    tokenizer: PreTrainedTokenizerBase
    model: CopyNetForConditionalGeneration
    trainer: CopyNetTrainer

    def __init__(self, values: Values) -> None:
        """Raises ValueError for an unknown argument, or a value that is out of its range."""
        known = [entry.name for kind in (TrainArguments, Seq2SeqTrainingArguments) for entry in fields(kind)]
        if unknown := values.keys() - known:
            nearest = get_close_matches(min(unknown), known, 1)
            hint = f"did you mean {nearest[0]}?" if nearest else "copynet-hf train --help_all lists all"
            raise ValueError(f"{min(unknown)} is not an argument: {hint}")
        self.values = expand_home({name: value for name, value in values.items() if value is not None})
        self.args = build_arguments(TrainArguments, self.values)
        self.checkpoint: str | None = None
        self.earlier: dict[str, Scores] = {}

    @property
    def output_dir(self) -> Path:
        """The folder of the model."""
        return Path(self.values.get("output_dir") or "")

    def check_output_dir(self) -> Path:
        """The folder of the model, after checking that writing there destroys nothing; finds the checkpoint."""
        overwrite = self.args.overwrite_output_dir
        self.checkpoint = find_resume_checkpoint(self.values.get("resume_from_checkpoint"), self.output_dir, overwrite)
        return check_output_dir(self.values.get("output_dir"), overwrite, self.checkpoint)

    def set_up(self) -> None:
        """Reads the pairs, completes the arguments, and builds tokenizer, model and Trainer."""
        checkpoint = self.checkpoint
        if self.args.threads is not None:
            torch.set_num_threads(self.args.threads)
        pairs = self.pairs = read_training_pairs(self.args)
        set_seed(self.values.get("seed", Seq2SeqTrainingArguments.seed))
        tokenizer, model = self._load_start()
        args, training_args = complete_arguments(self.args, self.values, pairs, tokenizer, model)
        completed = {**training_args.to_dict(), **vars(args)}
        record = make_run_record(pairs["train"], self.args, {name: completed[name] for name in OPTIMIZER})
        self.args = args
        if checkpoint is not None:
            results = [METRICS_FILE.format("all"), *([PREDICTIONS_FILE] if "test" in pairs else [])]
            is_over = is_trained(checkpoint, training_args, results, args.early_stopping_patience)
            if is_over and is_checkpoint_in(self.output_dir, checkpoint):
                self.earlier = read_metrics(self.output_dir)
            check_run_record(checkpoint, record, self.values)
        if tokenizer is None:
            tokenizer = train_tokenizer(pairs["train"], args)
        self.tokenizer, self.model = tokenizer, build_model(tokenizer, args) if model is None else model
        check_tokenizer(self.model.config, tokenizer)
        self.model.config.calibration = None  # that of another training
        remember_options(tokenizer, vars(args), pairs["train"].info.supervised_keys)
        if args.freeze_encoder:
            self.model.freeze_encoder()
        tokenizer.model_max_length = args.max_source_length
        if args.max_target_length is None:
            most = getattr(self.model.model.decoder, "max_words", None)
            length = choose_max_target_length(pairs["train"], tokenizer, most)
            args = self.args = replace(args, max_target_length=length)
        self.model.generation_config.update(  # saved with the model
            num_beams=args.num_beams, forbid_unk=args.forbid_unk, max_new_tokens=args.max_target_length
        )
        if checkpoint is not None:
            record[SECONDS] = read_trained_seconds(checkpoint)
        self.trainer = CopyNetTrainer(self.model, tokenizer, pairs, training_args, args, run_record=record)
        if not self.model.config.mechanism.generates:
            for split, encoded in self._encoded().items():
                if isinstance(encoded, Dataset):  # a stream ends at the first such pair
                    check_pointed_at(pairs[split], encoded, split, tokenizer)
        if model is None:
            set_alignments(self.model, self.trainer.train_dataset)
            mark_rare_words(self.model, tokenizer, self.trainer.train_dataset)

    def _load_start(self) -> tuple[PreTrainedTokenizerBase | None, CopyNetForConditionalGeneration | None]:
        """The tokenizer and the model that the run starts from; None for new ones."""
        args, is_resumed = self.args, self.checkpoint is not None
        for argument in ("model_name_or_path", "encoder_name_or_path", "seq2seq_name_or_path", "tokenizer_name"):
            if getattr(args, argument) is not None:
                check_name(argument, getattr(args, argument))
        model_name = self.checkpoint or args.model_name_or_path
        tokenizer_name = self.checkpoint or args.tokenizer_name or model_name or args.seq2seq_name_or_path
        tokenizer = model = None
        if tokenizer_name is not None:
            tokenizer = load_given_tokenizer(tokenizer_name, args, is_checkpoint=is_resumed)
        if model_name is not None:
            model = load_given_model(model_name, args, is_checkpoint=is_resumed)
        return tokenizer, model

    def train(self) -> Scores:
        """Trains and saves the model, evaluates it on the validation pairs, and returns the metrics of both."""
        trainer = self.trainer
        self.log_plan()
        trainer.add_callback(TimeEstimate())
        args = self.args
        trainer.accelerator.wait_for_everyone()  # until all processes have loaded what may be deleted here
        if trainer.is_world_process_zero():
            if args.overwrite_output_dir and not is_checkpoint_in(self.output_dir, self.checkpoint):
                remove_checkpoints(self.output_dir)
            if not self.earlier:
                remove_results(self.output_dir)  # of the model that is overwritten
        sigterm = SigtermCheckpoint()
        trainer.add_callback(sigterm)  # after the callbacks whose decisions it overrules
        with cached_encoder_states(self.model, self.output_dir) if args.cache_encoder_states else nullcontext():
            metrics: Scores = trainer.train(resume_from_checkpoint=self.checkpoint).metrics
        if sigterm.is_received and sigterm.saved_step == trainer.state.global_step:
            self._stop()
        if "validation" in self.pairs:
            calibrate_model(self.model, self.tokenizer, self.pairs["validation"])
        with explain_save_errors(self.output_dir):
            trainer.save_model(_internal_call=True)  # without a push, which waits for the card
            if trainer.state.best_model_checkpoint is not None:  # the state is pushed as well: no local paths in it
                trainer.state.best_model_checkpoint = Path(trainer.state.best_model_checkpoint).name
            trainer.save_state()
            if "train" in self.earlier:  # this part of the run has trained nothing
                metrics = {**self.earlier["train"], "train_runtime": metrics["train_runtime"]}
            else:
                trainer.save_metrics("train", metrics, combined=False)
        if sigterm.is_received:  # after the last step, without a checkpoint
            self._stop()
        if trainer.eval_dataset is not None:
            if trainer.args.load_best_model_at_end and (kept_step := find_kept_step(trainer.state)):
                logger.info("the checkpoint of step %s is kept", f"{kept_step:,}")
            trainer.remove_callback(LogTable)  # a row would have the number of the last step
            eval_metrics = self.earlier.get("eval") or trainer.evaluate()
            trainer.save_metrics("eval", eval_metrics, combined=False)
            metrics |= eval_metrics
        return metrics

    def log_plan(self) -> None:
        """Logs what is trained on what, and what looks wrong with the data."""
        trainer, model = self.trainer, self.model
        if isinstance(self.tokenizer, CopyNetTokenizer):
            split, name = ("validation",) * 2 if "validation" in self.pairs else ("train", "training")
            logger.info("%s pairs: %s", name, describe_words(self.pairs[split], self.tokenizer))
        num_features = len(getattr(self.tokenizer, "feature_vocab", ()))
        logger.info(
            "model: %s, %s parameters, a vocabulary of %s words (segmenter %s), %s%s slots for others%s",
            model.config.copy_mechanism,
            f"{model.num_parameters():,}",
            f"{len(self.tokenizer):,}",
            getattr(self.tokenizer, "segmenter", "of its own"),
            f"{num_features} features, " if num_features else "",
            model.config.max_source_oov,
            ", read by their letters" if model.config.letter_vocab_size else "",
        )
        num_pairs = len(self.pairs["train"]) if isinstance(self.pairs["train"], Dataset) else None
        logger.info("outputs: at most %s words, the end symbol included", self.args.max_target_length)
        has_validation = trainer.eval_dataset is not None
        plan = describe_training(num_pairs, trainer.args, has_validation, self.args.max_minutes)
        logger.info("training: %s", plan)
        pieces = getattr(self.tokenizer, "encoder_tokenizer", None)
        max_pieces, retrieves = pieces and pieces.max_length, model.config.mechanism.retrieves
        for warning in find_warnings(self.pairs, self._encoded(), self.args, max_pieces, retrieves):
            logger.warning("warning: %s", warning)

    def _encoded(self) -> dict[str, Any]:
        """The training pairs, and the validation pairs if there are any, as the model reads them."""
        encoded = {"train": self.trainer.train_dataset, "validation": self.trainer.eval_dataset}
        return {split: rows for split, rows in encoded.items() if rows is not None}

    def finish(self, metrics: Scores) -> Scores:
        """Evaluates the model on the test pairs, writes its card and pushes it; returns the test metrics.

        Args:
            metrics: of training and validation, for the card.
        """
        is_main = self.trainer.is_world_process_zero()
        test_metrics: Scores = {}
        predictions: list[dict[str, Any]] = []
        if "test" in self.pairs:
            scores, predictions = evaluate_pairs(self.model, self.tokenizer, self.pairs["test"])
            test_metrics = {f"test_{name}": value for name, value in scores.items()}
            self.trainer.save_metrics("test", test_metrics, combined=False)
        if is_main:
            self._write_card({**metrics, **test_metrics})
        self.trainer.save_metrics("all", {**metrics, **test_metrics}, combined=False)  # shows that the run is finished
        try:
            if self.trainer.args.push_to_hub:
                self.trainer.push_to_hub()
        finally:  # after the push: the predictions hold the test texts, which may not be public
            if is_main and predictions:
                write_json_lines(self.output_dir / PREDICTIONS_FILE, predictions)
        if is_main and not SAVING & self.values.keys():
            remove_checkpoints(self.output_dir)
        return test_metrics

    def _stop(self) -> NoReturn:
        self.leave_process_group()
        sys.exit(SIGTERM_CODE)

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
        args, training_args = self.args, self.trainer.args
        name = args.dataset_name
        is_local = name is not None and Path(name).exists()
        hub_datasets = [name] if name and not is_local else []
        paths = [name if is_local else None, args.train_file, args.validation_file, args.test_file]
        files = [Path(path).absolute().name for path in paths if path]
        counts = [
            f"{len(self.pairs[split]):,} of {split}"
            for split in ("train", "validation", "test")
            if isinstance(self.pairs.get(split), Dataset)
        ]
        # Without predict_with_generate it is that of a part of the validation pairs.
        reported = {name: value for name, value in metrics.items() if name != "eval_copy_mode_fraction"}
        scores = {
            split: {name.removeprefix(prefix): value for name, value in reported.items() if name.startswith(prefix)}
            for split, prefix in {"validation": "eval_", "test": "test_"}.items()
        }
        minutes = (self.trainer.run_record.get(SECONDS, 0.0) + metrics["train_runtime"]) / 60
        write_model_card(
            self.output_dir,
            self.model,
            self.tokenizer,
            title=self.trainer.hub_model_id if training_args.push_to_hub else None,
            language=args.language,
            license=args.license,
            datasets=hub_datasets,
            data=f"Pairs of texts from {', '.join([*hub_datasets, *files])}: "
            f"{', '.join(counts) or 'read as a stream'}.",
            training=f"{metrics['epoch']:g} epochs, {minutes:.1f} minutes, seed "
            f"{training_args.seed}; torch {torch.__version__}, transformers {transformers.__version__}.",
            command=command_line(self.values),
            scores=scores,
            signature=metric_signature(list(self.pairs["test"]["summary"])) if "test" in self.pairs else None,
        )
