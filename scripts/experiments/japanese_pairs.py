"""Japanese chat: what a user says and what a system replies, from the 150 dialogues of dialogue breakdown detection 3.

The Chainer article about CopyNet learns replies to a user's utterances from an older corpus of the same project, of
1,146 dialogues, and does not say how it pairs them. Here a pair is an utterance of the user and the system's next
turn; what the system says first answers nobody. Of each of the three systems as many dialogues go to each split, none
to two.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from .runs import Row, read_rows

# Dialogues of each system; the others are for training.
HELD_OUT = {"validation": 5, "test": 10}


def japanese_pairs(data: Path, seed: int = 0) -> dict[str, list[dict[str, str]]]:
    """`train`, `validation` and `test`, whose pairs are an utterance as `text` and its reply as `summary`.

    Utterances that training has are left out of the other two, and those of validation out of the test.
    """
    dialogues = read_rows(data / "dbdc3_ja" / "test.jsonl")
    pairs: dict[str, list[dict[str, str]]] = {}
    seen: set[str] = set()
    for name, members in split_dialogues(dialogues, seed).items():
        rows = [row for dialogue in members for row in replies(dialogue["turns"])]
        pairs[name] = [row for row in rows if row["text"] not in seen]
        seen.update(row["text"] for row in rows)
    return pairs


def split_dialogues(dialogues: list[Row], seed: int) -> dict[str, list[Row]]:
    """Each dialogue in one split; the same for a seed."""
    chance = random.Random(seed)
    of_system: dict[str, list[Row]] = defaultdict(list)
    for dialogue in dialogues:
        of_system[dialogue["system"]].append(dialogue)
    splits: dict[str, list[Row]] = {"train": [], **{name: [] for name in HELD_OUT}}
    for members in of_system.values():
        chance.shuffle(members)
        for name, number in HELD_OUT.items():
            splits[name] += [members.pop() for _ in range(number)]
        splits["train"] += members
    return splits


def replies(turns: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The user's utterances that the system answers, with its answers."""
    return [
        {"text": said["utterance"], "summary": reply["utterance"]}
        for said, reply in pairwise(turns)
        if (said["speaker"], reply["speaker"]) == ("U", "S")
    ]
