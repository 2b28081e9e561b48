"""The numbers in pages and model cards are those of the stored results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import reproduce
from experiments.reports.figure4 import render_html
from experiments.reports.model_cards import write_cards
from helpers import check_cards

ROOT = Path(__file__).parents[1]


# ---- the experiments


@pytest.fixture(params=[name for name in reproduce.EXPERIMENTS if (ROOT / "results" / f"{name}.json").exists()])
def reported(request):
    """The name of an experiment, its module, and its stored results."""
    results = json.loads((ROOT / "results" / f"{request.param}.json").read_text(encoding="utf-8"))
    return request.param, importlib.import_module(f"experiments.tables.{request.param}"), results


def test_the_page_is_what_the_results_give(reported):
    name, experiment, results = reported
    assert (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8") == experiment.render_page(results)


def test_figure_4_is_what_the_results_give():
    results = json.loads((ROOT / "results" / "table3.json").read_text(encoding="utf-8"))
    assert (ROOT / "results" / "table3.html").read_text(encoding="utf-8") == render_html(results["runs"])


def test_the_cards_are_what_the_results_give(reported, tmp_path):
    name, experiment, results = reported
    if experiment.CARD is None:
        pytest.skip(f"the models of {name} have no cards")
    write_cards(name, experiment.CARD, results, tmp_path)
    committed = {path.name: path.read_bytes() for path in (ROOT / "model_cards").glob(f"{experiment.CARD.file}-*.md")}
    assert committed == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    check_cards(tmp_path, experiment.CARD, results)


def test_results_and_cards_name_no_folder_of_the_machine():
    for path in [*(ROOT / "results").glob("*"), *(ROOT / "model_cards").glob("*")]:
        if path.suffix in (".json", ".md", ".html"):  # shell commands may contain /tmp and /home
            text = path.read_text(encoding="utf-8")
            assert not any(folder in text for folder in ("/work/", "/opt/", "/root/main")), path
