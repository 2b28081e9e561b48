"""Times a training step (forward, backward, Adam) of CoreQA and of RNNSearch on the same questions and facts.

    python benchmarks/retrieval.py [--rounds 40]

Sizes and lengths are those of the answers about birthdays (results/coreqa.md). RNNSearch reads question and facts as
one text. CPU time on one thread, which other processes affect less than wall time. Writes its section of
results/benchmarks.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

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

VOCAB_SIZE, SLOTS, FACTS = 400, 8, 4
QUESTION, ANSWER = (7, 10), (7, 14)
"""The least and the most words."""
SIZES: dict[str, Any] = {
    "embedding_size": 64,
    "hidden_size": 128,
    "encoder_hidden_size": 64,
    "attention_size": 64,
    "dropout": 0.1,
}
BATCHES = (16, 32)
FIRST_WORD = 4


def make_batch(batch: int) -> dict[str, Tensor]:
    """Questions with facts after them, and answers that have words of both.

    A third of an answer's words are the question's, and one is an object: in one row of 16, as in the data about
    birthdays, that of two facts.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    length = QUESTION[1] + 3 * FACTS
    source, kinds = torch.zeros(batch, length, dtype=torch.long), torch.zeros(batch, length, dtype=torch.long)
    labels = torch.full((batch, ANSWER[1]), -100)
    for row in range(batch):
        question, answer = int(draw(QUESTION[0], QUESTION[1] + 1, 1)), int(draw(ANSWER[0], ANSWER[1] + 1, 1))
        end = question + 3 * FACTS
        source[row, :end] = draw(FIRST_WORD, VOCAB_SIZE, end)
        if row % 16 == 0:
            source[row, end - 4] = source[row, end - 1]
        kinds[row, question:end] = torch.tensor([1, 2, 3]).repeat(FACTS)
        labels[row, :answer] = draw(FIRST_WORD, VOCAB_SIZE, answer)
        labels[row, :answer:3] = source[row, draw(0, question, len(range(0, answer, 3)))]
        labels[row, answer - 2] = source[row, end - 1]
    return {"input_ids": source, "attention_mask": (source > 0).long(), "token_type_ids": kinds, "labels": labels}


def build_step(mechanism: str, batch: int) -> Callable[[], None]:
    inputs: dict[str, Any] = make_batch(batch)
    if mechanism != "retrieval":
        del inputs["token_type_ids"]
    inputs["num_items_in_batch"] = int((inputs["labels"] >= 0).sum())  # as the Trainer passes it
    torch.manual_seed(0)
    config = CopyNetConfig(vocab_size=VOCAB_SIZE, max_source_oov=SLOTS, copy_mechanism=mechanism, **SIZES)
    model = CopyNetForConditionalGeneration(config).train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()

    return step


def time_steps(batch: int, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(1)
    calls = {"CoreQA": build_step("retrieval", batch), "RNNSearch": build_step("none", batch)}
    return time_side_by_side(calls, rounds, clock=time.process_time)


def render(seconds: Mapping[int, Mapping[str, list[float]]], rounds: int) -> str:
    """The section, from the seconds of each model by batch size."""
    rows = []
    for batch, of_batch in seconds.items():
        shown = [f"{median_milliseconds(of_batch[name]):.1f}" for name in ("RNNSearch", "CoreQA")]
        rows.append([batch, *shown, f"{median_ratio(of_batch, 'RNNSearch', 'CoreQA'):.2f}"])
    return (
        "A training step (forward, backward, Adam) with the settings of [answers from facts](coreqa.md): questions "
        f"of {QUESTION[0]} to {QUESTION[1]} words, {FACTS} facts, answers of {ANSWER[0]} to {ANSWER[1]} words. "
        f"{rounds} rounds, CPU time on one thread.\n\n"
        + format_table(["batch", "RNNSearch ms", "CoreQA ms", "CoreQA's speed relative to RNNSearch's"], rows)
    )


def main() -> None:
    args = parse_arguments(__doc__ or "")
    seconds = {batch: run_in_process(time_steps, batch, args.rounds) for batch in BATCHES}
    write_section("CoreQA", render(seconds, args.rounds))


if __name__ == "__main__":
    main()
