"""The fast form of the equations relative to the readable one, for small and for large layers.

    python benchmarks/forms.py [--rounds 20]

A training step (forward, backward, Adam), and searches of 20 steps through `generate()`. A fifth of the source words
are out of vocabulary, some of them repeated. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import measure
import torch
from torch import Tensor

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.training.presets import DEFAULT_SIZES

VOCAB_SIZE, SLOTS, SOURCE, TARGET = 3_000, 16, 25, 20
SIZES: dict[str, dict[str, Any]] = {
    "default": DEFAULT_SIZES,
    "paper's LCSTS": {"embedding_size": 350, "hidden_size": 500, "encoder_hidden_size": 500, "attention_size": 500},
}
SEARCHES = {"greedy": 1, "beam 4": 4, "beam 10": 10}


def make_models(sizes: str) -> dict[str, CopyNetForConditionalGeneration]:
    """The same weights in both forms."""
    torch.manual_seed(0)
    models = {}
    for name in ("readable", "fast"):
        fields: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "max_source_oov": SLOTS, "use_fused": name == "fast"}
        models[name] = CopyNetForConditionalGeneration(CopyNetConfig(**SIZES[sizes], **fields))
    models["fast"].load_state_dict(models["readable"].state_dict())
    return models


def make_source(batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(4, VOCAB_SIZE, (batch, SOURCE), generator=generator)
    slots = VOCAB_SIZE + torch.randint(0, SLOTS // 2, (batch, SOURCE), generator=generator)
    return torch.where(torch.rand(batch, SOURCE, generator=generator) < 0.2, slots, words)


def time_training(threads: int, rounds: int, sizes: str, batch: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    source = make_source(batch)
    batch = {"input_ids": source, "labels": source[:, :TARGET].contiguous()}
    steps = {name: measure.build_training_step(model, batch) for name, model in make_models(sizes).items()}
    return measure.time_side_by_side(steps, rounds)


def time_search(threads: int, rounds: int, sizes: str, batch: int, beams: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    source = make_source(batch)

    def make_search(model: Any) -> Callable[[], None]:
        def search() -> None:
            with torch.inference_mode():
                model.eval().generate(source, max_new_tokens=TARGET, eos_token_id=None, num_beams=beams)

        return search

    return measure.time_side_by_side({name: make_search(model) for name, model in make_models(sizes).items()}, rounds)


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    rows = []
    for sizes, batch in product(SIZES, (1, 64)):
        for threads in args.threads if sizes == "default" else args.threads[:1]:
            measured = {"training step": measure.run_in_process(time_training, threads, args.rounds, sizes, batch)}
            for name, beams in SEARCHES.items():
                measured[name] = measure.run_in_process(time_search, threads, args.rounds, sizes, batch, beams)
            for name, seconds in measured.items():
                shown = measure.format_times(seconds, ("readable", "fast"))
                rows.append([sizes, name, batch, threads, *shown, measure.format_ratio(seconds, "fast", "readable")])
                print(rows[-1], flush=True)
    header = ["sizes", "workload", "batch", "threads", "readable ms", "fast ms", "fast / readable"]
    sizes = {"source": SOURCE, "target": TARGET, "vocab_size": VOCAB_SIZE}
    table = measure.format_table(header, rows)
    measure.write_section("Two forms", "forms", rounds=args.rounds, table=table, **sizes)


if __name__ == "__main__":
    main()
