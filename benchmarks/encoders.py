"""Times a CopyNet over a Transformers encoder: what pooling pieces into words costs, and what cached states save.

    python benchmarks/encoders.py [--rounds 20] [--threads 1]

Pooling: the states of words and the decoder's initial state, relative to the encoder's states of the pieces alone; in
inference, and forward and backward in training. Cached states: a training step (forward, backward, Adam) over a frozen
encoder, once the states of all texts are cached, relative to the same step that computes them. Encoders are BERTs with
random weights; the large one is timed in a quarter of the rounds. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import measure
import torch
from torch import Tensor
from transformers import BertConfig

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.training.encoder_training import cached_encoder_states
from copynet_hf.training.presets import DEFAULT_SIZES

BATCH, WORDS, TARGET, VOCAB_SIZE, SLOTS = 16, 100, 20, 3_000, 16
PIECES = 1 + WORDS + WORDS // 3 + 1  # every third word has two pieces; [CLS] and [SEP]
SIZES: dict[str, dict[str, int]] = {
    "4 layers, 256 wide": {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4},
    "12 layers, 768 wide": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12},
}


def make_model(sizes: str) -> CopyNetForConditionalGeneration:
    torch.manual_seed(0)
    fields = SIZES[sizes]
    encoder = BertConfig(vocab_size=VOCAB_SIZE, intermediate_size=4 * fields["hidden_size"], **fields)
    decoder = DEFAULT_SIZES | {"encoder_hidden_size": fields["hidden_size"] // 2}
    return CopyNetForConditionalGeneration(
        CopyNetConfig(vocab_size=VOCAB_SIZE, max_source_oov=SLOTS, encoder=encoder, **decoder)
    )


def make_batch() -> dict[str, Tensor]:
    """Sources of `WORDS` words, as the tokenizer returns them, and targets whose words are in the source."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(4, VOCAB_SIZE, (BATCH, WORDS), generator=generator)
    words = [word for word in range(WORDS) for _ in range(2 if word % 3 == 2 else 1)]
    return {
        "input_ids": source,
        "attention_mask": torch.ones_like(source),
        "encoder_input_ids": torch.randint(4, VOCAB_SIZE, (BATCH, PIECES), generator=generator),
        "encoder_attention_mask": torch.ones(BATCH, PIECES, dtype=torch.long),
        "word_index": torch.tensor([-1, *words, -1]).repeat(BATCH, 1),
        "labels": source[:, :TARGET].contiguous(),
    }


def time_pooling(threads: int, rounds: int, sizes: str, is_training: bool) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    encoder: Any = make_model(sizes).get_encoder().train(is_training)
    batch = make_batch()
    del batch["labels"]
    pieces, mask = batch["encoder_input_ids"], batch["encoder_attention_mask"]

    def encode() -> Tensor:
        return encoder.text_encoder(input_ids=pieces, attention_mask=mask).last_hidden_state.sum()

    def encode_and_pool() -> Tensor:
        output = encoder(**batch)
        return output.last_hidden_state.sum() + output.final_state.sum()

    def repeat(compute: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            with torch.set_grad_enabled(is_training):
                total = compute()
            if is_training:
                encoder.zero_grad()
                total.backward()

        return call

    return measure.time_side_by_side({"encoder": repeat(encode), "pooled": repeat(encode_and_pool)}, rounds)


def time_steps(threads: int, rounds: int, sizes: str) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    batch = make_batch()
    models = {name: make_model(sizes).train() for name in ("computed", "cached")}
    for model in models.values():
        model.freeze_encoder()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(cached_encoder_states(models["cached"], Path(folder)))
        steps = {name: measure.build_training_step(model, batch) for name, model in models.items()}
        return measure.time_side_by_side(steps, rounds)


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    pooling, cached = [], []
    for sizes, rounds in zip(SIZES, (args.rounds, max(1, args.rounds // 4)), strict=True):
        for threads in args.threads:
            for is_training in (False, True):
                seconds = measure.run_in_process(time_pooling, threads, rounds, sizes, is_training)
                shown = measure.format_times(seconds, ("encoder", "pooled"))
                shown.append(measure.format_ratio(seconds, "pooled", "encoder", decimals=3))
                pooling.append([sizes, "training" if is_training else "inference", threads, *shown])
                print(pooling[-1], flush=True)
            seconds = measure.run_in_process(time_steps, threads, rounds, sizes)
            shown = measure.format_times(seconds, ("computed", "cached"))
            cached.append([sizes, threads, *shown, measure.format_ratio(seconds, "cached", "computed")])
            print(cached[-1], flush=True)
    header = ["encoder", "mode", "threads", "encoder ms", "pooled ms", "pooled / encoder"]
    measure.write_section(
        "Transformers encoders",
        "encoders",
        rounds=args.rounds,
        batch=BATCH,
        words=WORDS,
        pieces=PIECES,
        target=TARGET,
        pooling=measure.format_table(header, pooling),
        cached=measure.format_table(["encoder", "threads", "computed ms", "cached ms", "cached / computed"], cached),
    )


if __name__ == "__main__":
    main()
