"""The synthetic data of Gu et al. 2016, section 5.1: rules such as `a b x c d y e f → g h x m`.

The paper gives the sizes, five examples and no data. Here a rule's source has 5 to 20 different symbols of 1,000, with
one or two variables between them, and its target some of those symbols, new ones, and the variables as its type says.
Each instance fills the variables with 1 to 15 random symbols of the same 1,000.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

SYMBOLS = [f"{number:03d}" for number in range(1_000)]
# The variables of the source, and those of the target, in order.
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

    def instance(self, chance: random.Random) -> dict[str, str]:
        """A pair that the rule makes, as `text` and `summary`, and its `type`."""
        values = {name: chance.choices(SYMBOLS, k=chance.randint(*VARIABLE_LENGTHS)) for name in "xy"}

        def filled(pattern: tuple[str, ...]) -> str:
            return " ".join(symbol for item in pattern for symbol in values.get(item, [item]))

        return {"text": filled(self.source), "summary": filled(self.target), "type": self.type}


def make_rule(type_: str, chance: random.Random, side_by_side: bool = False) -> Rule:
    """A rule of one of `TYPES`.

    Two variables of a source have a symbol between them, without which nobody could tell where one ends, unless
    `side_by_side`, when they touch. Symbols stand at both ends, and between two variables of a target, as in the
    paper's examples.
    """
    of_source, of_target = TYPES[type_]
    symbols = chance.sample(SYMBOLS, chance.randint(*SOURCE_SYMBOLS))
    gaps = range(1, len(symbols))
    places = [chance.choice(gaps)] * len(of_source) if side_by_side else chance.sample(gaps, len(of_source))
    source = list(symbols)
    for place, variable in sorted(zip(sorted(places), of_source, strict=True), reverse=True):
        source.insert(place, variable)

    kept = sorted(chance.sample(range(len(symbols)), chance.randint(1, 3)))
    new = chance.sample([symbol for symbol in SYMBOLS if symbol not in symbols], chance.randint(1, 3))
    constants = [symbols[index] for index in kept] + new
    target = list(constants)
    for place, variable in sorted(zip(_apart(of_target, constants, chance), of_target, strict=True), reverse=True):
        target.insert(place, variable)
    return Rule(type_, tuple(source), tuple(target))


def _apart(variables: str, constants: list[str], chance: random.Random) -> list[int]:
    """Different gaps of the target for its variables, in order; the last gap stays empty, as in the examples."""
    return sorted(chance.sample(range(len(constants)), len(variables)))


def make_rules(number: int, chance: random.Random, side_by_side: int = 0) -> list[Rule]:
    """As many rules of each type; so many of each type with two variables have them side by side."""
    rules = []
    for index in range(number):
        turn, place = divmod(index, len(TYPES))
        type_ = list(TYPES)[place]
        rules.append(make_rule(type_, chance, "y" in TYPES[type_][0] and turn < side_by_side))
    return rules


def rule_pairs(
    rules: int = 200, instances: int = 100, seed: int = 0, side_by_side: int = 0
) -> dict[str, list[dict[str, str]]]:
    """`train` and `test`, each with so many instances of each rule, none in both."""
    chance = random.Random(seed)
    pairs: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    for rule in make_rules(rules, chance, side_by_side):
        different = _different(rule, chance)
        for split in pairs.values():
            split += [next(different) for _ in range(instances)]
    return pairs


def _different(rule: Rule, chance: random.Random) -> Iterator[dict[str, str]]:
    seen: set[str] = set()
    while True:
        pair = rule.instance(chance)
        if pair["text"] not in seen:
            seen.add(pair["text"])
            yield pair
