"""Times a training step (forward, backward, Adam) of CoreQA and of RNNSearch on the same questions and facts.

    python benchmarks/retrieval.py [--rounds 40]

Settings and pairs are those of the answers about birthdays (results/coreqa.md); RNNSearch reads question and facts as
one text. CPU time on one thread, which other processes affect less than wall time. Writes its section of
results/benchmarks.md.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import measure
import torch

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from experiments.data.birthdays import make_birthday_rows
from experiments.tables.coreqa import TRAINING

BATCHES = (16, 32)
MECHANISMS = {"RNNSearch": "none", "CoreQA": "retrieval"}


def make_batch(size: int) -> tuple[CopyNetTokenizer, dict[str, Any]]:
    """The first training pairs, and a tokenizer of their words."""
    rows = make_birthday_rows()["train"]
    texts = (text for row in rows for text in (row["text"], row["summary"]))
    tokenizer = CopyNetTokenizer.train_from_iterator(
        texts,
        TRAINING["vocab_size"],
        segmenter=TRAINING["segmenter"],
        min_frequency=TRAINING["min_frequency"],
        max_source_oov=TRAINING["max_source_oov"],
    )
    sources, targets, facts = ([row[name] for row in rows[:size]] for name in ("text", "summary", "facts"))
    encoded = tokenizer(sources, facts=facts, text_target=targets)
    labels = [torch.tensor(row) for row in encoded.pop("labels")]
    batch: dict[str, Any] = dict(tokenizer.pad(encoded, return_tensors="pt"))
    return tokenizer, {**batch, "labels": torch.nn.utils.rnn.pad_sequence(labels, True, -100)}


def build_step(mechanism: str, size: int) -> Any:
    tokenizer, batch = make_batch(size)
    if mechanism != "retrieval":
        del batch["token_type_ids"]
    torch.manual_seed(0)
    names = ("embedding_size", "hidden_size", "encoder_hidden_size", "attention_size", "dropout")
    sizes = {name: TRAINING[name] for name in names}
    config = CopyNetConfig.for_tokenizer(tokenizer, copy_mechanism=mechanism, **sizes)
    return measure.build_training_step(CopyNetForConditionalGeneration(config), batch)


def time_steps(size: int, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(1)
    calls = {name: build_step(mechanism, size) for name, mechanism in MECHANISMS.items()}
    return measure.time_side_by_side(calls, rounds, clock=time.process_time)


def main() -> None:
    args = measure.parse_arguments(__doc__)
    rows = []
    for size in BATCHES:
        seconds = measure.run_in_process(time_steps, size, args.rounds)
        times = measure.format_times(seconds, MECHANISMS, decimals=1)
        rows.append([size, *times, measure.format_ratio(seconds, "RNNSearch", "CoreQA")])
    header = ["batch", "RNNSearch ms", "CoreQA ms", "CoreQA's speed relative to RNNSearch's"]
    measure.write_section("CoreQA", "coreqa", rounds=args.rounds, table=measure.format_table(header, rows))


if __name__ == "__main__":
    main()
