"""From source texts to outputs, and to the source position of each output word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from .words import add_spaces, decode_words, encode_sources, join_words, skipped_ids


class CopyModel(Protocol):
    """What `predict` uses of a model. `CopyNetForConditionalGeneration` takes and returns torch tensors, `OnnxCopyNet`
    NumPy arrays."""

    config: Any
    """`config.copies`: whether the model copies."""

    def generate(self, **inputs: Any) -> Any:
        """(N · R, 1 + T) ids, the R outputs of each of N sources in consecutive rows, best first."""

    def trace_copies(self, sequences: Any, **inputs: Any) -> Any:
        """The `CopyTrace` of these outputs."""


@dataclass
class Prediction:
    """An output and the origin of its words: T words of the output, S words of the source.

    text: the output.
    words: T words, each with the space that precedes it; concatenated, they are the text.
    copied: T flags: whether copying accounts for more than half of the word's probability.
    copy_shares: T shares, from 0 to 1, of the word's probability that copying accounts for.
    source_positions: T positions in `source_words`, the likeliest from which the word was copied; None where the
        source does not contain the word.
    source_words: the S words of the source; "" for special tokens.
    copy_probs: (T, S) probability of copying from each position at each step, whatever the word; None unless
        requested.
    """

    text: str
    words: list[str]
    copied: list[bool]
    copy_shares: list[float]
    source_positions: list[int | None]
    source_words: list[str]
    copy_probs: NDArray[Any] | None = field(default=None, compare=False, repr=False)


@torch.inference_mode()
def predict(
    model: CopyModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    facts: Sequence[Any] | None = None,
    max_source_length: int | None = None,
    return_copy_probs: bool = False,
    **generation: Any,
) -> list[list[Prediction]]:
    """Encodes the texts as one batch, generates, and traces each output word to the source.

    Args:
        model: with PyTorch (switched to evaluation mode) or ONNX.
        facts: for each text its facts or None; see `CopyNetTokenizer`.
        max_source_length: the number of words to which a source is truncated; None: the tokenizer's
            `model_max_length`.
        return_copy_probs: whether to fill `Prediction.copy_probs`.
        generation: arguments of `generate()`, such as `num_beams`, `num_return_sequences` and `max_new_tokens`.

    Returns:
        For each text its outputs, best first. Of a model that does not copy, all copy shares are 0.
    """
    if not texts:
        return []
    if isinstance(model, nn.Module):
        model.eval()
        inputs = encode_sources(tokenizer, texts, facts, max_source_length).to(str(model.device))
    else:
        inputs = encode_sources(tokenizer, texts, facts, max_source_length, return_tensors="np")
    output = model.generate(**inputs, **generation)
    sequences = getattr(output, "sequences", output)  # with return_dict_in_generate, a ModelOutput
    traces = _trace(model, sequences, inputs)
    ids, source_ids, is_word = map(_to_numpy, (sequences, inputs["input_ids"], inputs["attention_mask"] > 0))
    repeats, skipped = len(ids) // len(texts), skipped_ids(tokenizer)
    predictions: list[list[Prediction]] = []
    for number, text in enumerate(texts):
        source = (text, max_source_length, None if facts is None else facts[number])
        at = is_word[number]  # padding can be on either side
        position = at.cumsum() - 1
        source_words = _source_words(tokenizer, source_ids[number, at].tolist(), *source)
        predictions.append([])
        for row in range(number * repeats, (number + 1) * repeats):
            row_ids = ids[row, 1:].tolist()
            kept = [step for step, index in enumerate(row_ids) if index not in skipped]
            words = decode_words(tokenizer, row_ids, *source)
            shares, places, probs = (trace[row, kept] for trace in traces)
            prediction = Prediction(
                text=join_words(tokenizer, words).strip(),
                words=add_spaces(tokenizer, words),
                copied=(shares > 0.5).tolist(),
                copy_shares=shares.tolist(),
                source_positions=[None if place < 0 else int(position[place]) for place in places.tolist()],
                source_words=source_words,
            )
            if return_copy_probs:  # a batch of empty sources is encoded as one position of padding, hence the slice
                prediction.copy_probs = probs[:, : len(at)][:, at]
            predictions[-1].append(prediction)
    return predictions


def _trace(model: CopyModel, sequences: Any, inputs: Mapping[str, Any]) -> tuple[NDArray[Any], ...]:
    """Copy shares (N · R, T), source positions (N · R, T), −1 for none, and copy probabilities (N · R, T, S)."""
    if not model.config.copies:
        steps, positions = (len(sequences), sequences.shape[1] - 1), inputs["input_ids"].shape[1]
        return np.zeros(steps), np.full(steps, -1), np.zeros((*steps, positions))
    trace = model.trace_copies(sequences, **inputs)
    return tuple(map(_to_numpy, (trace.copied, trace.source_positions, trace.copy_probs)))


def _to_numpy(array: Any) -> NDArray[Any]:
    if not isinstance(array, Tensor):
        return np.asarray(array)
    return (array.float() if array.is_floating_point() else array).cpu().numpy()  # NumPy has no bfloat16


def _source_words(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], source: str, max_source_length: int | None, facts: Any
) -> list[str]:
    """The word at each position of a source; "" for special tokens."""
    if hasattr(tokenizer, "source_words"):  # also the out-of-vocabulary words that have no slot
        return tokenizer.source_words(source, max_source_length or tokenizer.model_max_length, facts=facts)
    skipped = skipped_ids(tokenizer)
    words = iter(add_spaces(tokenizer, decode_words(tokenizer, ids, source, max_source_length, facts)))
    return ["" if index in skipped else next(words).strip() for index in ids]
