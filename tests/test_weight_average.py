"""The moving average of the weights: what is saved and evaluated, and that training itself goes on without it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import SIZES, write_requests
from safetensors.torch import load_file
from transformers import TrainerCallback

from copynet_hf.training.run import TrainingRun, train_from_arguments
from copynet_hf.training.trainer import CopyNetTrainer

DECAY = 0.7
STEPS = 8


class Recorder(TrainerCallback):
    """Copies the weights after each update."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.weights.append({name: weight.detach().clone() for name, weight in kwargs["model"].named_parameters()})

    def add_to(self, trainer: CopyNetTrainer) -> None:
        self.weights.append({name: weight.detach().clone() for name, weight in trainer.model.named_parameters()})
        trainer.add_callback(self)


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    files = write_requests(tmp_path_factory.mktemp("pairs"), train=32, validation=16)
    training = {"max_steps": STEPS, "learning_rate": 0.05, "warmup_steps": 0, "dropout": 0.1, "threads": 1}
    training |= {"max_target_length": 8, "disable_tqdm": True, "use_cpu": True}
    return {"train_file": files["train_file"], **SIZES, **training}


def train(arguments: dict[str, Any], folder: Path, **more: Any) -> list[dict[str, torch.Tensor]]:
    recorder = Recorder()
    train_from_arguments({**arguments, "output_dir": str(folder), **more}, change_trainer=recorder.add_to)
    return recorder.weights


@pytest.fixture(scope="module")
def averaged(
    arguments: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, torch.Tensor]]]:
    """The folder of a run with an average, and its weights after each update."""
    folder = tmp_path_factory.mktemp("averaged")
    return folder, train(arguments, folder, ema_decay=DECAY, save_steps=3, save_total_limit=3)


def average_by_hand(weights: list[dict[str, torch.Tensor]], name: str) -> torch.Tensor:
    """Σ_n c_n w_n, with the coefficients multiplied out."""
    decays = [min(DECAY, (1 + n) / (10 + n)) for n in range(1, len(weights))]
    total = weights[0][name].double()
    for decay in decays:
        total = total * decay
    for n, decay in enumerate(decays, start=1):
        coefficient = 1 - decay
        for later in decays[n:]:
            coefficient *= later
        total = total + coefficient * weights[n][name].double()
    return total


def test_the_saved_weights_are_the_average_and_training_goes_on_without_it(
    arguments: dict[str, Any], averaged: tuple[Path, list[dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    plain = train(arguments, tmp_path / "plain", ema_decay=0.0, save_strategy="no")
    folder, weights = averaged
    assert all(torch.equal(plain[-1][name], weights[-1][name]) for name in plain[-1])
    saved = load_file(folder / "model.safetensors")
    checkpoint = load_file(folder / "checkpoint-6" / "model.safetensors")
    for name in weights[0]:
        torch.testing.assert_close(saved[name].double(), average_by_hand(weights, name), rtol=0, atol=1e-6)
        torch.testing.assert_close(checkpoint[name].double(), average_by_hand(weights[:7], name), rtol=0, atol=1e-6)
    unaveraged = load_file(tmp_path / "plain" / "model.safetensors")
    assert all(torch.equal(unaveraged[name], plain[-1][name]) for name in plain[-1])


def test_evaluations_are_of_the_average(arguments: dict[str, Any], tmp_path: Path) -> None:
    files = {"validation_file": arguments["train_file"].replace("train.jsonl", "validation.jsonl")}
    options = {"ema_decay": DECAY, "eval_steps": STEPS, "save_steps": STEPS}
    train({**arguments, **files}, tmp_path / "run", **options)
    log = json.loads((tmp_path / "run" / "trainer_state.json").read_text())["log_history"]
    during = next(entry["eval_loss"] for entry in log if "eval_loss" in entry)
    after = json.loads((tmp_path / "run" / "eval_results.json").read_text())["eval_loss"]
    assert during == pytest.approx(after, abs=1e-6)
    train({**arguments, **files}, tmp_path / "plain", **{**options, "ema_decay": 0.0})
    plain = json.loads((tmp_path / "plain" / "eval_results.json").read_text())["eval_loss"]
    assert abs(plain - after) > 1e-3


def test_a_training_after_a_resumed_one_begins_with_the_weights_of_the_model(
    arguments: dict[str, Any], averaged: tuple[Path, list[dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    run = TrainingRun({**arguments, "output_dir": str(tmp_path), "ema_decay": DECAY, "save_steps": 3})
    run.set_up()
    run.trainer.train(resume_from_checkpoint=str(averaged[0] / "checkpoint-3"))
    first = Recorder()
    first.on_train_begin = lambda *_, **given: first.on_step_end(**given)  # type: ignore[method-assign]
    first.add_to(run.trainer)
    run.trainer.train()
    assert all(torch.equal(first.weights[0][name], first.weights[1][name]) for name in first.weights[0])


def test_the_average_is_saved_where_no_checkpoint_was_the_best(arguments: dict[str, Any], tmp_path: Path) -> None:
    files = {"validation_file": arguments["train_file"].replace("train.jsonl", "validation.jsonl")}
    options = {"eval_delay": 2 * STEPS, "load_best_model_at_end": True, "eval_steps": STEPS, "save_steps": STEPS}
    averaged = train({**arguments, **files}, tmp_path / "run", ema_decay=DECAY, **options)
    saved = load_file(tmp_path / "run" / "model.safetensors")
    for name in averaged[0]:
        torch.testing.assert_close(saved[name].double(), average_by_hand(averaged, name), rtol=0, atol=1e-6)


def test_a_resumed_run_continues_with_its_own_weights_and_average(
    arguments: dict[str, Any], averaged: tuple[Path, list[dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    folder, full = averaged
    checkpoint = str(folder / "checkpoint-3")
    resumed = train(arguments, tmp_path, ema_decay=DECAY, resume_from_checkpoint=checkpoint, save_steps=8)
    assert all(torch.equal(full[-1][name], resumed[-1][name]) for name in full[-1])
    expected, actual = (load_file(each / "model.safetensors") for each in (folder, tmp_path))
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_a_checkpoint_of_a_model_with_other_weights_is_not_resumed(
    arguments: dict[str, Any], averaged: tuple[Path, list[dict[str, torch.Tensor]]], tmp_path: Path
) -> None:
    checkpoint = shutil.copytree(averaged[0] / "checkpoint-3", tmp_path / "checkpoint-3")
    state = torch.load(checkpoint / "optimizer.pt")
    state["param_groups"][0]["params"].pop()  # as of a version whose models had a weight less
    torch.save(state, checkpoint / "optimizer.pt")
    with pytest.raises(ValueError, match="checkpoint-3 has other weights than the model of this run"):
        train(arguments, tmp_path / "run", ema_decay=DECAY, resume_from_checkpoint=str(checkpoint), save_steps=8)


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
@pytest.mark.parametrize("name", ["ema_decay", "vocabulary_dropout"])
def test_values_outside_the_range_are_refused(
    arguments: dict[str, Any], tmp_path: Path, name: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"--{name} is .*: use a number from 0"):
        train(arguments, tmp_path / "run", **{name: value})
    assert not (tmp_path / "run").exists()
