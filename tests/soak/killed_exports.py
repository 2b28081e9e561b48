"""Exports over an older one, killed at random moments: the folder holds the old export or the new one, whole.

python tests/soak/killed_exports.py --rounds 30
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from harness import Check, has_ended, parse_arguments, start_forked, temporary_folder, wait_until_ended

import torch  # isort: skip - after harness, which sets the number of threads
from helpers import read_files, save_tiny_model

from copynet_hf.cli import main as run_command
from copynet_hf.serving import web_export

WHAT = """`copynet-hf export --overwrite_output_dir` writes a model over the export of another one, for ONNX, with int8
and for the web, and `copynet-hf ensemble` an ensemble over another. It is killed by SIGKILL: half of the times at a
random moment, the other half within 20 ms after a new file has appeared. All files must be those of the old export, or
all those of the new one; after a further run, nothing else may be left."""
TIME_LIMIT = 240
KINDS: dict[str, list[str]] = {"onnx": [], "int8": ["--quantize=int8"], "web": ["--target=web"], "ensemble": []}


def export(kind: str, models: Sequence[Path], output: Path) -> int:
    command = ["ensemble", "--models", *map(str, models)] if kind == "ensemble" else ["export", f"--model={models[0]}"]
    with redirect_stdout(StringIO()):
        return run_command([*command, *KINDS[kind], f"--output_dir={output}", "--overwrite_output_dir"])


def kill_export(kind: str, models: Sequence[Path], folder: Path, draw: random.Random) -> tuple[bool, str, str]:
    """Returns whether the process was killed, which export it left, and what is wrong."""
    outputs, seconds = [folder / kind / name / "output" for name in ("old", "new")], 3.0
    for output, order in zip(outputs, (models, models[::-1]), strict=True):
        if not output.exists():  # in this process, which imports what the forked ones need
            started = time.monotonic()
            if export(kind, order, output) != 0:
                return False, "", "not exported"
            seconds = time.monotonic() - started
    target, (old, new) = outputs[0], map(read_files, outputs)
    unfinished, started = target.with_name(".output.unfinished"), time.monotonic()
    pid = start_forked(lambda: export(kind, models[::-1], target), Path(os.devnull))
    if draw.random() < 0.5:
        time.sleep(draw.uniform(0.05, 0.8) * seconds)
    else:
        count = draw.randint(1, len(new) - 1)
        while time.monotonic() < started + TIME_LIMIT and len(list(unfinished.rglob("*"))) < count:
            if has_ended(pid):
                break
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02))
    os.kill(pid, signal.SIGKILL)
    killed = wait_until_ended(pid, TIME_LIMIT) == -signal.SIGKILL
    left = read_files(target)
    found = "old" if left == old else "new" if left == new else ""
    problem = "" if found else "a mixture"
    export(kind, models, target)
    if read_files(target) != old or len(list(target.parent.iterdir())) != 1:
        problem = problem or "something was left over"
    return killed, found, problem


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments("killed_exports.py", __doc__, 30, argv)
    torch.set_num_threads(1)
    web_export.load_runtime = lambda folder: {"LICENSE": b"onnxruntime-web" * 100_000}  # as no network is needed
    end, kinds = time.monotonic() + 60 * arguments.minutes, list(KINDS)
    with temporary_folder() as folder, Check("kills, exports", WHAT, arguments) as check:
        models = [save_tiny_model(folder / f"model{seed}", seed) for seed in (0, 1)]
        left, number = {"old": 0, "new": 0, "": 0}, 0
        while check.rounds < arguments.rounds and time.monotonic() < end:
            kind, draw = kinds[number % len(kinds)], random.Random(f"{arguments.seed}-{number}")
            killed, found, problem = kill_export(kind, models, folder, draw)
            number += 1
            if problem:
                check.fail(f"round {number}, {kind}: {problem}", problem)
            elif killed:  # else it had ended
                check.passed()
                left[found] += 1
            check.figure = f"the whole old export {left['old']} times, the whole new one {left['new']} times"
    return check.failed > 0


if __name__ == "__main__":
    sys.exit(main())
