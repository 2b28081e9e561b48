"""README and docs: their Python runs and prints what they show, their links and the functions they name exist."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from helpers import find_blocks
from test_seq2seq import make_tokenizer, save_seq2seq

import copynet_hf
from copynet_hf.data import quickstart_pairs

ROOT = Path(__file__).parents[1]
RUN = {
    "README.md": 1,
    "docs/tutorial.md": 6,
    "docs/extended-ids.md": 4,
    "docs/predict.md": 8,
    "docs/evaluate.md": 1,
    "docs/extraction.md": 1,
    "docs/decoders.md": 0,
    "docs/demo.md": 0,
}
"""The documents whose blocks are run, and how many outputs each shows."""


def read_document(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", RUN)
def test_every_python_block_runs_and_prints_the_output_shown_below_it(document, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if document == "docs/extraction.md":
        Path("slots-model").symlink_to(request.getfixturevalue("slots_model") / "model")
    elif document == "docs/decoders.md":  # the name that it has on the Hub
        make_tokenizer().save_pretrained(save_seq2seq(Path("google-t5/t5-small"), "t5", len(make_tokenizer())))
    elif document != "docs/tutorial.md":
        Path("copynet-quickstart").symlink_to(request.getfixturevalue("quickstart") / "model")
    pairs = (json.dumps(pair) + "\n" for pair in quickstart_pairs("train", 50))
    Path("train.jsonl").write_text("".join(pairs), encoding="utf-8")
    names: dict[str, object] = {}
    printed = ""
    compared = 0
    for language, text in find_blocks(read_document(document)):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, document, "exec"), names)
            printed = output.getvalue() or printed
        elif language == "text" and printed:
            expected, actual = text.splitlines(), printed.splitlines()[-len(text.splitlines()) :]
            assert [drop_chance(line) for line in actual] == [drop_chance(line) for line in expected]
            compared, printed = compared + 1, ""
    assert compared == RUN[document]


def drop_chance(line: str) -> str:
    """A line without what may differ between processors: a word of both vocabulary and source is copied or generated
    with nearly the same probability."""
    word, _, origin = line.partition(" ")
    if word in ("to", "by", "sent") and ("copied" in origin or "generated" in origin):
        return word
    return re.sub(r"[][]", "", line)  # nor which stretches are marked


def test_readme_has_at_most_200_lines():
    assert len(read_document("README.md").splitlines()) <= 200


DOCUMENTS = [
    str(path.relative_to(ROOT)) for folder in (".", "docs", "model_cards") for path in (ROOT / folder).glob("*.md")
]


@pytest.mark.parametrize("document", sorted(DOCUMENTS))
def test_links_within_the_repository_lead_to_files(document):
    for link in re.findall(r"\]\(([^)#\s]+)", read_document(document)):
        if "://" not in link:
            assert ((ROOT / document).parent / link).exists(), link


def test_nothing_sends_a_user_to_a_release_that_does_not_exist():
    """Until there is one: from a checkout, from git, or the missing packages by their names."""
    places = [ROOT / "README.md", ROOT / "copynet_hf_command.py"]
    for folder in ("copynet_hf", "docs", "model_cards", "scripts"):
        places += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".html", ".js", ".yaml")
        ]
    for path in places:
        text = path.read_text(encoding="utf-8")
        found = re.search(r"pip\s+install\s+\S*copynet-hf(?! @)|pypi\.org/project/copynet-hf", text)
        assert found is None, path


def test_the_version_is_the_same_in_all_files():
    project = tomllib.loads(read_document("pyproject.toml"))["project"]
    citation = yaml.safe_load(read_document("CITATION.cff"))
    assert project["version"] == copynet_hf.__version__ == citation["version"]


# ---- the site


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_site_has_every_page_of_its_navigation_and_no_dead_link(site, tmp_path):
    site.collect_pages(ROOT, tmp_path)
    navigation = yaml.safe_load(read_document("mkdocs.yml"))["nav"]
    pages = re.findall(r"[\w/-]+\.md", json.dumps(navigation))
    assert len(pages) > 30
    assert [page for page in pages if not (tmp_path / page).is_file()] == []
    assert {f"{path.stem}.md" for path in (ROOT / "docs").glob("*.md")} <= set(pages)


def test_a_notebook_is_a_page_with_its_stored_outputs(site, tmp_path):
    printed = {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]}
    drawn = {"output_type": "execute_result", "data": {"text/html": ["<mark>c</mark>"], "text/plain": ["<HTML>"]}}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[other](../other.md)"]},
        {"cell_type": "code", "source": ["%%bash\n", "ls"], "outputs": [printed]},
        {"cell_type": "code", "source": ["show()"], "outputs": [drawn]},
    ]
    (tmp_path / "docs" / "notebooks").mkdir(parents=True)
    (tmp_path / "docs" / "notebooks" / "first.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "docs" / "other.md").write_text("[first](notebooks/first.ipynb)\n")
    (tmp_path / "README.md").write_text("")
    site.collect_pages(tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "notebooks" / "first.md").read_text()
    blocks = ["```bash\nls\n```", "```text\na\nb\n```", "```python\nshow()\n```", "<mark>c</mark>\n"]
    assert page == "\n\n".join(["# Title\n[other](../other.md)", *blocks])
    assert (tmp_path / "out" / "other.md").read_text() == "[first](notebooks/first.md)\n"


def test_links_to_functions_get_their_lines(site, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "part.py").write_text("import os\n\n\nclass Model:\n    def step(self):\n        pass\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("[the page](docs/page.md#top) [web](https://example.org/x.md)\n")
    (tmp_path / "docs" / "page.md").write_text(
        "[`part.Model.step`](../package/part.py) [`part.py`](../package/part.py)\n\n```text\n[a](b.md)\n```\n"
    )
    site.collect_pages(tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / "index.md").read_text() == "[the page](page.md#top) [web](https://example.org/x.md)\n"
    step, module, *_ = (tmp_path / "out" / "page.md").read_text().split()
    assert step == "[`part.Model.step`:5](package/part.py.md#__codelineno-0-5)"
    assert module == "[`part.py`](package/part.py.md)"
    assert "class Model" in (tmp_path / "out" / "package" / "part.py.md").read_text()


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("[`part.Model`](part.py)", "part.py does not define Model"),
        ("[other](other.md)", "leads to no file"),
    ],
)
def test_dead_links_stop_the_build(site, tmp_path, link, problem):
    (tmp_path / "part.py").write_text("x = 1\n")
    (tmp_path / "README.md").write_text(link)
    with pytest.raises(ValueError, match=problem):
        site.collect_pages(tmp_path, tmp_path / "out")
