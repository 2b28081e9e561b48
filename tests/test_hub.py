"""A saved folder, or a repository of the Hub, is all that another machine needs: loading with the package and, from
the code saved beside the weights, without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from datasets import Dataset
from elsewhere import OPTIONAL, answer_all, answers, run_elsewhere
from helpers import find_blocks, read_files, save_parts, save_tiny_model, tiny_model, tiny_tokenizer
from huggingface_hub import ModelCard
from local_hub import CARD, push
from test_decoder_runtimes import make_pretrained
from test_seq2seq import make_tokenizer
from tiny_encoders import TEXTS as ENCODER_TEXTS
from tiny_encoders import copynet_over, save_encoder, word_tokenizer

import copynet_hf
from copynet_hf import CopyNetEnsemble, CopyNetForConditionalGeneration
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
        return read_files(repo / "snapshots" / (repo / "refs" / branch).read_text())


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    work = tmp_path_factory.mktemp("hub")
    folders = {revision: work / revision for revision in REVISIONS}
    for revision, seed in REVISIONS.items():
        save_tiny_model(folders[revision], seed, {"num_beams": 2, "forbid_unk": True, "max_new_tokens": 6})
    blocks = find_blocks(PAGE.replace("your-name", "me"))
    Dataset.from_list(quickstart_pairs("train", 40)).to_json(work / "writer" / "train.jsonl")  # the page's pairs
    hub = work / "cache"
    card, main = run_elsewhere(push, work / "writer", hub, folders, blocks, TEXTS, HF_HUB_CACHE=str(hub))
    expected = {revision: answers(folder, TEXTS) for revision, folder in folders.items()}
    assert expected["main"]["sequences"] != expected["next"]["sequences"]
    assert any("X" in text for text in expected["main"]["texts"])
    return Pushed(hub, folders, expected, card, main, work)


# ---- saved folders


class Case(NamedTuple):
    """A model and its tokenizer, and what they are asked."""

    model: Any
    tokenizer: Any
    texts: list[str] = TEXTS
    features: list[list[str]] | None = None


def make_ensemble(folder: Path) -> Case:
    members = [{"seed": 9}, {"seed": 109, "num_hidden_layers": 2, "tie_word_embeddings": True}]
    members.append({"seed": 29, "copy_mechanism": "pointer_generator", "use_coverage": True})
    return Case(CopyNetEnsemble.from_models([tiny_model(**fields) for fields in members]), tiny_tokenizer())


def make_features_and_letters(folder: Path) -> Case:
    tokenizer = tiny_tokenizer(feature_vocab=["N", "PST", "V"], letter_vocab="XYZab", case_variants=True)
    model = tiny_model(seed=5, feature_vocab_size=5, letter_vocab_size=7)
    return Case(model, tokenizer, TEXTS, [["V", "PST"], ["PL"], ["N"]])


def make_over_encoder(folder: Path) -> Case:
    """With the encoder's tokenizer."""
    name = save_encoder(folder, "roberta")
    tokenizer = word_tokenizer(name)
    return Case(copynet_over(name, tokenizer, encoder_gru=True), tokenizer, ENCODER_TEXTS)


MODELS: dict[str, Callable[[Path], Case]] = {
    "plain": lambda folder: Case(tiny_model(seed=1), tiny_tokenizer()),
    "ensemble": make_ensemble,
    "features and letters": make_features_and_letters,
    "encoder": make_over_encoder,
    "seq2seq": lambda folder: Case(make_pretrained("t5")("copynet", folder).model, make_tokenizer(), ENCODER_TEXTS),
}


class Saved(NamedTuple):
    folder: Path
    expected: dict[str, dict[str, Any]]  # of each model, with the package
    found: dict[str, dict[str, Any]]  # without it


@pytest.fixture(scope="module")
def saved(pushed: Pushed, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Each model saved, in a folder of its name, and its answers. The reader has no package; it also reads a branch of
    the Hub, and saves the plain model once more."""
    folder = tmp_path_factory.mktemp("saved")
    calls: dict[str, dict[str, Any]] = {}
    expected = {}
    for name, make in MODELS.items():
        case = make(folder / f"of {name}")
        case.model.generation_config.update(num_beams=2, forbid_unk=True, max_new_tokens=6)
        save_parts(folder / name, case.model, case.tokenizer)
        calls[name] = {"name": str(folder / name), "texts": case.texts, "features": case.features}
        calls[name]["with_states"] = name != "ensemble"
        expected[name] = answers(**calls[name])
    calls["plain"]["again"] = str(folder / "again")
    calls["again"], expected["again"] = {"name": str(folder / "again"), "texts": TEXTS}, expected["plain"]
    calls["hub"], expected["hub"] = {"name": "me/tiny", "revision": "next", "texts": TEXTS}, pushed.expected["next"]
    reader, variables = folder / "reader", {"HF_HUB_CACHE": str(pushed.hub)}
    found = run_elsewhere(answer_all, reader, list(calls.values()), without=OPTIONAL, **variables)
    return Saved(folder, expected, dict(zip(calls, found, strict=True)))


def rounded(expected: dict[str, Any]) -> dict[str, Any]:
    """The answers, of whose numbers the last digits do not matter."""
    numbers = {name: expected[name] for name in ("state_sum", "copied")}
    return expected | {name: each and pytest.approx(each, abs=1e-4) for name, each in numbers.items()}


@pytest.mark.parametrize("name", [*MODELS, "again", "hub"])
def test_without_the_package_the_saved_code_gives_the_same(saved: Saved, name: str) -> None:
    expected = rounded(saved.expected[name])
    modules = sorted(each.replace("copynet_hf", "transformers_modules") for each in expected["modules"])
    assert saved.found[name] == expected | {"modules": modules, "package": False}


def test_the_answers_show_what_is_compared(saved: Saved) -> None:
    """Unseen words are copied, and the settings of the search are saved."""
    for name in ("plain", "ensemble", "features and letters"):
        assert max(map(max, saved.expected[name]["sequences"])) >= len(tiny_tokenizer()), name
    assert saved.expected["plain"]["search"] == [2, True, 6]


def test_a_model_saved_without_the_package_is_loaded_where_it_is(saved: Saved) -> None:
    again, plain = saved.folder / "again", saved.folder / "plain"
    assert {path.name for path in again.glob("*.py")} == {path.name for path in plain.glob("*.py")}
    here, first = (CopyNetForConditionalGeneration.from_pretrained(folder) for folder in (again, plain))
    assert torch.equal(here.lm_head.weight, first.lm_head.weight)


def test_a_base_model_saved_alone_names_the_classes_to_load(tmp_path: Path) -> None:
    tiny_model().model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["auto_map"] == {
        "AutoConfig": "configuration_copynet.CopyNetConfig",
        "AutoModel": "modeling_copynet.CopyNetModel",
        "AutoModelForSeq2SeqLM": "modeling_copynet.CopyNetForConditionalGeneration",
    }
    assert (tmp_path / "modeling_copynet.py").exists()
    assert "custom_pipelines" not in json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))


# ---- the Hub


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
        assert "pipeline.py" in code
        pipelines = json.loads(files["config.json"])["custom_pipelines"]
        assert pipelines["copy-text2text"]["impl"] == "pipeline.CopyText2TextPipeline"


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


def test_a_name_loads_what_was_pushed(pushed: Pushed) -> None:
    assert pushed.answers == rounded(pushed.expected["main"])
    assert pushed.answers["modules"] == ["copynet_hf"]
