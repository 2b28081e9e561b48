"""From source texts to outputs, and to the source position of each output word.

With an ONNX model and a tokenizer that returns NumPy arrays, neither torch nor Transformers is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .segmentation import MARKS
from .source import Source, add_spaces, join_words, skipped_ids, stack_sources

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
    words: T words, or the parts that a word was joined from, each with the space that precedes it; concatenated, they
        are the text. A word that is only a part
        of a character (of a byte-level tokenizer) is "" and the last part the whole character.
    copied: T flags: whether copying accounts for more than half of the word's probability.
    copy_shares: T shares, from 0 to 1, of the word's probability that copying accounts for.
    source_positions: T positions in `source_words`, the likeliest from which the word was copied; None where the
        source does not contain the word.
    source_words: the S words of the source, as they are in the text; "" for special tokens and marks.
    copy_probs: (T, S) probability of copying from each position at each step, whatever the word; None unless
        requested.
    is_truncated: whether the source has more words than were read.

    Without a trace, all fields but the text and `is_truncated` are empty. The output of a source without words is
    empty.
    """

    text: str
    words: list[str] = field(default_factory=list)
    copied: list[bool] = field(default_factory=list)
    copy_shares: list[float] = field(default_factory=list)
    source_positions: list[int | None] = field(default_factory=list)
    source_words: list[str] = field(default_factory=list)
    copy_probs: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    is_truncated: bool = False


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
        trace: whether to fill the fields of `Prediction` that say where its text comes from, which takes a second pass
            over the outputs.
        generation: arguments of `generate()`, such as `num_beams`, `num_return_sequences` and `max_new_tokens`;
            `stop_strings`, here or in the generation config, may hold words of the sources.

    Returns:
        For each text its outputs, best first. Of a model that does not copy, all copy shares are 0.
    """
    if not texts:
        return []
    saved = generation.get("generation_config") or getattr(model, "generation_config", {})
    settings = dict(saved if isinstance(saved, Mapping) else vars(saved))
    settings |= {name: value for name, value in generation.items() if value is not None}
    columns = {"facts": facts, "features": features}
    given = {name: column for name, column in columns.items() if column is not None}
    with _inference_mode(model) as tensors:
        sources, inputs = _encode(tokenizer, texts, given, max_source_length, tensors)
        rows = [row for row, source in enumerate(sources) if not source.is_blank]
        found: list[list[Prediction]] = []
        if rows:
            inputs = {name: tensor[rows] for name, tensor in inputs.items()}
            found = _generate(model, [sources[row] for row in rows], inputs, generation, settings, trace)
    count = settings.get("num_return_sequences") or 1
    predictions = [[_predict_nothing(source, trace) for _ in range(count)] for source in sources]
    for row, outputs in zip(rows, found, strict=True):
        predictions[row] = outputs
    if not return_copy_probs:
        for prediction in chain.from_iterable(predictions):
            prediction.copy_probs = None
    return predictions


def _encode(
    tokenizer: Any, texts: Sequence[str], columns: Mapping[str, Sequence[Any]], max_length: int | None, tensors: str
) -> tuple[list[Source], Mapping[str, Any]]:
    """The sources, and the model's inputs, padded to one length."""
    # hasattr, not isinstance: with trust_remote_code, the tokenizer's class can be another copy of CopyNetTokenizer.
    limit = tokenizer.model_max_length if max_length is None else max_length
    if hasattr(tokenizer, "encode_sources"):
        sources = tokenizer.encode_sources(texts, **columns, max_length=limit)
        return sources, tokenizer.pad(stack_sources(sources), return_tensors=tensors)
    options = {"padding": True, "truncation": True, "max_length": max_length, "return_tensors": tensors}
    if "facts" not in columns:  # which token types mark; those of other tokenizers mean nothing to these models
        options["return_token_type_ids"] = False
    inputs = tokenizer(list(texts), **columns, **options)
    ids, is_word = map(_to_numpy, (inputs["input_ids"], inputs["attention_mask"] > 0))
    sources = [Source.of_ids(tokenizer, text, ids[row, is_word[row]].tolist()) for row, text in enumerate(texts)]
    for source, encoding in zip(sources, getattr(inputs, "encodings", None) or (), strict=False):
        source.is_truncated = bool(encoding.overflowing)
    if hasattr(tokenizer, "oov_words"):  # a CopyNetTokenizer whose code was saved before it had encode_sources
        for source, facts in zip(sources, columns.get("facts", [None] * len(texts)), strict=True):
            source.words = tokenizer.source_words(source.text, limit, facts=facts)
            oov_words = tokenizer.oov_words(source.text, limit, facts=facts)
            source.slots = {word: slot for slot, word in enumerate(oov_words, len(tokenizer))}
    return sources, inputs


def _generate(
    model: CopyModel,
    sources: Sequence[Source],
    inputs: dict[str, Any],
    generation: dict[str, Any],
    settings: Mapping[str, Any],
    trace: bool,
) -> list[list[Prediction]]:
    """The outputs of each source; `settings` are the arguments `generation`, completed by the saved ones."""
    tokenizer: Any = sources[0].tokenizer
    inputs = {name: tensor.to(model.device) if hasattr(tensor, "to") else tensor for name, tensor in inputs.items()}  # type: ignore[attr-defined]
    if settings.get("stop_strings") and hasattr(tokenizer, "oov_words"):
        from .generation import StopStrings

        criterion = StopStrings(tokenizer, settings["stop_strings"], sources)
        generation = {name: value for name, value in generation.items() if name != "stop_strings"}
        generation["stopping_criteria"] = [*(generation.get("stopping_criteria") or ()), criterion]
    output = model.generate(**inputs, **generation)
    sequences = getattr(output, "sequences", output)  # with return_dict_in_generate, a ModelOutput
    eos_token_id = settings.get("eos_token_id")
    ids = _drop_filling(_to_numpy(sequences)[:, 1:], eos_token_id, tokenizer.pad_token_id)
    origins = _trace(model, sequences, inputs, eos_token_id) if trace else ()
    is_word = _to_numpy(inputs["attention_mask"] > 0)
    repeats = len(ids) // len(sources)
    predictions: list[list[Prediction]] = [[] for _ in sources]
    for row, own_ids in enumerate(ids.tolist()):
        number = row // repeats
        own_origins = [origin[row] for origin in origins]
        predictions[number].append(_read_output(sources[number], is_word[number], own_ids, own_origins))
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


def _predict_nothing(source: Source, trace: bool) -> Prediction:
    if not trace:
        return Prediction("", is_truncated=source.is_truncated)
    nowhere = np.zeros((0, len(source.words)))
    return Prediction("", source_words=source.surfaces, copy_probs=nowhere, is_truncated=source.is_truncated)


def _read_output(
    source: Source, is_word: NDArray[Any], ids: Sequence[int], origins: Sequence[NDArray[Any]]
) -> Prediction:
    """The prediction of a row without special tokens, its positions without padding, where `is_word` is false.
    `origins` is of `_trace`, or empty."""
    skipped = skipped_ids(source.tokenizer)
    words = source.spell(ids, skipped)
    if not origins:
        return Prediction(join_words(source.tokenizer, words).strip(), is_truncated=source.is_truncated)
    steps = [step for step, index in enumerate(ids) if index not in skipped]
    kept = [step for step, word in zip(steps, words, strict=True) if word not in MARKS]
    shares, positions, probs = (each[kept] for each in origins)
    spaced = zip(words, add_spaces(source.tokenizer, words), strict=True)
    words = [shown for word, shown in spaced if word not in MARKS]
    number = is_word.cumsum() - 1  # of each position that is not padding
    return Prediction(
        text="".join(words),
        words=words,
        copied=(shares > 0.5).tolist(),
        copy_shares=shares.tolist(),
        source_positions=[None if position < 0 else int(number[position]) for position in positions],
        source_words=source.surfaces,
        copy_probs=probs[:, is_word],
        is_truncated=source.is_truncated,
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
