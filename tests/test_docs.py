"""README and docs: their Python runs as it stands there and prints what stands below it; links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import copynet_hf

ROOT = Path(__file__).parents[1]
RUN = {"README.md": 3, "docs/tutorial.md": 6, "docs/extended-ids.md": 2}
"""The documents that are run, and how many outputs each shows."""


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", text_of(document), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", RUN)
def test_every_python_block_runs_and_prints_what_stands_below_it(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    compared = 0
    for language, text in blocks(document):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, document, "exec"), names)
            printed = output.getvalue()
        elif language == "text":
            expected, actual = text.splitlines(), printed.splitlines()[-len(text.splitlines()) :]
            assert [shown(line) for line in actual] == [shown(line) for line in expected]
            compared += 1
    assert compared == RUN[document]


def shown(line: str) -> str:
    """A line without what may differ from one processor to another: a word of both vocabulary and source is copied or
    generated with nearly the same probability."""
    word, _, origin = line.partition(" ")
    if word in ("to", "by", "sent") and ("copied" in origin or "generated" in origin):
        return word
    return re.sub(r"[][]", "", line)  # nor which stretches are marked


def test_the_two_commands_are_there_as_they_are_run():
    commands = [text.strip() for language, text in blocks("README.md") if language == "bash"]
    assert commands[0] == "pip install -c constraints.txt -e . && copynet-hf quickstart"
    assert commands[1] == 'pip install -c constraints.txt -e ".[dev]" && pytest'


DOCUMENTS = [
    str(path.relative_to(ROOT)) for folder in (".", "docs", "model_cards") for path in (ROOT / folder).glob("*.md")
]


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_links_within_the_repository_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)#\s]+)", text_of(document)):
        if "://" not in link:
            assert ((ROOT / document).parent / link).exists(), link


def test_the_version_is_the_same_wherever_it_stands():
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    citation = yaml.safe_load(text_of("CITATION.cff"))
    assert project["version"] == copynet_hf.__version__ == citation["version"]
