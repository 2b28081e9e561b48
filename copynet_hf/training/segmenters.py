"""The segmenter and the rare words that suit the training pairs."""

from __future__ import annotations

import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import chain, product
from typing import Any, NamedTuple

from datasets import IterableDataset

from ..arguments import MAX_SOURCE_LENGTH, TrainArguments
from ..data.files import Row
from ..evaluation.metrics import UNSPACED, are_mostly
from ..model.segmentation import FIRST, cut_words, fold_case, get_segmenter, is_code
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import Pairs, spread, take_spread
from .presets import PRESET_SEGMENTERS
from .reach import MAX_HARD, Hard, Reach, find_beyond_chance, find_changes, find_script, measure_reach

logger = logging.getLogger(__name__)

MIN_WORD_FREQUENCY, MIN_WORD_FREQUENCY_OF_FEW, FEW_PAIRS = 5, 3, 500
# The share of the targets' words that have to be respelled for words to be spelled (0.37 in pig Latin, 0.05 where a
# third of the words has a typo, 0.002 in NL2Bash); or the share of the targets that have such a word (0.42 in Russian
# orders, whose names are inflected, if chains could not drop endings; 0.06 in chess notation), or a frequent word that
# its source misspells (0.4 in scans); and the characters that a source may then have on average: at 300, an update of
# letters takes four times as long as one of words.
RESPELLED_SHARE, RESPELLED_TARGETS, MAX_SPELLED_LENGTH = 0.03, 0.15, 400
# The share of the words to be respelled that have to be much like a word of their source; by chance, 0.02 to 0.1 of
# them are. Where sources have at most so many characters on average, fewer are enough: 0.27 to 0.45 between close
# languages, 0.15 in descriptions of functions. At 110, an update of letters takes three times as long as one of words.
ALIKE_SHARE, ALIKE_SHARE_OF_SHORT, MAX_SHORT_LENGTH = 0.5, 0.25, 64
# Words of two scripts sound alike if more than this share of the shorter one's letters, by their Unicode names, is in
# the other in the same order.
MIN_SAME_LETTERS = 0.75
# The share of unreachable words, punctuation not counted, that is enough if they need not be alike, as in another
# script; in few pairs the words of the task itself are rare, too.
UNREACHABLE_SHARE, UNREACHABLE_SHARE_OF_FEW = 0.5, 0.9
# Words are cut if targets copy parts of source words in more than this share of the pairs: 0.3 where `38x` gives 38,
# 0.045 in recipes with a few quantities like `20g`, 0.005 in NL2Bash. Or if this many words for each pair would be
# spelled or generated, or digits of this many numbers made up, and fewer than half of them where words are cut, or
# fewer by MIN_SAVED for each pair: 0.04 in adverts, of whose prices some are like `541k`, and others are spelled out.
MIN_PARTS_SHARE, MIN_SAVED = 0.01, 0.03
# Or if targets copy more than this many words for each pair that their sources also name by their parts, as a question
# about the shipping weight names a column `shipping_weight`, and these are most of the copied words that have parts.
# There are 1.7 for each pair, all of them, in questions about tables, and 0.2, or 3 %, in edits of configuration
# files, where `word_punct` is better.
MIN_NAMED_SHARE = 0.1
MAX_RARE = 0.1  # the share of the targets that a rare word may be in
# Each digit is a word if targets have more parts of their sources' numbers than this, for each pair, in addition to
# those by chance: 0.24 where one sentence in eight has 48,906 of 48906, 0.02 in short dates. Or more numbers most of
# whose digits are in a row in the source: 0.1 where one phone number in ten begins with 8, and with 7 in its target.
MIN_NUMBERS_SHARE = 0.05
MAX_DIVIDED = 6  # the numbers that a number is divided into, as the digits of a moment, by the second
# Each digit is a word if targets have at least this many different numbers that are not in their sources. Months as
# numbers are only 12.
MIN_NEW_NUMBERS = 40
# Each digit is a word if targets spell numbers out: more than MIN_NUMBERED of the sources have numbers, at most
# MAX_WITH_DIGITS of their targets have digits, and for each number a target has more than MIN_WORDS_OF_NUMBER words
# that its source does not have, those of nearly all targets, such as names of fields, not counted: 3.9 where
# numbers are spelled out, 0.8 where they are replaced by their kind.
MIN_NUMBERED, MAX_WITH_DIGITS, MIN_WORDS_OF_NUMBER, MAX_CONSTANT = 0.2, 0.05, 2, 0.9
# Or if more than MIN_NUMBERED of the sources have rare numbers that their targets do not have, and at least
# MIN_SPELLED_DIGITS digits of these are correlated with letters of the targets, as 4 with `fou`. The correlation has
# to be MIN_CORRELATION (the sixth digit has 0.6 to 0.9 where numbers are spelled out, at most 0.2 in 15 other tasks)
# and MIN_STANDARD_ERRORS / √n with n such sources, since in few pairs it is high by chance.
MIN_SPELLED_DIGITS = 6
MIN_CORRELATION = 0.4
MIN_STANDARD_ERRORS = 5


def choose_segmenter(args: TrainArguments, pairs: Pairs) -> str:
    """The segmenter of a new tokenizer: that of the arguments but "auto", else that of the preset, else one that suits
    the pairs."""
    if args.segmenter != "auto":
        return args.segmenter
    if args.preset is not None:
        return PRESET_SEGMENTERS[args.preset]
    segmenter = guess_segmenter(list(spread(pairs, 10_000)), args.max_source_length or MAX_SOURCE_LENGTH)
    logger.info("segmenter is %s, as guessed from the pairs (--segmenter selects another)", segmenter)
    return segmenter


def choose_min_frequency(pairs: Pairs | Sequence[Row], *, spelled: bool) -> int:
    """A rare letter is worth an embedding, a rare word is better copied. In few pairs the words of the task are rare
    as well; 3 because a word that is copied in one pair occurs twice."""
    if spelled:
        return 1
    return MIN_WORD_FREQUENCY_OF_FEW if are_few(pairs) else MIN_WORD_FREQUENCY


def are_few(pairs: Pairs | Sequence[Row]) -> bool:
    return not isinstance(pairs, IterableDataset) and len(pairs) < FEW_PAIRS


class _Words(NamedTuple):
    """The words of a pair."""

    source: list[str]
    target: list[str]


def guess_segmenter(pairs: Sequence[Row], max_length: int = MAX_SOURCE_LENGTH) -> str:
    """`char` if the sources' words have no spaces between them, as in Chinese, if most sources are single words, as in
    inflection, or if texts are short and targets respell or cut words in a way that only letters reach; else
    `word_digits` if targets are made of parts of numbers, write numbers that are not in their sources, or spell out
    those that are; `word_parts` if they are made of parts of words; or `word_punct`. Instead of
    `word_digits` and `word_parts`, `code_digits` and `code_parts` if targets have the first letters of codes.

    Args:
        max_length: the number of words to which sources are truncated.
    """
    if _are_spelled(pairs):
        return "char"
    split = get_segmenter("word_punct").split
    words = [_Words(split(pair["text"]), split(pair["summary"])) for pair in pairs]
    min_frequency = choose_min_frequency(pairs, spelled=False)
    sample = take_spread(pairs, 1000)
    whole_codes = _are_codes_shortened(words)
    parts, digits = ("code_parts", "code_digits") if whole_codes else ("word_parts", "word_digits")
    by_words, by_parts = (
        _find_reach(words, name, sample, min_frequency, max_length) for name in ("word_punct", parts)
    )
    are_cut = (
        _are_hard_words_cut(by_words.reach, by_parts.reach, len(sample))
        or _are_words_cut(words, whole_codes)
        or _are_parts_named(words)
    )
    changes, reach = by_parts if are_cut else by_words
    are_numbers_cut = _are_numbers_cut(words, whole_codes) or _are_numbers_divided(pairs, words, whole_codes)
    hard = reach.hard if are_numbers_cut else reach.hard + reach.numbers
    if _are_sources_within(MAX_SPELLED_LENGTH, pairs):
        are_letters_cut = FIRST.keys().isdisjoint(changes) and _are_letters_cut(words, min_frequency)
        are_respelled = (
            _are_rare_words_respelled(pairs, hard, reach, len(sample))
            or _are_transliterated(hard, len(sample))
            or _are_known_words_respelled(words, min_frequency)
        )
        if are_letters_cut or are_respelled:
            return "char"
    rare, known = [word for word, _ in hard if word.isdecimal()], _list_known_numbers(pairs, min_frequency)
    if (
        are_numbers_cut
        or _are_digits_new(reach.numbers, len(sample))
        or _are_numbers_new(rare, len(sample), known, words)
        or _are_numbers_spelled_out(words)
        or _are_some_numbers_spelled_out(take_spread(words, 1000), min_frequency, whole_codes)
    ):
        return digits
    return parts if are_cut else "word_punct"


def _are_sources_within(length: int, pairs: Sequence[Row]) -> bool:
    """Whether sources have at most this many characters on average."""
    return sum(len(pair["text"]) for pair in pairs) <= length * len(pairs)


def _are_spelled(pairs: Sequence[Row]) -> bool:
    """Whether the sources' words have no spaces between them, or most sources are single words, perhaps with hyphens
    or apostrophes."""
    sources = [pair["text"].strip() for pair in pairs]
    if are_mostly(UNSPACED, sources[:1000]):
        return True
    split = get_segmenter("word_punct").split
    unspaced = (re.sub(r"\b[-'’]\b", "", source) for source in sources if len(source.split()) == 1)
    return 2 * sum(len(split(source)) == 1 for source in unspaced) > len(sources)


def _are_hard_words_cut(by_words: Reach, by_parts: Reach, num_targets: int) -> bool:
    """Whether cutting source words lowers the number of target words that have to be spelled, or generated although
    the source has them, or the number of those whose digits are made up: to less than half, or by `MIN_SAVED`."""
    counts = [(len(reach.hard) + len(reach.generated), len(reach.numbers)) for reach in (by_words, by_parts)]
    least = max(MIN_PARTS_SHARE * num_targets, 1)
    saved = MIN_SAVED * num_targets
    return any(
        of_words > max(least, min(2 * of_parts, of_parts + saved)) for of_words, of_parts in zip(*counts, strict=True)
    )


def _are_words_cut(words: Sequence[_Words], whole_codes: bool) -> bool:
    """Whether targets have words that are parts of words in their sources, as `cut_words` finds them. Counted over all
    words, then over the rare ones: the 46 of `46F` is hidden by its F, which many targets have by chance."""
    parts = [({*target}, {*cut_words(source, whole_codes=whole_codes)} - {*source}) for source, target in words]
    frequency = Counter(chain.from_iterable(target for target, _ in parts))
    frequent = {word for word, count in frequency.items() if count > MAX_RARE * len(words)}
    of_rare = [(target - frequent, own) for target, own in parts]
    least = max(MIN_PARTS_SHARE * len(words), 1)
    return any(
        find_beyond_chance(found, lambda target, own: not own.isdisjoint(target), least) for found in (parts, of_rare)
    )


def _are_parts_named(words: Sequence[_Words]) -> bool:
    """Whether sources name most words of several parts that targets copy, such as `shipping_weight`, also by these
    parts. A model that does not see the parts would have to learn for each word which words name it."""
    named: list[tuple[set[str], set[str]]] = []
    for source, target in words:
        own = {fold_case(word) for word in source}
        for word in sorted({*source} & {*target}):
            parts = {fold_case(part) for part in cut_words([word]) if part.isalpha() and len(part) > 1}
            if len(parts) > 1:
                named.append((parts, own))
    least = max(MIN_NAMED_SHARE * len(words), len(named) / 2)
    return bool(find_beyond_chance(named, lambda parts, own: parts <= own, least))


def _are_letters_cut(words: Sequence[_Words], min_frequency: int) -> bool:
    """Whether most targets have words that are parts of a rare word in their source, at most half of it, but none of
    the parts that `cut_words` gives, as `ACC` of `atgaccgta`. A part of a frequent word can be learned, as `ST` for
    `Street`."""
    frequency = Counter(word for source, _ in words for word in {*source})
    parts: list[tuple[str, set[str]]] = []
    targets: list[int] = []  # that each part is of
    for number, (source, target) in enumerate(words):
        own = {fold_case(part) for part in cut_words(word for word in source if frequency[word] < min_frequency)}
        of_target = sorted({fold_case(word) for word in target if len(word) > 1 and word.isalpha()})
        parts += ((part, own) for part in of_target)
        targets += [number] * len(of_target)
    found = find_beyond_chance(parts, _lies_within, 0)
    return 2 * len({targets[index] for index in found}) > len(words)


def _lies_within(part: str, words: Collection[str]) -> bool:
    return part not in words and any(part in word and 2 * len(part) <= len(word) for word in words)


def _are_codes_shortened(words: Sequence[_Words]) -> bool:
    """Whether targets have the first letters of codes in their sources, as `19bed09` of `19bed095`, and not what
    follows them, as the groups of `DE25194916` in `DE25 1949 16`."""
    pairs = [({*target} - {*source}, {word for word in source if is_code(word)}) for source, target in words]
    return bool(find_beyond_chance(pairs, _is_any_beginning, MIN_PARTS_SHARE * len(words)))


def _is_any_beginning(words: Collection[str], codes: Collection[str]) -> bool:
    def is_beginning(word: str, code: str) -> bool:
        return len(word) > 2 and code.startswith(word) and not goes_on(word, code)

    def goes_on(word: str, code: str) -> bool:
        return any(len(other) > 1 and code.startswith(word + other) for other in words)

    return any(is_beginning(word, code) for word in words for code in codes)


def _are_numbers_cut(words: Sequence[_Words], whole_codes: bool) -> bool:
    """Whether targets have numbers that are parts of longer ones in their sources, as in `48906` and `48,906`.

    Args:
        whole_codes: whether the numbers in codes do not count.
    """
    numbers: list[tuple[str, set[str]]] = []
    for pair in words:
        own, new = (_find_numbers(each, whole_codes) for each in pair)
        numbers += [(number, own) for number in sorted(new - own) if len(number) > 1]
    least = MIN_NUMBERS_SHARE * len(words)
    return bool(find_beyond_chance(numbers, lambda number, own: any(number in other for other in own), least))


def _find_numbers(words: Iterable[str], whole_codes: bool) -> set[str]:
    """The numbers in words, but not in codes if these are whole."""
    return {number for word in words if not (whole_codes and is_code(word)) for number in re.findall(r"\d+", word)}


def _are_numbers_divided(pairs: Sequence[Row], words: Sequence[_Words], whole_codes: bool) -> bool:
    """Whether numbers of targets, with one character between them, are together a number of their source, as in
    `1630` and `16:30`: rarer by chance than a part of a number, so that it shows among many numbers, too."""
    divided: list[tuple[set[str], set[str]]] = []
    for pair, (source, target) in zip(pairs, words, strict=True):
        rows = (re.findall(r"\d+", row) for row in re.findall(r"\d+(?:\D\d+)+", pair["summary"]))
        together = {
            "".join(row[start:end])
            for row in rows
            for start in range(len(row))
            for end in range(start + 2, min(start + MAX_DIVIDED, len(row)) + 1)
        }
        divided.append((together - _find_numbers(target, whole_codes), _find_numbers(source, whole_codes)))
    least = MIN_NUMBERS_SHARE * len(words)
    return bool(find_beyond_chance(divided, lambda together, own: not own.isdisjoint(together), least))


def _are_digits_new(numbers: Hard, num_targets: int) -> bool:
    """Whether numbers of targets, some digits of which would be made up, mostly have digits of their sources, as
    79161234567 those of 89161234567."""
    if len(numbers) <= MIN_NUMBERS_SHARE * num_targets:
        return False
    compared = take_spread(numbers, MAX_HARD)  # each with all numbers of its source
    return bool(
        find_beyond_chance(compared, _has_digits, MIN_NUMBERS_SHARE * num_targets * len(compared) / len(numbers))
    )


def _are_numbers_new(rare: Sequence[str], num_measured: int, known: Sequence[str], words: Sequence[_Words]) -> bool:
    """Whether targets write numbers that are not in their sources, as many of their words or, rare ones, many for the
    number of targets.

    Args:
        rare: those that cannot be reached, of this number of targets.
        known: those in the vocabulary, of all targets.
    """
    numbers_per_target = len(rare) / num_measured + len(known) / len(words)
    words_per_target = sum(len(pair.target) for pair in words) / len(words)
    are_many = numbers_per_target > RESPELLED_SHARE * words_per_target or len(rare) > RESPELLED_TARGETS * num_measured
    return are_many and len({*rare, *known}) >= MIN_NEW_NUMBERS


def _list_known_numbers(pairs: Sequence[Row], min_frequency: int) -> list[str]:
    """The numbers of targets, as often as they occur, that are frequent although their digits are not side by side in
    their sources, as where these have digits of another script."""
    numbers: Counter[str] = Counter()
    for pair in pairs:
        digits = "".join(filter(str.isdecimal, pair["text"]))
        numbers.update(number for number in re.findall(r"\d\d+", pair["summary"]) if number not in digits)
    return [number for number in numbers.elements() if numbers[number] >= min_frequency]


def _are_numbers_spelled_out(words: Sequence[_Words]) -> bool:
    """Whether targets have no digits where their sources have numbers, but words instead, as in normalisation for
    speech: `24 kg` to `twenty-four kilograms`."""
    num_numbers = num_targets = num_new = num_with_digits = 0
    frequency = Counter(word for pair in words for word in {*pair.target})
    for source, target in words:
        own = {*source} | {word for word in target if frequency[word] > MAX_CONSTANT * len(words)}
        if numbers := sum(word.isdecimal() and len(word) > 1 for word in source):
            num_targets, num_numbers = num_targets + 1, num_numbers + numbers
            num_new += sum(word.isalpha() and word not in own for word in target)
            num_with_digits += any(any(map(str.isdecimal, word)) for word in target)
    are_numbered = num_targets > MIN_NUMBERED * len(words)
    are_spelled = num_with_digits <= MAX_WITH_DIGITS * num_targets and num_new > MIN_WORDS_OF_NUMBER * num_numbers
    return are_numbered and are_spelled


def _are_some_numbers_spelled_out(words: Sequence[_Words], min_frequency: int, whole_codes: bool) -> bool:
    """Whether targets spell out rare numbers of their sources beside digits of their own, as `$474.04` to `four
    hundred seventy-four dollars and 04/100`."""
    numbers = [_find_numbers(source, whole_codes) for source, _ in words]
    frequency = Counter(chain.from_iterable(numbers))
    spelled: list[tuple[set[str], set[str]]] = []  # digits, and three letters in a row of the target's own words
    for (source, target), of_source in zip(words, numbers, strict=True):
        written = "".join(filter(str.isdecimal, chain.from_iterable(target)))
        rare = {number for number in of_source if len(number) > 1 and frequency[number] < min_frequency}
        if digits := {digit for number in rare if number not in written for digit in number}:
            own = {word for word in target if any(map(str.isalpha, word))}.difference(source)
            spelled.append((digits, {word[i : i + 3] for word in own for i in range(max(1, len(word) - 2))}))
    if len(spelled) <= MIN_NUMBERED * len(words):
        return False
    of_digit, of_letters = (Counter(chain.from_iterable(part)) for part in zip(*spelled, strict=True))
    of_both = Counter(chain.from_iterable(product(*parts) for parts in spelled))

    def correlate(digit: str, letters: str) -> float:
        """The phi coefficient of a digit in numbers and letters in targets."""
        a, b, n = of_digit[digit], of_letters[letters], len(spelled)
        return (of_both[digit, letters] * n - a * b) / math.sqrt(max(a * (n - a) * b * (n - b), 1))

    least = max(MIN_CORRELATION, MIN_STANDARD_ERRORS / math.sqrt(len(spelled)))
    return len({digit for digit, letters in of_both if correlate(digit, letters) >= least}) >= MIN_SPELLED_DIGITS


class _Found(NamedTuple):
    """The marks of `OPTIONAL` that help to reach the words of targets, and how these are reached with them."""

    changes: list[str]
    reach: Reach


def _find_reach(
    words: Sequence[_Words], segmenter: str, sample: Sequence[Row], min_frequency: int, max_length: int
) -> _Found:
    """What is found with the words of a segmenter, in this sample of their pairs."""
    options = (segmenter, min_frequency, max_length)
    tokenizer = _train(words, *options)
    reach = measure_reach(tokenizer, sample)
    changes = find_changes(tokenizer, sample, reach)
    return _Found(changes, measure_reach(_train(words, *options, changes), sample) if changes else reach)


def _train(
    words: Iterable[_Words], segmenter: str, min_frequency: int, max_length: int, changes: Collection[str] = ()
) -> CopyNetTokenizer:
    """A tokenizer of the frequent ones of these words, or of their parts, with chains."""
    texts: Iterable[list[str]] = chain.from_iterable(words)
    if segmenter != "word_punct":
        texts = (cut_words(text, whole_codes=segmenter == "code_parts") for text in texts)
    options: dict[str, Any] = {
        "max_source_oov": 10_000,
        "is_split_into_words": True,
        "chains": True,
        "changes": changes,
        "model_max_length": max_length,
    }
    return CopyNetTokenizer.train_from_iterator(texts, 10_000, segmenter, min_frequency, **options)


def _are_rare_words_respelled(pairs: Sequence[Row], hard: Hard, reach: Reach, num_targets: int) -> bool:
    """Whether targets write words of their sources in another way, as in transliteration or the correction of typos: a
    model of words would have to spell them from nothing.

    Such a word is neither in the vocabulary nor made of words in its source. Many of them have to be much like a word
    there, or most words of the targets have to be such words.

    Args:
        hard: (word, words of its source), the words of targets that are such.
        reach, num_targets: of all words, and in how many targets.
    """
    hard = [(word, source) for word, source in hard if not _has_digits(word, source)]
    least = UNREACHABLE_SHARE_OF_FEW if are_few(pairs) else UNREACHABLE_SHARE
    if len(hard) > least * (reach.num_words - reach.num_signs):
        return True
    sources = [source for word, source in hard if _resembles_any(word, [*source, _join_numbers(source)])]
    num_respelled = len({*map(id, sources)})  # targets: `measure_reach` has one list of words for each pair
    are_many = len(sources) > RESPELLED_SHARE * reach.num_words or num_respelled > RESPELLED_TARGETS * num_targets
    least = ALIKE_SHARE_OF_SHORT if _are_sources_within(MAX_SHORT_LENGTH, pairs) else ALIKE_SHARE
    return are_many and len(sources) > least * len(hard)


def _are_known_words_respelled(words: Sequence[_Words], min_frequency: int) -> bool:
    """Whether many targets have a frequent word where their source has a rare one much like it: `November` for
    `Novernber`, in a scan. A word that is part of the other, as in compounds, does not count."""
    frequency = Counter(word for pair in words for word in {*pair.source, *pair.target})
    pairs: list[tuple[set[str], set[str]]] = []
    for source, target in take_spread(words, 1000):
        rare = {fold_case(word) for word in source if frequency[word] < min_frequency}
        known = {fold_case(word) for word in target if frequency[word] >= min_frequency and word.isalpha()}
        pairs.append((known - {fold_case(word) for word in source}, rare))
    return bool(find_beyond_chance(pairs, _is_any_respelled, RESPELLED_TARGETS * len(pairs)))


def _is_any_respelled(targets: Iterable[str], sources: Iterable[str]) -> bool:
    for word in targets:
        if _resembles_any(word, [other for other in sources if word not in other and other not in word]):
            return True
    return False


def _are_transliterated(hard: Hard, num_targets: int) -> bool:
    """Whether many targets have words that are neither known nor made of words in their source, and sound like one
    there in another script: `Strelkov` for `Стрелков`."""
    words: list[tuple[str, list[str]]] = []
    targets: list[int] = []  # that each word is of
    for word, source in take_spread(hard, MAX_HARD):
        script, letters = find_script(word), _name_letters(word)
        others = [_name_letters(other) for other in source if find_script(other) not in ("", script)]
        if letters and others:
            words.append((letters, others))
            targets.append(id(source))
    found = find_beyond_chance(words, _sounds_like_any, 0)
    return len({targets[index] for index in found}) > RESPELLED_TARGETS * num_targets


def _name_letters(word: str) -> str:
    """The first two letters of the Unicode name of each letter, and of each vowel sign of Indic scripts: ES, TE, ER, …
    of `Стрелков`, and S, T, R, … of `Strelkov`."""
    names = (unicodedata.name(letter, "").partition(" WITH ")[0] for letter in word)
    return "".join(
        name.rpartition(" ")[-1][:2] for name in names if "LETTER" in name or "SYLLABLE" in name or "VOWEL" in name
    )


def _sounds_like_any(word: str, others: Iterable[str]) -> bool:
    """Whether a word sounds like one of the others, all by `_name_letters`."""
    matcher = SequenceMatcher(b=word, autojunk=False)
    for other in others:
        matcher.set_seq1(other)
        shorter = min(len(word), len(other))
        least, most = MIN_SAME_LETTERS * shorter, matcher.quick_ratio() * (len(word) + len(other)) / 2
        if shorter > 2 and most > least and sum(block.size for block in matcher.get_matching_blocks()) > least:
            return True
    return False


def _join_numbers(words: Iterable[str]) -> str:
    """The words with digits, side by side: `0324/383 988` as 0324383988."""
    return "".join(word.strip() for word in words if any(map(str.isdecimal, word)))


def _has_digits(number: str, source: Iterable[str]) -> bool:
    """Whether most of a number's digits are side by side in the source's numbers, in any script: `word_digits` then
    copies or writes them."""
    if not number.isdecimal():
        return False
    own = [unicodedata.decimal(digit) for digit in number]
    digits = [unicodedata.decimal(digit) for digit in _join_numbers(source) if digit.isdecimal()]
    match = SequenceMatcher(None, own, digits, autojunk=False).find_longest_match()
    return 2 * match.size > len(number)


def _resembles_any(word: str, others: Collection[str]) -> bool:
    """Whether most of the word's letters are in the same order in one of the others, in either case."""
    matcher = SequenceMatcher(b=fold_case(word), autojunk=False)
    for other in others:
        matcher.set_seq1(fold_case(other))
        if min(map(len, (word, other))) > 1 and matcher.quick_ratio() >= 0.6 and matcher.ratio() >= 0.6:
            return True
    return False
