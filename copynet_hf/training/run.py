"""A training run, from arguments to a saved model with its card: what `copynet-hf train` does.

`train_from_arguments` calls in turn `read_training_pairs`, `build_tokenizer`, `build_model` and `make_trainer`, which
can be used on their own as well. `CopyNetTrainer` says in what it differs from Transformers' Trainer.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase, set_seed

from ..arguments import (
    CardArguments,
    DataArguments,
    ModelArguments,
    RunArguments,
    TokenizerArguments,
    build_dataclass,
    check_positive,
)
from ..evaluation.compute_metrics import spells_words
from ..evaluation.metrics import metric_signature
from ..evaluation.scoring import evaluate_pairs, write_predictions
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..saved.cards import command_line, write_model_card
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
from .encoder_training import cached_encoder_states, set_up_encoder
from .model_setup import build_model, read_settings, set_alignments, set_decoding
from .run_folder import check_output_dir, explain_save_errors, lock_output_dir
from .tokenizer_setup import build_tokenizer, first_sources
from .trainer import CopyNetTrainer, build_training_arguments, make_trainer, set_label_smoothing

logger = logging.getLogger(__name__)

PREDICTIONS_FILE = "test_predictions.jsonl"


@dataclass(frozen=True)
class Run:
    """A training run that is set up.

    Attributes:
        arguments: the arguments that were given, without defaults.
        data_args: the same with defaults, as far as they are about data.
        pairs: the splits `train` and, where given, `validation` and `test`.
        output_dir: the folder of the model.
        checkpoint: the checkpoint that the run resumes from, if any.
    """

    arguments: Mapping[str, Any]
    data_args: DataArguments
    pairs: Mapping[str, Pairs]
    tokenizer: PreTrainedTokenizerBase
    model: CopyNetForConditionalGeneration
    trainer: CopyNetTrainer
    output_dir: Path
    checkpoint: str | None


def train_from_arguments(
    arguments: Mapping[str, Any], change_trainer: Callable[[CopyNetTrainer], None] | None = None
) -> dict[str, float]:
    """Trains, evaluates and saves a model, from arguments as `parse_arguments` returns them; returns the metrics.

    With `dry_run` describes the run, measures a few updates, writes nothing and returns no metrics. Otherwise
    writes model, tokenizer, generation config, card, trainer state and train_results.json to `output_dir`; with
    validation pairs also eval_results.json, with test pairs test_results.json and test_predictions.jsonl.

    Args:
        change_trainer: is called with the Trainer before it trains, to add callbacks for example.

    Raises:
        ValueError: arguments or data that cannot be used, and nothing has been written; or the memory is full.
        OSError: model or checkpoint could not be saved; earlier checkpoints are whole.
        SystemExit: with code 143, after SIGTERM, once a checkpoint is saved.
    """
    run_args = build_dataclass(RunArguments, arguments)
    if run_args.dry_run:
        with tempfile.TemporaryDirectory() as temporary, explain_memory_errors():
            _measure(arguments, run_args, Path(temporary))
        return {}
    output_dir = arguments.get("output_dir")
    checkpoint = find_resume_checkpoint(arguments.get("resume_from_checkpoint"), Path(output_dir or ""))
    folder = check_output_dir(output_dir, run_args.overwrite_output_dir, checkpoint)
    with lock_output_dir(folder), explain_memory_errors():
        run = _set_up_run(arguments, run_args, folder, checkpoint)
        if change_trainer is not None:
            change_trainer(run.trainer)
        metrics = _train(run)
        metrics |= _finish(run, metrics)
        if run.trainer.args.world_size > 1:
            _leave_process_group(run)
    return metrics


def _measure(arguments: Mapping[str, Any], run_args: RunArguments, folder: Path) -> None:
    """Describes the run and measures its first updates."""
    changes = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    changes |= {"push_to_hub": False, "report_to": "none"}  # the Trainer would create a repository, and a run
    run = _set_up_run({**arguments, **changes, "output_dir": str(folder)}, run_args, folder, None)
    _log_plan(run)
    run.trainer.add_callback(TimeEstimate(is_dry_run=True))
    with redirect_stdout(StringIO()):  # the Trainer prints its metrics
        run.trainer.train()


def _set_up_run(arguments: Mapping[str, Any], run_args: RunArguments, output_dir: Path, checkpoint: str | None) -> Run:
    """Checks the arguments, reads the pairs, and builds tokenizer, model and Trainer."""
    data_args = build_dataclass(DataArguments, arguments)
    tokenizer_args = build_dataclass(TokenizerArguments, arguments)
    model_args = build_dataclass(ModelArguments, arguments)
    _check_values(data_args, tokenizer_args, model_args, run_args)
    if run_args.threads is not None:
        torch.set_num_threads(run_args.threads)
    pairs = read_training_pairs(data_args)
    training_args = build_training_arguments(arguments, pairs["train"], "validation" in pairs)
    patience = 0 if run_args.dry_run else run_args.early_stopping_patience
    if patience and not training_args.load_best_model_at_end:
        reason = "there are no validation pairs: give --validation_file"
        if "validation" in pairs:
            reason = "no best checkpoint is kept: leave out --eval_strategy, --save_strategy, --load_best_model_at_end"
        raise ValueError(f"--early_stopping_patience is {patience}, but {reason}")
    set_seed(training_args.seed)
    record = make_run_record(pairs["train"], tokenizer_args, run_args.freeze_encoder)
    earlier_seconds = 0.0
    if checkpoint is not None:
        earlier_seconds = read_trained_seconds(checkpoint)
        check_unfinished(checkpoint, training_args)
        check_run_record(checkpoint, record, arguments)
    tokenizer = build_tokenizer(pairs, tokenizer_args, model_args, data_args, checkpoint)
    model = build_model(tokenizer, model_args, arguments, checkpoint)
    encoder_learning_rate = set_up_encoder(
        model, run_args, training_args, has_learning_rate="learning_rate" in arguments
    )
    set_label_smoothing(
        training_args,
        model.config,
        is_given="label_smoothing_factor" in arguments,
        is_spelled=spells_words(getattr(tokenizer, "segmenter", None), first_sources(pairs["train"])),
    )
    is_new = checkpoint is None and model_args.model_name_or_path is None
    if not is_new:  # what is not given stays as the model has it
        settings = read_settings(model, tokenizer) | dict(arguments)
        data_args, model_args = build_dataclass(DataArguments, settings), build_dataclass(ModelArguments, settings)
    tokenizer.model_max_length = data_args.max_source_length
    set_decoding(model, model_args.num_beams, model_args.forbid_unk, data_args.max_target_length)
    trainer = make_trainer(
        model,
        tokenizer,
        pairs,
        training_args,
        data_args,
        patience,
        run_record=record,
        vocabulary_dropout=run_args.vocabulary_dropout if model.config.copies else 0.0,
        ema_decay=run_args.ema_decay,
        earlier_seconds=earlier_seconds,
        encoder_learning_rate=encoder_learning_rate,
    )
    if is_new:
        set_alignments(model, trainer.train_dataset)
    if run_args.max_minutes is not None:
        trainer.add_callback(TimeLimit(run_args.max_minutes))
    return Run(arguments, data_args, pairs, tokenizer, model, trainer, output_dir, checkpoint)


def _check_values(
    data_args: DataArguments, tokenizer_args: TokenizerArguments, model_args: ModelArguments, run_args: RunArguments
) -> None:
    """Raises ValueError for a number out of its range."""
    check_positive(data_args, "max_source_length", "max_target_length", "max_train_samples", "max_eval_samples")
    check_positive(data_args, "preprocessing_num_workers")
    check_positive(tokenizer_args, "vocab_size", "min_frequency")
    check_positive(model_args, "num_beams")
    check_positive(run_args, "threads")
    if run_args.early_stopping_patience < 0:
        raise ValueError(f"--early_stopping_patience is {run_args.early_stopping_patience}: give 0 or more")
    for name in ("vocabulary_dropout", "ema_decay"):
        value = getattr(run_args, name)
        if not 0 <= value < 1:
            raise ValueError(f"--{name} is {value:g}: give a number from 0, which turns it off, to below 1")
    if run_args.max_minutes is not None and run_args.max_minutes <= 0:
        raise ValueError(f"--max_minutes is {run_args.max_minutes:g}: give more than 0")


def _train(run: Run) -> dict[str, Any]:
    """Trains and saves the model, evaluates it on the validation pairs, and returns the metrics of both."""
    trainer = run.trainer
    _log_plan(run)
    trainer.add_callback(TimeEstimate())
    run_args = build_dataclass(RunArguments, run.arguments)
    trainer.accelerator.wait_for_everyone()  # until all processes have loaded what may be deleted here
    if trainer.is_world_process_zero():
        if run_args.overwrite_output_dir and not is_checkpoint_in(run.output_dir, run.checkpoint):
            remove_earlier_run(run.output_dir)
        (run.output_dir / PREDICTIONS_FILE).unlink(missing_ok=True)  # of the model that is overwritten
    sigterm = SigtermCheckpoint()
    trainer.add_callback(sigterm)  # after the callbacks whose decisions it overrules
    with cached_encoder_states(run.model, run.output_dir) if run_args.cache_encoder_states else nullcontext():
        metrics: dict[str, Any] = trainer.train(resume_from_checkpoint=run.checkpoint).metrics
    if sigterm.is_received:
        _exit_after_sigterm(run)
    with explain_save_errors(run.output_dir):
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


def _log_plan(run: Run) -> None:
    """Logs what is trained on what, and what looks wrong with the data."""
    trainer, model = run.trainer, run.model
    encoded: dict[str, Any] = {"train": trainer.train_dataset, "validation": trainer.eval_dataset}
    for split in ("validation", "train"):
        if encoded[split] is not None:
            words = describe_words(encoded[split], len(run.tokenizer), run.tokenizer.unk_token_id)
            logger.info("%s pairs: %s", "training" if split == "train" else split, words)
            break
    num_features = len(getattr(run.tokenizer, "feature_vocab", ()))
    logger.info(
        "model: %s, %s parameters, a vocabulary of %s words (segmenter %s), %s%s slots for others",
        model.config.copy_mechanism,
        f"{model.num_parameters():,}",
        f"{len(run.tokenizer):,}",
        getattr(run.tokenizer, "segmenter", "of its own"),
        f"{num_features} features, " if num_features else "",
        model.config.max_source_oov,
    )
    num_pairs = None if isinstance(run.pairs["train"], IterableDataset) else len(run.pairs["train"])
    logger.info("training: %s", describe_training(num_pairs, trainer.args, trainer.eval_dataset is not None))
    for warning in find_warnings(run.pairs, encoded["train"], run.data_args):
        logger.warning("warning: %s", warning)


def _exit_after_sigterm(run: Run) -> NoReturn:
    logger.info("stopped by SIGTERM: continue with --resume_from_checkpoint auto")
    if run.trainer.args.world_size > 1:
        _leave_process_group(run)
    sys.exit(128 + signal.SIGTERM)


def _finish(run: Run, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluates the model on the test pairs, writes its card and pushes it; returns the test metrics.

    Args:
        metrics: of training and validation, for the card.
    """
    is_main = run.trainer.is_world_process_zero()
    test_metrics: dict[str, Any] = {}
    predictions: list[dict[str, Any]] = []
    if "test" in run.pairs:
        scores, predictions = evaluate_pairs(run.model, run.tokenizer, run.pairs["test"])
        test_metrics = {f"test_{name}": value for name, value in scores.items()}
        run.trainer.save_metrics("test", test_metrics)
    if is_main:
        _write_card(run, {**metrics, **test_metrics})
    try:
        if run.trainer.args.push_to_hub:
            run.trainer.push_to_hub()
    finally:  # after the push: the predictions hold the test texts, which may not be public
        if is_main and predictions:
            write_predictions(run.output_dir / PREDICTIONS_FILE, predictions)
    return test_metrics


def _leave_process_group(run: Run) -> None:
    """Ends the process group of a distributed training, once all processes have finished."""
    run.trainer.accelerator.wait_for_everyone()  # torchrun stops processes that still save when another one fails
    # DDP's reducer must not hold the last reference to the group: it is freed under the GIL, for which the group's
    # thread, joined by its destructor, may be waiting.
    run.trainer.model_wrapped = run.model
    run.trainer.accelerator.free_memory()
    run.trainer.accelerator.end_training()


def _write_card(run: Run, metrics: Mapping[str, Any]) -> None:
    data_args, card_args = run.data_args, build_dataclass(CardArguments, run.arguments)
    name = data_args.dataset_name
    is_local = name is not None and Path(name).exists()
    hub_datasets = [name] if name and not is_local else []
    paths = [name if is_local else None, data_args.train_file, data_args.validation_file, data_args.test_file]
    files = [Path(path).absolute().name for path in paths if path]
    counts = [
        f"{len(run.pairs[split]):,} of {split}"
        for split in ("train", "validation", "test")
        if split in run.pairs and not isinstance(run.pairs[split], IterableDataset)
    ]
    # `CopyStatistics` computes it from a part of the validation pairs.
    reported = {name: value for name, value in metrics.items() if name != "eval_copy_mode_fraction"}
    scores = {
        split: {name.removeprefix(prefix): value for name, value in reported.items() if name.startswith(prefix)}
        for split, prefix in {"validation": "eval_", "test": "test_"}.items()
    }
    training_args = run.trainer.args
    minutes = (run.trainer.earlier_seconds + metrics["train_runtime"]) / 60
    write_model_card(
        str(training_args.output_dir),
        run.model,
        run.tokenizer,
        title=run.trainer.hub_model_id if training_args.push_to_hub else None,
        language=card_args.language,
        license=card_args.license,
        datasets=hub_datasets,
        data=f"Pairs of texts from {', '.join([*hub_datasets, *files])}: {', '.join(counts) or 'read as a stream'}.",
        training=f"{metrics['epoch']:g} epochs, {minutes:.1f} minutes, seed "
        f"{training_args.seed}; torch {torch.__version__}, transformers {transformers.__version__}.",
        command=command_line(run.arguments),
        scores=scores,
        signature=metric_signature(list(run.pairs["test"]["summary"])) if "test" in run.pairs else None,
    )
