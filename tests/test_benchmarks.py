"""The code of the benchmarks: growth, ratios, sections of the page, the plain model, the comparison with yoyodyne."""

from __future__ import annotations

import importlib
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"
RESULTS = FOLDER.with_name("results")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script; scripts import each other by bare names, as when they are run."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
def render(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a section of a page; returns the page."""
    measure, page = load("measure"), tmp_path / "results" / "benchmarks.md"
    monkeypatch.setattr(measure, "PAGE", page)

    def write(name: str, template: str, **figures: Any) -> str:
        measure.write_section(name, template, **figures)
        return page.read_text(encoding="utf-8")

    return write


# ---- measuring and writing


def test_ratios_are_taken_round_by_round(load: Any) -> None:
    measure = load("measure")
    assert measure.median_ratio({"ours": [2.0, 30.0, 200.0], "plain": [1.0, 10.0, 200.0]}, "ours", "plain") == 2.0
    with pytest.raises(ValueError, match="shorter"):
        measure.median_ratio({"ours": [1.0, 2.0], "plain": [1.0]}, "ours", "plain")


def test_a_section_replaces_itself_and_nothing_else(render: Any) -> None:
    figures = {"rounds": 1, "table": "| \\1 |"}
    for name in ("CoreQA", "Scaling", "Scaling of rules"):
        before = render(name, "coreqa", **figures)
    assert render("Scaling", "coreqa", **figures) == before
    after = render("Scaling", "coreqa", rounds=2, table="| x |")
    start, end = before.index("## Scaling\n"), before.index("## Scaling of rules\n")
    assert after.startswith(before[:start])
    assert after.endswith(before[end:])
    assert "2 rounds" in after


def test_a_step_trains_with_the_mean_over_labels(load: Any) -> None:
    retrieval = load("retrieval")
    for mechanism in retrieval.MECHANISMS.values():
        retrieval.build_step(mechanism, 2)()
    _, batch = retrieval.make_batch(16)
    assert (batch["token_type_ids"] == 3).sum(1).tolist() == [4] * 16  # the objects of four facts
    assert torch.equal(batch["attention_mask"], (batch["input_ids"] > 0).long())


# ---- growth


def growth(scaling: Any, power: float, memory: float = 1.0) -> Any:
    """A sweep whose times, above a constant, and mebibytes grow with these powers."""
    sweep = scaling.Sweep(scaling.SYNTHETIC, "batch", 16)
    seconds = {str(size): [64.0 + size**power] * 2 for size in sweep.sizes}
    return scaling.Growth(sweep, seconds, [10.0 * size**memory for size in sweep.sizes])


def test_the_largest_sizes_show_growth_that_a_constant_hides(load: Any) -> None:
    scaling = load("scaling")
    linear, steep = growth(scaling, 1.0), growth(scaling, 2.0)
    assert 0 < linear.exponents["time"] < linear.exponents["time at the end"] < 1
    assert 1 < steep.exponents["time"] < 1.95
    assert steep.exponents["time at the end"] == pytest.approx(2, abs=0.01)
    assert steep.exponents["memory at the end"] == pytest.approx(1)
    above = str(scaling.list_exponents([linear, steep, growth(scaling, 1.0, memory=1.5)]))
    assert "(time at the end: 2.00)" in above
    assert "(memory at the end: 1.50)" in above
    assert not scaling.list_exponents([linear])


# ---- the models and batches that are measured


SOURCE, LENGTHS = torch.tensor([[4, 2, 3, 1], [3, 3, 0, 0], [1, 2, 2, 0]]), torch.tensor([4, 2, 3])


@torch.no_grad()
def test_searches_of_the_plain_model_are_greedy_and_exact(load: Any) -> None:
    torch.manual_seed(12)  # its greedy search misses the best output, and its beams change places
    plain = load("plain_seq2seq").PlainSeq2Seq(vocab_size=5, embedding=4, hidden=6)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter)
    torch.nn.init.zeros_(plain.output.bias)
    greedy = plain.greedy(SOURCE, LENGTHS, steps=8, start=1)
    assert torch.equal(plain.beam(SOURCE, LENGTHS, 8, 1, beams=1), torch.cat([torch.ones(3, 1).long(), greedy], dim=1))
    output = plain.beam(SOURCE, LENGTHS, 3, 1, beams=25)[:, 1:]
    assert not torch.equal(output, plain.greedy(SOURCE, LENGTHS, 3, 1))
    for row in range(len(SOURCE)):
        source = SOURCE[row : row + 1], LENGTHS[row : row + 1]
        labels = torch.tensor([*product(range(5), repeat=3)])
        words = torch.cat([torch.ones(len(labels), 1).long(), labels[:, :-1]], dim=1)
        losses = [float(plain(*source, *pair)) for pair in zip(words.split(1), labels.split(1), strict=True)]
        assert output[row].tolist() == labels[losses.index(min(losses))].tolist()


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_a_batch_have_the_reported_lengths(load: Any, mixed: bool) -> None:
    training = load("training")
    batch = training.make_batch(
        training.Task("tiny", 30, 9, vocab_size=20, embedding=3, hidden=5, batch=40, mixed=mixed)
    )
    assert torch.equal((batch["input_ids"] != 0).sum(1), batch["lengths"])
    assert torch.equal(batch["attention_mask"], (torch.arange(30) < batch["lengths"][:, None]).long())
    assert (batch["lengths"].unique().numel() > 1) == mixed
    assert (batch["labels"][:, ::2, None] == batch["input_ids"][:, None]).any(-1).all()  # copied


def test_losses_of_exact_match_by_int8_are_reported(load: Any) -> None:
    quantization = load("quantization")
    seconds = {"float32": [2.0, 4.0, 3.0], "int8": [1.0, 2.0, 2.0]}
    compared = [
        quantization.Compared("greedy", batch, (8.0, 2.0), (50.0, int8), 97.0, seconds)
        for batch, int8 in ((32, 49.8), (1, 49.6))
    ]
    figures = quantization.collect_figures({"rules": compared}, texts=300)
    assert "| rules | greedy | 32 | 8.0 | 2.0 | 50.0 | 49.8 | -0.2 | 97.0 % |" in figures["scores"]
    assert "| rules | greedy | 32 | 100 | 150 | 2.00 |" in figures["speeds"]
    assert figures["losses"] == ["rules, greedy, batch 1 (-0.4)"]


# ---- the comparison with yoyodyne, which is not installed for the tests


def test_unseen_letters_are_in_no_lemma_or_form_and_outputs_are_compared_in_nfc(load: Any) -> None:
    peers = load("peers")
    train, *rows = (
        {"text": lemma, "summary": form}
        for lemma, form in (("ab", "abc"), ("ab", "cab"), ("bd", "bda"), ("ad", "\u00e9"))
    )
    assert peers.find_unseen([train], rows) == [False, True, True]
    assert peers.count_right(rows, ["cab", "bd", "e\u0301"], [True] * 3) == 2
    assert peers.count_right(rows, ["cab", "bd", "e\u0301"], [False, True, True]) == 1
    with pytest.raises(ValueError, match="shorter"):
        peers.count_right(rows, ["cab"], [True] * 3)


def test_the_page_of_the_comparison_is_what_the_results_give(load: Any) -> None:
    peers = load("peers")
    results = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))
    assert (RESULTS / "peers.md").read_text(encoding="utf-8") == peers.render_page(results)
