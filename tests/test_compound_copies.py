"""Compound copies: which words become compounds, and what changes with them."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from copynet_hf import CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.training.compound_copies import (
    IDENTIFIER,
    add_compounds,
    find_copied,
    find_names,
    find_phrases,
    shorten_name,
)
from copynet_hf.training.reach import measure_reach
from copynet_hf.training.tokenizer_setup import train_tokenizer

SEGMENTERS = ["word_punct", "word_parts", "word_digits", "code_parts", "code_digits"]
SCRIPTS = {
    "latin": ["ka", "ro", "mi", "lun", "té", "sø", "vi", "dra"],
    "cyrillic": ["ши", "ка", "ро", "мё", "лун"],
    "devanagari": ["दी", "रा", "मो", "कि"],
}


def calls(number: int = 300, scripts: Sequence[str] = tuple(SCRIPTS)) -> Dataset:
    """Calls of new persons: `Call Karomi from Lunvidra at 17:40.` → `Lunvidra: Karomi (17:40)`."""
    generator = random.Random(0)

    def name() -> str:
        return "".join(generator.choices(SCRIPTS[generator.choice(scripts)], k=4)).capitalize()

    rows = []
    for _ in range(number):
        person, city, hour = name(), name(), generator.randint(10, 23)
        rows.append({"text": f"Call {person} from {city} at {hour}:40.", "summary": f"{city}: {person} ({hour}:40)"})
    return Dataset.from_list(rows)


def train(pairs: Dataset, **arguments: Any) -> CopyNetTokenizer:
    return train_tokenizer(pairs, TrainArguments(**{"segmenter": "word_punct", "min_frequency": 20, **arguments}))


def copied(text: str, target: str) -> list[str]:
    return find_copied(text, target, train(calls()))


@pytest.mark.parametrize("segmenter", SEGMENTERS)
def test_source_and_target_get_the_same_compounds_which_are_copied(segmenter: str) -> None:
    pairs = calls()
    tokenizer = train(pairs, segmenter=segmenter)
    shapes, hours = set[bool](), set[bool]()
    for before, after in zip(pairs, add_compounds(pairs, tokenizer, 1.0), strict=True):
        names = re.fullmatch(r"Call (.+) from (.+) at (.*)\.", after["text"])
        assert names is not None, after
        person, city, hour = names.groups()
        assert after["summary"] == f"{city}: {person} ({hour})"
        was = re.fullmatch(r"Call (.+) from (.+) at (.*)\.", before["text"])
        assert was is not None
        hours.add(hour == was[3])
        assert was[1] in person
        assert was[2] in city
        changed = [(old, new) for old, new in ((was[1], person), (was[2], city)) if old != new]
        assert 1 <= len(changed) <= 2
        for old, new in changed:
            rest = new.replace(old, "", 1)
            letters = re.sub(r"[\u0900-\u097f]", "x", rest)  # vowel signs are no word characters
            assert re.fullmatch(r"[^\W\d_]*(\. | [^\W\d_]{2,3} |[ '’/.&+_-])[^\W\d_]*", letters), new
            shapes.add(new.startswith(old))
            source = tokenizer.encode_source(after["text"])
            ids = tokenizer.encode_target(new, source)
            assert tokenizer.convert_tokens_to_string(source.spell(ids)) == new
            letters = [word for word in source.spell(ids) if word.isalnum()]
            assert all(word in source.slots or word in tokenizer.get_vocab() for word in letters)
            assert {*letters} <= {*source.words}
    assert shapes == hours == {True, False}


def test_a_word_in_another_case_stays_in_it() -> None:
    rows = [row | {"text": row["text"].upper()} for row in calls(scripts=["latin", "cyrillic"])]
    pairs = Dataset.from_list(rows)
    tokenizer = train(pairs)
    changed = [row for row, old in zip(add_compounds(pairs, tokenizer, 1.0), rows, strict=True) if row != old]
    assert len(changed) > 200
    for row in changed:
        city, person = re.split(r": | \(", row["summary"])[:2]
        for written in (city, person):
            parts = re.split(r"[ '’/.&+_-]", written)
            assert all(part == part.capitalize() for part in parts), row
            assert written.upper() in row["text"].upper(), row


def test_the_share_is_that_of_the_pairs_and_each_changes_alike_in_every_run() -> None:
    pairs = calls(1000)
    tokenizer = train(pairs)
    compounds = list(add_compounds(pairs, tokenizer, 0.3))
    number = sum(new != old for new, old in zip(compounds, pairs, strict=True))
    assert 250 < number < 350
    assert list(add_compounds(pairs, tokenizer, 0.3)) == compounds
    assert list(add_compounds(pairs.to_iterable_dataset(), tokenizer, 0.3)) == compounds


def test_in_characters_words_change_that_targets_only_copy() -> None:
    pairs = calls(scripts=["latin", "cyrillic"])
    tokenizer = train(pairs, segmenter="char")
    shapes = Counter[bool]()
    for before, after in zip(pairs, add_compounds(pairs, tokenizer, 1.0), strict=True):
        names = re.fullmatch(r"Call (.+) from (.+) at (.*)\.", after["text"])
        assert names is not None, after
        assert after["summary"] == f"{names[2]}: {names[1]} ({names[3]})"
        shapes.update(name in before["text"] for name in names.groups())
    assert min(shapes.values()) > 200
    assert find_copied("Call Ines.", "Ines, Inesa", tokenizer, {"Ines"}) == []
    assert find_copied("Call Ines.", "Ines, Ina", tokenizer, {"Ines"}) == ["Ines"]
    assert find_copied("Call Ines.", "Ines, Ina", tokenizer) == []


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("Call Ines from Bonn at 17:40.", "Bonn: Ines (17:40)", ["Ines", "Bonn"]),
        ("Call INES from Bonn at 17:40.", "bonn: Ines", ["INES", "Bonn"]),
        ("Call Ines from Bonn at 17:40.", "Bonn", ["Bonn"]),
        ("Call Ines from Bonn at 17:40.", "Bonn: bonn", ["Bonn"]),
        ("Call Ines Weber from Bonn at 17:40.", "Weber: iweber@w.de", []),  # parts of them are in others
        ("Call Ines from Bonn at 17:40.", "from: Call", []),  # in the vocabulary
        ("Call 47110 from 08154 at 17:40.", "08154: 47110 (17:40)", ["47110", "08154"]),
        ("Call 47110 from K4 at 17:40.", "K4: 47110 (17:40)", ["K4", "47110"]),
        ("Call 47110, since 47110 is free.", "47110, 47110", ["47110"]),
        ("Call ٤٧١١٠ at 17:40.", "٤٧١١٠", ["٤٧١١٠"]),
        ("Call 47110 at 17:40.", "47110.00", []),  # an amount
        ("Call 47110,50 or 12.47110 or 47110/5.", "47110,50 12.47110 47110/5", []),
        ("Call 47110 at 17:40.", "47110, 3471100", []),  # made into another number, too
        ("Call 47110 or 3471100.", "47110", []),
        ("Call KU-4021/7 or AB-12.", "KU-4021/7, AB-12", ["KU", "AB", "KU-4021/7"]),
        ("Call on 2024-01-31 or 12/2024.", "2024-01-31, 12/2024", []),
        ("Pay $47110 or 47110%.", "47110", []),
        ("Call 12 47110 or 47120 500.", "12 47110 47120 500", []),  # thousands with a space
        ("Call from 2024 to 911.", "2024 911", []),  # years, and quantities
        ("Call Ines.", "Otto", []),
        ("", "", []),
    ],
)
def test_words_that_are_copied_whole(text: str, target: str, expected: list[str]) -> None:
    assert copied(text, target) == expected


def test_a_number_gets_another_one_or_letters() -> None:
    generator = random.Random(0)
    numbers = [str(generator.randrange(30_000, 10**7)) for _ in range(600)]
    pairs = Dataset.from_list([{"text": f"Pay 5000 for {each}.", "summary": f"“{each}”: 5000.00"} for each in numbers])
    shapes = Counter[str]()
    for number, row in zip(numbers, add_compounds(pairs, train(pairs), 1.0), strict=True):
        found = re.fullmatch(r"Pay 5000 for (\S+)\.", row["text"])
        assert found is not None, row
        assert row["summary"] == f"“{found[1]}”: 5000.00"
        shapes[re.sub(r"[A-Z]+", "A", re.sub(r"\d+", "1", found[1].replace(number, "#", 1)))] += 1
    assert {*shapes} == {"#-1", "#/1", "1-#", "1/#", "A-#", "A/#", "A#", "#A", "#-A", "#/A"}
    assert min(shapes.values()) > 10


def test_names_are_the_capitalised_words_of_the_vocabulary_that_are_copied_in_some_pairs() -> None:
    first_names = ["Ines", "Otto", "Ada", "Per", "Uwe", "Kim"]
    rows = []
    for number in range(60):
        person, city = first_names[number % 6], ["Bonn", "Rom"][number % 2]
        rows.append({"text": f"Call {person} of {city} and Uwe's dog", "summary": f"Call {person} of {city}, Kim"})
    tokenizer = train(Dataset.from_list(rows), min_frequency=1)
    # Call, Bonn and Rom are in too many pairs, Kim is generated, too, and of is no name
    assert find_names(rows, tokenizer) == {"Ines", "Otto", "Ada", "Per", "Uwe"}
    assert find_names(rows, train(Dataset.from_list(rows), min_frequency=200)) == set()
    assert find_copied(rows[1]["text"], rows[1]["summary"], tokenizer, {"Otto", "Uwe"}) == ["Otto"]


def test_words_of_scripts_without_capitals_can_be_names() -> None:
    names = ["अर्जुन", "कपिल", "गोपीनाथ", "דוד", "שרה", "اسد"]
    rows = [{"text": f"{name} तथा and और, {name}", "summary": f"और {name} and"} for name in names]
    tokenizer = train(Dataset.from_list(rows), min_frequency=1)
    assert find_names(rows, tokenizer) == {*names}


def test_half_of_the_names_give_way_to_words_outside_the_vocabulary() -> None:
    generator = random.Random(0)
    rows = []
    for row in calls():
        first = generator.choice(["Ines", "Otto", "Ada", "Per", "Uwe", "Kim"])
        rows.append({"text": f"Sir {first}! {row['text']}", "summary": f"{row['summary']} / {first}"})
    tokenizer = train(Dataset.from_list(rows))
    kinds = Counter[str]()
    for old, new in zip(rows, add_compounds(Dataset.from_list(rows), tokenizer, 1.0), strict=True):
        before, after = (re.match(r"Sir (.+)!", row["text"]) for row in (old, new))
        assert before is not None
        assert after is not None
        assert new["summary"].endswith(f" / {after[1]}")
        kinds["same" if before[1] == after[1] else "compound" if before[1] in after[1] else "other"] += 1
        assert before[1] in after[1] or after[1] not in tokenizer.get_vocab()
    assert kinds["other"] > 40
    assert kinds["compound"] > 50
    assert kinds["same"] > 50


def test_scripts_without_spaces_have_identifiers_among_their_letters_and_no_names() -> None:
    text = "您好，我是黄明霞。我要订2台KX-120电视机，订单号DD7890，电话13655435268，共12345元，2031年5月到"
    target = "姓名=黄明霞;商品=KX-120电视机;订单=DD7890;电话=13655435268;价=12345;年=2031"
    rows = [{"text": text, "summary": target}] + [
        {"text": f"订单号AB{number}，我是黄明霞。", "summary": f"订单=AB{number}"} for number in range(1000, 1300)
    ]
    tokenizer = train(Dataset.from_list(rows), segmenter="char")
    assert find_names(rows, tokenizer) == set()
    assert find_copied(text, target, tokenizer) == ["KX-120", "DD7890", "13655435268"]
    after = [*add_compounds(Dataset.from_list(rows), tokenizer, 1.0)][1:]
    for row in after:
        found = re.fullmatch(r"订单号(.+)，我是黄明霞。", row["text"])
        assert found is not None
        assert row["summary"] == f"订单={found[1]}"
        assert re.fullmatch(r"[A-Z0-9/-]+", found[1])
    assert len({tuple(row.values()) for row in after} - {tuple(row.values()) for row in rows}) > 290


@pytest.mark.parametrize("code", ["KX-๑๒๓", "๑๒๓๔๕", "KX-120/7"])
def test_digits_of_any_script_are_part_of_identifiers(code: str) -> None:
    assert find_copied(f"เลขที่{code} ครับ", code, train(calls(), segmenter="char")) == [code]


@pytest.mark.parametrize("text", ["KX--123", "Anna--12345", "12345元", "1" * 10_000 + "元", "a1" * 10_000])
def test_what_is_no_identifier(text: str) -> None:
    assert IDENTIFIER.search(text) is None


def test_a_code_gets_another_mark_or_none() -> None:
    generator = random.Random(0)
    codes = [f"KU-{generator.randrange(1000, 10**6)}" for _ in range(300)]
    rows = [{"text": f"ku 12-7 {code}.", "summary": f"“{code}”"} for code in codes]
    tokenizer = train(Dataset.from_list(rows), min_frequency=1)  # of the code, KU is in the vocabulary
    shapes = Counter[str]()
    for code, row in zip(codes, add_compounds_of(rows, tokenizer), strict=True):
        found = re.fullmatch(r"ku 12-7 (\S+)\.", row["text"])
        assert found is not None, row
        assert row["summary"] == f"“{found[1]}”"
        shapes[found[1].replace(code[3:], "n")] += 1
    assert shapes["KU/n"] > 10
    assert shapes["KUn"] > 10


def test_a_source_without_free_slots_does_not_change() -> None:
    tokenizer = train(calls(), max_source_oov=9)
    assert find_copied("Call Ines from Bonn at 17:40.", "Bonn: Ines (17:40)", tokenizer) == []


def test_a_pair_stays_as_it_is_where_limits_would_cut_it() -> None:
    pairs = calls().map(lambda row: {"summary": row["summary"].partition(" (")[0]})
    tokenizer = train(pairs)  # a source has 8 words, a target 3
    longest = max(len(tokenizer.tokenize(row["text"])) for row in pairs)
    assert all(old == new for old, new in zip(pairs, add_compounds(pairs, tokenizer, 1.0, 3), strict=True))
    targets = [row["summary"] for row in add_compounds(pairs, tokenizer, 1.0, 6)]
    assert {len(tokenizer.tokenize(target)) for target in targets} == {3, 4, 5}
    tokenizer.model_max_length = longest + 1
    texts = [row["text"] for row in add_compounds(pairs, tokenizer, 1.0)]
    assert {len(tokenizer.tokenize(text)) for text in texts} == {longest, longest + 1}


def test_no_more_of_a_target_is_spelled_or_unknown_than_before() -> None:
    rows = [{"text": row["text"].lower(), "summary": row["summary"]} for row in calls(scripts=["latin", "cyrillic"])]
    for segmenter in ("word_punct", "word_parts"):  # an underscore keeps Ines_otto one word of the first
        tokenizer = train(Dataset.from_list(rows), segmenter=segmenter)
        before, after = (measure_reach(tokenizer, pairs) for pairs in (rows, add_compounds_of(rows, tokenizer)))
        assert before.words["spelled"] == after.words["spelled"]
        assert before.words["unknown"] == after.words["unknown"]
        assert after.words["joined"] > before.words["joined"]


def add_compounds_of(rows: list[dict[str, str]], tokenizer: CopyNetTokenizer) -> Dataset:
    pairs = add_compounds(Dataset.from_list(rows), tokenizer, 1.0)
    assert isinstance(pairs, Dataset)
    return pairs


def test_names_that_generated_words_go_with_stay() -> None:
    codes = {"Berlin": "BER", "Dublin": "DUB", "Lima": "LIM", "Oslo": "OSL", "Rome": "FCO", "Accra": "ACC"}
    generator = random.Random(0)
    rows = []
    for row in calls():
        city, guide = generator.choice([*codes]), generator.choice(["Ines", "Otto", "Ada", "Per", "Uwe", "Kim"])
        rows.append({"text": f"{row['text']} To {city}, by {guide}", "summary": f"{guide} {city} ({codes[city]})"})
    tokenizer = train(Dataset.from_list(rows), min_frequency=10)
    assert find_names(rows, tokenizer) == {"Ines", "Otto", "Ada", "Per", "Uwe", "Kim"}


def test_of_some_names_of_two_words_one_goes() -> None:
    rows = []
    for row in calls(scripts=["latin", "cyrillic"]):
        first, last = row["summary"].split(" (")[0].split(": ")
        rows.append({"text": f"{first} {last.upper()}, please; not Ines", "summary": f"call “{first} {last}”"})
    tokenizer = train(Dataset.from_list(rows))
    kinds = Counter[str]()
    for old, new in zip(rows, add_compounds_of(rows, tokenizer), strict=True):
        first, last = old["summary"].removeprefix("call “").removesuffix("”").split()
        name = new["summary"].removeprefix("call “").removesuffix("”")
        kinds[{first: "first", last: "last"}.get(name, "longer" if " " in name else "joined")] += 1
        if name in (first, last):
            written = name if name == first else name.upper()
            assert new["text"] == f"{written}, please; not Ines"
    assert min(kinds["first"], kinds["last"]) > 15
    assert kinds["longer"] > 150


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("Call Ines  WEBER from Bonn", "Ines Weber, Bonn", {("Call Ines from Bonn", "Ines, Bonn")}),
        ("Call Ines Maria Weber", "Ines Maria Weber", {("Call Ines Weber", "Ines Weber")}),
        ("Call Ines Weber from Bonn", "Weber, Ines", set()),
        ("Call Ines Weber, or Weber from Bonn", "Ines Weber", set()),  # which is her, too
        ("Call Ines Weber", "dear Ines, name Ines Weber", set()),  # whose greeting needs the first name
        ("Call Ines Weber and Marines Weber", "Ines Weber", set()),
        ("Call Ines Weber from Weberstadt", "Ines Weber", set()),
        ("Call Ines Weiß", "INES WEISS", set()),  # the same in other letters
        ("Call Ines 815 of 4711 50", "Ines 815 4711 50", set()),
    ],
)
def test_a_name_of_two_words_loses_one_where_neither_stands_elsewhere(
    text: str, target: str, expected: set[tuple[str, str]]
) -> None:
    words = text.replace(",", "").split()[1:]
    found = {shorten_name(text, target, "Ines", words, random.Random(seed)) for seed in range(20)} - {None}
    assert bool(found) == bool(expected)
    assert expected <= found
    assert len(found) in (0, 2)


def test_where_the_vocabulary_has_all_names_parts_of_others_are_made_of_their_halves() -> None:
    """With the word itself as the other part, it would be there twice."""
    generator = random.Random(0)
    people = ["Ines", "Otto", "Ada", "Per", "Uwe", "Kim", "Maria", "Juri"]
    rows = [{"text": f"Call {person} at {generator.randint(10, 23)}:40.", "summary": person} for person in people * 30]
    tokenizer = train(Dataset.from_list(rows), min_frequency=1)
    others = set()
    for old, new in zip(rows, add_compounds_of(rows, tokenizer), strict=True):
        assert new["text"].startswith(f"Call {new['summary']} at ")
        others |= {*re.findall(r"[^\W_]+", new["summary"])} - {old["summary"]}
    words = {other for other in others if len(other) > 3}
    assert len(words) > 20
    assert all(any(word[:2] == name[:2] for name in people) for word in words)
    assert all(any(word[-1] == name[-1] for name in people) for word in words)


@pytest.mark.parametrize("column", ["facts", "features"])
def test_pairs_with_facts_or_features_do_not_change(column: str) -> None:
    pairs = calls()
    tokenizer = train(pairs)
    pairs = pairs.add_column(column, [[] for _ in pairs])
    assert add_compounds(pairs, tokenizer, 1.0) is pairs


@pytest.mark.parametrize("segmenter", ["whitespace", "jieba"])
def test_words_that_no_mark_cuts_do_not_change(segmenter: str) -> None:
    pairs = calls()
    assert add_compounds(pairs, train(pairs, segmenter=segmenter), 1.0) is pairs


def test_what_is_between_words_stays() -> None:
    text = "  Call\t“Ines”  —from\n\nBonn/Köln... at 17:40 . "
    pairs = Dataset.from_list([{"text": text, "summary": "Ines  “Bonn”\n"}])
    (row,) = add_compounds(pairs, train(calls(), max_source_oov=40), 1.0)
    words = re.fullmatch(r"  Call\t“(.+)”  —from\n\n(.+)/Köln\.\.\. at 17:40 \. ", row["text"])
    assert words is not None, row
    assert row["summary"] == f"{words[1]}  “{words[2]}”\n"
    assert {words[1], words[2]} != {"Ines", "Bonn"}


def test_at_most_two_words_of_a_pair_change() -> None:
    generator = random.Random(0)
    names = ["".join(generator.choices(SCRIPTS["latin"], k=4)).capitalize() for _ in range(400)]
    rows = [
        {"text": f"{' '.join(part)}.", "summary": ", ".join(part)}
        for part in (names[n : n + 4] for n in range(0, 400, 4))
    ]
    numbers = Counter(
        sum(name not in old["summary"].split(", ") for name in new["summary"].split(", "))
        for old, new in zip(rows, add_compounds_of(rows, train(Dataset.from_list(rows))), strict=True)
    )
    assert {*numbers} == {1, 2}


def test_turkish_keeps_its_case() -> None:
    generator = random.Random(0)
    names = ["".join(generator.choices(["ış", "ıl", "kı", "di"], k=3)) for _ in range(300)]
    upper = [name.replace("i", "İ").upper() for name in names]
    rows = [{"text": f"{name} geldi", "summary": f"{other}"} for name, other in zip(upper, names, strict=True)]
    tokenizer = train(Dataset.from_list(rows))
    assert "[lower_tr]" in tokenizer.get_vocab()
    changed = [row for row, old in zip(add_compounds_of(rows, tokenizer), rows, strict=True) if row != old]
    assert len(changed) > 200
    capitals = [
        tuple(row[name].removesuffix(" geldi").replace("i", "İ").upper() for name in ("text", "summary"))
        for row in changed
    ]
    assert all(text == target for text, target in capitals)


def test_a_run_finds_what_another_process_has_made() -> None:
    code = (
        "from test_compound_copies import *; pairs = calls(); tokenizer = train(pairs, min_frequency=1);"
        "print(add_compounds(pairs, tokenizer, 0.3)._fingerprint)"
    )
    folders = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = calls()
    tokenizer = train(pairs, min_frequency=1)
    assert len(find_names(list(pairs), tokenizer)) > 5  # in an order that differs between processes
    assert f"{add_compounds(pairs, tokenizer, 0.3)._fingerprint}\n" == other.stdout


@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("damage to the gate on Monday", "damage to the gate", ["damage to", "to the", "the gate"]),
        ("closed because of high  water", "of high water", ["of high"]),  # of two spaces
        ("the gate and the gate", "the gate", []),
        ("Ana de Souza's car", "Ana de Souza", ["Ana de"]),
        ("Ana-Lena Weber, Bonn", "Ana-Lena Weber Bonn", []),
        ("Рита Вебер", "Рита Вебер", ["Рита Вебер"]),
        ("row 5 of it", "row 5 of it", ["of it"]),
    ],
)
def test_phrases_are_neighbouring_words_that_both_texts_have_once(text: str, target: str, expected: list[str]) -> None:
    assert find_phrases(text, target) == expected


@pytest.mark.parametrize("segmenter", ["char", *SEGMENTERS])
def test_a_phrase_has_one_word_more_in_both_texts(segmenter: str) -> None:
    generator = random.Random(0)
    rows = []
    for number in range(300):
        cause, place = (
            generator.choice(["damage to the gate", "lack of fuel"]),
            generator.choice(["Bonn", "Rom", "Ulm", "Mainz", "Jena", "Kiel"]),
        )
        rows.append({"text": f"No. {number}: since {cause} was seen, {place} waits.", "summary": f"{place}: {cause}"})
    pairs = Dataset.from_list(rows)
    inserted, sources = (
        list[Counter[str]](),
        {"since", "was", "seen", "waits", "damage", "to", "the", "gate", "lack", "of", "fuel"},
    )
    for old, new in zip(
        rows, add_compounds(pairs, train(pairs, segmenter=segmenter, min_frequency=1), 1.0), strict=True
    ):
        found = re.fullmatch(r"No. \d+: since (.+) was seen, (.+) waits\.", new["text"])
        assert found is not None, new
        assert new["summary"] == f"{found[2]}: {found[1]}"
        before, after = old["summary"].partition(": ")[2].split(), found[1].split()
        words = iter(after)
        assert all(word in words for word in before)  # in this order
        assert (after[0], after[-1]) == (before[0], before[-1])
        inserted.append(Counter(after) - Counter(before))  # an unknown one may be part of a compound
    changed = [words for words in inserted if words]
    assert 100 < len(changed) < 200
    assert {True, False} == {words.keys() <= sources for words in changed}
