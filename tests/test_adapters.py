"""Adapters of PEFT: what is trained is what the merged weights give, and every adapter learns."""

from __future__ import annotations

import pytest
import torch
from helpers import POINTED, POINTER, TARGETS, padded, sources, tiny_model

peft = pytest.importorskip("peft")

FACTS = torch.tensor([[0, 0, 0, 1, 2, 3, 1, 2, 3]])  # a question of three words and two facts
QUESTION = torch.tensor([[5, 13, 6, 7, 8, 14, 13, 4, 9]])
MECHANISMS = {
    "copynet": {"use_coverage": True},
    "pointer_generator": {"copy_mechanism": "pointer_generator", "use_coverage": True, "coverage_loss_weight": 1.0},
    "gated": {"copy_mechanism": "gated", "use_coverage": True},
    "none": {"copy_mechanism": "none", "use_coverage": True},
    "pointer": POINTER,
    "retrieval": {"copy_mechanism": "retrieval"},
}
mechanisms = pytest.mark.parametrize("changes", MECHANISMS.values(), ids=MECHANISMS)


def batch(changes):
    if changes.get("copy_mechanism") == "retrieval":
        source = {"input_ids": QUESTION, "attention_mask": torch.ones_like(QUESTION), "token_type_ids": FACTS}
        return source | {"labels": torch.tensor([[14, 6, 13, 2]])}
    return sources() | {"labels": padded(POINTED if changes is POINTER else TARGETS, -100)}


def adapted(changes, **options):
    """A model with adapters at all linear layers, the second matrix of each no longer zero."""
    config = peft.LoraConfig(target_modules="all-linear", r=2, task_type="SEQ_2_SEQ_LM", **options)
    model = peft.get_peft_model(tiny_model(**changes, scale=1.0), config).double()
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3)
    return model.eval()


def generated(model, inputs):
    source = {name: value for name, value in inputs.items() if name != "labels"}
    return model.generate(**source, num_beams=3, max_new_tokens=6, return_dict_in_generate=True, output_scores=True)


@mechanisms
def test_every_adapter_is_trained(changes):
    model = adapted(changes).train()
    model(**batch(changes)).loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name, gradient in gradients.items() if gradient is None or not gradient.any()} == set()
    adapters = {name.partition(".lora_A")[0].rpartition(".")[2] for name in gradients if ".lora_A" in name}
    assert "score_proj" in adapters
    assert "coverage_proj" in adapters or not model.base_model.model.config.use_coverage


@mechanisms
def test_merged_weights_give_the_adapted_outputs(changes):
    model, inputs = adapted(changes), batch(changes)
    plain = tiny_model(**changes, scale=1.0).double()(**inputs)
    output, searched = model(**inputs), generated(model, inputs)
    merged = model.merge_and_unload()
    assert (output.logits - plain.logits).abs().max() > 0.1
    assert torch.allclose(merged(**inputs).logits, output.logits, atol=1e-9)
    assert torch.allclose(merged(**inputs).loss, output.loss, atol=1e-9)
    found = generated(merged, inputs)
    assert torch.equal(found.sequences, searched.sequences)
    assert torch.allclose(found.sequences_scores, searched.sequences_scores, atol=1e-6)


@mechanisms
def test_saved_adapters_give_the_same_when_loaded(changes, tmp_path):
    model, inputs = adapted(changes), batch(changes)
    model.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(tiny_model(**changes, scale=1.0).double(), tmp_path)
    assert torch.allclose(loaded(**inputs).logits, model(**inputs).logits, atol=1e-9)
