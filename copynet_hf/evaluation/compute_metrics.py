"""The metrics as `compute_metrics` of a `Seq2SeqTrainer`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..model.source import skipped_ids
from .metrics import UNK, Texts, Tokenization, mostly_cjk, score_outputs

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedTokenizerBase

_MAX_CHECKED = 20  # of the rows whose labels differ from their reference


def make_compute_metrics(
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Texts | None = None,
    *,
    tokenize: Tokenization = "auto",
    max_source_length: int | None = None,
    facts: Sequence[Any] | None = None,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a `Seq2SeqTrainer` that generates (`predict_with_generate=True`).

    Do not train with `train_sampling_strategy="group_by_length"`: the Trainer then reorders the evaluation set too,
    and outputs would be decoded with the sources of other rows and compared with their references. The labels show
    this, and an error is raised: with `references`, when labels match those of other rows; without, and for a CopyNet
    tokenizer only, when they contain an out-of-vocabulary word that the row's source lacks.

    Args:
        sources: the source texts in the order of the evaluation set; a CopyNet tokenizer needs them to decode extended
            ids.
        references: for each source a text, or several. None: the decoded labels, which may be truncated, and whose
            `<unk>` no prediction can match.
        tokenize: see `score_outputs`.
        max_source_length: the length to which the sources were truncated; a CopyNet tokenizer needs it if it truncates
            on the left.
        facts: for each source its facts, if it was encoded with facts.

    Raises:
        ValueError: the numbers of references and sources differ. When called, the returned function raises it if there
            are fewer predictions than sources, or if the evaluation set is in another order than the sources.
    """
    if references is not None and len(references) != len(sources):
        raise ValueError(f"{len(sources)} sources have {len(references)} references: give one for each source")
    methods = (tokenizer.decode, tokenizer.batch_decode)  # of which one may pass `source` on to the other as **kwargs
    copies = any("source" in inspect.signature(method).parameters for method in methods)
    options: dict[str, Any] = {
        "tokenize": tokenize,
        "edit_distance": spells_words(getattr(tokenizer, "segmenter", None), sources),
    }
    decoding: dict[str, Any] = {}
    if copies:
        options |= {"words": tokenizer.tokenize, "vocabulary": tokenizer.get_vocab()}
        decoding = {"source": list(sources), "max_source_length": max_source_length}
        if facts is not None:
            decoding["facts"] = list(facts)
    copyable = sources if facts is None else [with_objects(*row) for row in zip(sources, facts, strict=True)]

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        outputs, labels = (_first_rows(ids, len(sources)) for ids in (prediction.predictions, prediction.label_ids))
        texts = _decode(tokenizer, outputs, decoding)
        if copies:
            _check_slots(tokenizer, labels, sources, max_source_length, facts)
        if references is None:
            accepted: Texts = [_unmatchable(text) for text in _decode(tokenizer, labels, decoding)]
        else:
            accepted = references
            _check_order(tokenizer, labels, sources if copies else None, references, max_source_length, facts)
        return score_outputs(texts, accepted, copyable, **options)

    return compute_metrics


def spells_words(segmenter: str | None, texts: Iterable[str]) -> bool:
    """Whether the tokenizer splits these texts, which are not Chinese or Japanese, into characters."""
    return segmenter == "char" and not mostly_cjk(texts)


def with_objects(text: str, facts: Iterable[Sequence[str]] | None) -> str:
    """All that can be copied: the text, and the objects of its facts."""
    return " ".join([text, *(fact[2] for fact in facts or ())])


def _first_rows(ids: Any, count: int) -> np.ndarray:
    """The first `count` rows: with several processes, the Trainer fills up the last batch with repeated rows."""
    rows = np.asarray(ids[0] if isinstance(ids, tuple) else ids)
    if len(rows) < count:
        raise ValueError(f"{count} sources have {len(rows)} predictions: give the sources of the evaluation set")
    return rows[:count]


def _decode(tokenizer: PreTrainedTokenizerBase, rows: np.ndarray, options: dict[str, Any]) -> list[str]:
    """The texts of the rows, with `<unk>` kept: `skip_special_tokens` would drop it and could turn a wrong output into
    a right one."""
    texts = tokenizer.batch_decode(_without_special(tokenizer, rows.tolist()), **options)
    return [normalize_unknown(tokenizer, text).strip() for text in texts]


def normalize_unknown(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """The text with the tokenizer's unknown word written `<unk>`, as the scores expect it."""
    return text.replace(tokenizer.unk_token or UNK, UNK)


def _without_special(tokenizer: PreTrainedTokenizerBase, rows: Iterable[list[int]]) -> list[list[int]]:
    """The rows without padding and special tokens other than `<unk>`."""
    skipped = skipped_ids(tokenizer) | {-100}
    return [[index for index in row if index not in skipped] for row in rows]


def _unmatchable(text: str) -> str:
    """A reference whose unknown words match no prediction, not even `<unk>`."""
    return text.replace(UNK, "\ufffd")


def _check_slots(
    tokenizer: Any,
    labels: np.ndarray,
    sources: Sequence[str],
    max_source_length: int | None,
    facts: Sequence[Any] | None,
) -> None:
    """Checks that no label has a slot that the row's source does not own.

    Raises:
        ValueError: one has.
    """
    first = len(tokenizer)
    for row, (highest, source) in enumerate(zip(labels.max(axis=1, initial=0), sources, strict=True)):
        row_facts = {} if facts is None else {"facts": facts[row]}
        if highest >= first and highest - first >= len(tokenizer.oov_words(source, max_source_length, **row_facts)):
            raise _order_error(f"the labels of row {row} contain a word that its source lacks")


def _check_order(
    tokenizer: PreTrainedTokenizerBase,
    labels: np.ndarray,
    sources: Sequence[str] | None,
    references: Texts,
    max_source_length: int | None,
    facts: Sequence[Any] | None,
) -> None:
    """Checks that the labels are not those of other rows' references; `sources` for a CopyNet tokenizer.

    Labels that differ from their own reference prove nothing, since they may have been made from another text. Such
    rows are therefore looked up among the references of the other rows, and half of them must be found there.

    Raises:
        ValueError: they are.
    """
    accepted = [[row] if isinstance(row, str) else list(row) for row in references]
    targets = _encode_references(tokenizer, sources, accepted, max_source_length, facts)
    rows = _without_special(tokenizer, labels.tolist())
    unk = tokenizer.unk_token_id
    differing = [row for row, ids in enumerate(rows) if not any(_agree(ids, target, unk) for target in targets[row])]
    checked = differing[:_MAX_CHECKED]
    elsewhere = sum(any(_truncates(rows[row], target, unk) for each in targets for target in each) for row in checked)
    if len(differing) > 1 and 2 * elsewhere >= len(checked):
        raise _order_error(f"the labels of row {differing[0]} are those of another row's reference")


def _encode_references(
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str] | None,
    references: list[list[str]],
    max_source_length: int | None,
    facts: Sequence[Any] | None,
) -> list[list[list[int]]]:
    """For each row the ids of its references, without special tokens."""
    texts = [text for row in references for text in row]
    if sources is None:
        encoded = tokenizer(text_target=texts, verbose=False)["input_ids"]
    else:
        repeated = [source for source, row in zip(sources, references, strict=True) for _ in row]
        options: dict[str, Any] = {}
        if max_source_length is not None:
            options = {"truncation": True, "max_length": max_source_length}
        if facts is not None:
            options["facts"] = [triples for triples, row in zip(facts, references, strict=True) for _ in row]
        encoded = tokenizer(repeated, text_target=texts, max_target_length=sys.maxsize, **options)["labels"]
    targets = iter(_without_special(tokenizer, encoded))
    return [[next(targets) for _ in row] for row in references]


def _agree(labels: list[int], target: list[int], unk: int | None) -> bool:
    """Whether one is a prefix of the other. `<unk>` matches any word: a truncated source owns fewer slots."""
    return all(a == b or unk in (a, b) for a, b in zip(labels, target, strict=False))


def _truncates(labels: list[int], target: list[int], unk: int | None) -> bool:
    """Whether the labels can be the target, truncated or not."""
    return len(labels) <= len(target) and _agree(labels, target, unk)


def _order_error(evidence: str) -> ValueError:
    return ValueError(
        f"the evaluation set is in another order than `sources` ({evidence}): leave out "
        "train_sampling_strategy='group_by_length', and give the `sources`, `references` and `max_source_length` with "
        "which the evaluation set was made"
    )
