"""The numbers in README and docs are those of the pages in results/, which scripts write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "results" / "benchmarks.md").read_text(encoding="utf-8")
SPEED = {"training step": "Training", "search": "Generation"}
"""The section of results/benchmarks.md for each kind of workload in the README."""
SCORE = r"([A-Z][\w-]+|utterance|first 30 characters)[a-z ]* (\d+\.\d+)"
"""A model, or a baseline, and its score in the README's table of results."""


def find_tables(text: str) -> list[str]:
    return [part for part in text.split("\n\n") if part.startswith("| ")]


def split_cells(table: str) -> list[list[str]]:
    """Header and rows of a table."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().splitlines()]
    return [lines[0], *lines[2:]]


def read_rows(section: str) -> list[dict[str, str]]:
    """The rows of the first table in a section of the README, by column."""
    (first, *_) = find_tables(README.split(f"\n## {section}\n")[1].split("\n## ")[0])
    header, *rows = split_cells(first)
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.parametrize("row", read_rows("Speed"), ids=lambda row: row["workload"])
def test_speeds_in_the_readme_are_those_measured(row):
    kind, _, workload = row["workload"].partition(", ")
    (first, *_) = find_tables(BENCHMARKS.split(f"\n## {SPEED[kind]}\n")[1].split("\n## ")[0])
    header, *measured = split_cells(first)
    numbers = {name: value for name, value in row.items() if name != "workload"}
    columns = [header.index(name) for name in numbers]
    assert [workload, *numbers.values()] in [[cells[0], *(cells[column] for column in columns)] for cells in measured]


@pytest.mark.parametrize("row", read_rows("Results"), ids=lambda row: row["task"])
def test_scores_in_the_readme_are_those_of_the_page(row):
    """Each score is in the column that the row names, in a row of one of the pages that has the model's name."""
    names = re.findall(r"\(results/(\w+)\.md\)", row["page"])
    page = "\n\n".join((ROOT / "results" / f"{name}.md").read_text(encoding="utf-8") for name in names)
    column = row["score"].partition(" (")[0]
    measured = [
        (cells[0], cells[header.index(column)])
        for header, *others in map(split_cells, find_tables(page))
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
    pages = {path.stem for path in (ROOT / "results").glob("*.md")}
    assert {page for page in pages if f"(results/{page}.md)" not in README} == set()


@pytest.mark.parametrize(
    ("document", "page", "column"),
    [
        ("choosing", "mechanisms", "rules, EM"),
        ("encoders", "encoders", "from random weights"),
        ("export", "benchmarks", "ONNX ms"),
        ("serving", "benchmarks", "int8 EM"),
        ("serving", "benchmarks", "int8 texts/s"),
    ],
)
def test_tables_in_the_docs_are_those_of_the_page(document, page, column):
    text = (ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8").replace("`", "")
    results = (ROOT / "results" / f"{page}.md").read_text(encoding="utf-8")
    (_, *names), *rows = next(table for table in map(split_cells, find_tables(text)) if column in table[0])
    header, *measured = next(table for table in map(split_cells, find_tables(results)) if column in table[0])
    columns = [0, *(header.index(name) for name in names)]
    assert rows
    for row in rows:
        assert row in [[cells[place] for place in columns] for cells in measured]


OF_OTHERS = {
    "docs/encoders.md": {"61.3", "59.4"},  # means of the table above them
    "docs/scaling-out.md": {"8.3", "15.6", "24.0", "16.3"},  # seconds that were measured once
    "docs/when-to-use.md": {"39.5", "41.1"},  # published scores
}
"""Figures in the docs beside links to pages of results that do not have them."""


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_figures_in_the_docs_are_on_a_page_that_their_section_links_to(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    unfound = set()
    for section in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        pages = [ROOT / "results" / name for name in re.findall(r"\(\.\./results/(\w+\.md)", section)]
        measured = " ".join(page.read_text(encoding="utf-8") for page in pages)
        known = {f"{float(number):.1f}" for number in re.findall(r"\d+\.\d+", measured)}
        prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", section) if pages else ""
        unfound |= {*re.findall(r"(?<![\w.])\d+\.\d(?!\w|\.\d)", prose)} - known
    assert unfound == OF_OTHERS.get(f"docs/{path.name}", set())
