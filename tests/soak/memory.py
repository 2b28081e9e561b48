"""Searches and training steps of varied shapes: memory stays flat, and threads that share a model do not disturb it.

python tests/soak/memory.py --rounds 2000
"""

from __future__ import annotations

import gc
import random
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import Check, fitted_growth, parse_arguments, resident_bytes

import torch  # isort: skip - after harness, which sets the number of threads
from helpers import POINTER, padded, tiny_model

from copynet_hf import CopyNetForConditionalGeneration

SEARCHES = """`generate` with 1 to 12 rows of 1 to 120 words, 1 to 5 beams, sampling or not, and up to 20 new words,
over one model of each mechanism."""
STEPS = """Forward, backward and an AdamW step on 1 to 12 rows of 1 to 120 words, with one model of each mechanism."""
FLAT = """ The resident memory is measured after each round. A line fitted to the second half of the measurements
may rise by at most 8 MiB."""
THREADS = """Eight threads share one model and search with different inputs; each output must be the one that the
same search gives alone."""
LIMIT_MIB = 8.0
MECHANISMS: tuple[dict[str, Any], ...] = (
    {"use_coverage": True},
    {"copy_mechanism": "pointer_generator"},
    {"copy_mechanism": "gated"},
    {"copy_mechanism": "none"},
    {"copy_mechanism": "retrieval"},
    POINTER,
)


def build_models() -> list[CopyNetForConditionalGeneration]:
    sizes = {"embedding_size": 32, "hidden_size": 48, "encoder_hidden_size": 24, "attention_size": 32}
    return [tiny_model(seed=seed, **sizes, **fields) for seed, fields in enumerate(MECHANISMS)]


def draw_batch(draw: random.Random, config: Any, with_labels: bool) -> dict[str, torch.Tensor]:
    """A batch of a random shape."""
    words = list(range(3, config.vocab_size + config.max_source_oov))
    longest = draw.choice([5, 30, 120])
    sources = [draw.choices(words, k=draw.randint(1, longest)) for _ in range(draw.randint(1, 12))]
    source = padded(sources, config.pad_token_id)
    batch = {"input_ids": source, "attention_mask": (source != config.pad_token_id).long()}
    if with_labels:
        targets = [[*draw.choices(row, k=draw.randint(1, 20)), 2] for row in sources]
        batch["labels"] = padded(targets, -100)
    return batch


def search(model: CopyNetForConditionalGeneration, draw: random.Random, samples: bool = False) -> torch.Tensor:
    batch = draw_batch(draw, model.config, with_labels=False)
    options = {"num_beams": draw.choice([1, 2, 5]), "max_new_tokens": draw.randint(1, 20), "do_sample": samples}
    return model.generate(**batch, **options)


def measure_memory(name: str, what: str, arguments: Namespace, run_round: Callable[[int], None]) -> bool:
    """Runs the rounds, and writes the row; returns whether memory grew."""
    end, sizes = time.monotonic() + 60 * arguments.minutes, []
    with Check(name, what + FLAT, arguments) as check:
        for number in range(arguments.rounds):
            if time.monotonic() > end:
                break
            run_round(number)
            sizes.append(resident_bytes())
        gc.collect()
        growth = fitted_growth(sizes)
        check.passed(len(sizes))
        # a handful of rounds is all warming up
        if len(sizes) >= 200 and growth > LIMIT_MIB:
            check.failed = 1
            check.kinds["the fitted line rises"] = 1
        check.figure = f"{growth:+.1f} MiB over the second half, {sizes[-1] / 2**20:.0f} MiB at the end"
    return check.failed > 0


def check_threads(arguments: Namespace) -> bool:
    models, rounds = build_models(), max(8, min(arguments.rounds, 400))
    with Check("eight threads", THREADS, arguments) as check, ThreadPoolExecutor(8) as threads:
        tasks = [(models[number % len(models)], f"{arguments.seed}-{number}") for number in range(rounds)]
        alone = [search(model, random.Random(seed)) for model, seed in tasks]
        together = threads.map(lambda task: search(task[0], random.Random(task[1])), tasks)
        for number, (expected, found) in enumerate(zip(alone, together, strict=True)):
            if torch.equal(expected, found):
                check.passed()
            else:
                check.fail(f"search {number}: {expected.tolist()} alone, {found.tolist()} among threads", "differs")
        check.figure = f"{check.rounds - check.failed} of {check.rounds} searches the same"
    return check.failed > 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments("memory.py", __doc__, 2_000, argv)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    models, draw = build_models(), random.Random(arguments.seed)

    def search_once(number: int) -> None:
        search(models[number % len(models)], draw, samples=draw.random() < 0.3)

    failed = measure_memory("memory, searches", SEARCHES, arguments, search_once)
    trained = [model.train() for model in models]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-4) for model in trained]

    def train_once(number: int) -> None:
        model, optimizer = trained[number % len(models)], optimizers[number % len(models)]
        model(**draw_batch(draw, model.config, with_labels=True)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    failed |= measure_memory("memory, training steps", STEPS, arguments, train_once)
    return failed | check_threads(arguments)


if __name__ == "__main__":
    sys.exit(main())
