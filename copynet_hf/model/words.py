"""Texts to ids, and ids to words and text again, with the words that are in no vocabulary.

Saved beside the weights with the pipeline. (`metrics` stands alone and has its own `hidden_ids`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import BatchEncoding, PreTrainedTokenizerBase

UNK = "<unk>"


def encode_sources(
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    facts: Sequence[Any] | None = None,
    max_source_length: int | None = None,
) -> BatchEncoding:
    """What `generate()` wants of the texts, and of their facts for models that retrieve, padded to one length.

    max_source_length: words of a source that are read; by default what the tokenizer was saved with.
    """
    # Token types mark facts; other tokenizers would add some that mean nothing here.
    options: dict[str, Any] = {"return_token_type_ids": False} if facts is None else {"facts": facts}
    return tokenizer(
        texts,
        **options,
        padding=True,
        truncation=True,
        max_length=max_source_length,
        return_tensors="pt",
    )


def hidden_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The special symbols that no reader wants to see: all of them but `<unk>`."""
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def output_words(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    source: str,
    max_source_length: int | None = None,
    facts: Any = None,
) -> list[str]:
    """The words of an output without special symbols, except `<unk>`; unseen ones from the source."""
    first, hidden = len(tokenizer), hidden_ids(tokenizer)
    owners: list[str] = []
    # By what it can do: loaded without the package, its class may have been read twice, and is not the same twice.
    if hasattr(tokenizer, "oov_words") and any(index >= first for index in ids):
        owners = tokenizer.oov_words(source, max_source_length or tokenizer.model_max_length, facts=facts)
    words = []
    for index in ids:
        if 0 <= index - first < len(owners):
            words.append(owners[index - first])
        elif index not in hidden:
            unknown = index == tokenizer.unk_token_id or index >= first
            words.append(UNK if unknown else str(tokenizer.convert_ids_to_tokens(index)))
    return words


def source_words(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    source: str,
    max_source_length: int | None = None,
    facts: Any = None,
) -> list[str]:
    """The word at each position of a source, as a reader knows it; "" where there is a special symbol."""
    if hasattr(tokenizer, "source_words"):  # also those that found no slot
        return tokenizer.source_words(source, max_source_length or tokenizer.model_max_length, facts=facts)
    hidden = hidden_ids(tokenizer)
    words = iter(text_pieces(tokenizer, output_words(tokenizer, ids, source, max_source_length, facts)))
    return ["" if index in hidden else next(words).strip() for index in ids]


def text_pieces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[str]:
    """Each word as it stands in the text, with the space before it: joined they are the text."""
    pieces, before = [], ""
    for end in range(1, len(words) + 1):
        text = joined(tokenizer, words[:end])
        pieces.append(text[len(before) :])
        before = text
    return pieces


def joined(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> str:
    """The text of the words, with the spaces of their language."""
    return tokenizer.convert_tokens_to_string(list(words)) if words else ""
