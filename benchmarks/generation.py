"""Times greedy and beam search of CopyNet through `generate()` and of the plain seq2seq through ordinary loops.

    python benchmarks/generation.py [--rounds 20]

Batch 64, source 25, 20 steps without an end symbol. "narrow" is the plain model with a tanh layer before the
vocabulary scores, as in CopyNet. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import measure
import torch
from plain_seq2seq import PlainSeq2Seq
from training import SYNTHETIC, Task, make_batch, make_config

from copynet_hf import CopyNetForConditionalGeneration

STEPS = 20


def build_plain_search(task: Task, beams: int, narrow: bool = False, device: str = "cpu") -> Callable[[], None]:
    model: Any = PlainSeq2Seq(task.vocab_size, task.embedding, task.hidden, narrow).eval().to(device)
    batch = make_batch(task)
    source = batch["input_ids"].to(device)

    def search() -> None:
        with torch.inference_mode():
            if beams == 1:
                model.greedy(source, batch["lengths"], STEPS, 1)
            else:
                model.beam(source, batch["lengths"], STEPS, 1, beams)

    return search


def build_copynet_search(task: Task, beams: int, device: str = "cpu", use_fused: bool = True) -> Callable[[], None]:
    model: Any = CopyNetForConditionalGeneration(make_config(task, use_fused)).eval().to(device)
    batch = make_batch(task)
    source = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}

    def search() -> None:
        words = model.generate(**source, max_new_tokens=STEPS, eos_token_id=None, num_beams=beams)
        assert words.shape[1] == 1 + STEPS

    return search


def time_searches(threads: int, rounds: int, beams: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    calls = {name: build_plain_search(SYNTHETIC, beams, name == "narrow") for name in ("plain", "narrow")}
    return measure.time_side_by_side(calls | {"copynet": build_copynet_search(SYNTHETIC, beams)}, rounds)


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    rows = []
    for beams, name in ((1, "greedy"), (10, "beam 10")):
        for threads in args.threads:
            seconds = measure.run_in_process(time_searches, threads, args.rounds, beams)
            ratios = [measure.format_ratio(seconds, "copynet", kind) for kind in ("plain", "narrow")]
            rows.append([name, threads, *measure.format_times(seconds, ("plain", "narrow", "copynet")), *ratios])
            print(rows[-1], flush=True)
    header = ["search", "threads", "plain ms", "narrow ms", "CopyNet ms", "CopyNet / plain", "CopyNet / narrow"]
    table = measure.format_table(header, rows)
    measure.write_section("Generation", "generation", rounds=args.rounds, task=SYNTHETIC, steps=STEPS, table=table)


if __name__ == "__main__":
    main()
