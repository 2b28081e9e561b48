"""Times training steps of Transformers decoders: what the copy mode costs.

    python benchmarks/decoders.py [--rounds 20] [--threads 1]

A step is forward, backward and Adam, with the loss alone as in the Trainer. From scratch: the model of `--decoder
transformer`, relative to the same without a copy mode. Pretrained: a T5 of T5-small's size, with random weights and a
copy head, relative to T5's own step. Besides, a greedy search of one text by T5 itself and by the untrained CopyNet of
`training.SYNTHETIC`. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from typing import Any

import measure
import torch
import training
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.training.presets import make_config

MECHANISMS = ("copynet", "pointer_generator")
BASELINES = {"from scratch": "without a copy mode", "T5-small's size": "T5 itself"}
SHAPES = {"from scratch": (16, 40, 20), "T5-small's size": (8, 64, 32)}  # pairs, words of a source and of a target
VOCAB_SIZE, SLOTS = 3_000, 16
SEARCHED, STEPS = 25, 20  # words of a source, and steps of a search


def make_batch(task: str, vocab_size: int) -> dict[str, Tensor]:
    """Half of a target's words are in the source."""
    pairs, words, length = SHAPES[task]
    generator = torch.Generator().manual_seed(0)
    source, others = torch.randint(4, vocab_size, (2, pairs, words), generator=generator)
    labels = torch.cat([source[:, : length // 2], others[:, : length - length // 2]], dim=1)
    return {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": labels}


def make_scratch(mechanism: str) -> CopyNetForConditionalGeneration:
    torch.manual_seed(0)
    fields = {"decoder": "transformer", "vocab_size": VOCAB_SIZE, "max_source_oov": SLOTS, "copy_mechanism": mechanism}
    return CopyNetForConditionalGeneration(make_config(None, fields))


class PieceTokenizer:
    """What a copy head reads of T5's tokenizer."""

    bos_token_id, unk_token_id = None, 2

    def __len__(self) -> int:
        return T5Config().vocab_size


def make_pretrained() -> dict[str, Any]:
    """T5 itself, and with a copy head of each mechanism."""
    torch.manual_seed(0)
    own = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0))
    tokenizer: Any = PieceTokenizer()
    with tempfile.TemporaryDirectory() as folder:
        own.save_pretrained(folder)
        heads = {
            mechanism: CopyNetForConditionalGeneration.from_seq2seq_pretrained(
                folder, tokenizer=tokenizer, copy_mechanism=mechanism
            )
            for mechanism in MECHANISMS
        }
    return {BASELINES["T5-small's size"]: own, **heads}


def time_steps(task: str, threads: int, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    if task == "from scratch":
        models: dict[str, Any] = {name: make_scratch(name) for name in MECHANISMS}
        models[BASELINES[task]] = make_scratch("none")
    else:
        models = make_pretrained()
    batch = make_batch(task, models[MECHANISMS[0]].config.vocab_size)
    steps = {name: measure.build_training_step(model, batch) for name, model in models.items()}
    return measure.time_side_by_side(steps, rounds)


def time_search(rounds: int) -> dict[str, list[float]]:
    """A greedy search of one text, on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {
        "T5 itself": T5ForConditionalGeneration(T5Config(decoder_start_token_id=0)),
        "CopyNet": CopyNetForConditionalGeneration(training.make_config(training.SYNTHETIC)),
    }
    source = torch.randint(4, 1_000, (1, SEARCHED))
    options = {"max_new_tokens": STEPS, "eos_token_id": None, "num_beams": 1, "do_sample": False}
    calls = {name: partial(model.eval().generate, source, **options) for name, model in models.items()}
    return measure.time_side_by_side(calls, rounds)


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    rows = []
    for task, baseline in BASELINES.items():
        for threads in args.threads:
            seconds = measure.run_in_process(time_steps, task, threads, args.rounds)
            times = measure.format_times(seconds, (baseline, *MECHANISMS))
            ratios = [measure.format_ratio(seconds, mechanism, baseline) for mechanism in MECHANISMS]
            rows.append([task, baseline, threads, *times, *ratios])
            print(rows[-1], flush=True)
    header = ["model", "baseline", "threads", "baseline ms", *(f"{name} ms" for name in MECHANISMS)]
    header += [f"{name} / baseline" for name in MECHANISMS]
    seconds = measure.run_in_process(time_search, args.rounds)
    searches = {name: f"{1e3 * statistics.median(times):.0f}" for name, times in seconds.items()}
    shapes = dict(zip(("scratch", "pretrained"), SHAPES.values(), strict=True))
    shapes |= {"searches": searches, "searched": SEARCHED, "steps": STEPS}
    table = measure.format_table(header, rows)
    measure.write_section("Transformers decoders", "decoders", rounds=args.rounds, table=table, **shapes)


if __name__ == "__main__":
    main()
