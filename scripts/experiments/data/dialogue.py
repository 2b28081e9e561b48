"""Single-turn dialogue as in Gu et al. 2016, section 5.3: patterns such as `hi, my name is x → hi, x`, slots filled.

The paper gives the sizes and seven examples; its 173 patterns, from Baidu Tieba, and its entities are not public. The
173 patterns in dialogue_patterns.jsonl were written for this project. A slot names a kind of word, with a digit if the
pattern has two of a kind: {city}, {city2}. The digit 9 marks an entity that is not in the message, hence not copied.
Words come from jieba's dictionary, by part of speech, spelling and frequency; numbers and dates are generated.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PATTERNS = Path(__file__).with_name("dialogue_patterns.jsonl")
WORDS = json.loads(Path(__file__).with_name("dialogue_words.json").read_text(encoding="utf-8"))
SLOT = re.compile(r"\{([a-z]+)(\d?)\}")
OUTSIDE = "9"
SIZES = {"train": 6_500, "validation": 500, "test": 1_500}
POOL = 100  # at most so many words of a kind are in training, and as many others only in the test set of DS-II


class Kind(NamedTuple):
    """Which words of the dictionary are of a kind.

    Attributes:
        tags: parts of speech, separated by spaces.
        spelling: a regular expression; its last group, if it has one, is the word.
        min_frequency, max_frequency: in the dictionary.
        without: characters that no word may have.
    """

    tags: str
    spelling: str
    min_frequency: int
    max_frequency: int = 1_000_000
    without: str = ""


KINDS = {name: Kind(**fields) for name, fields in WORDS["kinds"].items()}
GENERATED: dict[str, Sequence[str | int]] = {
    "date": [f"{month}月{day}号" for month in range(1, 13) for day in range(1, 29)],
    "time": [f"{hour}点{minute:02}" for hour in range(6, 24) for minute in range(5, 60, 5)],
    "year": range(1940, 2020),
    "number": range(11, 100),
    "count": range(100, 5_000),
    "score": [f"{ours}比{theirs}" for ours in range(10) for theirs in range(10) if ours != theirs],
    "phone": range(12_000_000_000, 13_000_000_000),
    "train": [f"{letter}{number}" for letter in "GDKTZ" for number in range(100, 1_000)],
}
# Words that match a kind but are not of it, or are out of place in small talk.
EXCLUDED = " ".join(WORDS["excluded"]).split()


@dataclass(frozen=True)
class Pattern:
    """A message with slots and its replies."""

    message: str
    replies: tuple[str, ...]

    def make_instance(self, pool: dict[str, list[str]], rng: random.Random) -> dict[str, Any]:
        """Fills the slots: `text` is the message, `summary` one of the replies, `answers` all of them.

        A reply with an entity that is not in the message is an answer only if it is the `summary`.
        """
        values: dict[str, str] = {}
        for kind, digit in SLOT.findall(self.message + "".join(self.replies)):
            while kind + digit not in values:
                word = rng.choice(pool[kind])
                if not any(word in other or other in word for other in values.values()):
                    values[kind + digit] = word
        drawn = rng.choice(self.replies)
        replies = [reply for reply in self.replies if reply == drawn or not has_new_entity(reply)]
        return {
            "text": self.message.format_map(values),
            "summary": drawn.format_map(values),
            "answers": [reply.format_map(values) for reply in replies],
        }


def has_new_entity(reply: str) -> bool:
    """Whether the reply has an entity that the message lacks."""
    return any(digit == OUTSIDE for _, digit in SLOT.findall(reply))


@cache
def read_patterns() -> list[Pattern]:
    """Reads the 173 patterns."""
    lines = PATTERNS.read_text(encoding="utf-8").splitlines()
    return [Pattern(row["message"], tuple(row["replies"])) for row in map(json.loads, lines)]


@cache
def read_slot_words() -> dict[str, list[str]]:
    """The words that can fill a slot, by kind: the dictionary's most frequent ones that no pattern contains."""
    import jieba

    tagged: dict[str, list[tuple[int, str]]] = {}
    with Path(jieba.__file__).with_name("dict.txt").open(encoding="utf-8") as lines:
        for line in lines:
            word, frequency, tag = line.split()
            tagged.setdefault(tag, []).append((-int(frequency), word))
    constants = " ".join(
        SLOT.sub(" ", text) for pattern in read_patterns() for text in (pattern.message, *pattern.replies)
    )
    excluded = set(EXCLUDED)
    slot_words: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        spelling = re.compile(kind.spelling)
        matching = {
            (rank, match[match.lastindex or 0])
            for tag in kind.tags.split()
            for rank, word in tagged[tag]
            if kind.min_frequency <= -rank <= kind.max_frequency and (match := spelling.fullmatch(word))
        }
        words = [word for _, word in sorted(matching) if not set(word) & set(kind.without) and word not in constants]
        slot_words[name] = [word for word in dict.fromkeys(words) if word not in excluded][: 2 * POOL]
    rng = random.Random(0)
    for name, values in GENERATED.items():
        slot_words[name] = [str(value) for value in rng.sample(values, min(2 * POOL, len(values)))]
    return slot_words


@cache
def split_slot_words(seed: int = 0) -> dict[str, dict[str, list[str]]]:
    """Splits the words of each kind into those `seen` in training and `new` ones.

    The halves share no word, even of different kinds, and no word of one contains a word of the other, as 长沙县
    contains 长沙. Numbers may contain each other.
    """
    rng = random.Random(seed)
    half: dict[str, str] = {}
    all_words = [(word, kind) for kind, words in read_slot_words().items() for word in words]
    halves: dict[str, dict[str, list[str]]] = {
        name: {kind: [] for kind in read_slot_words()} for name in ("seen", "new")
    }
    for word, kind in sorted(rng.sample(all_words, len(all_words)), key=lambda pair: len(pair[0])):
        ends = range(1, len(word) + 1)
        parts = {word[start:end] for end in ends for start in range(end)} if word.isalpha() else {word}
        inherited = {half[part] for part in parts & half.keys()}
        if len(inherited) < 2:
            smaller = min(halves, key=lambda name: len(halves[name][kind]))
            half[word] = inherited.pop() if inherited else smaller
            halves[half[word]][kind].append(word)
    return halves


def make_dialogue_pairs(name: str, seed: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Makes DS-I or DS-II; no two splits share a message. `pattern` is the number of a row's pattern.

    The two differ only in `test`, whose slots have words of the training set in DS-I and new ones in DS-II.

    Raises:
        ValueError: `name` is neither DS-I nor DS-II.
    """
    if name not in ("DS-I", "DS-II"):
        raise ValueError(f"name is {name!r}: use DS-I or DS-II")
    halves, rng = split_slot_words(seed), random.Random(seed)
    pairs: dict[str, list[dict[str, Any]]] = {}
    for split, size in SIZES.items():
        pool = halves["new" if (name, split) == ("DS-II", "test") else "seen"]
        earlier = {row["text"] for rows in pairs.values() for row in rows}
        pairs[split] = [_draw_row(earlier, pool, rng) for _ in range(size)]
    return pairs


def _draw_row(earlier: set[str], pool: dict[str, list[str]], rng: random.Random) -> dict[str, Any]:
    """Draws an instance of a random pattern whose message is not among those of the earlier splits."""
    index = rng.randrange(len(read_patterns()))
    for _ in range(10_000):
        row = read_patterns()[index].make_instance(pool, rng)
        if row["text"] not in earlier:
            return {**row, "pattern": index}
    raise ValueError(f"pattern {index} has no unused messages left: make fewer rows")
