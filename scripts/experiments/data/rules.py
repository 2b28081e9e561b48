"""The synthetic data of Gu et al. 2016, section 5.1: rules such as `a b x c d y e f → g h x m`.

The paper gives the sizes and five examples but no data. Here the source of a rule has 5 to 20 different symbols of
1,000 with one or two variables between them. Its target has some of those symbols, some new ones, and the variables of
its type. An instance replaces each variable with 1 to 15 random symbols of the same 1,000.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SYMBOLS = [f"{number:03d}" for number in range(1_000)]
# Each type: the variables of the source and of the target, in order.
TYPES: dict[str, tuple[str, str]] = {
    "x → ∅": ("x", ""),
    "x → x": ("x", "x"),
    "x → xx": ("x", "xx"),
    "xy → x": ("xy", "x"),
    "xy → xy": ("xy", "xy"),
}
VARIABLE_LENGTHS = (1, 15)
SOURCE_SYMBOLS = (5, 20)


@dataclass(frozen=True)
class Rule:
    """A source and a target of symbols and the variables x and y."""

    type: str
    source: tuple[str, ...]
    target: tuple[str, ...]

    def make_instance(self, rng: random.Random) -> dict[str, str]:
        """Draws values for the variables; returns the pair as `text` and `summary`, and the rule's `type`."""
        values = {name: rng.choices(SYMBOLS, k=rng.randint(*VARIABLE_LENGTHS)) for name in "xy"}

        def substitute(pattern: tuple[str, ...]) -> str:
            return " ".join(symbol for item in pattern for symbol in values.get(item, [item]))

        return {"text": substitute(self.source), "summary": substitute(self.target), "type": self.type}


def make_rule(type_: str, rng: random.Random, side_by_side: bool = False) -> Rule:
    """Draws a rule of one of `TYPES`.

    As in the paper's examples, a source begins and ends with a symbol, a target ends with one, and the variables of a
    target have symbols between them. So have those of a source, unless `side_by_side`, where the boundary between x
    and y is ambiguous.
    """
    source_variables, target_variables = TYPES[type_]
    symbols = rng.sample(SYMBOLS, rng.randint(*SOURCE_SYMBOLS))
    gaps = range(1, len(symbols))
    count = len(source_variables)
    positions = [rng.choice(gaps)] * count if side_by_side else sorted(rng.sample(gaps, count))
    source = _insert(symbols, positions, source_variables)

    kept = sorted(rng.sample(range(len(symbols)), rng.randint(1, 3)))
    new = rng.sample([symbol for symbol in SYMBOLS if symbol not in symbols], rng.randint(1, 3))
    constants = [symbols[index] for index in kept] + new
    # No variable goes into the last gap, so that a symbol ends the target.
    positions = sorted(rng.sample(range(len(constants)), len(target_variables)))
    return Rule(type_, source, _insert(constants, positions, target_variables))


def _insert(symbols: list[str], positions: list[int], variables: str) -> tuple[str, ...]:
    """Inserts each variable before the symbol at its position; positions are in ascending order."""
    pattern = list(symbols)
    for position, variable in sorted(zip(positions, variables, strict=True), reverse=True):
        pattern.insert(position, variable)
    return tuple(pattern)


def make_rules(number: int, rng: random.Random, side_by_side: int = 0) -> list[Rule]:
    """Draws rules of all types in turn; in the first `side_by_side` rules of a type x and y are adjacent."""
    rules = []
    for index in range(number):
        turn, type_index = divmod(index, len(TYPES))
        type_ = list(TYPES)[type_index]
        rules.append(make_rule(type_, rng, "y" in TYPES[type_][0] and turn < side_by_side))
    return rules


def make_rule_pairs(
    rules: int = 200, instances: int = 100, seed: int = 0, side_by_side: int = 0
) -> dict[str, list[dict[str, str]]]:
    """Makes `train` and `test`, each with `instances` pairs of each rule, no text twice."""
    rng = random.Random(seed)
    pairs: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    for rule in make_rules(rules, rng, side_by_side):
        unique = _unique_instances(rule, rng)
        for split in pairs.values():
            split += [next(unique) for _ in range(instances)]
    return pairs


def _unique_instances(rule: Rule, rng: random.Random) -> Iterator[dict[str, str]]:
    seen: set[str] = set()
    while True:
        pair = rule.make_instance(rng)
        if pair["text"] not in seen:
            seen.add(pair["text"])
            yield pair
