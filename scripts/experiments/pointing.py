"""Pointer Networks (Vinyals, Fortunato, Jaitly 2015) that learn to answer with indices of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import Seq2SeqTrainer, set_seed

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.inference.loading import load_copynet
from copynet_hf.training.callbacks import StopAfter
from copynet_hf.training.model_setup import config_fields
from copynet_hf.training.run_folder import resume_point
from copynet_hf.training.trainer import training_arguments

from .points import FIRST_POINT, Collator, answers, hull_rows, tour_rows
from .runs import Row, Settings, kept, trained

TASKS: dict[str, Callable[[int, tuple[int, int], int], list[Row]]] = {"hull": hull_rows, "tour": tour_rows}
# Ours are GRUs, the encoder bidirectional; the paper: LSTM 256 or 512, SGD with rate 1, batch 128, 1M examples.
TRAINING: dict[str, Any] = {
    "embedding_size": 128,
    "hidden_size": 256,
    "encoder_hidden_size": 128,
    "attention_size": 256,
    "dropout": 0.0,
    "num_train_epochs": 4,
    "per_device_train_batch_size": 128,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "warmup_steps": 200,
    "max_grad_norm": 2.0,  # theirs
    "bf16": False,  # which tells points apart by three digits
}
POINTER = (
    "It is a Pointer Network (Vinyals, Fortunato, Jaitly, [2015](https://arxiv.org/abs/1506.03134)) with GRUs: it "
    "writes positions of its input."
)
USE = """import torch

from copynet_hf import CopyNetForConditionalGeneration

model = CopyNetForConditionalGeneration.from_pretrained("{folder}")
points = {source}
ids = model.generate(input_features=torch.tensor([points]), num_beams=4, max_new_tokens=20)[0].tolist()
print([index - 4 for index in ids if index >= 4])  # 4 is the id of the first point
"""
TEST_SEED = 1_000_000  # apart from any seed of a training


def pointer(name: str, model: str, plan: dict[str, Any], settings: Settings) -> tuple[Path, dict[str, Any]]:
    """The folder of a model of the experiment `name`, trained if it was not, and how."""
    folder = settings.folder(model)
    seed = f" --seed {settings.seed}" if settings.seed else ""
    command = f"python scripts/reproduce.py {name} --models {model!r}{seed}"
    if settings.max_samples is not None:
        plan = {**plan, "examples": settings.max_samples}
    return folder, trained(folder, TRAINING | plan, settings, train=train_pointer, command=command)


def train_pointer(said: Mapping[str, Any]) -> dict[str, float]:
    """Makes examples and learns from them: `said` holds task, examples, sizes, slots, and fields of the config and of
    the Trainer's arguments."""
    torch.set_num_threads(said["threads"])
    set_seed(said["seed"])
    rows = TASKS[said["task"]](said["examples"], tuple(said["sizes"]), said["seed"])
    config = CopyNetConfig(
        vocab_size=FIRST_POINT,
        copy_mechanism="pointer",
        num_features=2,
        max_source_oov=said["slots"],
        **config_fields(said),
    )
    data = Dataset.from_list([{**row, "length": len(row["points"])} for row in rows])
    more = {"remove_unused_columns": False, "logging_steps": 100}
    trainer = Seq2SeqTrainer(
        model=CopyNetForConditionalGeneration(config),
        args=training_arguments({**said, **more}, data, validated=False),
        train_dataset=data,
        data_collator=Collator(),
        callbacks=[StopAfter(said["max_minutes"])] if said.get("max_minutes") else None,
    )
    resumed = resume_point(said.get("resume_from_checkpoint"), Path(said["output_dir"]))
    figures = trainer.train(resume_from_checkpoint=resumed).metrics
    trainer.save_model()
    trainer.save_state()
    return figures


def answered(folder: Path, name: str, rows: Sequence[Row], settings: Settings, **options: Any) -> list[list[int]]:
    """What the model says to the points of each row; kept, and not searched twice."""

    def search() -> list[list[int]]:
        torch.set_num_threads(settings.threads)
        model = load_copynet(str(folder)).eval()
        return answers(model.generate, rows, 256, **options)

    return kept(folder, name, [list(rows), options], search)


def shown(rows: Sequence[Row], said: Sequence[Sequence[int]]) -> list[Row]:
    """The first example, for the card."""
    return [{"text": rows[0]["points"], "prediction": said[0]}]
