"""The letters of words outside the vocabulary, as ids.

`letter_ids` of a source are the letters of the words that own its slots, slot by slot, each word after a `BOUNDARY`:
`ab` and `c` are [0, a, b, 0, c]. Padding, on the right, is more words without letters, which no slot belongs to.

Nothing here needs torch or Transformers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from unicodedata import category

BOUNDARY, UNKNOWN_LETTER = 0, 1
NUM_SPECIAL_LETTERS = 2  # the ids of the letters follow
MAX_LETTERS_OF_WORD = 32  # of a longer word, half of them are its first letters, half its last ones
MAX_LETTERS, MIN_LETTER_FREQUENCY = 1000, 2  # of a trained vocabulary


def number_letters(letters: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """The id of each letter; see `number_entries`.

    Raises:
        ValueError: a letter is not one character, or given twice.
    """
    return number_entries(
        "letter", letters, NUM_SPECIAL_LETTERS, lambda letter: len(letter) == 1, "strings of one character"
    )


def number_entries(
    kind: str,
    entries: Iterable[str] | Mapping[str, int],
    first: int,
    is_valid: Callable[[str], object],
    description: str,
) -> dict[str, int]:
    """The id of each entry of a vocabulary, from `first` on, in their order or, for a mapping as the tokenizer saves
    it, that of their ids.

    Raises:
        ValueError: an entry is not valid, or given twice.
    """
    entries = sorted(entries, key=entries.__getitem__) if isinstance(entries, Mapping) else list(entries)
    for entry in entries:
        if not isinstance(entry, str) or not is_valid(entry):
            raise ValueError(f"{kind}_vocab contains {entry!r}: pass {description}")
    if len(set(entries)) < len(entries):
        twice = next(entry for entry in entries if entries.count(entry) > 1)
        raise ValueError(f"{kind}_vocab contains {twice!r} twice: list each {kind} once")
    return {entry: index for index, entry in enumerate(entries, first)}


def find_letter_ids(words: Iterable[str], vocab: Mapping[str, int]) -> list[int]:
    """The ids of the words' letters, each word after a boundary, and of each at most `MAX_LETTERS_OF_WORD`."""
    ids: list[int] = []
    half = MAX_LETTERS_OF_WORD // 2
    for word in words:
        letters = word if len(word) <= 2 * half else word[:half] + word[-half:]
        ids.append(BOUNDARY)
        ids += [vocab.get(letter, UNKNOWN_LETTER) for letter in letters]
    return ids


def list_letters(words: Mapping[str, int]) -> str:
    """The letters of a vocabulary, the most frequent ones first.

    Args:
        words: how often each occurs.
    """
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    frequent = (
        (-count, letter)
        for letter, count in counts.items()
        if count >= MIN_LETTER_FREQUENCY and category(letter) != "Cs"  # a lone surrogate, which no file can hold
    )
    return "".join(letter for _, letter in sorted(frequent)[:MAX_LETTERS])
