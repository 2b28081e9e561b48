"""Rows per second of `copynet-hf generate`, at an earlier commit, and of `copynet-hf predict` over ONNX graphs.

    python benchmarks/prediction.py [--rounds 3] [--rows 2000] [--model FOLDER]

Rewrites Chinese dialogues (the data in $COPYNET_DATA) with 4 beams, on two cores. The model is trained for a minute,
unless a folder is given. Writes its section of results/benchmarks.md. The machine should be idle: where other programs
use the cores, the threads of `generate` wait for each other.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import format_table, parse_arguments, write_section

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("COPYNET_DATA", ROOT.parent / "shared" / "data")) / "utterance_rewriting_zh"
BASELINE = "ae78388"  # the last commit at which `generate` traced each output, and PyTorch was its only backend
BEAMS, FEW = 4, 64  # rows of the run whose time is that of the start


def run(source: Path, argv: Sequence[str], stdin: Path | None = None) -> tuple[float, float, str]:
    """Runs the command of a checkout; returns the seconds that passed, those of its processors, and its output."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    environment.pop("OMP_NUM_THREADS", None)  # each command takes its default number of threads
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with Path(stdin or os.devnull).open("rb") as file:
        command = [sys.executable, "-m", "copynet_hf", *argv]
        done = subprocess.run(command, env=environment, stdin=file, capture_output=True, cwd=source)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stderr.decode()}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout.decode()


class Commands:
    """The commands that are compared; each returns its seconds, its processors' seconds and its outputs."""

    def __init__(self, folder: Path, baseline: Path, model: Path, texts: Sequence[str]) -> None:
        self.folder, self.baseline, self.model, self.texts = folder, baseline, model, texts
        self.graphs = folder / "graphs"
        run(ROOT, ["export", f"--model={model}", f"--output_dir={self.graphs}"])

    def generate(self, count: int) -> tuple[float, float, list[str]]:
        lines = self.folder / "texts.txt"
        lines.write_text("".join(f"{text}\n" for text in self.texts[:count]), encoding="utf-8")
        argv = ["generate", f"--model={self.model}", f"--num_beams={BEAMS}"]
        seconds, of_processors, output = run(self.baseline, argv, lines)
        return seconds, of_processors, output.splitlines()

    def predict(self, count: int) -> tuple[float, float, list[str]]:
        rows, output = self.folder / "rows.jsonl", self.folder / "out.jsonl"
        rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in self.texts[:count]), encoding="utf-8")
        argv = ["predict", f"--model={self.graphs}", "--backend=onnx", f"--num_beams={BEAMS}", "--num_proc=2"]
        files = [f"--input_file={rows}", f"--output_file={output}", "--overwrite_output_file"]
        seconds, of_processors, _ = run(ROOT, [*argv, *files])
        lines = output.read_text(encoding="utf-8").splitlines()
        return seconds, of_processors, [json.loads(line)["prediction"] for line in lines]


def train_model(folder: Path) -> Path:
    files = [f"--train_file={DATA / 'train.jsonl'}", "--text_column=source", "--summary_column=target"]
    more = [f"--output_dir={folder}", "--max_minutes=1", "--num_beams=4", "--threads=2"]
    run(ROOT, ["train", *files, *more])
    return folder


def main() -> None:
    model_help = "a trained model; by default one is trained for a minute"
    more: dict[str, Any] = {"rows": {"type": int, "default": 2000}, "model": {"type": Path, "help": model_help}}
    args = parse_arguments(__doc__, rounds=3, **more)
    lines = (DATA / "train.jsonl").read_text(encoding="utf-8").splitlines()[: args.rows]
    texts = [json.loads(line)["source"] for line in lines]
    git = ["git", "-C", str(ROOT), "worktree"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([*git, "add", "--detach", str(folder / "baseline"), BASELINE], check=True, capture_output=True)
        try:
            model = args.model.absolute() if args.model else train_model(folder / "model")
            commands = Commands(folder, folder / "baseline", model, texts)
            write_section("Prediction", "prediction", **compare(commands, args.rounds))
        finally:
            subprocess.run([*git, "remove", "--force", str(folder / "baseline")], check=True)


def compare(commands: Commands, rounds: int) -> dict[str, Any]:
    """Runs both commands in turns, so that slow moments of the machine affect both."""
    calls = {"generate": commands.generate, "predict": commands.predict}
    rates: dict[str, list[float]] = {name: [] for name in calls}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    outputs = {}
    count = len(commands.texts)
    for _ in range(rounds):
        for name, call in calls.items():
            few, few_of_processors, _ = call(FEW)
            many, of_processors, outputs[name] = call(count)
            rates[name].append((count - FEW) / (many - few))
            seconds[name].append(1e3 * (of_processors - few_of_processors) / (count - FEW))
            print(f"{name}: {rates[name][-1]:.1f} rows/s, {seconds[name][-1]:.1f} ms of processors a row", flush=True)
    equal = sum(one == other for one, other in zip(*outputs.values(), strict=True))
    ratio, of_processors = (
        statistics.median(a / b for a, b in zip(first, second, strict=True))
        for first, second in ((rates["predict"], rates["generate"]), (seconds["generate"], seconds["predict"]))
    )
    shown = {
        "generate": f"`copynet-hf generate`, commit {BASELINE}, its default threads",
        "predict": "`copynet-hf predict --backend onnx --num_proc 2`",
    }
    rows = [
        [shown[name], f"{statistics.median(rates[name]):.1f}", f"{statistics.median(seconds[name]):.1f}"]
        for name in calls
    ]
    return {
        "rounds": rounds,
        "count": count,
        "beams": BEAMS,
        "few": FEW,
        "equal": equal,
        "ratio": ratio,
        "of_processors": 1 / of_processors,
        "table": format_table(["command", "rows/s", "processor ms a row"], rows),
    }


if __name__ == "__main__":
    main()
