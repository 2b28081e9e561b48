"""What it takes to make LCSTS ready for training: the vocabulary, then the ids of every pair.

    python benchmarks/preprocessing.py [--rounds 5] [--data ../shared/data]

By the steps of `copynet-hf train`, on LCSTS's train.jsonl. Writes its section of results/benchmarks.md.
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
from measure import in_a_process, side_by_side, table, write_section

from copynet_hf.arguments import DataArguments, TokenizerArguments
from copynet_hf.model.tokenization_copynet import CopyNetTokenizer
from copynet_hf.training.dataset import encode_pairs, read_training_pairs
from copynet_hf.training.model_setup import Pairs
from copynet_hf.training.tokenizer_setup import train_tokenizer

PROCESSES = (1, 2)
PART_I = 2_400_000  # pairs that the paper trains on
LIMITS = DataArguments()


class Way(NamedTuple):
    """How texts are cut. The time of one more pair is that of `copies` of the pairs less that of one."""

    name: str
    segmenter: str
    copies: int
    with_rjieba: bool = False


WAYS = [Way("char", "char", 20), Way("jieba", "jieba", 5)]
if find_spec("rjieba"):
    WAYS.append(Way("jieba with rjieba", "jieba", 10, with_rjieba=True))


def main() -> None:
    args = _arguments()
    rows, pairs = [], 0
    with TemporaryDirectory() as folder:  # where the processes to come keep their caches
        os.environ.update(TMPDIR=folder, HF_DATASETS_CACHE=folder)
        for way in WAYS:
            pairs, seconds = in_a_process(times, way, str(args.data / "lcsts" / "train.jsonl"), args.rounds)
            for cells in _rates(way, pairs, seconds):
                rows.append([way.name, *cells])
                print(rows[-1], flush=True)
    header = ["words", "step", "processes", "pairs/s", "start-up s", f"minutes for {PART_I / 1e6} million pairs"]
    copies = ", ".join(f"{way.copies} ({way.name})" for way in WAYS)
    text = (
        f"{args.rounds} rounds; the {pairs:,} pairs of LCSTS's train.jsonl, once and so many times over: {copies}. "
        "Pairs per second are those of the copies that came on top, so that start-up stands apart; the minutes follow "
        "from both, not from a run."
    )
    write_section("Preprocessing", f"{text}\n\n{table(header, rows)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    default = Path(os.environ.get("COPYNET_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="folder that holds lcsts (%(default)s)")
    args = parser.parse_args()
    if not (args.data / "lcsts").is_dir():
        parser.error(f"{args.data} holds no lcsts: name the folder with --data or COPYNET_DATA")
    return args


def times(way: Way, file: str, rounds: int) -> tuple[int, dict[str, list[float]]]:
    """The number of pairs, and the seconds of each step over one copy and over all copies of them."""
    if not way.with_rjieba:
        sys.modules["rjieba"] = None  # type: ignore[assignment]  # importing it fails, as if it were not there
    datasets.disable_caching()
    datasets.disable_progress_bars()
    once: Any = read_training_pairs(DataArguments(train_file=file))["train"]
    words = TokenizerArguments(segmenter=way.segmenter)

    def vocabulary(pairs: Pairs) -> CopyNetTokenizer:
        return train_tokenizer(pairs, words, None, LIMITS.max_source_length)

    def ids(pairs: Pairs, processes: int) -> None:
        lengths = LIMITS.max_source_length, LIMITS.max_target_length
        encoded: Any = encode_pairs(pairs, tokenizer, *lengths, processes)
        for written in encoded.cache_files:
            Path(written["filename"]).unlink()

    tokenizer = vocabulary(once)
    calls: dict[str, Callable[[], Any]] = {}
    for size, pairs in {"once": once, "copies": datasets.concatenate_datasets([once] * way.copies)}.items():
        calls[f"vocabulary 1 {size}"] = partial(vocabulary, pairs)
        for processes in PROCESSES:
            calls[f"ids {processes} {size}"] = partial(ids, pairs, processes)
    return len(once), side_by_side(calls, rounds, warmup=0)


def _rates(way: Way, pairs: int, seconds: dict[str, list[float]]) -> list[list[Any]]:
    """For each step its name, processes, pairs per second, seconds of start-up and minutes for PART I."""
    rows = []
    for step in dict.fromkeys(name.rsplit(" ", 1)[0] for name in seconds):
        once, copies = seconds[f"{step} once"], seconds[f"{step} copies"]
        more = pairs * (way.copies - 1)
        pair = statistics.median((many - few) / more for few, many in zip(once, copies, strict=True))
        start = max(statistics.median(once) - pairs * pair, 0.0)
        rows.append([*step.split(), f"{1 / pair:,.0f}", f"{start:.1f}", f"{(start + PART_I * pair) / 60:.1f}"])
    return rows


if __name__ == "__main__":
    main()
