"""Training with two processes, which share the pairs of every step, beside training with one.

    python benchmarks/distributed.py [--rounds 5] [--steps 25]

One thread each, on the CPU, by the `Seq2SeqTrainer` of `copynet-hf train` under torchrun, with the sizes of the
synthetic task. Writes its section of results/benchmarks.md: speed, and whether the weights come out the same.
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
from measure import table, write_section
from safetensors.torch import load_file
from training import SYNTHETIC, copynet_config, make_batch
from transformers import TrainerCallback, set_seed

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.arguments import DataArguments
from copynet_hf.model.tokenization_copynet import SPECIAL_TOKENS
from copynet_hf.training.trainer import make_trainer, training_arguments

BATCH = SYNTHETIC.batch
WARMUP = 5  # steps that are not counted
STEPS = 10  # after which weights are compared
# Adam divides a gradient by its size, so that it alone would not tell when two processes made it half as large.
OPTIMIZERS = {"SGD, learning rate 0.1": ("sgd", 0.1), "AdamW, learning rate 0.001": ("adamw_torch", 0.001)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25, help="steps that are timed, in each round")
    parser.add_argument("--train", help=argparse.SUPPRESS)  # the arguments of one process, which this file starts
    args = parser.parse_args()
    if args.train:
        train(json.loads(args.train))
        os._exit(0)  # gloo's threads may abort an interpreter that shuts down (pytorch/pytorch#179291)
    with TemporaryDirectory() as folder:
        speed = _speed(Path(folder), args.rounds, args.steps)
        difference = _difference(Path(folder))
    text = (
        f"The synthetic task, {BATCH} pairs for each process in each step, one thread each, gloo; {args.rounds} "
        f"rounds of {args.steps} steps, after {WARMUP} that do not count.\n\n{speed}\n\n"
        f"The largest difference of any weight after {STEPS} steps between two processes with {BATCH} pairs each and "
        f"one with the same {2 * BATCH}, of which one half has short targets and the other long ones:\n\n{difference}"
    )
    write_section("Two processes", text)


def _speed(folder: Path, rounds: int, steps: int) -> str:
    """One process and two in turns, so that a slow moment of the machine hits both."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(rounds):
        for processes, seen in rates.items():
            run = run_training(folder / "speed", processes, max_steps=WARMUP + steps)
            seconds = json.loads((run / "seconds.json").read_text())[WARMUP:]
            seen.append(processes * BATCH / statistics.median(seconds))
            print(f"{processes}: {seen[-1]:.1f} pairs/s", flush=True)
    ratio = statistics.median(two / one for one, two in zip(rates[1], rates[2], strict=True))
    shown = [[number, f"{statistics.median(seen):.0f}"] for number, seen in rates.items()]
    return table(["processes", "pairs/s", "ratio"], [[*shown[0], "1.00"], [*shown[1], f"{ratio:.2f}"]])


def _difference(folder: Path) -> str:
    """The largest difference of a weight for each optimizer, and how far training moved a weight at most."""
    start = weights(run_training(folder / "start", 1, max_steps=1, learning_rate=0.0))
    rows = []
    for name, (optim, rate) in OPTIMIZERS.items():
        same = {"optim": optim, "learning_rate": rate, "max_steps": STEPS, "ragged": True}
        two = weights(run_training(folder / "two", 2, **same))
        one = weights(run_training(folder / "one", 1, per_device_train_batch_size=2 * BATCH, **same))
        rows.append([name, f"{largest(one, two):.1e}", f"{largest(one, start):.1e}"])
        print(rows[-1], flush=True)
    return table(["optimizer", "difference", "way of the weight that moved most"], rows)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def largest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in one)


def run_training(folder: Path, processes: int, **said: Any) -> Path:
    """Trains in so many processes; afterwards `folder` holds the model and seconds.json."""
    said["output_dir"] = str(folder)
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    command = [sys.executable, *launch, __file__, "--train", json.dumps(said)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
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


def train(said: dict[str, Any]) -> None:
    """One process's part of a run; the first process writes what comes of it."""
    defaults = {
        "per_device_train_batch_size": BATCH,
        "train_sampling_strategy": "sequential",  # so that two processes see the pairs of one with twice the batch
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    disable_progress_bars()
    torch.set_num_threads(1)
    pairs = Dataset.from_list(rule_pairs(2 * BATCH * said["max_steps"], said.pop("ragged", False)))
    training = training_arguments(defaults | said, pairs, validated=False)
    set_seed(training.seed)
    config = copynet_config(SYNTHETIC)
    words = [*SPECIAL_TOKENS.values(), *(f"w{number}" for number in range(4, config.vocab_size))]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = CopyNetTokenizer(vocab, segmenter="whitespace", max_source_oov=config.max_source_oov)
    model = CopyNetForConditionalGeneration(config)
    trainer = make_trainer(model, tokenizer, {"train": pairs}, training, DataArguments())
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        (Path(str(training.output_dir)) / "seconds.json").write_text(json.dumps(clock.seconds()))


def rule_pairs(number: int, ragged: bool) -> list[dict[str, str]]:
    """The batch of the benchmark of training, as texts; `ragged` gives every other batch short targets."""
    batch = make_batch(replace(SYNTHETIC, batch=number, real=ragged))
    pairs = []
    for row, (source, target) in enumerate(zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True)):
        length = SYNTHETIC.target - 1  # and the end symbol
        if ragged:
            length = 1 + row % (length if row // BATCH % 2 else 4)
        pairs.append({"text": _text(source), "summary": _text(target[:length])})
    return pairs


def _text(numbers: list[int]) -> str:
    return " ".join(f"w{number}" for number in numbers if number)


if __name__ == "__main__":
    main()
