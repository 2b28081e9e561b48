"""Pointer Networks (Vinyals, Fortunato, Jaitly 2015): training and search over sources that are points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import Seq2SeqTrainer, set_seed

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.arguments import ModelArguments, build_arguments
from copynet_hf.saved.loading import load_copynet
from copynet_hf.training.callbacks import TimeLimit
from copynet_hf.training.checkpoints import find_resume_checkpoint
from copynet_hf.training.defaults import build_training_arguments
from copynet_hf.training.presets import select_config_fields

from ..data.points import Points, make_hull_rows, make_tour_rows
from ..data.rows import Row
from .results_file import ResultsFile
from .settings import Settings, format_command, read_training
from .trained_models import load_or_compute, train_once

TASKS: dict[str, Callable[[int, tuple[int, int], int], list[Row]]] = {"hull": make_hull_rows, "tour": make_tour_rows}
TRAINING = read_training("pointer_networks")
TEST_SEED = 1_000_000  # no seed of a training comes near it
BATCH_SIZE = 256
END, FIRST_POINT = 2, 4  # ids: 0 to 3 are padding, start, end and UNK; 4 is point 0


def compare_pointer_networks(
    results: ResultsFile,
    name: str,
    plans: Mapping[str, Mapping[str, Any]],
    tests: Mapping[str, Sequence[Row]],
    settings: Settings,
    *,
    search_options: Callable[[Sequence[Row]], dict[str, Any]],
    score: Callable[[Sequence[Sequence[int]], Sequence[Row]], dict[str, float]],
) -> None:
    """Trains the models of an experiment, scores them, and adds them to the results.

    Args:
        name: of the experiment, for the stored command.
        plans: arguments of `train_pointer_network`, by model.
        tests: rows of each data set.
        search_options: options of `generate`, for the rows of a data set.
        score: computes scores from the outputs and the rows.
    """
    for model, plan in plans.items():
        if not settings.includes(model):
            continue
        folder = settings.seed_folder(model)
        command = format_command(name, model, settings.seed)
        examples = {} if settings.max_samples is None else {"examples": settings.max_samples}
        arguments = {**TRAINING, **plan, **examples}
        training_record = train_once(folder, arguments, settings, train=train_pointer_network, command=command)
        for data, rows in tests.items():
            outputs = search_once(folder, data, rows, settings, **search_options(rows))
            first = {"text": rows[0]["points"], "prediction": outputs[0]}  # the example of the model card
            results.add_run(data, model, score(outputs, rows), training_record, [first])


def train_pointer_network(arguments: Mapping[str, Any]) -> dict[str, float]:
    """Makes examples and trains on them.

    Args:
        arguments: task, examples, sizes, slots, and fields of the config and of the Trainer's arguments.
    """
    torch.set_num_threads(arguments["threads"])
    set_seed(arguments["seed"])
    rows = TASKS[arguments["task"]](arguments["examples"], tuple(arguments["sizes"]), arguments["seed"])
    config = CopyNetConfig(
        vocab_size=FIRST_POINT,
        copy_mechanism="pointer",
        num_features=2,
        max_source_oov=arguments["slots"],
        **select_config_fields(build_arguments(ModelArguments, arguments)),
    )
    data = Dataset.from_list([{**row, "length": len(row["points"])} for row in rows])
    fixed = {"remove_unused_columns": False, "logging_steps": 100}
    trainer = Seq2SeqTrainer(
        model=CopyNetForConditionalGeneration(config),
        args=build_training_arguments({**arguments, **fixed}, data, has_validation=False),
        train_dataset=data,
        data_collator=PointCollator(),
        callbacks=[TimeLimit(arguments["max_minutes"])] if arguments.get("max_minutes") else None,
    )
    checkpoint = find_resume_checkpoint(arguments.get("resume_from_checkpoint"), Path(arguments["output_dir"]))
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    trainer.save_model()
    trainer.save_state()
    return metrics


def search_once(folder: Path, name: str, rows: Sequence[Row], settings: Settings, **options: Any) -> list[list[int]]:
    """The indices that the folder's model generates for each row, stored as NAME.json and reused."""

    def search() -> list[list[int]]:
        torch.set_num_threads(settings.threads)
        model = load_copynet(str(folder)).eval()
        return generate_indices(model.generate, rows, BATCH_SIZE, **options)

    return load_or_compute(folder, name, [list(rows), options], search)


def generate_indices(
    generate: Callable[..., Tensor], rows: Sequence[Row], batch_size: int, **options: Any
) -> list[list[int]]:
    """The indices of points that a model generates for each row, batched by the number of points."""
    indices: dict[int, list[int]] = {}
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["points"]))
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        sources = collate_points([rows[row]["points"] for row in batch])
        for row, ids in zip(batch, generate(**sources, **options).tolist(), strict=True):
            indices[row] = [index - FIRST_POINT for index in ids if index >= FIRST_POINT]
    return [indices[row] for row in range(len(rows))]


class PointCollator:
    """Batches rows: `input_features` (B, n, 2), `attention_mask` (B, n) and `labels` (B, T)."""

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        labels = [torch.tensor([FIRST_POINT + index for index in row["answer"]] + [END]) for row in rows]
        return collate_points([row["points"] for row in rows]) | {
            "labels": pad_sequence(labels, batch_first=True, padding_value=-100)
        }


def collate_points(sources: Sequence[Points]) -> dict[str, Tensor]:
    """Pads the sources: `input_features` (B, n, 2) and `attention_mask` (B, n)."""
    features = [torch.tensor(points, dtype=torch.float32) for points in sources]
    mask = [torch.ones(len(points), dtype=torch.long) for points in sources]
    return {
        "input_features": pad_sequence(features, batch_first=True),
        "attention_mask": pad_sequence(mask, batch_first=True),
    }
