"""A saved folder is all that another machine needs: loading with the package and, from the code saved beside the
weights, without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tiny_model

import copynet_hf
from copynet_hf import CopyNetForConditionalGeneration, CopyNetModel, CopyNetTokenizer

TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]

# Runs in a process of its own. Arguments: what to refuse to import, the folder, where to save it again.
LOAD = """
import json, sys

refused, folder, again = sys.argv[1].split(","), sys.argv[2], sys.argv[3]

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
remote = "copynet_hf" in refused
if not remote:
    import copynet_hf
options = {"trust_remote_code": True} if remote else {}

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

tokenizer = AutoTokenizer.from_pretrained(folder, **options)
model = AutoModelForSeq2SeqLM.from_pretrained(folder, **options)
base = AutoModel.from_pretrained(folder, **options)
config = AutoConfig.from_pretrained(folder, **options)
pipe = pipeline("copy-text2text", model=folder, **options)

texts = json.loads(sys.stdin.read())
inputs = tokenizer(texts, padding=True, return_tensors="pt")
output = model.generate(**inputs, num_beams=2, max_new_tokens=6)
states = base(**inputs, decoder_input_ids=output[:, :-1]).last_hidden_state
result = {
    "sequences": output.tolist(),
    "texts": tokenizer.batch_decode(output, source=texts),
    "state_sum": states.sum().item(),
    "copied": model.trace_copies(output, **inputs).copied.sum().item(),
    "pipeline": [row["generated_text"] for (row,) in pipe(texts, num_beams=2, max_new_tokens=6)],
    "config": config.to_diff_dict() == model.config.to_diff_dict(),
    "modules": sorted({type(thing).__module__.split(".")[0] for thing in (tokenizer, model, base, config, pipe)}),
    "package": "copynet_hf" in sys.modules,
}
if again:
    model.save_pretrained(again)
    tokenizer.save_pretrained(again)
print("RESULT " + json.dumps(result))
"""


def load_elsewhere(folder: Path, work: Path, refused: str = "", again: Path | str = "") -> dict[str, Any]:
    """What a fresh process, in an empty folder and with an empty cache, makes of the saved model."""
    home = work / "home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, refused, str(folder), str(again)],
        input=json.dumps(TEXTS),
        cwd=home,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A saved model and tokenizer, and what they give before saving."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefghi"]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = CopyNetTokenizer(vocab, segmenter="whitespace", max_source_oov=4)
    model = tiny_model(seed=1)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    output = model.generate(**inputs, num_beams=2, max_new_tokens=6)
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
    }
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, expected


def test_the_code_beside_the_weights_is_flat_and_imports_nothing_that_is_missing(saved: tuple[Path, Any]) -> None:
    folder, _ = saved
    package = Path(copynet_hf.__file__).parent
    written = {path.name for path in folder.rglob("*.py")}
    assert written == {path.name for path in folder.glob("*.py")}
    needed = {"configuration", "copy_distribution", "fused", "generation", "modeling", "segmentation", "tokenization"}
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


def test_importing_the_package_is_enough_to_load_by_the_auto_classes(saved: tuple[Path, Any], tmp_path: Path) -> None:
    folder, expected = saved
    result = load_elsewhere(folder, tmp_path)
    assert {name: result[name] for name in expected} == expected
    assert result["modules"] == ["copynet_hf"]


def test_without_the_package_the_saved_code_gives_the_same_and_can_be_saved_again(
    saved: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, expected = saved
    again = tmp_path / "again"
    for source, target in ((folder, again), (again, "")):
        result = load_elsewhere(source, tmp_path, refused="copynet_hf,jieba,rjieba,fugashi,unidic_lite", again=target)
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
