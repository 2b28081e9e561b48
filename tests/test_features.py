"""Features of sources in the model: against the oracle, in searches, commands, saved models, ONNX graphs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import (
    LETTERED,
    READERS,
    TARGETS,
    beside,
    padded,
    refused,
    save_parts,
    serve_app,
    sources,
    tiny_model,
    tiny_tokenizer,
)
from tiny_encoders import copynet_over, save_encoder, word_tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.cli import main
from copynet_hf.data.remembered import remember_options
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model
from copynet_hf.training.dataset import encode_pairs

CASES = {name: changes for name, changes in READERS.items() if "feature_vocab_size" in changes}
CASES["coreqa"] = {"copy_mechanism": "retrieval"}
cases = pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
TEXTS, TAGS = ["a X b Y X", "Z c", "a b c d"], [["V", "PST"], ["PL"], ["N"]]


def make(**changes: Any) -> CopyNetForConditionalGeneration:
    return tiny_model(**{"feature_vocab_size": 5, "seed": 1, **changes})


def make_tokenizer() -> CopyNetTokenizer:
    return tiny_tokenizer(feature_vocab=["N", "PST", "V"])


def batch() -> dict[str, Tensor]:
    return sources() | beside(CopyNetConfig(**LETTERED))  # letters are ignored by models without


# equations


@cases
def test_features_are_a_set_and_padding_does_not_matter(changes: dict[str, Any]) -> None:
    model = make(**changes).double()
    words = padded([[1, *target[:-1]] for target in TARGETS], 0)
    logits = model(**batch(), decoder_input_ids=words).logits
    for features in ([[3, 0, 0, 2], [0, 1, 0, 0], [0] * 4, [0, 2, 3, 4]], [[3, 2, 0], [9, 0, 0], [0] * 3, [2, 3, 4]]):
        changed = model(**batch() | {"feature_ids": torch.tensor(features)}, decoder_input_ids=words).logits
        assert torch.allclose(changed, logits, atol=1e-5)  # 9: outside the vocabulary, hence unknown
    without = model(**batch() | {"feature_ids": None}, decoder_input_ids=words).logits
    for row in (1, 2):  # the unknown feature, and none
        assert torch.allclose(without[row], logits[row], atol=1e-5)
    for row in (0, 3):
        assert not torch.allclose(without[row], logits[row], atol=1e-2)


@cases
def test_sources_may_have_no_features(changes: dict[str, Any]) -> None:
    model, tokenizer = make(**changes), make_tokenizer()
    expected = model.generate(**tokenizer("a b", return_tensors="pt"), max_new_tokens=4)
    for features in ([], [None]):
        texts: Any = "a b" if not features else ["a b"]
        inputs = tokenizer(texts, features=features, return_tensors="pt")
        assert inputs["feature_ids"].shape == (1, 0)
        assert torch.equal(model.generate(**inputs, max_new_tokens=4), expected)


def test_a_feature_is_never_copied() -> None:
    model = make()
    inputs = batch()
    plain = {name: value for name, value in inputs.items() if name != "feature_ids"}
    words = padded([[1, *target[:-1]] for target in TARGETS], 0)
    output, without = (model(**source, decoder_input_ids=words) for source in (inputs, plain))
    assert output.copy_probs.shape == without.copy_probs.shape  # features have no positions
    assert torch.allclose(output.logits.exp().sum(-1), torch.ones(words.shape), atol=1e-5)
    encoded, other = (model.get_encoder()(**source) for source in (inputs, plain))
    assert torch.equal(encoded.source_ids, other.source_ids)
    assert torch.equal(encoded.source_mask, other.source_mask)
    assert torch.equal(encoded.last_hidden_state[~encoded.source_mask], other.last_hidden_state[~other.source_mask])


def test_the_page_separates_features_as_the_training_did() -> None:
    pytest.importorskip("fastapi")
    from copynet_hf.serving.page import build_demo

    tokenizer, separators = make_tokenizer(), []
    for options in ({}, {"features_separator": "|"}):
        remember_options(tokenizer, options)
        with serve_app(build_demo(make(), tokenizer)) as url, urlopen(f"{url}page.json") as answer:
            separators.append(json.load(answer)["model"]["features_separator"])
    assert separators == [";", "|"]


# graphs


def test_an_array_that_is_left_out_is_as_none(exported_once: Callable[..., Path]) -> None:
    model = tiny_model(**LETTERED)
    onnx = OnnxCopyNet.from_pretrained(exported_once(**LETTERED), threads=1)
    inputs = sources() | beside(model.config)
    inputs["input_ids"] = inputs["input_ids"].clamp(max=model.config.vocab_size - 1)  # without letters, no slots
    for names in (["feature_ids"], ["letter_ids"], ["feature_ids", "letter_ids"]):
        rest = {name: value for name, value in inputs.items() if name not in names}
        empty = rest | {name: inputs[name][:, :0] for name in names}
        expected: Any = model.generate(**rest, num_beams=3, max_new_tokens=6)
        for each in (rest, empty):
            arrays = {name: value.numpy() for name, value in each.items()}
            assert np.array_equal(onnx.generate(**arrays, num_beams=3, max_new_tokens=6), expected.numpy())


# a Transformers encoder


def test_features_with_a_transformers_encoder(tmp_path: Path) -> None:
    encoder = save_encoder(tmp_path / "bert")
    tokenizer = word_tokenizer(encoder, features=[["V", "PST"], ["N"]])
    model = copynet_over(encoder, tokenizer)
    texts, tags = ["today", "call Benedikta", "today"], [["V"], [], ["N", "PST"]]
    inputs = tokenizer(texts, features=tags, padding=True, return_tensors="pt")
    words = torch.tensor([[1, 5, 6]] * 3)
    logits = model(**inputs, decoder_input_ids=words).logits
    encoder_of_model, ids = model.get_encoder(), inputs.pop("feature_ids")
    encoded = encoder_of_model(**inputs)  # without features; the rest by hand
    encoded.features, encoded.feature_mask = encoder_of_model.feature_embeddings(ids), ids > 1
    totals = torch.stack([row[kept].sum(0) for row, kept in zip(encoded.features, encoded.feature_mask, strict=True)])
    sums = encoder_of_model.feature_state_proj(totals)[:, None] * inputs["attention_mask"][..., None]
    encoded.last_hidden_state = encoded.last_hidden_state + sums
    assert torch.allclose(model(encoder_outputs=encoded, decoder_input_ids=words).logits, logits, atol=1e-6)
    inputs["feature_ids"] = ids
    assert not torch.allclose(logits[0], logits[2], atol=1e-3)  # the same text
    model(**inputs, labels=words).loss.backward()
    assert model.get_encoder().feature_embeddings.weight.grad[2:].abs().min() > 0
    save_parts(tmp_path / "saved", model, tokenizer)
    expected = predict(model, tokenizer, texts, features=tags, num_beams=2, max_new_tokens=6)
    loaded = load_model(str(tmp_path / "saved"), "cpu")
    assert predict(*loaded, texts, features=tags, num_beams=2, max_new_tokens=6) == expected


# errors


@pytest.mark.parametrize(
    ("changes", "features", "message"),
    [
        ({"feature_vocab_size": 0}, [[2]], "feature_ids are given, but feature_vocab_size is 0"),
        ({}, [[2], [3]], r"feature_ids has shape \(2, 1\), the source \(1, 2\)"),
        ({}, [2], r"feature_ids has shape \(1,\)"),
        ({}, [[-1]], "feature_ids holds -1, and ids start at 0"),
    ],
)
def test_feature_ids_are_checked(changes: dict[str, Any], features: Any, message: str) -> None:
    words = torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match=message):
        make(**changes)(input_ids=words, feature_ids=torch.tensor(features), decoder_input_ids=words)


def test_an_encoders_output_as_a_tuple_would_lose_the_features() -> None:
    model = make()
    encoded = model.get_encoder()(**batch(), return_dict=False)
    with pytest.raises(ValueError, match="encoder_outputs is a tuple, which cannot hold facts, features or letters"):
        model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([[1]] * 4))


# cards and commands


@pytest.mark.parametrize(("column", "value"), [("features", ["V"]), ("facts", [["a", "b", "c"]])])
def test_what_another_tokenizer_cannot_encode_is_refused(column: str, value: list[Any]) -> None:
    pairs = Dataset.from_list([{"text": "a", "summary": "b", column: value}])
    with pytest.raises(ValueError, match=f"the pairs have {column}, which a PreTrainedTokenizerBase cannot encode"):
        encode_pairs(pairs, PreTrainedTokenizerBase())


def test_the_commands_learn_from_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stems = [a + b + c for a in "kpt" for b in "aei" for c in "lmn"]
    endings = {"PST": "d", "FUT": "wa", "PRS": ""}
    rows = [f"{stem}\t{stem}{ending}\tV;{tense}" for stem in stems for tense, ending in endings.items()]
    for name, part in (("a.train", rows[9:]), ("a.dev", rows[:9])):
        (tmp_path / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    sizes = "--embedding_size 24 --hidden_size 48 --encoder_hidden_size 24 --attention_size 24 --dropout 0"
    rates = "--num_train_epochs 25 --learning_rate 0.02 --per_device_train_batch_size 16 --min_frequency 1"
    rates += " --save_strategy no"
    folder = tmp_path / "model"
    data = f"--features_column features --overwrite_output_dir --num_beams 2 --output_dir {folder}"
    files = f"--train_file {tmp_path}/a.train --test_file {tmp_path}/a.dev"
    assert main(["train", *f"{files} {data} {sizes} {rates}".split()]) == 0
    assert json.loads((folder / "test_results.json").read_text())["test_exact_match"] > 80
    output = tmp_path / "predictions.jsonl"
    arguments = ["evaluate", f"--model={folder}", f"--test_file={tmp_path}/a.dev"]
    capsys.readouterr()
    assert main([*arguments, "--features_column=features", f"--output_file={output}"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact_match"] > 80
    assert scores["edit_distance"] < 1
    assert json.loads(output.read_text(encoding="utf-8").splitlines()[0])["features"] == ["V", "PST"]
    assert main(arguments) == 0  # the column is that of the training
    assert json.loads(capsys.readouterr().out)["exact_match"] == scores["exact_match"]
    message = refused(capsys, "generate", "--model", folder, "--text", "pal")
    assert f"{folder} reads features: pass --features" in message
    outputs = []
    for features in ("V;PST", "FUT ; V"):
        assert main(["generate", f"--model={folder}", "--text", "pal", "tin", f"--features={features}"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1]
    assert main(["generate", f"--model={folder}", "--text=pal", "--features=V,PST", "--features_separator=,"]) == 0
    assert capsys.readouterr().out == outputs[0].splitlines(keepends=True)[0]
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"features_column": "features"', '"features_column": "tags"'))
    (tmp_path / "in.jsonl").write_text('{"text": "pal"}\n')
    files = ("--input_file", tmp_path / "in.jsonl", "--output_file", tmp_path / "out.jsonl")
    assert "no column 'tags'" in refused(capsys, "predict", "--model", folder, *files)
