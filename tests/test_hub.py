"""Pushed to a Hub and loaded from it by name: the real client and a server on loopback that speaks as the Hub does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from datasets import Dataset
from elsewhere import OPTIONAL, answers, run_elsewhere
from helpers import tiny_model, tiny_tokenizer
from hub_client import CARD, load, push, push_over_encoder
from hub_server import Hub, front_matter
from tiny_encoders import save_encoder

import copynet_hf
from copynet_hf.data import quickstart_pairs
from copynet_hf.training.model_setup import set_decoding

TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]
REVISIONS = {"v1": 6, "main": 4, "next": 9}  # seeds whose models copy unseen words and answer differently
PAGE = (Path(__file__).parents[1] / "docs" / "hub.md").read_text(encoding="utf-8")


@dataclass
class Pushed:
    """The server when all has been pushed, what the saved models gave before, and what the pushing process said."""

    hub: Hub
    folders: dict[str, Path]
    expected: dict[str, Any]
    said: dict[str, Any]
    work: Path

    def load(self, *names: str, **variables: Any) -> dict[str, Any]:
        """The answers of a reader that has nothing yet."""
        folder = Path(mkdtemp(prefix="reader-", dir=self.work))
        return run_elsewhere(load, folder, names, TEXTS, **self.hub.client | variables)


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pushed]:
    work = tmp_path_factory.mktemp("hub")
    folders = {revision: work / revision for revision in REVISIONS}
    for revision, seed in REVISIONS.items():
        model = tiny_model(seed=seed)
        set_decoding(model, num_beams=2, forbid_unk=True, max_new_tokens=6)
        model.save_pretrained(folders[revision])
        tiny_tokenizer().save_pretrained(folders[revision])
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.replace("your-name", "me"), re.MULTILINE | re.DOTALL)
    Dataset.from_list(quickstart_pairs("train", 40)).to_json(work / "writer" / "train.jsonl")  # the page's pairs
    with Hub() as hub:
        said = run_elsewhere(push, work / "writer", folders, TEXTS, blocks, **hub.client)
        expected = {revision: answers(folder, TEXTS) for revision, folder in folders.items()}
        expected["trained"] = said["trained"]
        yield Pushed(hub, folders, expected, said, work)


def check_answers(found: dict[str, Any], expected: dict[str, Any], modules: str) -> None:
    assert isinstance(found, dict), found
    rounded = {name: pytest.approx(expected[name], abs=1e-4) for name in ("state_sum", "copied")}
    assert found == expected | rounded | {"modules": [modules], "package": modules == "copynet_hf"}


# ---- what is on the Hub


def test_the_models_that_are_pushed_copy_unseen_words_and_differ(pushed: Pushed) -> None:
    outputs = [pushed.expected[revision]["sequences"] for revision in REVISIONS]
    assert len({str(output) for output in outputs}) == 3
    assert any("X" in text for text in pushed.expected["v1"]["texts"])
    assert pushed.expected["v1"]["search"] == [2, True, 6]
    assert pushed.expected["v1"]["sequences"] != pushed.expected["v1"]["greedy"]


def test_a_repository_holds_what_is_saved(pushed: Pushed) -> None:
    files = pushed.hub.repositories["me/tiny"].files("v1")
    saved = {path.name: path.read_bytes() for path in pushed.folders["v1"].iterdir()}
    assert files.keys() == saved.keys() | {".gitattributes"}
    differ = {name for name, content in saved.items() if files[name].content != content}
    assert differ <= {"tokenizer_config.json", "README.md"}  # the library notes how the tokenizer was loaded
    card = front_matter(files["README.md"].content.decode())
    assert card["library_name"] == "transformers"
    assert "copy-mechanism" in card["tags"]
    assert b"# me/tiny\n" in files["README.md"].content
    assert files["model.safetensors"].lfs


def test_the_code_is_the_package_s_own_and_flat(pushed: Pushed) -> None:
    package = Path(copynet_hf.__file__).parent / "model"
    for repository in pushed.hub.repositories.values():
        files = repository.files()
        code = {path for path in files if path.endswith(".py")}
        assert {"modeling_copynet.py", "tokenization_copynet.py", "configuration_copynet.py"} <= code
        assert not any("/" in path for path in files)
        assert all(files[path].content == (package / path).read_bytes() for path in code)


def test_what_is_there_already_is_not_sent_again(pushed: Pushed) -> None:
    _, model, tokenizer, again, branch = pushed.hub.repositories["me/tiny"].commits.values()
    assert not set(model.changed) & set(tokenizer.changed)
    assert {"config.json", "generation_config.json", "model.safetensors", "modeling_copynet.py"} <= set(model.changed)
    code = {path for path in tokenizer.changed if path.endswith(".py")}
    assert code == {"tokenization_copynet.py"}
    assert set(tokenizer.changed) == code | {"tokenizer_config.json", "vocab.json"}
    assert again.changed == branch.changed == ["model.safetensors"]
    sent = [path for path in pushed.hub.requests if path.startswith("PUT ")]
    assert len(sent) == len(set(sent))


def test_the_trainer_pushes_the_finished_model_with_a_card(pushed: Pushed) -> None:
    files = pushed.hub.repositories["me/trained"].files()
    assert files.keys() == pushed.hub.repositories["me/tiny"].files().keys() | {"training_args.bin"}
    card = front_matter(files["README.md"].content.decode())
    assert card["library_name"] == "transformers"
    assert "generated_from_trainer" in card["tags"]


def test_saving_and_pushing_in_one_call_keeps_the_card_of_the_folder(pushed: Pushed) -> None:
    carded, uncarded = (pushed.hub.repositories[name].files()["README.md"] for name in ("me/carded", "me/uncarded"))
    assert carded.content.decode() == pushed.said["card"] == CARD
    assert b"copy-mechanism" in uncarded.content


def test_no_text_tells_where_it_was_written(pushed: Pushed) -> None:
    where = str(pushed.work)  # the writer's home and its temporary files are there too
    for name, repository in pushed.hub.repositories.items():
        for commit in repository.commits.values():
            texts = {path: file.content.decode() for path, file in commit.files.items() if not file.lfs}
            assert [path for path, text in texts.items() if where in text] == [], name


def test_nothing_is_asked_that_the_server_does_not_know(pushed: Pushed) -> None:
    assert pushed.hub.unknown == []
    assert pushed.said["user"] == "me"
    assert pushed.said["refs"] == ["main", "next", "v1"]


def test_the_page_does_what_it_says(pushed: Pushed) -> None:
    assert pushed.said["page"] is None
    trained, pushed_by_hand = (pushed.hub.repositories[f"me/my-{name}"] for name in ("copynet", "second-copynet"))
    assert not trained.private
    assert pushed_by_hand.private
    assert pushed_by_hand.branches.keys() == {"main", "next"}
    by_hand, by_the_trainer = pushed_by_hand.files().keys(), trained.files().keys()
    figures = {"all_results.json", "train_results.json", "test_results.json", "trainer_state.json"}
    assert by_the_trainer == by_hand | figures | {"training_args.bin"}
    assert (pushed.work / "writer" / "my-copynet" / "test_predictions.jsonl").exists()  # here, and not there
    assert b"## Training" in trained.files()["README.md"].content
    assert len(trained.commits) == 2  # nothing before it was complete


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("without a token", "401 Unauthorized"),
        ("somebody else's", "the rights to write to you/tiny"),
        ("bad front matter", "Invalid metadata in README.md"),
    ],
)
def test_the_server_refuses_as_the_hub_does(pushed: Pushed, case: str, message: str) -> None:
    assert message in pushed.said["refused"][case]


def test_the_server_checks_objects_and_notes_what_it_does_not_know() -> None:
    with Hub() as hub:
        connection = HTTPConnection("127.0.0.1", hub.server_port)
        for method, path, status in (("PUT", f"/objects/{'0' * 64}", 400), ("GET", "/api/papers", 404)):
            connection.request(method, path, body=b"other content")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        assert hub.unknown == ["GET /api/papers"]


# ---- loading by name


def test_with_the_package_names_and_revisions_load_what_was_pushed(pushed: Pushed) -> None:
    sha = pushed.hub.repositories["me/tiny"].tags["v1"]
    wanted = {"me/tiny": "main", "me/tiny@next": "next", "me/tiny@v1": "v1", f"me/tiny@{sha}": "v1"}
    wanted |= {"me/trained": "trained", "me/secret": "v1"}
    found = pushed.load(*wanted, "me/tiny@no-such", "me/nothing")
    for name, revision in wanted.items():
        check_answers(found[name], pushed.expected[revision], "copynet_hf")
    assert "no-such is not a valid git identifier" in found["me/tiny@no-such"]
    assert "me/nothing is not a local folder" in found["me/nothing"]
    assert pushed.hub.unknown == []


def test_without_the_package_the_code_on_the_hub_gives_the_same(pushed: Pushed) -> None:
    wanted = {"me/tiny": "main", "me/tiny@next": "next", "me/trained": "trained"}
    found = pushed.load(*wanted, "me/secret", without=OPTIONAL, HF_TOKEN="")
    for name, revision in wanted.items():
        check_answers(found[name], pushed.expected[revision], "transformers_modules")
    assert "me/secret is not a local folder" in found["me/secret"]
    assert pushed.hub.unknown == []


# ---- over a Transformers encoder


def test_a_model_over_an_encoder_of_the_hub_is_pushed_with_both_tokenizers(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path / "encoder")
    with Hub() as hub:
        expected = run_elsewhere(push_over_encoder, tmp_path / "writer", folder, TEXTS, **hub.client)
        files = hub.repositories["me/over"].files()
        assert {"vocab.json", "encoder_tokenizer.json", "transformer_encoder.py", "pieces.py"} <= files.keys()
        assert not any("/" in path for path in files)
        assert expected.pop("encoder") == "me/encoder"
        for modules, without in (("copynet_hf", ()), ("transformers_modules", OPTIONAL)):
            reader = run_elsewhere(load, tmp_path / modules, ["me/over"], TEXTS, without=without, **hub.client)
            check_answers(reader["me/over"], expected, modules)
        assert hub.unknown == []
