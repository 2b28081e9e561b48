"""The quickstart: a short run for its output and files, a full run for its promised scores and time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from copynet_hf import CopyNetPredictor
from copynet_hf.cli import main
from copynet_hf.training.quickstart import PICTURE, run_quickstart
from copynet_hf.training.run_folder import PREDICTIONS_FILE


def test_a_short_quickstart_trains_shows_and_saves(quickstart: Path, tmp_path: Path) -> None:
    scores = json.loads((quickstart / "scores.json").read_text(encoding="utf-8"))
    printed = (quickstart / "printed.txt").read_text(encoding="utf-8")
    assert scores["exact_match"] >= 50
    assert scores["oov_recall"] >= 50
    assert scores["fewest_unseen_words"] >= 1
    rows = [json.loads(line) for line in (quickstart / "model" / PREDICTIONS_FILE).read_text("utf-8").splitlines()]
    reloaded = CopyNetPredictor(quickstart / "model")([row["text"] for row in rows])
    assert [output.text for output in reloaded] == [row["prediction"] for row in rows]
    assert "-> " in printed
    assert "[" in printed
    assert (quickstart / "model" / PICTURE).read_bytes().startswith(b"\x89PNG")
    generate, train = printed.strip().splitlines()[-2:]
    assert train.startswith("copynet-hf train ")
    command, text = generate.removesuffix('"').split(' --text "')
    assert main([*command.split()[1:], "--text", text]) == 0

    folder = shutil.copytree(quickstart / "model", tmp_path / "model")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"already holds config\.json: use another folder, or"):
        run_quickstart(folder, train_pairs=40, test_pairs=4, epochs=1)
    run_quickstart(folder, train_pairs=40, test_pairs=4, epochs=1, overwrite_output_dir=True)
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_the_quickstart_reaches_its_scores_within_three_minutes(tmp_path: Path) -> None:
    scores = run_quickstart(tmp_path / "copynet")
    assert scores["exact_match"] >= 95
    assert scores["oov_recall"] >= 95
    assert scores["fewest_unseen_words"] >= 1
    assert scores["total_seconds"] < 180
