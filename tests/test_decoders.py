"""A Transformers decoder in place of the GRU: every family, its cache, its attention, what it cannot have.

`VARIANTS` of helpers.py has BART's, so that probabilities, loss, gradients, padding, searches, saving and loading are
tested with it where those of the GRU are, against the oracle's own BART.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from helpers import (
    BART,
    SOURCES,
    TARGETS,
    batch,
    padded,
    save_parts,
    sources,
    tiny_model,
    tiny_tokenizer,
    trained,
    write_requests,
)
from tiny_encoders import batch_of, save_encoder, word_tokenizer
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, BertConfig

from copynet_hf import CopyNetConfig, CopyNetEnsemble, CopyNetForConditionalGeneration
from copynet_hf.arguments import TrainArguments, build_arguments
from copynet_hf.cli import main
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model
from copynet_hf.training.defaults import complete_arguments
from copynet_hf.training.presets import make_config

# Families by the names of their sizes; every width is small, and layers of encoders are never run.
BERT = {
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 9,
    "max_position_embeddings": 40,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
T5 = {
    "d_model": 6,
    "d_kv": 3,
    "d_ff": 9,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "dropout_rate": 0.0,
}
GPT2 = {"n_embd": 6, "n_layer": 2, "n_head": 2, "n_positions": 40, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
LED = {"max_encoder_position_embeddings": 40, "max_decoder_position_embeddings": 40}
FAMILIES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bert", "electra"), BERT),
    **{name: BERT | {"pad_token_id": 1} for name in ("roberta", "xlm-roberta")},
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5"), T5),
    **dict.fromkeys(("bart", "mbart", "pegasus", "marian", "m2m_100", "blenderbot-small", "blenderbot"), BART),
    "led": BART | LED,
    "gpt2": GPT2,
}
families = pytest.mark.parametrize("family", FAMILIES)
MECHANISMS = ("copynet", "pointer_generator", "gated", "none")
mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS)


def decoder(family: str, **changes: Any) -> dict[str, Any]:
    """The config of a family as JSON has it."""
    return FAMILIES[family] | {"model_type": family, "vocab_size": 13, "pad_token_id": 0} | changes


def words() -> Tensor:
    return padded([[1, *target] for target in TARGETS], 0)


def decode_in_parts(model: CopyNetForConditionalGeneration, *sizes: int, **inputs: Tensor) -> Tensor:
    """The logits of the target words, so many at a time with a cache."""
    past, parts = None, []
    for part in inputs.pop("decoder_input_ids").split(sizes, dim=1):
        output = model(**inputs, decoder_input_ids=part, past_key_values=past, use_cache=True)
        past = output.past_key_values
        parts.append(output.logits)
    return torch.cat(parts, dim=1)


# --- every family ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "mechanism"),
    [*((family, "pointer_generator") for family in FAMILIES), ("bart", "copynet"), ("t5", "copynet")],
)
def test_steps_with_a_cache_are_those_of_training(family: str, mechanism: str) -> None:
    model = tiny_model(decoder=decoder(family), copy_mechanism=mechanism, scale=1.0)
    inputs = sources() | {"decoder_input_ids": words()}
    whole = model(**inputs, use_cache=False).logits
    assert torch.allclose(whole.exp().sum(-1), torch.ones(4, 6), atol=1e-5)
    for sizes in ((1,) * 6, (3, 2, 1)):
        assert torch.allclose(decode_in_parts(model, *sizes, **inputs), whole, atol=1e-4)
    later = inputs["decoder_input_ids"].clone()
    later[:, 3:] = 7  # nothing reads words to come
    assert torch.allclose(model(**sources(), decoder_input_ids=later).logits[:, :3], whole[:, :3], atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "t5", "longt5", "bart", "led", "gpt2"])  # a kind of cache each
def test_searches_of_many_rows_with_a_cache_are_those_without(family: str) -> None:
    model = tiny_model(decoder=decoder(family), scale=1.0)
    alone = {name: tensor[:1] for name, tensor in sources().items()}
    for inputs, search in product((sources(), alone), ({}, {"num_beams": 3, "num_return_sequences": 2})):
        found = model.generate(**inputs, **search, max_new_tokens=6)
        assert torch.equal(found, model.generate(**inputs, **search, max_new_tokens=6, use_cache=False))


@families
def test_all_that_a_step_reads_is_trained_and_saved(family: str, tmp_path: Any) -> None:
    model = tiny_model(decoder=decoder(family), scale=1.0)
    model(**batch()).loss.backward()
    fixed = {"pegasus", "marian"}  # sinusoids
    missing = {name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None}
    assert missing <= ({"model.decoder.text_decoder.embed_positions.weight"} if family in fixed else set())
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    inputs = sources() | {"decoder_input_ids": words()}
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    assert loaded.config.decoder.to_dict() == model.config.decoder.to_dict()


# --- rows, padding, caches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5"])
@pytest.mark.parametrize("sizes", [(6,), (3, 1, 1, 1)], ids=["at_once", "with_a_cache"])
def test_padding_before_a_prefix_is_passed_over(family: str, sizes: tuple[int, ...]) -> None:
    model = tiny_model(decoder=decoder(family), scale=1.0)
    rows = [[0, 0, 1, 13, 5, 2], [1, 13, 5, 14, 6, 2]]
    output = decode_in_parts(model, *sizes, input_ids=padded(SOURCES[:1] * 2, 0), decoder_input_ids=torch.tensor(rows))
    alone = model(**sources(SOURCES[:1]), decoder_input_ids=torch.tensor([rows[0][2:]])).logits
    assert torch.allclose(output[0, 2:], alone[0], atol=1e-5)


@mechanisms
def test_a_cache_is_cropped(mechanism: str) -> None:
    model = tiny_model(decoder=decoder("bert"), copy_mechanism=mechanism)
    inputs = sources() | {"decoder_input_ids": words()}
    whole = model(**inputs).logits
    encoded = model.get_encoder()(**sources())
    options = {"encoder_outputs": encoded, "use_cache": True}
    past = model(**options, decoder_input_ids=words()[:, :1]).past_key_values
    past.activate_past_recording()
    model(**options, decoder_input_ids=words()[:, 1:5], past_key_values=past)
    past.crop(-2)
    assert past.get_seq_length() == 3
    rest = model(**options, decoder_input_ids=words()[:, 3:], past_key_values=past)
    assert torch.allclose(rest.logits, whole[:, 3:], atol=1e-5)


def test_more_words_than_positions_are_refused() -> None:
    model = tiny_model(decoder=decoder("bart", max_position_embeddings=4))
    with pytest.raises(ValueError, match="given 5 words, and its config has 4 positions: pass fewer"):
        model(**sources(), decoder_input_ids=words()[:, :5])
    with pytest.raises(ValueError, match="smaller max_new_tokens"):
        model.generate(**sources(), max_new_tokens=9, min_new_tokens=9)


def test_an_empty_source_is_no_source() -> None:
    model = tiny_model(decoder=BART)
    inputs = {"input_ids": torch.tensor([[0, 0], [5, 13]]), "decoder_input_ids": words()[:2]}
    output = model(**inputs)
    assert torch.allclose(output.logits.exp().sum(-1), torch.ones(2, 6), atol=1e-5)
    assert (output.copy_mass[0] == 0).all()


# --- attention that is copied by ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layer", "head"), [(-1, None), (0, None), (1, 0), (0, 1)])
def test_the_layer_and_the_head_that_are_copied_by_are_chosen(layer: int, head: int | None) -> None:
    fields = {"copy_mechanism": "pointer_generator", "copy_layer": layer, "copy_head": head}
    model = tiny_model(decoder=BART, **fields)
    heads: list[Tensor] = []
    attention = model.model.decoder.text_decoder.layers[layer].encoder_attn
    attention.register_forward_hook(lambda _module, _inputs, output: heads.append(output[1]))
    output = model(**sources(), decoder_input_ids=words(), output_attentions=True)
    expected = heads[0].mean(1) if head is None else heads[0][:, head]
    assert torch.allclose(output.cross_attentions[0][:, 0], expected, atol=1e-6)
    copied = output.copy_probs / output.copy_mass[..., None]
    assert torch.allclose(copied, expected, atol=1e-5)


# --- the whole model ------------------------------------------------------------------------------------------------


def test_it_learns_to_copy_words_outside_the_vocabulary() -> None:
    pairs = [(f"please call n{n} at ten today", f"call n{n}") for n in range(160)]
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64}
    model, tokenizer = trained(pairs, "whitespace", decoder=decoder("t5", **sizes), embedding_size=32)
    outputs = predict(model, tokenizer, ["please call n999 at ten today"], max_new_tokens=5)
    assert outputs[0][0].text == "call n999"


def test_over_a_transformers_encoder(tmp_path: Any) -> None:
    name = save_encoder(tmp_path / "bert")
    tokenizer = word_tokenizer(name)
    model = CopyNetForConditionalGeneration.from_encoder_pretrained(
        name, tokenizer=tokenizer, decoder=decoder("bart"), embedding_size=6
    )
    inputs = batch_of(tokenizer)
    output = model(**inputs)
    output.loss.backward()
    model.save_pretrained(tmp_path / "saved")
    loaded = CopyNetForConditionalGeneration.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded(**inputs).logits, output.logits)
    del inputs["labels"]
    assert torch.equal(loaded.generate(**inputs, num_beams=3), model.generate(**inputs, num_beams=3, use_cache=False))


def test_an_ensemble_has_members_of_both_kinds() -> None:
    ensemble = CopyNetEnsemble.from_models([tiny_model(), tiny_model(decoder=BART)])
    found = ensemble.generate(**sources(), num_beams=3, max_new_tokens=6)
    assert torch.equal(found, ensemble.generate(**sources(), num_beams=3, max_new_tokens=6, use_cache=False))


def test_probabilities_sum_to_one_in_half_precision() -> None:
    for mechanism in MECHANISMS:
        model = tiny_model(decoder=BART, copy_mechanism=mechanism)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(**batch())
        assert torch.allclose(output.logits.exp().sum(-1), torch.ones(4, 5), atol=1e-4)
        assert torch.isfinite(model.bfloat16().generate(**sources(), num_beams=2, max_new_tokens=4)).all()


# --- the config -----------------------------------------------------------------------------------------------------


def test_the_state_is_as_wide_as_the_decoder_and_a_given_config_stays_as_it_is() -> None:
    shared = BertConfig(**BERT, vocab_size=13)
    config = CopyNetConfig(encoder=shared, decoder=shared)
    assert config.hidden_size == 6
    assert config.decoder.is_decoder
    assert config.decoder.add_cross_attention
    assert not shared.is_decoder
    assert config.get_text_config(decoder=True) is config
    assert copy.deepcopy(config).to_dict() == config.to_dict()


ENCODER_ALONE = {"model_type": "distilbert", "n_layers": 1, "dim": 12, "hidden_dim": 5}
VISION = {"model_type": "vit", "num_hidden_layers": 1, "intermediate_size": 5}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "selective read": (
        lambda: CopyNetConfig(encoder=BART, decoder=BART, seq2seq=True, selective_read=True),
        "not for a pretrained encoder-decoder",
    ),
    "readout": (lambda: CopyNetConfig(decoder=BART, readout=["state", "context"]), "computed from the state alone"),
    "retrieval": (lambda: CopyNetConfig(decoder=BART, copy_mechanism="retrieval"), "has a decoder of its own"),
    "half of an encoder-decoder": (lambda: CopyNetConfig(decoder=BART, seq2seq=True), "set encoder and decoder"),
    "layer of the GRU": (
        lambda: CopyNetConfig(copy_mechanism="gated", copy_layer=1),
        "copy_layer=1 has no effect without decoder",
    ),
    "no such layer": (
        lambda: tiny_model(decoder=BART, copy_mechanism="gated", copy_layer=2)(**sources(), decoder_input_ids=words()),
        "copy_layer=2, and the decoder has 2 layers: use one from 0 to 1, or -1 for the last",
    ),
    "no such head": (
        lambda: tiny_model(decoder=BART, copy_mechanism="gated", copy_head=2)(**sources(), decoder_input_ids=words()),
        "copy_head=2, and the decoder has 2 heads: use one from 0 to 1, or None for their average",
    ),
    "a head below 0": (
        lambda: tiny_model(decoder=BART, copy_mechanism="gated", copy_head=-1)(**sources(), decoder_input_ids=words()),
        "copy_head=-1, and the decoder has 2 heads",
    ),
    "a head that is not copied by": (lambda: tiny_model(decoder=BART, copy_head=0), "copy_head=0 has no effect with"),
    "no cross-attention": (lambda: tiny_model(decoder=ENCODER_ALONE), "no decoder with attention to"),
    "no decoder": (lambda: tiny_model(decoder=VISION), "no decoder with attention to"),
}


@pytest.mark.parametrize(("make", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_a_transformers_decoder_cannot_have_is_refused(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()


def test_its_own_attention_is_returned_by_the_implementation_that_has_it() -> None:
    model = tiny_model(decoder=decoder("t5"))
    inputs = sources() | {"decoder_input_ids": words(), "output_attentions": True}
    assert model(**inputs).cross_attentions is None
    fast = model(**inputs).logits
    model.set_attn_implementation({"decoder": "eager"})
    output = model(**inputs)
    assert torch.allclose(output.logits, fast, atol=1e-5)
    assert torch.allclose(output.cross_attentions[0].sum(-1), torch.ones(4, 1, 6), atol=1e-5)


# --- an encoder over words ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "roberta", "bart", "m2m_100", "t5"])
def test_an_encoder_over_words_reads_their_embeddings(family: str) -> None:
    fields = {"encoder": decoder(family), "encoder_reads": "words", "encoder_hidden_size": 4, "initial_state": "mean"}
    model = tiny_model(**fields, scale=1.0)
    encoder = model.get_encoder()
    encoded = encoder(**sources())
    for row, words_of_row in enumerate(SOURCES):
        folded = [word if word < 17 else 3 for word in words_of_row]
        own = encoder.text_encoder(inputs_embeds=encoder.input_proj(encoder.embed(torch.tensor([folded]))))
        expected = encoder.states_proj(own.last_hidden_state)[0]
        assert torch.allclose(encoded.last_hidden_state[row, : len(folded)], expected, atol=1e-5)
        assert (encoded.last_hidden_state[row, len(folded) :] == 0).all()
        assert torch.allclose(encoded.final_state[row], expected.mean(0), atol=1e-5)
    left, right = (
        model(**inputs, labels=padded(TARGETS, -100), output_hidden_states=True)
        for inputs in (sources(side="left"), sources())
    )
    assert torch.allclose(left.logits, right.logits, atol=1e-4)
    for row, words_of_row in enumerate(SOURCES):
        for found, expected in zip(left.encoder_hidden_states, right.encoder_hidden_states, strict=True):
            size = len(words_of_row)
            assert torch.allclose(found[row, -size:], expected[row, :size], atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"decoder": BART}, {"copy_mechanism": "retrieval"}], ids=str)
def test_an_encoder_over_words_is_trained_searched_and_saved(changes: dict[str, Any], tmp_path: Any) -> None:
    model = tiny_model(encoder=decoder("t5", num_decoder_layers=1), encoder_reads="words", **changes)
    save_parts(tmp_path, model, tiny_tokenizer())
    loaded, tokenizer = load_model(str(tmp_path), "cpu")
    assert torch.equal(loaded(**batch()).logits, model(**batch()).logits)
    found = model.generate(**sources(), num_beams=3, max_new_tokens=5)
    assert torch.equal(found, model.generate(**sources(), num_beams=3, max_new_tokens=5, use_cache=False))
    assert len(predict(loaded, tokenizer, ["a X b", ""], max_new_tokens=4)) == 2
    model(**batch()).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_an_encoder_over_words_can_be_frozen() -> None:
    model = tiny_model(encoder=decoder("t5", num_decoder_layers=1), encoder_reads="words")
    model.freeze_encoder()
    encoder = model.train().get_encoder()
    assert encoder.is_frozen
    assert encoder.training
    assert not encoder.text_encoder.training
    model(**batch()).loss.backward()
    without = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert without == {f"model.encoder.text_encoder.{name}" for name, _ in encoder.text_encoder.named_parameters()}


def test_an_encoder_over_words_has_limits() -> None:
    with pytest.raises(ValueError, match="encoder_reads='bytes' is unknown: use one of pieces, words"):
        CopyNetConfig(encoder_reads="bytes")
    model = tiny_model(encoder=decoder("bert", max_position_embeddings=4), encoder_reads="words")
    with pytest.raises(ValueError, match="source has 8 words, and the encoder's config has 4 positions"):
        model(**sources(), decoder_input_ids=words())


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_trains_a_transformer_and_continues_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_requests(tmp_path, train=24, validation=6)
    options = ["--decoder=transformer", "--hidden_size=16", "--num_hidden_layers=1", "--use_cpu"]
    options += ["--max_steps=2", "--max_target_length=8"]
    train = ["train", *(f"--{name}={path}" for name, path in files.items()), *options]
    assert main([*train, f"--output_dir={tmp_path / 'one'}"]) == 0
    model, tokenizer = load_model(str(tmp_path / "one"))
    assert (model.config.decoder.model_type, model.config.encoder_reads) == ("m2m_100", "words")
    assert model.config.hidden_size == model.config.embedding_size == model.config.memory_size == 16
    assert predict(model, tokenizer, ["send it to Ottilie"], max_new_tokens=4)
    again = ["--model_name_or_path", str(tmp_path / "one"), f"--output_dir={tmp_path / 'two'}"]
    assert main([*train, *again]) == 0
    assert main([*train, *again, "--overwrite_output_dir", "--dropout=0.2"]) == 2
    assert "--dropout is 0.2, but the layers of the Transformers decoder" in capsys.readouterr().err


def test_the_recipe_of_a_transformer_needs_no_more_options() -> None:
    sizes = {"vocab_size": 1000, "max_source_oov": 4}
    transformer, gru = (
        CopyNetForConditionalGeneration(make_config(None, sizes | fields)).num_parameters()
        for fields in ({"decoder": "transformer"}, {})
    )
    assert 0.8 < transformer / gru < 1.1
    for fields, reason in (
        ({"decoder": "lstm"}, "--decoder is 'lstm': use gru or transformer"),
        ({"decoder": "transformer", "hidden_size": 30}, "--hidden_size is 30: use a multiple of 4"),
    ):
        with pytest.raises(ValueError, match=reason):
            make_config(None, fields)
    assert make_config(None, {"decoder": "gru"}).decoder is None
    with pytest.raises(
        ValueError, match="--preset lcsts_char has the sizes of GRUs: leave out --preset, or --decoder"
    ):
        make_config("lcsts_char", {"decoder": "transformer"})


@pytest.mark.parametrize(("max_steps", "warmup"), [(2000, 400), (300, 150)])
def test_it_warms_up_for_longer_and_for_half_of_a_short_training(max_steps: int, warmup: int) -> None:
    values = {"decoder": "transformer", "max_steps": max_steps, "output_dir": "x"}
    pairs = {"train": Dataset.from_dict({"text": ["a b"], "summary": ["a"]})}
    args = build_arguments(TrainArguments, values)
    assert complete_arguments(args, values, pairs)[1].warmup_steps == warmup


@pytest.mark.parametrize(("num_pairs", "epochs"), [(16, 8000), (704, 182), (7040, 18)])
def test_it_learns_from_few_pairs_for_longer_than_a_gru(num_pairs: int, epochs: int) -> None:
    """8,000 updates of 16 pairs, where a GRU has 3,000."""
    values: dict[str, Any] = {"decoder": "transformer", "output_dir": "x"}
    pairs = {"train": Dataset.from_dict({"text": ["a b"] * num_pairs, "summary": ["a"] * num_pairs})}
    args = build_arguments(TrainArguments, values)
    assert complete_arguments(args, values, pairs)[1].num_train_epochs == epochs
    args = build_arguments(TrainArguments, {**values, "decoder": "gru"})
    assert complete_arguments(args, values, pairs)[1].num_train_epochs == min(epochs, max(60, 3000 * 16 // num_pairs))


def test_its_embeddings_are_as_large_as_its_positions() -> None:
    """Else the layers see where words are, but hardly which."""
    sizes = {"vocab_size": 300, "max_source_oov": 0}
    model = CopyNetForConditionalGeneration(make_config(None, sizes | {"decoder": "transformer"}))
    positions = model.model.decoder.text_decoder.embed_positions.weights[1:100]
    assert 0.5 < model.get_input_embeddings().weight.std() / positions.std() < 2


def test_its_positions_say_which_word_to_copy() -> None:
    """The third to the sixth word of a source, then the first; with relative positions alone it is not learned."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "max_source_oov": 0, "hidden_size": 64, "num_hidden_layers": 2, "dropout": 0.0}
    model = CopyNetForConditionalGeneration(make_config(None, sizes | {"decoder": "transformer"})).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        words = torch.randint(4, 64, (16, 8))
        labels = torch.cat([words[:, 2:6], words[:, :1], torch.full((16, 1), 2)], dim=1)
        loss = model(input_ids=words, attention_mask=torch.ones_like(words), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.5
