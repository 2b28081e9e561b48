"""The vocabularies of a tokenizer, of words, features and letters: numbered, looked up, compared with a model's.

`letter_ids` of a source are the letters of the words that own its slots, slot by slot, each word after a `BOUNDARY`:
`ab` and `c` are [0, a, b, 0, c]. Where the vocabulary has a word in another case, that word's id plus the number n of
letter ids precedes the letters: `Ab` is [0, 7 + n, A, b] if `ab` is word 7. Padding, on the right, is more words
without letters, which no slot belongs to.

Nothing here needs torch or Transformers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from typing import Literal
from unicodedata import category

Text = str | Sequence[str]
"""A text, or the words of one."""

FEATURE_SEPARATOR = ";"  # in one string, as in the files of the SIGMORPHON shared tasks
NO_FEATURE, UNKNOWN_FEATURE = 0, 1  # the former is padding
NUM_SPECIAL_FEATURES = 2  # the ids of the features follow
BOUNDARY, UNKNOWN_LETTER = 0, 1
NUM_SPECIAL_LETTERS = 2  # the ids of the letters follow
MAX_LETTERS_OF_WORD = 32  # of a longer word, half of them are its first letters, half its last ones
MAX_LETTERS, MIN_LETTER_FREQUENCY = 1000, 2  # of a trained vocabulary
# All but single spaces within a text.
_WHITESPACE = re.compile(r"\A\s+|(?<!\s)(?! \S)\s+")
_MAX_PART = 64  # characters of a longer word of whitespace that are looked up
IGNORED_LABEL = -100  # the default ignore_index of torch's cross-entropy


def check_text(text: object, name: str, is_split_into_words: bool) -> None:
    """Raises TypeError unless this is a text, or with `is_split_into_words` a sequence of words."""
    if not is_split_into_words:
        if not isinstance(text, str):
            words = ", or words with is_split_into_words=True" if isinstance(text, list | tuple) else ""
            raise TypeError(f"{name} is {type(text).__name__}: pass a text{words}")
    elif isinstance(text, str) or not isinstance(text, Sequence):
        raise TypeError(f"{name} is not a list of words: pass a list, or leave out is_split_into_words=True")
    else:
        for number, word in enumerate(text):
            if not isinstance(word, str):
                raise TypeError(f"{name}[{number}] is {word!r:.80}, not a word: pass strings")


def count_words(
    texts: Iterable[Text], split: Callable[[str], list[str]], special: Iterable[str], is_split_into_words: bool = False
) -> Counter[str]:
    """How often each word that is no special token occurs in texts, or with `is_split_into_words` in lists of words.

    Raises:
        TypeError: it is a single text, or one of the texts is not a string.
        ValueError: there are no texts.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one text: pass an iterable of texts")
    counts: Counter[str] = Counter()
    for row, text in enumerate(texts):
        check_text(text, f"texts[{row}]", is_split_into_words)
        counts.update(split(text) if isinstance(text, str) else text)
    if not counts:
        raise ValueError("texts is empty: pass at least one text")
    for token in special:
        counts.pop(token, None)
    return counts


def sort_by_frequency(counts: Mapping[str, int], min_frequency: int = 1) -> list[str]:
    """The words, or letters, that occur so often, the most frequent first, those of one frequency by code points."""
    frequent = (word for word, count in counts.items() if count >= min_frequency)
    return sorted(frequent, key=lambda word: (-counts[word], word))


def count_letters(words: Mapping[str, int]) -> Counter[str]:
    """How often each letter occurs in words that occur so often."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    return counts


def list_letters(words: Mapping[str, int]) -> str:
    """The letters of a vocabulary, the most frequent ones first.

    Args:
        words: how often each occurs.
    """
    frequent = sort_by_frequency(count_letters(words), MIN_LETTER_FREQUENCY)
    letters = [letter for letter in frequent if category(letter) != "Cs"]  # a lone surrogate, which no file can hold
    return "".join(letters[:MAX_LETTERS])


def fold_unknown_whitespace(text: str, vocab: Collection[str], split: Callable[[str], list[str]]) -> str:
    """A source with only the whitespace that a vocabulary has: a model whose training pairs have no line breaks reads
    these as spaces.

    Other whitespace becomes what the vocabulary has of it, such as one line break of two; if that is nothing, a space,
    or at both ends of the text nothing.

    Args:
        split: splits whitespace into words.
    """
    if " ".join(text.split()) == text:  # most texts, in less time
        return text

    def fold(match: re.Match[str]) -> str:
        known, words = match[0], split(match[0])
        while any(word not in vocab for word in words):
            known = "".join(_find_known(word, vocab) for word in words)
            words = split(known)
        if known == match[0] or known.strip(" "):
            return known
        if match.start() == 0 or match.end() == len(text):
            return ""
        are_together = known and known in match[0]  # not one from either side of an unknown tab
        return known if are_together else " "

    return _WHITESPACE.sub(fold, text)


def _find_known(word: str, vocab: Collection[str]) -> str:
    """The longest part of the word, from its start, that the vocabulary has."""
    lengths = (len(word), *range(min(len(word) - 1, _MAX_PART), 0, -1))
    return next((word[:length] for length in lengths if word[:length] in vocab), "")


def check_vocab(vocab: object, special_tokens: Sequence[object], added: set[str]) -> dict[str, int]:
    """Returns `vocab` in the order of its ids.

    Raises:
        ValueError: it is not a mapping, its ids have gaps, or a special token is missing.
    """
    if not isinstance(vocab, Mapping):
        raise ValueError(f"vocab is {type(vocab).__name__}: pass a mapping from words to ids")
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
    if list(ordered.values()) != list(range(len(ordered))):
        raise ValueError("the ids of vocab have a gap: number the words 0, 1, 2, ..., since the slots come next")
    if missing := {str(token) for token in special_tokens} - added - ordered.keys():
        raise ValueError(f"vocab lacks the special tokens {', '.join(sorted(missing))}: add them")
    return ordered


def number_entries(kind: Literal["feature", "letter"], entries: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """The id of each feature or letter, after the special ones, in their order or, for a mapping as the tokenizer
    saves it, that of their ids.

    Raises:
        ValueError: a feature is no string, or empty; a letter is no string of one character; or one is given twice.
    """
    is_letter = kind == "letter"
    entries = sorted(entries, key=entries.__getitem__) if isinstance(entries, Mapping) else list(entries)
    for entry in entries:
        if not isinstance(entry, str) or not entry or (is_letter and len(entry) > 1):
            expected = "strings of one character" if is_letter else "strings that are not empty"
            raise ValueError(f"{kind}_vocab contains {entry!r}: pass {expected}")
    if len(set(entries)) < len(entries):
        twice = next(entry for entry in entries if entries.count(entry) > 1)
        raise ValueError(f"{kind}_vocab contains {twice!r} twice: list each {kind} once")
    first = NUM_SPECIAL_LETTERS if is_letter else NUM_SPECIAL_FEATURES
    return {entry: index for index, entry in enumerate(entries, first)}


# ---- entries as ids


def find_feature_ids(features: Sequence[str] | None, name: str, vocab: Mapping[str, int]) -> list[int]:
    """The ids of features, each once.

    Raises:
        ValueError: they are no list of strings, or one of them is several that the vocabulary has.
    """
    if isinstance(features, str) or not all(isinstance(feature, str) for feature in features or ()):
        raise ValueError(f"{name} is {features!r:.100}: pass a list of strings")
    for feature in features or ():
        if feature in vocab or FEATURE_SEPARATOR not in feature:
            continue
        parts = [part.strip() for part in feature.split(FEATURE_SEPARATOR) if part.strip()]
        if parts and all(part in vocab for part in parts):
            raise ValueError(f"{name} has {feature!r}: pass one string for each feature, {parts}")
    return [vocab.get(feature, UNKNOWN_FEATURE) for feature in dict.fromkeys(features or ())]


def find_case_variants(words: Mapping[str, int], special_tokens: Collection[str]) -> dict[str, int]:
    """The id of each word but special tokens, by its spelling in lower case; of `us` and `US`, that of the first, more
    frequent one."""
    variants: dict[str, int] = {}
    for word, index in words.items():
        if word not in special_tokens:
            variants.setdefault(word.lower(), index)
    return variants


def check_tokenizer(config: object, tokenizer: Sized) -> None:
    """Checks that model and tokenizer agree on the vocabulary size, the number of slots, the special tokens and the
    pieces of a Transformers encoder.

    Raises:
        ValueError: they do not.
    """
    fix = "load the tokenizer that was saved with the model"
    size = getattr(config, "vocab_size", 0)
    has_spare_words = getattr(config, "seq2seq", False) and len(tokenizer) < size  # as T5's, for faster products
    if len(tokenizer) != size and not has_spare_words:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} words, the model vocab_size={size}: {fix}, or call "
            "model.resize_token_embeddings(len(tokenizer)) and train again"
        )
    for name in ("max_source_oov", "feature_vocab_size", "letter_vocab_size"):
        in_tokenizer, in_model = getattr(tokenizer, name, 0), getattr(config, name, 0)
        if in_tokenizer != in_model:
            other_fix = ", or use the same number for both" if name == "max_source_oov" else ""
            raise ValueError(f"the tokenizer has {name}={in_tokenizer}, the model {name}={in_model}: {fix}{other_fix}")
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        in_tokenizer, in_model = getattr(tokenizer, name, None), getattr(config, name, None)
        accepted = in_model if isinstance(in_model, list) else [in_model]
        if in_tokenizer is not None and in_tokenizer not in accepted:
            raise ValueError(f"{name} is {in_tokenizer} for the tokenizer and {in_model} for the model: {fix}")
    pieces, encoder = getattr(tokenizer, "encoder_tokenizer", None), getattr(config, "piece_encoder", None)
    if encoder is not None and (pieces is None or len(pieces) > encoder.vocab_size):
        has = "no encoder_tokenizer" if pieces is None else f"{len(pieces)} pieces"
        raise ValueError(f"the tokenizer has {has}, the model's encoder {encoder.vocab_size} pieces: {fix}")
