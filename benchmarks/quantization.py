"""Exact match, size and speed of exported models with weights of 8 bits and of 32.

    python benchmarks/quantization.py --task NAME MODEL PAIRS [--task ...] [--pairs 500] [--rounds 5] [--threads 1]

A task is its name, a folder with a trained model, and a file of pairs that it was not trained on. Writes its section
of results/benchmarks.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from measure import (
    THREADS,
    format_table,
    median_milliseconds,
    median_ratio,
    parse_arguments,
    time_side_by_side,
    write_section,
)

from copynet_hf import load_pairs
from copynet_hf.inference.onnx_export import export_onnx
from copynet_hf.inference.onnx_search import DECODER, ENCODER, OnnxCopyNet
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.saved.loading import load_copynet, load_tokenizer

SEARCHES = {"greedy": 1, "beam 4": 4}
REPORTED_LOSS = 0.3  # points of exact match
HEADER = ("float32 MB", "int8 MB", "float32 EM", "int8 EM")


class Compared(NamedTuple):
    """One search with one batch size, by both models.

    megabytes: of the graphs, float32 and int8. exact_matches, equal: in percent of the texts. seconds: of all texts,
    in each round.
    """

    search: str
    batch: int
    megabytes: tuple[float, float]
    exact_matches: tuple[float, float]
    equal: float
    seconds: dict[str, list[float]]


def compare(
    model: str, sources: Sequence[str], targets: Sequence[str], batches: Sequence[int], threads: int, rounds: int
) -> list[Compared]:
    """Exports the model twice, and runs both exports in turns."""
    tokenizer: Any = load_tokenizer(model)
    onnx, megabytes = {}, []
    for name, quantize in (("float32", None), ("int8", "int8")):
        with tempfile.TemporaryDirectory() as folder:
            export_onnx(load_copynet(model), folder, quantize=quantize)
            onnx[name] = OnnxCopyNet.from_pretrained(folder, threads)
            megabytes.append(sum(Path(folder, file).stat().st_size for file in (ENCODER, DECODER)) / 1e6)
    found = []
    for batch in batches:
        for search, beams in SEARCHES.items():
            options: Any = {"num_beams": beams, "batch_size": batch}
            outputs: dict[str, list[str]] = {}

            def run(name: str, graphs: OnnxCopyNet, options: Any = options, outputs: Any = outputs) -> None:
                predictions = predict_in_batches(graphs, tokenizer, sources, **options)
                outputs[name] = [best.text for (best, *_) in predictions]

            seconds = time_side_by_side({name: partial(run, name, graphs) for name, graphs in onnx.items()}, rounds, 0)
            exact = [_percent(outputs[name], targets) for name in onnx]
            equal = _percent(outputs["float32"], outputs["int8"])
            found.append(Compared(search, batch, (megabytes[0], megabytes[1]), (exact[0], exact[1]), equal, seconds))
            print(found[-1], flush=True)
    return found


def _percent(texts: Sequence[str], others: Sequence[str]) -> float:
    """The share of equal texts."""
    return 100 * sum(text == other for text, other in zip(texts, others, strict=True)) / len(texts)


def collect_figures(tasks: dict[str, list[Compared]], texts: int) -> dict[str, Any]:
    """A table of exact match and sizes, one of speeds, and what int8 loses."""
    scores, speeds, losses = [], [], []
    for name, compared in tasks.items():
        for each in compared:
            (size, int8_size), (exact, int8_exact) = each.megabytes, each.exact_matches
            change = round(int8_exact - exact, 2)
            shown = [f"{size:.1f}", f"{int8_size:.1f}", f"{exact:.1f}", f"{int8_exact:.1f}", f"{change:+.1f}"]
            scores.append([name, each.search, each.batch, *shown, f"{each.equal:.1f} %"])
            rates = [1e3 * texts / median_milliseconds(each.seconds[kind]) for kind in ("float32", "int8")]
            ratio = 1 / median_ratio(each.seconds, "int8", "float32")
            speeds.append([name, each.search, each.batch, *(f"{rate:.0f}" for rate in rates), f"{ratio:.2f}"])
            if change < -REPORTED_LOSS:
                losses.append(f"{name}, {each.search}, batch {each.batch} ({change:+.1f})")
    names = ["task", "search", "batch"]
    return {
        "texts": texts,
        "scores": format_table([*names, *HEADER, "change", "same outputs"], scores),
        "speeds": format_table([*names, "float32 texts/s", "int8 texts/s", "int8 / float32"], speeds),
        "losses": losses,
        "limit": REPORTED_LOSS,
    }


def main() -> None:
    args = parse_arguments(
        __doc__,
        threads=THREADS,
        rounds=5,
        task={"nargs": 3, "action": "append", "required": True, "metavar": ("NAME", "MODEL", "PAIRS")},
        pairs={"type": int, "default": 500},
        batches={"type": int, "nargs": "+", "default": [32, 1]},
        note={"default": "", "help": "a sentence about the tasks, for the page"},
    )
    threads, tasks = args.threads[0], {}
    for name, model, file in args.task:
        pairs = load_pairs(test_file=file)["test"].select(range(args.pairs))
        sources, targets = (list(pairs[column]) for column in ("text", "summary"))
        tasks[name] = compare(model, sources, targets, args.batches, threads, args.rounds)
    options = {"note": args.note, "rounds": args.rounds, "threads": threads}
    write_section("int8", "int8", **collect_figures(tasks, args.pairs), **options)


if __name__ == "__main__":
    main()
