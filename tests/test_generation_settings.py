"""Saved generation configs: fields of a wrong type are refused when the model is loaded, others work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.saved.checks import KINDS
from copynet_hf.saved.loading import load_model

# As written by Transformers, and as users write them; together they exercise every kind of field.
USEFUL: list[dict[str, Any]] = [
    {"stop_strings": "x"},
    {"stop_strings": ["a", "unseen"]},
    {"num_beams": 3, "num_return_sequences": 2, "length_penalty": -0.5, "early_stopping": "never", "max_time": 5},
    {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "typical_p": 0.9, "min_p": 0.01},
    {"no_repeat_ngram_size": 2, "repetition_penalty": 1.2, "min_length": 0, "min_new_tokens": 2, "max_length": 20},
    {"eos_token_id": [2, 5], "forced_eos_token_id": 2, "suppress_tokens": [4], "begin_suppress_tokens": [2, 5]},
    {"exponential_decay_length_penalty": [2, 1.5], "sequence_bias": [[[4, 5], -2.0]], "bad_words_ids": [[6]]},
    {"is_assistant": False, "use_cache": True, "forbid_unk": True, "renormalize_logits": True, "num_beam_groups": 1},
]


def predict_with(saved_model: Path, fields: dict[str, Any]) -> None:
    """Loads the model with these fields in its generation config, and searches."""
    path = saved_model / "generation_config.json"
    intact = path.read_text()
    path.write_text(json.dumps(json.loads(intact) | {"max_new_tokens": 4} | fields))
    try:
        model, tokenizer = load_model(str(saved_model), "cpu")
        predict_in_batches(model, tokenizer, ["a b X"])
    finally:
        path.write_text(intact)


@pytest.mark.parametrize("name", [kind.names.split()[0] for kind in KINDS])
def test_a_field_of_a_wrong_type_is_refused_by_name(saved_model: Path, name: str) -> None:
    for value in ("x", [None], {"a": 1}, float("nan")):
        with pytest.raises(ValueError, match=rf"generation_config.json: {name} is .*: write .*, or remove the field"):
            predict_with(saved_model, {name: value})


@pytest.mark.parametrize("name", ["num_beams", "max_length", "length_penalty", "bos_token_id", "eos_token_id"])
def test_absurd_sizes_are_refused(saved_model: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 1000000000000"):
        predict_with(saved_model, {name: 10**12})


@pytest.mark.parametrize("fields", USEFUL, ids=lambda fields: next(iter(fields)))
def test_useful_fields_are_accepted(saved_model: Path, fields: dict[str, Any]) -> None:
    predict_with(saved_model, fields)


def test_a_long_value_is_cut_in_the_message(saved_model: Path) -> None:
    with pytest.raises(ValueError, match="decoder_start_token_id is 'xxx") as raised:
        predict_with(saved_model, {"decoder_start_token_id": "x" * 5000})
    assert len(str(raised.value)) < 400
