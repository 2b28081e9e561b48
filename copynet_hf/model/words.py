"""Texts to ids, and ids to words and texts again, out-of-vocabulary words included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

UNK = "<unk>"  # where the tokenizer has no unknown word


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
    """The special tokens that are left out of decoded outputs: all but the unknown word.

    If that is the end symbol too, as in GPT-2's tokenizer, it is left out.
    """
    others = {tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}
    return frozenset(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} - others)


def decode_words(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    source: str,
    max_source_length: int | None = None,
    facts: Any = None,
) -> list[str]:
    """The words of an output, without special tokens other than the unknown word. Extended ids are looked up in the
    source."""
    first, skipped = len(tokenizer), skipped_ids(tokenizer)
    oov_words: list[str] = []
    # hasattr, not isinstance: with trust_remote_code, the tokenizer's class can be another copy of CopyNetTokenizer.
    if hasattr(tokenizer, "oov_words") and any(index >= first for index in ids):
        oov_words = tokenizer.oov_words(source, max_source_length or tokenizer.model_max_length, facts=facts)
    words, unknown = [], tokenizer.unk_token or UNK
    for index in ids:
        if 0 <= index - first < len(oov_words):
            words.append(oov_words[index - first])
        elif index not in skipped:
            is_unknown = index == tokenizer.unk_token_id or index >= first
            words.append(unknown if is_unknown else str(tokenizer.convert_ids_to_tokens(index)))
    return words


def add_spaces(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> list[str]:
    """Each word with the space that precedes it in the text; concatenated, they are the text without outer spaces.

    A character whose bytes are several words, as in byte-level BPE, is shown with the last of them; the others are "".
    """
    text = join_words(tokenizer, words)
    before = len(text) - len(text.lstrip())
    after = max(before, len(text.rstrip()))
    ends = [min(max(end, before), after) for end in _find_ends(tokenizer, words, text)]
    return [text[start:end] for start, end in zip([before, *ends], ends, strict=False)]


def _find_ends(tokenizer: PreTrainedTokenizerBase, words: Sequence[str], text: str) -> list[int]:
    """The position in their text at which each of the words ends.

    Only the previous word decides how a word is spaced, so a few words at a time are joined, and not all before.
    """
    ends: list[int] = []
    end = previous = placed = (
        0  # words[:placed] are text[:end]; words[previous:placed] are the context of the next ones
    )
    for count in range(1, len(words) + 1):
        context = join_words(tokenizer, words[previous:placed])
        joined = join_words(tokenizer, words[previous:count])
        piece = joined[len(context) :]
        if joined.startswith(context) and text.startswith(piece, end):  # false within a character
            end, previous, placed = end + len(piece), placed, count
        ends.append(end)
    if ends:
        ends[-1] = len(text)
    return ends


def join_words(tokenizer: PreTrainedTokenizerBase, words: Sequence[str]) -> str:
    """The text of the words, spaced as the tokenizer does."""
    return tokenizer.convert_tokens_to_string(list(words)) if words else ""
