"""A saved folder is all that another machine needs: loading with the package and, from the code saved beside the
weights, without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from elsewhere import OPTIONAL, answer_all, answers, run_elsewhere
from helpers import tiny_model, tiny_tokenizer
from test_decoder_runtimes import CASES
from test_seq2seq import make_tokenizer
from tiny_encoders import TEXTS as ENCODER_TEXTS
from tiny_encoders import copynet_over, save_encoder, word_tokenizer

from copynet_hf import CopyNetEnsemble, CopyNetForConditionalGeneration

TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]


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
    tokenizer = tiny_tokenizer(feature_vocab=["N", "PST", "V"], letter_vocab="XYZab")
    model = tiny_model(seed=5, feature_vocab_size=5, letter_vocab_size=7)
    return Case(model, tokenizer, TEXTS, [["V", "PST"], ["PL"], ["N"]])


def make_over_encoder(folder: Path) -> Case:
    """With the encoder's tokenizer."""
    name = save_encoder(folder, "roberta")
    tokenizer = word_tokenizer(name)
    return Case(copynet_over(name, tokenizer, encoder_gru=True), tokenizer, ENCODER_TEXTS)


def make_over_decoder(kind: str) -> Callable[[Path], Case]:
    tokenizer, texts = (tiny_tokenizer, TEXTS) if kind == "scratch" else (make_tokenizer, ENCODER_TEXTS)
    return lambda folder: Case(CASES[kind]("copynet", folder).model, tokenizer(), texts)


MODELS: dict[str, Callable[[Path], Case]] = {
    "plain": lambda folder: Case(tiny_model(seed=1), tiny_tokenizer()),
    "ensemble": make_ensemble,
    "features and letters": make_features_and_letters,
    "encoder": make_over_encoder,
    **{f"decoder {kind}": make_over_decoder(kind) for kind in CASES},
}


class Saved(NamedTuple):
    folder: Path
    expected: dict[str, dict[str, Any]]  # of each model, with the package
    found: dict[str, dict[str, Any]]  # without it


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Each model saved, in a folder of its name, and its answers; the plain one is saved once more by the reader."""
    folder = tmp_path_factory.mktemp("saved")
    calls, expected = [], {}
    for name, make in MODELS.items():
        case = make(folder / f"of {name}")
        case.model.generation_config.update(num_beams=2, forbid_unk=True, max_new_tokens=6)
        for part in (case.model, case.tokenizer):
            part.save_pretrained(folder / name)
        again = folder / "again" if name == "plain" else None
        calls.append([folder / name, case.texts, again, case.features, name != "ensemble"])
        expected[name] = answers(folder / name, case.texts, None, *calls[-1][3:])
    found = run_elsewhere(answer_all, folder / "reader", [*calls, [folder / "again", TEXTS]], without=OPTIONAL)
    return Saved(folder, expected, dict(zip([*MODELS, "again"], found, strict=True)))


@pytest.mark.parametrize("name", [*MODELS, "again"])
def test_without_the_package_the_saved_code_gives_the_same_and_can_be_saved_again(saved: Saved, name: str) -> None:
    expected = saved.expected["plain" if name == "again" else name]
    rounded = {each: expected[each] and pytest.approx(expected[each], abs=1e-4) for each in ("state_sum", "copied")}
    modules = sorted(each.replace("copynet_hf", "transformers_modules") for each in expected["modules"])
    assert saved.found[name] == expected | rounded | {"modules": modules, "package": False}


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


def test_both_configs_name_the_classes_to_load(saved: Saved, tmp_path: Path) -> None:
    tiny_model().model.save_pretrained(tmp_path)  # the base model alone
    for folder in (saved.folder / "plain", tmp_path):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert config["auto_map"] == {
            "AutoConfig": "configuration_copynet.CopyNetConfig",
            "AutoModel": "modeling_copynet.CopyNetModel",
            "AutoModelForSeq2SeqLM": "modeling_copynet.CopyNetForConditionalGeneration",
        }
        assert (folder / "modeling_copynet.py").exists()
    tokenizer = json.loads((saved.folder / "plain" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert tokenizer["auto_map"]["AutoTokenizer"] == ["tokenization_copynet.CopyNetTokenizer", None]
