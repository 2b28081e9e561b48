"""Greedy search and beams of CopyNet through `generate()`, beside the plain seq2seq's ordinary loops.

    python benchmarks/generation.py [--rounds 20]

Batch 64, source 25, 20 steps, none of which ends early. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from typing import Any

import torch
from measure import arguments, in_a_process, milliseconds, ratio, side_by_side, table, write_section
from plain_seq2seq import PlainSeq2Seq
from training import SYNTHETIC, copynet_config, make_batch

from copynet_hf import CopyNetForConditionalGeneration

STEPS = 20


def times(threads: int, rounds: int, beams: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    batch = make_batch(SYNTHETIC)
    plain = PlainSeq2Seq(SYNTHETIC.vocab_size, SYNTHETIC.embedding, SYNTHETIC.hidden).eval()
    model: Any = CopyNetForConditionalGeneration(copynet_config(SYNTHETIC)).eval()
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    lengths: Any = {"max_new_tokens": STEPS, "eos_token_id": None}

    def plain_search() -> None:
        if beams == 1:
            plain.greedy(batch["input_ids"], batch["lengths"], STEPS, 1)
        else:
            plain.beam(batch["input_ids"], batch["lengths"], STEPS, 1, beams)

    def copynet_search() -> None:
        with torch.inference_mode():
            words = model.generate(**source, **lengths, num_beams=beams)
            assert words.shape[1] == 1 + STEPS

    return side_by_side({"plain": plain_search, "copynet": copynet_search}, rounds)


def main() -> None:
    args = arguments(__doc__ or "")
    rows = []
    for beams in (1, 10):
        for threads in args.threads:
            seconds = in_a_process(times, threads, args.rounds, beams)
            shown = [f"{milliseconds(seconds[name]):.0f}" for name in ("plain", "copynet")]
            name = "greedy" if beams == 1 else f"beam {beams}"
            rows.append([name, threads, *shown, f"{ratio(seconds, 'copynet', 'plain'):.2f}"])
            print(rows[-1], flush=True)
    header = ["search", "threads", "plain ms", "CopyNet ms", "ratio"]
    text = f"{args.rounds} rounds, batch {SYNTHETIC.batch}, source {SYNTHETIC.source}, {STEPS} steps."
    write_section("Generation", f"{text}\n\n{table(header, rows)}")


if __name__ == "__main__":
    main()
