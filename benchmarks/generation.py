"""Times greedy and beam search of CopyNet through `generate()` and of the plain seq2seq through ordinary loops.

    python benchmarks/generation.py [--rounds 20]

Batch 64, source 25, 20 steps without an end symbol. "narrow" is the plain model with a tanh layer before the
vocabulary scores, as in CopyNet. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import measure
import torch
from plain_seq2seq import PlainSeq2Seq
from training import SYNTHETIC, make_batch, make_config

from copynet_hf import CopyNetForConditionalGeneration

STEPS = 20


def time_searches(threads: int, rounds: int, beams: int) -> dict[str, list[float]]:
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
        words = model.generate(**source, **lengths, num_beams=beams)
        assert words.shape[1] == 1 + STEPS

    plain = {name: PlainSeq2Seq(*sizes, narrow=name == "narrow").eval() for name in ("plain", "narrow")}
    calls = {name: partial(plain_search, kind) for name, kind in plain.items()}
    return measure.time_side_by_side({**calls, "copynet": copynet_search}, rounds)


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
