"""The numbers in the README, pages and model cards are those of the stored results."""

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
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "results" / "benchmarks.md").read_text(encoding="utf-8")
SPEED = {
    "Training": ("task", "threads", "CopyNet / plain", "bf16 / plain"),
    "Generation": ("search", "threads", "CopyNet / plain"),
}


def table_rows(text: str, columns: tuple[str, ...]) -> list[str]:
    """The cells of these columns, in the first table that has them."""
    tables = [[line.strip("| ").split(" | ") for line in part.splitlines()] for part in find_tables(text)]
    header, _, *rows = next(rows for rows in tables if set(columns) <= set(rows[0]))
    return [" | ".join(row[header.index(name)] for name in columns) for row in rows]


def find_tables(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part.startswith("| ")]


@pytest.mark.parametrize("section", SPEED)
def test_the_readme_has_the_measured_speeds(section):
    measured = table_rows(BENCHMARKS.split(f"\n## {section}\n")[1].split("\n## ")[0], SPEED[section])
    readme = [line.strip("| ") for line in README.split("\n## Speed\n")[1].split("\n## ")[0].splitlines()]
    assert len(measured) >= 4
    for row in measured:
        assert row in readme


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


def test_the_readme_has_the_numbers_of_the_page(reported):
    name, *_ = reported
    page = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
    section = next(part for part in README.split("\n### ") if f"(results/{name}.md)" in part)
    assert find_tables(section)
    for header, *rows in map(split_cells, find_tables(section)):
        measured = [
            [line[titles.index(column)] for column in header]
            for titles, *lines in map(split_cells, find_tables(page))
            if set(header) <= set(titles)
            for line in lines
        ]
        for row in rows:
            assert row in measured


def split_cells(table: str) -> list[list[str]]:
    """The header and the rows of a table."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()]
    return [lines[0], *lines[2:]]


def test_results_and_cards_name_no_folder_of_the_machine():
    for path in [*(ROOT / "results").glob("*"), *(ROOT / "model_cards").glob("*")]:
        if path.suffix in (".json", ".md", ".html"):  # shell commands may contain /tmp and /home
            text = path.read_text(encoding="utf-8")
            assert not any(folder in text for folder in ("/work/", "/opt/", "/root/main")), path
