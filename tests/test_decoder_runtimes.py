"""What Transformers and PyTorch do to models, done to a Transformer from scratch and to pretrained encoder-decoders
with a copy head: assisted decoding, int8, checkpoints, torch.compile; adapters: test_adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from helpers import TARGETS, padded, tiny_model
from helpers import sources as tiny_sources
from test_decoders import decoder
from test_seq2seq import make_copying, make_tokenizer, sources
from torch import Tensor, nn

from copynet_hf import CopyNetForConditionalGeneration


class Case(NamedTuple):
    model: CopyNetForConditionalGeneration
    inputs: dict[str, Tensor]
    labels: Tensor


def make_scratch(mechanism: str, folder: Path) -> Case:
    """Of the kind of `--decoder transformer`."""
    no_dropout = dict.fromkeys(("attention_dropout", "encoder_layerdrop", "decoder_layerdrop"), 0.0)
    layers = decoder("m2m_100", encoder_layers=1, **no_dropout)
    fields = {"decoder": layers, "encoder": layers, "encoder_reads": "words", "encoder_hidden_size": 3}
    return Case(tiny_model(**fields, copy_mechanism=mechanism, scale=1.0), tiny_sources(), padded(TARGETS, -100))


def make_pretrained(family: str, **changes: Any) -> Callable[[str, Path], Case]:
    def make(mechanism: str, folder: Path) -> Case:
        tokenizer = make_tokenizer()
        model = make_copying(folder, family, tokenizer, mechanism, **changes)
        return Case(model, sources(tokenizer), padded([[5, 6, 7, 2]] * 5, -100))

    return make


CASES: dict[str, tuple[str, Callable[[str, Path], Case]]] = {
    "scratch": ("copynet", make_scratch),
    "t5": ("copynet", make_pretrained("t5", dropout_rate=0.0)),
    "bart": ("pointer_generator", make_pretrained("bart", dropout=0.0)),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    mechanism, make = CASES[request.param]
    return make(mechanism, tmp_path)


def test_assisted_decoding_writes_what_greedy_search_writes(case: Case) -> None:
    model, inputs, _ = case
    one = {name: tensor[:1] for name, tensor in inputs.items()}
    expected = model.generate(**one, max_new_tokens=8)
    assert torch.equal(model.generate(**one, max_new_tokens=8, prompt_lookup_num_tokens=3), expected)
    assistant = copy.deepcopy(model)
    for weight in assistant.model.decoder.parameters():
        weight.data.add_(0.05 * torch.randn_like(weight))  # is wrong now and then
    assert torch.equal(model.generate(**one, max_new_tokens=8, assistant_model=assistant), expected)


@pytest.mark.filterwarnings("ignore")  # PyTorch's own about its quantisation
def test_products_in_int8_give_nearly_the_same(case: Case) -> None:
    model, inputs, labels = case
    small = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    found, expected = (each(**inputs, labels=labels).logits.exp() for each in (small, model))
    assert (found - expected).abs().mean() < 0.01
    assert torch.allclose(found.sum(-1), torch.ones(labels.shape), atol=1e-4)
    words = small.generate(**inputs, num_beams=3, max_new_tokens=4)
    log_probs = model(**inputs, decoder_input_ids=words[:, :-1]).logits.gather(-1, words[:, 1:, None])
    assert log_probs[:, 0].min() > -6  # what the search in int8 writes is probable for the model itself


def gradients(model: Any, case: Case) -> dict[str, Tensor]:
    model.zero_grad()
    model(**case.inputs, labels=case.labels, num_items_in_batch=12).loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.allclose(found[name], gradient, atol=1e-5 * float(gradient.abs().max() + 1)), name


def test_checkpoints_change_no_gradient(case: Case) -> None:
    expected = gradients(case.model.train(), case)
    case.model.gradient_checkpointing_enable({"use_reentrant": True})  # is not taken
    assert_same(gradients(case.model, case), expected)


@pytest.mark.slow  # compiles
def test_a_compiled_step_has_the_same_gradients(case: Case) -> None:
    expected = gradients(case.model.train(), case)
    compiled = torch.compile(case.model, backend="aot_eager")
    assert_same({name.removeprefix("_orig_mod."): grad for name, grad in gradients(compiled, case).items()}, expected)
    case.model.eval()
    (found, plain) = (each(**case.inputs, labels=case.labels).logits for each in (compiled, case.model))
    assert torch.allclose(found, plain, atol=1e-5)
