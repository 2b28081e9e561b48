"""Times the preprocessing of LCSTS: building the vocabulary, then encoding every pair.

    python benchmarks/preprocessing.py [--rounds 5] [--data ../shared/data]

Runs the steps of `copynet-hf train` on LCSTS's train.jsonl. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import datasets
from measure import format_table, parse_arguments, run_in_process, time_side_by_side, write_section

from copynet_hf.arguments import MAX_TARGET_LENGTH, TrainArguments
from copynet_hf.model.tokenization_copynet import CopyNetTokenizer
from copynet_hf.training.dataset import encode_pairs, read_training_pairs
from copynet_hf.training.model_setup import Pairs
from copynet_hf.training.tokenizer_setup import train_tokenizer

PROCESSES = (1, 2)
PART_I = 2_400_000  # training pairs of the paper


class Segmentation(NamedTuple):
    """A segmenter to time. The time per pair is the difference between `copies` copies of the pairs and one."""

    name: str
    copies: int


SEGMENTATIONS = [Segmentation("char", 20), Segmentation("jieba", 5)]


def main() -> None:
    default = Path(os.environ.get("COPYNET_DATA", "../shared/data"))
    data = {"type": Path, "default": default, "help": "folder that contains lcsts (%(default)s)"}
    args = parse_arguments(__doc__, rounds=5, data=data)
    file = str(args.data / "lcsts" / "train.jsonl")
    rows, pairs = [], 0
    with TemporaryDirectory() as folder:  # for the caches of the worker processes
        os.environ.update(TMPDIR=folder, HF_DATASETS_CACHE=folder)
        for segmentation in SEGMENTATIONS:
            pairs, seconds = run_in_process(time_steps, segmentation, file, args.rounds)
            for cells in _compute_rates(segmentation, pairs, seconds):
                rows.append([segmentation.name, *cells])
                print(rows[-1], flush=True)
    header = ["words", "step", "processes", "pairs/s", "start-up s", f"minutes for {PART_I / 1e6} million pairs"]
    copies = ", ".join(f"{each.copies} ({each.name})" for each in SEGMENTATIONS)
    figures = {"rounds": args.rounds, "pairs": pairs, "copies": copies, "table": format_table(header, rows)}
    write_section("Preprocessing", "preprocessing", **figures)


def time_steps(segmentation: Segmentation, file: str, rounds: int) -> tuple[int, dict[str, list[float]]]:
    """The number of pairs, and the seconds of each step on one copy of them and on all copies."""
    datasets.disable_caching()
    datasets.disable_progress_bars()
    arguments = TrainArguments(train_file=file, segmenter=segmentation.name)
    once: Any = read_training_pairs(arguments)["train"]

    def build_vocabulary(pairs: Pairs) -> CopyNetTokenizer:
        return train_tokenizer(pairs, arguments)

    def encode(pairs: Pairs, processes: int) -> None:
        encoded: Any = encode_pairs(pairs, tokenizer, MAX_TARGET_LENGTH, processes)
        for cache_file in encoded.cache_files:
            Path(cache_file["filename"]).unlink()

    tokenizer = build_vocabulary(once)
    calls: dict[str, Callable[[], Any]] = {}
    for size, pairs in {"once": once, "copies": datasets.concatenate_datasets([once] * segmentation.copies)}.items():
        calls[f"vocabulary 1 {size}"] = partial(build_vocabulary, pairs)
        for processes in PROCESSES:
            calls[f"ids {processes} {size}"] = partial(encode, pairs, processes)
    return len(once), time_side_by_side(calls, rounds, warmup=0)


def _compute_rates(segmentation: Segmentation, pairs: int, seconds: dict[str, list[float]]) -> list[list[Any]]:
    """For each step: name, processes, pairs per second, seconds of start-up, minutes for PART I."""
    rows = []
    for step in dict.fromkeys(name.rsplit(" ", 1)[0] for name in seconds):
        once, copies = seconds[f"{step} once"], seconds[f"{step} copies"]
        additional = pairs * (segmentation.copies - 1)
        per_pair = statistics.median((many - few) / additional for few, many in zip(once, copies, strict=True))
        start = max(statistics.median(once) - pairs * per_pair, 0.0)
        rows.append([*step.split(), f"{1 / per_pair:,.0f}", f"{start:.1f}", f"{(start + PART_I * per_pair) / 60:.1f}"])
    return rows


if __name__ == "__main__":
    main()
