"""The quickstart: a short run for its output and files, a full run for its promised scores and time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from copynet_hf.cli import main
from copynet_hf.training.quickstart import PICTURE, run_quickstart


def test_a_short_quickstart_trains_shows_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "copynet"
    scores = run_quickstart(folder, train_pairs=1500, test_pairs=60, epochs=5)
    printed = capsys.readouterr().out
    assert scores["exact_match"] >= 50
    assert scores["oov_recall"] >= 50
    assert scores["fewest_unseen_words"] >= 1
    assert "the same 60 outputs" in printed
    assert "-> " in printed
    assert "[" in printed
    assert (folder / PICTURE).read_bytes().startswith(b"\x89PNG")
    generate, train = printed.strip().splitlines()[-2:]
    assert train.startswith("copynet-hf train ")
    command, text = generate.removesuffix('"').split(' --text "')
    assert main([*command.split()[1:], "--text", text]) == 0

    (folder / "notes.txt").write_text("mine")
    run_quickstart(folder, train_pairs=40, test_pairs=4, epochs=1)
    assert (folder / "notes.txt").read_text() == "mine"

    (folder / "model.safetensors").write_bytes(b"another model")
    with pytest.raises(ValueError, match="another model"):
        run_quickstart(folder, train_pairs=40, test_pairs=4, epochs=1)
    assert (folder / "model.safetensors").read_bytes() == b"another model"


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="did not write"):
        run_quickstart(tmp_path, train_pairs=40, test_pairs=4, epochs=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow
def test_the_quickstart_reaches_its_scores_within_three_minutes(tmp_path: Path) -> None:
    scores = run_quickstart(tmp_path / "copynet")
    assert scores["exact_match"] >= 95
    assert scores["oov_recall"] >= 95
    assert scores["fewest_unseen_words"] >= 1
    assert scores["total_seconds"] < 180
    assert json.loads((tmp_path / "copynet" / "quickstart.json").read_text())["sha256"]
