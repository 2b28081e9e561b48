"""Weights that a module has only while it runs: offloaded by accelerate, or quantised."""

from __future__ import annotations

import copy

import pytest
import torch
from accelerate import cpu_offload
from helpers import MECHANISMS, batch, tiny_model
from torch import nn

from copynet_hf import CopyNetForConditionalGeneration

MODELS = {**MECHANISMS, "tied repetitions": {"tie_repetitions": True}}
models = pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)


def outputs(model):
    """Probabilities under teacher forcing, and those of a greedy search and of one by beams."""
    inputs = batch(config=model.config)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "return_dict_in_generate": True, "output_logits": True}
    with torch.no_grad():
        found = [model(**inputs).logits]
    del inputs["labels"]
    for num_beams in (1, 3):
        found.append(model.generate(**inputs, **options, num_beams=num_beams).logits[0])
    return found


def check(model, plain, tolerance=1e-5):
    for found, expected in zip(outputs(model), outputs(plain), strict=True):
        assert torch.allclose(found, expected, atol=tolerance)


@models
def test_weights_offloaded_to_memory(changes):
    plain = tiny_model(**changes)
    check(cpu_offload(copy.deepcopy(plain), execution_device="cpu"), plain)


@pytest.mark.parametrize(
    ("changes", "on_disk"),
    [({}, "all"), ({"tie_repetitions": True}, "all"), *((changes, "decoder") for changes in MECHANISMS.values())],
    ids=str,
)
def test_a_device_map_with_the_disk(changes, on_disk, tmp_path):
    plain = tiny_model(**changes)
    plain.save_pretrained(tmp_path / "model")
    parts = [name for name, module in plain.named_children() if name != "model" and module is not None]
    placed = {"model.encoder": "cpu", "model.decoder": "disk"} | dict.fromkeys(parts, "cpu")
    model = CopyNetForConditionalGeneration.from_pretrained(
        tmp_path / "model",
        device_map={"": "disk"} if on_disk == "all" else placed,
        offload_folder=tmp_path / "offloaded",
    )
    assert any(parameter.is_meta for parameter in model.parameters())
    check(model, plain)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("changes", "kinds"),
    [({}, {nn.Linear}), *((changes, {nn.Linear, nn.GRUCell}) for changes in MECHANISMS.values())],
    ids=["linear", *MECHANISMS],
)
def test_dynamic_quantization(changes, kinds):
    plain = tiny_model(**changes, scale=0.5)
    quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(plain), kinds, dtype=torch.qint8)
    assert sum("quantized" in type(module).__module__ for module in quantized.modules()) >= 2
    check(quantized, plain, tolerance=0.1)
