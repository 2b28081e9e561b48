"""The synthetic requests of the quickstart: different, short, and with words to copy that no training pair has."""

from __future__ import annotations

import pytest

from copynet_hf.data import quickstart_pairs
from copynet_hf.data.assistant_requests import RULES, split_of


@pytest.fixture(scope="module")
def task() -> dict[str, list[dict[str, str]]]:
    sizes = {"train": 1000, "validation": 100, "test": 100}
    return {split: quickstart_pairs(split, size) for split, size in sizes.items()}


def words(rows: list[dict[str, str]]) -> set[str]:
    return {word for row in rows for text in row.values() for word in text.split()}


def test_pairs_of_the_task_are_different_and_short(task: dict[str, list[dict[str, str]]]) -> None:
    assert len({source for source, _ in RULES}) == len(RULES)  # a source has one target
    for rows in task.values():
        assert len({row["text"] for row in rows}) == len(rows)
        assert all(8 <= len(row["text"].split()) <= 20 for row in rows)
        assert all(4 <= len(row["summary"].split()) <= 14 for row in rows)


def test_every_held_out_pair_requires_copying_unseen_words(task: dict[str, list[dict[str, str]]]) -> None:
    seen = words(task["train"])
    for split in ("validation", "test"):
        for row in task[split]:
            unseen = [word for word in row["summary"].split() if word not in seen]
            assert unseen
            assert set(unseen) <= set(row["text"].split())
    assert not (words(task["test"]) - seen) & words(task["validation"])


def test_no_seed_moves_a_filler_to_another_split() -> None:
    template_words = {word for rule in RULES for text in rule for word in text.split()}
    openings = {"hi", "good", "morning", "one", "more", "thing", "sorry", "to", "bother", "you", ",", ":"}
    for seed in range(3):
        for split in ("train", "validation", "test"):
            fillers = words(quickstart_pairs(split, 30, seed)) - template_words - openings
            assert {split_of(word) for word in fillers} == {split}


def test_pairs_are_deterministic_and_a_larger_number_extends_them() -> None:
    assert quickstart_pairs("test", 5, 1) == quickstart_pairs("test", 20, 1)[:5]
    assert quickstart_pairs("test", 20, 1) != quickstart_pairs("test", 20, 2)
