"""Compound copies, an augmentation of training pairs: what targets copy gets other shapes in both texts.

New texts hold names, identifiers and phrases of other shapes than the training pairs: `Miller`, `KA-4711` and `damage
to the gate` in these; `Miller-Novak`, `O'Miller`, `Anna Miller`, `KA-4711/22` and `damage to the old gate` later. A
segmenter that cuts at punctuation splits these into several words, perhaps around a mark that no name has in training.
A model that has only copied names of one word stops at the mark, or starts copying after it. For numbers, see
copied_numbers.py.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import Any, cast

from datasets import Dataset, IterableDataset
from datasets.fingerprint import Hasher

from ..data.files import Row
from ..evaluation.metrics import UNSPACED
from ..model.chains import find_cases
from ..model.segmentation import CHAINED, SEGMENTERS, Segmenter, is_spelled_letter
from ..model.tokenization_copynet import CopyNetTokenizer
from .copied_numbers import find_number_shapes, find_numbers, replace_number, reshape_number
from .dataset import CODE, Pairs, spread, take_spread
from .guided_attention import find_partners
from .reach import find_script

JOINING_MARKS = " " * 2 + "-'’/.&+_"  # a space twice as often as each of the others
IDENTIFIER_MARKS = "-/"
# A digit, or a letter of a script with spaces: in others, an identifier may have letters beside it.
_CHARACTER, _LETTER = rf"(?:[^\W\d{UNSPACED}]|\d)", rf"[^\W\d_{UNSPACED}]"
_PART = rf"(?:{_CHARACTER}|[/-](?![/-])){{0,50}}"  # no more: a search in longer words would take long
_UNITS = "%٫٬$€£¥₹"
_MARKS = rf"{_UNITS}.,:/'’@+\-−–—"
# Five digits or more, unlike a year, or a letter and three digits in a row; without a neighbouring mark, or a letter
# behind digits alone, that could make them part of a date, an amount or an address.
IDENTIFIER = re.compile(
    rf"""(?<!{_CHARACTER}) (?<![{_MARKS}]) (?: (?<!\d\s) | (?=[^\W\d]) )
    (?= {_PART}\d{{5}}{_PART}+(?!\w) | {_PART}{_LETTER}{_PART}\d{{3}} | {_PART}\d{{3}}{_PART}{_LETTER} )
    {_CHARACTER}+ (?: [/-]{_CHARACTER}+ )* (?! {_CHARACTER} | [{_UNITS}] | [{_MARKS}]{_CHARACTER} | \s\d )""",
    re.VERBOSE,
)
# Two words with a space between them; nothing glues them to others.
_FREE_START, _FREE_END = r"(?<![\w'’.-])", r"(?![\w'’-])"
_PHRASE = re.compile(rf"{_FREE_START}(?=([^\W\d_]+) ([^\W\d_]+){_FREE_END})")
MAX_NAME_SHARE = 0.2  # of the pairs that have one of the vocabulary
MAX_COMPOUNDS, NUM_SLOTS = 2, 8  # in a pair, and the slots that their parts need at most
LENGTHENED = RENUMBERED = 0.5  # the shares of the pairs in which a phrase has one word more, and a number changes
MAX_DRAWS = 5  # of a word that the source does not have
SHORTENED = 0.3  # the share of two-word names that lose a word, if the first one is drawn
MIN_OTHERS = 200  # words from which parts of compounds are drawn; if there are fewer, some are made
MAX_VERSIONS, MAX_AUGMENTED = 4, 2_500  # of a training pair, and about as many in all: each takes milliseconds
SAMPLE_SIZE = 1_000  # pairs from which names, and the other parts of compounds, are taken
_FILES = Path(__file__), Path(__file__).with_name("copied_numbers.py")
_CODE = Hasher.hash_bytes([CODE.encode(), UNSPACED.encode(), *(file.read_bytes() for file in _FILES)])


def add_compounds(
    pairs: Pairs,
    tokenizer: CopyNetTokenizer,
    share: float,
    max_target_length: int | None = None,
    num_proc: int | None = None,
    *,
    num_versions: int = 1,
) -> Pairs:
    """Augments this share of the pairs: one or two of the words and identifiers of `find_copied` get another shape,
    wherever source and target have them, or a name of two words loses one of them. Where the target copies phrases and
    numbers, half of the pairs have a word more in a phrase, and half a number of another shape. With the same pairs
    and tokenizer, a pair always changes in the same ways.

    Pairs with facts or features do not change, nor do those of the segmenters `whitespace`, `jieba` and `fugashi`. A
    pair also stays as it is if its source would be truncated, its target would exceed the limit, or more of the target
    would be spelled.

    Args:
        pairs: with columns `text` and `summary`; others are left out of pairs that are augmented.
        tokenizer: encodes the pairs, and has the vocabulary of the pairs without compounds.
        share: of the pairs, from 0 to 1; which pairs depends on their texts alone.
        max_target_length: the limit of the tokens of a target; None: no limit.
        num_proc: number of processes; ignored for an `IterableDataset`.
        num_versions: how many augmented versions a pair has, each with changes of its own; they take its place, one
            after the other.
    """
    columns = pairs.column_names or list(next(iter(pairs)))
    if not share or tokenizer.segmenter not in ("char", *CHAINED) or {"facts", "features"} & {*columns}:
        return pairs
    found = _find_changes(list(spread(pairs, SAMPLE_SIZE)), tokenizer)
    if found is None:
        return pairs

    def augment(text: str, target: str, version: int) -> tuple[str, str]:
        random = Random(f"{version} {text}")
        if random.random() >= share:
            return text, target
        changed = found.change(text, target, random)
        return changed if _is_as_easy(changed, (text, target), tokenizer, max_target_length) else (text, target)

    def change(rows: Mapping[str, list[str]], code: str) -> dict[str, list[str]]:
        changed = [
            augment(text, target, version)
            for text, target in zip(rows["text"], rows["summary"], strict=True)
            for version in range(num_versions)
        ]
        return {"text": [text for text, _ in changed], "summary": [target for _, target in changed]}

    options: dict[str, Any] = (
        {} if isinstance(pairs, IterableDataset) else {"num_proc": num_proc, "desc": "Augmenting"}
    )
    others = [name for name in columns if name not in ("text", "summary")]
    return pairs.map(change, batched=True, remove_columns=others, fn_kwargs={"code": _CODE}, **options)


@dataclass(frozen=True)
class _Changes:
    """What changes, and what takes its place.

    Attributes:
        tokenizer: see `add_compounds`.
        names: of `find_names`.
        number_shapes: of `find_number_shapes`.
        others: words that are the other parts of compounds.
        small_words: of the sources, those that are not capitalised.
    """

    tokenizer: CopyNetTokenizer
    names: set[str]
    number_shapes: set[str]
    others: list[str]
    small_words: list[str]

    def change(self, text: str, target: str, random: Random) -> tuple[str, str]:
        """Both texts with other shapes of what the target copies."""
        if random.random() < RENUMBERED:
            text, target = self._change_number(text, target, random)
        if random.random() < LENGTHENED:
            text, target = self._lengthen_phrase(text, target, random)
        candidates = find_copied(text, target, self.tokenizer, self.names)
        drawn = random.sample(candidates, min(len(candidates), random.randint(1, MAX_COMPOUNDS)))
        if not drawn:
            return text, target
        parts = {word: _draw_parts(word, word in self.names, self.others, random) for word in drawn}
        is_shortened = random.random() < SHORTENED
        shorter = shorten_name(text, target, drawn[0], candidates, random) if is_shortened else None
        return shorter or _change_pair(text, target, parts, self.tokenizer)

    def _change_number(self, text: str, target: str, random: Random) -> tuple[str, str]:
        if not (numbers := find_numbers(text, target, self.number_shapes)):
            return text, target
        number = random.choice(numbers)
        other = reshape_number(number, random)
        return replace_number(text, number, other), replace_number(target, number, other)

    def _lengthen_phrase(self, text: str, target: str, random: Random) -> tuple[str, str]:
        """With a word more between the two words of a phrase: one of the others, or one that is not capitalised. The
        source does not have it, as the target may copy another mention of it."""
        phrases, lower = find_phrases(text, target), text.lower()
        words = random.choice([each for each in (self.others, self.small_words) if each] or [[""]])
        drawn = random.choices(words, k=MAX_DRAWS)
        word = next((each for each in drawn if each.lower() not in lower), None)
        if not phrases or word is None:
            return text, target
        first, second = (phrase := random.choice(phrases)).split(" ")
        longer = f"{first} {word.lower() if second.islower() else word} {second}"
        return _replace_phrase(text, phrase, longer), _replace_phrase(target, phrase, longer)


def _find_changes(sample: Sequence[Row], tokenizer: CopyNetTokenizer) -> _Changes | None:
    """What changes in pairs such as these; None: nothing does."""
    names, shapes = find_names(sample, tokenizer), find_number_shapes(sample)
    copied = {word for row in sample for word in find_copied(row["text"], row["summary"], tokenizer, names)}
    if not (copied or shapes or any(find_phrases(row["text"], row["summary"]) for row in sample)):
        return None
    words = {word for word in copied if not IDENTIFIER.fullmatch(word)}
    others = _list_others(words, words - names if tokenizer.segmenter in CHAINED else words)
    in_sources = {word for row in sample for word in _get_segmenter(tokenizer).split(row["text"])}
    small = sorted(word for word in in_sources if word[0].isalpha() and not word[0].isupper() and "_" not in word)
    return _Changes(tokenizer, names, shapes, others, [word for word in small if not re.search(r"\d", word)])


def take_compounds(pairs: Dataset, tokenizer: CopyNetTokenizer, size: int, *limits: int | None) -> Dataset | None:
    """Some pairs as `add_compounds` changes them, with these limits; of few pairs, several versions. None: of a
    sample, it changes none."""
    pairs = pairs.select(take_spread(range(len(pairs)), SAMPLE_SIZE))
    num_versions = math.ceil(size / max(1, len(pairs)))
    changed = add_compounds(pairs, tokenizer, 1.0, *limits, num_versions=num_versions)
    if changed is pairs:
        return None
    texts = list(pairs["text"])
    rows = {text: row for row, text in enumerate(changed["text"]) if text != texts[row // num_versions]}
    return cast(Dataset, changed).select(take_spread([*rows.values()], size)) if rows else None


def count_versions(num_pairs: int) -> int:
    """How many augmented versions each training pair has: `MAX_VERSIONS` of few pairs, one of many."""
    return min(max(1, round(MAX_AUGMENTED / max(1, num_pairs))), MAX_VERSIONS)


def find_names(pairs: Sequence[Row], tokenizer: CopyNetTokenizer) -> set[str]:
    """Names of which new texts have others, such as the first names of a task with a dozen of them: words of the
    vocabulary (of characters: any words) that targets only ever copy.

    They are capitalised where the script has capitals, and at most `MAX_NAME_SHARE` of the pairs copies each of them.
    No word that targets generate goes with them, as BER would with Berlin. There are none in scripts without spaces,
    where a name stands within what a segmenter takes for a word.
    """
    split = _get_segmenter(tokenizer).split
    words = [({*split(row["text"])}, {*split(row["summary"])}) for row in pairs]
    copied = Counter(word for source, target in words for word in source & target)
    generated = {word for source, target in words for word in target - source}
    known = tokenizer.get_vocab().keys() if tokenizer.segmenter in CHAINED else copied.keys()
    names = {
        word
        for word in (copied.keys() & known) - generated
        if word[0].isalpha()
        and not word[0].islower()
        and copied[word] <= MAX_NAME_SHARE * len(pairs)
        and not re.search(f"[{UNSPACED}]", word)
    }
    partners = find_partners((target - source, source & names) for source, target in words)
    return names.difference(*partners.values())


def find_copied(text: str, target: str, tokenizer: CopyNetTokenizer, names: Collection[str] = ()) -> list[str]:
    """What the target copies whole from its source, perhaps in another case, and does not use otherwise: words outside
    the vocabulary, `names`, and identifiers."""
    source = tokenizer.encode_source(text, max_length=tokenizer.model_max_length)
    if len(source.slots) + NUM_SLOTS > tokenizer.max_source_oov:
        return []
    split = _get_segmenter(tokenizer).split
    words = Counter(split(target))
    if tokenizer.segmenter in CHAINED:
        ids = source.slots | {
            word: index for word, index in zip(source.words, source.ids, strict=True) if word in names
        }
        copies = Counter(tokenizer.encode_target(target, source))
        in_any_case = {
            word: sum(words[form] for form in _list_forms(word, tokenizer)) for word in ids if word[0].isalpha()
        }
        copied = [word for word, count in in_any_case.items() if 0 < count == copies[ids[word]]]
    else:
        copied = [
            word for word in dict.fromkeys(split(text)) if word in names and 0 < words[word] == target.count(word)
        ]
    in_text, in_target = (Counter(IDENTIFIER.findall(each)) for each in (text, target))
    copied += [
        each for each in in_text if in_text[each] == text.count(each) and 0 < in_target[each] == target.count(each)
    ]
    return copied


def _list_others(words: Collection[str], unknown: Collection[str]) -> list[str]:
    """The unknown words; if these are few, also some that are made of the halves of two words in one script."""
    others, random = {*unknown}, Random(0)
    scripts: dict[str, list[str]] = {}
    for word in sorted(word for word in words if not re.search(r"\d", word)):
        scripts.setdefault(find_script(word), []).append(word)
    for _ in range(2 * MIN_OTHERS if scripts else 0):
        if len(others) >= MIN_OTHERS:
            break
        first, second = random.choices(random.choice([*scripts.values()]), k=2)
        others |= {first[: (len(first) + 1) // 2] + second[len(second) // 2 :]}.difference(words)
    return sorted(others)


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
    text: str, target: str, parts: Mapping[str, Sequence[str]], tokenizer: CopyNetTokenizer
) -> tuple[str, str]:
    """Source and target with the parts of a compound for each of these words and identifiers; the target has them in
    the case of the word."""
    identifiers = {word: "".join(found) for word, found in parts.items() if IDENTIFIER.fullmatch(word)}
    words = {word: found for word, found in parts.items() if word not in identifiers}
    in_source = {word: "".join(found) for word, found in words.items()}
    in_target = {
        form: "".join(map(write, found))
        for word, found in words.items()
        for form, write in _list_forms(word, tokenizer).items()
    }
    text, target = _replace(text, in_source, tokenizer), _replace(target, in_target, tokenizer)
    text, target = (IDENTIFIER.sub(lambda match: identifiers.get(match[0], match[0]), each) for each in (text, target))
    return text, target


def find_phrases(text: str, target: str) -> list[str]:
    """Pairs of neighbouring words that are once in each text: the target copies across the space between them."""
    in_text, in_target = (Counter(map(" ".join, _PHRASE.findall(each))) for each in (text, target))
    return [phrase for phrase, count in in_target.items() if count == in_text[phrase] == 1]


def _replace_phrase(text: str, phrase: str, longer: str) -> str:
    return re.sub(rf"{_FREE_START}{phrase}{_FREE_END}", longer, text)


def shorten_name(text: str, target: str, first: str, words: Collection[str], random: Random) -> tuple[str, str] | None:
    """Source and target with one word of a name of two, such as Anna Miller, in any case. None: none of these words
    follows the first, or one of the two also stands elsewhere, or has digits."""
    joined = " ".join(text.casefold().split())
    for second in words:
        if re.search(r"\d", first + second) or f"{first} {second}".casefold() not in joined:
            continue
        one, other = re.escape(first), re.escape(second)
        name = re.compile(rf"(?<!\w)({one})\s+({other})(?!\w)", re.IGNORECASE)
        either = re.compile(f"{one}|{other}", re.IGNORECASE)
        if all(0 < 2 * len(name.findall(each)) == len(either.findall(each)) for each in (text, target)):
            kept = random.choice((r"\1", r"\2"))
            return name.sub(kept, text), name.sub(kept, target)
    return None


def _is_as_easy(
    changed: tuple[str, str], pair: tuple[str, str], tokenizer: CopyNetTokenizer, max_target_length: int | None
) -> bool:
    """Whether the changed source is read whole, and no more of the target is cut, spelled or unknown than before."""
    hard = []
    for text, target in (pair, changed):
        source = tokenizer.encode_source(text, max_length=tokenizer.model_max_length)
        labels = tokenizer.encode_target(target, source)
        if source.is_truncated or (max_target_length is not None and len(labels) >= max_target_length):  # and the end
            return False
        words = source.spell(labels)
        hard.append(sum(map(is_spelled_letter, words)) + labels.count(tokenizer.unk_token_id))
    return hard[1] <= hard[0]


def _draw_parts(word: str, is_name: bool, others: Sequence[str], random: Random) -> Sequence[str]:
    """The parts of a compound, with the marks between them: Miller-Novak, Miller Novak, O'Miller, Miller/No, N.
    Miller, or Miller no Novak, as in Ana de Souza. Half of the names are replaced by another word or its initial. An
    identifier is one part."""
    if IDENTIFIER.fullmatch(word):
        return [_reshape_identifier(word, random)]
    other, mark = random.choice(others or [word]), random.choice(JOINING_MARKS)
    parts = random.choice(
        (
            [word, mark, other],
            [word, " ", other],
            [other[: random.randint(1, 2)], mark, word],
            [word, mark, other[: random.randint(1, 3)]],
            [other[:1], ". ", word],
            [word, " ", other[: random.randint(2, 3)].lower(), " ", other],
        )
    )
    if is_name and random.random() < 1 / 2:
        parts = random.choice(([other], [other[:1], "."]))
    return parts


def _reshape_identifier(word: str, random: Random) -> str:
    """A longer one: 47110-815, 815/47110, KA-47110, K47110, 47110K or 47110-K of 47110; or, as often, one with the
    other mark or without a mark: KA/4711 or KA4711 of KA-4711. What is added has three digits or more, unlike a day or
    a month."""
    mark, digits = random.choice(IDENTIFIER_MARKS), str(random.randrange(100, 100_000))
    letters = "".join(random.choices(ascii_uppercase, k=random.randint(1, 3)))
    shapes = [
        f"{word}{mark}{digits}",
        f"{digits}{mark}{word}",
        f"{letters}{random.choice(('', mark))}{word}",
        f"{word}{random.choice(('', mark))}{letters[0]}",
    ]
    if not {*IDENTIFIER_MARKS}.isdisjoint(word):
        swapped = word.translate(str.maketrans(IDENTIFIER_MARKS, IDENTIFIER_MARKS[::-1]))
        shapes += 2 * [swapped, word.translate(dict.fromkeys(map(ord, IDENTIFIER_MARKS)))]
    return random.choice(shapes)


def _replace(text: str, compounds: Mapping[str, str], tokenizer: CopyNetTokenizer) -> str:
    """The text with compounds for its words; what is between them stays."""
    segmenter = _get_segmenter(tokenizer)
    words = segmenter.split(text)
    pieces = zip(words, segmenter.space(words), strict=True)
    return "".join(
        piece.removesuffix(word) + compounds[word] if word in compounds else piece for word, piece in pieces
    )
