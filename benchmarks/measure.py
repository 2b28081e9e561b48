"""Times of calls that alternate, peak memory, and the page of the benchmarks."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

PAGE = Path(__file__).parents[1] / "results" / "benchmarks.md"
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
)
TITLE = """# Benchmarks

Written by the scripts in benchmarks/, a section each; “What falls short” is by hand. Times are medians, ratios medians
of ratios taken pair by pair.
A section of before 28 November 2026 names the commit that brought its figures, a later one the commit that was
measured.
"""
THREADS = {"type": int, "nargs": "+", "default": [1, 2], "help": "numbers of threads of torch"}


def parse_arguments(description: str | None, rounds: int = 20, **more: dict[str, Any]) -> argparse.Namespace:
    """Parses the number of rounds and `more`: name to the arguments of `add_argument`."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    for name, options in more.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args()


def time_side_by_side(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each call in each round. A round runs all calls, so that slow moments of the machine affect all."""
    for call in calls.values():
        for _ in range(warmup):
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for first in range(rounds):
        for name in (names[(first + turn) % len(names)] for turn in range(len(names))):  # each is first in turn
            call = calls[name]
            start = clock()
            call()
            seconds[name].append(clock() - start)
    return seconds


def median_ratio(seconds: Mapping[str, list[float]], name: str, baseline: str) -> float:
    """The median over the rounds of a call's time relative to the baseline's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[baseline], strict=True))


def median_milliseconds(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)


def format_times(seconds: Mapping[str, list[float]], names: Iterable[str], decimals: int = 0) -> list[str]:
    """The median milliseconds of these calls."""
    return [f"{median_milliseconds(seconds[name]):.{decimals}f}" for name in names]


def format_ratio(seconds: Mapping[str, list[float]], name: str, baseline: str, decimals: int = 2) -> str:
    return f"{median_ratio(seconds, name, baseline):.{decimals}f}"


def build_training_step(model: Any, batch: Mapping[str, Any], bf16: bool = False) -> Callable[[], None]:
    """Forward, backward and a step of Adam; `num_items_in_batch` is passed as the Trainer does."""
    import torch

    inputs = {**batch, "num_items_in_batch": int((batch["labels"] >= 0).sum())}
    trained = [weight for weight in model.train().parameters() if weight.requires_grad]
    optimizer = torch.optim.Adam(trained, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=bf16):
            loss = model(**inputs).loss
        loss.backward()
        optimizer.step()

    return step


def run_in_process(function: Callable[..., Any], *args: Any) -> Any:
    """Calls `function` in a fresh process, with threads and memory of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args)


def peak_mebibytes() -> float:
    """The peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_section(name: str, template: str, **figures: Any) -> None:
    """Renders templates/TEMPLATE.md.jinja under the heading `name` of the page, replacing the section of that name."""
    text = TEMPLATES.get_template(f"{template}.md.jinja").render(figures)
    PAGE.parent.mkdir(exist_ok=True)
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else TITLE
    section = f"## {name}\n\n{describe_machine()}\n\n{text.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    page = pattern.sub(lambda _: section + "\n", page) if pattern.search(page) else f"{page.rstrip()}\n\n{section}"
    PAGE.write_text(page.rstrip() + "\n", encoding="utf-8")
    print(section)


def describe_machine() -> str:
    """The processor, the versions and the commit that the figures are of."""
    import torch
    import transformers

    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    match = re.search(r"^model name\s*: (.*)$", cpuinfo, re.MULTILINE)
    model = match.group(1) if match else "unknown processor"
    return (
        f"{model}, {os.cpu_count()} cores ({platform.system()} {platform.machine()}), Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}; "
        f"{describe_commit()}."
    )


def describe_commit() -> str:
    """The commit of this checkout and its day; `-dirty` says that code had been changed since."""

    def ask(*words: str) -> str:
        command = ["git", "-C", str(PAGE.parents[1]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    if shutil.which("git") is None or not (commit := ask("log", "-1", "--format=%h of %cs")):
        return "unknown commit"
    is_changed = ask("status", "--porcelain", "--", "copynet_hf", "benchmarks")
    return f"commit {commit.replace(' ', '-dirty ', 1) if is_changed else commit}"


def format_table(header: list[str], rows: list[list[Any]]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in cells)
