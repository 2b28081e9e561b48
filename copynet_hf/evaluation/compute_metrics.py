"""The metrics as `compute_metrics` of a `Seq2SeqTrainer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.features import with_objects
from ..model.segmentation import JOINER
from ..model.source import Fact, skipped_ids
from ..model.vocabularies import IGNORED_LABEL
from .metrics import CJK, UNK, Texts, are_mostly, score_outputs

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedTokenizerBase

Options = dict[str, Any]


def make_compute_metrics(
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Texts | None = None,
    *,
    max_source_length: int | None = None,
    facts: Sequence[Sequence[Fact]] | None = None,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a `Seq2SeqTrainer` that generates (`predict_with_generate=True`).

    The training arguments need `include_for_metrics=["inputs"]`, by which the order of the evaluation set is compared
    with that of the sources. `train_sampling_strategy="group_by_length"` reorders it: outputs would be decoded with
    the sources of other rows, and compared with their references.

    Args:
        sources: the source texts in the order of the evaluation set; a CopyNet tokenizer needs them to decode extended
            ids.
        references: for each source a text, or several. None: the decoded labels, which may be truncated, and whose
            `<unk>` no prediction can match.
        max_source_length: the length to which the sources were truncated; a CopyNet tokenizer needs it if it truncates
            on the left.
        facts: for each source its facts, if it was encoded with facts.

    Raises:
        ValueError: the numbers of references and sources differ. When called, the returned function raises it if the
            numbers of predictions and sources differ, if the inputs are missing, or if they are not those of the
            sources.
    """
    if references is not None and len(references) != len(sources):
        raise ValueError(f"{len(sources)} sources have {len(references)} references: pass one for each source")
    copies = hasattr(tokenizer, "encode_sources")
    options: Options = {"edit_distance": spells_words(getattr(tokenizer, "segmenter", None), sources)}
    decoding: Options = {}
    if copies:
        options |= {"words": partial(split_words, tokenizer), "vocabulary": tokenizer.get_vocab()}
        decoding = {"source": list(sources), "max_source_length": max_source_length}
        if facts is not None:
            decoding["facts"] = list(facts)
    encoding: Options = {} if facts is None else {"facts": list(facts)}
    if copies and max_source_length is not None:
        encoding |= {"truncation": True, "max_length": max_source_length}
    encoded = _without_special(tokenizer, tokenizer(list(sources), verbose=False, **encoding)["input_ids"])
    copyable = sources if facts is None else [with_objects(*row) for row in zip(sources, facts, strict=True)]

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        if prediction.inputs is None:
            raise ValueError(
                "the inputs are missing, which show the order of the rows: set include_for_metrics=['inputs'] in the "
                "training arguments"
            )
        if isinstance(prediction.predictions, tuple) or prediction.predictions.ndim != 2:
            raise ValueError(
                "the predictions are logits, not ids of outputs: set predict_with_generate=True in the training "
                "arguments"
            )
        columns = (prediction.predictions, prediction.label_ids, prediction.inputs)
        outputs, labels, inputs = (np.asarray(ids[0] if isinstance(ids, tuple) else ids) for ids in columns)
        if len(outputs) != len(inputs):
            raise ValueError(
                f"{len(inputs)} texts have {len(outputs)} predictions: set num_return_sequences=1 in the model's "
                "generation config"
            )
        _check_rows(_without_special(tokenizer, inputs.tolist()), encoded)
        outputs, labels = outputs[: len(sources)], labels[: len(sources)]
        texts = _decode(tokenizer, outputs, decoding)
        # The unknown words of labels match no prediction, not even `<unk>`.
        accepted: Texts = references or [text.replace(UNK, "\ufffd") for text in _decode(tokenizer, labels, decoding)]
        return score_outputs(texts, accepted, copyable, **options)

    return compute_metrics


def split_words(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """The tokens of a text but joiners, which stand between the parts of a word."""
    return [token for token in tokenizer.tokenize(text) if token != JOINER]


def spells_words(segmenter: str | None, texts: Iterable[str]) -> bool:
    """Whether the tokenizer splits these texts, whose letters are an alphabet, into characters."""
    return segmenter == "char" and not are_mostly(CJK, texts)


def _decode(tokenizer: PreTrainedTokenizerBase, rows: np.ndarray, options: Options) -> list[str]:
    """The texts of the rows, with `<unk>` kept: `skip_special_tokens` would drop it and could turn a wrong output into
    a right one."""
    texts = tokenizer.batch_decode(_without_special(tokenizer, rows.tolist()), **options)
    return [normalize_unknown(tokenizer, text).strip() for text in texts]


def normalize_unknown(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """The text with the tokenizer's unknown word written `<unk>`, as the scores expect it."""
    return text.replace(tokenizer.unk_token or UNK, UNK)


def _without_special(tokenizer: PreTrainedTokenizerBase, rows: Iterable[list[int]]) -> list[list[int]]:
    """The rows without padding and special tokens other than `<unk>`."""
    skipped = skipped_ids(tokenizer) | {IGNORED_LABEL}
    return [[index for index in row if index not in skipped] for row in rows]


def _check_rows(rows: Sequence[list[int]], sources: Sequence[list[int]]) -> None:
    """Raises ValueError unless each row is the source, or the beginning of it, and those beyond the sources are rows
    again: with several processes, the Trainer fills up the last batch."""
    for number, (row, source) in enumerate(zip(rows, sources, strict=False)):
        if row != source[: len(row)]:
            raise ValueError(
                f"the evaluation set is in another order than `sources` (its row {number} has other words): leave out "
                "train_sampling_strategy='group_by_length', and pass the `sources`, `facts` and `max_source_length` "
                "with which the evaluation set was made"
            )
    known = {tuple(row) for row in rows[: len(sources)]}
    if len(rows) < len(sources) or not known.issuperset(map(tuple, rows[len(sources) :])):
        raise ValueError(
            f"{len(sources)} sources have {len(rows)} predictions: pass the sources of the evaluation set, all of them"
        )
