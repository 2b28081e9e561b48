"""Model folders that are damaged, or that name code of their own: the commands refuse them in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import refused, tiny_model

from copynet_hf.arguments import TrainArguments
from copynet_hf.saved.loading import load_model
from copynet_hf.training.model_setup import load_given_model
from copynet_hf.training.tokenizer_setup import load_given_tokenizer

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


@pytest.fixture
def copy(saved_model: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved_model, tmp_path / "model")


# ---- damaged files


def write(content: bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content)


def set_fields(**fields: Any) -> Callable[[Path], Any]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def cut(size: int) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


DAMAGE: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "weights cut in the header": ("model.safetensors", cut(100), "damaged"),
    "weights cut in the data": ("model.safetensors", cut(-8), "damaged"),
    "empty weights": ("model.safetensors", write(b""), "damaged"),
    "text as weights": ("model.safetensors", write(b"<html>not found</html>" * 9), "damaged"),
    "weights as a Git LFS pointer": ("model.safetensors", write(LFS_POINTER), "git lfs pull"),
    "weights of other sizes": ("config.json", set_fields(hidden_size=9), "shapes"),
    "a million layers": (
        "config.json",
        set_fields(num_hidden_layers=10**6),
        "cannot be loaded (num_hidden_layers is 1000000: use at most 1000)",
    ),
    "absurd sizes": ("config.json", set_fields(hidden_size=10**8), "cannot be loaded (a model of "),
    "null as config": ("config.json", write(b"null"), "JSON object"),
    "config in another encoding": ("config.json", write(b"\xff\xfe{\x00}\x00"), "JSON object"),
    "deeply nested config": ("config.json", write(b"[" * 100_000), "JSON object"),
    "a number of 5,000 digits": ("config.json", write(b'{"hidden_size": ' + b"9" * 5_000 + b"}"), "JSON object"),
    "config as a Git LFS pointer": ("config.json", write(LFS_POINTER), "git lfs pull"),
    "an unknown mechanism": (
        "config.json",
        set_fields(copy_mechanism="halves"),
        "cannot be loaded (copy_mechanism='halves' is unknown: use one of copynet, none, pointer_generator, gated, "
        "pointer, retrieval.): it was saved by another version of copynet_hf",
    ),
    "a list as model_type": ("config.json", set_fields(model_type=[]), "cannot be loaded"),
    "generation config cut": ("generation_config.json", cut(20), "JSON object"),
    "no beams": ("generation_config.json", set_fields(num_beams=0), "num_beams is 0"),
    "no length": ("generation_config.json", set_fields(max_length=0), "max_length is 0"),
    "400 digits": ("generation_config.json", set_fields(temperature=10**400), "write a number"),
    "no vocabulary": ("vocab.json", Path.unlink, "tokenizer.save_pretrained"),
    "vocabulary cut": ("vocab.json", cut(50), "JSON object"),
    "no tokenizer config": ("tokenizer_config.json", Path.unlink, "tokenizer.save_pretrained"),
    "a length in words": ("tokenizer_config.json", set_fields(model_max_length="x"), "model_max_length is 'x'"),
    "list as tokenizer config": ("tokenizer_config.json", write(b"[]"), "JSON object"),
}


@pytest.mark.parametrize(("name", "damage", "fault"), DAMAGE.values(), ids=DAMAGE)
def test_the_error_names_the_damaged_file_and_the_fault(
    copy: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], Any], fault: str
) -> None:
    damage(copy / name)
    line = refused(capsys, "generate", f"--model={copy}", "--text", "a b X")
    assert line.startswith(f"copynet-hf generate: {copy}")
    assert name in line or "cannot be loaded" in fault
    assert fault in line


def test_a_damaged_shard_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "model.safetensors").unlink()
    tiny_model().save_pretrained(copy, max_shard_size=1000)
    shard = sorted(copy.glob("model-*.safetensors"))[1]
    cut(-8)(shard)
    assert str(shard) in refused(capsys, "generate", f"--model={copy}", "--text", "a")


# ---- code of a model's own

EVIL_CODE = """
from pathlib import Path
Path({marker!r}).write_text("ran")
from transformers import BertConfig, BertForMaskedLM, BertTokenizer
class Config(BertConfig):
    model_type = "evil"
Model, Tokenizer = BertForMaskedLM, BertTokenizer
"""


@pytest.fixture
def evil(copy: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A model that names its own code, and the file that this code would write."""
    marker = tmp_path / "marker"
    (copy / "evil.py").write_text(EVIL_CODE.format(marker=str(marker)))
    classes = {"AutoConfig": "evil.Config", "AutoModelForSeq2SeqLM": "evil.Model"}
    set_fields(model_type="evil", auto_map=classes)(copy / "config.json")
    tokenizer_classes = {"AutoTokenizer": ["evil.Tokenizer", None]}
    set_fields(tokenizer_class="Evil", auto_map=tokenizer_classes)(copy / "tokenizer_config.json")
    return copy, marker


COMMANDS = {
    "generate": [],
    "evaluate": ["--test_file={pairs}"],
    "demo": [],
    "export": ["--output_dir={out}"],
    "train": ["--model_name_or_path={model}", "--train_file={pairs}", "--output_dir={out}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_code_of_a_model_is_not_run_and_nobody_asked(
    evil: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    model, marker = evil
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "out"
    pairs.write_text('{"text": "a b", "summary": "a"}\n' * 8)
    places = {"pairs": pairs, "out": out, "model": model}
    argv = [command, *(argument.format(**places) for argument in COMMANDS[command])]
    if command != "train":
        argv.append(f"--model={model}")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    if command == "generate":
        argv.append("--text=a")
    line = refused(capsys, *argv)
    assert not marker.exists()
    assert not out.exists()
    assert str(model) in line
    assert "--trust_remote_code" in line


def test_code_of_a_model_is_run_with_trust_remote_code(
    evil: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, marker = evil
    refused(capsys, "generate", f"--model={model}", "--text=a", "--trust_remote_code")  # it is not a CopyNet
    assert marker.exists()


def test_code_of_a_tokenizer_is_not_run(evil: tuple[Path, Path]) -> None:
    model, marker = evil
    with pytest.raises(ValueError, match="--trust_remote_code"):
        load_given_tokenizer(str(model), TrainArguments())
    assert not marker.exists()


def test_the_code_saved_with_a_copynet_needs_no_trust(saved_model: Path) -> None:
    assert (saved_model / "modeling_copynet.py").exists()
    model, _ = load_model(str(saved_model), "cpu")
    assert type(model).__module__.startswith("copynet_hf.")
    assert type(load_given_model(str(saved_model), TrainArguments(), is_checkpoint=False)) is type(model)
