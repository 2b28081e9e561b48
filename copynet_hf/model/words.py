"""Texts to ids, and ids to words and texts again, out-of-vocabulary words included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

UNK = "<unk>"


def encode_sources(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    facts: Sequence[Any] | None = None,
    max_source_length: int | None = None,
    return_tensors: str = "pt",
    *,
    features: Sequence[Any] | None = None,
) -> BatchEncoding:
    """Encodes source texts for `generate()`, padded to one length.

    Args:
        facts: for each text its facts or None; see `CopyNetTokenizer`. None: no text has facts.
        max_source_length: the number of words to which a source is truncated; None: the tokenizer's
            `model_max_length`.
        return_tensors: "pt" or "np".
        features: for each text its features or None; see `CopyNetTokenizer`. None: no text has features.
    """
    # Token types mark facts. Other tokenizers return some that mean nothing to these models.
    options: dict[str, Any] = {"return_token_type_ids": False} if facts is None else {"facts": facts}
    if features is not None:
        options["features"] = features
    return tokenizer(
        list(texts),
        **options,
        padding=True,
        truncation=True,
        max_length=max_source_length,
        return_tensors=return_tensors,
    )


def skipped_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The special tokens that are left out of decoded outputs: all but `<unk>`."""
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def decode_words(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    source: str,
    max_source_length: int | None = None,
    facts: Any = None,
) -> list[str]:
    """The words of an output, without special tokens other than `<unk>`. Extended ids are looked up in the source."""
    first, skipped = len(tokenizer), skipped_ids(tokenizer)
    oov_words: list[str] = []
    # hasattr, not isinstance: with trust_remote_code, the tokenizer's class can be another copy of CopyNetTokenizer.
    if hasattr(tokenizer, "oov_words") and any(index >= first for index in ids):
        oov_words = tokenizer.oov_words(source, max_source_length or tokenizer.model_max_length, facts=facts)
    words = []
    for index in ids:
        if 0 <= index - first < len(oov_words):
            words.append(oov_words[index - first])
        elif index not in skipped:
            is_unknown = index == tokenizer.unk_token_id or index >= first
            words.append(UNK if is_unknown else str(tokenizer.convert_ids_to_tokens(index)))
    return words


def add_spaces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[str]:
    """Each word with the space that precedes it in the text; concatenated, they are the text."""
    pieces, before = [], ""
    for end in range(1, len(words) + 1):
        text = join_words(tokenizer, words[:end])
        pieces.append(text[len(before) :])
        before = text
    return pieces


def join_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> str:
    """The text of the words, spaced as the tokenizer does."""
    return tokenizer.convert_tokens_to_string(list(words)) if words else ""
