"""Texts read twice by every family of Transformers encoders, with other texts before, after and beside them.

python tests/soak/encoders_twice.py --rounds 1200
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

from harness import Check, parse_arguments, temporary_folder

import torch  # isort: skip - after harness, which sets the number of threads
from tiny_encoders import CORPUS, FAMILIES, copynet_over, save_encoder, word_tokenizer

WHAT = """A model over a random encoder of each family reads a text of 1 to 30 words: first alone, then, after up to
three batches of other texts, alone again and in a batch with longer and shorter ones. In float64, the encoder's states
and the probabilities of two words must be bit for bit those of the first time, and in the batch equal within 1e-9."""
WORDS = " ".join(CORPUS).split()
TOLERANCE = 1e-9


def draw_text(draw: random.Random, longest: int = 30) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, longest)))


@torch.no_grad()
def read(model: Any, tokenizer: Any, texts: Sequence[str]) -> list[torch.Tensor]:
    """The states of the first text, and the probabilities of two words over them."""
    batch = tokenizer(list(texts), padding=True, return_tensors="pt")
    length = int(batch["attention_mask"][0].sum())
    output = model(**batch, decoder_input_ids=torch.tensor([[0, 5]]).expand(len(texts), -1))
    return [output.encoder_last_hidden_state[0, :length], output.logits[0]]


def compare(model: Any, tokenizer: Any, draw: random.Random) -> str:
    """What differs, or an empty text."""
    text = draw_text(draw)
    first = read(model, tokenizer, [text])
    for _ in range(draw.randint(0, 3)):
        read(model, tokenizer, [draw_text(draw) for _ in range(draw.randint(1, 4))])
    if not all(map(torch.equal, first, read(model, tokenizer, [text]))):
        return "the second time differs"
    beside = read(model, tokenizer, [text, *(draw_text(draw) for _ in range(draw.randint(1, 3)))])
    beside[1] = beside[1][:, : first[1].shape[1]]  # without the slots of the others
    is_equal = [torch.allclose(one, two, rtol=0, atol=TOLERANCE) for one, two in zip(first, beside, strict=True)]
    return "" if all(is_equal) else "differs beside others"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments("encoders_twice.py", __doc__, 1200, argv)
    torch.set_num_threads(1)
    with temporary_folder() as folder, Check("encoders, twice", WHAT, arguments) as check:
        models: dict[str, tuple[Any, Any]] = {}

        def run_round(number: int, draw: random.Random) -> str:
            family = list(FAMILIES)[number % len(FAMILIES)]
            if family not in models:
                name = save_encoder(folder / family, family)
                tokenizer = word_tokenizer(name)
                models[family] = copynet_over(name, tokenizer).double().eval(), tokenizer
            problem = compare(*models[family], draw)
            return f"{family}: {problem}" if problem else ""

        for _ in check.run_rounds(run_round):
            same = check.rounds - check.failed
            check.figure = f"{len(models)} families, {same:,} of {check.rounds:,} texts the same"
    return check.failed > 0


if __name__ == "__main__":
    sys.exit(main())
