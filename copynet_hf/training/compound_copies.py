"""Compound copies: in part of an epoch's pairs, a copied word or number becomes a compound, in source and target.

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
from ..model.segmentation import CHAINED, JOINER, SEGMENTERS, Segmenter, is_glued_letter
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import CODE, Pairs, spread
from .guided_attention import find_partners

JOINING_MARKS = " " * 2 + "-'’/.&+_"  # a space twice as often as each of the others
NUMBER_MARKS = "-/"
# Five digits or more, longer than a year, or a code with a letter and three digits, without a mark that may make them
# part of a date, an amount or something else.
_MARKS = r"\w.,:/'’@+\-−–—%٫٬$€£¥₹"
NUMBER = re.compile(
    rf"""(?<![{_MARKS}]) (?: (?<!\d\s) | (?=[^\W\d]) )
    (?= [\w/-]*\d{{5}} | [\w/-]*[^\W\d_][\w/-]*\d{{3}} | [\w/-]*\d{{3}}[\w/-]*[^\W\d_] )
    \w+ (?: [/-]\w+ )* (?! [\w%٫٬$€£¥₹] | [{_MARKS}]\w | \s\d )""",
    re.VERBOSE,
)
MAX_NAME_SHARE = 0.2  # of the pairs that have one of the vocabulary
MAX_COMPOUNDS, NUM_SLOTS = 2, 8  # in a pair, and the slots that their parts need at most
SAMPLE_SIZE = 1_000  # pairs from which names, and the other parts of compounds, are taken
_CODE = Hasher.hash_bytes([CODE.encode(), Path(__file__).read_bytes()])


def add_compounds(
    pairs: Pairs,
    tokenizer: CopyNetTokenizer,
    share: float,
    max_target_length: int | None = None,
    num_proc: int | None = None,
) -> Pairs:
    """The pairs with compounds: in those that are drawn, one or two of the words and numbers of `find_copied` are
    changed wherever source and target have them. With the same pairs and tokenizer, a pair changes in the same way.

    None change that have facts or features, nor those of a segmenter of words that does not cut at marks. A pair stays
    as it is if its source would be truncated, its target longer than the limit, or more of it spelled.

    Args:
        pairs: with columns `text` and `summary`.
        tokenizer: encodes the pairs, and has the vocabulary of the pairs without compounds.
        share: of the pairs that are drawn, from 0 to 1.
        max_target_length: the limit of the tokens of a target; None: no limit.
        num_proc: number of processes; ignored for an `IterableDataset`.
    """
    columns = pairs.column_names or list(next(iter(pairs)))
    if not share or tokenizer.segmenter not in ("char", *CHAINED) or {"facts", "features"} & {*columns}:
        return pairs
    sample = list(spread(pairs, SAMPLE_SIZE))
    names = find_names(sample, tokenizer)
    copied = {word for row in sample for word in find_copied(row["text"], row["summary"], tokenizer, names)}
    words = {word for word in copied if not NUMBER.fullmatch(word)}
    others = sorted(words - names if tokenizer.segmenter in CHAINED else words)

    def change(rows: Mapping[str, list[str]], code: str) -> dict[str, list[str]]:
        texts, targets = list[str](), list[str]()
        for text, target in zip(rows["text"], rows["summary"], strict=True):
            random = Random(text)
            if random.random() < share:
                words = find_copied(text, target, tokenizer, names)
                words = random.sample(words, min(len(words), random.randint(1, MAX_COMPOUNDS)))
                changed = _change_pair(text, target, tokenizer, words, names, others, random)
                if _is_as_easy(changed, (text, target), tokenizer, max_target_length):
                    text, target = changed
            texts.append(text)
            targets.append(target)
        return {"text": texts, "summary": targets}

    options: dict[str, Any] = (
        {} if isinstance(pairs, IterableDataset) else {"num_proc": num_proc, "desc": "Joining copied words"}
    )
    return pairs.map(change, batched=True, fn_kwargs={"code": _CODE}, **options) if copied else pairs


def find_names(pairs: Sequence[Row], tokenizer: CopyNetTokenizer) -> set[str]:
    """The words of the vocabulary, capitalised where the script has capitals, that targets only ever copy, unless they
    are in many, or targets generate other words that go with them, such as BER with Berlin: the first names of a task
    whose pairs have few of them. New texts have others. If the vocabulary holds characters, all such words."""
    split = _get_segmenter(tokenizer).split
    words = [({*split(row["text"])}, {*split(row["summary"])}) for row in pairs]
    copied = Counter(word for source, target in words for word in source & target)
    generated = {word for source, target in words for word in target - source}
    known = tokenizer.get_vocab().keys() if tokenizer.segmenter in CHAINED else copied.keys()
    names = {
        word
        for word in (copied.keys() & known) - generated
        if word[0].isalpha() and not word[0].islower() and copied[word] <= MAX_NAME_SHARE * len(pairs)
    }
    partners = find_partners((target - source, source & names) for source, target in words)
    return names.difference(*partners.values())


def find_copied(text: str, target: str, tokenizer: CopyNetTokenizer, names: Collection[str] = ()) -> list[str]:
    """What the target copies whole from its source, perhaps in another case, and does not use otherwise: words outside
    the vocabulary, `names`, and numbers or codes."""
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
        forms = {word: sum(words[form] for form in _list_forms(word, tokenizer)) for word in ids if word[0].isalpha()}
        copied = [word for word, number in forms.items() if 0 < number == copies[ids[word]]]
    else:
        copied = [
            word for word in dict.fromkeys(split(text)) if word in names and 0 < words[word] == target.count(word)
        ]
    numbers, written = (Counter(NUMBER.findall(each)) for each in (text, target))
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
    """Source and target with compounds for these words and numbers. Every second name gives way to another word."""
    in_source, in_target, numbers = dict[str, str](), dict[str, str](), dict[str, str]()
    for word in words:
        if NUMBER.fullmatch(word):
            numbers[word] = _reshape_number(word, random)
            continue
        other = random.choice(others or [word])
        parts = _draw_parts(word, other, random)
        if word in names and random.random() < 1 / 2:
            parts = random.choice(([other], [other[:1], "."]))
        in_source[word] = "".join(parts)
        in_target |= {form: "".join(map(write, parts)) for form, write in _list_forms(word, tokenizer).items()}
    text, target = _replace(text, in_source, tokenizer), _replace(target, in_target, tokenizer)
    text, target = (NUMBER.sub(lambda match: numbers.get(match[0], match[0]), each) for each in (text, target))
    return text, target


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
        letters = [word for word in words if is_glued_letter(word) and word.strip(JOINER) != "_"]
        hard.append(len(letters) + labels.count(tokenizer.unk_token_id))
    return hard[1] <= hard[0]


def _draw_parts(word: str, other: str, random: Random) -> list[str]:
    """The parts of a compound, with the marks between them: Miller-Novak, O'Miller, Miller/No, N. Miller, or Miller no
    Novak, as in Ana de Souza."""
    mark = random.choice(JOINING_MARKS)
    return random.choice(
        (
            [word, mark, other],
            [other[: random.randint(1, 2)], mark, word],
            [word, mark, other[: random.randint(1, 3)]],
            [other[:1], ". ", word],
            [word, " ", other[: random.randint(2, 3)].lower(), " ", other],
        )
    )


def _reshape_number(number: str, random: Random) -> str:
    """A longer number or code: 47110-815, 815/47110, KA-47110, K47110 or 47110K, where what is added has three digits
    or more, unlike a day or a month; or the code with another mark or without: KA/47110 or KA47110 of KA-47110."""
    mark, digits = random.choice(NUMBER_MARKS), str(random.randrange(100, 100_000))
    letters = "".join(random.choices(ascii_uppercase, k=random.randint(1, 3)))
    shapes = [
        f"{number}{mark}{digits}",
        f"{digits}{mark}{number}",
        f"{letters}{random.choice(('', mark))}{number}",
        f"{number}{letters[0]}",
    ]
    if not {*NUMBER_MARKS}.isdisjoint(number):
        shapes += [number.translate(str.maketrans(NUMBER_MARKS, NUMBER_MARKS[::-1])), re.sub("[-/]", "", number)]
    return random.choice(shapes)


def _replace(text: str, compounds: Mapping[str, str], tokenizer: CopyNetTokenizer) -> str:
    """The text with compounds for its words; what is between them stays."""
    segmenter = _get_segmenter(tokenizer)
    words = segmenter.split(text)
    pieces = zip(words, segmenter.space(words), strict=True)
    return "".join(
        piece.removesuffix(word) + compounds[word] if word in compounds else piece for word, piece in pieces
    )
