"""The pages and model cards are those of the stored results."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import reproduce
from helpers import check_cards

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=[name for name in reproduce.EXPERIMENTS if (ROOT / "results" / f"{name}.json").exists()])
def reported(request):
    """An experiment, and what its runs wrote."""
    written = json.loads((ROOT / "results" / f"{request.param}.json").read_text(encoding="utf-8"))
    return request.param, importlib.import_module(f"experiments.{request.param}"), written


def test_the_page_says_what_the_results_hold(reported):
    name, experiment, results = reported
    assert (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8") == experiment.page(results)


def test_the_cards_say_what_the_results_hold(reported):
    _, experiment, results = reported
    check_cards(ROOT / "model_cards", experiment.CARD, results)


def test_nothing_of_the_machine_is_told():
    for path in [*(ROOT / "results").glob("*"), *(ROOT / "model_cards").glob("*")]:
        if path.suffix in (".json", ".md", ".html"):  # /tmp and /home stand in shell commands
            text = path.read_text(encoding="utf-8")
            assert not any(place in text for place in ("/work/", "/opt/", "/root/main")), path
