"""The dialogue data is what Gu et al. 2016, section 5.3, say of theirs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from experiments.dialogue import KINDS, OUTSIDE, SLOT, dialogue_pairs, fillers, pools, read_patterns, says_more

SIZES = {"train": 6_500, "validation": 500, "test": 1_500}


def slots(text):
    return {kind + digit for kind, digit in SLOT.findall(text)}


@cache
def parser(pattern):
    """What matches a pattern's messages, and more, and finds their words."""

    def word(slot):
        return f"(?P<{slot[1]}>{'[一-鿿]+' if slot[1].rstrip('2') in KINDS else '[0-9A-Z点比月号]+'})"

    return re.compile(re.sub(r"\\{(\w+)\\}", word, re.escape(read_patterns()[pattern].message)))


@cache
def words_of(text, pattern, *halves):
    """The words that fill a pattern's slots in a message by slot, or nothing if it is none of the pattern's."""
    found = parser(pattern).fullmatch(text)
    words = found.groupdict() if found else {}
    known = [any(word in vocabulary(half, slot.rstrip("2")) for half in halves) for slot, word in words.items()]
    return words if all(known) else {}


@cache
def vocabulary(half, kind):
    return frozenset(pools()[half][kind])


def filled(row):
    return words_of(row["text"], row["pattern"], "seen", "new")


@pytest.fixture(scope="module")
def pairs():
    return {name: dialogue_pairs(name) for name in ("DS-I", "DS-II")}


def test_the_173_patterns_have_known_slots_and_no_two_the_same_wording():
    patterns = read_patterns()
    assert len(patterns) == 173
    assert len({SLOT.sub("*", one.message) for one in patterns}) == 173
    for one in patterns:
        assert slots(one.message)
        assert one.replies
        assert len(set(one.replies)) == len(one.replies)
        for text in (one.message, *one.replies):
            assert not re.search(r"[{}\s]", SLOT.sub("", text))
            assert {kind for kind, _ in SLOT.findall(text)} <= fillers().keys()


def test_replies_repeat_words_of_the_message_but_for_a_marked_minority():
    patterns = read_patterns()
    for one in patterns:
        assert not says_more(one.message)
        for reply in one.replies:
            assert all(slot in slots(one.message) or slot.endswith(OUTSIDE) for slot in slots(reply))
    replies = [reply for one in patterns for reply in one.replies]
    assert 0.05 < sum(map(says_more, replies)) / len(replies) < 0.08
    assert 0.1 < sum(not slots(reply) for reply in replies) / len(replies) < 0.2
    assert 0.35 < sum(len(one.replies) > 1 for one in patterns) / len(patterns) < 0.45


def test_fillers_are_words_of_their_kind_that_no_pattern_has():
    constants = [SLOT.sub(" ", text) for one in read_patterns() for text in (one.message, *one.replies)]
    for kind, words in fillers().items():
        assert 70 <= len(words) == len(set(words)) <= 200, kind
        if kind in KINDS:
            assert all(re.fullmatch("[\u4e00-\u9fff]{2,6}", word) for word in words), kind
            assert not [word for word in words for text in constants if word in text], kind


def test_the_halves_have_no_word_in_common_nor_one_within_another():
    half = {word: name for name, kinds in pools().items() for words in kinds.values() for word in words}
    assert Counter(half.values()) == {
        name: len({word for words in kinds.values() for word in words}) for name, kinds in pools().items()
    }
    for word in filter(str.isalpha, half):
        parts = {word[start:end] for end in range(len(word) + 1) for start in range(end)}
        assert {half[part] for part in parts if part in half} == {half[word]}, word
    for kind, words in fillers().items():
        of_seen, of_new = pools()["seen"][kind], pools()["new"][kind]
        assert abs(len(of_seen) - len(of_new)) <= len(words) / 10, kind
        assert set(of_seen) | set(of_new) <= set(words)
    assert pools(1) != pools(0)


def test_sizes_and_rows(pairs):
    for splits in pairs.values():
        assert {name: len(rows) for name, rows in splits.items()} == SIZES
        assert all(row.keys() == {"text", "summary", "answers", "pattern"} for rows in splits.values() for row in rows)
        assert {row["pattern"] for row in splits["train"]} == set(range(173))
        counts = Counter(row["pattern"] for row in splits["train"])
        assert 10 < min(counts.values()) < max(counts.values()) < 70  # 37.6 on average
    assert pairs["DS-I"]["train"] == pairs["DS-II"]["train"]
    assert pairs["DS-I"]["test"] != pairs["DS-II"]["test"]
    with pytest.raises(ValueError, match="only DS-I and DS-II"):
        dialogue_pairs("DS-III")


def test_no_message_is_in_two_splits(pairs):
    for splits in pairs.values():
        train, validation, test = ({row["text"] for row in rows} for rows in splits.values())
        assert not train & validation
        assert not (train | validation) & test


def test_words_of_the_test_are_those_of_training_in_ds1_and_new_in_ds2(pairs):
    for name, splits in pairs.items():
        for split, rows in splits.items():
            half = "new" if (name, split) == ("DS-II", "test") else "seen"
            assert all(words_of(row["text"], row["pattern"], half) for row in rows), (name, split)
    train, same, new = (
        [word for row in rows for word in filled(row).values()]
        for rows in (pairs["DS-I"]["train"], pairs["DS-I"]["test"], pairs["DS-II"]["test"])
    )
    met = set(train)
    assert sum(word in met for word in same) / len(same) > 0.9
    assert not met & set(new)


def test_every_message_is_of_one_pattern_only(pairs):
    one_of_each = {row["pattern"]: row["text"] for row in pairs["DS-I"]["train"]}
    for pattern, text in one_of_each.items():
        assert [other for other in range(173) if words_of(text, other, "seen", "new")] == [pattern]


def test_answers_are_the_replies_filled_and_hold_the_golden(pairs):
    for row in (row for splits in pairs.values() for rows in splits.values() for row in rows):
        one = read_patterns()[row["pattern"]]
        words = filled(row)
        copied = [reply.format_map(words) for reply in one.replies if not says_more(reply)]
        assert row["summary"] in row["answers"]
        assert set(row["answers"]) == {*copied, row["summary"]}
        assert len(row["answers"]) == len(set(row["answers"]))
        assert not any("{" in text for text in (row["text"], *row["answers"]))


def test_an_entity_that_is_not_in_the_message_cannot_be_copied(pairs):
    rows, more = pairs["DS-I"]["train"] + pairs["DS-II"]["test"], 0
    for row in rows:
        one = read_patterns()[row["pattern"]]
        if row["summary"] in {reply.format_map(filled(row)) for reply in one.replies if not says_more(reply)}:
            continue
        (reply,) = filter(says_more, one.replies)
        outside = {slot: f"(?P<{slot}>.+)" for slot in slots(reply) if slot.endswith(OUTSIDE)}
        (word,) = re.fullmatch(reply.format_map(filled(row) | outside), row["summary"]).groups()
        assert word not in row["text"]
        more += 1
    assert 0.05 < more / len(rows) < 0.1


def test_pairs_are_the_same_for_a_seed_whatever_the_order_of_sets(pairs):
    assert dialogue_pairs("DS-II") == pairs["DS-II"]
    assert dialogue_pairs("DS-II", seed=1) != pairs["DS-II"]
    code = "import json; from experiments.dialogue import dialogue_pairs; print(json.dumps(dialogue_pairs('DS-II')))"
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == pairs["DS-II"]
