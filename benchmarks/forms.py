"""The fast form of the equations relative to the readable one, for small and for large layers.

    python benchmarks/forms.py [--rounds 20]

A training step (forward, backward, Adam), and searches of 20 steps through `generate()`. A fifth of the source words
are out of vocabulary, some of them repeated. "Not projected" is the fast form without the projected memory, the table
that a search precomputes. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from itertools import product
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
from torch import Tensor

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.model import fused_step
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
    labels = source[:, :TARGET].contiguous()

    def make_step(model: CopyNetForConditionalGeneration) -> Callable[[], None]:
        optimizer = torch.optim.Adam(model.train().parameters(), fused=True)

        def step() -> None:
            optimizer.zero_grad()
            model(input_ids=source, labels=labels, num_items_in_batch=labels.numel()).loss.backward()
            optimizer.step()

        return step

    return time_side_by_side({name: make_step(model) for name, model in make_models(sizes).items()}, rounds)


def time_search(threads: int, rounds: int, sizes: str, batch: int, beams: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    source = make_source(batch)

    def make_search(model: Any) -> Callable[[], None]:
        def search() -> None:
            with torch.inference_mode():
                model.eval().generate(source, max_new_tokens=TARGET, eos_token_id=None, num_beams=beams)

        return search

    searches = {name: make_search(model) for name, model in make_models(sizes).items()}
    fast = searches["fast"]

    def search_without_projection() -> None:
        with not_projected():
            fast()

    return time_side_by_side({**searches, "not projected": search_without_projection}, rounds)


@contextmanager
def not_projected() -> Any:
    with mock.patch.object(fused_step, "_EXPECTED_WORDS", 0):
        yield


def main() -> None:
    args = parse_arguments(__doc__ or "")
    rows = []
    for sizes, batch in product(SIZES, (1, 64)):
        for threads in args.threads if sizes == "default" else args.threads[:1]:
            measured = {"training step": run_in_process(time_training, threads, args.rounds, sizes, batch)}
            for name, beams in SEARCHES.items():
                measured[name] = run_in_process(time_search, threads, args.rounds, sizes, batch, beams)
            for name, seconds in measured.items():
                shown = [f"{median_milliseconds(seconds[form]):.0f}" for form in ("readable", "fast")]
                ratios = [f"{median_ratio(seconds, 'fast', 'readable'):.2f}"]
                is_search = name in SEARCHES
                ratios.append(f"{median_ratio(seconds, 'not projected', 'readable'):.2f}" if is_search else "")
                rows.append([sizes, name, batch, threads, *shown, *ratios])
                print(rows[-1], flush=True)
    header = ["sizes", "workload", "batch", "threads", "readable ms", "fast ms", "fast / readable"]
    header.append("not projected / readable")
    text = f"{args.rounds} rounds, source {SOURCE}, target {TARGET}, vocabulary {VOCAB_SIZE:,}. Default sizes are "
    text += "those of `copynet-hf train`."
    write_section("Two forms", f"{text}\n\n{format_table(header, rows)}")


if __name__ == "__main__":
    main()
