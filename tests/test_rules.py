"""The data that the experiments make is what they say it is."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from experiments.rules import SYMBOLS, TYPES, make_rules, rule_pairs


def matches(pattern, words):
    """All ways in which a source of symbols and variables can have become these words, as values of the variables."""
    if not pattern:
        return [{}] if not words else []
    first, rest = pattern[0], pattern[1:]
    if first not in "xy":
        return matches(rest, words[1:]) if words[:1] == [first] else []
    return [
        {first: words[:length], **others}
        for length in range(1, min(15, len(words)) + 1)
        for others in matches(rest, words[length:])
    ]


@pytest.mark.parametrize("side_by_side", [0, 11])
def test_rules_have_the_papers_sizes_and_types(side_by_side):
    rules = make_rules(200, random.Random(1), side_by_side)
    assert Counter(rule.type for rule in rules) == dict.fromkeys(TYPES, 40)
    adjacent = 0
    for rule in rules:
        of_source, of_target = TYPES[rule.type]
        symbols = [item for item in rule.source if item not in "xy"]
        assert 5 <= len(symbols) <= 20
        assert len(set(symbols)) == len(symbols)
        assert set(symbols) <= set(SYMBOLS)
        assert "".join(item for item in rule.source if item in "xy") == of_source
        assert "".join(item for item in rule.target if item in "xy") == of_target
        assert {rule.source[0], rule.source[-1], rule.target[-1]} <= set(SYMBOLS)
        constants = [item for item in rule.target if item in SYMBOLS]
        assert set(constants) & set(symbols)
        assert set(constants) - set(symbols)
        adjacent += any(a in "xy" and b in "xy" for a, b in zip(rule.source, rule.source[1:], strict=False))
        assert not any(a in "xy" and b in "xy" for a, b in zip(rule.target, rule.target[1:], strict=False))
    assert adjacent == 2 * side_by_side


def test_every_target_follows_from_its_source():
    chance = random.Random(2)
    for rule in make_rules(50, chance):
        for _ in range(5):
            pair = rule.instance(chance)
            found = matches(rule.source, pair["text"].split())
            targets = {" ".join(w for item in rule.target for w in values.get(item, [item])) for values in found}
            assert pair["summary"] in targets  # more than one where a value holds the symbol that stands behind it


def test_pairs_are_the_same_for_a_seed_and_test_pairs_are_new():
    pairs = rule_pairs(rules=10, instances=20, seed=3)
    assert pairs == rule_pairs(rules=10, instances=20, seed=3)
    assert pairs != rule_pairs(rules=10, instances=20, seed=4)
    assert {name: len(split) for name, split in pairs.items()} == {"train": 200, "test": 200}
    sources = [pair["text"] for split in pairs.values() for pair in split]
    assert len(set(sources)) == len(sources)
