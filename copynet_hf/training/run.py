"""From pairs of texts to a trained model: what `copynet-hf train` does, as functions.

Each step stands alone: `build_tokenizer`, `build_model`, `encode_pairs`, `make_trainer`; `train_from_arguments` calls
them in turn. Nothing of the Trainer is replaced but its card.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import IterableDataset
from transformers import (
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    set_seed,
)

from ..arguments import (
    CardArguments,
    DataArguments,
    ModelArguments,
    RunArguments,
    TokenizerArguments,
    check_positive,
    pick,
)
from ..evaluation.cards import command_line, write_model_card
from ..evaluation.metrics import metric_signature
from ..evaluation.scoring import evaluate_pairs, write_predictions
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from .callbacks import StopAfter
from .dataset import Pairs, read_training_pairs
from .model_setup import build_model, set_alignments, set_decoding
from .run_folder import checked_output_dir, remove_checkpoints, resume_point
from .tokenizer_setup import build_tokenizer
from .trainer import check_smoothing, make_trainer, training_arguments

logger = logging.getLogger(__name__)

PREDICTIONS = "test_predictions.jsonl"


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
