"""Times `predict` with scores and spans, and at the last commit that traced outputs without them.

    python benchmarks/origins.py [--rounds 25]

32 synthetic requests of about 20 words, a model of the default sizes with random weights, 20 words of output. The two
checkouts run in processes of their own, in turns, one thread each; new ones every few rounds, because the same code is
up to 5 % slower in one process than in the next. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from measure import format_ratio, format_table, format_times, parse_arguments, time_side_by_side, write_section

ROOT = Path(__file__).parents[1]
BASELINE = "a34a39f"  # the last commit whose traces had neither
COUNT, STEPS = 32, 20
PROCESSES = 5  # of each checkout
# Times predictions whenever a line says how, in seconds of the processor, which other programs do not change.
WORKER = """
import json, sys, time, torch
torch.set_num_threads(1)
from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.model.prediction import predict
folder, texts = sys.argv[1], json.loads(sys.argv[2])
model, tokenizer = (kind.from_pretrained(folder) for kind in (CopyNetForConditionalGeneration, CopyNetTokenizer))
print("ready", flush=True)
for line in sys.stdin:
    options, start = json.loads(line), time.process_time()
    predict(model, tokenizer, texts, **options)
    print(time.process_time() - start, flush=True)
"""


class Checkout:
    """A process that predicts with the package of a folder; `seconds` of the processor have been spent on that."""

    def __init__(self, source: Path, model: Path, texts: list[str]) -> None:
        command = [sys.executable, "-c", WORKER, str(model), json.dumps(texts)]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=source, env=environment
        )
        self._read()
        self.seconds = 0.0

    def predict(self, beams: int) -> None:
        """Predicts all texts."""
        options = {"num_beams": beams, "max_new_tokens": STEPS, "min_new_tokens": STEPS}
        stdin: IO[str] = self.process.stdin  # type: ignore[assignment]
        print(json.dumps(options), file=stdin, flush=True)
        self.seconds += float(self._read())

    def _read(self) -> str:
        stdout: IO[str] = self.process.stdout  # type: ignore[assignment]
        return stdout.readline()


def save_model(folder: Path, texts: list[str]) -> None:
    """A model of the default sizes with random weights, and its tokenizer, whose words are joined and copied."""
    import torch

    from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer

    torch.manual_seed(0)
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 10_000, "word_punct", chains=True, min_frequency=2)
    model = CopyNetForConditionalGeneration(CopyNetConfig.for_tokenizer(tokenizer, vocab_size=len(tokenizer)))
    for part in (model, tokenizer):
        part.save_pretrained(folder)


def main() -> None:
    from copynet_hf.data import quickstart_pairs

    args = parse_arguments(__doc__, rounds=25)
    texts = [f"{row['text']} {row['text']}" for row in quickstart_pairs("train", COUNT)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model", texts)
        (folder / "before").mkdir()
        package = subprocess.run(
            ["git", "-C", str(ROOT), "archive", BASELINE, "copynet_hf"], check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder / "before")], input=package.stdout, check=True)
        sources = {"before": folder / "before", "now": ROOT}
        rows = [measure_search(sources, folder / "model", texts, beams, args.rounds) for beams in (1, 4)]
    table = format_table(["search", "before ms", "now ms", "now / before"], rows)
    figures = {"rounds": args.rounds, "processes": PROCESSES, "count": COUNT, "steps": STEPS, "baseline": BASELINE}
    write_section("Scores and spans", "origins", table=table, **figures)


def measure_search(sources: dict[str, Path], model: Path, texts: list[str], beams: int, rounds: int) -> list[str]:
    """A row of the table."""
    seconds: dict[str, list[float]] = {name: [] for name in sources}
    for _ in range(PROCESSES):
        checkouts = {name: Checkout(source, model, texts) for name, source in sources.items()}
        calls = {name: partial(checkout.predict, beams) for name, checkout in checkouts.items()}
        spent = partial(sum_seconds, list(checkouts.values()))
        for name, values in time_side_by_side(calls, rounds // PROCESSES, clock=spent).items():
            seconds[name] += values
        for checkout in checkouts.values():
            checkout.process.kill()
    search = "greedy" if beams == 1 else f"beam {beams}"
    return [search, *format_times(seconds, sources), format_ratio(seconds, "now", "before", 3)]


def sum_seconds(checkouts: list[Checkout]) -> float:
    return sum(checkout.seconds for checkout in checkouts)


if __name__ == "__main__":
    main()
