"""Times greedy and beam search over ONNX graphs (`OnnxCopyNet`) and of the same model through `generate()`.

    python benchmarks/export.py [--rounds 20]

Batches of 64 and of 1, sources of 25 words, 20 steps without an end symbol. Writes its section of
results/benchmarks.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
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
from training import SYNTHETIC, make_batch, make_config

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.inference.onnx_export import export_onnx
from copynet_hf.inference.onnx_search import OnnxCopyNet

STEPS = 20
SEARCHES = {"greedy": 1, "beam 10": 10}
BATCHES = (SYNTHETIC.batch, 1)


def build_searches(threads: int) -> dict[str, Callable[[], Any]]:
    """The searches of each batch size, by the model and over its graphs."""
    torch.set_num_threads(threads)
    model: Any = CopyNetForConditionalGeneration(make_config(SYNTHETIC)).eval()
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(model, folder)
        graphs = OnnxCopyNet.from_pretrained(folder, threads)
    batch = make_batch(SYNTHETIC)
    calls: dict[str, Callable[[], Any]] = {}
    for rows, (name, beams) in product(BATCHES, SEARCHES.items()):
        source = {part: batch[part][:rows] for part in ("input_ids", "attention_mask")}
        arrays = {part: tensor.numpy() for part, tensor in source.items()}
        options: Any = {"max_new_tokens": STEPS, "eos_token_id": None, "num_beams": beams}
        pair = partial(model.generate, **source, **options), partial(graphs.generate, **arrays, **options)
        equal = np.mean(pair[0]().numpy() == pair[1]())
        assert equal > 0.99, f"{name}: {equal:.1%} of the ids are the same"  # ties may be broken differently
        calls |= zip((f"{name}, {rows}, model", f"{name}, {rows}, onnx"), pair, strict=True)
    return calls


def time_searches(threads: int, rounds: int) -> dict[str, list[float]]:
    return time_side_by_side(build_searches(threads), rounds)


def main() -> None:
    args = parse_arguments(__doc__ or "")
    rows = []
    for threads in args.threads:
        seconds = run_in_process(time_searches, threads, args.rounds)
        for batch, name in product(BATCHES, SEARCHES):
            model, onnx = (f"{name}, {batch}, {kind}" for kind in ("model", "onnx"))
            shown = [f"{median_milliseconds(seconds[kind]):.0f}" for kind in (model, onnx)]
            rows.append([name, batch, threads, *shown, f"{median_ratio(seconds, onnx, model):.2f}"])
            print(rows[-1], flush=True)
    header = ["search", "batch", "threads", "generate() ms", "ONNX ms", "ONNX / generate()"]
    text = f"{args.rounds} rounds, source {SYNTHETIC.source}, {STEPS} steps."
    write_section("ONNX", f"{text}\n\n{format_table(header, rows)}")


if __name__ == "__main__":
    main()
