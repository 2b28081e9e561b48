"""Compound copies: in some training pairs, a copied word or number becomes a compound, in source and target alike.

New texts hold names and numbers of other shapes than the training pairs: `Miller` and `4711` in these; `Miller-Novak`,
`O'Miller`, `Anna Miller` and `KA-4711` later. To a segmenter that cuts at marks these are several words, perhaps
around a mark that no training name has. A model that has only copied single words stops there, or begins behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any

from datasets import IterableDataset
from datasets.fingerprint import Hasher

from ..data.files import Row
from ..model.chains import find_cases
from ..model.segmentation import CHAINED, SEGMENTERS, Segmenter
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import CODE, Pairs, spread

JOINING_MARKS = " " * 2 + "-'’/.&+_"  # a space twice as often as each of the others
NUMBER_MARKS = "-/"
# On its own, no part of a date, an amount or a code; longer than a year.
NUMBER = re.compile(r"(?<![\w.,:/–-])(?<!\d\s)\d{5,}(?!\w|[.,:/–-]\w|\s\d)")
MAX_NAME_SHARE = 0.2  # of the pairs that have one of the vocabulary
MAX_COMPOUNDS, NUM_SLOTS = 2, 8  # in a pair, and the slots that their parts need at most
SAMPLE_SIZE = 1_000  # pairs from whose copied words the other parts are taken
_CODE = Hasher.hash_bytes([CODE.encode(), Path(__file__).read_bytes()])


def add_compounds(pairs: Pairs, tokenizer: CopyNetTokenizer, share: float, num_proc: int | None = None) -> Pairs:
    """The pairs, of which this share has compounds for one or two of the words and numbers that `find_copied` names,
    wherever source and target have them. A pair always changes in the same way.

    Pairs with facts or features do not change, nor do those of a segmenter of words that does not cut at marks.

    Args:
        num_proc: number of processes; ignored for an `IterableDataset`.
    """
    columns = pairs.column_names or list(next(iter(pairs)))
    if not share or tokenizer.segmenter not in ("char", *CHAINED) or {"facts", "features"} & {*columns}:
        return pairs
    sample = list(spread(pairs, SAMPLE_SIZE))
    names = find_names(sample, tokenizer)
    copied = [find_copied(row["text"], row["summary"], tokenizer, names) for row in sample]
    copied_words = {word for words in copied for word in words if not word.isdecimal()}
    others = sorted(copied_words - (names if tokenizer.segmenter in CHAINED else set()))

    def change(rows: Mapping[str, list[str]], code: str) -> dict[str, list[str]]:
        texts, targets = list[str](), list[str]()
        for text, target in zip(rows["text"], rows["summary"], strict=True):
            random = Random(text)
            if random.random() < share:
                words = find_copied(text, target, tokenizer, names)
                words = random.sample(words, min(len(words), random.randint(1, MAX_COMPOUNDS)))
                text, target = _change_pair(text, target, tokenizer, words, names, others, random)
            texts.append(text)
            targets.append(target)
        return {"text": texts, "summary": targets}

    options: dict[str, Any] = (
        {} if isinstance(pairs, IterableDataset) else {"num_proc": num_proc, "desc": "Joining copied words"}
    )
    return pairs.map(change, batched=True, fn_kwargs={"code": _CODE}, **options) if any(copied) else pairs


def find_names(pairs: Sequence[Row], tokenizer: CopyNetTokenizer) -> frozenset[str]:
    """The words of the vocabulary, capitalised where the script has capitals, that targets only ever copy, unless they
    are in many: the first names of a task whose pairs have few of them. New texts have others. If the vocabulary holds
    characters, all such words."""
    split = _get_segmenter(tokenizer).split
    copied, generated = Counter[str](), set[str]()
    for row in pairs:
        source, target = {*split(row["text"])}, {*split(row["summary"])}
        copied.update(target & source)
        generated |= target - source
    frequent = {word for word, number in copied.items() if number > MAX_NAME_SHARE * len(pairs)}
    known = tokenizer.get_vocab().keys() if tokenizer.segmenter in CHAINED else copied.keys()
    words = (copied.keys() & known) - generated - frequent
    return frozenset(word for word in words if word[0].isalpha() and not word[0].islower())


def find_copied(text: str, target: str, tokenizer: CopyNetTokenizer, names: Collection[str] = ()) -> list[str]:
    """What the target copies whole from its source, perhaps in another case, and does not use otherwise: words outside
    the vocabulary, `names`, and numbers."""
    source = tokenizer.encode_source(text, max_length=tokenizer.model_max_length)
    if source.is_truncated or len(source.slots) + NUM_SLOTS > tokenizer.max_source_oov:
        return []
    split = _get_segmenter(tokenizer).split
    words = Counter(split(target))
    if tokenizer.segmenter in CHAINED:
        ids = source.slots | {
            word: index for word, index in zip(source.words, source.ids, strict=True) if word in names
        }
        copies = Counter(tokenizer.encode_target(target, source))
        forms = {word: sum(words[form] for form in _list_forms(word, tokenizer)) for word in ids if word[0].isalpha()}
        copied = [word for word, number in forms.items() if 0 < number == copies[ids[word]]]
    else:
        copied = [
            word for word in dict.fromkeys(split(text)) if word in names and 0 < words[word] == target.count(word)
        ]
    numbers, written = Counter(NUMBER.findall(text)), Counter(NUMBER.findall(target))
    copied += [
        number
        for number in numbers
        if numbers[number] == text.count(number) and 0 < written[number] == target.count(number)
    ]
    return copied


def _get_segmenter(tokenizer: CopyNetTokenizer) -> Segmenter:
    """The segmenter of the words that may become compounds."""
    return SEGMENTERS[tokenizer.segmenter if tokenizer.segmenter in CHAINED else "word_punct"]


def _list_forms(word: str, tokenizer: CopyNetTokenizer) -> dict[str, Callable[[str], str]]:
    """The word as it is and in other cases, with what writes it so."""
    forms: dict[str, Callable[[str], str]] = {word: str}
    for change in find_cases(tokenizer.chains.changes).values():
        forms.setdefault(change(word), change)
    return forms


def _change_pair(
    text: str,
    target: str,
    tokenizer: CopyNetTokenizer,
    words: Iterable[str],
    names: Collection[str],
    others: Sequence[str],
    random: Random,
) -> tuple[str, str]:
    """Source and target with compounds for these words and numbers. Half of the names give way to other words."""
    in_source, in_target, numbers = dict[str, str](), dict[str, str](), dict[str, str]()
    for word in words:
        if word.isdecimal():
            numbers[word] = _extend_number(word, random)
            continue
        other = random.choice(others or [word])
        parts = [other] if word in names and random.random() < 1 / 2 else _draw_parts(word, other, random)
        in_source[word] = "".join(parts)
        in_target |= {form: "".join(map(write, parts)) for form, write in _list_forms(word, tokenizer).items()}
    text, target = (NUMBER.sub(lambda match: numbers.get(match[0], match[0]), each) for each in (text, target))
    return _replace(text, in_source, tokenizer), _replace(target, in_target, tokenizer)


def _draw_parts(word: str, other: str, random: Random) -> list[str]:
    """The parts of a compound, the mark among them: Miller-Novak, O'Miller, or Miller/No."""
    mark = random.choice(JOINING_MARKS)
    return random.choice(
        (
            [word, mark, other],
            [other[: random.randint(1, 2)], mark, word],
            [word, mark, other[: random.randint(1, 3)]],
        )
    )


def _extend_number(number: str, random: Random) -> str:
    """A longer number or a code: 4711-30815, 30815/4711, KA-4711, K4711 or 4711K. Dates have fewer digits."""
    mark, digits = random.choice(NUMBER_MARKS), str(random.randrange(100, 100_000))
    letters = "".join(random.choices(ascii_uppercase, k=random.randint(1, 3)))
    return random.choice(
        (
            f"{number}{mark}{digits}",
            f"{digits}{mark}{number}",
            f"{letters}{random.choice(('', mark))}{number}",
            f"{number}{letters[0]}",
        )
    )


def _replace(text: str, compounds: Mapping[str, str], tokenizer: CopyNetTokenizer) -> str:
    """The text with compounds for its words; what is between them stays."""
    segmenter = _get_segmenter(tokenizer)
    words = segmenter.split(text)
    pieces = zip(words, segmenter.space(words), strict=True)
    return "".join(
        piece.removesuffix(word) + compounds[word] if word in compounds else piece for word, piece in pieces
    )
