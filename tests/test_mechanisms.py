"""A copy mechanism is one equation and one config value: what a new one gets without any other code."""

from __future__ import annotations

import math

import pytest
import torch
from datasets import Dataset
from helpers import SOURCES, TARGETS, padded, sources, tiny_model, write_rows

from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.model.configuration_copynet import COPY_MECHANISMS, Mechanism
from copynet_hf.model.copy_distribution import MODES, Modes, ModeScores, coverage_loss
from copynet_hf.saved.loading import load_model
from copynet_hf.training.presets import make_config
from copynet_hf.training.run import train_from_arguments


def halves(scores: ModeScores) -> Modes:
    """p(y) = ½ softmax ψ_g(y) + ½ Σ_{j: x_j = y} a_tj."""
    assert scores.attention is not None
    log_half = torch.full_like(scores.generate_log_sum, -math.log(2))
    attention = scores.attention.clamp(min=torch.finfo(scores.attention.dtype).tiny)
    empty = ~scores.source_mask.any(-1, keepdim=True)  # nothing to copy: all is generated
    return Modes(scores.generate_log_sum - log_half.masked_fill(empty, 0.0), attention.log(), -log_half)


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setitem(COPY_MECHANISMS, "halves", Mechanism(copies_by_attention=True))
    monkeypatch.setitem(MODES, "halves", halves)
    return tiny_model(copy_mechanism="halves")


def test_every_mechanism_has_its_equation():
    assert MODES.keys() == COPY_MECHANISMS.keys()


def test_a_new_mechanism_has_probabilities_loss_search_and_traces(model):
    inputs = sources()
    output = model(**inputs, labels=padded(TARGETS, -100), output_attentions=True)
    assert output.logits.exp().sum(-1).allclose(torch.ones(4, 5), atol=1e-5)
    assert torch.allclose(output.copy_probs, 0.5 * output.cross_attentions[0][:, 0], atol=1e-6)
    targets = padded(TARGETS, 0)
    kept = targets != 0
    rows = zip(targets.tolist(), SOURCES, strict=True)
    owned = [[word if word < 13 or word in source else 3 for word in row] for row, source in rows]
    expected = -output.logits.gather(-1, torch.tensor(owned)[..., None])[..., 0][kept].mean()
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    output.loss.backward()
    found = model.generate(**inputs, num_beams=3, max_new_tokens=5)
    assert torch.equal(found, model.generate(**inputs, num_beams=3, max_new_tokens=5, use_cache=False))
    trace = model.trace_copies(found, **inputs)
    assert ((trace.copied >= 0) & (trace.copied <= 1)).all()


SIZES = {"embedding_size": 8, "hidden_size": 12, "encoder_hidden_size": 8, "attention_size": 8, "use_cpu": True}
SIZES |= {"max_target_length": 6, "save_strategy": "no"}
EXTRACTS = [{"text": f"please call n{n} at ten today", "summary": f"call n{n}"} for n in range(20)]


@pytest.fixture
def files(tmp_path):
    splits = {"train": EXTRACTS[:16], "validation": EXTRACTS[16:]}
    return {f"{name}_file": write_rows(tmp_path / f"{name}.jsonl", rows) for name, rows in splits.items()}


GENERATES = {"predict_with_generate": True}


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"copy_mechanism": "copynet"}, {"bf16": True}),
        ({"copy_mechanism": "pointer_generator"}, GENERATES),
        ({"copy_mechanism": "gated", "gated_loss": "summed", "aligned_words": 2, "frequent_words": 6}, GENERATES),
        ({"copy_mechanism": "none"}, GENERATES),
        ({"copy_mechanism": "pointer"}, {"label_smoothing_factor": 0.1}),
    ],
    ids=lambda fields: next(iter(fields.values())),
)
def test_the_command_trains_every_mechanism_and_scores_its_outputs(fields, more, files, tmp_path):
    """That of retrieval is trained in test_retrieval."""
    assert {*COPY_MECHANISMS} == {"copynet", "pointer_generator", "gated", "none", "pointer", "retrieval"}
    said = {**files, **SIZES, **fields, **more, "output_dir": str(tmp_path / "out"), "segmenter": "whitespace"}
    figures = train_from_arguments(
        said | {"max_steps": 4, "eval_steps": 4, "learning_rate": 0.01, "disable_tqdm": True}
    )
    assert 0 < figures["eval_loss"] < 60
    assert figures["train_loss"] < 60  # smoothing adds words that cannot be written, at −60 each
    model, tokenizer = load_model(str(tmp_path / "out"))
    assert model.config.to_dict().items() >= fields.items()
    scores, outputs = evaluate_pairs(model, tokenizer, Dataset.from_list(EXTRACTS[16:]))
    assert scores["unk_rate"] == 0
    assert ("copy_mode_fraction" in scores) == (fields["copy_mechanism"] != "none")
    if fields["copy_mechanism"] == "pointer":
        assert all(word in output["text"].split() for output in outputs for word in output["prediction"].split())


def test_coverage_comes_second_and_begins_where_the_first_stage_ended(files, tmp_path):
    first = {
        **files,
        **SIZES,
        "copy_mechanism": "pointer_generator",
        "use_coverage": False,
        "output_dir": str(tmp_path / "1"),
        "max_steps": 3,
    }
    before = train_from_arguments(first)
    coverage = {"model_name_or_path": str(tmp_path / "1"), "use_coverage": True}
    same = train_from_arguments(
        {**files, **coverage, "output_dir": str(tmp_path / "2"), "max_steps": 1, "learning_rate": 0.0}
    )
    assert same["eval_loss"] == pytest.approx(before["eval_loss"], rel=1e-5)
    learned = {**files, **coverage, "coverage_loss_weight": 1.0, "output_dir": str(tmp_path / "3"), "max_steps": 3}
    train_from_arguments(learned | {"learning_rate": 0.01, "load_best_model_at_end": False})
    model, _ = load_model(str(tmp_path / "3"))
    assert model.config.coverage_loss_weight == 1.0
    assert not load_model(str(tmp_path / "1"))[0].config.use_coverage
    assert model.model.decoder.attention.coverage_proj.weight.abs().max() > 0


@pytest.mark.parametrize(("name", "has_read"), [("pointer_generator", True), ("gated", False), ("copynet", False)])
def test_the_pointer_generators_attention_alone_has_read_the_last_word(name, has_read):
    model = tiny_model(copy_mechanism=name)
    source = {"input_ids": padded(SOURCES[:1], 0)}
    attention = [
        model(**source, decoder_input_ids=torch.tensor([[1, 5, last]]), output_attentions=True).cross_attentions[0]
        for last in (6, 7)
    ]
    assert torch.equal(attention[0][..., :-1, :], attention[1][..., :-1, :])
    assert torch.equal(attention[0], attention[1]) != has_read


def test_an_end_symbol_in_the_source_is_not_copied_for_the_gate():
    model = tiny_model(copy_mechanism="gated")
    inputs = {"input_ids": torch.tensor([[5, 6, 2]]), "labels": torch.tensor([[5, 2]])}
    switch = model.model(input_ids=inputs["input_ids"], decoder_input_ids=torch.tensor([[1, 5]])).switch[0]
    weighed = model(**inputs).loss.item()
    model.config.gate_loss_weight = 0.0
    free = model(**inputs).loss.item()
    expected = torch.nn.functional.softplus(torch.stack([-switch[0], switch[1]])).mean().item()
    assert weighed - free == pytest.approx(expected, rel=1e-5)


def test_words_without_any_probability_have_a_trace():
    model = tiny_model(copy_mechanism="pointer_generator")
    torch.nn.init.constant_(model.model.decoder.switch_proj.bias, 300.0)
    trace = model.trace_copies(torch.tensor([[1, 13, 2]]), input_ids=torch.tensor([[13, 5]]))
    assert trace.copied.isfinite().all()


def test_what_the_coverage_loss_counts():
    attention = torch.tensor([[[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]])
    assert coverage_loss(attention).tolist() == [[0.0, 0.5, 0.5]]


@pytest.mark.parametrize("searches", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"use_coverage": True, "use_fused": False},
        {"use_coverage": True, "use_fused": True},
        {"copy_mechanism": "retrieval"},  # has one form
    ],
    ids=str,
)
def test_what_was_read_adds_up_in_bfloat16(fields, searches):
    steps = 300  # of which bfloat16 would add up 256 at the most, over eight places
    model = tiny_model(scale=0.1, **fields).bfloat16()
    inputs = {"input_ids": torch.tensor([SOURCES[-1]]), "decoder_input_ids": torch.full((1, steps), 5)}
    with torch.set_grad_enabled(not searches):
        output = model.model(**inputs, use_cache=True)
    coverage = output.past_key_values.layer.last().coverage
    assert coverage.sum().item() == pytest.approx(steps, rel=0.01)  # each step reads with weights whose sum is one


def test_words_that_the_decoder_passes_over_cost_no_coverage():
    model = tiny_model(copy_mechanism="pointer_generator", use_coverage=True, coverage_loss_weight=1.0)
    source, words, labels = torch.tensor([SOURCES[0]]), torch.tensor([[1, 5, 6]]), torch.tensor([[5, 6, 2]])
    plain = model(input_ids=source, decoder_input_ids=words, labels=labels).loss
    passed = model(
        input_ids=source,
        decoder_input_ids=torch.tensor([[0, 0, 1, 5, 6]]),
        decoder_attention_mask=torch.tensor([[0, 0, 1, 1, 1]]),
        labels=torch.tensor([[-100, -100, 5, 6, 2]]),
    ).loss
    assert passed.item() == pytest.approx(plain.item(), rel=1e-5)


def test_new_models_have_coverage_where_they_can():
    has_it = {
        **{name: {"copy_mechanism": name} for name in COPY_MECHANISMS},
        "no attention": {"copy_mechanism": "none", "attention": False},
        "transformer": {"decoder": "transformer"},
        "left out": {"use_coverage": False},
    }
    configs = {name: make_config(None, {"vocab_size": 9, **fields}) for name, fields in has_it.items()}
    assert {name for name, config in configs.items() if config.use_coverage} == {
        "copynet",
        "none",
        "gated",
        "pointer_generator",
    }
    assert not make_config("synthetic", {}).use_coverage


def test_a_model_is_not_given_what_its_mechanism_has_no_use_for(files, tmp_path):
    train_from_arguments({**files, **SIZES, "use_coverage": False, "output_dir": str(tmp_path / "1"), "max_steps": 1})
    start = {**files, "model_name_or_path": str(tmp_path / "1"), "output_dir": str(tmp_path / "2"), "max_steps": 1}
    with pytest.raises(ValueError, match="set use_coverage, or leave"):
        train_from_arguments(start | {"coverage_loss_weight": 1.0})
    with pytest.raises(ValueError, match="gated_loss='summed' has no effect"):
        train_from_arguments(start | {"gated_loss": "summed"})
