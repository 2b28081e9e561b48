"""A disk that fills up during a save: afterwards the folder holds the old model whole, or the new one.

    python tests/soak/full_disk.py

No file may grow beyond a limit (RLIMIT_FSIZE), which stands for a disk that is full at that byte of the file.
"""

from __future__ import annotations

import re
import resource
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from harness import (
    UNCAUGHT,
    Check,
    kill_and_wait,
    last_line,
    parse_arguments,
    start_forked,
    temporary_folder,
    wait_until_ended,
)
from kills import training_command, write_pairs

import torch  # isort: skip - after harness, which sets the number of threads
from helpers import save_parts, tiny_model, tiny_tokenizer
from safetensors.torch import load_file

import copynet_hf.training.run  # noqa: F401 - imported once, so that the forked trainings start at once
from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.cli import main as run_command
from copynet_hf.saved.loading import load_model

STEP = 64 * 1024
CHECKPOINT = """A full disk is imitated by a limit on the size of files, which grows by 64 kB from run to run until
everything fits (`--rounds` is an upper bound). A training with checkpoints is resumed under the limit, which stops it
while it writes the next one. The newest checkpoint must then resume without the limit to the weights of the
uninterrupted training."""
SAVE = """`save_pretrained` writes a model of 1 MiB over an older one, with such a limit on the size of files.
Afterwards the folder must load and hold all weights of the old model, or all of the new one."""
MESSAGES = """The trainings that the limit stops must end with exit code 2 and one line, without a traceback."""
TIME_LIMIT = 120


def limit_file_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # Python ignores SIGXFSZ: writing raises OSError


def build_large_model(seed: int) -> CopyNetForConditionalGeneration:
    """A model of about 1 MiB."""
    return tiny_model(seed=seed, embedding_size=128, hidden_size=128, encoder_hidden_size=64, attention_size=128)


def save_under_limit(
    folder: Path, old: CopyNetForConditionalGeneration, new: CopyNetForConditionalGeneration, limit: int
) -> tuple[str, str]:
    """Saves `new` over `old`; returns what the folder holds then, and what went wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    save_parts(folder, old, tiny_tokenizer())

    def save() -> int:
        limit_file_size(limit)
        new.save_pretrained(folder)
        return 0

    log = folder.with_suffix(".log")
    code = wait_until_ended(start_forked(save, log), TIME_LIMIT)
    try:
        loaded, _ = load_model(str(folder), "cpu")
    except Exception as error:
        return "", f"after a limit of {limit:,} bytes: {type(error).__name__}: {error}"
    for name, model in (("old", old), ("new", new)):
        state = model.state_dict()
        if all(torch.equal(state[key], value) for key, value in loaded.state_dict().items()):
            if name == "old" and code == 0:
                return "", f"after a limit of {limit:,} bytes: saving reported no error, but the old model is there"
            return name, ""
    return "", f"after a limit of {limit:,} bytes: a mixture of the old and the new weights"


def check_saves(arguments: Namespace, folder: Path) -> bool:
    old, new = build_large_model(1), build_large_model(2)
    old.save_pretrained(folder / "size")
    size = (folder / "size" / "model.safetensors").stat().st_size
    held = {"old": 0, "new": 0, "": 0}
    with Check("full disk, saving", SAVE, arguments) as check:
        for limit in list(range(0, size + 2 * STEP, STEP))[: arguments.rounds]:
            name, problem = save_under_limit(folder / "model", old, new, limit)
            held[name] += 1
            if problem:
                check.fail(problem, problem.partition(":")[2])
            else:
                check.passed()
        check.figure = (
            f"whole old model {held['old']} times, whole new one {held['new']} times, neither {held['']} times"
        )
    return check.failed > 0


class LimitedTraining:
    """A training of 8 steps with a checkpoint every 3 steps, under a limit on the size of files."""

    SIZES = ("--embedding_size=128", "--hidden_size=128", "--encoder_hidden_size=64", "--attention_size=128")

    def __init__(self, folder: Path) -> None:
        self.folder, self.train_file, self.log = folder, folder / "train.jsonl", folder / "log.txt"
        write_pairs(self.train_file, 32)
        whole, self.begun = folder / "whole", folder / "begun"
        if (code := wait_until_ended(self.start(whole), TIME_LIMIT)) != 0:
            raise RuntimeError(f"the training without a limit ended with {code}: {self.log.read_text()[-2000:]}")
        self.weights = load_file(whole / "model.safetensors")
        self.largest = max(path.stat().st_size for path in (whole / "checkpoint-6").iterdir())
        pid = self.start(self.begun)
        while not (self.begun / "checkpoint-3" / "trainer_state.json").exists():
            time.sleep(0.002)
        kill_and_wait(pid)
        for later in set(self.begun.glob("checkpoint-*")) - {self.begun / "checkpoint-3"}:
            shutil.rmtree(later)

    def start(self, output: Path, *more: str, limit: int = resource.RLIM_INFINITY) -> int:
        """Starts the training in a forked process; returns its process id."""
        argv = [*training_command(self.train_file, output, 1, "random"), *self.SIZES, *more]
        self.log.unlink(missing_ok=True)

        def run() -> int:
            limit_file_size(limit)
            return run_command(argv)

        return start_forked(run, self.log)

    def resume_under_limit(self, limit: int) -> tuple[str, str]:
        """Resumes from the newest checkpoint under the limit, and without it if it stopped the training.

        Returns what was wrong with the message, and what was wrong with the weights in the end.
        """
        output, message = self.folder / "limited", ""
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(self.begun, output)
        code = self._resume(output, limit)
        self.is_stopped = code != 0
        if self.is_stopped:
            if code != 2 or "Traceback" in self.log.read_text(errors="replace"):
                message = f"{'a traceback' if code == UNCAUGHT else f'exit code {code}'}: {last_line(self.log)}"
            if (code := self._resume(output)) != 0:
                return message, f"resuming ended with exit code {code}: {last_line(self.log)}"
        final = load_file(output / "model.safetensors")
        is_same = all(torch.equal(weight, final[name]) for name, weight in self.weights.items())
        return message, "" if is_same else "the final weights differ"

    def _resume(self, output: Path, limit: int = resource.RLIM_INFINITY) -> int | None:
        pid = self.start(output, "--resume_from_checkpoint=auto", limit=limit)
        if (code := wait_until_ended(pid, TIME_LIMIT)) is None:
            kill_and_wait(pid)
        return code


def check_checkpoints(arguments: Namespace, folder: Path) -> bool:
    end = time.monotonic() + 60 * arguments.minutes
    training, stopped = LimitedTraining(folder), 0
    with (
        Check("full disk, checkpoints", CHECKPOINT, arguments) as weights,
        Check("full disk, messages", MESSAGES, arguments) as messages,
    ):
        for limit in list(range(0, training.largest + 6 * STEP, STEP))[: arguments.rounds]:
            if time.monotonic() > end:
                break
            for check, problem in zip((messages, weights), training.resume_under_limit(limit), strict=True):
                if problem:
                    check.fail(f"with a limit of {limit:,} bytes: {problem}", re.sub(r"\d+", "N", problem))
                else:
                    check.passed()
            stopped += training.is_stopped
            weights.figure = f"{stopped} of {weights.rounds} trainings were stopped by the limit"
        messages.figure = f"{stopped - messages.failed} of {stopped} errors are one line"
    return weights.failed + messages.failed > 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments("full_disk.py", __doc__, 1000, argv)
    torch.set_num_threads(1)
    with temporary_folder() as folder:
        # First the trainings: loading a model starts threads, which do not survive a fork.
        failed = check_checkpoints(arguments, folder)
        failed |= check_saves(arguments, folder)
    return failed


if __name__ == "__main__":
    sys.exit(main())
