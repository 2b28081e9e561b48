"""Japanese pairs are an utterance and its reply; no dialogue is in two splits."""

from __future__ import annotations

import json

import pytest
from experiments.data.japanese_pairs import read_japanese_pairs

SPEAKERS = "SUSUS"


@pytest.fixture
def synthetic_data(tmp_path):
    """Dialogues of three systems, each with one utterance that all dialogues share and two of its own."""
    folder = tmp_path / "dbdc3_ja"
    folder.mkdir()
    with (folder / "test.jsonl").open("w", encoding="utf-8") as file:
        for number in range(60):
            utterances = ["どうも", "こんにちは", f"{number}に", f"{number}です", f"{number}か"]
            turns = [
                {"speaker": speaker, "utterance": text, "labels": None}
                for speaker, text in zip(SPEAKERS, utterances, strict=True)
            ]
            dialogue = {"dialogue_id": str(number), "system": "ABC"[number % 3], "turns": turns}
            file.write(json.dumps(dialogue, ensure_ascii=False) + "\n")
    return tmp_path


def dialogue_numbers(rows):
    return [int(row["summary"][:-1]) for row in rows]


def test_a_pair_is_an_utterance_of_the_user_and_the_next_of_the_system(synthetic_data):
    for rows in read_japanese_pairs(synthetic_data).values():
        for row, number in zip(rows, dialogue_numbers(rows), strict=True):
            assert row in (
                {"text": "こんにちは", "summary": f"{number}に"},
                {"text": f"{number}です", "summary": f"{number}か"},
            )


def test_no_dialogue_is_in_two_splits_and_each_system_is_in_all(synthetic_data):
    split = {name: set(dialogue_numbers(rows)) for name, rows in read_japanese_pairs(synthetic_data).items()}
    assert {name: len(dialogues) for name, dialogues in split.items()} == {"train": 15, "validation": 15, "test": 30}
    assert set.union(*split.values()) == set(range(60))
    for dialogues in split.values():
        assert len({number % 3 for number in dialogues}) == 3


def test_training_utterances_are_removed_from_the_other_splits(synthetic_data):
    pairs = read_japanese_pairs(synthetic_data)
    assert sum(row["text"] == "こんにちは" for row in pairs["train"]) == 15
    assert all(row["text"] != "こんにちは" for name in ("validation", "test") for row in pairs[name])


def test_the_split_follows_the_seed(synthetic_data):
    assert read_japanese_pairs(synthetic_data, seed=3) == read_japanese_pairs(synthetic_data, seed=3)
    assert read_japanese_pairs(synthetic_data, seed=3) != read_japanese_pairs(synthetic_data, seed=4)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_real_dialogues_give_1500_pairs_but_for_what_they_repeat(seed, data_dir):
    pairs = read_japanese_pairs(data_dir, seed)
    assert len(pairs["train"]) == 1050
    assert 140 <= len(pairs["validation"]) <= 150
    assert 285 <= len(pairs["test"]) <= 300
    texts = {name: {row["text"] for row in rows} for name, rows in pairs.items()}
    assert not texts["test"] & (texts["train"] | texts["validation"])
    assert not texts["validation"] & texts["train"]
    assert all(row.keys() == {"text", "summary"} and all(row.values()) for rows in pairs.values() for row in rows)
