"""Adapters of PEFT: what is trained is what the merged weights give, and every adapter learns."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from helpers import MECHANISMS, batch, tiny_model
from test_decoder_runtimes import CASES as RUNTIMES

peft = pytest.importorskip("peft")


def make_small(changes, folder):
    model = tiny_model(**changes, scale=1.0).double()
    return model, batch(config=model.config)


def make_over(kind, folder):
    torch.manual_seed(0)
    _, make = RUNTIMES[kind]
    model, inputs, labels = make("copynet", folder)
    return model.double(), inputs | {"labels": labels}


CASES = {name: partial(make_small, changes) for name, changes in MECHANISMS.items()}
CASES |= {kind: partial(make_over, kind) for kind in RUNTIMES}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """A model and its inputs."""
    return CASES[request.param](tmp_path / "made")


def adapt(model):
    """With adapters at all linear layers, the second matrix of each no longer zero."""
    config = peft.LoraConfig(target_modules="all-linear", r=2, task_type="SEQ_2_SEQ_LM")
    adapted = peft.get_peft_model(copy.deepcopy(model), config).double()
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3)
    return adapted.eval()


def generated(model, inputs):
    source = {name: value for name, value in inputs.items() if name != "labels"}
    return model.generate(**source, num_beams=3, max_new_tokens=6, return_dict_in_generate=True, output_scores=True)


def test_every_adapter_is_trained(case):
    model, inputs = adapt(case[0]).train(), case[1]
    model(**inputs).loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name, gradient in gradients.items() if gradient is None or not gradient.any()} == set()
    adapters = " ".join(name for name in gradients if ".lora_A" in name)
    config = case[0].config
    expected = [".score_proj."] if config.attention else []
    if config.decoder is not None:
        expected = [".decoder.text_decoder.", ".encoder.text_encoder."]
    assert [part for part in expected if part not in adapters] == []
    assert ".coverage_proj." in adapters or not config.use_coverage


def test_adapters_of_tied_repetitions_are_trained():
    config = peft.LoraConfig(target_modules=r".*tied_repetitions\.\w*embedding", r=2)
    model = peft.get_peft_model(tiny_model(tie_repetitions=True), config).train()
    model(**batch()).loss.backward()
    trained = {name: weight.grad for name, weight in model.named_parameters() if "lora_embedding_A" in name}
    assert len(trained) == 2
    assert all(gradient is not None and gradient.any() for gradient in trained.values())


def test_merged_weights_give_the_adapted_outputs(case):
    plain, inputs = case
    model = adapt(plain)
    output, searched = model(**inputs), generated(model, inputs)
    merged = model.merge_and_unload()
    assert (output.logits - plain(**inputs).logits).abs().max() > 0.1
    assert torch.allclose(merged(**inputs).logits, output.logits, atol=1e-9)
    assert torch.allclose(merged(**inputs).loss, output.loss, atol=1e-9)
    found = generated(merged, inputs)
    assert torch.equal(found.sequences, searched.sequences)
    assert torch.allclose(found.sequences_scores, searched.sequences_scores, atol=1e-6)


def test_saved_adapters_give_the_same_when_loaded(case, tmp_path):
    plain, inputs = case
    model = adapt(plain)
    model.save_pretrained(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(plain, tmp_path / "adapter")
    assert torch.allclose(loaded(**inputs).logits, model(**inputs).logits, atol=1e-9)


def test_an_adapter_of_the_library_is_saved_without_the_models_config(tmp_path):
    model = tiny_model()
    try:
        model.add_adapter(peft.LoraConfig(target_modules="all-linear", r=2))
    except ValueError as error:
        if "version of PEFT" not in str(error):
            raise
        pytest.skip(f"Transformers asks for a later PEFT: {error}")
    model.save_pretrained(tmp_path)
    modes = {(tmp_path / f"adapter_{name}").stat().st_mode for name in ("config.json", "model.safetensors")}
    assert len(modes) == 1
