"""Timing side by side, peak memory, and the page that the benchmarks write."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "results" / "benchmarks.md"
TITLE = """# Benchmarks

Written by the scripts in benchmarks/, a section each. Times are medians, ratios medians of ratios taken pair by pair.
"""


def arguments(description: str) -> argparse.Namespace:
    """How often to measure, and with how many threads."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    return parser.parse_args()


def side_by_side(calls: Mapping[str, Callable[[], Any]], rounds: int, warmup: int = 2) -> dict[str, list[float]]:
    """Seconds of each call in each round; every round runs all of them, so that a slow moment hits all alike."""
    for call in calls.values():
        for _ in range(warmup):
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for first in range(rounds):
        for name in (names[(first + place) % len(names)] for place in range(len(names))):  # none is always the first
            call = calls[name]
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], name: str, to: str) -> float:
    """Median over the rounds of one call's time by another's in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[to], strict=True))


def milliseconds(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)


def in_a_process(function: Callable[..., Any], *args: Any) -> Any:
    """Calls `function` in a fresh process, so that threads and memory are its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args)


def peak_mebibytes() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_section(name: str, text: str) -> None:
    """Puts `text` under the heading `name` of the page, in place of what stood there."""
    PAGE.parent.mkdir(exist_ok=True)
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else TITLE
    section = f"## {name}\n\n{machine()}\n\n{text.strip()}\n"
    pattern = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    page = pattern.sub(lambda _: section + "\n", page) if pattern.search(page) else f"{page.rstrip()}\n\n{section}"
    PAGE.write_text(page.rstrip() + "\n", encoding="utf-8")
    print(section)


def machine() -> str:
    import torch
    import transformers

    model = "unknown processor"
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        model = found.group(1) if found else model
    return (
        f"{model}, {os.cpu_count()} cores ({platform.system()} {platform.machine()}), Python "
        f"{platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}."
    )


def table(header: list[str], rows: list[list[Any]]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in cells)
