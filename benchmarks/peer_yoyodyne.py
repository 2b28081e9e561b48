"""The worker process of peers.py that runs yoyodyne, in the environment that peers.py has made for it."""

from __future__ import annotations

import csv
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from peer_turns import StepTurns, connect
from torch.utils.data import DataLoader
from yoyodyne import callbacks, data, models, trainers
from yoyodyne.cli.main import YoyodyneCLI


class DataInOrder(data.DataModule):
    """Its training batches in the order of the file."""

    def train_dataloader(self) -> DataLoader:
        loader = super().train_dataloader()
        return DataLoader(
            loader.dataset,
            batch_size=loader.batch_size,
            collate_fn=loader.collate_fn,
            num_workers=loader.num_workers,
            persistent_workers=loader.persistent_workers,
        )


def build(config: str) -> YoyodyneCLI:
    """Model, data and Trainer as `yoyodyne fit --config` builds them."""
    return YoyodyneCLI(
        models.BaseModel,
        DataInOrder,
        parser_kwargs={"parser_mode": "omegaconf"},
        save_config_callback=None,
        subclass_mode_model=True,
        trainer_class=trainers.Trainer,
        args=["--config", config],
        run=False,
    )


def take_steps(connection: Connection, config: str, steps: int) -> None:
    """Trains in yoyodyne's Trainer, in turns of `steps` updates."""
    turns = StepTurns(connection, steps)

    class Turns(Callback):
        def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
            turns.begin_step()

        def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
            turns.end_step()

    parts = build(config)
    parts.trainer.callbacks.append(Turns())
    parts.trainer.fit(parts.model, parts.datamodule)
    turns.report(parameters=parts.model.num_parameters)


def predict(connection: Connection, config: str, checkpoint: str, batch_size: int) -> None:
    """Replies to requests (file, beams) with the outputs for the file's rows, until the request is None."""
    parts = build(config)
    parts.model.load_state_dict(torch.load(checkpoint, weights_only=False)["state_dict"])
    (writer,) = (each for each in parts.trainer.callbacks if isinstance(each, callbacks.PredictionWriter))
    trained = parts.datamodule
    with tempfile.TemporaryDirectory() as folder:
        writer.path = str(Path(folder) / "predictions.tsv")
        while (request := connection.recv()) is not None:
            file, parts.model.beam_width = request
            # Without the column of the targets.
            columns = {"features_col": trained.parser.features_col, "target_col": 0}
            rows = data.DataModule(model_dir=trained.model_dir, predict=file, batch_size=batch_size, **columns)
            parts.trainer.predict(parts.model, rows)
            connection.send(read_predictions(writer.path, parts.model.beam_width))


def read_predictions(path: str, beams: int) -> list[str]:
    """The best output of each line, as yoyodyne writes them: a table of outputs and scores if there are beams."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        if beams == 1:
            return file.read().split("\n")[:-1]
        return [row[0] for row in csv.reader(file, delimiter="\t")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    parent = connect()
    task, options = parent.recv()
    {"take_steps": take_steps, "predict": predict}[task](parent, **options)
