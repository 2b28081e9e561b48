"""Times greedy and beam search over ONNX graphs (`OnnxCopyNet`) and of the same model through `generate()`.

    python benchmarks/export.py [--rounds 20]

Batches of 64 and of 1, sources of 25 words, 20 steps without an end symbol. The matrix products are those of the same
search, as onnxruntime's profiler times them. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import measure
import numpy as np
import onnxruntime
import torch
from training import SYNTHETIC, make_batch, make_config

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.inference.onnx_export import export_onnx
from copynet_hf.inference.onnx_search import DECODER, ENCODER, OnnxCopyNet

STEPS = 20
SEARCHES = {"greedy": 1, "beam 10": 10}
BATCHES = (SYNTHETIC.batch, 1)
PRODUCTS = {"MatMul", "Gemm", "GRU"}  # and those that onnxruntime has fused with other operations


def export_model(folder: str) -> Any:
    """A new model, whose graphs are in the folder."""
    model = CopyNetForConditionalGeneration(make_config(SYNTHETIC)).eval()
    export_onnx(model, folder)
    return model


def list_searches() -> Iterator[tuple[str, dict[str, torch.Tensor], dict[str, Any]]]:
    """Title, source and options of each search."""
    batch = make_batch(SYNTHETIC)
    for rows, (name, beams) in product(BATCHES, SEARCHES.items()):
        source = {part: batch[part][:rows] for part in ("input_ids", "attention_mask")}
        yield f"{name}, {rows}", source, {"max_new_tokens": STEPS, "eos_token_id": None, "num_beams": beams}


def time_searches(threads: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of the searches by the model and over its graphs, and those of the graphs' matrix products."""
    torch.set_num_threads(threads)
    calls: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model, graphs = export_model(folder), OnnxCopyNet.from_pretrained(folder, threads)
        products = {}
        for name, source, options in list_searches():
            arrays = {part: tensor.numpy() for part, tensor in source.items()}
            pair = partial(model.generate, **source, **options), partial(graphs.generate, **arrays, **options)
            equal = np.mean(pair[0]().numpy() == pair[1]())
            assert equal > 0.95, f"{name}: {equal:.1%} of the ids are the same"  # of an untrained model, nearly tied
            calls |= zip((f"{name}, model", f"{name}, onnx"), pair, strict=True)
            products[name] = statistics.median(
                measure_products(Path(folder), threads, arrays, options) for _ in range(max(3, rounds // 4))
            )
    return measure.time_side_by_side(calls, rounds), products


def measure_products(folder: Path, threads: int, source: dict[str, Any], options: dict[str, Any]) -> float:
    """Seconds that a search over the graphs spends in matrix products."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.enable_profiling = threads, True
    settings.profile_file_prefix = str(folder / "profile")
    sessions = [onnxruntime.InferenceSession(folder / name, settings) for name in (ENCODER, DECODER)]
    configs = (json.loads((folder / name).read_text()) for name in ("config.json", "generation_config.json"))
    OnnxCopyNet(*sessions, *configs).generate(**source, **options)
    events = [event for each in sessions for event in json.loads(Path(each.end_profiling()).read_text())]
    kernels = (event for event in events if event["name"].endswith("_kernel_time"))
    return sum(each["dur"] for each in kernels if each["args"]["op_name"].removeprefix("Fused") in PRODUCTS) / 1e6


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    rows = []
    for threads in args.threads:
        seconds, products = measure.run_in_process(time_searches, threads, args.rounds)
        for name in products:
            model, onnx = (f"{name}, {kind}" for kind in ("model", "onnx"))
            shown = measure.format_times(seconds, (model, onnx))
            relative = statistics.median(seconds[onnx]) / products[name]
            shown += [measure.format_ratio(seconds, onnx, model), f"{1e3 * products[name]:.1f}", f"{relative:.2f}"]
            rows.append([*name.split(", "), threads, *shown])
            print(rows[-1], flush=True)
    header = ["search", "batch", "threads", "generate() ms", "ONNX ms", "ONNX / generate()"]
    header += ["products ms", "ONNX / products"]
    table = measure.format_table(header, rows)
    measure.write_section("ONNX", "onnx", rounds=args.rounds, task=SYNTHETIC, steps=STEPS, table=table)


if __name__ == "__main__":
    main()
