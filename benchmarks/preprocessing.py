"""Times the preprocessing of LCSTS: building the vocabulary, then encoding every pair.

    python benchmarks/preprocessing.py [--rounds 5] [--data ../shared/data]

Runs the steps of `copynet-hf train` on LCSTS's train.jsonl. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import datasets
from measure import format_table, run_in_process, time_side_by_side, write_section

from copynet_hf.arguments import DataArguments, TokenizerArguments
from copynet_hf.model.tokenization_copynet import CopyNetTokenizer
from copynet_hf.training.dataset import encode_pairs, read_training_pairs
from copynet_hf.training.defaults import choose_tokenizer_settings
from copynet_hf.training.model_setup import Pairs
from copynet_hf.training.tokenizer_setup import train_tokenizer

PROCESSES = (1, 2)
PART_I = 2_400_000  # training pairs of the paper
LIMITS = DataArguments()


class Segmentation(NamedTuple):
    """A segmenter to time. The time per pair is the difference between `copies` copies of the pairs and one."""

    name: str
    segmenter: str
    copies: int
    with_rjieba: bool = False


SEGMENTATIONS = [Segmentation("char", "char", 20), Segmentation("jieba", "jieba", 5)]
if find_spec("rjieba"):
    SEGMENTATIONS.append(Segmentation("jieba with rjieba", "jieba", 10, with_rjieba=True))


def main() -> None:
    args = _parse_arguments()
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
    text = (
        f"{args.rounds} rounds; the {pairs:,} pairs of LCSTS's train.jsonl, once and so many times over: {copies}. "
        "Pairs per second are those of the copies that came on top, so that start-up stands apart; the minutes follow "
        "from both, not from a run."
    )
    write_section("Preprocessing", f"{text}\n\n{format_table(header, rows)}")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    default = Path(os.environ.get("COPYNET_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="folder that contains lcsts (%(default)s)")
    args = parser.parse_args()
    if not (args.data / "lcsts").is_dir():
        parser.error(f"{args.data / 'lcsts'} is missing: name its parent folder with --data or COPYNET_DATA")
    return args


def time_steps(segmentation: Segmentation, file: str, rounds: int) -> tuple[int, dict[str, list[float]]]:
    """The number of pairs, and the seconds of each step on one copy of them and on all copies."""
    if not segmentation.with_rjieba:
        sys.modules["rjieba"] = None  # type: ignore[assignment]  # makes its import fail, as if it were not installed
    datasets.disable_caching()
    datasets.disable_progress_bars()
    once: Any = read_training_pairs(DataArguments(train_file=file))["train"]
    arguments = TokenizerArguments(segmenter=segmentation.segmenter)

    def build_vocabulary(pairs: Pairs) -> CopyNetTokenizer:
        return train_tokenizer(pairs, choose_tokenizer_settings(arguments, pairs), LIMITS.max_source_length)

    def encode(pairs: Pairs, processes: int) -> None:
        lengths = LIMITS.max_source_length, LIMITS.max_target_length
        encoded: Any = encode_pairs(pairs, tokenizer, *lengths, processes)
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
