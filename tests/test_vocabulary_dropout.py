"""Vocabulary dropout against a loop over words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import SIZES, SOURCES, TARGETS, TINY, padded, write_rows
from transformers import BertConfig, Trainer

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.training import vocabulary_dropout
from copynet_hf.training.run import train_from_arguments
from copynet_hf.training.trainer import CopyNetTrainer
from copynet_hf.training.vocabulary_dropout import drop_from_vocabulary, find_drop_probabilities

CONFIG = CopyNetConfig(vocab_size=13, max_source_oov=4)
SPECIAL = {CONFIG.pad_token_id, CONFIG.decoder_start_token_id, CONFIG.unk_token_id, *CONFIG.end_token_ids}


def drop_all(source: list[int], target: list[int]) -> tuple[list[int], list[int]]:
    """Every shared word gets the next slot, in the order of the source."""
    slot = max([CONFIG.vocab_size - 1, *source]) + 1
    new: dict[int, int] = {}
    for word in source:
        is_droppable = word in target and word < CONFIG.vocab_size and word not in SPECIAL and word not in new
        if is_droppable and slot < CONFIG.extended_vocab_size:
            new[word], slot = slot, slot + 1
    return [new.get(word, word) for word in source], [new.get(word, word) for word in target]


def batch(
    sources: list[list[int]], targets: list[list[int]], side: str = "right"
) -> tuple[torch.Tensor, torch.Tensor]:
    return padded(sources, CONFIG.pad_token_id, side), padded(targets, -100, side)


def drop(
    input_ids: torch.Tensor, labels: torch.Tensor, probability: float, config: CopyNetConfig = CONFIG
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where all words can be copied."""
    probabilities = torch.full((2, config.extended_vocab_size), probability)
    return drop_from_vocabulary(input_ids, labels, probabilities, config, input_ids != config.pad_token_id)


@pytest.mark.parametrize("side", ["right", "left"])
def test_all_shared_words_are_dropped_with_probability_one(side: str) -> None:
    sources = [*SOURCES, [5, 6, 5, 7, 8, 9], [3, 5, 2], [6, 7, 8, 9, 10, 11]]
    targets = [*TARGETS, [5, 7, 5, 9, 2], [3, 2], [11, 10, 9, 8, 7, 6, 2]]
    expected = batch(*map(list, zip(*map(drop_all, sources, targets), strict=True)), side=side)
    ids, labels = drop(*batch(sources, targets, side), 1.0)
    assert torch.equal(ids, expected[0])
    assert torch.equal(labels, expected[1])


def test_nothing_changes_with_probability_zero_or_without_slots() -> None:
    given = batch(SOURCES, TARGETS)
    for probability, slots in ((0.0, 4), (1.0, 0)):
        config = CopyNetConfig(vocab_size=13 if slots else 17, max_source_oov=slots)
        found = drop(*given, probability, config)
        assert all(map(torch.equal, found, given))


def test_words_are_dropped_as_often_as_the_probability_says() -> None:
    torch.manual_seed(0)
    given = batch([[5, 6, 7, 5]] * 20_000, [[5, 6, 4, 2]] * 20_000)
    ids, labels = drop(*given, 0.3)
    dropped = ids >= CONFIG.vocab_size
    assert dropped[:, 0].float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(dropped[:, 0], dropped[:, 3])  # the same word
    assert (dropped[:, 0] & dropped[:, 1]).float().mean().item() == pytest.approx(0.09, abs=0.01)
    assert not dropped[:, 2].any()  # no target needs it
    assert torch.equal(labels >= CONFIG.vocab_size, dropped[:, [0, 1, 2, 2]])
    assert torch.equal(labels[:, 0], ids[:, 0])


def test_with_letters_other_words_of_the_source_are_dropped_as_well() -> None:
    config = CopyNetConfig(vocab_size=13, max_source_oov=4, letter_vocab_size=5)
    ids, labels = drop(*batch([[5, 6, 14, 6, 3, 7]], [[7, 9, 2]]), 1.0, config)
    assert ids.tolist() == [[16, 6, 14, 6, 3, 15]]  # the word of the target comes first, for 6 no slot is left
    assert labels.tolist() == [[15, 9, 2]]


def test_empty_sources_stay_empty() -> None:
    ids, labels = drop(torch.full((2, 1), 0), torch.tensor([[5, 2], [2, -100]]), 1.0)
    assert ids.tolist() == [[0], [0]]
    assert labels.tolist() == [[5, 2], [2, -100]]


def test_a_word_that_no_position_gives_stays_in_the_vocabulary() -> None:
    """Such as the property of a fact, of which only the object can be copied."""
    source, target = torch.tensor([[5, 6, 5, 8, 6, 7]]), torch.tensor([[8, 6, 5, 2]])
    can_copy = torch.tensor([[False, False, True, False, True, True]])
    ids, labels = drop_from_vocabulary(source, target, torch.ones(2, CONFIG.extended_vocab_size), CONFIG, can_copy)
    assert ids.tolist() == [[13, 14, 13, 8, 14, 7]]
    assert labels.tolist() == [[8, 14, 13, 2]]


def test_a_word_without_pieces_stays_in_the_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one beyond the encoder's limit, which cannot be copied: as a target it would be UNK."""
    encoder = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    trainer = CopyNetTrainer.__new__(CopyNetTrainer)
    trainer.model = CopyNetForConditionalGeneration(CopyNetConfig(**TINY, encoder=encoder))
    trainer.drop_probabilities, trainer.letters = torch.ones(2, trainer.model.config.extended_vocab_size), []
    given = {"input_ids": [[5, 6, 7]], "attention_mask": [[1, 1, 1]], "labels": [[7, 5, 2]]}
    given |= {
        "encoder_input_ids": [[1, 9, 10, 2]],
        "encoder_attention_mask": [[1] * 4],
        "word_index": [[-1, 0, 1, -1]],
    }
    inputs = {name: torch.tensor(rows) for name, rows in given.items()}
    monkeypatch.setattr(Trainer, "training_step", lambda self, model, inputs, num_items: inputs)
    trained: dict[str, torch.Tensor] = trainer.training_step(trainer.model, inputs)  # type: ignore[assignment]
    assert trained["input_ids"].tolist() == [[13, 6, 7]]
    assert trained["labels"].tolist() == [[7, 13, 2]]


def test_words_of_few_sources_are_dropped_more_often() -> None:
    rows = Dataset.from_dict({"input_ids": [[5, 6, 6, 14]] * 45 + [[5, 7]] * 5 + [[5]] * 450})
    spelled = CopyNetConfig(vocab_size=13, max_source_oov=4, letter_vocab_size=5)
    expected = torch.full((17,), 0.5)  # also of words that no source has
    expected[5], expected[6], expected[14] = 0.06, 0.1, 0.1  # 5 / 505 of 500 sources, 5 / 50 of 45
    assert torch.allclose(find_drop_probabilities(0.06, spelled, rows), expected.expand(2, -1))
    assert not find_drop_probabilities(0.0, spelled, rows).any()


@pytest.mark.parametrize("case", ["no letters", "a stream", "few pairs"])
def test_all_words_are_dropped_alike(case: str) -> None:
    rows = Dataset.from_dict({"input_ids": [[5, 6]] * (499 if case == "few pairs" else 500)})
    config = CopyNetConfig(vocab_size=13, max_source_oov=4, letter_vocab_size=0 if case == "no letters" else 5)
    pairs = rows.to_iterable_dataset() if case == "a stream" else rows
    assert torch.equal(find_drop_probabilities(0.06, config, pairs), torch.full((2, 17), 0.06))


def test_rare_words_are_counted_in_a_sample_of_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_dropout, "COUNTED_PAIRS", 125)  # every fourth
    rows = Dataset.from_dict({"input_ids": [[5], [6], [7], [8], [5, 9]] * 100})
    config = CopyNetConfig(vocab_size=13, max_source_oov=0, letter_vocab_size=5)
    found = find_drop_probabilities(0.01, config, rows)[0]
    assert found[5].item() == pytest.approx(5 / 205)
    assert found[[6, 7, 8, 9]].tolist() == pytest.approx([5 / 105] * 4)


def test_repeated_words_are_dropped_with_a_probability_of_their_own() -> None:
    probabilities = torch.stack([torch.ones(17), torch.zeros(17)])
    source, target = torch.tensor([[5, 6, 5, 7, 0, 0]]), torch.tensor([[6, 5, 7, 2]])
    ids, labels = drop_from_vocabulary(source, target, probabilities, CONFIG, source != 0)
    assert ids.tolist() == [[5, 13, 5, 14, 0, 0]]
    assert labels.tolist() == [[13, 5, 14, 2]]


def test_ties_leave_frequent_words_alone_that_are_hardly_copied() -> None:
    """In a source that repeats them. 5 is in no target, 6 in a tenth of those of its sources, 7 in a source of 25."""
    sources = [[5, 6, 14]] * 100
    sources[::25] = [[5, 6, 7]] * 4
    targets = [[6, 2]] * 10 + [[14, 2]] * 90
    rows = Dataset.from_dict({"input_ids": sources, "labels": targets})
    tied, untied = (CopyNetConfig(vocab_size=13, max_source_oov=4, tie_repetitions=tie) for tie in (True, False))
    expected = torch.full((2, 17), 0.06)
    assert torch.equal(find_drop_probabilities(0.06, untied, rows), expected)
    expected[1, 5] = 0
    for pairs in (rows, rows.to_iterable_dataset()):
        assert torch.equal(find_drop_probabilities(0.06, tied, pairs), expected)


def test_the_trainer_drops_rare_words_more_often(tmp_path: Path) -> None:
    rows = [{"text": f"send {'rare' if row < 20 else 'often'} now", "summary": "send now"} for row in range(500)]
    found: list[tuple[CopyNetTrainer, torch.Tensor]] = []
    values = {"train_file": write_rows(tmp_path / "train.jsonl", rows), "output_dir": str(tmp_path / "model"), **SIZES}
    train_from_arguments(
        values | {"segmenter": "word_punct", "max_steps": 1, "disable_tqdm": True},
        lambda trainer: found.append((trainer, trainer.drop_probabilities)),  # type: ignore[arg-type]
    )
    ((trainer, table),) = found
    ids = trainer.processing_class.convert_tokens_to_ids(["send", "rare", "often"])  # type: ignore[union-attr]
    assert table[0, ids].tolist() == pytest.approx([0.1, 5 / 25, 0.1])
    assert table[1, ids].tolist() == pytest.approx([0.1, 5 / 25, 0])  # hardly copied
