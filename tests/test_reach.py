"""How targets are reached: which words and marks a vocabulary holds, whether initials are copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha1
from itertools import chain, product
from random import Random
from typing import Any

import pytest
from datasets import Dataset

from copynet_hf import CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.model.segmentation import (
    DIGRAPHS,
    DROP_FIRST,
    DROP_LAST,
    FIRST,
    INITIAL,
    JOINER,
    LOWERED,
    MARKS,
    OPTIONAL,
    PLAIN,
    SECOND,
    TURKISH,
    strip_accents,
    write_digraphs,
)
from copynet_hf.training.endings import find_ends, find_regular
from copynet_hf.training.reach import has_initials, measure_reach
from copynet_hf.training.segmenters import guess_segmenter
from copynet_hf.training.tokenizer_setup import list_words, train_tokenizer

NAMES = ["Anna", "Ben", "Carla", "David", "Elena", "Felix", "Greta", "Hugo", "Ines", "Jonas"]


def pair(text: str, summary: str) -> dict[str, str]:
    return {"text": text, "summary": summary}


def train(pairs: list[dict[str, str]], **arguments: Any) -> CopyNetTokenizer:
    """The tokenizer that a run with these arguments trains."""
    return train_tokenizer(Dataset.from_list(pairs), TrainArguments(**{"segmenter": "word_punct", **arguments}))


def find_marks(pairs: list[dict[str, str]]) -> list[str]:
    """The marks of changes that its vocabulary has."""
    known = train(pairs).get_vocab()
    return [mark for mark in OPTIONAL if mark in known]


def count(pairs: list[dict[str, str]], *counts: int, segmenter: str = "word_punct", **options: Any) -> Counter[str]:
    """How often each word counts for the vocabulary."""
    options = {"has_chains": True, **options}
    return Counter(chain.from_iterable(list_words(pairs, segmenter, *(counts or [1]), **options)))


def test_a_word_that_is_always_copied_and_sometimes_in_another_case_is_left_to_copying() -> None:
    counts = count([pair("ask Viktor", "Viktor"), pair("ask viktor", "Viktor")])
    assert counts == {"ask": 2, "viktor": 1}


def test_a_word_that_is_always_a_changed_copy_is_left_to_copying() -> None:
    pairs = [pair("to Viktora José orders", "Viktor jose order"), pair("to all", "order")]
    counts = count(pairs, changes=["[plain]", "[drop_last]"])
    assert not counts.keys() & {"Viktor", "jose"}
    assert counts["order"] == 1  # which is generated as well


def test_a_word_that_words_in_a_row_are_joined_to_is_left_to_copying() -> None:
    counts = count([pair("from b:f to 3c", "BF 3"), pair("at notebook 1", "note book")])
    assert "BF" not in counts
    assert count([pair("from b:f to 3c", "FB 3")])["FB"] == 1
    for source in ("mcadam", "mc adam"):  # of which no marks make it
        assert count([pair(f"at {source}", "mCaDam")])["mCaDam"] == 1


@pytest.mark.parametrize(("largest", "is_known"), [(40, False), (20, True)])
@pytest.mark.parametrize("text", ["{}k users", "{} thousand users", "3,{} kW"])
def test_a_number_that_digits_are_added_to_is_left_to_copying(text: str, largest: int, is_known: bool) -> None:
    """Unless they are added to few numbers."""
    joined = "3" if "," in text else ""
    pairs = [pair(text.format(number), f"{joined}{number}000") for number in range(11, largest)] * 5
    for generated_count in (1, 3):
        counts = count(pairs, generated_count, segmenter="word_parts")
        assert (f"{joined}15000" in counts) is is_known
        assert counts["15"] == 5
    other = [*pairs, pair("many users", f"{joined}15000")]
    assert count(other, segmenter="word_parts")[f"{joined}15000"]


@pytest.mark.parametrize(("largest", "is_known"), [(12, False), (7, True)])
@pytest.mark.parametrize(("text", "word"), [("for {} weeks", "x{}w"), ("in {} days", "{}d"), ("3.{} g", "3{}mg")])
def test_a_number_with_a_unit_is_left_to_copying(text: str, word: str, largest: int, is_known: bool) -> None:
    """Unless few have the unit, or sources lack the number."""
    pairs = [pair(text.format(number), word.format(number)) for number in range(3, largest)] * 5
    for generated_count in (1, 3):
        counts = count(pairs, generated_count)
        assert (word.format(4) in counts) is is_known
        assert counts["4"] == 5
    other = [pair(text.format("four"), word.format(4)), *pairs]
    assert count(other)[word.format(4)]


@pytest.mark.parametrize(("num_changed", "is_known"), [(100, False), (10, True)])
def test_a_word_that_one_source_lacks_is_left_to_copying(num_changed: int, is_known: bool) -> None:
    counts = count([pair("ask viktor", "Viktor")] * num_changed + [pair("ask him", "Viktor")])
    assert ("Viktor" in counts) is is_known


def test_a_word_that_targets_also_generate_is_in_the_vocabulary() -> None:
    counts = count([pair("Find it", "find it"), pair("look for it", "find it")])
    assert counts["find"] == 1  # where no copy gives it


def test_only_words_that_would_be_spelled_count_more_in_few_pairs() -> None:
    counts = count([pair("pay 16,258 to Ann Lee", "Lee16 alee MRS")], 3)
    assert (counts["Lee16"], counts["alee"], counts["MRS"]) == (1, 1, 3)


def test_a_word_that_is_only_read_counts_twice() -> None:
    pairs = [pair("in June at CA:B7 for Ann", "6 cab7 ANN"), pair("in June", "6"), pair("out", "in")]
    counts = count(pairs, 1, 2)
    assert counts == {"June": 4, "at": 2, "for": 2, "out": 2, "￭:￭": 2, "in": 3, "CA": 1, "B7": 1, "Ann": 1, "6": 2}


def test_without_chains_all_words_count() -> None:
    pairs = [pair("ask viktor", "Viktor 12"), pair("1 2", "12")]
    words = count(pairs, 2, segmenter="whitespace", has_chains=False)
    assert (words["Viktor"], words["12"]) == (2, 4)


def make_users(change: str) -> list[dict[str, str]]:
    pairs = [(first, f"{last}son") for first in NAMES for last in NAMES]
    letters = {"initial": lambda first: first[0].lower(), "other": lambda first: first[-1], "same": lambda first: "s"}
    return [pair(f"{a} {b} is new", f"{letters[change](a)}{b.lower()}") for a, b in pairs]


@pytest.mark.parametrize(("change", "expected"), [("initial", True), ("other", False), ("same", False)])
def test_initials_are_found_in_the_pairs(change: str, expected: bool) -> None:
    pairs = make_users(change)
    tokenizer = train(pairs)
    assert (INITIAL in tokenizer.get_vocab()) is expected
    if not expected:
        assert not has_initials(tokenizer, pairs)
    source = tokenizer.encode_source("Zoe Oquist is new")
    spelled = source.spell(tokenizer.encode_target("zoquist", source))
    if expected:
        assert spelled == ["[lower]", INITIAL, "Zoe", JOINER, "[lower]", "Oquist"]


@pytest.mark.parametrize(("number", "expected"), [(3, False), (25, True)])
def test_initials_in_few_pairs_are_left_alone(number: int, expected: bool) -> None:
    pairs = make_users("initial")[::4][:number] + make_users("same")[number:]
    assert (INITIAL in find_marks(pairs)) is expected


@pytest.mark.parametrize(("target", "expected"), [("pack", True), ("tar -c -d", True), ("pack: c, d", False)])
def test_initials_are_found_in_a_few_of_the_pairs_unless_letters_would_be_mistaken_for_them(
    target: str, expected: bool
) -> None:
    """Of ten requests, one is to add a user, and nine have no letters, the options of a command, or other letters."""
    users = make_users("initial")[::11]
    pairs = users + [pair(f"pack {spell(number)} for {NAMES[number % 10]}", target) for number in range(90)]
    assert (INITIAL in find_marks(pairs)) is expected


def test_letters_in_a_row_are_no_initials_of_themselves() -> None:
    pairs = [
        pair(f"at {a.lower()}:{b.lower()} {number}", f"{a}{b}")
        for number, (a, b) in enumerate(product("ABCDEFGHKL", repeat=2))
    ]
    assert INITIAL not in find_marks(pairs)


def test_initials_are_found_in_long_texts_and_beside_codes() -> None:
    surnames = [f"Zu{first.lower()}{last.lower()}" for first, last in product(NAMES, NAMES)]
    pairs = [
        pair(
            f"On Tuesday we heard that {first} {last} wants to fly from Berlin to Oslo; book a seat for {other} "
            f"Kappa, {'first' if code == 'F' else f'{code.lower()}-like'}, and tell Elena and Hugo",
            f"{last.upper()}, {first[0]}. CLASS {code}",
        )
        for first, last, other, code in zip(NAMES * 10, surnames, NAMES[::-1] * 10, "YWCF" * 25, strict=True)
    ]
    others = pairs[1:] + pairs[:1]
    shuffled = [pair(one["text"], other["summary"]) for one, other in zip(pairs, others, strict=True)]
    for rows, expected in ((pairs, True), (shuffled, False)):
        assert (INITIAL in find_marks(rows)) is expected


@pytest.mark.parametrize(("style", "expected"), [("Hu {}{}", True), ("Hu {}. {}.", False), ("{}o {}e Hu", False)])
def test_second_letters_of_initials_are_found_in_the_pairs(style: str, expected: bool) -> None:
    """A tenth of the sources has the initials of a name in one word."""
    letters = [*product("BDFGKLNPRT", repeat=2)]
    pairs = [
        pair(f"see {(style if number % 10 == 0 else '{}o {}e Hu').format(a, b)} {number}", f"Hu, {a}. {b}.")
        for number, (a, b) in enumerate(letters)
    ]
    marks = find_marks(pairs)
    assert INITIAL in marks
    assert (SECOND in marks) is expected


@pytest.mark.parametrize("number", [60, 400])
def test_codes_beside_names_are_no_second_initials(number: int) -> None:
    pairs = [
        pair(
            f"ask {NAMES[row % 10]} {a}o{b}s of {'UK' if row % 3 else 'the town'} now",
            f"{a}o{b}s, {NAMES[row % 10][0]}.",
        )
        for row, (a, b) in enumerate(list(product("BDFGKLMNPR", "abdefghijklmnoprstuvw" * 2))[:number])
    ]
    assert INITIAL in find_marks(pairs)
    assert SECOND not in find_marks(pairs)


def test_acronyms_are_found_in_the_pairs() -> None:
    names = [f"{a}son {b}ville Works" for a, b in product(NAMES, NAMES)]
    pairs = [pair(f"ask {name} for it, {name[0]} or not", "".join(word[0] for word in name.split())) for name in names]
    assert INITIAL in find_marks(pairs)


def test_frequent_acronyms_are_not_known_if_they_are_initials() -> None:
    """A known `AB` would be generated, also where the name of a test pair has other initials."""
    people = [(f"{first}l{last.lower()}", f"{last}m{first.lower()}") for first, last in product(NAMES, NAMES)]
    pairs = [pair(f"{a} {b} is here", f"{a} {b}, {a[0]}{b[0]}, EU") for a, b in people + 5 * people[:20]]
    known = train(pairs).get_vocab()
    assert INITIAL in known
    assert [word for word in known if len(word) == 2 and word.isalpha() and word.isupper()] == ["EU"]


@pytest.mark.parametrize(("text", "is_known"), [("this can't be", True), ("for Carla Tail", False)])
def test_acronyms_are_known_if_words_in_lower_case_have_their_initials(text: str, is_known: bool) -> None:
    """Of many words some have them by chance."""
    assert (count([pair(text, "CT")] * 5, changes=[INITIAL])["CT"] == 5) is is_known


def test_names_with_particles_are_not_cut_after_their_first_letters() -> None:
    """Korean names have three syllables, nearly all of them, and particles of one to three."""
    particles = ("\uc5d0", "\uc5d0\uc11c", "\uc785\ub2c8\ub2e4")
    names = [
        "".join(name)
        for name in product(
            "\uae40\ubc15\ucd5c\uc815\uac15", "\uc218\ubbfc\uc9c0\uc601\ud604", "\ud638\uc900\uc5f0\ud76c\uc6b1\ud0dc"
        )
    ]
    rent = ("\uc6d4\uc138", "\uc6d4")  # by the month: its first syllable is a word
    pairs = [
        pair(f"{name}{particles[number % 3]} {rent[0]} 5", f"{name} {rent[1]} 5") for number, name in enumerate(names)
    ]
    marks = find_marks(pairs)
    assert DROP_LAST in marks
    assert INITIAL not in marks
    assert FIRST.keys().isdisjoint(marks)


@pytest.mark.parametrize(
    ("size", "initials", "change"),
    [(3, 0, str), (6, 1, lambda name: name.replace("a", "\u00e1").replace("o", "\u00f4")), (8, 0, str)],
)
def test_how_many_first_letters_are_copied_is_found_in_the_pairs(
    size: int, initials: int, change: Callable[[str], str]
) -> None:
    people = [(b, f"{a[:2]}{b.lower()}o{a.lower()}") for a, b in product(NAMES, NAMES)]
    pairs = [
        pair(f"give {first} {change(last)} her key", f"id = {first[:initials].lower()}{last[:size].lower()}")
        for first, last in people
    ]
    assert guess_segmenter(pairs) == "word_punct"
    tokenizer = train(pairs)
    marks = {mark for mark in OPTIONAL if mark in tokenizer.get_vocab()}
    accents = {PLAIN, LOWERED[PLAIN]}
    assert marks - accents == {f"[first_{size}]"} | {INITIAL for _ in range(initials)}
    assert marks & accents == (set() if change is str else accents)
    name = change("Zoquistner")
    source = tokenizer.encode_source(f"give Tina {name} her key")
    written = source.spell(tokenizer.encode_target("t"[:initials] + "zoquistner"[:size], source))
    assert written[-1] == name
    assert f"[first_{size}]" in written
    assert written.count(INITIAL) == initials


@pytest.mark.parametrize(("change", "mark"), [(strip_accents, PLAIN), (write_digraphs, DIGRAPHS)])
def test_either_way_to_write_umlauts_is_found_in_the_pairs(change: Callable[[str], str], mark: str) -> None:
    names = [f"{first}m\u00f6{last.lower()}\u00fc\u00df" for first, last in product(NAMES, NAMES)]
    pairs = [pair(f"a letter to {name} and more", f"name: {change(name).lower()}") for name in names]
    assert guess_segmenter(pairs) == "word_punct"
    assert find_marks(pairs) == [mark, LOWERED[mark]]
    kept = [pair(row["text"], f"{row['summary']}, {name.lower()}") for row, name in zip(pairs, names, strict=True)]
    assert find_marks(kept) == [mark]


def test_turkish_case_is_found_in_the_pairs() -> None:
    names = [f"{first[0]}ı{first[1:]}i{last.lower()}" for first, last in product(NAMES, NAMES)]
    pairs = [pair(f"a letter to {name.replace('i', 'İ').upper()}", f"name: {name}") for name in names]
    assert guess_segmenter(pairs) == "word_punct"
    assert find_marks(pairs) == [*TURKISH]
    assert find_marks([pair(row["text"], row["summary"].replace("ı", "i")) for row in pairs]) == [PLAIN]


def test_names_in_capitals_of_other_languages_are_copied_beside_turkish_ones() -> None:
    names = [
        f"{first}i{last.lower()}{'ı' * (number % 10 == 0)}"
        for number, (first, last) in enumerate(product(NAMES, NAMES))
    ]
    upper = [name.replace("i", "İ" if "ı" in name else "i").upper() for name in names]
    pairs = [pair(f"a letter to {text} and more", f"name: {name}") for text, name in zip(upper, names, strict=True)]
    tokenizer = train(pairs)
    assert TURKISH.keys() <= tokenizer.get_vocab().keys()
    assert measure_reach(tokenizer, pairs).words["spelled"] == 0


def test_user_names_lose_their_accents_beside_turkish_case() -> None:
    names = [f"{first}ış{last.lower()}" for first, last in product(NAMES, NAMES)]
    pairs = [
        pair(f"{name.replace('i', 'İ').upper()} here", f"{name} = {name.lower().replace('ı', 'i').replace('ş', 's')}")
        for name in names
    ]
    assert set(find_marks(pairs)) == {PLAIN, LOWERED[PLAIN], *TURKISH}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda name: f"{name}ova", [DROP_LAST]),
        (lambda name: f"be{name}", [DROP_FIRST]),
        (lambda name: name.replace("a", "á").replace("e", "è").replace("i", "ï"), [PLAIN]),
        (lambda name: name, []),
        (lambda name: name[::-1], []),
    ],
)
def test_endings_beginnings_and_accents_are_found_in_the_pairs(
    change: Callable[[str], str], expected: list[str]
) -> None:
    names = [f"{first}{last.lower()}" for first in NAMES for last in NAMES]
    pairs = [pair(f"a letter to {change(name)} and more", f"name: {name}") for name in names]
    tokenizer = train(pairs)
    assert [mark for mark in OPTIONAL if mark in tokenizer.get_vocab()] == expected
    source = tokenizer.encode_source(f"a letter to {change('Zoquist')} and more")
    written = source.spell(tokenizer.encode_target("Zoquist", source))
    assert (change("Zoquist") in written) is bool(expected or change("Zoquist") == "Zoquist")


def test_frequent_names_that_sources_inflect_are_not_known() -> None:
    """A model would write those that it knows in place of new ones."""
    names = [f"{spell(number)}a" for number in range(1000)]
    rows = [(names[number % 40], names[number + 40], "ayeou"[number // 40 % 5]) for number in range(400)]
    inflected = [pair(f"send it to {a[:-1]}{end} {b[:-1]}{end}", f"sent to {a} {b}") for a, b, end in rows]
    tokenizer = train(inflected)
    assert DROP_LAST in tokenizer.get_vocab()
    assert tokenizer.get_vocab().keys().isdisjoint(names)
    assert "sent" in tokenizer.get_vocab()  # for one word alone
    source = tokenizer.encode_source("for Zoqui")
    assert source.spell(tokenizer.encode_target("Zoqua", source)) == [DROP_LAST, "Zoqui", "￭a"]
    elsewhere = [pair("for us all", f"to {a}") for a, _, _ in rows[::4]]
    assert tokenizer.get_vocab().keys() < train(inflected + elsewhere).get_vocab().keys()


@pytest.mark.parametrize(("number", "is_known"), [(4, True), (5, False)])
def test_frequent_names_with_the_same_endings_as_many_others_are_not_known(number: int, is_known: bool) -> None:
    """Though each is always made of one word of its source, as in the list of a town's streets."""
    streets = [(spell(index).capitalize(), "na", "nej") for index in range(number)]
    streets += [(spell(index).capitalize(), "y", letter) for index, letter in enumerate("bcdf", 20)]  # each its own
    first = [(spell(index).capitalize(), "na", "nej") for index in range(60, 70)]  # words of the task, as Creating
    words = [(stem + target, stem + source) for stem, target, source in streets * 20]
    pairs = [pair(f"no water on {source} today", f"on {target}") for target, source in words]
    pairs += [pair(f"{stem}{source} it now", f"{stem}{target} it") for stem, target, source in first * 20]
    tokenizer = train(pairs)
    known = tokenizer.get_vocab().keys()
    assert all((stem + ending in known) is is_known for stem, ending, _ in streets[:number])
    assert all(stem + ending in known for stem, ending, _ in streets[number:] + first)
    in_lower_case = train([row | {"text": row["text"].lower()} for row in pairs]).get_vocab().keys()
    assert all((stem + ending in in_lower_case) is is_known for stem, ending, _ in streets[:number])


@pytest.mark.parametrize(
    ("change", "marks"),
    [
        (lambda word: f"{word}s", [DROP_LAST]),
        (lambda word: f"{word}ies", [DROP_LAST]),
        (lambda word: f"wa{word}", [DROP_FIRST]),
        (lambda word: word.replace("a", "á").replace("e", "è").replace("i", "ï"), [PLAIN]),
        (lambda word: word[:-1], []),  # a letter is written behind the copy
    ],
)
@pytest.mark.parametrize(("number", "are_copied"), [(4, False), (5, True)])
def test_frequent_words_that_change_like_many_others_are_made_of_their_sources(
    change: Callable[[str], str], marks: list[str], number: int, are_copied: bool
) -> None:
    """As the goods of a shop, which orders name in the plural: new orders name other goods."""
    goods = [f"g{spell(index)}d" for index in range(number)]
    others = [(f"e{spell(index)}", f"{spell(index)}z") for index in range(40, 60)]
    words = [(good, change(good)) for good in goods] + others
    pairs = [pair(f"two {word} for {name}", f"{name}: 2 {good}") for name in NAMES[:10] for good, word in words * 3]
    tokenizer = train(pairs)
    known = tokenizer.get_vocab().keys()
    assert [mark for mark in (PLAIN, DROP_FIRST, DROP_LAST) if mark in known] == (marks if are_copied else [])
    assert {*goods}.isdisjoint(known) is are_copied
    assert {good for good, _ in others} < known
    new = change("gezized")
    source = tokenizer.encode_source(f"two {new} for us")
    assert (new in source.spell(tokenizer.encode_target("gezized", source))) is (are_copied or not marks)
    for row in pairs:
        assert write_and_read(tokenizer, row) == row["summary"]


def write_and_read(tokenizer: CopyNetTokenizer, row: dict[str, str]) -> str:
    """The target of a pair, of its ids."""
    source = tokenizer.encode_source(row["text"])
    ids = tokenizer.encode_target(tokenizer.tokenize(row["summary"]), source)
    assert tokenizer.unk_token_id not in ids
    return tokenizer.decode(ids, source=row["text"])


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        (lambda word: f"{word}s".lower(), True),  # no mark makes gEtaD of getads
        (lambda word: f"{word}s".upper(), True),
        (lambda word: word[:-3], False),  # of letters that only such words have
        (lambda word: f"{word}s", False),
    ],
)
def test_only_words_that_chains_make_are_left_out_of_the_vocabulary(
    change: Callable[[str], str], is_known: bool
) -> None:
    brands = [f"g{spell(index).title()}QxY" for index in range(10)]
    pairs = [
        pair(f"two {change(brand)} for {name}", f"{name}: {brand}") for name in NAMES[:10] for brand in brands * 3
    ]
    tokenizer = train(pairs)
    assert ({*brands} < tokenizer.get_vocab().keys()) is is_known
    for row in pairs:
        assert write_and_read(tokenizer, row) == row["summary"]


@pytest.mark.parametrize("mark", [DROP_LAST, PLAIN])
def test_words_that_often_do_not_change_are_known(mark: str) -> None:
    """In a third of their pairs, the source has nothing like them."""
    goods = [f"g{spell(index)}ad" for index in range(10)]
    words = [good.replace("a", "á") if mark == PLAIN else f"{good}s" for good in goods]
    rows = list(zip(goods, words, strict=True)) * 3
    pairs = [
        pair(f"two {word if number % 3 else 'of it'} for {name}", f"{name}: 2 {good}")
        for name in NAMES[:10]
        for number, (good, word) in enumerate(rows)
    ]
    tokenizer = train(pairs)
    assert {*goods} < tokenizer.get_vocab().keys()
    assert mark not in tokenizer.get_vocab()


def test_known_words_in_lower_case_without_accents_are_written_as_new_ones() -> None:
    """By one mark, as words that have no accents: `zabi-dom` of `Żabi Dom`."""
    firms = [(f"Gá{spell(index)}", f"Há{spell(index + 40)}d") for index in range(10)]
    pairs = [
        pair(f"for {name} at {a} {b}", f"{name}: {strip_accents(a).lower()}-{strip_accents(b).lower()}")
        for name in NAMES[:10]
        for a, b in firms * 3
    ]
    assert find_marks(pairs) == [PLAIN, LOWERED[PLAIN]]


def test_names_of_fields_are_known() -> None:
    """Though they are the plurals in all sources."""
    labels = [f"g{spell(index)}d" for index in range(6)]
    pairs = [
        pair(" ".join(f"no {label}s {name}" for label in labels), f"{name} {labels[number % 6]} {labels[number % 5]}")
        for number, name in enumerate(NAMES * 20)
    ]
    assert {*labels} < train(
        [row | {"summary": " ".join([row["summary"], *labels])} for row in pairs]
    ).get_vocab().keys()
    assert {*labels}.isdisjoint(train(pairs).get_vocab().keys())


@pytest.mark.parametrize(("number", "expected"), [(1, set()), (50, {"scone", "talker"})])
def test_a_word_is_regular_if_nearly_all_its_pairs_show_a_regular_change(number: int, expected: set[str]) -> None:
    plural, other = {"s": {(DROP_LAST, "s", "")}}, {"d": {(DROP_LAST, "d", "r")}}
    words = {f"w{index}": [plural] * 10 for index in range(5)}
    words |= {"scone": [plural] * 50, "talker": [plural] * number + [other] * (50 - number)}
    found = find_regular(words, {"s", "d"}, 150)
    assert found.keys() - {f"w{index}" for index in range(5)} == expected | {"scone"}


@pytest.mark.parametrize(
    ("word", "other", "ends"),
    [
        ("Leśna", "Leśnej", {(DROP_LAST, "ej", "a")}),
        ("scone", "SCONES", {(DROP_LAST, "s", "")}),
        ("déjeunerait", "déjeunerai", {(DROP_LAST, "", "t")}),
        ("جبن", "وجبن", {(DROP_FIRST, "و", "")}),
        ("anana", "ananana", {(DROP_LAST, "na", ""), (DROP_FIRST, "an", "")}),
        ("किताब", "किताबें", {(DROP_LAST, "ें", "")}),
        ("Scone", "scone", None),
        ("bun", "bus", None),  # too little is left
        ("scone", "sconeries", None),  # too much is cut
        ("sconeriest", "scone", None),
        ("bscone", "scone", None),  # perhaps an initial
        ("scone2", "scone", None),
        ("scone2", "scone2s", None),
        ("sc-one", "sc-ones", None),
    ],
)
def test_words_are_compared_by_their_ends(word: str, other: str, ends: set[tuple[str, str, str]] | None) -> None:
    assert find_ends([word], ["two", other, "for"]) == {word: {} if ends is None else {other: ends}}


@pytest.mark.parametrize(("every", "is_found"), [(1, True), (8, False)])
def test_names_that_are_all_frequent_show_that_endings_are_cut(every: int, is_found: bool) -> None:
    """Though none of them has to be spelled."""
    rows = [(f"{spell(number % 40)}", "yeou"[number // 40 % 4], number % every == 0) for number in range(400)]
    pairs = [pair(f"for {name}{end if cut else 'a'} {name[:2]}", f"to {name}a , as said") for name, end, cut in rows]
    assert (DROP_LAST in find_marks(pairs)) is is_found


def test_a_few_words_without_their_endings_are_no_reason_for_a_mark() -> None:
    names = [spell(number) for number in range(300)]
    pairs = [pair(f"for {name}ova", name if number < 8 else spell(number + 300)) for number, name in enumerate(names)]
    assert DROP_LAST not in find_marks(pairs)


def test_names_of_one_length_that_lose_endings_have_no_number_of_first_letters() -> None:
    """Though a few of their endings are longer."""
    endings = {0: "ovitz", 1: "ovsk"}
    pairs = [
        pair(f"for {spell(number)}{endings.get(number % 40, 'o' if number % 2 else 'ov')}", spell(number))
        for number in range(300)
    ]
    assert find_marks(pairs) == [DROP_LAST]


def make_codes(*lengths: int) -> list[str]:
    return [sha1(b"%d" % number).hexdigest()[: lengths[number % len(lengths)]] for number in range(300)]


def test_codes_of_which_the_first_letters_are_copied_are_not_cut() -> None:
    pairs = [
        pair(f"commit {code} by Ann (#{number})", f"{code[:7]}, #{number}")
        for number, code in enumerate(make_codes(40))
    ]
    tokenizer = train(pairs, segmenter="auto")
    assert tokenizer.segmenter == "word_punct"
    assert [mark for mark in OPTIONAL if mark in tokenizer.get_vocab()] == ["[first_7]"]
    for code, tokens in {
        "19bed095f3": ["[first_7]", "19bed095f3"],
        "19bed09": ["[first_7]", "19bed09"],  # as if it were longer
        "1934509": ["1934509"],  # a number
    }.items():
        source = tokenizer.encode_source(f"commit {code} by 19bed0")
        assert source.spell(tokenizer.encode_target(f"{code[:7]} 19bed0", source)) == [*tokens, "19bed0"]


@pytest.mark.parametrize("digits", [False, True])
def test_codes_are_whole_where_other_words_are_cut(digits: bool) -> None:
    pairs: list[dict[str, str]] = []
    for number, code in enumerate(make_codes(7, 40), 100):
        name, digit = spell(number).title(), f" 48,{number}" if digits else ""
        # letters of a list do not go on with the code
        pairs.append(pair(f"{code} {name}WexError 48{number}", f"{code[:7]} {name}_Wex{digit} a b c d e f"))
    tokenizer = train(pairs, segmenter="auto")
    assert tokenizer.segmenter == ("code_digits" if digits else "code_parts")
    assert [mark for mark in OPTIONAL if mark in tokenizer.get_vocab()] == ["[first_7]"]


def test_codes_that_targets_divide_are_cut() -> None:
    """A German IBAN is a hexadecimal code, too."""
    random, pairs = Random(0), []
    for number in range(300):
        iban = random.choice(("DE", "NL")) + str(random.randrange(10**17, 10**18))
        groups = " ".join(iban[start : start + 4] for start in range(0, len(iban), 4))
        pairs.append(pair(f"{spell(number)}, {iban}", f"{groups} {spell(number)}"))
    assert guess_segmenter(pairs) == "word_digits"
    tokenizer = train(pairs, segmenter="auto")
    source = tokenizer.encode_source("ax, DE25194916328536754357")
    assert source.spell(tokenizer.encode_target("DE25 1949", source)).count("9") == 2


def test_words_of_which_any_number_of_letters_is_left_have_no_mark_for_it() -> None:
    names = [f"{spell(number)}{spell(number + 300)}" for number in range(300)]
    pairs = [pair(f"for {name}", name[: 4 + number % 5]) for number, name in enumerate(names)]
    tokenizer = train(pairs)
    assert FIRST.keys().isdisjoint(tokenizer.get_vocab())


def spell(number: int) -> str:
    """A name that is no other number's."""
    return str(7919 * number % 900_000 + 100_000).translate(str.maketrans("0123456789", "aeiounlrst"))


def test_sorted_pairs_are_all_looked_at() -> None:
    first = [pair(f"get {name} now", name) for name in NAMES * 120]
    last = [pair(f"{spell(number).title()} {spell(number + 999).title()} is here", "") for number in range(180)]
    for row in last:
        row["summary"] = f"{row['text'][0]} {row['text'].split()[1]}"
    assert INITIAL in find_marks([*first, *last])


def test_words_beyond_the_longest_output_are_not_counted() -> None:
    pairs = [pair(f"{n} abc", " ".join([f"w{n}"] * 700)) for n in range(3)]
    assert measure_reach(train(pairs), pairs).num_words == 3 * 512


def test_copied_digits_and_letters_are_not_spelled() -> None:
    rows = [(number, letter) for number in range(2, 10) for letter in "BCDEFGHJ"]
    doors = [
        pair(f"calle {n}0, {n}.-{letter}, to {NAMES[n]}{n}", f"{n}0 {n}{letter} | {NAMES[n]}{n}") for n, letter in rows
    ]
    reach = measure_reach(train(doors), doors)
    assert not reach.hard


@pytest.mark.parametrize("arguments", [{"chains": False}, {"segmenter": "whitespace"}, {"segmenter": "char"}])
def test_other_vocabularies_have_no_marks(arguments: dict) -> None:
    assert not MARKS & train(make_users("initial"), **arguments).get_vocab().keys()


def test_unknown_whitespace_is_a_space_unless_targets_copy_it() -> None:
    """Of 100 notes, one target may have what its source has between words; not all of them."""
    rows = [(f"call {name} {number}", f"{name} {number}") for number in range(10) for name in NAMES]
    assert train([pair(*row) for row in rows]).fold_whitespace
    odd = [(f"call {name}{' ' * (9 + number)}x", f"{name}{' ' * (9 + number)}x") for number, name in enumerate(NAMES)]
    assert train([pair(*row) for row in [*rows[1:], odd[0]]]).fold_whitespace
    assert not train([pair(*row) for row in [*rows[len(odd) :], *odd]]).fold_whitespace
    assert train([pair(*row) for row in rows], max_source_oov=5).fold_whitespace


@pytest.mark.parametrize(("number", "is_known"), [(4, False), (5, True)])
@pytest.mark.parametrize("space", ["\n", "\u00a0", "\t\t"])
def test_whitespace_that_few_sources_have_is_a_space(space: str, number: int, is_known: bool) -> None:
    rows = [(f"call {name} {number},", f"{name} {number}") for number in range(10) for name in NAMES]
    spaced = [(text.replace(" ", space) + space * 3, target) for text, target in rows[:number]]
    tokenizer = train([pair(*row) for row in [*spaced, *rows[number:]]], min_frequency=1)
    assert tokenizer.fold_whitespace
    assert (space in tokenizer.get_vocab()) is is_known
    words = ["call", *([space] if is_known else []), "Jonas", "￭,"]
    assert tokenizer.encode_source(f"call{space}Jonas,").words == words
    in_target = [pair(f"{text};{space};", f"{target};{space};") for text, target in rows[:1]]
    rows_with_target = [*in_target, *(pair(*row) for row in rows[1:])]
    assert space in train(rows_with_target, min_frequency=1).get_vocab()
    assert [*tokenizer.get_vocab().values()] == [*range(len(tokenizer))]
