"""The numbers in the README are those that the scripts wrote."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import reproduce
from helpers import check_cards

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "results" / "benchmarks.md").read_text(encoding="utf-8")
SPEED = {
    "Training": ("task", "threads", "CopyNet / plain", "bf16 / plain"),
    "Generation": ("search", "threads", "CopyNet / plain"),
}


def table_rows(text: str, columns: tuple[str, ...]) -> list[str]:
    """The rows of the first table that has these columns, cut down to them."""
    tables = [[line.strip("| ").split(" | ") for line in part.splitlines()] for part in tables_of(text)]
    header, _, *rows = next(rows for rows in tables if set(columns) <= set(rows[0]))
    return [" | ".join(row[header.index(name)] for name in columns) for row in rows]


def tables_of(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part.startswith("| ")]


@pytest.mark.parametrize("section", SPEED)
def test_speeds_stand_in_the_readme_as_measured(section):
    measured = table_rows(BENCHMARKS.split(f"\n## {section}\n")[1].split("\n## ")[0], SPEED[section])
    readme = [line.strip("| ") for line in README.split("\n## Speed\n")[1].split("\n## ")[0].splitlines()]
    assert len(measured) >= 4
    for row in measured:
        assert row in readme


# ---- the experiments


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


def test_the_readme_says_what_the_page_says(reported):
    name, *_ = reported
    page = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
    section = next(part for part in README.split("\n### ") if f"(results/{name}.md)" in part)
    assert tables_of(section)
    for header, *rows in map(cells_of, tables_of(section)):
        measured = [
            [row[others.index(column)] for column in header]
            for others, *known in map(cells_of, tables_of(page))
            if set(header) <= set(others)
            for row in known
        ]
        for row in rows:
            assert row in measured


def cells_of(table: str) -> list[list[str]]:
    """Header and rows of a table."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()]
    return [lines[0], *lines[2:]]


def test_nothing_of_the_machine_is_told():
    for path in [*(ROOT / "results").glob("*"), *(ROOT / "model_cards").glob("*")]:
        if path.suffix in (".json", ".md", ".html"):  # /tmp and /home stand in shell commands
            text = path.read_text(encoding="utf-8")
            assert not any(place in text for place in ("/work/", "/opt/", "/root/main")), path
