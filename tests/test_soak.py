"""The soak scripts run, in few rounds, and their page is what their results give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent / "soak"
RESULTS = Path(__file__).parents[1] / "results"

# Checks that fail for known reasons are named by the page; here each only has to run.
CHECKS = {
    *("random configurations", "memory, searches", "memory, training steps", "eight threads"),
    "encoders, twice",
    *("mutated files", "damaged model folders", "kills", "kills, predictions", "kills, exports"),
    *("server, gone clients", "server, silent connections", "server, large requests"),
    *("full disk, saving", "full disk, checkpoints", "full disk, messages"),
}


@pytest.mark.slow  # half a minute; the checks themselves have tests of their own
@pytest.mark.skipif(sys.platform != "linux", reason="forks, RLIMIT_FSIZE and /proc")
def test_each_script_runs_and_writes_its_rows(tmp_path: Path) -> None:
    results = tmp_path / "reliability.json"
    done = subprocess.run(
        [sys.executable, str(SOAK / "run_all.py"), "--rounds=1", "--minutes=1", f"--results={results}"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    rows = {row["check"]: row for row in json.loads(results.read_text(encoding="utf-8"))}
    assert rows.keys() == CHECKS, done.stdout + done.stderr
    assert all(row["rounds"] for row in rows.values())
    page = results.with_suffix(".md").read_text(encoding="utf-8")
    assert all(f"## {check}\n" in page for check in CHECKS)


def test_the_page_is_what_the_results_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOAK))
    from harness import render_page

    rows = json.loads((RESULTS / "reliability.json").read_text(encoding="utf-8"))
    assert (RESULTS / "reliability.md").read_text(encoding="utf-8") == render_page(rows)
