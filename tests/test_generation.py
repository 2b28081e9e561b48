"""`generate()` over the extended vocabulary: every way of decoding, against enumeration and teacher forcing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from helpers import (
    FEATURED,
    POINTER,
    SOURCES,
    SPELLED,
    VARIANTS,
    beside,
    sources,
    tiny_model,
    tiny_tokenizer,
    until_end,
)
from transformers import GenerationConfig
from transformers.generation import StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.model.generation import ExtendedVocabularyLogitsProcessor
from copynet_hf.model.memory import CopyNetCache
from copynet_hf.model.prediction import _count_tokens

EOS = 2
MODELS = VARIANTS | {
    "pointer": POINTER,
    "pointer_letters": POINTER | SPELLED,
    "coreqa": FEATURED | SPELLED | {"copy_mechanism": "retrieval"},
}


def log_prob(model, source, words):
    """log p(words | source), by one teacher-forced pass."""
    output = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[1, *words[:-1]]]))
    return sum(output.logits[0, t, word].item() for t, word in enumerate(words))


# --- search ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0])
def test_a_wide_beam_finds_what_enumerating_all_sequences_finds(length_penalty):
    model = tiny_model(seed=3, vocab_size=6, max_source_oov=2)
    source, longest = [4, 6, 6], 3
    words = [EOS, 3, 4, 5, 6]  # no padding, no start symbol, no slot that the source lacks
    scored = {}
    for length in range(1, longest + 1):
        for sequence in itertools.product(words, repeat=length):
            finished = sequence[-1] == EOS or length == longest
            if finished and EOS not in sequence[:-1]:
                scored[sequence] = log_prob(model, source, sequence) / length**length_penalty
    best = sorted(scored.items(), key=lambda item: -item[1])[:5]
    output = model.generate(
        input_ids=torch.tensor([source]),
        num_beams=40,
        num_return_sequences=5,
        max_new_tokens=longest,
        length_penalty=length_penalty,
        early_stopping="never",
        return_dict_in_generate=True,
        output_scores=True,
    )
    assert [tuple(until_end(row)) for row in output.sequences.tolist()] == [sequence for sequence, _ in best]
    assert output.sequences_scores.tolist() == pytest.approx([score for _, score in best], rel=1e-4)


def test_greedy_follows_the_likeliest_word_of_the_teacher_forced_model():
    model = tiny_model(seed=5)
    for source, row in zip(SOURCES, model.generate(**sources(), max_new_tokens=6).tolist(), strict=True):
        words = until_end(row)
        output = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[1, *words[:-1]]]))
        output.logits[..., :2] = -100  # neither padding nor the start symbol
        assert output.logits[0].argmax(-1).tolist() == words


@pytest.mark.parametrize(
    ("changes", "side"),
    [({}, "right"), *((changes, "left") for changes in MODELS.values())],
    ids=["right", *MODELS],
)
def test_a_batch_of_beams_gives_what_each_row_gives_alone_and_without_a_cache(changes, side):
    model = tiny_model(seed=1, **changes)
    options = {"num_beams": 3, "max_new_tokens": 7, "num_return_sequences": 2}
    inputs = sources(side=side) | beside(model.config, side=side)
    together = model.generate(**inputs, **options).tolist()
    assert model.generate(**inputs, **options, use_cache=False).tolist() == together
    for row, source in enumerate(SOURCES):
        more = beside(model.config, slice(row, row + 1))
        alone = model.generate(input_ids=torch.tensor([source]), **more, **options).tolist()
        assert [until_end(r) for r in together[2 * row : 2 * row + 2]] == [until_end(r) for r in alone]


@pytest.mark.parametrize("num_beams", [1, 4])
@pytest.mark.parametrize("changes", [{}, {"use_coverage": True}, {"copy_mechanism": "pointer_generator"}], ids=str)
def test_a_search_with_large_attention_keys_is_teacher_forcing(changes, num_beams):
    """e^(2U h_j) would overflow in float32 beyond 88."""
    model = tiny_model(seed=3, **changes)
    attention = model.model.decoder.attention
    for projection in (attention.key_proj, attention.query_proj):
        projection.weight.data *= 60
    with torch.no_grad():
        assert (2 * attention.keys(model.get_encoder()(**sources()).last_hidden_state)).abs().max() > 200
    options = {"num_beams": num_beams, "max_new_tokens": 6}
    output = model.generate(**sources(), **options, return_dict_in_generate=True, output_scores=True)
    beams = output.beam_indices if num_beams > 1 else None
    totals = model.compute_transition_scores(output.sequences, output.scores, beams).sum(-1)
    expected = [
        log_prob(model, source, until_end(row)) for source, row in zip(SOURCES, output.sequences.tolist(), strict=True)
    ]
    assert totals.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_length_of_a_call_replaces_that_of_the_model():
    model = tiny_model(seed=2)
    model.generation_config.max_new_tokens = 9
    options = {"eos_token_id": None}
    for given, length in (({}, 10), ({"max_length": 5}, 5), ({"max_length": 5, "max_new_tokens": 6}, 7)):
        assert model.generate(**sources(), **given, **options).shape[1] == length
        assert model.generate(**sources(), generation_config=GenerationConfig(**given), **options).shape[1] == length


@pytest.mark.parametrize("num_beams", [1, 3])
def test_given_encoder_outputs_replace_the_source(num_beams):
    model = tiny_model(seed=2)
    expected = model.generate(**sources(), num_beams=num_beams, max_new_tokens=5)
    encoded = model.get_encoder()(**sources())
    assert torch.equal(model.generate(encoder_outputs=encoded, num_beams=num_beams, max_new_tokens=5), expected)


@pytest.mark.parametrize("changes", [{}, {"use_coverage": True}, {"copy_mechanism": "none"}], ids=str)
def test_assisted_decoding_gives_the_greedy_output(changes):
    model, assistant = tiny_model(seed=2, **changes), tiny_model(seed=2, **changes)
    with torch.no_grad():  # an assistant that is often, but not always, right
        assistant.lm_head.weight += 0.3 * torch.randn_like(assistant.lm_head.weight)
    for source in SOURCES:
        ids = torch.tensor([source])
        expected = model.generate(input_ids=ids, max_new_tokens=12)
        assert torch.equal(model.generate(input_ids=ids, max_new_tokens=12, assistant_model=assistant), expected)
        assert torch.equal(model.generate(input_ids=ids, max_new_tokens=12, prompt_lookup_num_tokens=3), expected)
        everything = {"return_dict_in_generate": True, "output_attentions": True, "output_scores": True}
        output = model.generate(input_ids=ids, max_new_tokens=12, assistant_model=assistant, **everything)
        assert torch.equal(output.sequences, expected)
        assert len(output.cross_attentions) == len(output.scores) == expected.shape[1] - 1
    model.generation_config.num_beams = 5
    assert torch.equal(model.generate(input_ids=ids, max_new_tokens=12, assistant_model=model, num_beams=1), expected)
    for options in ({}, {"generation_config": GenerationConfig(max_new_tokens=4)}):
        with pytest.raises(ValueError, match="assistant_model is for one beam, and num_beams is 5: pass num_beams=1"):
            model.generate(input_ids=ids, assistant_model=model, **options)


@pytest.mark.parametrize("beams", [0, -1, "4"])
def test_fewer_beams_than_one_are_refused(beams):
    model, ids = tiny_model(), torch.tensor([SOURCES[0]])
    message = f"num_beams is {beams!r}: use a whole number, 1 or more"
    for options in ({"num_beams": beams}, {"generation_config": GenerationConfig(num_beams=beams)}):
        with pytest.raises(ValueError, match=message):
            model.generate(input_ids=ids, **options)


def test_sampling_draws_from_the_models_distribution():
    model = tiny_model(seed=0, scale=1.0)
    source = torch.tensor([SOURCES[0]])
    torch.manual_seed(0)
    draws = model.generate(
        input_ids=source, do_sample=True, max_new_tokens=1, num_return_sequences=4000, top_k=0, renormalize_logits=True
    )[:, 1]
    expected = model(input_ids=source, decoder_input_ids=torch.tensor([[1]])).logits[0, 0].exp()
    expected[:2] = 0
    shares = torch.bincount(draws, minlength=17) / len(draws)
    assert (shares - expected / expected.sum()).abs().max() < 0.03


def test_an_assistant_with_another_tokenizer_is_refused():
    tokenizers = {"tokenizer": tiny_tokenizer(), "assistant_tokenizer": tiny_tokenizer()}
    with pytest.raises(ValueError, match="assistant_tokenizer is set: leave it out"):
        tiny_model().generate(
            torch.tensor([[5, 13]]), assistant_model=tiny_model(vocab_size=15), max_new_tokens=3, **tokenizers
        )


def test_an_assistants_tokenizer_without_an_assistant_does_not_reach_the_model():
    model = tiny_model()
    expected = model.generate(**sources(), max_new_tokens=3)
    assert torch.equal(model.generate(**sources(), max_new_tokens=3, assistant_tokenizer=tiny_tokenizer()), expected)


# --- what may be emitted --------------------------------------------------------------------------------------------


def test_nothing_is_emitted_that_the_row_does_not_own():
    model = tiny_model(seed=0, scale=0.1)  # nearly flat: everything allowed will come up
    torch.manual_seed(0)
    drawn = model.generate(**sources(), do_sample=True, max_new_tokens=30, num_return_sequences=20, top_k=0)
    for row, words in enumerate(drawn.view(4, 20, -1)):
        seen = {w for sequence in words.tolist() for w in until_end([*sequence])}
        slots = {w for w in seen if w >= 13}
        assert slots == {w for w in SOURCES[row] if w >= 13}
        assert not seen & {0, 1}
        assert 3 in seen  # UNK is allowed unless forbidden


@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"do_sample": True}, {"num_beams": 2, "min_new_tokens": 3}], ids=str
)
def test_the_output_of_an_empty_source_ends_at_once(options):
    torch.manual_seed(0)
    model, inputs = tiny_model(), {"input_ids": torch.tensor([[0, 0], [5, 13]]), "max_new_tokens": 6}
    inputs["attention_mask"] = (inputs["input_ids"] != 0).long()
    empty, other = model.generate(**inputs, **options).tolist()
    assert empty[:2] == [1, EOS]
    assert set(empty[2:]) <= {0, EOS}
    assert other[1] != EOS
    assert model.generate(input_ids=torch.tensor([[0]]), do_sample=True, min_new_tokens=3).tolist() == [[1, EOS]]


@pytest.mark.parametrize("ends", [7, [7, 9]], ids=str)
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"min_new_tokens": 3}], ids=str)
def test_the_output_of_an_empty_source_ends_with_the_end_symbol_of_the_call(options, ends):
    inputs = {"input_ids": torch.tensor([[0, 0], [5, 13]]), "attention_mask": torch.tensor([[0, 0], [1, 1]])}
    empty = tiny_model().generate(**inputs, **options, eos_token_id=ends, max_new_tokens=6)[0].tolist()
    assert empty[1] in (7, 9)
    assert set(empty[2:]) <= {0, 7}


@pytest.mark.parametrize("where", ["argument", "generation_config", "saved"])
def test_unk_can_be_forbidden(where, tmp_path):
    model = tiny_model(seed=0, scale=0.1)
    options = {"do_sample": True, "max_new_tokens": 30, "num_return_sequences": 10, "top_k": 0}
    if where == "argument":
        options["forbid_unk"] = True
    elif where == "generation_config":
        options = {"generation_config": GenerationConfig(forbid_unk=True, bos_token_id=1, pad_token_id=0, **options)}
        options["generation_config"].eos_token_id = EOS
    else:
        model.generation_config.forbid_unk = True
        model.save_pretrained(tmp_path)
        model = CopyNetForConditionalGeneration.from_pretrained(tmp_path)
        assert model.generation_config.forbid_unk
    torch.manual_seed(0)
    assert not (model.generate(**sources(), **options) == model.config.unk_token_id).any()


def test_an_end_symbol_that_is_unk_too_is_not_forbidden():
    model = tiny_model(seed=0, scale=0.1, unk_token_id=EOS)  # as in GPT-2's vocabulary
    assert model.config.unknown_word_id is None
    options = {"do_sample": True, "max_new_tokens": 30, "num_return_sequences": 10, "top_k": 0}
    torch.manual_seed(0)
    free = model.generate(**sources(), **options)
    torch.manual_seed(0)
    assert torch.equal(model.generate(**sources(), **options, forbid_unk=True), free)
    assert (free == EOS).any()


def test_the_processor_comes_first_and_owns_by_row():
    processor = ExtendedVocabularyLogitsProcessor(
        torch.tensor([[5, 14], [13, 0]]), torch.tensor([[True, True], [True, False]]), 13, 3, [0, 1]
    )
    allowed = processor(torch.ones(2, 1, dtype=torch.long), torch.zeros(2, 16)) == 0
    assert allowed[:, 2:13].all()
    assert not allowed[:, :2].any()
    assert allowed[:, 13:].tolist() == [[False, True, False], [True, False, False]]


def test_repetition_processors_work_on_slots():
    model = tiny_model(seed=1)
    rows = model.generate(**sources(), max_new_tokens=12, no_repeat_ngram_size=1, num_beams=2).tolist()
    for row in rows:
        words = until_end(row)
        assert len(words) == len(set(words))
    penalised = model.generate(**sources(), max_new_tokens=12, repetition_penalty=50.0).tolist()
    assert any(a != b for a, b in zip(penalised, model.generate(**sources(), max_new_tokens=12).tolist(), strict=True))


# --- what comes back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_beams", "seed"), [(1, 4), (4, 4), (1, 11), (4, 11)])  # with 11 rows end early
def test_transition_scores_are_the_models_log_probabilities(num_beams, seed):
    model = tiny_model(seed=seed)
    output = model.generate(
        **sources(), num_beams=num_beams, max_new_tokens=5, return_dict_in_generate=True, output_scores=True
    )
    beams = output.beam_indices if num_beams > 1 else None
    scores = model.compute_transition_scores(output.sequences, output.scores, beams)
    for row, (source, sequence) in enumerate(zip(SOURCES, output.sequences.tolist(), strict=True)):
        words = until_end(sequence)
        total = scores[row, : len(words)].sum().item()
        assert total == pytest.approx(log_prob(model, source, words), rel=1e-4)
        if num_beams > 1:
            assert output.sequences_scores[row].item() == pytest.approx(total / len(words), rel=1e-4)
        assert (scores[row, len(words) :] == 0).all()
    normalized = model.compute_transition_scores(output.sequences, output.scores, beams, normalize_logits=True)
    assert normalized.shape == scores.shape
    assert (normalized <= 1e-6).all()


@pytest.mark.parametrize("returned", [1, 2])
@pytest.mark.parametrize("seed", [10, 13, 14])
def test_transition_scores_add_up_where_the_search_outlasts_its_outputs(seed, returned):
    """Other beams went on, so there are more scores than words."""
    model = tiny_model(seed=seed)
    model.lm_head.weight.data[EOS] *= 2
    options = {"num_beams": 4, "num_return_sequences": returned, "length_penalty": 0.0, "max_new_tokens": 8}
    output = model.generate(**sources(), **options, return_dict_in_generate=True, output_scores=True)
    longest = output.sequences.shape[1] - 1
    assert len(output.scores) > longest or returned == 2
    scores = model.compute_transition_scores(output.sequences, output.scores, output.beam_indices)
    assert scores.shape == (4 * returned, longest)
    assert torch.allclose(scores.sum(-1), output.sequences_scores, rtol=1e-4)
    for row, sequence in enumerate(output.sequences.tolist()):
        words = until_end(sequence)
        assert scores[row].sum().item() == pytest.approx(log_prob(model, SOURCES[row // returned], words), rel=1e-4)
        assert (scores[row, len(words) :] == 0).all()


class EndsAt(StoppingCriteria):
    """Ends a row at the given word."""

    def __init__(self, word):
        self.word = word

    def __call__(self, input_ids, scores, **kwargs):
        return input_ids[:, -1] == self.word


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("ends_by", ["argument", "criterion"])
def test_transition_scores_are_zero_after_any_end(ends_by, num_beams):
    model = tiny_model(seed=4)
    options = {"eos_token_id": 9} if ends_by == "argument" else {"stopping_criteria": [EndsAt(9)]}
    options |= {"num_beams": num_beams, "max_new_tokens": 5}
    output = model.generate(**sources(), **options, return_dict_in_generate=True, output_scores=True)
    beams = output.beam_indices if num_beams > 1 else None
    scores = model.compute_transition_scores(output.sequences, output.scores, beams)
    is_padding = output.sequences[:, 1:] == 0
    assert is_padding.any() or num_beams > 1
    assert (scores[is_padding] == 0).all()
    for source, words, row in zip(SOURCES, output.sequences[:, 1:].tolist(), scores, strict=True):
        kept = [word for word in words if word]
        assert row.sum().item() == pytest.approx(log_prob(model, source, kept), rel=1e-4)


def test_a_streamer_sees_every_word_in_order():
    class Collect(BaseStreamer):
        def __init__(self):
            self.seen, self.ended = [], False

        def put(self, value):
            self.seen.extend(value.flatten().tolist())

        def end(self):
            self.ended = True

    streamer, model = Collect(), tiny_model(seed=5)
    row = model.generate(input_ids=torch.tensor([SOURCES[0]]), max_new_tokens=6, streamer=streamer)
    assert streamer.seen == row[0].tolist()
    assert streamer.ended


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_trace_tells_what_was_copied_from_where(num_beams):
    model = tiny_model(seed=1)
    sequences = model.generate(**sources(), num_beams=num_beams, num_return_sequences=num_beams, max_new_tokens=6)
    trace = model.trace_copies(sequences, **sources())
    rows = [source for source in SOURCES for _ in range(num_beams)]
    assert trace.copied.shape == trace.source_positions.shape == (len(rows), sequences.shape[1] - 1)
    for n, (source, sequence) in enumerate(zip(rows, sequences.tolist(), strict=True)):
        words = until_end(sequence)
        assert trace.token_probs[n].log()[: len(words)].sum().item() == pytest.approx(
            log_prob(model, source, words), rel=1e-3
        )
        for t, word in enumerate(words):
            position = int(trace.source_positions[n, t])
            if word in source:
                assert source[position] == word
                mass = sum(float(trace.copy_probs[n, t, j]) for j, x in enumerate(source) if x == word)
                assert float(trace.copied[n, t]) == pytest.approx(mass / float(trace.token_probs[n, t]), rel=1e-4)
                if word >= 13:
                    assert float(trace.copied[n, t]) == pytest.approx(1.0)
            else:
                assert position == -1
                assert float(trace.copied[n, t]) == 0.0
        assert (trace.copied[n, len(words) :] == 0).all()
        assert (trace.source_positions[n, len(words) :] == -1).all()


ENDED = {
    "padding": ([5, 6, EOS, 0, 0], 3),
    "the end symbol as padding": ([5, 6, EOS, EOS], 3),
    "a stop string": ([5, 6, 0, 0], 2),
    "padding that was generated": ([5, 0, 6, EOS, 0], 4),
    "padding that was generated last": ([5, 0, EOS, 0], 3),
    "an end symbol that ended nothing": ([5, EOS, 6, EOS, EOS], 4),
    "nothing": ([EOS, 0], 1),
    "no end": ([5, 6, 7], 3),
}


def test_no_probability_is_above_1_where_rounding_takes_its_logarithm_above_0(monkeypatch):
    model = tiny_model()
    forward = model.forward

    def forward_with_rounding(**inputs):
        output = forward(**inputs)
        output.logits = torch.full_like(output.logits, 7e-7)
        return output

    monkeypatch.setattr(model, "forward", forward_with_rounding)
    trace = model.trace_copies(torch.tensor([[1, 5, EOS]]), input_ids=torch.tensor([SOURCES[0]]))
    assert trace.token_probs.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(("words", "length"), ENDED.values(), ids=ENDED)
def test_an_output_has_one_end_for_trace_and_predictions(words, length):
    trace = tiny_model().trace_copies(torch.tensor([[1, *words]]), input_ids=torch.tensor([SOURCES[0]]))
    assert (trace.token_probs[0] > 0).tolist() == [place < length for place in range(len(words))]
    assert _count_tokens(np.array([words]), [EOS], 0, None).tolist() == [length]


def test_the_end_symbol_of_the_call_or_else_of_the_generation_config_ends_an_output():
    model, words = tiny_model(), torch.tensor([[1, 5, 9, 9, 9]])
    by_call = model.trace_copies(words, input_ids=torch.tensor([SOURCES[0]]), eos_token_id=9)
    model.generation_config.eos_token_id = 9
    by_config = model.trace_copies(words, input_ids=torch.tensor([SOURCES[0]]))
    for trace in (by_call, by_config):
        assert (trace.token_probs[0] > 0).tolist() == [True, True, False, False]


def test_the_trace_of_a_model_that_does_not_copy_has_probabilities_alone():
    model = tiny_model(copy_mechanism="none")
    trace = model.trace_copies(torch.tensor([[1, 5, EOS]] * len(SOURCES)), **sources())
    for source, probs in zip(SOURCES, trace.token_probs, strict=True):
        assert probs.log().sum().item() == pytest.approx(log_prob(model, source, [5, EOS]), rel=1e-3)
    assert not trace.copied.any()
    assert not trace.copy_probs.any()
    assert (trace.source_positions == -1).all()


def test_sequences_that_do_not_fit_the_sources_are_refused():
    with pytest.raises(ValueError, match="3 sequences cannot belong to 4 sources"):
        tiny_model().trace_copies(torch.ones(3, 2, dtype=torch.long), **sources())


# --- the cache ------------------------------------------------------------------------------------------------------


def decoded(model, words, cache=None):
    return model(**sources(), decoder_input_ids=words, past_key_values=cache, use_cache=True)


def test_a_recorded_cache_rolls_back():
    model = tiny_model()
    words = torch.tensor([[1, 5, 13, 6]] * 4)
    cache = CopyNetCache()
    cache.activate_past_recording()
    decoded(model, words, cache)
    expected = decoded(model, words).logits
    for kept in (2, 3, 1, 0):
        cache.crop(kept - 4)
        assert cache.get_seq_length() == kept
        assert torch.allclose(decoded(model, words[:, kept:], cache).logits, expected[:, kept:], atol=1e-6)


def test_a_cache_without_records_refuses_to_roll_back():
    cache = decoded(tiny_model(), torch.tensor([[1, 5]] * 4)).past_key_values
    with pytest.raises(ValueError, match="activate_past_recording"):
        cache.crop(-1)


def test_a_cache_that_is_reset_starts_again():
    model = tiny_model()
    words = torch.tensor([[1, 5], [1, 13], [1, 7], [1, 8]])
    cache = decoded(model, words).past_key_values
    cache.reset()
    assert cache.get_seq_length() == 0
    assert torch.allclose(decoded(model, words, cache).logits, decoded(model, words).logits, atol=1e-6)


def test_a_cache_of_keys_and_values_is_refused():
    model = tiny_model()
    for name, value in (("cache_implementation", "static"), ("prefill_chunk_size", 2)):
        with pytest.raises(ValueError, match=f"{name}={value!r} is for the library's caches, .*: leave it out"):
            model.generate(**sources(), **{name: value}, max_new_tokens=2)
    from transformers import DynamicCache

    with pytest.raises(ValueError, match="DynamicCache"):
        decoded(model, torch.tensor([[1]] * 4), DynamicCache())
