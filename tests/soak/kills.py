"""Trainings killed at random moments and resumed: the final weights are those of the uninterrupted training.

python tests/soak/kills.py --rounds 50                  # one process
python tests/soak/kills.py --rounds 10 --processes 2    # torchrun, of whose processes one is killed
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import (
    ROOT,
    Check,
    has_ended,
    kill_and_wait,
    last_line,
    parse_arguments,
    start_forked,
    temporary_folder,
    wait_until_ended,
)

import torch  # isort: skip - after harness, which sets the number of threads
from safetensors.torch import load_file

import copynet_hf.training.run  # noqa: F401 - imported once, so that the forked trainings start at once
from copynet_hf.cli import main as run_command

WHAT = {
    1: """`copynet-hf train` with dropout, averaged weights and label smoothing, and an evaluation and a checkpoint
every 3 steps, is killed by SIGKILL: half of the times at a random moment, the other half up to 20 ms after the folder
of a checkpoint has appeared, when the checkpoint may be incomplete; the table says how often it was. The training is
continued by `--resume_from_checkpoint auto`, and every third run is killed a second time unless it ends before. The
weights must be bit for bit those of the uninterrupted training.""",
    2: """The same as “kills”, for one epoch in random order, under `torchrun --nproc_per_node 2`: SIGKILL ends one of
the two processes, torchrun the other.""",
}
SAVE_STEPS, TIME_LIMIT = 3, 240

# The command in a process that exits without shutting down the interpreter, in which gloo's threads sometimes abort
# (pytorch/pytorch#179291).
RANK = """
import os, sys
from copynet_hf.cli import main
code = main(sys.argv[1:])
sys.stdout.flush(), sys.stderr.flush()
os._exit(code)
"""


def write_pairs(file: Path, count: int) -> None:
    """Pairs whose summaries hold unseen words of their texts."""
    draw = random.Random(0)
    with file.open("w", encoding="utf-8") as lines:
        for row in range(count):
            words = [f"w{draw.randrange(20)}" for _ in range(draw.randint(2, 12))] + [f"new{row}"]
            draw.shuffle(words)
            lines.write(json.dumps({"text": " ".join(words), "summary": " ".join(words[:3])}) + "\n")


def training_command(train_file: Path, folder: Path, epochs: int, sampling: str) -> list[str]:
    arguments = {
        "train_file": train_file,
        "output_dir": folder,
        "segmenter": "whitespace",
        "min_frequency": 3,
        "embedding_size": 32,
        "hidden_size": 48,
        "encoder_hidden_size": 24,
        "attention_size": 32,
        "dropout": 0.2,
        "per_device_train_batch_size": 4,
        "num_train_epochs": epochs,
        "train_sampling_strategy": sampling,
        "save_strategy": "steps",
        "save_steps": SAVE_STEPS,
        "use_cpu": True,
        "threads": 1,
        "disable_tqdm": True,
    }
    return ["train", *(f"--{name}={value}" for name, value in arguments.items())]


# ---- starting and killing


def start_alone(argv: list[str], log: Path) -> int:
    """Starts the command in a forked process; returns its process id."""
    return start_forked(lambda: run_command(argv), log)


def kill_alone(pid: int, draw: random.Random) -> None:
    os.kill(pid, signal.SIGKILL)


def start_distributed(argv: list[str], log: Path) -> int:
    """Starts the command in two processes under torchrun; returns torchrun's process id."""
    script = log.with_name("rank.py")
    script.write_text(RANK, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script)]
    with log.open("a") as output:
        process = subprocess.Popen(
            [*launch, *argv],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    process.returncode = 0  # `wait_until_ended` reaps it
    return process.pid


def kill_one_rank(pid: int, draw: random.Random) -> None:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if children:
        os.kill(int(draw.choice(children)), signal.SIGKILL)


# ---- one round


class Training:
    """How the training is started and killed, and what it gives uninterrupted."""

    def __init__(self, folder: Path, processes: int, epochs: int, sampling: str) -> None:
        self.folder, self.epochs, self.sampling = folder, epochs, sampling
        self.kills = self.incomplete = 0  # the latter left an incomplete checkpoint
        self.start: Callable[[list[str], Path], int] = start_alone if processes == 1 else start_distributed
        self.kill = kill_alone if processes == 1 else kill_one_rank
        self.train_file, self.log = folder / "train.jsonl", folder / "log.txt"
        write_pairs(self.train_file, 60 * processes)
        whole = folder / "whole"
        started = time.monotonic()
        code = wait_until_ended(self.start(self._command(whole), self.log), TIME_LIMIT)
        if code != 0:
            raise RuntimeError(f"the uninterrupted training ended with {code}: {self.log.read_text()[-2000:]}")
        self.seconds = time.monotonic() - started
        self.weights = load_file(whole / "model.safetensors")

    def _command(self, folder: Path) -> list[str]:
        command = training_command(self.train_file, folder, self.epochs, self.sampling)
        return [*command, f"--validation_file={self.train_file}"]

    def kill_and_resume(self, number: int, draw: random.Random) -> str:
        """Returns what went wrong."""
        folder, arguments = self.folder / f"round{number}", list[str]()
        planned, kills = 1 + (number % 3 == 2), 0
        for attempt in range(20):
            if attempt:
                arguments = ["--resume_from_checkpoint=auto"]
            self.log.unlink(missing_ok=True)
            pid = self.start([*self._command(folder), *arguments], self.log)
            if kills < planned:
                is_killed = self._kill_at_random(pid, folder, draw, 0.8**attempt * self.seconds)
                code = wait_until_ended(pid, TIME_LIMIT)
                if is_killed and code != 0:
                    kills, self.kills = kills + 1, self.kills + 1
                    states = [path / "trainer_state.json" for path in folder.glob("*checkpoint-*")]
                    self.incomplete += not all(state.exists() for state in states)
                    continue
                if not kills:  # it had ended before the kill: again
                    folder.rename(self.folder / f"unused{number}-{attempt}")
                    continue
            else:
                code = wait_until_ended(pid, TIME_LIMIT)
            if code is None:
                kill_and_wait(pid)
                return f"no end within {TIME_LIMIT} seconds"
            return self._compare(folder, code, arguments)
        return "20 attempts without an end"

    def _kill_at_random(self, pid: int, folder: Path, draw: random.Random, seconds: float) -> bool:
        """Kills the training within about so many seconds unless it ends before; returns whether it was killed."""
        moment = time.monotonic() + draw.uniform(0, 0.95 * seconds)
        awaits_checkpoint, end = draw.random() < 0.5, time.monotonic() + seconds * 3
        before = set(folder.glob("*checkpoint-*"))
        while time.monotonic() < (end if awaits_checkpoint else moment):
            if has_ended(pid):
                return False
            if awaits_checkpoint and time.monotonic() > moment:
                now = set(folder.glob("*checkpoint-*"))
                if now - before:
                    time.sleep(draw.uniform(0, 0.02))
                    break
                before = now
            time.sleep(0.0005)
        if has_ended(pid):
            return False
        self.kill(pid, draw)
        return True

    def _compare(self, folder: Path, code: int, arguments: list[str]) -> str:
        """What is wrong with a training that has ended, or an empty text."""
        if code != 0:
            return f"exit code {code} with {arguments}: {last_line(self.log)}"
        weights = load_file(folder / "model.safetensors")
        different = [name for name, weight in self.weights.items() if not torch.equal(weight, weights[name])]
        if not different:
            return ""
        largest = max((self.weights[name] - weights[name]).abs().max().item() for name in different)
        return f"{len(different)} of {len(weights)} tensors differ by up to {largest:.2g} with {arguments}"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(
        "kills.py",
        __doc__,
        50,
        argv,
        processes={"type": int, "default": 1, "choices": [1, 2]},
        epochs={"type": int, "default": 1},
        sampling={"default": "random", "help": "train_sampling_strategy"},
    )
    torch.set_num_threads(1)
    name = "kills" if arguments.processes == 1 else "kills under torchrun"
    if arguments.epochs > 1:
        name += f", {arguments.epochs} epochs"
    with temporary_folder() as folder, Check(name, WHAT[arguments.processes], arguments) as check:
        training = Training(folder, arguments.processes, arguments.epochs, arguments.sampling)
        for _ in check.run_rounds(training.kill_and_resume):
            check.figure = (
                f"{check.rounds - check.failed} of {check.rounds} bit for bit the same; {training.kills} kills, "
                f"{training.incomplete} of them while a checkpoint was being written"
            )
    return check.failed > 0


if __name__ == "__main__":
    sys.exit(main())
