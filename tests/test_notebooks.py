"""The notebooks run from the first cell to the last, and their stored outputs are those of a run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
FIELDS = "customer: Ottilie Krahn | article: KU-4021 | quantity: 14 | city: Bonn | date: 3 March"


def read_outputs(notebook: Any) -> str:
    """What the cells print."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_of_one_run_and_name_no_machine(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    text = path.read_text(encoding="utf-8")
    assert "validation pairs: of " in read_outputs(notebook)  # as a run says it
    assert "checkpoint-" not in read_outputs(notebook)
    assert [name for name in ("/tmp/", "/home/", "/work/", "/root/", "Traceback") if name in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    programs = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", programs + os.pathsep + os.environ["PATH"])
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = read_outputs(notebook)
    assert printed.count(FIELDS) == 2  # by the pipeline and by the server
    assert '"exact_match": 100.0' in printed or '"exact_match": 9' in printed
