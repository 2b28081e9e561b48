"""Pushed to the Hub and loaded from it by name, with the package and without."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from elsewhere import OPTIONAL, answers, run_elsewhere
from helpers import save_tiny_model
from huggingface_hub import ModelCard
from local_hub import CARD, load, push

import copynet_hf
from copynet_hf.data import quickstart_pairs

TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]
REVISIONS = {"main": 6, "next": 9}  # seeds whose models copy unseen words and answer differently
PAGE = (Path(__file__).parents[1] / "docs" / "hub.md").read_text(encoding="utf-8")


@dataclass
class Pushed:
    """The Hub when all has been pushed, what the saved models gave before, and the card of a folder."""

    hub: Path
    folders: dict[str, Path]
    expected: dict[str, Any]
    card: str
    answers: dict[str, Any]  # of main, with the package
    work: Path

    def files(self, name: str, branch: str = "main") -> dict[str, bytes]:
        repo = self.hub / f"models--me--{name}"
        folder = repo / "snapshots" / (repo / "refs" / branch).read_text()
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    work = tmp_path_factory.mktemp("hub")
    folders = {revision: work / revision for revision in REVISIONS}
    for revision, seed in REVISIONS.items():
        save_tiny_model(folders[revision], seed, {"num_beams": 2, "forbid_unk": True, "max_new_tokens": 6})
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.replace("your-name", "me"), re.MULTILINE | re.DOTALL)
    Dataset.from_list(quickstart_pairs("train", 40)).to_json(work / "writer" / "train.jsonl")  # the page's pairs
    hub = work / "cache"
    card, main = run_elsewhere(push, work / "writer", hub, folders, blocks, TEXTS, HF_HUB_CACHE=str(hub))
    expected = {revision: answers(folder, TEXTS) for revision, folder in folders.items()}
    assert expected["main"]["sequences"] != expected["next"]["sequences"]
    assert any("X" in text for text in expected["main"]["texts"])
    return Pushed(hub, folders, expected, card, main, work)


def check_answers(found: dict[str, Any], expected: dict[str, Any], modules: str) -> None:
    rounded = {name: pytest.approx(expected[name], abs=1e-4) for name in ("state_sum", "copied")}
    assert found == expected | rounded | {"modules": [modules], "package": modules == "copynet_hf"}


def test_a_repository_holds_what_is_saved(pushed: Pushed) -> None:
    files = pushed.files("tiny")
    saved = {path.name: path.read_bytes() for path in pushed.folders["main"].iterdir()}
    assert files.keys() == saved.keys()
    differ = {name for name, content in saved.items() if files[name] != content}
    assert differ <= {"tokenizer_config.json", "README.md"}  # the library notes how the tokenizer was loaded
    card = ModelCard(files["README.md"].decode())
    assert card.data.library_name == "transformers"
    assert "copy-mechanism" in card.data.tags
    assert "# me/tiny\n" in card.text


def test_the_code_is_the_package_s_own_and_flat(pushed: Pushed) -> None:
    package = Path(copynet_hf.__file__).parent / "model"
    for name in ("tiny", "carded", "my-copynet", "my-second-copynet"):
        files = pushed.files(name)
        code = {path for path in files if path.endswith(".py")}
        assert {"modeling_copynet.py", "tokenization_copynet.py", "configuration_copynet.py"} <= code
        assert not any("/" in path for path in files)
        assert all(files[path] == (package / path).read_bytes() for path in code)


def test_saving_and_pushing_in_one_call_keeps_the_card_of_the_folder(pushed: Pushed) -> None:
    assert pushed.files("carded")["README.md"].decode() == pushed.card == CARD
    assert b"copy-mechanism" in pushed.files("uncarded")["README.md"]


def test_no_text_tells_where_it_was_written(pushed: Pushed) -> None:
    where = str(pushed.work).encode()  # the writer's home and its temporary files are there too
    for name in ("tiny", "carded", "uncarded", "my-copynet", "my-second-copynet"):
        files = pushed.files(name)
        texts = {path: content for path, content in files.items() if not path.endswith((".bin", ".safetensors"))}
        assert [path for path, content in texts.items() if where in content] == [], name


def test_the_page_does_what_it_says(pushed: Pushed) -> None:
    trained, by_hand = pushed.files("my-copynet"), pushed.files("my-second-copynet")
    assert not (pushed.hub / "models--me--my-copynet" / "private").exists()
    assert (pushed.hub / "models--me--my-second-copynet" / "private").exists()
    assert pushed.files("my-second-copynet", "next").keys() == by_hand.keys()
    figures = {"all_results.json", "train_results.json", "test_results.json", "trainer_state.json"}
    assert trained.keys() == by_hand.keys() | figures | {"training_args.bin"}
    assert (pushed.work / "writer" / "my-copynet" / "test_predictions.jsonl").exists()  # here, and not there
    assert b"## Training" in trained["README.md"]


def test_names_and_revisions_load_what_was_pushed(pushed: Pushed, tmp_path: Path) -> None:
    check_answers(pushed.answers, pushed.expected["main"], "copynet_hf")
    found = run_elsewhere(load, tmp_path, "me/tiny", "next", TEXTS, without=OPTIONAL, HF_HUB_CACHE=str(pushed.hub))
    check_answers(found, pushed.expected["next"], "transformers_modules")
