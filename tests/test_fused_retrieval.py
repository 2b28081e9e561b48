"""CoreQA's hand-written recurrence gives the readable one's numbers and gradients."""

from __future__ import annotations

import pytest
import torch
from helpers import pad_facts, padded, tiny_model

from copynet_hf.model import retrieval_decoder
from copynet_hf.model.encoder import count_positions
from copynet_hf.model.fused_retrieval import FusedRetrieval, RetrievalWeights

# Words 5 and 13 are at several positions of a question or of facts; the second source has no facts.
SOURCES = [[5, 13, 6, 5, 4, 7, 5, 4, 8, 13, 13, 7, 5], [9, 14, 9], [13, 7, 14, 4, 8, 15]]
KINDS = [[0, 0, 0, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3], [0, 0, 0], [0, 0, 0, 1, 2, 3]]
TARGETS = [[13, 5, 5, 10, 2], [14, 9, 9, 2], [15, 14, 13, 15, 2]]


def make_batch(side="right"):
    return pad_facts(SOURCES, KINDS, TARGETS, side)


def run(dtype=torch.float64, batch=None, **changes):
    """Output and gradients, to which attention and copy probabilities contribute as well."""
    model = tiny_model(scale=1.0, copy_mechanism="retrieval", **changes).to(dtype)
    output = model(**batch or make_batch(), output_attentions=True)
    (output.loss + output.copy_probs.pow(2).sum() + output.cross_attentions[0].pow(2).sum()).backward()
    return output, {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_gradients_agree(actual, expected):
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        scale = gradient.abs().max().clamp(min=1e-6)
        assert ((actual[name] - gradient).abs().max() / scale) < 1e-10, name


@pytest.mark.parametrize("copies_from", [["question", "facts"], ["question"]], ids=str)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_whole_model_learns_the_same_with_and_without_it(side, copies_from):
    readable, expected = run(batch=make_batch(side), copies_from=copies_from, use_fused=False)
    fused, actual = run(batch=make_batch(side), copies_from=copies_from)
    assert torch.allclose(fused.logits, readable.logits, rtol=0, atol=1e-12)
    assert torch.allclose(fused.cross_attentions[0], readable.cross_attentions[0], rtol=0, atol=1e-12)
    assert_gradients_agree(actual, expected)


@pytest.mark.parametrize("changes", [{"num_hidden_layers": 2}, {"tie_word_embeddings": True}], ids=str)
def test_other_sizes_learn_the_same(changes):
    assert_gradients_agree(run(**changes)[1], run(use_fused=False, **changes)[1])


def test_without_any_facts_it_learns_the_same():
    batch = {**make_batch(), "token_type_ids": None}
    assert_gradients_agree(run(batch=batch)[1], run(batch=batch, use_fused=False)[1])


def test_the_gradients_match_finite_differences():
    torch.manual_seed(0)
    steps, batch, positions, size, width, attention = 3, 2, 5, 3, 4, 2
    is_part = torch.tensor([[[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]], [[1, 0, 1, 1, 1], [0, 0, 0, 0, 0]]]).bool()
    tensors = {
        "inputs": torch.randn(steps, batch, 3 * size),
        "states": torch.randn(batch, positions, width),
        "keys": torch.randn(batch, 2, positions, attention),
        "initial": torch.randn(batch, size),
    }
    weights = RetrievalWeights(
        score=torch.randn(4, attention),
        coverage=torch.randn(4, attention),
        state=torch.randn(4 * attention + 3 * size, size),
        constant=torch.randn(batch, 4 * attention + 3 * size),
        selective=torch.randn(3 * size, width),
        context=torch.randn(3 * size, width),
    )
    repeats = torch.zeros(steps, batch, 2, positions, dtype=torch.bool)
    repeats[0, 0, 0, :2] = repeats[2, 0, 1, 2:4] = repeats[2, 1, 0, 2:] = True

    def compute(inputs, *others):
        return FusedRetrieval.apply(inputs, repeats, is_part, *others)

    assert torch.autograd.gradcheck(compute, [x.double().requires_grad_() for x in (*tensors.values(), *weights)])


def test_bfloat16_stays_close():
    exact, _ = run(use_fused=False)
    fused, gradients = run(torch.bfloat16)
    assert (fused.logits.exp() - exact.logits.exp()).abs().max() < 3e-2
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


def test_autocast_trains():
    model = tiny_model(copy_mechanism="retrieval").train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**make_batch()).loss
    loss.backward()
    assert torch.allclose(loss, tiny_model(copy_mechanism="retrieval").train()(**make_batch()).loss, rtol=0.05)
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_changes_nothing(use_reentrant):
    gradients = []
    for checkpoints in (False, True):
        model = tiny_model(scale=1.0, copy_mechanism="retrieval").double().train()
        if checkpoints:
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        model(**make_batch()).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert_gradients_agree(*gradients)


def explain(model):
    decoder, batch = model.model.decoder, make_batch()
    del batch["labels"]
    with torch.no_grad():
        encoded = model.get_encoder()(**batch)
        return decoder.explain_readable_form(decoder.build_memory(encoded, len(SOURCES)))


def test_training_runs_in_the_fast_form_and_the_users_choice_in_the_readable_one(monkeypatch):
    calls = []
    fused = retrieval_decoder.run_fused_retrieval
    monkeypatch.setattr(retrieval_decoder, "run_fused_retrieval", lambda *args: calls.append(1) or fused(*args))
    model = tiny_model(copy_mechanism="retrieval")
    assert explain(model) == []
    model(**make_batch())
    assert calls == [1]
    model.config.use_fused = False
    assert explain(model) == ["use_fused=False: the user's choice"]
    model(**make_batch())
    assert calls == [1]


NETWORKS = ("attention", "fact_attention", "copy_scores", "retrieve_scores")


@pytest.mark.parametrize(
    "name",
    ["cell", *NETWORKS, *(f"{name}.{part}_proj" for name in NETWORKS for part in ("query", "score", "coverage"))],
)
def test_a_hook_is_noticed(name):
    model, calls = tiny_model(copy_mechanism="retrieval"), []
    module = model.model.decoder.get_submodule(name)
    module.register_forward_hook(lambda *_: calls.append(1))
    assert explain(model) == [f"{name} has hooks"]
    if name in ("cell", "attention", "fact_attention"):
        model(**make_batch())
        assert len(calls) == padded(TARGETS, -100).shape[1]


def test_the_encoder_reads_up_to_the_last_word_of_a_question():
    mask = torch.tensor([[False, True, False, False], [True, False, False, False]])
    assert count_positions(mask) == 2
    assert count_positions(torch.zeros(2, 3, dtype=torch.bool)) == 1
    assert count_positions(mask.to("meta")) == 4
    batch = make_batch()
    del batch["labels"]
    longer = {name: torch.nn.functional.pad(ids, (0, 4)) for name, ids in batch.items()}
    encoder = tiny_model(copy_mechanism="retrieval").get_encoder()
    short, long = encoder(**batch), encoder(**longer, output_hidden_states=True)
    assert torch.equal(long.last_hidden_state[:, : short.last_hidden_state.shape[1]], short.last_hidden_state)
    assert torch.equal(long.final_state, short.final_state)
    assert {states.shape[1] for states in long.hidden_states} == {longer["input_ids"].shape[1]}
