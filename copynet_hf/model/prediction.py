"""From source texts to outputs, and to the source position of each output word.

With an ONNX model and a tokenizer that returns NumPy arrays, neither torch nor Transformers is imported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .confidence import calibrate, read_calibration
from .segmentation import CHANGES, CUTS, JOINER, Span
from .source import (
    Fact,
    Source,
    add_spaces,
    count_tokens,
    find_marks,
    find_matching_ids,
    skipped_ids,
    stack_sources,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Array: TypeAlias = np.ndarray
Tensors = Mapping[str, Any]  # of PyTorch or NumPy, by name
Options = Mapping[str, Any]  # of `generate()`, by name


class CopyModel(Protocol):
    """What `predict` uses of a model. `CopyNetForConditionalGeneration` takes and returns torch tensors, `OnnxCopyNet`
    NumPy arrays."""

    config: Any

    def generate(self, **inputs: Any) -> Any:
        """(N · R, 1 + T) ids, the R outputs of each of N sources in consecutive rows, best first."""

    def trace_copies(self, sequences: Any, **inputs: Any) -> Any:
        """The `CopyTrace` of these outputs."""


@dataclass
class Prediction:
    """An output, its probability, and the origin of its words: T words of the output, S words of the source.

    text: the output, without spaces before and after it.
    score: p(y | x) as the model gives it, whatever the search: the product over the tokens, with the end symbol where
        the output reached it. None without a trace and for an empty source.
    confidence: the probability that the output is right, by the calibration in the model's config, without one the
        score; None where there is no score.
    accepted: whether the output is not cut (`is_cut`) and its confidence at least `min_confidence`, which it is not
        where there is none; None if no `min_confidence` was passed.
    words: T words, or the parts that a word was joined from, each with the space that precedes it; concatenated, they
        are the text. A word that is only a part of a character (of a byte-level tokenizer) is "" and the last part the
        whole character.
    word_scores: T probabilities. That of a mark, such as a joiner, is a factor of the word that it changes; those of
        special tokens are in the score only. None without a trace and for an empty source.
    copied: T flags: whether copying accounts for more than half of the word's probability.
    copy_shares: T shares, from 0 to 1, of the word's probability that copying accounts for.
    source_positions: T positions in `source_words`, the likeliest from which the word was copied; None where the
        source does not contain the word.
    source_spans: T pairs of start and end, in characters of the text as it was passed in, of the word that was copied,
        of a first letter that was; None where the word was generated or copied from a fact.
    copied_spans: what was copied, as (start in the output, its end, start in the source, its end) in characters.
        Copies that follow each other in both texts are one; the two parts are the same but for case, accents and the
        width of spaces, and for UNK, which stands for what is there in the source.
    source_words: the S words of the source, as they are in the text; "" for special tokens and marks.
    copy_probs: (T, S) probability of copying from each position at each step, whatever the word; None unless
        requested.
    is_truncated: whether the source has more words, or pieces of a Transformers encoder, than were read.
    is_cut: whether a limit such as `max_new_tokens` ended the output, not an end symbol or one of `stop_strings`.
    is_empty: whether the text has no words; its output is empty, too.

    Without a trace, all fields but the text and the last three are empty or None.
    """

    text: str
    score: float | None = None
    confidence: float | None = None
    accepted: bool | None = None
    words: list[str] = field(default_factory=list)
    word_scores: list[float] | None = None
    copied: list[bool] = field(default_factory=list)
    copy_shares: list[float] = field(default_factory=list)
    source_positions: list[int | None] = field(default_factory=list)
    source_spans: list[Span | None] = field(default_factory=list)
    copied_spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    source_words: list[str] = field(default_factory=list)
    copy_probs: Array | None = field(default=None, compare=False, repr=False)
    is_truncated: bool = False
    is_cut: bool = False
    is_empty: bool = False

    def to_dict(self) -> dict[str, object]:
        """The fields but `copy_probs`."""
        return {name: value for name, value in vars(self).items() if name != "copy_probs"}


class _Trace(NamedTuple):
    """The fields of a `CopyTrace` that are read, as NumPy arrays; of one output without the axis of rows."""

    token_probs: Array
    copied: Array
    source_positions: Array
    copy_probs: Array


def predict(
    model: CopyModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    facts: Sequence[Sequence[Fact] | None] | None = None,
    features: Sequence[Sequence[str] | None] | None = None,
    max_source_length: int | None = None,
    min_confidence: float | None = None,
    return_copy_probs: bool = False,
    trace: bool = True,
    copied_only: str | None = None,
    **generation: Any,
) -> list[list[Prediction]]:
    """Encodes the texts as one batch, generates, and traces each output word to the source.

    Args:
        model: with PyTorch (switched to evaluation mode) or ONNX.
        facts: for each text its facts or None; see `CopyNetTokenizer`.
        features: for each text its features or None; see `CopyNetTokenizer`.
        max_source_length: the number of words to which a source is truncated; None: the tokenizer's
            `model_max_length`.
        min_confidence: sets `Prediction.accepted`, which needs the trace.
        return_copy_probs: whether to fill `Prediction.copy_probs`.
        trace: whether to fill the fields of `Prediction` that say where its text comes from, which takes a second pass
            over the outputs.
        copied_only: a regular expression, such as r"\\d": a word in which it finds something may only be written if
            the source has it; see `find_matching_ids`.
        generation: arguments of `generate()`, such as `num_beams`, `num_return_sequences` and `max_new_tokens`;
            `stop_strings`, here or in the generation config, may hold words of the sources.

    Returns:
        For each text its outputs, best first. Of a model that does not copy, all copy shares are 0.

    Raises:
        TypeError: one text, not a list.
        ValueError: `min_confidence` is not between 0 and 1, `length_penalty` is no number, a given `min_new_tokens` is
            above `max_new_tokens`, the model's config has a damaged calibration, the tokenizer reads no facts or no
            features, or the model reads features and there are none.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts is one text, {texts[:40]!r}: pass a list of texts")
    check_min_confidence(min_confidence)
    calibration, trace = read_calibration(model.config), trace or min_confidence is not None
    if not texts:
        return []
    if features is None and reads_features(model):
        raise ValueError("the model reads features, and the texts have none: pass features, a list for each text")
    if copied_only:
        generation["copied_only"] = find_matching_ids(tokenizer, copied_only)
    saved = generation.get("generation_config") or getattr(model, "generation_config", {})
    settings = dict(saved if isinstance(saved, Mapping) else vars(saved))
    settings |= {name: value for name, value in generation.items() if value is not None}
    _check_search(generation, settings)
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
    predictions = [[_predict_blank(source, trace) for _ in range(count)] for source in sources]
    for row, outputs in zip(rows, found, strict=True):
        predictions[row] = outputs
    for prediction in chain.from_iterable(predictions):
        score = prediction.score
        prediction.confidence = score if score is None or calibration is None else calibrate(score, calibration)
        if min_confidence is not None:
            is_sure = prediction.confidence is not None and prediction.confidence >= min_confidence
            prediction.accepted = is_sure and not prediction.is_cut
        if not return_copy_probs:
            prediction.copy_probs = None
    return predictions


def check_min_confidence(value: object) -> None:
    """Raises ValueError unless the threshold is None or a number between 0 and 1."""
    if value is not None and not (isinstance(value, Real) and 0 <= value <= 1):  # type: ignore[operator]
        raise ValueError(f"min_confidence is {value!r}: use a number between 0 and 1")


def _check_search(given: Options, settings: Options) -> None:
    """Raises ValueError for a length penalty that is no number, or a minimum length of the call that no output can
    have; `settings` are those of the call, completed by the saved ones."""
    penalty, least = settings.get("length_penalty"), given.get("min_new_tokens")
    if penalty is not None and not (hasattr(penalty, "__float__") and math.isfinite(penalty)):
        raise ValueError(f"length_penalty is {penalty!r}: use a number")
    most = settings.get("max_new_tokens") if given.get("max_length") is None else None
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise ValueError(f"min_new_tokens is {least}, and max_new_tokens {most}: use a smaller min_new_tokens")


def reads_features(model: CopyModel) -> bool:
    """Whether the sources of the model's training had features."""
    return bool(getattr(model.config, "feature_vocab_size", 0))


def reads_facts(model: CopyModel) -> bool:
    """Whether the model's mechanism is meant for facts."""
    return getattr(model.config, "retrieves", False)


def _encode(
    tokenizer: Any, texts: Sequence[str], columns: Mapping[str, Sequence[object]], max_length: int | None, tensors: str
) -> tuple[list[Source], Tensors]:
    """The sources, and the model's inputs, padded to one length."""
    # hasattr, not isinstance: with trust_remote_code, the tokenizer's class can be another copy of CopyNetTokenizer.
    if hasattr(tokenizer, "encode_sources"):
        limit = tokenizer.model_max_length if max_length is None else max_length
        sources = tokenizer.encode_sources(texts, **columns, max_length=limit)
        return sources, tokenizer.pad(stack_sources(sources), return_tensors=tensors)
    if columns:
        names = " and ".join(columns)
        raise ValueError(f"{names} cannot be read by a {type(tokenizer).__name__}: leave {names} out")
    options = {"padding": True, "truncation": True, "max_length": max_length, "return_tensors": tensors}
    options["return_token_type_ids"] = False  # they mark facts; those of other tokenizers mean nothing to the models
    is_fast = getattr(tokenizer, "is_fast", False)
    readable = [text.encode("utf-8", "replace").decode() for text in texts]  # "?" for lone surrogates, as long as they
    inputs = tokenizer(readable, **options, **({"return_offsets_mapping": True} if is_fast else {}))
    found = _to_numpy(inputs.pop("offset_mapping")) if is_fast else None
    ids, is_word = map(_to_numpy, (inputs["input_ids"], inputs["attention_mask"] > 0))
    sources = []
    for row, text in enumerate(texts):
        spans = None if found is None else found[row, is_word[row]].tolist()
        sources.append(Source.of_ids(tokenizer, text, ids[row, is_word[row]].tolist(), spans))
    for source, encoding in zip(sources, getattr(inputs, "encodings", None) or (), strict=False):
        source.is_truncated = bool(encoding.overflowing)
    return sources, inputs


def _generate(
    model: CopyModel,
    sources: Sequence[Source],
    inputs: Tensors,
    generation: Options,
    settings: Options,
    trace: bool,
) -> list[list[Prediction]]:
    """The outputs of each source; `settings` are the arguments `generation`, completed by the saved ones."""
    tokenizer: Any = sources[0].tokenizer
    inputs = {name: tensor.to(model.device) if hasattr(tensor, "to") else tensor for name, tensor in inputs.items()}  # type: ignore[attr-defined]
    if settings.get("stop_strings") and not hasattr(tokenizer, "oov_words"):
        generation = {**generation, "tokenizer": tokenizer}  # for the library's own criterion
    elif settings.get("stop_strings"):
        from .generation import StopStrings

        criterion = StopStrings(tokenizer, settings["stop_strings"], sources)
        generation = {name: value for name, value in generation.items() if name != "stop_strings"}
        generation["stopping_criteria"] = [*(generation.get("stopping_criteria") or ()), criterion]
    if hasattr(model, "eval"):
        generation = {"return_dict_in_generate": True, **generation}  # which says where beams end
    output = model.generate(**inputs, **generation)
    sequences = getattr(output, "sequences", output)
    ids, end_ids = _to_numpy(sequences)[:, 1:], settings.get("eos_token_id")
    ends = [] if end_ids is None else np.ravel(end_ids).tolist()
    stops = np.ravel(settings.get("stop_strings") or []).tolist()
    lengths = _count_tokens(ids, ends, tokenizer.pad_token_id, getattr(output, "beam_indices", None))
    traced = None
    if trace:
        of_tokens = model.trace_copies(sequences, **inputs, eos_token_id=end_ids)
        traced = _Trace(*(_to_numpy(getattr(of_tokens, name)) for name in _Trace._fields))
    is_word = _to_numpy(inputs["attention_mask"] > 0)
    spans = [source.offsets if trace else [] for source in sources]
    repeats = len(ids) // len(sources)
    predictions: list[list[Prediction]] = [[] for _ in sources]
    for row, length in enumerate(lengths.tolist()):
        number = row // repeats
        own = None if traced is None else _Trace(*(each[row, :length] for each in traced))
        own_ids = ids[row, :length].tolist()
        found = _read_output(sources[number], spans[number], is_word[number], own_ids, own)
        is_ended = not {*ends}.isdisjoint(own_ids[-1:]) or any(stop in found.text for stop in stops)
        found.is_cut = not is_ended and length == ids.shape[1]  # a row that a criterion has ended may be shorter
        predictions[number].append(found)
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


def _count_tokens(ids: Array, ends: Sequence[int], pad_token_id: int, beam_indices: Any) -> Array:
    """The number of tokens of each output (N, T), its end symbol included, see `count_tokens`.

    Args:
        beam_indices: of Transformers' beam search, (N, at least T), negative after the end, whatever ended it.
    """
    lengths = np.array([count_tokens(row, ends, pad_token_id) for row in ids.tolist()], int)
    return lengths if beam_indices is None else np.minimum(lengths, _to_numpy(beam_indices >= 0).sum(-1))


def _predict_blank(source: Source, trace: bool) -> Prediction:
    prediction = Prediction("", is_truncated=source.is_truncated, is_empty=True)
    if trace:
        prediction.source_words, prediction.copy_probs = source.surfaces, np.zeros((0, len(source.words)))
    return prediction


def _read_output(
    source: Source, spans: Sequence[Span | None], is_word: Array, ids: Sequence[int], trace: _Trace | None
) -> Prediction:
    """The prediction of a row without special tokens, its positions without padding, where `is_word` is false.

    Args:
        spans: those of the source's words.
    """
    skipped, marks = skipped_ids(source.tokenizer), find_marks(source.tokenizer)
    words = source.spell(ids, skipped)
    if trace is None:
        text = source.tokenizer.convert_tokens_to_string(words).strip()
        return Prediction(text, is_truncated=source.is_truncated)
    steps = [step for step, index in enumerate(ids) if index not in skipped]
    kept = [step for step, word in zip(steps, words, strict=True) if word not in marks]
    shares, probs = trace.copied[kept], trace.copy_probs[kept]
    number = is_word.cumsum() - 1  # of each position that is not padding
    positions = [None if position < 0 else int(number[position]) for position in trace.source_positions[kept]]
    spaced = zip(words, add_spaces(source.tokenizer, words), strict=True)
    shown = [piece for word, piece in spaced if word not in marks]
    copied_from = [
        spans[position] if share > 0.5 and position is not None and _is_whole(source, position, piece) else None
        for share, position, piece in zip(shares, positions, shown, strict=True)
    ]
    text, changes = str(source.text), _list_changes(words, marks)
    copied_from = [span and _cut_span(text, span, own) for span, own in zip(copied_from, changes, strict=True)]
    return Prediction(
        text="".join(shown),
        score=float(np.prod(trace.token_probs, dtype=float)),
        words=shown,
        word_scores=_score_words(words, trace.token_probs[steps], marks),
        copied=(shares > 0.5).tolist(),
        copy_shares=shares.tolist(),
        source_positions=positions,
        source_spans=copied_from,
        copied_spans=_merge_spans(shown, copied_from, text),
        source_words=source.surfaces,
        copy_probs=probs[:, is_word],
        is_truncated=source.is_truncated,
    )


def _is_whole(source: Source, position: int, piece: str) -> bool:
    """Whether a copied piece is the word of the source, and not a byte that completes another character there."""
    has_segmenter = getattr(source.tokenizer, "segmenter", None) is not None  # whose words no bytes are
    return bool(piece) and (has_segmenter or piece.strip() == source.words[position])


def _score_words(words: Sequence[str], probs: Array, marks: Collection[str]) -> list[float]:
    """The probability of each word that is no mark, times those of the marks before it, and of the last one times
    those of the marks after it."""
    scores: list[float] = []
    factor = 1.0
    for word, prob in zip(words, probs.tolist(), strict=True):
        factor *= prob
        if word not in marks:
            scores.append(factor)
            factor = 1.0
    if scores:
        scores[-1] *= factor
    return scores


def _list_changes(words: Sequence[str], marks: Collection[str]) -> list[list[str]]:
    """For each word that is no mark, the marks before it that change it, in the order in which they do."""
    changes: list[list[str]] = []
    of_next: list[str] = []
    for word in words:
        if word not in marks:
            changes.append(of_next)
        of_next = [word, *of_next] if word in marks and word != JOINER else []
    return changes


def _cut_span(text: str, span: Span, changes: Sequence[str]) -> Span | None:
    """What the cuts among changes, made one after the other, leave of a span of the text; None: nothing."""
    if CUTS.keys().isdisjoint(changes):
        return span
    word, left = text[slice(*span)], list(range(*span))  # the place of each letter
    for mark in changes:
        change = CHANGES[mark]
        if mark in CUTS:
            left = left[CUTS[mark]]
        else:  # one letter may become two, or an accent none
            ends = [len(change(word[:end])) for end in range(len(word) + 1)]
            left = [place for place, (start, end) in zip(left, pairwise(ends), strict=True) for _ in range(start, end)]
        word = change(word)
    return (left[0], left[-1] + 1) if left else None


def _merge_spans(words: Sequence[str], spans: Sequence[Span | None], source: str) -> list[tuple[int, int, int, int]]:
    """`Prediction.copied_spans`, from the words of an output with their spaces."""
    text, end = "".join(words), 0
    merged: list[tuple[int, int, int, int]] = []
    for word, span in zip(words, spans, strict=True):
        start = end if word.isspace() else end + len(word) - len(word.lstrip())
        end += len(word)
        if span is None:
            continue
        piece = (start, end, *span)
        if merged:
            last = merged[-1]
            gap, source_gap = text[last[1] : start], source[last[3] : span[0]]
            is_next = last[3] <= span[0] and bool(gap) == bool(source_gap)
            if is_next and not gap.strip() and not source_gap.strip():
                piece = (last[0], end, last[2], span[1])
                merged.pop()
        merged.append(piece)
    return merged


def _to_numpy(array: Any) -> Array:
    if not hasattr(array, "cpu"):
        return np.asarray(array)
    return (array.float() if array.is_floating_point() else array).cpu().numpy()  # NumPy has no bfloat16


def describe_incomplete(num_truncated: int, num_cut: int, total: int) -> list[str]:
    """The warnings of sources of which only a part was read, and of outputs that ended without an end symbol."""
    warnings = (
        (
            num_truncated,
            "texts were truncated: raise max_source_length (--max_source_length) or, of a Transformers encoder, the "
            "tokenizer's encoder_max_length",
        ),
        (num_cut, "outputs ended before they were complete: raise max_new_tokens (--max_target_length)"),
    )
    return [f"{count} of {total} {warning}" for count, warning in warnings if count]
