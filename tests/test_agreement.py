"""Every door gives the same outputs, scores and spans: those of `predict` with PyTorch."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import ask_app, save_parts, tiny_model, write_rows
from test_predictor import make_tokenizer
from test_web_export import count_units, export_page, open_page, run_script
from transformers import AutoTokenizer, pipeline

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetPredictor, CopyNetTokenizer
from copynet_hf.cli import main
from copynet_hf.inference.backends import load_backend
from copynet_hf.inference.predictor import ORIGINS, predict_in_batches
from copynet_hf.model.prediction import Prediction
from copynet_hf.serving.limits import Limits
from copynet_hf.serving.process import load_predict
from copynet_hf.serving.server import build_app

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

WORDS = [*"ab7", "Ottilie", "Krahn", "14:35,", "budget_2031.xlsx", "Zo\u00eb", "\U0001f600", "x\u0308", "\u5317"]
SEARCH: dict[str, Any] = {"num_beams": 2, "max_new_tokens": 7, "copied_only": r"\d", "max_source_length": 9}
PROBABILITIES = ("score", "confidence", "word_scores", "copy_shares")


def make_texts(count: int) -> list[str]:
    generator, gaps = random.Random(0), [" ", " ", "  ", "\t", "\r\t", ""]
    texts = ["", " \t", " a  Krahn "]
    while len(texts) < count:
        words = generator.choices(WORDS, k=generator.randint(1, 9))
        texts.append("".join(word + generator.choice(gaps) for word in words))
    return texts[:count]


def make_letters(words: CopyNetTokenizer) -> CopyNetTokenizer:
    """A tokenizer of as many letters as another has words, for the same graphs."""
    letters = [*"abo7Krahn", *map(chr, range(0x4E00, 0x4E20))][: len(words) - 4]
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *letters]
    ids = {word: index for index, word in enumerate(vocabulary)}
    return CopyNetTokenizer(ids, "char", max_source_oov=words.max_source_oov)


def fields_for(tokenizer: Any) -> dict[str, Any]:
    return {"seed": 2, "copy_mechanism": "pointer_generator", **CopyNetConfig.tokenizer_fields(tokenizer)}


@pytest.fixture(scope="module", params=["words", "letters", "pieces"])
def folder(request: pytest.FixtureRequest, requests: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, with its graphs in `onnx`: one trained on words, which letters find at random, or a random one."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "pieces":
        tokenizer = make_tokenizer()
        model = tiny_model(**fields_for(tokenizer))
    else:
        model = CopyNetForConditionalGeneration.from_pretrained(requests / "model")
        tokenizer = CopyNetTokenizer.from_pretrained(requests / "model")
        tokenizer = tokenizer if request.param == "words" else make_letters(tokenizer)
        shutil.copytree(requests / "onnx", folder / "onnx")
        tokenizer.save_pretrained(folder / "onnx")
    return save_parts(folder, model, tokenizer)


def describe(outputs: list[list[Prediction]]) -> list[dict[str, Any]]:
    return json.loads(json.dumps([best.to_dict() for best, *_ in outputs]))


def by_predict(folder: Path, texts: list[str], backend: str = "torch") -> list[dict[str, Any]]:
    loaded = load_backend(str(folder if backend == "torch" else folder / "onnx"), backend)
    return describe(predict_in_batches(*loaded, texts, **SEARCH))


def by_predictor(folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    return describe([[output] for output in CopyNetPredictor(folder, **SEARCH)(texts)])


def by_pipeline(folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    outputs = pipeline("copy-text2text", model=str(folder))(texts, **SEARCH)
    return json.loads(json.dumps([{"text": output.pop("generated_text"), **output} for (output,) in outputs]))


def name_options() -> list[str]:
    names = {"max_new_tokens": "max_target_length"}
    return [f"--{names.get(name, name)}={value}" for name, value in SEARCH.items()]


def by_generate(folder: Path, texts: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["generate", f"--model={folder}", "--json", *name_options(), "--text", *texts]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def by_files(folder: Path, texts: list[str], tmp_path: Path, suffix: str) -> list[dict[str, Any]]:
    source, output = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in texts]), tmp_path / f"out{suffix}"
    argv = [f"--model={folder}", f"--input_file={source}", f"--output_file={output}", "--with_origins"]
    assert main(["predict", *argv, *name_options()]) == 0
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        rows = pq.read_table(output).to_pylist()
    else:
        rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    return [{"text": row["prediction"], **{name: row[f"prediction_{name}"] for name in ORIGINS}} for row in rows]


def by_server(folder: Path, texts: list[str]) -> list[dict[str, Any]]:
    options = {name: SEARCH[name] for name in ("copied_only", "max_source_length")}
    predict_batch, saved = load_predict(str(folder / "onnx"), 1, options)
    app = build_app(predict_batch, saved, Limits(max_texts=len(texts), max_work=10**9, timeout=500))
    search = {name: value for name, value in SEARCH.items() if name not in options}
    status, answer = ask_app(app, texts=texts, **search)
    assert status == 200, answer
    return [best for best, *_ in answer["outputs"]]


def check_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for name, value in one.items():
            if name == "source_words" and one["is_empty"]:
                continue  # rows of files without words are not read
            if name in PROBABILITIES:
                assert value == pytest.approx(other[name], abs=1e-4), name
            else:
                assert value == other[name], name


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_all_doors_agree(
    folder: Path,
    count: int,
    exported_once: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts, has_pieces = make_texts(count), folder.name.startswith("pieces")
    expected = by_predict(folder, texts)
    doors: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "predictor": partial(by_predictor, folder, texts),
        "pipeline": partial(by_pipeline, folder, texts),
        "generate": partial(by_generate, folder, texts, capsys),
        "predict": partial(by_files, folder, texts, tmp_path, ".jsonl"),
        "predict parquet": partial(by_files, folder, texts, tmp_path, ".parquet"),
    }
    if has_pieces and count > 20:  # an export of their own
        shutil.copytree(exported_once(**fields_for(AutoTokenizer.from_pretrained(folder))), folder / "onnx")
        AutoTokenizer.from_pretrained(folder).save_pretrained(folder / "onnx")
    if (folder / "onnx").exists():
        doors["onnx"] = partial(by_predict, folder, texts, "onnx")
    if not has_pieces:  # whose tokenizer the server does not have
        doors["server"] = partial(by_server, folder, texts)
    for door, ask in doors.items():
        found = ask()
        check_same(found, expected)
        assert found, door
    assert [row["is_empty"] for row in expected[:3]] == [True, True, False]
    assert any(row["copied_spans"] for row in expected)
    assert any(row["is_truncated"] for row in expected)
    for text, row in zip(texts, expected, strict=True):
        assert {each for each in row["text"] if each.isdecimal()} <= set(text)


# ---- the browser

BY_BROWSER = """async ([texts, options]) => {
    const model = await (await import("./copynet.js")).CopyNet.fromPretrained("./model/");
    const found = [];
    for (const text of texts) {
        const [output] = await model.predict(text, options);
        found.push({
            text: output.text,
            score: output.score,
            confidence: output.confidence,
            accepted: output.accepted,
            words: output.words,
            word_scores: output.wordScores,
            copied: output.copied,
            copy_shares: output.copyShares,
            source_positions: output.sourcePositions,
            source_spans: output.sourceSpans,
            copied_spans: output.copiedSpans,
            is_truncated: output.source.isTruncated,
            is_cut: output.isCut,
            is_empty: output.isEmpty,
        });
    }
    return found;
}"""


def count_units_of(output: dict[str, Any], source: str) -> dict[str, Any]:
    """An output of Python with spans in the units of JavaScript's strings."""
    spans = [None if span is None else count_units(source, span) for span in output["source_spans"]]
    copied = [count_units(output["text"], span[:2]) + count_units(source, span[2:]) for span in output["copied_spans"]]
    return output | {"source_spans": spans, "copied_spans": copied}


@pytest.mark.slow  # 1,000 texts
@pytest.mark.parametrize("folder", ["words", "letters"], indirect=True)  # the page has no tokenizer of pieces
def test_the_browser_agrees(folder: Path, runtime: Path, browser: Any, tmp_path: Path) -> None:
    texts = make_texts(1000)
    expected = [count_units_of(*row) for row in zip(by_predict(folder, texts), texts, strict=True)]
    model, tokenizer = (each.from_pretrained(folder) for each in (CopyNetForConditionalGeneration, CopyNetTokenizer))
    tokenizer.model_max_length = SEARCH["max_source_length"]  # which is no option of the page
    options = {name: value for name, value in SEARCH.items() if name != "max_source_length"}
    tab = browser.new_page()
    for page in export_page(tmp_path, runtime, model, tokenizer, graphs=folder / "onnx"):
        open_page(tab, page)
        check_same(run_script(tab, BY_BROWSER, [texts, options]), expected)
    tab.close()
