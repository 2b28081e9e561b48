"""The dialogue data follow section 5.3 of Gu et al. 2016."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from experiments.data.dialogue import (
    KINDS,
    SLOT,
    has_new_entity,
    make_dialogue_pairs,
    read_patterns,
    read_slot_words,
    split_slot_words,
)

SIZES = {"train": 6_500, "validation": 500, "test": 1_500}


def slots(text):
    return {kind + digit for kind, digit in SLOT.findall(text)}


@cache
def compile_pattern(index):
    """A regular expression that matches a pattern's messages, with a group per slot."""

    def word(slot):
        return f"(?P<{slot[1]}>{'[一-鿿]+' if slot[1].rstrip('2') in KINDS else '[0-9A-Z点比月号]+'})"

    return re.compile(re.sub(r"\\{(\w+)\\}", word, re.escape(read_patterns()[index].message)))


@cache
def find_slot_words(text, index, *halves):
    """The words of a message by slot; empty if it is not of the pattern, or has words of other halves."""
    match = compile_pattern(index).fullmatch(text)
    words = match.groupdict() if match else {}
    are_in_halves = [
        any(word in vocabulary(half, slot.rstrip("2")) for half in halves) for slot, word in words.items()
    ]
    return words if all(are_in_halves) else {}


@cache
def vocabulary(half, kind):
    return frozenset(split_slot_words()[half][kind])


def slot_words_of(row):
    return find_slot_words(row["text"], row["pattern"], "seen", "new")


@pytest.fixture(scope="module")
def pairs():
    return {name: make_dialogue_pairs(name) for name in ("DS-I", "DS-II")}


def test_the_173_patterns_have_known_slots_and_no_two_the_same_wording():
    patterns = read_patterns()
    assert len(patterns) == 173
    assert len({SLOT.sub("*", pattern.message) for pattern in patterns}) == 173
    for pattern in patterns:
        assert slots(pattern.message)
        assert pattern.replies
        assert len(set(pattern.replies)) == len(pattern.replies)
        for text in (pattern.message, *pattern.replies):
            assert not re.search(r"[{}\s]", SLOT.sub("", text))
            assert {kind for kind, _ in SLOT.findall(text)} <= read_slot_words().keys()


def test_the_halves_have_no_word_in_common_nor_one_within_another():
    half = {word: name for name, kinds in split_slot_words().items() for words in kinds.values() for word in words}
    assert Counter(half.values()) == {
        name: len({word for words in kinds.values() for word in words}) for name, kinds in split_slot_words().items()
    }
    for word in filter(str.isalpha, half):
        parts = {word[start:end] for end in range(len(word) + 1) for start in range(end)}
        assert {half[part] for part in parts if part in half} == {half[word]}, word
    for kind, words in read_slot_words().items():
        of_seen, of_new = split_slot_words()["seen"][kind], split_slot_words()["new"][kind]
        assert abs(len(of_seen) - len(of_new)) <= len(words) / 10, kind
        assert set(of_seen) | set(of_new) <= set(words)
    assert split_slot_words(1) != split_slot_words(0)


def test_sizes_and_rows(pairs):
    for splits in pairs.values():
        assert {name: len(rows) for name, rows in splits.items()} == SIZES
        assert all(row.keys() == {"text", "summary", "answers", "pattern"} for rows in splits.values() for row in rows)
        assert {row["pattern"] for row in splits["train"]} == set(range(173))
        counts = Counter(row["pattern"] for row in splits["train"])
        assert 10 < min(counts.values()) < max(counts.values()) < 70  # 37.6 on average
    assert pairs["DS-I"]["train"] == pairs["DS-II"]["train"]
    assert pairs["DS-I"]["test"] != pairs["DS-II"]["test"]
    with pytest.raises(ValueError, match="name is 'DS-III': use DS-I or DS-II"):
        make_dialogue_pairs("DS-III")


def test_no_message_is_in_two_splits(pairs):
    for splits in pairs.values():
        train, validation, test = ({row["text"] for row in rows} for rows in splits.values())
        assert not train & validation
        assert not (train | validation) & test


def test_words_of_the_test_are_those_of_training_in_ds1_and_new_in_ds2(pairs):
    for name, splits in pairs.items():
        for split, rows in splits.items():
            half = "new" if (name, split) == ("DS-II", "test") else "seen"
            assert all(find_slot_words(row["text"], row["pattern"], half) for row in rows), (name, split)
    train, same, new = (
        [word for row in rows for word in slot_words_of(row).values()]
        for rows in (pairs["DS-I"]["train"], pairs["DS-I"]["test"], pairs["DS-II"]["test"])
    )
    met = set(train)
    assert sum(word in met for word in same) / len(same) > 0.9
    assert not met & set(new)


def test_answers_are_the_replies_filled_and_hold_the_golden(pairs):
    for row in (row for splits in pairs.values() for rows in splits.values() for row in rows):
        pattern = read_patterns()[row["pattern"]]
        words = slot_words_of(row)
        copied = [reply.format_map(words) for reply in pattern.replies if not has_new_entity(reply)]
        assert row["summary"] in row["answers"]
        assert set(row["answers"]) == {*copied, row["summary"]}
        assert len(row["answers"]) == len(set(row["answers"]))
        assert not any("{" in text for text in (row["text"], *row["answers"]))


def test_pairs_are_the_same_for_a_seed_whatever_the_order_of_sets(pairs):
    assert make_dialogue_pairs("DS-II") == pairs["DS-II"]
    assert make_dialogue_pairs("DS-II", seed=1) != pairs["DS-II"]
    code = "import json; from experiments.data.dialogue import *; print(json.dumps(make_dialogue_pairs('DS-II')))"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == pairs["DS-II"]
