"""The synthetic rules follow section 5.1 of Gu et al. 2016."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from experiments.data.rules import SYMBOLS, TYPES, make_rule_pairs, make_rules


def match_variables(pattern, words):
    """All values of the variables for which the pattern gives these words."""
    if not pattern:
        return [{}] if not words else []
    first, rest = pattern[0], pattern[1:]
    if first not in "xy":
        return match_variables(rest, words[1:]) if words[:1] == [first] else []
    return [
        {first: words[:length], **others}
        for length in range(1, min(15, len(words)) + 1)
        for others in match_variables(rest, words[length:])
    ]


@pytest.mark.parametrize("side_by_side", [0, 11])
def test_rules_have_the_papers_sizes_and_types(side_by_side):
    rules = make_rules(200, random.Random(1), side_by_side)
    assert Counter(rule.type for rule in rules) == dict.fromkeys(TYPES, 40)
    adjacent = 0
    for rule in rules:
        source_variables, target_variables = TYPES[rule.type]
        symbols = [item for item in rule.source if item not in "xy"]
        assert 5 <= len(symbols) <= 20
        assert len(set(symbols)) == len(symbols)
        assert set(symbols) <= set(SYMBOLS)
        assert "".join(item for item in rule.source if item in "xy") == source_variables
        assert "".join(item for item in rule.target if item in "xy") == target_variables
        assert {rule.source[0], rule.source[-1], rule.target[-1]} <= set(SYMBOLS)
        constants = [item for item in rule.target if item in SYMBOLS]
        assert set(constants) & set(symbols)
        assert set(constants) - set(symbols)
        adjacent += any(a in "xy" and b in "xy" for a, b in zip(rule.source, rule.source[1:], strict=False))
        assert not any(a in "xy" and b in "xy" for a, b in zip(rule.target, rule.target[1:], strict=False))
    assert adjacent == 2 * side_by_side


def test_every_target_follows_from_its_source():
    rng = random.Random(2)
    for rule in make_rules(50, rng):
        for _ in range(5):
            pair = rule.make_instance(rng)
            matches = match_variables(rule.source, pair["text"].split())
            targets = {" ".join(w for item in rule.target for w in values.get(item, [item])) for values in matches}
            assert pair["summary"] in targets  # several if a value contains the symbol that follows it


def test_pairs_are_the_same_for_a_seed_and_test_pairs_are_new():
    pairs = make_rule_pairs(rules=10, instances=20, seed=3)
    assert pairs == make_rule_pairs(rules=10, instances=20, seed=3)
    assert pairs != make_rule_pairs(rules=10, instances=20, seed=4)
    assert {name: len(split) for name, split in pairs.items()} == {"train": 200, "test": 200}
    sources = [pair["text"] for split in pairs.values() for pair in split]
    assert len(set(sources)) == len(sources)
