"""The Japanese pairs are an utterance and its reply, and no dialogue is in two splits."""

from __future__ import annotations

import json

import pytest
from experiments.japanese_pairs import japanese_pairs

SPEAKERS = "SUSUS"


@pytest.fixture
def made_up(tmp_path):
    """Dialogues of three systems; in each the user says what all users say, and something of the dialogue's own."""
    folder = tmp_path / "dbdc3_ja"
    folder.mkdir()
    with (folder / "test.jsonl").open("w", encoding="utf-8") as file:
        for number in range(60):
            said = ["どうも", "こんにちは", f"{number}に", f"{number}です", f"{number}か"]
            turns = [
                {"speaker": speaker, "utterance": text, "labels": None}
                for speaker, text in zip(SPEAKERS, said, strict=True)
            ]
            dialogue = {"dialogue_id": str(number), "system": "ABC"[number % 3], "turns": turns}
            file.write(json.dumps(dialogue, ensure_ascii=False) + "\n")
    return tmp_path


def numbers(rows):
    return [int(row["summary"][:-1]) for row in rows]


def test_a_pair_is_what_the_user_said_and_what_the_system_said_next(made_up):
    for rows in japanese_pairs(made_up).values():
        for row, number in zip(rows, numbers(rows), strict=True):
            assert row in (
                {"text": "こんにちは", "summary": f"{number}に"},
                {"text": f"{number}です", "summary": f"{number}か"},
            )


def test_no_dialogue_is_in_two_splits_and_each_system_is_in_all(made_up):
    split = {name: set(numbers(rows)) for name, rows in japanese_pairs(made_up).items()}
    assert {name: len(dialogues) for name, dialogues in split.items()} == {"train": 15, "validation": 15, "test": 30}
    assert set.union(*split.values()) == set(range(60))
    for dialogues in split.values():
        assert len({number % 3 for number in dialogues}) == 3


def test_what_training_has_is_left_out_of_the_others(made_up):
    pairs = japanese_pairs(made_up)
    assert sum(row["text"] == "こんにちは" for row in pairs["train"]) == 15
    assert all(row["text"] != "こんにちは" for name in ("validation", "test") for row in pairs[name])


def test_the_seed_decides(made_up):
    assert japanese_pairs(made_up, seed=3) == japanese_pairs(made_up, seed=3)
    assert japanese_pairs(made_up, seed=3) != japanese_pairs(made_up, seed=4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_real_dialogues_give_1500_pairs_but_for_what_they_repeat(seed, data_dir):
    pairs = japanese_pairs(data_dir, seed)
    assert len(pairs["train"]) == 1050
    assert 140 <= len(pairs["validation"]) <= 150
    assert 285 <= len(pairs["test"]) <= 300
    texts = {name: {row["text"] for row in rows} for name, rows in pairs.items()}
    assert not texts["test"] & (texts["train"] | texts["validation"])
    assert not texts["validation"] & texts["train"]
    assert all(row.keys() == {"text", "summary"} and all(row.values()) for rows in pairs.values() for row in rows)
