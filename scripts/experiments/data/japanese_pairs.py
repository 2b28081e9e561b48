"""Japanese chat: utterances of users and replies of chat systems, from dialogue breakdown detection challenge 3.

The Chainer article about CopyNet trains on an older corpus of the same project, of 1,146 dialogues, and does not say
how it pairs them. Here a pair is an utterance of the user and the system's next turn, in 150 dialogues; the system's
first turn is left out. Each dialogue belongs to one split, and each split has equally many dialogues of the three
systems.
"""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from .rows import Row, read_rows

# Dialogues of each system; the rest is for training.
HELD_OUT = {"validation": 5, "test": 10}


def read_japanese_pairs(data_dir: Path, seed: int = 0) -> dict[str, list[dict[str, str]]]:
    """Reads `train`, `validation` and `test`: an utterance as `text`, its reply as `summary`.

    An utterance of the training set is removed from validation and test set, one of the validation set from the test
    set.
    """
    dialogues = read_rows(data_dir / "dbdc3_ja" / "test.jsonl")
    pairs: dict[str, list[dict[str, str]]] = {}
    seen: set[str] = set()
    for name, members in split_dialogues(dialogues, seed).items():
        rows = [row for dialogue in members for row in pair_turns(dialogue["turns"])]
        pairs[name] = [row for row in rows if row["text"] not in seen]
        seen.update(row["text"] for row in rows)
    return pairs


def split_dialogues(dialogues: list[Row], seed: int) -> dict[str, list[Row]]:
    """Draws the dialogues of each split, with equally many of each system."""
    rng = random.Random(seed)
    by_system: dict[str, list[Row]] = defaultdict(list)
    for dialogue in dialogues:
        by_system[dialogue["system"]].append(dialogue)
    splits: dict[str, list[Row]] = {"train": [], **{name: [] for name in HELD_OUT}}
    for members in by_system.values():
        rng.shuffle(members)
        for name, number in HELD_OUT.items():
            splits[name] += [members.pop() for _ in range(number)]
        splits["train"] += members
    return splits


def pair_turns(turns: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Pairs each utterance of the user with the system's next turn."""
    return [
        {"text": turn["utterance"], "summary": reply["utterance"]}
        for turn, reply in pairwise(turns)
        if (turn["speaker"], reply["speaker"]) == ("U", "S")
    ]
