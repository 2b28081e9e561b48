"""Predictions of files killed at random moments and started again: no row is lost, doubled or out of order.

python tests/soak/killed_predictions.py --rounds 20
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness import Check, last_line, parse_arguments, start_forked, temporary_folder, wait_until_ended

import torch  # isort: skip - after harness, which sets the number of threads
from helpers import save_parts, tiny_model, tiny_tokenizer

import copynet_hf.inference.file_prediction  # noqa: F401 - imported once, so that the forked runs start at once
from copynet_hf.cli import main as run_command

WHAT = """`copynet-hf predict` reads JSON lines of which some are malformed, and writes JSON lines, CSV or Parquet in
windows of 1 to 40 rows. It is killed by SIGKILL at a random moment, three times in a round, and started again until it
ends. Output and bad rows must be byte for byte those of an uninterrupted run, and nothing else may be left."""
ROWS, TIME_LIMIT = 300, 240
SUFFIXES = ("jsonl", "parquet", "csv.gz")


def write_input(path: Path) -> None:
    draw = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(ROWS):
            text = " ".join(draw.choices("abcdefgXYZ", k=draw.randint(1, 12)))
            row = json.dumps({"id": number, "text": text})
            file.write((row if number % 29 else row[:-3]) + "\n")


class Prediction:
    """How the command is started, and what it writes uninterrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.kills = folder, folder / "log.txt", 0
        self.model, self.rows = folder / "model", folder / "in.jsonl"
        save_parts(self.model, tiny_model(copy_mechanism="pointer", max_source_oov=4), tiny_tokenizer())
        write_input(self.rows)

    def start(self, output: Path, window: int) -> int:
        files = [f"--model={self.model}", f"--input_file={self.rows}", f"--output_file={output}"]
        argv = ["predict", *files, f"--window={window}", "--batch_size=8", "--max_target_length=4", "--threads=1"]
        return start_forked(lambda: run_command(argv), self.log)

    def kill_and_restart(self, number: int, draw: random.Random) -> str:
        """Returns what went wrong."""
        window, suffix = draw.randint(1, 40), SUFFIXES[number % len(SUFFIXES)]
        whole, output = (self.folder / f"{name}{number}" / f"out.{suffix}" for name in ("whole", "killed"))
        started = time.monotonic()
        if (code := wait_until_ended(self.start(whole, window), TIME_LIMIT)) != 0:
            return f"the uninterrupted run ended with {code}: {last_line(self.log)}"
        seconds = time.monotonic() - started
        for _ in range(3):
            pid = self.start(output, window)
            time.sleep(draw.uniform(0, 0.7 * seconds))
            os.kill(pid, signal.SIGKILL)
            self.kills += wait_until_ended(pid, TIME_LIMIT) == -signal.SIGKILL
        is_done = output.exists() and not list(output.parent.glob("*.parts/*"))
        if not is_done and (code := wait_until_ended(self.start(output, window), TIME_LIMIT)) != 0:
            return f"exit code {code}: {last_line(self.log)}"
        return _compare(whole, output)


def _compare(whole: Path, output: Path) -> str:
    """What differs between the two outputs and their bad rows, or an empty text."""
    names = (output.name, f"{output.name}.bad.jsonl")
    for name in names:
        expected, found = whole.with_name(name), output.with_name(name)
        if not found.exists():
            return f"{name} is missing"
        if expected.read_bytes() != found.read_bytes():
            return f"{name} differs from that of the uninterrupted run"
    left = {path.name for path in output.parent.iterdir()} - {*names, f"{output.name}.parts"}
    return f"left over: {', '.join(sorted(left))}" if left else ""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments("killed_predictions.py", __doc__, 50, argv)
    torch.set_num_threads(1)
    with temporary_folder() as folder, Check("kills, predictions", WHAT, arguments) as check:
        prediction = Prediction(folder)
        for _ in check.run_rounds(prediction.kill_and_restart):
            passed = check.rounds - check.failed
            check.figure = f"{passed} of {check.rounds} with every row once; {prediction.kills} kills"
    return check.failed > 0


if __name__ == "__main__":
    sys.exit(main())
