"""A saved folder is all that another machine needs: loading with the package and, from the code saved beside the
weights, without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from elsewhere import OPTIONAL, answers, run_elsewhere
from helpers import tiny_model, tiny_tokenizer
from tiny_encoders import TEXTS as ENCODER_TEXTS
from tiny_encoders import copynet_over, save_encoder, word_tokenizer

import copynet_hf
from copynet_hf import CopyNetForConditionalGeneration, CopyNetModel
from copynet_hf.training.model_setup import set_decoding

TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A saved model and tokenizer, and what they give before saving."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(seed=1)
    set_decoding(model, num_beams=2, forbid_unk=True, max_new_tokens=6)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    output = model.generate(**inputs)
    assert (output >= len(tokenizer)).any()  # unseen words are copied, or the test would show little
    with torch.no_grad():
        states = model.model(**inputs, decoder_input_ids=output[:, :-1]).last_hidden_state
    expected = {
        "sequences": output.tolist(),
        "texts": tokenizer.batch_decode(output, source=TEXTS),
        "state_sum": pytest.approx(states.sum().item(), abs=1e-4),
        "copied": pytest.approx(model.trace_copies(output, **inputs).copied.sum().item(), abs=1e-4),
        "pipeline": [text.removeprefix("<s> ") for text in tokenizer.batch_decode(output, source=TEXTS)],
        "config": True,
        "search": [2, True, 6],
    }
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, expected


def test_the_code_beside_the_weights_is_flat_and_imports_nothing_that_is_missing(saved: tuple[Path, Any]) -> None:
    folder, _ = saved
    package = Path(copynet_hf.__file__).parent / "model"
    written = {path.name for path in folder.rglob("*.py")}
    assert written == {path.name for path in folder.glob("*.py")}
    needed = {"configuration", "copy_distribution", "fast", "generation", "modeling", "segmentation", "tokenization"}
    assert all(any(name.startswith(part) for name in written) for part in needed), written
    for name in written:
        text = (folder / name).read_text(encoding="utf-8")
        assert text == (package / name).read_text(encoding="utf-8")
        relative = [line.split()[1] for line in text.splitlines() if line.startswith("from .")]
        assert {f"{module[1:]}.py" for module in relative} <= written, name
        assert not any(line.startswith(("from copynet_hf", "import copynet_hf")) for line in text.splitlines())


def test_both_configs_name_the_classes_to_load(saved: tuple[Path, Any]) -> None:
    folder, _ = saved
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["auto_map"] == {
        "AutoConfig": "configuration_copynet.CopyNetConfig",
        "AutoModel": "modeling_copynet.CopyNetModel",
        "AutoModelForSeq2SeqLM": "modeling_copynet.CopyNetForConditionalGeneration",
    }
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert tokenizer["auto_map"]["AutoTokenizer"] == ["tokenization_copynet.CopyNetTokenizer", None]


def test_without_the_package_the_saved_code_gives_the_same_and_can_be_saved_again(
    saved: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, expected = saved
    again = tmp_path / "again"
    for source, target in ((folder, again), (again, None)):
        result = run_elsewhere(answers, tmp_path, source, TEXTS, target, without=OPTIONAL)
        assert {name: result[name] for name in expected} == expected
        assert result["modules"] == ["transformers_modules"]
        assert not result["package"]
    assert {path.name for path in again.glob("*.py")} == {path.name for path in folder.glob("*.py")}
    here = CopyNetForConditionalGeneration.from_pretrained(again)  # and back where the package is
    assert torch.equal(here.lm_head.weight, CopyNetForConditionalGeneration.from_pretrained(folder).lm_head.weight)


def test_a_saved_base_model_loads_without_the_package(tmp_path: Path) -> None:
    model: CopyNetModel = tiny_model().model
    model.save_pretrained(tmp_path / "base")
    config = json.loads((tmp_path / "base" / "config.json").read_text(encoding="utf-8"))
    assert config["auto_map"]["AutoModel"] == "modeling_copynet.CopyNetModel"
    assert (tmp_path / "base" / "modeling_copynet.py").exists()


def test_a_model_over_a_transformers_encoder_loads_without_the_package(tmp_path: Path) -> None:
    """With the encoder's tokenizer, from the one folder."""
    name = save_encoder(tmp_path / "encoder", "roberta")
    tokenizer = word_tokenizer(name)
    model = copynet_over(name, tokenizer)
    set_decoding(model, num_beams=2, forbid_unk=True, max_new_tokens=6)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "saved")
    inputs = tokenizer(ENCODER_TEXTS, padding=True, return_tensors="pt")
    sequences = model.generate(**inputs).tolist()
    result = run_elsewhere(answers, tmp_path / "elsewhere", tmp_path / "saved", ENCODER_TEXTS, without=OPTIONAL)
    assert result["sequences"] == sequences
    assert result["modules"] == ["transformers_modules"]
