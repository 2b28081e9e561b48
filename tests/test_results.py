"""The numbers in the README are those that the scripts wrote."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
import reproduce
from helpers import check_cards

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "results" / "benchmarks.md").read_text(encoding="utf-8")
SPEED = {"training step": "Training", "search": "Generation"}
"""The section of results/benchmarks.md for each kind of workload in the README."""
SCORE = r"([A-Z][\w-]+|utterance|first 30 characters)[a-z ]* (\d+\.\d+)"
"""A model, or a baseline, and its score in the README's table of results."""


def tables_of(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part.startswith("| ")]


def cells_of(table: str) -> list[list[str]]:
    """Header and rows of a table."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()]
    return [lines[0], *lines[2:]]


def readme_rows(section: str) -> list[dict[str, str]]:
    """The rows of the first table in a section of the README, by column."""
    (first, *_) = tables_of(README.split(f"\n## {section}\n")[1].split("\n## ")[0])
    header, *rows = cells_of(first)
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.parametrize("row", readme_rows("Speed"), ids=lambda row: row["workload"])
def test_speeds_in_the_readme_are_those_measured(row):
    kind, _, workload = row["workload"].partition(", ")
    (first, *_) = tables_of(BENCHMARKS.split(f"\n## {SPEED[kind]}\n")[1].split("\n## ")[0])
    header, *measured = cells_of(first)
    numbers = {name: value for name, value in row.items() if name != "workload"}
    columns = [header.index(name) for name in numbers]
    assert [workload, *numbers.values()] in [[cells[0], *(cells[column] for column in columns)] for cells in measured]


# ---- the experiments


RESULTS = [name for name in reproduce.EXPERIMENTS if (ROOT / "results" / f"{name}.json").exists()]


@pytest.fixture(params=RESULTS)
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


@pytest.mark.parametrize("row", readme_rows("Results"), ids=lambda row: row["task"])
def test_scores_in_the_readme_are_those_of_the_page(row):
    """Each score is in the column that the row names, in a row of the page that has the model's name."""
    name = re.search(r"\(results/(\w+)\.md\)", row["page"])[1]
    page = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8")
    column = row["score"].partition(" (")[0]
    measured = [
        (cells[0], cells[header.index(column)])
        for header, *others in map(cells_of, tables_of(page))
        if column in header
        for cells in others
    ]
    scores = {origin: re.findall(SCORE, row[origin]) for origin in ("this package", "published")}
    assert scores["this package"]
    for origin, found in scores.items():
        assert len(found) == len(re.findall(r"\d+\.\d+", row[origin]))
        for model, score in found:
            labels = [label for label, value in measured if model in label and value == score]
            assert any(origin == "published" or "in the paper" not in label for label in labels), (model, score)


def test_the_readme_links_to_every_page_of_results():
    assert {page for page in RESULTS if f"(results/{page}.md)" not in README} == set()


def test_nothing_of_the_machine_is_told():
    for path in [*(ROOT / "results").glob("*"), *(ROOT / "model_cards").glob("*")]:
        if path.suffix in (".json", ".md", ".html"):  # shell commands contain /tmp and /home
            text = path.read_text(encoding="utf-8")
            assert not any(place in text for place in ("/work/", "/opt/", "/root/main")), path
