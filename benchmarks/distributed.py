"""Compares data-parallel training in two processes with training in one.

    python benchmarks/distributed.py [--rounds 5] [--steps 25]

One CPU thread per process, the `Seq2SeqTrainer` of `copynet-hf train` under torchrun, the sizes of the synthetic task.
Writes its section of results/benchmarks.md: speed, and the difference between the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset, disable_progress_bars
from measure import format_table, write_section
from safetensors.torch import load_file
from training import SYNTHETIC, make_batch, make_config
from transformers import TrainerCallback, set_seed

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.model.tokenization_copynet import SPECIAL_TOKENS
from copynet_hf.training.defaults import build_training_arguments
from copynet_hf.training.trainer import make_trainer

BATCH = SYNTHETIC.batch
WARMUP = 5  # steps that are not timed
STEPS = 10  # before weights are compared
# Adam is invariant to the scale of gradients, so that only SGD shows whether two processes halve them.
OPTIMIZERS = {"SGD, learning rate 0.1": ("sgd", 0.1), "AdamW, learning rate 0.001": ("adamw_torch", 0.001)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25, help="timed steps of each round")
    parser.add_argument("--train", help=argparse.SUPPRESS)  # arguments of a process that this script starts
    args = parser.parse_args()
    if args.train:
        train_process(json.loads(args.train))
        os._exit(0)  # gloo's threads may abort an interpreter that shuts down (pytorch/pytorch#179291)
    with TemporaryDirectory() as folder:
        speed = _measure_speed(Path(folder), args.rounds, args.steps)
        difference = _measure_difference(Path(folder))
    text = (
        f"The synthetic task, {BATCH} pairs for each process in each step, one thread each, gloo; {args.rounds} "
        f"rounds of {args.steps} steps, after {WARMUP} that do not count.\n\n{speed}\n\n"
        f"The largest difference of any weight after {STEPS} steps between two processes with {BATCH} pairs each and "
        f"one with the same {2 * BATCH}, of which one half has short targets and the other long ones:\n\n{difference}"
    )
    write_section("Two processes", text)


def _measure_speed(folder: Path, rounds: int, steps: int) -> str:
    """Times one process and two in turns, so that slow moments of the machine affect both."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes, of_rounds in rates.items():
            run = run_training(folder / "speed", processes, max_steps=WARMUP + steps)
            seconds = json.loads((run / "seconds.json").read_text())[WARMUP:]
            of_rounds.append(processes * BATCH / statistics.median(seconds))
            print(f"{processes}: {of_rounds[-1]:.1f} pairs/s", flush=True)
    ratio = statistics.median(two / one for one, two in zip(rates[1], rates[2], strict=True))
    shown = [[number, f"{statistics.median(of_rounds):.0f}"] for number, of_rounds in rates.items()]
    return format_table(["processes", "pairs/s", "ratio"], [[*shown[0], "1.00"], [*shown[1], f"{ratio:.2f}"]])


def _measure_difference(folder: Path) -> str:
    """For each optimizer the largest difference of a weight, and the largest change of a weight by training."""
    start = load_weights(run_training(folder / "start", 1, max_steps=1, learning_rate=0.0))
    rows = []
    for name, (optim, rate) in OPTIMIZERS.items():
        arguments = {"optim": optim, "learning_rate": rate, "max_steps": STEPS, "ragged": True}
        two = load_weights(run_training(folder / "two", 2, **arguments))
        one = load_weights(run_training(folder / "one", 1, per_device_train_batch_size=2 * BATCH, **arguments))
        rows.append([name, f"{largest_difference(one, two):.1e}", f"{largest_difference(one, start):.1e}"])
        print(rows[-1], flush=True)
    return format_table(["optimizer", "difference", "way of the weight that moved most"], rows)


def load_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


def run_training(folder: Path, processes: int, **arguments: Any) -> Path:
    """Trains in this number of processes; `folder` gets the model and seconds.json, the time of each step."""
    arguments["output_dir"] = str(folder)
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    command = [sys.executable, *launch, __file__, "--train", json.dumps(arguments)]
    process = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{process.stdout}\n{process.stderr}")
    return folder


# ---- in each process


class Clock(TrainerCallback):
    """The seconds from the end of one step to the end of the next."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())

    def seconds(self) -> list[float]:
        return [end - start for start, end in zip(self.ends, self.ends[1:], strict=False)]


def train_process(arguments: dict[str, Any]) -> None:
    """Trains as one process of a run; the first process writes model and times."""
    defaults = {
        "per_device_train_batch_size": BATCH,
        "train_sampling_strategy": "sequential",  # so that two processes get the pairs of one with twice the batch
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    disable_progress_bars()
    torch.set_num_threads(1)
    pairs = Dataset.from_list(make_pairs(2 * BATCH * arguments["max_steps"], arguments.pop("ragged", False)))
    training = build_training_arguments(defaults | arguments, pairs, has_validation=False)
    set_seed(training.seed)
    config = make_config(SYNTHETIC)
    words = [*SPECIAL_TOKENS.values(), *(f"w{number}" for number in range(4, config.vocab_size))]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = CopyNetTokenizer(vocab, segmenter="whitespace", max_source_oov=config.max_source_oov)
    model = CopyNetForConditionalGeneration(config)
    trainer = make_trainer(model, tokenizer, {"train": pairs}, training)
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        (Path(str(training.output_dir)) / "seconds.json").write_text(json.dumps(clock.seconds()))


def make_pairs(number: int, ragged: bool) -> list[dict[str, str]]:
    """The rows of `make_batch` as texts; with `ragged`, every other batch has short targets."""
    batch = make_batch(replace(SYNTHETIC, batch=number, real=ragged))
    pairs = []
    for row, (source, target) in enumerate(zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True)):
        length = SYNTHETIC.target - 1  # without the end symbol
        if ragged:
            length = 1 + row % (length if row // BATCH % 2 else 4)
        pairs.append({"text": _join_words(source), "summary": _join_words(target[:length])})
    return pairs


def _join_words(numbers: list[int]) -> str:
    return " ".join(f"w{number}" for number in numbers if number)


if __name__ == "__main__":
    main()
