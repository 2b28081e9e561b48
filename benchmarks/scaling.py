"""Measures how time and memory of CopyNet grow with source, target, vocabulary, batch and beams.

    python benchmarks/scaling.py [--rounds 7] [--threads 1]

One size doubles at a time; the others are those of the synthetic task. Writes its section of results/benchmarks.md,
which names what grows faster than linearly, and results/scaling.png. Such growth is measured again with an allocator
that keeps freed memory.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any
from unittest import mock

import torch
from generation import STEPS, build_copynet_search
from measure import (
    PAGE,
    THREADS,
    format_table,
    median_milliseconds,
    median_ratio,
    parse_arguments,
    peak_mebibytes,
    run_in_process,
    time_side_by_side,
    write_section,
)
from training import SYNTHETIC, Task, build_copynet_step

PICTURE = PAGE.with_name("scaling.png")
LIMIT = 1.05  # the largest exponent that counts as linear
# The C library returns large freed blocks to the system, which zeroes their pages at the next allocation; the larger
# the tensors, the more of their blocks are large. With these environment variables it keeps them.
KEEP_FREED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


@dataclass
class Search(Task):
    """A batch for beam search, of `STEPS` steps without an early end."""

    beams: int = 4


@dataclass(frozen=True)
class Sweep:
    """The task `base` at `count` sizes of its `field`, doubled from `first`; `keeps`: whether to keep freed memory."""

    base: Task
    field: str
    first: int
    count: int = 5
    keeps: bool = False

    @property
    def sizes(self) -> list[int]:
        return [self.first * 2**i for i in range(self.count)]

    @property
    def tasks(self) -> list[Task]:
        changes: list[dict[str, Any]] = [{self.field: size} for size in self.sizes]
        return [replace(self.base, **change) for change in changes]

    @property
    def work(self) -> str:
        return "search" if isinstance(self.base, Search) else "training step"


# Label, colour and marker of each size; the colours are Okabe and Ito's, which colour-blind readers can distinguish.
STYLES = {
    "source": ("source length", "#0072B2", "o"),
    "target": ("target length", "#D55E00", "s"),
    "vocab_size": ("vocabulary", "#009E73", "^"),
    "batch": ("batch", "#CC79A7", "D"),
    "beams": ("beams", "#E69F00", "v"),
}
SEARCH = Search(**asdict(SYNTHETIC))
SWEEPS = [
    Sweep(SYNTHETIC, "source", 25),
    Sweep(SYNTHETIC, "target", 10),
    Sweep(SYNTHETIC, "vocab_size", 1_000, count=6),  # only a large vocabulary outweighs the recurrences
    Sweep(SYNTHETIC, "batch", 16),
    Sweep(SEARCH, "beams", 2),  # one beam would be greedy search, another algorithm
    Sweep(SEARCH, "source", 25),
    Sweep(SEARCH, "batch", 16),
]


@dataclass(frozen=True)
class Growth:
    """The measurements of a sweep: seconds of each round by size, and mebibytes in the order of sizes."""

    sweep: Sweep
    seconds: dict[str, list[float]]
    mebibytes: list[float]

    @property
    def medians(self) -> list[float]:
        return [median_milliseconds(rounds) for rounds in self.seconds.values()]

    @property
    def exponents(self) -> dict[str, float]:
        """The exponents over all sizes, and between the two largest, where constant costs hide growth least."""
        sizes, (before, last) = self.sweep.sizes, list(self.seconds)[-2:]
        return {
            "time": exponent(sizes, self.medians),
            "time at the end": exponent(sizes[-2:], [1.0, median_ratio(self.seconds, last, before)]),
            "memory at the end": exponent(sizes[-2:], self.mebibytes[-2:]),
        }

    @property
    def above_linear(self) -> dict[str, float]:
        """The exponents above the limit, after rounding as on the page."""
        return {name: value for name, value in self.exponents.items() if round(value, 2) > LIMIT}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The p of value ∝ size^p, by least squares of log(value) on log(size)."""
    return statistics.linear_regression([math.log(n) for n in sizes], [math.log(v) for v in values]).slope


def build_call(task: Task) -> Callable[[], Any]:
    """The search or training step of a task."""
    return build_copynet_search(task, task.beams) if isinstance(task, Search) else build_copynet_step(task)


def time_sizes(sweep: Sweep, threads: int, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    calls = {str(size): build_call(task) for size, task in zip(sweep.sizes, sweep.tasks, strict=True)}
    return time_side_by_side(calls, rounds, warmup=1)


def measure_memory(task: Task, threads: int) -> float:
    """Peak mebibytes of two calls above those of the imports; the second call has the optimizer state of the first."""
    torch.set_num_threads(threads)
    before = peak_mebibytes()
    call = build_call(task)
    for _ in range(2):
        call()
    return peak_mebibytes() - before


def measure_growth(sweep: Sweep, threads: int, rounds: int) -> Growth:
    """Times all sizes side by side, and measures the memory of each in a process of its own."""
    with mock.patch.dict(os.environ, KEEP_FREED if sweep.keeps else {}), ThreadPoolExecutor(2) as pool:
        mebibytes = list(pool.map(lambda task: run_in_process(measure_memory, task, threads), sweep.tasks))
        return Growth(sweep, run_in_process(time_sizes, sweep, threads, rounds), mebibytes)


def format_row(growth: Growth) -> list[str]:
    time, end, memory_end = growth.exponents.values()
    return [
        growth.sweep.work,
        STYLES[growth.sweep.field][0],
        format_range(growth.sweep.sizes),
        format_range(growth.medians),
        f"{time:.2f}",
        f"{end:.2f}",
        format_range(growth.mebibytes),
        f"{memory_end:.2f}",
        ", ".join(growth.above_linear) or "no",
    ]


def format_range(values: Sequence[float]) -> str:
    return f"{values[0]:,.0f} to {values[-1]:,.0f}"


def list_exponents(growths: Iterable[Growth]) -> list[str]:
    """The exponents above the limit, with their sweeps."""
    return [
        f"{growth.sweep.work} by {STYLES[growth.sweep.field][0]} ({name}: {value:.2f})"
        for growth in growths
        for name, value in growth.above_linear.items()
    ]


def collect_figures(growths: Sequence[Growth], again: Sequence[Growth], threads: int, rounds: int) -> dict[str, Any]:
    """The figures of the section: all growths, and those measured `again` with freed memory kept."""
    return {
        "rounds": rounds,
        "threads": threads,
        "base": SEARCH,
        "steps": STEPS,
        "limit": LIMIT,
        "above": list_exponents(growths),
        "table": growth_table(growths),
        "picture": PICTURE.name,
        "settings": " ".join(f"{name}={value}" for name, value in KEEP_FREED.items()),
        "above_again": list_exponents(again),
        "again": growth_table(again) if again else "",
    }


def growth_table(growths: Iterable[Growth]) -> str:
    header = ["of a", "by", "sizes", "ms", "exponent", "at the end", "MiB", "at the end", "faster than linear"]
    return format_table(header, [format_row(growth) for growth in growths])


def plot_growths(growths: Iterable[Growth], path: Any) -> None:
    """Plots time and memory over size relative to the smallest, training steps above, searches below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex=True)
    works = {"training step": panels[0], "search": panels[1]}
    for growth in growths:
        sweep = growth.sweep
        label, colour, marker = STYLES[sweep.field]
        style = {"color": colour, "marker": marker, "label": f"{label}, {format_range(sweep.sizes)}"}
        multiples = [size / sweep.first for size in sweep.sizes]
        for panel, values in zip(works[sweep.work], (growth.medians, growth.mebibytes), strict=True):
            panel.plot(multiples, values, **style)
    for work, (time_panel, memory_panel) in works.items():
        format_panel(time_panel, f"Time of a {work}", "milliseconds")
        format_panel(memory_panel, f"Memory of a {work}", "MiB over the imports")
        memory_panel.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)  # of both panels
    figure.supxlabel("size, as a multiple of the smallest")
    figure.savefig(path, dpi=100)


def format_panel(panel: Any, title: str, unit: str) -> None:
    """Sets logarithmic axes with plain numbers, and draws lines of linear growth behind the others."""
    from matplotlib.ticker import LogLocator, NullLocator

    values = [value for line in panel.get_lines() for value in line.get_ydata()]
    bottom, top = min(values) / 1.3, max(values) * 1.3
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_ylim(bottom, top)
    for start in (bottom * 4.0**i for i in range(-3, 5)):
        label = "linear growth" if start == bottom else None
        panel.axline((1, start), (2, 2 * start), color="0.75", linestyle="--", linewidth=0.8, zorder=0, label=label)
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_major_formatter("{x:,g}")
    panel.set_title(title)
    panel.set_ylabel(unit)


def main() -> None:
    args = parse_arguments(__doc__, threads=THREADS, rounds=7)
    threads = args.threads[0]

    def measure_and_print(sweep: Sweep) -> Growth:
        growth = measure_growth(sweep, threads, args.rounds)
        print(format_row(growth), flush=True)
        return growth

    growths = [measure_and_print(sweep) for sweep in SWEEPS]
    again = [measure_and_print(replace(growth.sweep, keeps=True)) for growth in growths if growth.above_linear]
    plot_growths(growths, PICTURE)
    write_section("Scaling", "scaling", **collect_figures(growths, again, threads, args.rounds))


if __name__ == "__main__":
    main()
