"""The worker process of peers.py that runs this package."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch
from peer_turns import StepTurns, connect
from transformers import TrainerCallback

from copynet_hf import load_pairs
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.saved.loading import load_model
from copynet_hf.training.run import train_from_arguments


def take_steps(connection: Connection, arguments: dict[str, Any], steps: int) -> None:
    """Trains in the Trainer of `copynet-hf train`, in turns of `steps` updates."""
    turns = StepTurns(connection, steps)
    trainers = []

    class Turns(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            turns.begin_step()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            turns.end_step()

    def add_turns(trainer: Any) -> None:
        trainer.add_callback(Turns())
        trainers.append(trainer)

    train_from_arguments(arguments, add_turns)
    turns.report(parameters=trainers[0].model.num_parameters())


def predict(connection: Connection, model: str, batch_size: int) -> None:
    """Replies to requests (file, beams) with the outputs for the file's rows, until the request is None."""
    copynet, tokenizer = load_model(model)
    while (request := connection.recv()) is not None:
        file, beams = request
        rows = load_pairs(test_file=file, features_column="features")["test"]
        outputs = predict_in_batches(
            copynet,
            tokenizer,
            list(rows["text"]),
            features=list(rows["features"]),
            batch_size=batch_size,
            num_beams=beams,
        )
        connection.send([best.text for best, *_ in outputs])


if __name__ == "__main__":
    torch.set_num_threads(1)
    parent = connect()
    task, options = parent.recv()
    {"take_steps": take_steps, "predict": predict}[task](parent, **options)
