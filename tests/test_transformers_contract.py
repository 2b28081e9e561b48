"""What the library's own test suite asks of every model, where our other tests do not ask it already.

It follows the library's `ModelTesterMixin`, which `test_library_suite.py` runs as it is, and `GenerationTesterMixin`.
Left out is what a recurrent model with slots cannot have: self-attention maps and their kernels, position embeddings,
and a loss that is a function of the returned logits (ours is computed without that table).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import DISTINCT, FEATURED, SOURCES, SPELLED, VARIANTS, batch, padded, sources, tiny_model
from test_pointer import TOURS, points, points_model
from tiny_encoders import batch_of, copynet_over, save_encoder, word_tokenizer
from transformers.modeling_layers import GradientCheckpointingLayer

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.model.text_models import CACHE_NAME

variants = pytest.mark.parametrize("changes", DISTINCT.values(), ids=DISTINCT)


# --- the model ------------------------------------------------------------------------------------------------------


Case = tuple[Any, dict[str, torch.Tensor]]


def make_small(**changes: Any) -> Callable[[Path], Case]:
    def make(folder: Path) -> Case:
        model = tiny_model(**changes)
        return model, batch(config=model.config)

    return make


def make_over_points(folder: Path) -> Case:
    inputs = points()
    inputs["input_features"] = inputs["input_features"].double()
    return points_model(), inputs | {"labels": padded(TOURS, -100)}


def make_over_encoder(folder: Path) -> Case:
    tokenizer = word_tokenizer(name := save_encoder(folder))
    return copynet_over(name, tokenizer), batch_of(tokenizer)


READING = FEATURED | SPELLED
CHECKPOINTED: dict[str, Callable[[Path], Case]] = {
    "defaults": make_small(),
    "dropout": make_small(dropout=0.3),
    "coverage": make_small(use_coverage=True),
    "readable": make_small(use_fused=False),
    **{name: make_small(copy_mechanism=name, **READING) for name in ("copynet", "pointer_generator", "retrieval")},
    "points": make_over_points,
    "encoder": make_over_encoder,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer releases say "activation checkpointing"
@pytest.mark.parametrize("make", CHECKPOINTED.values(), ids=CHECKPOINTED)
def test_gradient_checkpointing_gives_the_plain_gradients(make: Callable[[Path], Case], tmp_path: Path) -> None:
    """Others: test_decoder_runtimes."""
    gradients = []
    for checkpointing in (False, True):
        model, inputs = make(tmp_path)
        model.double().train()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
            inner = [each for each in model.modules() if isinstance(each, GradientCheckpointingLayer)]
            assert all(layer.gradient_checkpointing for layer in inner)
            assert inner
        torch.manual_seed(0)
        model(**inputs).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, expected in gradients[0].items():
        assert gradients[1][name] is not None, name
        assert torch.allclose(gradients[1][name], expected, rtol=1e-9, atol=1e-12), name
    model.gradient_checkpointing_disable()
    assert not model.is_gradient_checkpointing


# --- embeddings and weights -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_can_be_read_replaced_and_resized(tied: bool) -> None:
    model = tiny_model(tie_word_embeddings=tied)
    width = model.get_input_embeddings().embedding_dim
    before = model.get_input_embeddings().weight.detach().clone()
    for size in (17, 11):
        model.resize_token_embeddings(size, mean_resizing=False)
        assert model.config.vocab_size == size
        assert model.get_input_embeddings().weight.shape == (size, width)
        assert model.get_output_embeddings().weight.shape[0] == size
        assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == tied
        source = torch.tensor([[5, size, size + 1]])  # the slots have moved along
        output = model(input_ids=source, labels=torch.tensor([[size, 5, 2]]))
        assert output.logits.shape[-1] == size + 4
        assert torch.allclose(output.logits.exp().sum(-1), torch.ones(1, 3), atol=1e-5)
        assert torch.isfinite(output.loss)
    assert torch.equal(model.get_input_embeddings().weight.detach(), before[:11])
    fresh = torch.nn.Embedding(11, width)
    model.set_input_embeddings(fresh)
    assert model.get_input_embeddings() is fresh


def test_base_and_full_model_load_each_others_weights(tmp_path: Path) -> None:
    model = tiny_model()
    model.model.save_pretrained(tmp_path)
    loaded, info = CopyNetForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert set(info["missing_keys"]) == {"lm_head.weight"}
    for name, weight in model.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], weight), name
    assert torch.isfinite(loaded.lm_head.weight).all()
    assert loaded.lm_head.weight.abs().max() < 2


@variants
def test_a_new_model_starts_with_finite_and_spread_weights(changes: dict) -> None:
    torch.manual_seed(0)
    model = CopyNetForConditionalGeneration(tiny_model(**changes).config)
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), name
        if "bias" in name or "ending_proj" in name:  # the latter is an `AddedProjection`
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        elif parameter.numel() > 4:
            assert 0.01 < parameter.std() < 2, name


# --- generate -------------------------------------------------------------------------------------------------------

SEARCHES = {
    "greedy": {},
    "sampling": {"do_sample": True},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "beam_sampling": {"num_beams": 3, "do_sample": True},
}


@pytest.mark.parametrize(
    ("variant", "search"),
    [
        *(("defaults", search) for search in SEARCHES),
        *(("coverage", "beams"), ("gated", "greedy"), ("enc_dec", "greedy"), ("enc_dec", "beam_sampling")),
    ],
)
def test_every_search_returns_all_it_is_asked_for(variant: str, search: str) -> None:
    model, options = tiny_model(**VARIANTS[variant]), SEARCHES[search]
    output = model.generate(
        **sources(),
        **options,
        min_new_tokens=3,
        max_new_tokens=3,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        output_hidden_states=True,
        output_attentions=True,
    )
    rows = 4 * options.get("num_beams", 1)
    assert output.sequences.shape == (4 * options.get("num_return_sequences", 1), 4)
    width = model.config.extended_vocab_size
    assert [tuple(step.shape) for step in output.scores] == [(rows, width)] * 3
    assert [tuple(step.shape) for step in output.logits] == [(rows, width)] * 3
    # Unlike the scores, the logits are as the model gave them, with nothing forbidden.
    assert all(torch.isfinite(step).all() for step in output.logits)
    assert [tuple(step[-1].shape) for step in output.decoder_hidden_states] == [
        (rows, 1, model.config.hidden_size)
    ] * 3
    assert output.encoder_hidden_states[0].shape == (4, 8, model.config.embedding_size)
    if model.config.attention:
        assert [tuple(step[0].shape) for step in output.cross_attentions] == [(rows, 1, 1, 8)] * 3


def test_a_left_padded_prefix_continues_as_it_does_alone() -> None:
    model = tiny_model(seed=4)
    ids = torch.tensor([SOURCES[0]] * 2)
    prefixes, mask = torch.tensor([[0, 1, 13], [1, 5, 14]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
    both = model.generate(
        input_ids=ids, decoder_input_ids=prefixes, decoder_attention_mask=mask, min_new_tokens=4, max_new_tokens=4
    )
    alone = model.generate(input_ids=ids[:1], decoder_input_ids=prefixes[:1, 1:], min_new_tokens=4, max_new_tokens=4)
    assert both[0, 3:].tolist() == alone[0, 2:].tolist()


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_generation_goes_on_from_a_cache(name: str) -> None:
    model = tiny_model(seed=4)
    whole = model.generate(**sources(), min_new_tokens=6, max_new_tokens=6)
    first = model.generate(**sources(), min_new_tokens=3, max_new_tokens=3, return_dict_in_generate=True)
    assert first[CACHE_NAME].get_seq_length() == 3
    rest = model.generate(
        **sources(),
        decoder_input_ids=first.sequences,
        decoder_attention_mask=torch.ones_like(first.sequences),  # tells the library that this is the whole sequence
        **{name: first[CACHE_NAME]},
        min_new_tokens=3,
        max_new_tokens=3,
    )
    assert torch.equal(rest, whole)
    both = {"cache": first[CACHE_NAME], "past_key_values": first[CACHE_NAME]}
    with pytest.raises(ValueError, match="cache and past_key_values are two names"):
        model(**sources(), decoder_input_ids=first.sequences, **both)
