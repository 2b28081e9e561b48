"""The model against the NumPy oracle, and the exactness that batching, padding and caching must not cost."""

from __future__ import annotations

import copy
import random
import re

import numpy as np
import pytest
import torch
from helpers import (
    BART,
    FEATURES,
    LETTERS,
    PLAIN,
    SOURCES,
    TARGETS,
    VARIANTS,
    batch,
    check_gradients,
    padded,
    tiny_model,
    tiny_tokenizer,
    trained,
)
from oracle import Oracle
from safetensors.torch import load_file, save_file
from transformers import DataCollatorForSeq2Seq
from transformers.modeling_outputs import BaseModelOutput

from copynet_hf import CopyNetForConditionalGeneration, CopyNetModel
from copynet_hf.model.layers import find_neighbours, pair_mentions
from copynet_hf.model.prediction import predict
from copynet_hf.model.text_models import CACHE_NAME

variants = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
# Those that read the embedding of a target word in different places.
EMBEDDING = ("defaults", "paper", "tied", "pointer_generator", "gated", "enc_dec", "transformer", "transformer_gated")
embedding = pytest.mark.parametrize("changes", [PLAIN[name] for name in EMBEDDING], ids=EMBEDDING)


def given_words(inputs):
    """The targets as decoder input, in place of the labels."""
    del inputs["labels"]
    return padded([[1, *target[:-1]] for target in TARGETS], 0)


def owned_words(model, source):
    return sorted({*range(model.config.vocab_size), *(x for x in source if x < model.config.extended_vocab_size)})


def folded(model, words):
    """What words beyond the last slot are for the oracle: UNK."""
    return [w if w < model.config.extended_vocab_size else model.config.unk_token_id for w in words]


def take_row(oracle, row):
    """Gives the oracle what it reads beside the words of a row."""
    oracle.features = FEATURES[row]
    oracle.letters = LETTERS[row] if oracle.c.letter_vocab_size else []


# --- against the oracle ---------------------------------------------------------------------------------------------


@variants
def test_probabilities_loss_and_attention_equal_the_oracles(changes):
    model = tiny_model(**changes).double()
    oracle = Oracle(model)
    output, total = model(**batch(config=model.config), output_attentions=True), 0.0
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        source, target = folded(model, source), folded(model, target)
        take_row(oracle, row)
        trace = oracle.run(source, [1, *target[:-1]])
        for t, probs in enumerate(trace.probs):
            actual = output.logits[row, t].exp()
            for word in owned_words(model, source) if model.config.copies else range(model.config.vocab_size):
                assert actual[word].item() == pytest.approx(probs[word], rel=1e-9), (row, t, word)
            if model.config.copies:
                np.testing.assert_allclose(
                    output.copy_probs[row, t, : len(source)].detach(), trace.copy_probs[t], 1e-9
                )
            if model.config.attention and ("decoder" not in changes or output.cross_attentions):  # sdpa returns none
                attention = output.cross_attentions[0][row, 0, t].detach()
                np.testing.assert_allclose(attention[: len(source)], trace.attention[t], 1e-9)
                assert (attention[len(source) :] == 0).all()
        total += oracle.loss(source, target) * len(target)
    assert output.loss.item() == pytest.approx(total / sum(len(t) for t in TARGETS), rel=1e-9)


@variants
def test_gradients_equal_finite_differences_of_the_oracle(changes):
    model = tiny_model(scale=1.0, **changes).double()
    model(**batch(rows=slice(0, 1), config=model.config)).loss.backward()
    oracle = Oracle(model)
    take_row(oracle, 0)
    source, target = folded(model, SOURCES[0]), folded(model, TARGETS[0])
    entries = 1 if "decoder" in changes else 2  # of a Transformer, which has many weights
    check_gradients(model, oracle, lambda: oracle.loss(source, target), entries)


# --- padding, batches, caches ---------------------------------------------------------------------------------------


@variants
def test_padding_left_right_or_none_gives_the_same_probabilities(changes):
    model = tiny_model(**changes).double()
    right, left = (model(**batch(side, config=model.config)) for side in ("right", "left"))
    assert torch.allclose(right.logits, left.logits, atol=1e-9)
    for row, target in enumerate(TARGETS):
        alone = model(**batch(rows=slice(row, row + 1), config=model.config))
        assert torch.allclose(right.logits[row, : len(target)], alone.logits[0], atol=1e-9)


def test_padding_never_enters_z_or_the_encoder_states_even_with_a_words_id():
    model = tiny_model()
    words = torch.tensor([[1, 13, 5]])
    plain = model(input_ids=torch.tensor([[5, 13, 6]]), decoder_input_ids=words)
    odd = model(
        input_ids=torch.tensor([[13, 5, 13, 13, 6, 5]]),
        attention_mask=torch.tensor([[0, 1, 0, 1, 1, 0]]),
        decoder_input_ids=words,
    )
    assert torch.allclose(plain.logits, odd.logits, atol=1e-5)
    assert torch.allclose(plain.copy_probs[0], odd.copy_probs[0][:, [1, 3, 4]], atol=1e-6)
    assert (odd.copy_probs[0][:, [0, 2, 5]] == 0).all()


def test_the_mask_follows_the_padding_id_when_none_is_given():
    model = tiny_model()
    inputs = batch()
    expected = model(**inputs).logits
    del inputs["attention_mask"]
    assert torch.equal(model(**inputs).logits, expected)


@variants
def test_step_by_step_with_a_cache_equals_teacher_forcing(changes):
    model = tiny_model(**changes).double()
    inputs = batch(config=model.config)
    words = given_words(inputs)
    expected = model(**inputs, decoder_input_ids=words).logits
    cache, steps = None, []
    for t in range(words.shape[1]):
        by_name = {("cache", "past_key_values")[t % 2]: cache}  # as Transformers calls it since 5.24, and before
        output = model(**inputs, decoder_input_ids=words[:, t : t + 1], **by_name, use_cache=True)
        cache = output[CACHE_NAME]
        steps.append(output.logits)
        assert cache.get_seq_length() == t + 1
    assert torch.allclose(torch.cat(steps, dim=1), expected, atol=1e-9)


def test_left_padded_target_prefixes_are_passed_over():
    model = tiny_model()
    source = torch.tensor([SOURCES[0]] * 2)
    words = torch.tensor([[0, 0, 1, 13], [1, 13, 5, 14]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    alone = model(input_ids=source[:1], decoder_input_ids=torch.tensor([[1, 13]]))
    for options in ({"decoder_attention_mask": mask}, {}, {"use_cache": True}):  # without one, padding is padding
        output = model(input_ids=source, decoder_input_ids=words, **options)
        assert torch.allclose(output.logits[0, 2:], alone.logits[0], atol=1e-5)


@pytest.mark.parametrize("use_fused", [True, False], ids=["fused", "readable"])
@pytest.mark.parametrize("start", [1, 0], ids=["start_symbol", "padding_as_start_symbol"])
@pytest.mark.parametrize("mechanism", ["copynet", "pointer_generator", "none"])
def test_labels_padded_on_the_left_train_as_on_the_right(mechanism, start, use_fused):
    model = tiny_model(
        copy_mechanism=mechanism, decoder_start_token_id=start, bos_token_id=start, use_fused=use_fused, dropout=0.0
    )
    tokenizer, losses = tiny_tokenizer(), []
    rows = [{"input_ids": source, "labels": target} for source, target in zip(SOURCES, TARGETS, strict=True)]
    for side in ("right", "left"):
        tokenizer.padding_side = side
        inputs = DataCollatorForSeq2Seq(tokenizer, model)(rows)
        labels = inputs["labels"]
        assert (labels[0, 0] == -100) == (side == "left")
        output = model(**inputs)
        own = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], labels=labels)
        assert torch.equal(own.loss, output.loss)
        words = labels.clamp(min=0)
        found = output.logits.gather(-1, words[..., None])[..., 0][labels != -100]  # in the order of the rows' targets
        losses.append((output.loss, found))
    assert torch.allclose(losses[0][0], losses[1][0], atol=1e-5)
    assert torch.allclose(losses[0][1], losses[1][1], atol=1e-5)


def test_a_masked_prompt_is_no_padding():
    model = tiny_model()
    words, labels = torch.tensor([[1, 5, 13, 6]]), torch.tensor([[-100, -100, 6, 2]])
    output = model(input_ids=torch.tensor([SOURCES[0]]), decoder_input_ids=words, labels=labels)
    plain = model(input_ids=torch.tensor([SOURCES[0]]), decoder_input_ids=words)
    assert torch.allclose(output.logits, plain.logits, atol=1e-6)


# --- target words as embeddings -------------------------------------------------------------------------------------


@embedding
def test_decoder_inputs_embeds_replace_the_embeddings_of_the_ids(changes):
    model = tiny_model(**changes)
    inputs = batch()
    words = given_words(inputs)
    embeddings = model.get_encoder().embed(words)
    expected = model(**inputs, decoder_input_ids=words).logits
    both = model(**inputs, decoder_input_ids=words, decoder_inputs_embeds=embeddings)
    assert torch.equal(both.logits, expected)
    base = model.model(**inputs, decoder_input_ids=words, decoder_inputs_embeds=embeddings)
    assert torch.equal(base.last_hidden_state, model.model(**inputs, decoder_input_ids=words).last_hidden_state)


@pytest.mark.parametrize("use_fused", [True, False], ids=["fused", "readable"])
@embedding
def test_decoder_inputs_embeds_alone_read_nothing_selectively(changes, use_fused):
    """ζ is zero, as after a word that is not in the source."""
    model = tiny_model(**changes, use_fused=use_fused)
    inputs = batch()
    labels = inputs.pop("labels")
    words = torch.tensor([[1, 4, 4], [1, 4, 5], [1, 6, 5], [1, 5, 6]])  # none of them in its row's source
    expected = model(**inputs, decoder_input_ids=words, labels=labels[:, :3])
    found = model(**inputs, decoder_inputs_embeds=model.get_encoder().embed(words), labels=labels[:, :3])
    assert torch.allclose(found.logits, expected.logits, atol=1e-6)
    assert torch.allclose(found.loss, expected.loss, atol=1e-6)


def test_target_words_are_needed_in_one_form():
    with pytest.raises(ValueError, match="decoder_input_ids is missing: pass it, decoder_inputs_embeds, or labels"):
        tiny_model()(input_ids=torch.tensor([[5]]))
    with pytest.raises(ValueError, match=r"takes the labels away: use DataCollatorForSeq2Seq\(tokenizer, model"):
        tiny_model()(input_ids=torch.tensor([[5]]), num_items_in_batch=3)


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"decoder": BART}], ids=["GRU", "BART"])
def test_selective_read_tells_two_unseen_words_apart(fields):
    source, words = torch.tensor([SOURCES[0]] * 2), torch.tensor([[1, 13, 4], [1, 14, 4]])
    with_read = tiny_model(**fields)(input_ids=source, decoder_input_ids=words).logits
    without = tiny_model(**fields, selective_read=False)(input_ids=source, decoder_input_ids=words).logits
    assert torch.allclose(without[0], without[1], atol=1e-6)  # both have the embedding of UNK
    assert (with_read[0, 1] - with_read[1, 1]).abs().max() > 1e-3


def test_after_a_given_unk_no_unseen_source_word_is_read():
    model = tiny_model(seed=2).double()
    source, words = [5, 13, 6, 14], [1, 13, model.config.unk_token_id, 4]
    probs = Oracle(model).run(source, words).probs
    actual = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([words])).logits[0].exp()
    for t, row in enumerate(probs):
        for word, expected in row.items():
            assert actual[t, word].item() == pytest.approx(expected, rel=1e-9), (t, word)


def test_words_beyond_the_last_slot_are_unk_and_never_another_word():
    model = tiny_model()
    many, folded_source = torch.tensor([[13, 16, 17, 99]]), torch.tensor([[13, 16, 3, 3]])
    labels = torch.tensor([[17, 16, 99, 2]])
    actual = model(input_ids=many, labels=labels)
    expected = model(input_ids=folded_source, labels=torch.tensor([[3, 16, 3, 2]]))
    assert torch.equal(actual.logits, expected.logits)
    assert actual.loss == expected.loss


def test_words_of_another_rows_slots_count_as_unk_as_target_and_as_input():
    model = tiny_model()
    source = torch.tensor([[13, 3, 5], [14, 15, 3]])  # UNK stands in both: a foreign word reads it, as UNK does
    foreign = model(input_ids=source, labels=torch.tensor([[14, 13, 7], [13, 15, 7]]))
    unk = model(input_ids=source, labels=torch.tensor([[3, 13, 7], [3, 15, 7]]))
    assert foreign.loss == unk.loss
    assert torch.equal(foreign.logits, unk.logits)


def test_collators_are_told_of_labels_that_the_model_has_no_column_for():
    with pytest.raises(ValueError, match="labels hold 17, but the model ends at vocab_size=13 \\+ max_source_oov=4"):
        tiny_model().prepare_decoder_input_ids_from_labels(torch.tensor([[5, 17, -100]]))


@pytest.mark.parametrize("field", ["input_ids", "decoder_input_ids", "labels"])
def test_negative_ids_are_refused_by_name(field):
    inputs = {
        "input_ids": torch.tensor([[5]]),
        "decoder_input_ids": torch.tensor([[1]]),
        "labels": torch.tensor([[2]]),
    }
    inputs[field] = torch.tensor([[-7]])
    with pytest.raises(ValueError, match=f"{field} holds -7"):
        tiny_model()(**inputs)


IDS, EMBEDDINGS = {"decoder_input_ids": torch.tensor([[1, 5]])}, {"decoder_inputs_embeds": torch.zeros(1, 2, 5)}
STATES = torch.zeros(1, 1, 6)
WRONG_CALLS = {
    "more labels than ids": (
        IDS | {"labels": torch.tensor([[5, 6, 2]])},
        r"labels has shape \(1, 3\), decoder_input_ids",
    ),
    "labels of more rows": (
        IDS | {"labels": torch.tensor([[5, 2]] * 2)},
        r"labels has shape \(2, 2\), decoder_input_ids",
    ),
    "fewer labels than embeddings": (
        EMBEDDINGS | {"labels": torch.tensor([[2]])},
        "label for each of the decoder's inp",
    ),
    "no rows of ids": (
        {"decoder_input_ids": torch.zeros(0, 1, dtype=torch.long)},
        "0 rows of target words do not match",
    ),
    "another model's encoder": (
        IDS | {"encoder_outputs": BaseModelOutput(STATES)},
        "is a BaseModelOutput, which does not",
    ),
    "states alone": (
        IDS | {"encoder_outputs": (STATES,)},
        "encoder_outputs is a tuple of 1, which does not say which",
    ),
}


@pytest.mark.parametrize(("inputs", "message"), WRONG_CALLS.values(), ids=WRONG_CALLS)
def test_wrong_calls_say_what_to_do(inputs, message):
    with pytest.raises(ValueError, match=message):
        tiny_model()(**{"input_ids": torch.tensor([[5]])} | inputs)


def test_an_argument_that_there_is_not_is_refused_with_encoder_outputs_too():
    model = tiny_model().model
    for given in ({"input_ids": torch.tensor([[5]])}, {"encoder_outputs": model.encoder(torch.tensor([[5]]))}):
        with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'decoder_atention_mask'"):
            model(**given, **IDS, decoder_atention_mask=torch.ones(1, 2))


@pytest.mark.parametrize("changes", [{}, {"copy_mechanism": "none"}, {"use_fused": False}], ids=str)
def test_a_batch_without_rows_is_refused(changes):
    model, words = tiny_model(**changes), torch.zeros(0, 3, dtype=torch.long)
    for call in (model.get_encoder(), model.generate, lambda ids: model(input_ids=ids, labels=ids)):
        with pytest.raises(ValueError, match="the batch has no rows: pass at least one source"):
            call(words)
    for call in (model.get_encoder(), model.generate):
        with pytest.raises(ValueError, match=r"input_ids has shape \(3,\): pass \(rows, words\)"):
            call(torch.tensor([5, 6, 2]))


def test_an_empty_source_generates_from_the_vocabulary_alone():
    model = tiny_model()
    empty = model(input_ids=torch.zeros(1, 0, dtype=torch.long), decoder_input_ids=torch.tensor([[1]]))
    row = model(
        input_ids=torch.tensor([[5, 6], [0, 0]]),
        attention_mask=torch.tensor([[1, 1], [0, 0]]),
        decoder_input_ids=torch.tensor([[1], [1]]),
    )
    assert torch.allclose(empty.logits[0], row.logits[1], atol=1e-6)
    assert row.copy_mass[1] == 0
    assert torch.isfinite(row.logits).all()


# --- loss and gradients ---------------------------------------------------------------------------------------------

CORNERS = {
    "source_of_one_token": ([[13]], [[13, 2]]),
    "all_copied": ([[13, 14, 15]], [[13, 14, 15]]),
    "all_generated": ([[5, 6]], [[7, 8, 2]]),
    "nothing_but_unk": ([[3, 3]], [[3, 2]]),
    "an_empty_row": ([[5, 6], []], [[5, 2], [2]]),
    "repeated_words": ([[13, 13, 13, 13]], [[13, 13, 13, 2]]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("sources", "targets"), CORNERS.values(), ids=CORNERS)
def test_every_parameter_gets_a_finite_gradient(sources, targets, dtype):
    for changes in ({}, {"use_coverage": True}):
        model = tiny_model(**changes).to(dtype).train()
        source = padded(sources, 0)
        output = model(input_ids=source, attention_mask=(source != 0).long(), labels=padded(targets, -100))
        output.loss.backward()
        assert torch.isfinite(output.loss)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name


def test_the_summed_loss_is_divided_by_the_number_of_items_given():
    model = tiny_model()
    targets = sum(len(t) for t in TARGETS)
    mean = model(**batch()).loss
    assert model(**batch(), num_items_in_batch=torch.tensor(2 * targets)).loss.item() == pytest.approx(mean.item() / 2)


@pytest.mark.parametrize("use_fused", [True, False], ids=["fused", "readable"])
@pytest.mark.parametrize("place", ["model.encoder.dropout", "model.dropout", "model.decoder.dropout"])
def test_each_dropout_acts_in_training_and_only_there(place, use_fused):
    model, inputs = tiny_model(use_fused=use_fused), batch()
    expected = model(**inputs).logits
    model.get_submodule(place).p = 0.5
    assert torch.equal(model(**inputs).logits, expected)
    model.train()
    assert not torch.allclose(model(**inputs).logits, expected, atol=1e-3)
    model.get_submodule(place).p = 0.0
    assert torch.allclose(model(**inputs).logits, expected, atol=1e-5)


def test_dropout_acts_on_embeddings_and_on_states_of_the_source():
    model, inputs = tiny_model(dropout=0.5), batch()
    model.train()
    states = model.get_encoder()(inputs["input_ids"], output_hidden_states=True).hidden_states
    for layer in states:
        assert (layer[0, : len(SOURCES[0])] == 0).any()


# --- as any Transformers model --------------------------------------------------------------------------------------


def test_encoder_outputs_can_be_given_as_the_tuple_the_encoder_returned():
    model = tiny_model()
    inputs = batch()
    labels = inputs.pop("labels")
    encoded = model.get_encoder()(**inputs, return_dict=False)
    assert torch.equal(model(encoder_outputs=encoded, labels=labels).logits, model(**inputs, labels=labels).logits)


def test_hidden_states_and_attentions_have_the_documented_shapes():
    model = tiny_model(num_hidden_layers=2)
    output = model(**batch(), output_hidden_states=True, output_attentions=True)
    assert [tuple(h.shape) for h in output.encoder_hidden_states] == [(4, 8, 5), (4, 8, 6), (4, 8, 6)]
    assert [tuple(h.shape) for h in output.decoder_hidden_states] == [(4, 5, 5), (4, 5, 7)]
    assert output.cross_attentions[0].shape == (4, 1, 5, 8)
    assert output.copy_probs.shape == (4, 5, 8)
    assert torch.allclose(output.copy_mass, output.copy_probs.sum(-1))


@variants
def test_saved_and_loaded_it_gives_the_same_outputs(changes, tmp_path):
    model = tiny_model(**changes)
    model.save_pretrained(tmp_path)
    loaded, info = CopyNetForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    inputs = batch(config=model.config)
    assert torch.equal(model(**inputs).logits, loaded(**inputs).logits)
    base = CopyNetModel.from_pretrained(tmp_path)
    words = given_words(inputs)
    assert torch.equal(
        base(**inputs, decoder_input_ids=words).last_hidden_state,
        model.model(**inputs, decoder_input_ids=words).last_hidden_state,
    )


def test_the_weights_can_be_read_by_those_who_can_read_the_config(tmp_path):
    for name, options in (("whole", {}), ("in parts", {"max_shard_size": "1KB"})):
        tiny_model().save_pretrained(tmp_path / name, **options)
        assert len({path.stat().st_mode for path in (tmp_path / name).iterdir()}) == 1


def test_weights_missing_from_a_checkpoint_are_initialised(tmp_path):
    model = tiny_model()
    model.save_pretrained(tmp_path)
    state = model.state_dict()
    gone = [name for name in state if "cell" in name or "layers.0" in name or "copy_proj" in name]
    kept = {name: value for name, value in state.items() if name not in gone}
    for dtype in (torch.float32, torch.bfloat16):
        loaded = CopyNetForConditionalGeneration.from_pretrained(
            None, config=model.config, state_dict=copy.deepcopy(kept), dtype=dtype
        )
        for name, parameter in loaded.named_parameters():
            assert torch.isfinite(parameter).all(), name
            assert parameter.abs().max() < 10, name
        hh = loaded.model.decoder.cell.weight_hh[:7].float()
        assert torch.allclose(hh @ hh.T, torch.eye(7), atol=2e-2)  # orthogonal gate by gate


def test_growing_the_vocabulary_moves_the_slots_and_keeps_the_words():
    """The two new words take their share of p(y) from all others alike."""
    model = tiny_model()
    before = model(input_ids=torch.tensor([[5, 13]]), decoder_input_ids=torch.tensor([[1, 13]])).logits[0]
    model.resize_token_embeddings(15, mean_resizing=False)
    after = model(input_ids=torch.tensor([[5, 15]]), decoder_input_ids=torch.tensor([[1, 15]])).logits[0]
    assert after.shape == (2, 19)
    shift = torch.cat([after[:, :13], after[:, 15:16]], dim=1) - before[:, :14]
    assert torch.allclose(shift, shift[:, :1].expand_as(shift), atol=1e-5)


@pytest.mark.parametrize("part", ["whole", "base"])
def test_the_vocabulary_is_not_padded_where_slots_would_become_words(part):
    model = tiny_model()
    model = model if part == "whole" else model.model
    with pytest.raises(
        ValueError, match=r"pad_to_multiple_of is 16: leave it out, .* first slot has the id len\(tokenizer\)"
    ):
        model.resize_token_embeddings(13, pad_to_multiple_of=16)
    with pytest.raises(ValueError, match="pad_to_multiple_of is 16"):
        model.resize_token_embeddings(pad_to_multiple_of=16)
    assert model.config.vocab_size == 13
    model.resize_token_embeddings(16, pad_to_multiple_of=8, mean_resizing=False)
    assert model.config.vocab_size == 16
    without_slots = tiny_model(copy_mechanism="none", max_source_oov=0)
    without_slots.resize_token_embeddings(pad_to_multiple_of=16, mean_resizing=False)
    assert without_slots.config.vocab_size == 16


def test_inputs_embeds_need_the_ids_beside_them_to_copy():
    model, plain = tiny_model(), tiny_model(copy_mechanism="none", tie_repetitions=True)
    ids, words = torch.tensor([[5, 13, 6]]), torch.tensor([[1, 5]])
    embeds = model.get_encoder().embed(ids)
    with pytest.raises(ValueError, match="pass input_ids as well"):
        model(inputs_embeds=embeds, decoder_input_ids=words)
    both = model(input_ids=ids, inputs_embeds=embeds, decoder_input_ids=words)
    assert torch.equal(both.logits, model(input_ids=ids, decoder_input_ids=words).logits)
    embeds = plain.get_encoder().embed(ids)
    alone = plain(inputs_embeds=embeds, decoder_input_ids=words)
    assert torch.equal(alone.logits, plain(input_ids=ids, decoder_input_ids=words).logits)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("inputs_embeds", (2, 4, 5), "(2, 3, 5)"),
        ("inputs_embeds", (2, 3, 4), "(2, 3, 5)"),
        ("decoder_inputs_embeds", (2, 3, 5), "(2, 4, 5)"),
    ],
)
def test_embeddings_of_another_shape_than_the_ids_are_refused(name, shape, expected):
    ids = {"input_ids": torch.full((2, 3), 5), "decoder_input_ids": torch.full((2, 4), 6)}
    said = f"{name} has shape {shape}, the ids and embedding_size require {expected}: pass one"
    with pytest.raises(ValueError, match=re.escape(said)):
        tiny_model()(**ids, **{name: torch.zeros(shape)})


def test_ids_below_zero_are_refused_at_each_step():
    model, ids = tiny_model(), torch.full((1, 2), 5)
    with torch.no_grad():
        cache = model(input_ids=ids, decoder_input_ids=ids, use_cache=True).past_key_values
        with pytest.raises(ValueError, match="decoder_input_ids holds -1"):
            model(encoder_outputs=model.get_encoder()(ids), decoder_input_ids=ids - 6, past_key_values=cache)


# ---- repeated words


def test_each_mention_is_tied_to_the_first_and_the_first_to_the_second_whatever_the_padding():
    ids = torch.tensor([[0, 14, 13, 7, 13, 14, 7, 14, 14, 13], [13, 14, 13, 0, 0, 0, 0, 0, 0, 0]])
    is_tied = ids >= 13
    is_tied[0, 1] = False  # as a word of a fact
    partners = [[0, 1, 4, 3, 2, 7, 6, 5, 5, 2], [2, 1, 0, 3, 4, 5, 6, 7, 8, 9]]
    assert pair_mentions(ids, is_tied, 15).tolist() == partners
    assert pair_mentions(ids[:, :1], is_tied[:, :1], 15).tolist() == [[0], [0]]


def test_neighbours_are_the_words_beside_whatever_the_padding():
    is_read = torch.tensor([[True, True, False, True], [False, False, True, False]])
    expected = [[[4, 4, 0, 1, 3], [4, 0, 1, 3, 4], [0, 1, 3, 4, 4]], [[4, 4, 2, 4, 4]]]
    found = find_neighbours(is_read, 2)
    assert [row[kept].tolist() for row, kept in zip(found, is_read, strict=True)] == expected
    assert found.shape == (2, 4, 5)


def test_words_that_few_sources_have_are_tied_and_frequent_ones_not():
    model = tiny_model(tie_repetitions=True)
    ties, ids = model.get_encoder().tied_repetitions, torch.tensor([[6, 5, 9, 5, 6, 13, 13]])
    assert ties.is_rare.tolist() == [False] * 4 + [True, False] * 4 + [True]
    assert ties.find_partners(ids, ids != 0).tolist() == [[4, 1, 2, 3, 0, 6, 5]]


def test_marks_of_rare_words_follow_the_vocabulary_and_are_saved(tmp_path):
    model = tiny_model(tie_repetitions=True)
    rare = model.get_encoder().tied_repetitions.is_rare.tolist()
    for size in (15, 8):
        model.resize_token_embeddings(size, mean_resizing=False)
        ties = model.get_encoder().tied_repetitions
        assert ties.is_rare.tolist() == (rare + [True] * 2)[:size]
        ids = torch.tensor([[5, 6, 7, 6, size, size]])
        assert ties.find_partners(ids, ids != 0).tolist() == [[0, 3, 2, 1, 5, 4]]
    model.save_pretrained(tmp_path)
    again = CopyNetForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(again.get_encoder().tied_repetitions.is_rare, ties.is_rare)


def test_a_model_saved_when_only_later_mentions_of_new_words_were_tied_reads_as_before(tmp_path, monkeypatch):
    model, source = tiny_model(tie_repetitions=True), torch.tensor([[5, 13, 6, 14, 6, 13, 14, 13]])
    ties = model.get_encoder().tied_repetitions
    with torch.no_grad():
        for tensor in (ties.first_embedding.weight, ties.first_proj.weight, ties.neighbour_proj.weight, ties.is_rare):
            tensor.zero_()
    model.save_pretrained(tmp_path)
    states = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in states.items() if not re.search("first_|neighbour|is_rare", name)}
    assert len(states) == len(kept) + 4
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    # missing buffers are made by empty_like, whose memory may hold anything
    monkeypatch.setattr(torch, "empty_like", lambda tensor, **kwargs: torch.ones_like(tensor, **kwargs))
    again, info = CopyNetForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not again.get_encoder().tied_repetitions.is_rare.any()
    same = [each.get_encoder()(source).last_hidden_state for each in (model, again)]
    assert torch.equal(*same)


def test_words_beyond_the_slots_are_not_repetitions_of_one_another():
    model = tiny_model(tie_repetitions=True)
    last = model.config.extended_vocab_size
    beyond, unknown = ([[5, word, 6, other, 7]] for word, other in ((last, last + 1), (last, last)))
    states = [model.get_encoder()(torch.tensor(ids)).last_hidden_state for ids in (beyond, unknown)]
    model.get_encoder().tied_repetitions = None
    assert all(torch.equal(each, model.get_encoder()(torch.tensor(beyond)).last_hidden_state) for each in states)


def test_a_name_that_is_read_again_is_told_from_another_new_one():
    """Which of two new names is read a third time: all of them have the embedding of UNK."""
    generator = random.Random(3)

    def make_pair():
        names = ["".join(generator.choices("abcdefghijklm", k=6)) for _ in range(2)]
        again = generator.randrange(2)
        return f"{names[0]} met {names[1]} , and {names[again]} spoke : first or second", ("first", "second")[again]

    model, tokenizer = trained([make_pair() for _ in range(1600)], "whitespace", tie_repetitions=True)
    texts, targets = zip(*(make_pair() for _ in range(50)), strict=True)
    outputs = predict(model, tokenizer, list(texts), num_beams=1, max_new_tokens=2)
    assert [output.text for (output,) in outputs] == list(targets)
