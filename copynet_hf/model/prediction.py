"""From source texts to outputs, and to the source position of each output word.

With an ONNX model and a tokenizer that returns NumPy arrays, neither torch nor Transformers is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .words import add_spaces, decode_words, encode_sources, join_words, skipped_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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

    text: the output, without spaces before and after it.
    words: T words, each with the space that precedes it; concatenated, they are the text. A word that is only a part
        of a character (of a byte-level tokenizer) is "" and the last part the whole character.
    copied: T flags: whether copying accounts for more than half of the word's probability.
    copy_shares: T shares, from 0 to 1, of the word's probability that copying accounts for.
    source_positions: T positions in `source_words`, the likeliest from which the word was copied; None where the
        source does not contain the word.
    source_words: the S words of the source, as they are in the text; "" for special tokens.
    copy_probs: (T, S) probability of copying from each position at each step, whatever the word; None unless
        requested.

    Without a trace, all fields but the text are empty.
    """

    text: str
    words: list[str] = field(default_factory=list)
    copied: list[bool] = field(default_factory=list)
    copy_shares: list[float] = field(default_factory=list)
    source_positions: list[int | None] = field(default_factory=list)
    source_words: list[str] = field(default_factory=list)
    copy_probs: NDArray[Any] | None = field(default=None, compare=False, repr=False)


def predict(
    model: CopyModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    facts: Sequence[Any] | None = None,
    features: Sequence[Any] | None = None,
    max_source_length: int | None = None,
    return_copy_probs: bool = False,
    trace: bool = True,
    **generation: Any,
) -> list[list[Prediction]]:
    """Encodes the texts as one batch, generates, and traces each output word to the source.

    Args:
        model: with PyTorch (switched to evaluation mode) or ONNX.
        facts: for each text its facts or None; see `CopyNetTokenizer`.
        features: for each text its features or None; see `CopyNetTokenizer`.
        max_source_length: the number of words to which a source is truncated; None: the tokenizer's
            `model_max_length`.
        return_copy_probs: whether to fill `Prediction.copy_probs`.
        trace: whether to fill the fields of `Prediction` other than its text, which takes a second pass over the
            outputs.
        generation: arguments of `generate()`, such as `num_beams`, `num_return_sequences` and `max_new_tokens`;
            `stop_strings`, here or in the generation config, may hold words of the sources.

    Returns:
        For each text its outputs, best first. Of a model that does not copy, all copy shares are 0.
    """
    if not texts:
        return []
    saved = generation.get("generation_config") or getattr(model, "generation_config", None)
    stop_strings = generation.get("stop_strings") or getattr(saved, "stop_strings", None)
    if hasattr(tokenizer, "oov_words") and stop_strings:
        from .generation import StopStrings

        generation.pop("stop_strings", None)
        criterion = StopStrings(
            tokenizer, stop_strings, source=texts, facts=facts, max_source_length=max_source_length
        )
        generation["stopping_criteria"] = [*(generation.get("stopping_criteria") or ()), criterion]
    with _inference_mode(model) as tensors:
        inputs = encode_sources(tokenizer, texts, facts, max_source_length, tensors, features=features)
        if tensors == "pt":
            inputs = inputs.to(model.device)  # type: ignore[attr-defined]
        output = model.generate(**inputs, **generation)
        sequences = getattr(output, "sequences", output)  # with return_dict_in_generate, a ModelOutput
        eos_token_id = generation.get("eos_token_id")
        if eos_token_id is None:
            eos_token_id = getattr(saved, "eos_token_id", None)
        ids = _drop_filling(_to_numpy(sequences)[:, 1:], eos_token_id, tokenizer.pad_token_id)
        if not trace:
            return _read_texts(tokenizer, texts, ids.tolist(), max_source_length, facts)
        shares, positions, copy_probs = _trace(model, sequences, inputs, eos_token_id)
    source_ids, is_word = map(_to_numpy, (inputs["input_ids"], inputs["attention_mask"] > 0))
    repeats = len(ids) // len(texts)
    predictions: list[list[Prediction]] = [[] for _ in texts]
    for number, outputs in enumerate(predictions):
        origin = (texts[number], max_source_length, None if facts is None else facts[number])
        words = _source_words(tokenizer, source_ids[number, is_word[number]].tolist(), *origin)
        source = _Source(*origin, is_word[number], words)
        for row in range(number * repeats, (number + 1) * repeats):
            probs = copy_probs[row] if return_copy_probs else None
            outputs.append(_read_output(tokenizer, source, ids[row].tolist(), shares[row], positions[row], probs))
    return predictions


@contextmanager
def _inference_mode(model: CopyModel) -> Iterator[str]:
    """Yields the kind of arrays that the model takes; a PyTorch model is in evaluation mode, without gradients."""
    if not hasattr(model, "eval"):
        yield "np"
        return
    import torch

    model.eval()
    with torch.inference_mode():
        yield "pt"


def _drop_filling(ids: NDArray[Any], eos_token_id: int | list[int] | None, pad_token_id: int) -> NDArray[Any]:
    """Outputs (N, T) with padding after their first end symbol: beam search fills up ended rows with an end symbol,
    which may be a word."""
    is_end = np.isin(ids, [] if eos_token_id is None else eos_token_id)
    return np.where(is_end.cumsum(-1) > is_end, pad_token_id, ids)


def _read_texts(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    outputs: Sequence[list[int]],
    max_source_length: int | None,
    facts: Sequence[Any] | None,
) -> list[list[Prediction]]:
    """The predictions of outputs that are not traced, the outputs of a source in consecutive rows."""
    repeats = len(outputs) // len(texts)
    predictions: list[list[Prediction]] = [[] for _ in texts]
    for row, ids in enumerate(outputs):
        number = row // repeats
        own_facts = None if facts is None else facts[number]
        words = decode_words(tokenizer, ids, texts[number], max_source_length, own_facts)
        predictions[number].append(Prediction(join_words(tokenizer, words).strip()))
    return predictions


class _Source(NamedTuple):
    """A source as the model read it: (S) `is_word` is false on padding, which can be on either side."""

    text: str
    max_length: int | None
    facts: Any
    is_word: NDArray[Any]
    words: list[str]


def _read_output(
    tokenizer: PreTrainedTokenizerBase,
    source: _Source,
    ids: list[int],
    shares: NDArray[Any],
    positions: NDArray[Any],
    probs: NDArray[Any] | None,
) -> Prediction:
    """The prediction of a row: its words without special tokens, and their positions without padding."""
    skipped = skipped_ids(tokenizer)
    kept = [step for step, index in enumerate(ids) if index not in skipped]
    words = add_spaces(tokenizer, decode_words(tokenizer, ids, source.text, source.max_length, source.facts))
    number = source.is_word.cumsum() - 1  # of each position that is not padding
    if probs is not None:  # empty sources are encoded as one position of padding, hence the slice
        probs = probs[kept, : len(source.is_word)][:, source.is_word]
    return Prediction(
        text="".join(words),
        words=words,
        copied=(shares[kept] > 0.5).tolist(),
        copy_shares=shares[kept].tolist(),
        source_positions=[None if position < 0 else int(number[position]) for position in positions[kept]],
        source_words=source.words,
        copy_probs=probs,
    )


def _trace(
    model: CopyModel, sequences: Any, inputs: Mapping[str, Any], eos_token_id: int | list[int] | None
) -> tuple[NDArray[Any], ...]:
    """Copy shares (N · R, T), source positions (N · R, T), −1 for none, and copy probabilities (N · R, T, S)."""
    if not model.config.copies:
        steps, positions = (len(sequences), sequences.shape[1] - 1), inputs["input_ids"].shape[1]
        return np.zeros(steps), np.full(steps, -1), np.zeros((*steps, positions))
    trace = model.trace_copies(sequences, **inputs, eos_token_id=eos_token_id)
    return tuple(map(_to_numpy, (trace.copied, trace.source_positions, trace.copy_probs)))


def _to_numpy(array: Any) -> NDArray[Any]:
    if not hasattr(array, "cpu"):
        return np.asarray(array)
    return (array.float() if array.is_floating_point() else array).cpu().numpy()  # NumPy has no bfloat16


def _source_words(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], source: str, max_source_length: int | None, facts: Any
) -> list[str]:
    """The word at each position of a source, as it is in the text; "" for special tokens."""
    if hasattr(tokenizer, "source_words"):  # also the out-of-vocabulary words that have no slot
        tokens = tokenizer.source_words(source, max_source_length or tokenizer.model_max_length, facts=facts)
        return [word.strip() or token for word, token in zip(add_spaces(tokenizer, tokens), tokens, strict=True)]
    skipped = skipped_ids(tokenizer)
    words = iter(add_spaces(tokenizer, decode_words(tokenizer, ids, source, max_source_length, facts)))
    return ["" if index in skipped else next(words).strip() for index in ids]
