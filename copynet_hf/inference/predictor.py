"""From a saved model to outputs and scores: what `copynet-hf evaluate` and `generate` do, as functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.words import encode_sources, hidden_ids, joined, output_words, source_words, text_pieces


@dataclass
class Output:
    """What the model made of one source.

    texts: the outputs, best first.
    pieces: the words of the best one, with the spaces that belong before them; together they are its text.
    copied: for each piece, whether the copy mode gave more than half of its probability.
    """

    texts: list[str]
    pieces: list[str]
    copied: list[bool]


def read_facts(lines: str) -> list[list[str]]:
    """Triples from lines "subject | property | object"; empty lines are left out.

    Raises:
        ValueError: another line, naming it.
    """
    facts = [[part.strip() for part in line.split("|")] for line in lines.splitlines() if line.strip()]
    for fact in facts:
        if len(fact) != 3 or not all(fact):
            raise ValueError(f"{' | '.join(fact)!r} is no fact: write subject | property | object, one a line.")
    return facts


def generate_outputs(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    facts: Sequence[Any] | None = None,
    batch_size: int = 32,
    max_source_length: int | None = None,
    progress: bool = False,
    **generation: Any,
) -> list[Output]:
    """The model's outputs, in the order of the sources.

    Args:
        facts: of each source; see `CopyNetTokenizer`.
        max_source_length: words of a source that are read; by default what the tokenizer was saved with.
        progress: show a bar on stderr.
        generation: for `generate()`, such as `num_beams`; what is None is left out.
    """
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))  # little padding in a batch
    options = {name: value for name, value in generation.items() if value is not None}
    outputs: list[Output | None] = [None] * len(sources)
    model.eval()
    with tqdm(total=len(sources), unit="texts", disable=not progress) as bar:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            texts = [sources[row] for row in rows]
            known = None if facts is None else [facts[row] for row in rows]
            made = _generate_batch(model, tokenizer, texts, known, max_source_length, options)
            for row, output in zip(rows, made, strict=True):
                outputs[row] = output
            bar.update(len(rows))
    return [output for output in outputs if output is not None]


def _generate_batch(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    facts: list[Any] | None,
    max_source_length: int | None,
    options: Mapping[str, Any],
) -> Iterator[Output]:
    inputs = encode_sources(tokenizer, texts, facts, max_source_length).to(model.device)
    sequences = _search(model, inputs, options)  # (rows x returned, 1 + T)
    returned = sequences.shape[0] // len(texts)
    copied = copied_flags(model, sequences[::returned], **inputs)
    hidden = hidden_ids(tokenizer)
    for row, text in enumerate(texts):
        own = sequences[row * returned : (row + 1) * returned, 1:].tolist()
        known = None if facts is None else facts[row]
        words = [output_words(tokenizer, ids, text, max_source_length, known) for ids in own]
        shown = [flag for flag, index in zip(copied[row], own[0], strict=True) if index not in hidden]
        yield Output(
            texts=[joined(tokenizer, each).strip() for each in words],
            pieces=text_pieces(tokenizer, words[0]),
            copied=shown,
        )


@torch.inference_mode()
def _search(model: Any, inputs: BatchEncoding, options: Mapping[str, Any]) -> Tensor:
    # Any: the library's types for generate() fit none of its models.
    return model.generate(**inputs, **{**options, "return_dict_in_generate": False})


def copied_flags(model: CopyNetForConditionalGeneration, sequences: Tensor, **source: Tensor) -> list[list[bool]]:
    """For each word after the start symbol: whether more than half of its probability came from the copy mode.

    source: what the encoder was given.
    """
    if not model.config.copies:
        return [[False] * (sequences.shape[1] - 1)] * sequences.shape[0]
    trace: Any = model.trace_copies(sequences, **source)
    return (trace.copied > 0.5).tolist()


def copy_map(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, text: str, **generation: Any
) -> tuple[Tensor, list[str], list[str]]:
    """What `plot_copy_heatmap` wants: where one text's output was copied from, (T, S), and the words of both."""
    inputs = encode_sources(tokenizer, [text]).to(model.device)
    sequences = _search(model, inputs, generation)
    trace: Any = model.trace_copies(sequences[:1], **inputs)
    ids, hidden = sequences[0, 1:].tolist(), hidden_ids(tokenizer)
    shown = torch.tensor([index not in hidden for index in ids], dtype=torch.bool, device=sequences.device)
    source = source_words(tokenizer, inputs["input_ids"][0].tolist(), text)
    target = [piece.strip() for piece in text_pieces(tokenizer, output_words(tokenizer, ids, text))]
    return trace.copy_probs[0][shown].cpu(), source, target
