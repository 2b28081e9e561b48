"""Encoders that experiments pre-train on training pairs: their pieces, what they learn, and how they are compared."""

from __future__ import annotations

import json
from functools import partial
from math import log
from pathlib import Path

import pytest
import torch
from experiments.data.rows import write_pairs
from experiments.running.pretraining import pretrain_encoder, save_new_encoder, train_character_tokenizer
from experiments.scores.texts import estimate_standard_error
from transformers import AutoModelForMaskedLM, AutoTokenizer

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer

TEXTS = ["你去 哪里\niPhone 7？", "去北京", ""]
# A masked character is that of its neighbours; all four are equally frequent.
REGULAR = [character * 12 for character in "abcd"]


@pytest.fixture
def arguments(tmp_path):
    """Of a small encoder, whose pairs are the regular texts."""
    rows = [{"text": text, "summary": text} for text in REGULAR * 8]
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return {
        **write_pairs(tmp_path, {"train": rows, "validation": rows[:8]}),
        **sizes,
        "vocab_size": 20,
        "max_pieces": 16,
        "output_dir": str(tmp_path / "encoder"),
        "seed": 0,
        "threads": 1,
        "disable_tqdm": True,
        "learning_rate": 1e-2,
        "warmup_steps": 10,
        "max_steps": 150,
        "save_steps": 100,
    }


def test_characters_are_the_pieces_of_the_segmenter_char(tmp_path):
    save = train_character_tokenizer(TEXTS, 30, 40).save_pretrained
    save(tmp_path)
    pieces = AutoTokenizer.from_pretrained(tmp_path)
    words = CopyNetTokenizer.train_from_iterator(TEXTS, 30, segmenter="char", encoder_tokenizer=pieces)
    encoded = words(TEXTS)
    assert encoded["encoder_input_ids"] == pieces(TEXTS)["input_ids"]
    assert pieces.convert_ids_to_tokens(encoded["encoder_input_ids"][0]) == ["[CLS]", *TEXTS[0], "[SEP]"]
    assert encoded["word_index"][0] == [-1, *range(len(TEXTS[0])), -1]


def test_masked_characters_are_restored_from_their_neighbours_though_the_pretraining_was_interrupted(arguments):
    pretrain_encoder(arguments | {"max_steps": 100})
    metrics = pretrain_encoder(arguments | {"resume_from_checkpoint": "True"})
    assert metrics["eval_loss"] < log(4) / 4  # log(4): the frequencies of the characters alone
    assert metrics["eval_accuracy"] > 90
    stored = json.loads((Path(arguments["output_dir"]) / "eval_results.json").read_text(encoding="utf-8"))
    assert stored["eval_loss"] == metrics["eval_loss"]
    state = json.loads((Path(arguments["output_dir"]) / "trainer_state.json").read_text(encoding="utf-8"))
    assert state["global_step"] == 150
    assert [entry["step"] for entry in state["log_history"] if "loss" in entry][-1] == 100  # logged once


def test_the_new_encoder_is_the_one_that_pretraining_begins_with(arguments, tmp_path):
    new = tmp_path / "new"
    assert save_new_encoder(arguments | {"output_dir": str(new)})["train_runtime"] == 0
    pretrain_encoder(arguments | {"max_steps": 1, "learning_rate": 1e-9, "warmup_steps": 0})
    load = partial(AutoModelForMaskedLM.from_pretrained)
    before, after = (load(folder).state_dict() for folder in (new, arguments["output_dir"]))
    for name, weight in before.items():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-8)
    tokenizer = CopyNetTokenizer.train_from_iterator(REGULAR, 20, segmenter="char", encoder_tokenizer=str(new))
    model = CopyNetForConditionalGeneration.from_encoder_pretrained(str(new), tokenizer=tokenizer)
    loaded = model.get_encoder().text_encoder.state_dict()
    assert all(torch.equal(weight, before[f"bert.{name}"]) for name, weight in loaded.items())


def test_the_standard_error_is_that_of_a_mean():
    predictions, references = ["甲乙", "丙", "丁", "戊"], ["甲乙", "乙", "丙", "丁"]
    expected = (0.25 * 0.75 / 4) ** 0.5 * 100
    assert estimate_standard_error(predictions, references, "exact_match", "char") == pytest.approx(expected)
    assert estimate_standard_error(["甲乙"] * 3, ["甲丙"] * 3, "rouge1", "char") == 0
