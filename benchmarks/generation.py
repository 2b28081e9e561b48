"""Times greedy and beam search of CopyNet through `generate()` and of the plain seq2seq through ordinary loops.

    python benchmarks/generation.py [--rounds 20]

Batch 64, source 25, 20 steps without an end symbol. "narrow" is the plain model with a tanh layer before the
vocabulary scores, as in CopyNet. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import measure
import torch
from plain_seq2seq import PlainSeq2Seq
from training import SYNTHETIC, Task, make_batch, make_config

from copynet_hf import CopyNetForConditionalGeneration

STEPS = 20


def build_searches(
    task: Task, beams: int, device: str = "cpu", use_fused: bool = True
) -> dict[str, Callable[[], None]]:
    """The searches of the models, by their names."""
    batch = make_batch(task)
    sizes = (task.vocab_size, task.embedding, task.hidden)
    model: Any = CopyNetForConditionalGeneration(make_config(task, use_fused)).eval().to(device)
    source = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
    lengths: Any = {"max_new_tokens": STEPS, "eos_token_id": None}

    def plain_search(plain: PlainSeq2Seq) -> None:
        with torch.inference_mode():
            if beams == 1:
                plain.greedy(source["input_ids"], batch["lengths"], STEPS, 1)
            else:
                plain.beam(source["input_ids"], batch["lengths"], STEPS, 1, beams)

    def copynet_search() -> None:
        words = model.generate(**source, **lengths, num_beams=beams)
        assert words.shape[1] == 1 + STEPS

    plain = {name: PlainSeq2Seq(*sizes, narrow=name == "narrow").eval().to(device) for name in ("plain", "narrow")}
    calls = {name: partial(plain_search, kind) for name, kind in plain.items()}
    return {**calls, "copynet": copynet_search}


def time_searches(threads: int, rounds: int, beams: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    return measure.time_side_by_side(build_searches(SYNTHETIC, beams), rounds)


def main() -> None:
    args = measure.parse_arguments(__doc__)
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
