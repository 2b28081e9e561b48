"""The config: defaults that follow from other fields, and refusals that say what to change."""

from __future__ import annotations

import pytest
from transformers import BertConfig

from copynet_hf import CopyNetConfig, CopyNetTokenizer


def test_special_ids_default_to_0_1_2_3():
    config = CopyNetConfig()
    ids = (config.pad_token_id, config.bos_token_id, config.eos_token_id, config.unk_token_id)
    assert ids == (0, 1, 2, 3)
    assert config.decoder_start_token_id == 1


def test_what_is_left_open_follows_the_copy_mechanism():
    copying, plain = CopyNetConfig(), CopyNetConfig(copy_mechanism="none")
    assert copying.selective_read
    assert copying.readout == ["state", "context", "embedding", "selective_read"]
    assert not plain.selective_read
    assert plain.readout == ["state", "context", "embedding"]
    assert CopyNetConfig(selective_read=False).readout == ["state", "context", "embedding"]


def test_saved_and_loaded_it_is_the_same(tmp_path):
    for config in (CopyNetConfig.lcsts_char(use_coverage=True), CopyNetConfig(copy_mechanism="none", attention=False)):
        config.save_pretrained(tmp_path)
        assert CopyNetConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()


REFUSALS = {
    "hidden_size": ({"hidden_size": 0}, "hidden_size=0 must be a whole number of at least 1"),
    "vocab_size": ({"vocab_size": "3000"}, "vocab_size='3000' must be a whole number"),
    "slots": ({"max_source_oov": -1}, "max_source_oov=-1 must be a whole number of at least 0"),
    "dropout": ({"dropout": 1.0}, "dropout=1.0 must be a number of at least 0 and below 1"),
    "dropout_type": ({"dropout": "a"}, "dropout='a' must be a number"),
    "initializer_range": ({"initializer_range": -1}, "initializer_range=-1 must be a number of at least 0"),
    "readout_as_text": ({"readout": "context"}, "readout=\\['context'\\] must hold 'state'"),
    "mechanism": ({"copy_mechanism": "copy"}, "copy_mechanism='copy' is unknown: use one of copynet, none, pointer_g"),
    "selective_read": (
        {"copy_mechanism": "none", "selective_read": True},
        "selective_read=True has no effect with copy_mechanism='none': leave selective_read out",
    ),
    "no_attention_to_copy_by": (
        {"copy_mechanism": "pointer_generator", "attention": False},
        "attention=False has no effect with copy_mechanism='pointer_generator'",
    ),
    "coverage_loss": (
        {"coverage_loss_weight": 1.0},
        "coverage_loss_weight=1.0 has no effect without use_coverage: set use_coverage, or leave",
    ),
    "coverage_loss_negative": (
        {"coverage_loss_weight": -1.0},
        "coverage_loss_weight=-1.0 must be a number of",
    ),
    "gated_loss": (
        {"copy_mechanism": "gated", "gated_loss": "sum"},
        "gated_loss='sum' is unknown: use one of",
    ),
    "features_without_attention": ({"attention": False, "feature_vocab_size": 5}, "=5 needs the attention"),
    "retrieval": (
        {"copy_mechanism": "retrieval", "use_coverage": True},
        "leave use_coverage out .it is for 'copynet', 'none', 'pointer_generator', 'gated'.",
    ),
    "copies_from_what": ({"copy_mechanism": "retrieval", "copies_from": ["text"]}, "may hold 'question' and 'facts'"),
    "readout_without_state": ({"readout": ["context"]}, "must hold 'state'"),
    "readout_twice": ({"readout": ["state", "state"]}, "once each"),
    "readout_of_its_own": ({"copy_mechanism": "pointer", "readout": ["state", "context"]}, "leave readout out"),
    "readout_unknown": ({"readout": ["state", "magic"]}, "must hold 'state' and may hold"),
    "readout_unavailable": ({"readout": ["state", "selective_read"], "selective_read": False}, "selective_read"),
    "special_id": ({"vocab_size": 3}, "unk_token_id=3 lies outside the vocabulary of 3"),
    "no_end_to_point_at": ({"copy_mechanism": "pointer", "eos_token_id": None}, "points at the end symbol: set it"),
    "no_start": ({"decoder_start_token_id": None}, "decoder_start_token_id=None must be set: use an id below"),
    "no_padding": ({"pad_token_id": None}, "pad_token_id=None must be set"),
    "no_unknown_word": ({"unk_token_id": None}, "unk_token_id=None must be set"),
    "words_to_no_encoder": ({"encoder_reads": "words"}, "encoder_reads='words' has no effect without encoder"),
    "gru_over_words": (
        {"encoder": BertConfig(), "encoder_reads": "words", "encoder_gru": True},
        "encoder_gru=True is for a Transformers encoder that reads pieces",
    ),
    "pooling_over_words": (
        {"encoder": BertConfig(), "encoder_reads": "words", "encoder_pooling": "first"},
        "encoder_pooling='first' is for a Transformers encoder that reads pieces",
    ),
    "name_of_an_encoder": ({"encoder": "bert-base-uncased"}, "encoder='bert-base-uncased' is a name: pass a config"),
    "name_of_a_decoder": ({"decoder": "transformer"}, "decoder='transformer' is a name: pass a config"),
    "state_below_a_gru": (
        {"encoder": BertConfig(), "encoder_gru": True, "initial_state": "mean"},
        "initial_state='mean' has no effect with encoder_gru",
    ),
    "residual_of_no_gru": (
        {"encoder": BertConfig(), "encoder_residual": True},
        "encoder_residual=True is for GRU layers",
    ),
    "repetitions_of_no_gru": (
        {"encoder": BertConfig(), "tie_repetitions": True},
        "tie_repetitions=True is for GRU layers",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSALS.values(), ids=REFUSALS)
def test_values_that_make_no_sense_are_refused_with_the_mend(fields, message):
    with pytest.raises(ValueError, match=message):
        CopyNetConfig(**fields)


def test_a_config_for_a_tokenizer_agrees_with_it():
    tokenizer = CopyNetTokenizer.train_from_iterator(["a b c a"], 7, segmenter="whitespace", max_source_oov=5)
    config = CopyNetConfig.for_tokenizer(tokenizer, hidden_size=8)
    assert (config.vocab_size, config.max_source_oov, config.hidden_size) == (len(tokenizer), 5, 8)
    assert config.extended_vocab_size == 12
    assert CopyNetConfig(readout="state").readout == ["state"]
    with pytest.raises(ValueError, match="max_source_oov=6, but the tokenizer has 5: leave max_source_oov out"):
        CopyNetConfig.for_tokenizer(tokenizer, max_source_oov=6)
