"""Times training steps and searches on a CUDA GPU, of both forms of CopyNet and of a plain seq2seq without copying.

    python benchmarks/gpu.py [--rounds 20] [--threads 8]

The tasks are those of training.py and generation.py; `--threads` is for the same steps on the processor, in float32.
Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import measure
import torch
from generation import STEPS, build_copynet_search, build_plain_search
from training import SYNTHETIC, TASKS, Task, build_copynet_step, build_plain_step

BATCHES = (16, 64, 256)
BY_DEFAULT = [replace(task, batch=batch) for task in TASKS if task.by_default for batch in BATCHES]


def finish(call: Callable[[], Any]) -> None:
    """Calls and waits for what the call has left to the GPU."""
    call()
    torch.cuda.synchronize()


def on_gpu(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Callable[[], None]]:
    return {name: partial(finish, call) for name, call in calls.items()}


def time_training(task: Task, rounds: int, threads: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    calls: dict[str, Callable[[], Any]] = {"plain": build_plain_step(task, device="cuda")}
    for name, fields in (("readable", {"use_fused": False}), ("fast", {}), ("bf16", {"bf16": True})):
        calls[name] = build_copynet_step(task, device="cuda", **fields)
    return measure.time_side_by_side(on_gpu(calls) | {"CPU": build_copynet_step(task)}, rounds)


def time_search(task: Task, rounds: int, threads: int, beams: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    calls = {"plain": build_plain_search(task, beams, device="cuda")}
    calls |= {name: build_copynet_search(task, beams, "cuda", name == "fast") for name in ("readable", "fast")}
    return measure.time_side_by_side(on_gpu(calls) | {"CPU": build_copynet_search(task, beams)}, rounds)


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no CUDA GPU: run this where there is one")
    threads = args.threads[-1]
    steps, searches = [], []
    for task in BY_DEFAULT:
        seconds = time_training(task, args.rounds, threads)
        ratios = [measure.format_ratio(seconds, *pair) for pair in (("fast", "readable"), ("fast", "plain"))]
        steps.append([task.name, task.batch, *measure.format_times(seconds, seconds), *ratios])
        print(steps[-1], flush=True)
    for beams, name in ((1, "greedy"), (10, "beam 10")):
        for batch in (1, *BATCHES):
            task = replace(SYNTHETIC, batch=batch)
            seconds = time_search(task, args.rounds, threads, beams)
            ratios = [measure.format_ratio(seconds, *pair) for pair in (("fast", "readable"), ("fast", "plain"))]
            searches.append([name, batch, *measure.format_times(seconds, seconds), *ratios])
            print(searches[-1], flush=True)
    ratios = ["fast / readable", "fast / plain"]
    step_header = ["task", "batch", "plain ms", "readable ms", "fast ms", "bf16 ms", "CPU ms", *ratios]
    search_header = ["search", "batch", "plain ms", "readable ms", "fast ms", "CPU ms", *ratios]
    measure.write_section(
        "On a GPU",
        "gpu",
        rounds=args.rounds,
        threads=threads,
        gpu=torch.cuda.get_device_name(),
        length=STEPS,
        steps=measure.format_table(step_header, steps),
        searches=measure.format_table(search_header, searches),
    )


if __name__ == "__main__":
    main()
