"""Times greedy and beam search of CopyNet through `generate()` and of the plain seq2seq through ordinary loops.

    python benchmarks/generation.py [--rounds 20]

Batch 64, source 25, 20 steps without an end symbol. "narrow" is the plain model with a tanh layer before the
vocabulary scores, as in CopyNet. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest import mock

import torch
from measure import (
    format_table,
    median_milliseconds,
    median_ratio,
    parse_arguments,
    run_in_process,
    time_side_by_side,
    write_section,
)
from plain_seq2seq import PlainSeq2Seq
from training import SYNTHETIC, make_batch, make_config

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.model.decoder import CopyNetDecoder
from copynet_hf.model.encoder import CopyNetEncoder
from copynet_hf.model.generation import ExtendedVocabularyLogitsProcessor

STEPS = 20
PARTS = {
    "encoder": (CopyNetEncoder, "forward"),
    "memory": (CopyNetDecoder, "build_memory"),
    "memory for the search": (CopyNetDecoder, "precompute_search_tables"),
    "decoder steps": (CopyNetDecoder, "forward"),
    "scores of the vocabulary": (CopyNetForConditionalGeneration, "compute_generate_scores"),
    "mixture": (CopyNetForConditionalGeneration, "compute_mixture"),
    "forbidden words": (ExtendedVocabularyLogitsProcessor, "__call__"),
    "top-k": (CopyNetForConditionalGeneration, "_get_top_k_continuations"),
}
"""The methods that a search spends its time in; the rest is the loop of Transformers."""


def build_searches(threads: int, beams: int) -> dict[str, Callable[[], None]]:
    torch.set_num_threads(threads)
    batch = make_batch(SYNTHETIC)
    sizes = (SYNTHETIC.vocab_size, SYNTHETIC.embedding, SYNTHETIC.hidden)
    model: Any = CopyNetForConditionalGeneration(make_config(SYNTHETIC)).eval()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    lengths: Any = {"max_new_tokens": STEPS, "eos_token_id": None}

    def plain_search(plain: PlainSeq2Seq) -> None:
        with torch.inference_mode():
            if beams == 1:
                plain.greedy(batch["input_ids"], batch["lengths"], STEPS, 1)
            else:
                plain.beam(batch["input_ids"], batch["lengths"], STEPS, 1, beams)

    def copynet_search() -> None:
        with torch.inference_mode():
            words = model.generate(**source, **lengths, num_beams=beams)
            assert words.shape[1] == 1 + STEPS

    plain = {name: PlainSeq2Seq(*sizes, narrow=name == "narrow").eval() for name in ("plain", "narrow")}
    return {**{name: partial(plain_search, kind) for name, kind in plain.items()}, "copynet": copynet_search}


def time_searches(threads: int, rounds: int, beams: int) -> dict[str, list[float]]:
    return time_side_by_side(build_searches(threads, beams), rounds)


def profile_search(threads: int, rounds: int, beams: int) -> dict[str, float]:
    """The share of each of `PARTS`, and of the loop around them, in the time of CopyNet's search."""
    search = build_searches(threads, beams)["copynet"]
    search()
    seconds = dict.fromkeys(PARTS, 0.0)
    with ExitStack() as patches:
        for name, (owner, method) in PARTS.items():
            timed = _add_timer(getattr(owner, method), name, seconds)
            patches.enter_context(mock.patch.object(owner, method, timed))
        start = time.perf_counter()
        for _ in range(rounds):
            search()
        total = time.perf_counter() - start
    shares = {name: value / total for name, value in seconds.items()}
    return {**shares, "Transformers' own loop": 1 - sum(shares.values())}


def _add_timer(function: Callable[..., Any], name: str, seconds: dict[str, float]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        seconds[name] += time.perf_counter() - start
        return result

    return call


def main() -> None:
    args = parse_arguments(__doc__ or "")
    rows, shares = [], {}
    for beams, name in ((1, "greedy"), (10, "beam 10")):
        for threads in args.threads:
            seconds = run_in_process(time_searches, threads, args.rounds, beams)
            shown = [f"{median_milliseconds(seconds[kind]):.0f}" for kind in ("plain", "narrow", "copynet")]
            ratios = [f"{median_ratio(seconds, 'copynet', kind):.2f}" for kind in ("plain", "narrow")]
            rows.append([name, threads, *shown, *ratios])
            shares[f"{name}, {threads} threads"] = run_in_process(profile_search, threads, args.rounds, beams)
            print(rows[-1], flush=True)
    header = ["search", "threads", "plain ms", "narrow ms", "CopyNet ms", "CopyNet / plain", "CopyNet / narrow"]
    text = f"{args.rounds} rounds, batch {SYNTHETIC.batch}, source {SYNTHETIC.source}, {STEPS} steps."
    text += f"\n\n{format_table(header, rows)}"
    parts = [*PARTS, "Transformers' own loop"]
    profile = [[part, *(f"{100 * column[part]:.0f} %" for column in shares.values())] for part in parts]
    write_section("Generation", f"{text}\n\nWhere CopyNet's time goes:\n\n{format_table(['part', *shares], profile)}")


if __name__ == "__main__":
    main()
