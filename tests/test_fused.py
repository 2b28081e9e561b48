"""The hand-written recurrences give the readable ones' numbers and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import (
    DISTINCT,
    FEATURED,
    PLAIN,
    POINTER,
    READERS,
    SOURCES,
    SPELLED,
    TARGETS,
    batch,
    beside,
    padded,
    sources,
    tiny_model,
)
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from copynet_hf.model import fast, fast_step
from copynet_hf.model.copy_distribution import vocabulary_terms
from copynet_hf.model.decoder import CopyNetDecoder
from copynet_hf.model.fast_copynet import FusedDecoder
from copynet_hf.model.fast_step import RecurrentWeights
from copynet_hf.model.gru import FusedGRU, gru_states
from copynet_hf.model.loss import FusedVocabularyTerms

VARIANTS = {
    **PLAIN,
    "context_and_embedding": {"readout": ["state", "context", "embedding"]},  # the gates take ζ, the readout does not
}
READING = VARIANTS | READERS
SEARCHED = {  # Transformers decoders have no steps of this kind, and of losses a search knows nothing
    name: changes
    for name, changes in READING.items()
    if "decoder" not in changes and name not in ("coverage_loss", "gated_summed", "rnnsearch_coverage")
}
COREQA = FEATURED | SPELLED | {"copy_mechanism": "retrieval"}
NO_FEATURES = (None, None, None)


def inputs(directions, steps, batch, size, dtype):
    torch.manual_seed(0)
    keep = torch.rand(directions, steps, batch, 1) > 0.3
    tensors = [
        torch.randn(directions, steps, batch, 3 * size, dtype=torch.float64),
        torch.randn(directions, size, 3 * size, dtype=torch.float64) / size**0.5,
        torch.randn(directions, 1, 3 * size, dtype=torch.float64),
    ]
    gates, weight, bias = (tensor.to(dtype).requires_grad_() for tensor in tensors)
    return gates, keep, weight, bias


@pytest.mark.parametrize("shape", [(2, 7, 3, 5), (1, 1, 1, 1), (2, 33, 65, 9)], ids=str)
def test_states_and_gradients_match_the_readable_form_in_float64(shape):
    gates, keep, weight, bias = inputs(*shape, torch.float64)
    expected, actual = gru_states(gates, keep, weight, bias), FusedGRU.apply(gates, keep, weight, bias)
    assert torch.allclose(actual, expected, rtol=0, atol=1e-13)
    upstream = torch.randn_like(expected)
    grads = [torch.autograd.grad(states, (gates, weight, bias), upstream) for states in (expected, actual)]
    for a, b in zip(*grads, strict=True):
        assert ((a - b).abs().max() / a.abs().max().clamp(min=1e-30)) < 1e-12


def test_bfloat16_stays_within_one_percent():
    gates, keep, weight, bias = inputs(2, 20, 4, 16, torch.bfloat16)
    exact = gru_states(gates.double(), keep, weight.double(), bias.double())
    assert (FusedGRU.apply(gates, keep, weight, bias) - exact).abs().max() < 2e-2


def outputs_and_gradients(use_fused, dtype, **changes):
    model = tiny_model(use_fused=use_fused, scale=1.0, **changes).to(dtype)
    output = model(**batch(config=model.config), output_attentions=True)
    loss = output.loss
    for extra in (output.copy_probs, *(output.cross_attentions or ())):  # gradients of these count as well
        loss = loss if extra is None else loss + extra.pow(2).sum()
    loss.backward()
    return output, {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("changes", [*READING.values(), COREQA], ids=[*READING, "coreqa"])
def test_a_whole_model_learns_the_same_with_and_without_it(changes):
    readable, expected = outputs_and_gradients(False, torch.float64, **changes)
    fused, actual = outputs_and_gradients(True, torch.float64, **changes)
    assert torch.allclose(fused.logits, readable.logits, rtol=0, atol=1e-12)
    for name, gradient in expected.items():
        scale = gradient.abs().max().clamp(min=1e-6)
        assert ((actual[name] - gradient).abs().max() / scale) < 1e-10, name


@pytest.mark.parametrize("changes", [{}, {"use_coverage": True}, {"readout": ["state"]}, FEATURED], ids=str)
def test_a_whole_model_in_bfloat16_stays_close(changes):
    exact, expected = outputs_and_gradients(False, torch.float64, **changes)
    fused, actual = outputs_and_gradients(True, torch.bfloat16, **changes)
    assert (fused.logits.exp() - exact.logits.exp()).abs().max() < 2e-2
    for name, gradient in expected.items():
        assert (actual[name] - gradient).abs().max() < 0.1 * max(gradient.abs().max(), 0.1), name


@pytest.mark.parametrize(("attends_after", "with_features"), [(False, False), (True, True)])
def test_the_decoders_gradients_with_dropout_match_finite_differences(attends_after, with_features):
    torch.manual_seed(0)
    steps, batch, positions, count, size, width, attention = 3, 2, 4, 3, 3, 4, 2
    tensors = {
        "inputs": torch.randn(steps, batch, 4 * size),
        "hidden_states": torch.randn(batch, positions, width),
        "keys": torch.randn(batch, positions, attention),
        "copy_keys": torch.randn(batch, positions, size),
        "initial": torch.randn(batch, size),
        "feature_keys": torch.randn(batch, count, attention),
        "feature_contents": torch.randn(batch, count, width),
    }
    weights = RecurrentWeights(
        state=torch.randn(3 * size + attention, size),
        state_bias=torch.randn(3 * size + attention),
        score=torch.randn(attention),
        coverage=torch.randn(attention),
        context=torch.randn(4 * size, width),
        selective=torch.randn(3 * size, width),
        readout=torch.randn(size, size),
    )
    dropped = (torch.rand(steps, batch, size) > 0.3).double() / 0.7
    mask = torch.tensor([[True] * 4, [True, True, False, True]])
    matches = torch.rand(steps, batch, positions) > 0.4
    matches[1, 0] = torch.tensor([True, False, True, True])
    matches[2, 1] = False

    feature_mask = torch.tensor([[True, False, True], [False] * 3])

    def run(inputs, hidden_states, keys, copy_keys, initial, feature_keys, feature_contents, *weights):
        memory = (mask, hidden_states, keys, copy_keys)
        features = (feature_keys, feature_contents, feature_mask) if with_features else NO_FEATURES
        return FusedDecoder.apply(
            inputs, dropped, matches & mask, initial, attends_after, *memory, *features, *weights
        )

    assert torch.autograd.gradcheck(run, [x.double().requires_grad_() for x in (*tensors.values(), *weights)])


def test_coverage_adds_up_in_bfloat16():
    """700 steps over 40 places: the more is covered, the more even is the attention. bfloat16 adds up to 8."""

    def run(dtype):
        size, steps, positions = 3, 700, 40
        keys = torch.linspace(-6, -2, positions, dtype=dtype).view(1, -1, 1).requires_grad_()
        state, context = torch.zeros(3 * size + 1, size, dtype=dtype), torch.zeros(3 * size, 4, dtype=dtype)
        score, covering = (torch.tensor([value], dtype=dtype, requires_grad=True) for value in (2.0, 0.25))
        weights = RecurrentWeights(state, state[:, 0], score, covering, context, None, None)
        inputs, hidden_states = torch.zeros(steps, 1, 3 * size, dtype=dtype), torch.zeros(1, positions, 4, dtype=dtype)
        mask, initial = torch.ones(1, positions, dtype=torch.bool), torch.zeros(1, size, dtype=dtype)
        memory = (initial, False, mask, hidden_states, keys, None, *NO_FEATURES)
        attention = FusedDecoder.apply(inputs, None, None, *memory, *weights)[2]
        (attention[:, 0, -1] / steps).sum().backward()
        return attention.double(), covering.grad.double()

    (exact, exact_gradient), (half, gradient) = run(torch.float64), run(torch.bfloat16)
    assert torch.allclose(half, exact, rtol=0.05)
    assert torch.allclose(gradient, exact_gradient, rtol=0.05)


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 1, 1), (3, 40, 7001)], ids=str)
def test_sums_over_the_vocabulary_match_the_readable_form(shape, reuse):
    torch.manual_seed(0)
    scores = torch.randn(shape, dtype=torch.float64) * 30
    words = torch.randint(shape[-1], shape[:2])
    upstream = [torch.randn(shape[:2], dtype=torch.float64) for _ in range(2)]
    readable, fused = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    expected, actual = vocabulary_terms(readable, words), FusedVocabularyTerms.apply(fused * 1, words, reuse)
    for a, b in zip(expected, actual, strict=True):
        assert torch.allclose(a, b, rtol=1e-14)
    torch.autograd.backward(expected, upstream)
    torch.autograd.backward(actual, upstream)
    assert torch.allclose(readable.grad, fused.grad, rtol=1e-12, atol=1e-14)


def test_bfloat16_scores_are_summed_in_float32():
    scores = torch.zeros(1, 1, 5000, dtype=torch.bfloat16)
    _, log_sum = FusedVocabularyTerms.apply(scores, torch.zeros(1, 1, dtype=torch.long), False)
    assert log_sum.dtype == torch.float32
    assert log_sum.item() == pytest.approx(math.log(5000), abs=1e-5)


class Allocations(TorchDispatchMode):
    """Counts the tensors of at least `size` elements that are made."""

    def __init__(self, size):
        super().__init__()
        self.size, self.made = size, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            new = isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in known
            if new and x.untyped_storage().nbytes() >= self.size * x.element_size():
                self.made.append(str(func))
        return result


def test_in_training_the_scores_are_the_only_tensor_of_their_size():
    torch.manual_seed(0)
    model = tiny_model(vocab_size=2000).train()
    ids = torch.randint(5, 2000, (16, 30))
    with Allocations(16 * 30 * 2000) as allocations:
        model(input_ids=ids, labels=ids, num_items_in_batch=480).loss.backward()
    assert len(allocations.made) == 1, allocations.made  # the product with the vocabulary's weights


def test_a_second_backward_needs_scores_that_were_kept():
    ids = padded(SOURCES, 0)
    model = tiny_model().train()
    loss = model(input_ids=ids, labels=ids, skip_logits=True).loss
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="skip_logits=False"):
        loss.backward()
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids, skip_logits=False).loss
    loss.backward(retain_graph=True)
    first = [parameter.grad.clone() for parameter in model.parameters()]
    loss.backward()
    assert all(torch.allclose(p.grad, 2 * g) for p, g in zip(model.parameters(), first, strict=True))


@pytest.mark.parametrize(
    ("changes", "use_fused"),
    [
        *((changes, True) for changes in (*VARIANTS.values(), POINTER)),
        *((changes, False) for changes in DISTINCT.values()),
    ],
    ids=[*VARIANTS, "pointer", *(f"{name}, readable" for name in DISTINCT)],
)
def test_skipping_the_logits_changes_neither_loss_nor_gradients(changes, use_fused):
    """Without logits, the loss is computed from the scores."""
    results = []
    for skip_logits in (False, True):
        model = tiny_model(use_fused=use_fused, scale=1.0, **changes).double().train()
        output = model(**batch(config=model.config), skip_logits=skip_logits)
        output.loss.backward()
        results.append((output, [parameter.grad for parameter in model.parameters()]))
    (kept, gradients), (skipped, others) = results
    assert skipped.logits is None
    assert skipped.copy_mass is None
    assert torch.allclose(kept.loss, skipped.loss, rtol=1e-12)
    assert all(torch.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(gradients, others, strict=True))


def test_the_gradient_of_a_likely_word_survives_bfloat16_with_logits():
    gradients = []
    for dtype in (torch.float64, torch.bfloat16):
        model = tiny_model(copy_mechanism="none", max_source_oov=0, scale=0.0).to(dtype)
        model.lm_head = torch.nn.Linear(7, 13, dtype=dtype)
        model.lm_head.bias.data.zero_()[5] = 11.5  # p = 0.9999
        ids = torch.tensor([[5]])
        model(input_ids=ids, labels=ids, skip_logits=False).loss.backward()
        gradients.append(model.lm_head.bias.grad.double())
    assert torch.allclose(*gradients, rtol=0.1, atol=1e-8)
    assert gradients[0][5] < 0


def test_only_a_training_loop_that_sums_the_loss_itself_gets_no_logits_unasked():
    ids = padded(SOURCES, 0)
    model = tiny_model().train()
    assert model(input_ids=ids, labels=ids).logits is not None
    assert model(input_ids=ids, decoder_input_ids=ids, num_items_in_batch=4).logits is not None
    assert model(input_ids=ids, labels=ids, num_items_in_batch=4, skip_logits=False).logits is not None
    assert model(input_ids=ids, labels=ids, num_items_in_batch=4).logits is None
    model.eval()
    assert model(input_ids=ids, labels=ids, num_items_in_batch=4).logits is not None


@pytest.mark.parametrize(
    ("changes", "words_ahead"),
    [
        *((changes, 16) for changes in SEARCHED.values()),
        *((VARIANTS[name], 0) for name in ("defaults", "coverage", "pointer_generator", "two_layers")),
    ],
    ids=str,
)
def test_searches_give_the_readable_steps_numbers(changes, words_ahead, monkeypatch):
    """Greedy and with beams, whether or not the memory is projected before the search."""
    monkeypatch.setattr(fast, "_EXPECTED_WORDS", words_ahead)
    for beams in (1, 3):
        results = []
        for use_fused in (False, True):
            model = tiny_model(use_fused=use_fused, scale=1.0, **changes).double()
            kwargs = {"num_beams": beams, "max_new_tokens": 6, "output_logits": True, "return_dict_in_generate": True}
            results.append(model.generate(**sources(), **beside(model.config), **kwargs))
        readable, fused = results
        assert torch.equal(readable.sequences, fused.sequences)
        for a, b in zip(readable.logits, fused.logits, strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-6)  # generate() keeps them in float32


def test_a_search_in_bfloat16_stays_close():
    source = padded(SOURCES, 0)
    words = torch.randint(1, 10, (source.shape[0], 5), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # a cache begins a search
        exact = tiny_model(scale=1.0, use_fused=False).double()(input_ids=source, decoder_input_ids=words)
        fused = tiny_model(scale=1.0).bfloat16()(input_ids=source, decoder_input_ids=words, use_cache=True)
    assert (fused.logits.exp() - exact.logits.exp()).abs().max() < 2e-2


@pytest.mark.parametrize("words_ahead", [0, 16])
def test_a_search_projects_its_memory(words_ahead, monkeypatch):
    monkeypatch.setattr(fast, "_EXPECTED_WORDS", words_ahead)

    def plan(rows_per_source):
        start = torch.ones(rows_per_source * len(SOURCES), 1, dtype=torch.long)
        cache = tiny_model()(input_ids=padded(SOURCES, 0), decoder_input_ids=start, use_cache=True).past_key_values
        return cache.layer.runner

    with torch.no_grad():
        for rows_per_source in (1, 2):
            made = plan(rows_per_source)
            assert (made.context is not None) == (made.selective is not None) == bool(words_ahead)
    assert plan(2) is None  # gradients are recorded: the steps are the readable ones


@pytest.mark.parametrize("use_coverage", [False, True])
@pytest.mark.parametrize("sources_at_once", [1, 3])
def test_attention_in_pieces_is_the_attention(sources_at_once, use_coverage, monkeypatch):
    source = padded(SOURCES, 0)
    model = tiny_model(use_coverage=use_coverage, scale=1.0).double()
    kwargs = {"num_beams": 3, "max_new_tokens": 5, "output_logits": True, "return_dict_in_generate": True}
    whole = model.generate(source, **kwargs)
    size = sources_at_once * 3 * source.shape[1] * model.config.attention_size // torch.get_num_threads()
    monkeypatch.setattr(fast_step, "_UNITS_PER_THREAD", size)
    pieces = model.generate(source, **kwargs)
    assert all(torch.allclose(a, b) for a, b in zip(whole.logits, pieces.logits, strict=True))


@pytest.mark.parametrize("changes", [*DISTINCT.values(), COREQA], ids=[*DISTINCT, "coreqa"])
def test_autocast_trains_and_searches(changes):
    model = tiny_model(scale=1.0, **changes).train()
    inputs = batch(config=model.config)
    plain = model(**inputs).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**inputs).loss
        loss.backward()
        del inputs["labels"]
        words = model.eval().generate(**inputs, num_beams=3, max_new_tokens=4)
    assert torch.allclose(loss, plain, rtol=0.05)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert words.shape[0] == len(SOURCES)


@pytest.mark.parametrize("changes", [{}, {"use_coverage": True}, {"copy_mechanism": "none"}], ids=str)
def test_autocast_may_begin_behind_the_encoder(changes):
    """As in a Trainer that trains in bf16 and generates: it patches the model's forward alone."""
    source = padded(SOURCES, 0)
    model = tiny_model(scale=1.0, **changes)
    with torch.no_grad():
        encoded = model.get_encoder()(source)
        for beams in (1, 3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                words = model.generate(source, encoder_outputs=encoded, num_beams=beams, max_new_tokens=3)
                found = model(encoder_outputs=encoded, decoder_input_ids=words).logits
            expected = model(encoder_outputs=encoded, decoder_input_ids=words).logits
            torch.testing.assert_close(found.exp(), expected.exp(), rtol=0.1, atol=0.01)


def test_a_cache_of_a_search_can_be_continued_with_gradients():
    source, words = padded(SOURCES, 0), torch.ones(len(SOURCES), 2, dtype=torch.long)
    gradients = []
    for use_fused in (False, True):
        model = tiny_model(use_fused=use_fused, scale=1.0).double()
        with torch.no_grad():
            cache = model(input_ids=source, decoder_input_ids=words, use_cache=True).past_key_values
        encoded = model.get_encoder()(source)
        output = model(encoder_outputs=encoded, decoder_input_ids=words, past_key_values=cache)
        output.logits.exp().pow(2).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    readable, fused = gradients
    assert "model.decoder.cell.weight_hh" in readable
    assert readable.keys() == fused.keys()
    assert all(torch.allclose(readable[name], fused[name], rtol=0, atol=1e-12) for name in readable)


@pytest.mark.parametrize("changes", [{}, {"copy_mechanism": "none"}, POINTER], ids=str)
def test_second_order_gradients_are_right_or_refused(changes):
    """Also where the incoming gradient needs none, as that of a loss; a Hessian-vector product is the example."""

    def curvature(**options):
        model = tiny_model(scale=1.0, **changes, **options).double().train()
        weight = model.model.encoder.embed_tokens.weight
        loss = model(**batch(config=model.config), num_items_in_batch=8).loss
        (gradient,) = torch.autograd.grad(loss, weight, create_graph=True)
        return torch.autograd.grad(gradient.pow(2).sum(), weight)[0]

    assert curvature(use_fused=False).abs().max() > 0
    with pytest.raises(RuntimeError, match="second-order gradients: set use_fused=False"):
        curvature()


@pytest.mark.parametrize("changes", DISTINCT.values(), ids=DISTINCT)
def test_a_cropped_cache_begins_again_with_other_sources(changes):
    source, words = padded(SOURCES, 0), torch.tensor([[1, 5], [1, 13]])
    model = tiny_model(scale=1.0, **changes)
    with torch.no_grad():
        first, second = (model.get_encoder()(rows) for rows in (source[:2], source[2:]))
        cache = model(encoder_outputs=first, decoder_input_ids=words, use_cache=True).past_key_values
        if cache.layer.states.hidden.shape[1] < 2:  # only the last state is kept
            cache.reset()
            cache.activate_past_recording()
            model(encoder_outputs=first, decoder_input_ids=words, past_key_values=cache)
        cache.crop(-2)
        again = model(encoder_outputs=second, decoder_input_ids=words, past_key_values=cache).logits
        assert torch.equal(again, model(encoder_outputs=second, decoder_input_ids=words, use_cache=True).logits)


def test_dropout_can_begin_within_a_search():
    source, words = padded(SOURCES, 0), torch.ones(len(SOURCES), 1, dtype=torch.long)
    model = tiny_model(scale=1.0, dropout=0.5)
    logits = []
    with torch.no_grad():
        for _ in range(2):
            model.model.decoder.dropout.eval()
            cache = model(input_ids=source, decoder_input_ids=words, use_cache=True).past_key_values
            model.model.decoder.dropout.train()
            logits.append(model(input_ids=source, decoder_input_ids=words, past_key_values=cache).logits)
    assert not torch.equal(*logits)


def test_rows_that_do_not_continue_a_search_are_named():
    source, words = padded(SOURCES, 0), torch.ones(len(SOURCES), 1, dtype=torch.long)
    model = tiny_model()
    with torch.no_grad():
        cache = model(input_ids=source, decoder_input_ids=words, use_cache=True).past_key_values
        with pytest.raises(ValueError, match="8 rows of target words continue 4"):
            model(input_ids=source, decoder_input_ids=words.repeat(2, 1), past_key_values=cache)
        with pytest.raises(ValueError, match="at least the start symbol"):
            model(input_ids=source, decoder_input_ids=words[:, :0])


class OtherDecoder(CopyNetDecoder):
    """A decoder of one's own: every r_t is the negative of CopyNet's."""

    def step(self, *args):
        step = super().step(*args)
        return step._replace(readout=-step.readout)


def test_a_decoder_of_ones_own_runs_its_own_steps():
    source, labels = padded(SOURCES, 0), padded(TARGETS, -100)
    results = []
    for use_fused in (False, True):
        model = tiny_model(use_fused=use_fused, scale=1.0).double()
        plain = model(input_ids=source, labels=labels).loss
        model.model.decoder.__class__ = OtherDecoder
        results.append((model(input_ids=source, labels=labels).loss, model.generate(source, num_beams=2)))
        assert results[-1][0] != plain
    assert torch.allclose(results[0][0], results[1][0], rtol=1e-12)
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize(
    ("owner", "method"),
    [("", "step"), ("", "_read"), ("attention", "scores"), ("cell", "forward"), ("dropout", "forward")],
)
def test_a_method_that_was_replaced_is_called(owner, method):
    source, labels = padded(SOURCES, 0), padded(TARGETS, -100)
    calls = []
    model = tiny_model(scale=1.0).double()
    module = model.model.decoder.get_submodule(owner)
    original = getattr(module, method)
    setattr(module, method, lambda *args, **kwargs: calls.append(method) or original(*args, **kwargs))
    model(input_ids=source, labels=labels).loss.backward()
    assert len(calls) == labels.shape[1]
    model.generate(source, max_new_tokens=2, min_new_tokens=2)
    assert len(calls) > labels.shape[1]


def test_a_replaced_embedding_does_its_own_work():
    class Shifted(torch.nn.Embedding):
        def forward(self, ids):
            return super().forward(ids) + 1

    words = []
    for use_fused in (False, True):
        model = tiny_model(use_fused=use_fused, scale=1.0).double()
        model.model.encoder.embed_tokens.__class__ = Shifted
        kwargs = {"max_new_tokens": 5, "output_logits": True, "return_dict_in_generate": True}
        words.append(torch.stack(model.generate(padded(SOURCES, 0), num_beams=2, **kwargs).logits))
    assert torch.allclose(*words, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_likely_words_gradient_survives_half_precision(dtype):
    scores = torch.zeros(1, 1, 100, dtype=dtype)
    scores[..., 3] = 11.5  # p = 0.999
    words = torch.full((1, 1), 3)
    gradients = []
    for function in (vocabulary_terms, lambda s, w: FusedVocabularyTerms.apply(s, w, False)):
        leaf = scores.clone().requires_grad_()
        chosen, log_sum = function(leaf, words)
        (log_sum - chosen).sum().backward()
        gradients.append(leaf.grad.float())
    readable, fused = gradients
    assert readable[..., 3].item() < -1e-4
    assert torch.allclose(readable, fused, rtol=2e-2, atol=1e-8)


@pytest.mark.parametrize("reuse", [False, True])
def test_scores_may_lie_in_any_order(reuse):
    torch.manual_seed(0)
    leaf = torch.randn(4, 3, 50, dtype=torch.float64, requires_grad=True)
    words = torch.randint(50, (3, 4))
    gradients = []
    for function in (vocabulary_terms, lambda s, w: FusedVocabularyTerms.apply(s, w, reuse)):
        chosen, log_sum = function((leaf * 1).transpose(0, 1), words)
        gradients += torch.autograd.grad((log_sum.pow(2) - chosen).sum(), leaf)
    assert torch.allclose(*gradients, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("is_global", [False, True])
def test_a_hook_of_the_vocabularys_layer_keeps_what_it_saw(is_global):
    model, seen = tiny_model().train(), []
    register = register_module_forward_hook if is_global else model.lm_head.register_forward_hook

    def keep(module, inputs, output):
        if module is model.lm_head:
            seen.extend((output, output.detach().clone()))

    handle = register(keep)
    ids = padded(SOURCES, 0)
    model(input_ids=ids, labels=ids, num_items_in_batch=4).loss.backward()
    handle.remove()
    assert torch.equal(*seen)


def test_an_output_can_be_created_from_a_dict():
    """As accelerate does when it converts or gathers the tensors of an output."""
    output = tiny_model()(input_ids=padded(SOURCES, 0), labels=padded(TARGETS, -100))
    again = type(output)(dict(output))
    assert list(again) == list(output)
    assert again.logits is output.logits
    assert torch.equal(again.to_tuple()[0], output.loss)
