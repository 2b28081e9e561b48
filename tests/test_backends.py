"""`CopyNetPredictor` and the commands by PyTorch and by ONNX, compared with a plain loop over `generate()`."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset
from helpers import loop_over_generate, save_parts, tiny_model, tiny_tokenizer, write_rows
from transformers import AutoTokenizer, pipeline

from copynet_hf import CopyNetPredictor, OnnxCopyNet
from copynet_hf.cli import main
from copynet_hf.inference.backends import OnnxModel, load_backend
from copynet_hf.inference.predictor import stamp_files
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model, load_tokenizer
from copynet_hf.serving.process import make_stoppable
from copynet_hf.training.defaults import build_training_arguments

TEXTS = ["a b c X", "b", "X Y a X Z d e f", "Q i h", "a a X b", "c d"]
OPTIONS: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 6, "forbid_unk": True}
BACKENDS = ("torch", "onnx")


class Folders(NamedTuple):
    torch: Path
    onnx: Path


def save_both(folder: Path, exported_once: Callable[..., Path], **fields: Any) -> Folders:
    folders = Folders(folder / "torch", folder / "onnx")
    tiny_model(**fields).save_pretrained(folders.torch)
    shutil.copytree(exported_once(**fields), folders.onnx)
    for each in folders:
        tiny_tokenizer().save_pretrained(each)
    return folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, exported_once: Callable[..., Path]) -> Folders:
    return save_both(tmp_path_factory.mktemp("models"), exported_once, copy_mechanism="retrieval", seed=1)


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def expected(folders: Folders) -> list[str]:
    """The outputs of TEXTS."""
    return loop_over_generate(folders.torch, TEXTS, **OPTIONS)


# ---- the predictor


def test_columns_get_a_column_of_predictions(folders: Folders, expected: list[str], backend: str) -> None:
    predict = CopyNetPredictor(getattr(folders, backend), backend, text_column="body", batch_size=2, **OPTIONS)
    columns = {"id": list(range(len(TEXTS))), "body": TEXTS}
    assert predict(columns) == {**columns, "prediction": expected, "prediction_is_truncated": [False] * len(TEXTS)}
    assert list(columns) == ["id", "body"]
    arrays = {"id": np.arange(len(TEXTS)), "body": np.array(TEXTS, dtype=object)}
    assert list(predict(arrays)["prediction"]) == expected
    assert list(predict({"body": np.array(TEXTS)})["prediction"]) == expected


def test_empty_and_missing_texts_keep_their_rows(folders: Folders, expected: list[str]) -> None:
    predict = CopyNetPredictor(folders.onnx, "onnx", with_origins=True, **OPTIONS)
    columns = predict({"text": ["", TEXTS[0], None, " ", float("nan")]})
    assert columns["prediction"] == ["", expected[0], None, "", None]
    assert columns["prediction_words"][2] is None
    assert columns["prediction_words"][3] == []
    assert columns["prediction_is_empty"] == [True, False, None, True, None]
    assert [output and output.text for output in predict(["", None, float("nan")])] == ["", None, None]
    assert predict([]) == []
    longer = CopyNetPredictor(folders.onnx, "onnx", num_beams=2, min_new_tokens=2, max_new_tokens=4)
    assert [output.text == "" for output in longer(["", TEXTS[0], " ", "\t\n"])] == [True, False, True, True]
    with pytest.raises(ValueError, match="row 1 of the texts is a int: pass texts"):
        predict(["a", 1])


def test_columns_of_pandas_are_read_by_position_whatever_their_index(folders: Folders, expected: list[str]) -> None:
    pandas = pytest.importorskip("pandas")
    predict = CopyNetPredictor(folders.torch, batch_size=2, with_origins=True, **OPTIONS)
    frame = pandas.DataFrame({"text": TEXTS, "facts": [None] * len(TEXTS)}, index=range(len(TEXTS)))
    output_of = dict(zip(TEXTS, expected, strict=True))
    sampled = frame.sample(frac=1, random_state=0)
    for part in (sampled, frame.iloc[1:], frame.set_index(pandas.Index(["x"] * len(TEXTS))), frame.iloc[:0]):
        outputs = [output_of[text] for text in part["text"]]
        for columns in (part, {"text": part["text"]}):
            assert list(predict(columns)["prediction"]) == outputs
        assert [output.text for output in predict(part["text"])] == outputs
    found = predict(sampled)
    assert found.index.equals(sampled.index)
    assert list(found["prediction_source_words"]) == [text.split() for text in sampled["text"]]
    assert list(sampled.columns) == ["text", "facts"]
    missing = pandas.DataFrame({"text": [TEXTS[0], None, pandas.NA, float("nan"), ""]}, index=[4, 3, 2, 1, 0])
    for column in (missing["text"], missing["text"].astype("string")):
        assert predict({"text": column})["prediction"] == [expected[0], None, None, None, ""]
    found = predict(missing)
    assert list(found[~found["prediction_is_truncated"]].index) == [4, 0]  # a missing text is neither


def test_columns_of_arrow_are_read(folders: Folders, expected: list[str]) -> None:
    predict = CopyNetPredictor(folders.torch, **OPTIONS)
    outputs = [expected[0], None, ""]
    values = [TEXTS[0], None, ""]
    plain = pa.array(values)
    for column in (plain, plain.dictionary_encode(), pa.array(values, pa.string_view()), pa.chunked_array([plain])):
        assert predict({"text": column})["prediction"] == outputs
        assert [output and output.text for output in predict(column)] == outputs
    assert predict({"text": pa.nulls(2)})["prediction"] == [None, None]


def test_columns_of_another_form_are_refused_with_what_to_pass(folders: Folders) -> None:
    predict = CopyNetPredictor(folders.torch, **OPTIONS)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="the input is a Table: pass a DataFrame of pandas, or a dict of its columns"):
        predict(pa.table({"text": TEXTS}))
    with pytest.raises(ValueError, match="the column 'text' is a generator: pass a list"):
        predict({"text": (text for text in TEXTS)})
    with pytest.raises(ValueError, match=r"no column 'text'; the columns are 'body'; text_column names another$"):
        predict({"body": TEXTS})
    with pytest.raises(ValueError, match=r"no column 'content'; the columns are 'body'$"):
        CopyNetPredictor(folders.torch, text_column="content", **OPTIONS)({"body": TEXTS})
    with pytest.raises(ValueError, match="there are two columns 'text': rename one"):
        predict(pandas.DataFrame([TEXTS[:2]], columns=["text", "text"]))


def test_facts_are_read_from_their_column(folders: Folders) -> None:
    texts = ["a X", "b c", "a Y d"]
    options: dict[str, Any] = {"max_new_tokens": 5, "forbid_unk": True}
    facts: list[Any] = [[["X", "b", "1931"], ["X", "c", "Y"]], [], [["Y", "e", "Z"]]]
    expected = loop_over_generate(folders.torch, texts, facts, **options)
    assert expected != loop_over_generate(folders.torch, texts, **options)
    nested = np.array([None] * 3)
    nested[:] = [np.array(each, dtype=object) for each in facts]
    for backend in BACKENDS:
        predict = CopyNetPredictor(getattr(folders, backend), backend, facts_column="known", **options)
        assert predict({"text": texts, "known": facts})["prediction"] == expected
        assert predict({"text": np.array(texts), "known": nested})["prediction"] == expected
        assert predict({"text": texts, "known": list(map(json.dumps, facts))})["prediction"] == expected
        with pytest.raises(ValueError, match="row 2: 'known' are not triples of strings"):
            predict({"text": texts, "known": [*facts[:2], "Y | e | Z"]})


def test_features_are_read_from_their_column_as_lists_or_strings(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(feature_vocab=["V", "PST", "PRS"])
    model = tiny_model(feature_vocab_size=tokenizer.feature_vocab_size, seed=2)
    save_parts(tmp_path, model, tokenizer)
    texts, features = ["a b X", "a b X", "c"], [["V", "PST"], ["V", "PRS"], []]
    inputs = tokenizer(texts, features=features, padding=True, return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=5, forbid_unk=True)
    expected = tokenizer.batch_decode(ids, source=texts, skip_special_tokens=True)
    options: dict[str, Any] = {"features_column": "tags", "features_separator": "|"}
    predict = CopyNetPredictor(tmp_path, **options, max_new_tokens=5, forbid_unk=True)
    assert predict({"text": texts, "tags": features})["prediction"] == expected
    for missing in (None, float("nan")):
        assert predict({"text": texts, "tags": ["V|PST", "V| PRS", missing]})["prediction"] == expected
    with pytest.raises(ValueError, match="reads features: name their column with features_column"):
        predict({"text": texts})
    with pytest.raises(ValueError, match=r"the model reads features, and the texts have none: pass columns, {'text'"):
        predict(texts)
    assert predict([]) == []
    with pytest.raises(ValueError, match=r"row 2: 'tags' is of type list, neither a string nor a list of strings"):
        predict({"text": texts, "tags": ["V", "V", [3]]})


def test_a_predictor_is_pickled_without_its_model(folders: Folders) -> None:
    predict = CopyNetPredictor(folders.onnx, "onnx", **OPTIONS)
    before = pickle.dumps(predict)
    outputs = predict(TEXTS)
    assert pickle.dumps(predict) == before
    assert len(before) < 2_000
    assert pickle.loads(before)(TEXTS) == outputs


def test_the_pickle_changes_with_the_models_files(folders: Folders) -> None:
    """`datasets` would otherwise return the outputs of the folder's previous model."""
    predict = CopyNetPredictor(folders.torch, **OPTIONS)
    before = pickle.dumps(predict)
    assert len(stamp_files(str(folders.torch))) > 3
    os.utime(folders.torch / "model.safetensors")
    assert pickle.dumps(predict) != before


@pytest.mark.parametrize("num_proc", [None, 2])
def test_datasets_maps_a_predictor(folders: Folders, expected: list[str], num_proc: int | None) -> None:
    predict = CopyNetPredictor(folders.onnx, "onnx", **OPTIONS)
    if num_proc:
        predict(TEXTS[:1])  # a loaded model must not be shared with the workers
    data = Dataset.from_dict({"id": range(len(TEXTS)), "text": TEXTS})
    mapped = data.map(predict, batched=True, batch_size=2, num_proc=num_proc)
    assert mapped.column_names == ["id", "text", "prediction", "prediction_is_truncated"]
    assert list(mapped["prediction"]) == expected
    assert list(mapped["id"]) == list(range(len(TEXTS)))


SPAWNED = """
import json, multiprocessing, sys
import torch
from copynet_hf import CopyNetPredictor

def work(predict):
    texts = [output.text for output in predict(["a b c X"])]
    model, _ = predict.load()
    session = getattr(model, "encoder", None) if predict.loading["backend"] == "onnx" else None
    return texts, session.get_session_options().intra_op_num_threads if session else torch.get_num_threads()

if __name__ == "__main__":
    torch.set_num_threads(2)
    options = {"max_new_tokens": 4, "forbid_unk": True}
    predictors = [CopyNetPredictor(*sys.argv[1:], threads=threads, **options) for threads in (None, 2)]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(json.dumps([pool.apply(work, [predict]) for predict in predictors]))
    print(torch.get_num_threads())
"""


@pytest.mark.slow  # two processes each
@pytest.mark.parametrize("backend", BACKENDS)
def test_worker_processes_use_one_thread_unless_told_otherwise(folders: Folders, backend: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNED, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    argv = [sys.executable, str(script), str(getattr(folders, backend)), backend]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results, threads = done.stdout.strip().splitlines()[-2:]
    expected = loop_over_generate(folders.torch, TEXTS[:1], max_new_tokens=4, forbid_unk=True)
    assert json.loads(results) == [[expected, 1], [expected, 2]]
    assert threads == "2"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a b", "is the text 'a b': pass a list of texts"),
        ({"body": ["a"]}, "no column 'text'; the columns are 'body'"),
        ({"text": "a b"}, r"holds one text: pass lists \(map with batched=True\)"),
        ({"text": ["a", 3]}, "row 1 of the column 'text' is a int: pass texts"),
    ],
)
def test_inputs_that_are_no_texts_are_named(folders: Folders, inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CopyNetPredictor(folders.torch)(inputs)


@pytest.mark.parametrize(
    ("folder", "options", "message"),
    [
        ("torch", {"backend": "onnx"}, r"run copynet-hf export --model .*torch --output_dir torch-onnx, and use"),
        ("onnx", {}, "holds ONNX graphs: use backend='onnx' .--backend onnx., if the command has it, or pass"),
        ("torch", {"backend": "jax"}, "the backend is 'jax': use torch or onnx"),
        ("onnx", {"backend": "onnx", "bf16": True}, "bf16 is for the backend torch"),
        ("onnx", {"backend": "onnx", "device": "cuda"}, "device is for the backend torch"),
    ],
)
def test_a_folder_of_the_other_backend_is_named_with_the_fix(
    folders: Folders, folder: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CopyNetPredictor(getattr(folders, folder), **options)(TEXTS)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("decoder.onnx", b"damaged", "cannot be loaded .*: export the model again"),
        ("encoder.onnx", b"version https://git-lfs.github.com/spec/v1", "encoder.onnx is a Git LFS pointer"),
        ("generation_config.json", b'{"num_beams": "four"}', "generation_config.json: num_beams is 'four': write a"),
        ("generation_config.json", b"{", "generation_config.json is not a JSON object"),
    ],
)
def test_damaged_exports_are_named(folders: Folders, tmp_path: Path, file: str, content: bytes, message: str) -> None:
    shutil.copytree(folders.onnx, tmp_path / "model")
    (tmp_path / "model" / file).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        CopyNetPredictor(tmp_path / "model", "onnx")(TEXTS)


def test_names_of_no_folder_are_in_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match="nowhere: no such folder"):
        OnnxCopyNet.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(OSError, match="nowhere is no folder here, and cannot be loaded from the Hub"):
        load_tokenizer("nowhere")
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", Mock(side_effect=PermissionError(13, "denied")))
    with pytest.raises(PermissionError, match="denied"):
        load_tokenizer("nowhere")


@pytest.mark.parametrize(("instruction", "warnings"), [("avx512_bf16", 0), ("bf16", 0), ("avx2", 1)])
def test_bfloat16_without_its_instructions_is_slower_and_said_so(
    folders: Folders,
    instruction: str,
    warnings: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {instruction: True, "architecture": "x86_64"})
    load_model(str(folders.torch), "cpu:0", bf16=True)
    load_model(str(folders.torch), "cpu")
    build_training_arguments({"bf16": True, "output_dir": "unused"}, Dataset.from_dict({"text": ["a"]}), False)
    build_training_arguments({"output_dir": "unused"}, Dataset.from_dict({"text": ["a"]}), False)
    assert caplog.text.count("no bfloat16 instructions; leave it out") == 2 * warnings


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_search_without_time_left_returns_what_it_has(folders: Folders, num_beams: int) -> None:
    options: dict[str, Any] = {"num_beams": num_beams, "max_new_tokens": 6, "min_new_tokens": 3, "max_time": 1e-9}
    by_torch, by_onnx = (
        [output.words for output in CopyNetPredictor(folder, backend, **options)(TEXTS)]
        for folder, backend in zip(folders, BACKENDS, strict=True)
    )
    assert by_torch == by_onnx
    assert {len(words) for words in by_onnx} == {1}


# ---- the pipeline, the page and the commands


def test_the_pipeline_takes_the_exported_folder(folders: Folders) -> None:
    torch_pipe, onnx_pipe = (pipeline("copy-text2text", model=str(folder), **OPTIONS) for folder in folders)
    expected, outputs = torch_pipe(TEXTS), onnx_pipe(TEXTS, batch_size=3)
    names = ("generated_text", "words", "copied", "source_positions", "source_words")
    assert [[output[name] for name in names] for (output,) in outputs] == [
        [output[name] for name in names] for (output,) in expected
    ]


def test_generate_and_evaluate_by_onnx_print_what_they_print_by_pytorch(
    folders: Folders, expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test_file = write_rows(tmp_path / "test.jsonl", [{"text": text, "summary": "a X"} for text in TEXTS])
    commands = (["generate", "--text", *TEXTS], ["evaluate", f"--test_file={test_file}"])
    decoding = ["--num_beams=3", "--max_target_length=6", "--forbid_unk"]
    for command in commands:
        printed = []
        for backend in BACKENDS:
            capsys.readouterr()
            argv = [*command, f"--model={getattr(folders, backend)}", f"--backend={backend}", *decoding]
            assert main(argv) == 0
            printed.append(capsys.readouterr().out)
        if command[0] == "evaluate":
            scores = [json.loads(text) for text in printed]
            assert [score.pop("seconds") >= 0 for score in scores] == [True, True]
            missing = [{name for name in score if score[name] is None} for score in scores]
            assert missing[0] == missing[1]
            numbers = [{name: score[name] for name in score.keys() - missing[0]} for score in scores]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-5)
        else:
            assert printed[0] == printed[1]
            assert printed[0].splitlines() == expected


def test_a_stoppable_model_searches_as_before_until_it_is_stopped(folders: Folders) -> None:
    model, tokenizer = load_backend(str(folders.onnx), "onnx")
    assert isinstance(model, OnnxModel)
    steps = []

    def check() -> None:
        steps.append(1)
        if len(steps) > 30:
            raise TimeoutError

    stoppable = make_stoppable(model, check)
    for _ in range(2):
        assert predict(stoppable, tokenizer, TEXTS[:1], **OPTIONS) == predict(model, tokenizer, TEXTS[:1], **OPTIONS)
    steps += range(30)
    with pytest.raises(TimeoutError):
        predict(stoppable, tokenizer, TEXTS, **OPTIONS)
