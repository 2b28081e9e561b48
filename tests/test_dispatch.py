"""Which form runs: each reason for the readable one is found, and the results do not depend on the form."""

from __future__ import annotations

import io

import pytest
import torch
from helpers import POINTED, POINTER, SOURCES, TARGETS, padded, tiny_model
from torch import nn
from torch.nn.utils import prune as pruning

from copynet_hf.model import encoder, fast
from copynet_hf.model.fast import find_fast_form_obstacles


def reasons(model):
    core = model.model
    with torch.no_grad():
        encoded = core.encoder(padded(SOURCES, 0))
        return fast.find_obstacles(core.decoder, core.decoder.build_memory(encoded), len(SOURCES))


def test_a_model_as_it_is_made_runs_in_the_fast_form():
    assert reasons(tiny_model()) == []


def test_without_attention_there_is_no_fast_form():
    assert reasons(tiny_model(copy_mechanism="none", attention=False)) == [
        "attention=False: there is nothing to speed up"
    ]


def test_the_user_may_choose_the_readable_form_at_any_time():
    model = tiny_model()
    model.config.use_fused = False
    assert reasons(model) == ["use_fused=False: the user's choice"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "run_all_steps", None)
        patch.setattr(encoder, "FusedGRU", None)
        model(input_ids=padded(SOURCES, 0), labels=padded(TARGETS, -100)).loss.backward()


def test_a_traced_model_runs_in_the_readable_form(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert find_fast_form_obstacles(tiny_model().config) == ["torch.compile or torch.export is tracing the model"]


@pytest.mark.parametrize("changes", [{"use_coverage": True}, {"copy_mechanism": "gated"}, POINTER], ids=str)
def test_torch_func_gives_the_gradients_of_the_backward(changes):
    model = tiny_model(**changes).double()
    inputs = {"input_ids": padded(SOURCES, 0), "labels": padded(POINTED, -100)}
    parameters = dict(model.named_parameters())
    model(**inputs).loss.backward()

    def compute_loss(weights):
        assert find_fast_form_obstacles(model.config) == ["torch.func is transforming the model"]
        return torch.func.functional_call(model, weights, kwargs=inputs).loss

    gradients = torch.func.grad(compute_loss)(parameters)
    for name, parameter in parameters.items():
        assert torch.allclose(gradients[name], parameter.grad, atol=1e-12), name


def replace_class(module):
    module.__class__ = type(f"Adapted{type(module).__name__}", (type(module),), {})


def add_spectral_norm(module):
    nn.utils.parametrizations.spectral_norm(module, "weight" if hasattr(module, "weight") else "weight_hh")


def prune(module):
    pruning.l1_unstructured(module, "weight" if hasattr(module, "weight") else "weight_hh", amount=0.5)


def replace_forward(module):
    """As accelerate's hooks do."""
    forward = module.forward
    module.forward = lambda *args, **kwargs: forward(*args, **kwargs)


class Quantized(torch.Tensor):
    """Stands in for a weight that is no plain tensor, as torchao's are."""


def replace_weight(module):
    name = "weight" if hasattr(module, "weight") else "weight_hh"
    setattr(module, name, nn.Parameter(getattr(module, name).data.as_subclass(Quantized)))


CHANGES = {
    "quantised_weight": (replace_weight, "has a weight that is a Quantized"),
    "another_class": (replace_class, "is a Adapted"),
    "parametrised": (add_spectral_norm, "is a Parametrized"),
    "pruned": (prune, "has hooks"),
    "forward_hook": (lambda module: module.register_forward_hook(lambda *_: None), "has hooks"),
    "forward_pre_hook": (lambda module: module.register_forward_pre_hook(lambda *_: None), "has hooks"),
    "backward_hook": (lambda module: module.register_full_backward_hook(lambda *_: None), "has hooks"),
    "replaced_forward": (replace_forward, "has a forward of its own"),
    "offloaded": (lambda module: module.to("meta"), "is offloaded"),
}
MODULES = ["cell", "readout_proj", "attention.query_proj", "attention.score_proj", "attention.coverage_proj"]


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        *(("cell", *change) for change in CHANGES.values()),
        *((name, replace_class, "is a Adapted") for name in MODULES[1:]),
    ],
)
def test_a_changed_module_is_noticed(name, change, reason):
    model = tiny_model(use_coverage=True)
    change(model.model.decoder.get_submodule(name))
    (found,) = reasons(model)
    assert found.startswith(f"{name} {reason}")


def test_hooks_of_the_attention_and_of_all_modules_are_noticed():
    model = tiny_model()
    handle = model.model.decoder.attention.register_forward_hook(lambda *_: None)
    assert reasons(model) == ["attention has hooks"]
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert reasons(model) == ["a hook is registered for all modules"]
    finally:
        handle.remove()
    assert reasons(model) == []


@pytest.mark.parametrize("name", MODULES)
def test_a_forward_hook_is_called_at_every_step(name):
    model, calls = tiny_model(use_coverage=True), []
    model.model.decoder.get_submodule(name).register_forward_hook(lambda *_: calls.append(1))
    model(input_ids=padded(SOURCES, 0), labels=padded(TARGETS, -100))
    assert len(calls) == padded(TARGETS, -100).shape[1]
    calls.clear()
    model.generate(padded(SOURCES, 0), num_beams=2, max_new_tokens=3, min_new_tokens=3)
    assert len(calls) == 3


@pytest.mark.parametrize("change", [prune, add_spectral_norm], ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", ["cell", "attention.score_proj"])
def test_a_changed_module_trains_as_in_the_readable_form(name, change):
    losses = []
    for use_fused in (False, True):
        model = tiny_model(use_fused=use_fused, scale=1.0).double()
        torch.manual_seed(0)
        change(model.model.decoder.get_submodule(name))
        model.train()
        torch.manual_seed(0)
        for _ in range(2):  # stale weights show at the second step
            model.zero_grad()
            loss = model(input_ids=padded(SOURCES, 0), labels=padded(TARGETS, -100)).loss
            loss.backward()
        losses.append(loss)
    assert torch.allclose(*losses, rtol=1e-12)


@pytest.mark.parametrize("changes", [{}, POINTER], ids=str)
def test_a_torchscript_trace_can_be_saved_and_gives_the_models_numbers(changes):
    model = tiny_model(**changes)

    class LogProbs(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, words):
            return self.model(input_ids=ids, decoder_input_ids=words, use_cache=False, return_dict=True).logits

    ids, words = padded(SOURCES, 0), torch.tensor([[1, 13, 5], [1, 13, 13], [1, 7, 8], [1, 4, 13]])
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(LogProbs(), (ids, words)), file)
    file.seek(0)
    traced = torch.jit.load(file)
    for rows in ([0, 1, 2, 3], [3, 0]):
        assert torch.allclose(traced(ids[rows], words[rows]), LogProbs()(ids[rows], words[rows]), atol=1e-5)
