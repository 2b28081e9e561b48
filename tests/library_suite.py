"""The library's own tests of models and configs on ours; `test_library_suite.py` runs this file in its own process.

The library's source distribution has to be on the path; it lacks what `MISSING` names, which no test here needs.
"""

from __future__ import annotations

import json
import sys
import types
import unittest
from typing import ClassVar

import torch
from transformers import BertConfig
from transformers.models.auto import modeling_auto

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetModel

MISSING = {
    "exporters.test_export": "ExportTesterMixin",
    "generation.test_utils": "GenerationTesterMixin",
    "utils.test_configuration_utils": "config_common_kwargs",  # of configs without a nested one
}
for name, mixin in MISSING.items():
    package = name.partition(".")[0]
    sys.modules[f"tests.{package}"] = types.ModuleType(package)
    sys.modules[f"tests.{name}"] = types.ModuleType(name)
    setattr(sys.modules[f"tests.{name}"], mixin, type(mixin, (), {}))

# By these tables the suite knows which class has a loss.
modeling_auto.MODEL_MAPPING_NAMES["copynet"] = CopyNetModel.__name__
modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["copynet"] = CopyNetForConditionalGeneration.__name__

from tests.test_configuration_common import ConfigTester  # noqa: E402
from tests.test_modeling_common import ModelTesterMixin, ids_tensor  # noqa: E402


class Tester:
    """What the suite reads of a model's tester. It expects all widths to be equal."""

    batch_size, seq_length, decoder_seq_length, is_training = 3, 6, 6, True
    hidden_size, num_hidden_layers = 8, 1
    base_model_class, causal_lm_class = CopyNetModel, None

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields

    def get_config(self) -> CopyNetConfig:
        sizes = {"embedding_size": 8, "hidden_size": 8, "encoder_hidden_size": 4, "attention_size": 5}
        return CopyNetConfig(vocab_size=99, **{"max_source_oov": 4, **sizes, **self.fields})

    def prepare_config_and_inputs_for_common(self) -> tuple[CopyNetConfig, dict[str, torch.Tensor]]:
        shapes = (self.batch_size, self.seq_length), (self.batch_size, self.decoder_seq_length)
        source, target = (ids_tensor(list(shape), 90) + 4 for shape in shapes)  # no special words
        masks = {"attention_mask": torch.ones_like(source), "decoder_attention_mask": torch.ones_like(target)}
        return self.get_config(), {"input_ids": source, "decoder_input_ids": target, **masks}


class Suite(ModelTesterMixin):
    all_model_classes = (CopyNetModel, CopyNetForConditionalGeneration)
    is_encoder_decoder = True
    has_attentions = False  # no position attends to others of its own text
    fields: ClassVar[dict[str, object]] = {}

    def setUp(self) -> None:
        self.model_tester = Tester(self.fields)


class CopyNetSuite(Suite, unittest.TestCase):
    """CopyNet as it is."""


class RNNSearchSuite(Suite, unittest.TestCase):
    """Without copying and slots, an ordinary sequence-to-sequence model."""

    fields: ClassVar[dict[str, object]] = {"copy_mechanism": "none", "max_source_oov": 0}


LAYERS: dict[str, object] = {
    "model_type": "m2m_100",
    "vocab_size": 99,
    "d_model": 8,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 12),
    **dict.fromkeys(("encoder_layerdrop", "decoder_layerdrop"), 0.0),
}


class TransformerSuite(Suite, unittest.TestCase):
    """A Transformer from scratch on both sides, as by `--decoder transformer`."""

    fields: ClassVar[dict[str, object]] = {"decoder": LAYERS, "encoder": LAYERS, "encoder_reads": "words"}


class Seq2SeqSuite(Suite, unittest.TestCase):
    """The config of a pretrained encoder-decoder with a copy head."""

    all_model_classes = (CopyNetForConditionalGeneration,)  # which the weights are given to
    fields: ClassVar[dict[str, object]] = {
        **TransformerSuite.fields,
        "seq2seq": True,
        "max_source_oov": 0,
        "tie_word_embeddings": True,
    }


class ConfigSuite(unittest.TestCase):
    """The config, without and with the config of an encoder inside."""

    model_tester = Tester({})

    def test_without_an_encoder(self) -> None:
        ConfigTester(self, CopyNetConfig, vocab_size=99, hidden_size=8).run_common_tests()

    def test_with_an_encoder(self) -> None:
        whole = CopyNetConfig(encoder=BertConfig(hidden_size=20, num_hidden_layers=1))
        encoder = json.loads(whole.to_json_string())["encoder"]
        ConfigTester(self, CopyNetConfig, vocab_size=99, encoder=encoder).run_common_tests()


del ModelTesterMixin, Suite  # pytest would collect them
