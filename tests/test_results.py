"""The numbers in pages and model cards are those of the stored results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import reproduce
from experiments.reports.markdown import render_page
from experiments.reports.model_cards import CARDS, write_cards
from experiments.tables.table3 import render_html
from huggingface_hub import ModelCard

ROOT = Path(__file__).parents[1]


def read_results(name):
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


PAGES = [*reproduce.EXPERIMENTS, *(path.stem for path in (ROOT / "results").glob("*_20??.json"))]
"""The pages of all experiments; of other years of a shared task those that were run."""


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_results_give(name):
    results = read_results(name)
    figures = importlib.import_module(f"experiments.tables.{name}").collect_figures(results)
    assert (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8") == render_page(name, results, figures)


@pytest.mark.parametrize("name", [*PAGES, "peers"])
def test_each_page_says_what_scores_higher(name):
    page = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert "\n## Better than this\n" in page


def test_decoders_are_compared_on_the_sets_that_both_have():
    scores = {("ang, small", "GRU"): [50, 52], ("ang, small", "Transformer"): [40], ("got, large", "GRU"): [60]}
    scores["asm, large", "GRU"], scores["asm, large", "Transformer"] = [70], [75]
    runs = [
        {"data": data, "model": model, "scores": {"exact_match": score}}
        for (data, model), found in scores.items()
        for score in found
    ]
    table = importlib.import_module("experiments.tables.decoders").collect_figures({"runs": runs, "data": {}})["sets"]
    assert table.splitlines()[2:] == [
        "| ang, small | 51 | 40 |",
        "| asm, large | 70 | 75 |",
        "| mean | 60.5 | 57.5 |",
    ]


def test_figure_4_is_what_the_results_give():
    expected = render_html(read_results("table3")["runs"])
    assert (ROOT / "results" / "table3.html").read_text(encoding="utf-8") == expected


def test_the_cards_are_what_the_results_give(tmp_path):
    for name in CARDS:
        write_cards(name, read_results(name), tmp_path)
    committed = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "model_cards").glob("*.md")}
    del committed["template.md"]
    assert committed == {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}


def test_a_card_has_the_score_of_the_lowest_seed_and_the_licence():
    runs = [run for run in read_results("table4")["runs"] if (run["model"], run["seed"]) == ("CopyNet", 0)]
    card = ModelCard.load(ROOT / "model_cards" / "dialogue-zh-copynet.md")
    scores = {each.dataset_split: each.metric_value for each in card.data.eval_results}
    assert scores == {run["data"]: run["scores"]["exact_match"] for run in runs}
    assert all(f": top-1 {score:.2f}\n" in card.text for score in scores.values())
    assert card.data.license == "apache-2.0"
    assert "None" not in card.text


def test_results_and_cards_name_no_folder_of_the_machine():
    for path in [*(ROOT / "results").glob("*"), *(ROOT / "model_cards").glob("*")]:
        if path.suffix in (".json", ".md", ".html"):  # shell commands may contain /tmp and /home
            text = path.read_text(encoding="utf-8")
            assert not any(folder in text for folder in ("/work/", "/opt/", "/root/main")), path
