"""`copynet-hf predict`: files of every format against a loop over `generate()`, bad rows, and runs that are killed."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import multiprocessing
import os
import random
import re
import shutil
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Killed, loop_over_generate, refused, save_tiny_model, tiny_tokenizer, write_table
from transformers import AutoTokenizer

from copynet_hf import CopyNetTokenizer, load_pairs
from copynet_hf.cli import main
from copynet_hf.data.files import show_path
from copynet_hf.data.remembered import recall_options, remember_options
from copynet_hf.data.rows import number_rows
from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.inference import file_prediction
from copynet_hf.inference.file_prediction import find_files
from copynet_hf.inference.part_files import write_whole
from copynet_hf.inference.predictor import CopyNetPredictor

DECODING = ["--num_beams=1", "--max_target_length=4"]
DRAW = random.Random(0)
TEXTS = [" ".join(DRAW.choices("abcdefgXYZ", k=DRAW.randint(1, 9))) for _ in range(23)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pointer network, whose outputs are words of the source."""
    search = {"min_new_tokens": 2}
    return save_tiny_model(tmp_path_factory.mktemp("model"), search=search, copy_mechanism="pointer")


@pytest.fixture(scope="module")
def expected(model: Path) -> dict[str, str]:
    """The output of each text, one at a time, by the library's own classes."""
    return dict(zip(TEXTS, loop_over_generate(model, TEXTS, max_new_tokens=4), strict=True))


def command(model: Path, inputs: list[Path] | Path, output: Path, *more: str) -> list[str]:
    files = inputs if isinstance(inputs, list) else [inputs]
    named = [f"--model={model}", "--input_file", *map(str, files), f"--output_file={output}"]
    return ["predict", *named, *DECODING, "--batch_size=3", "--window=5", *more]


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.name.endswith(".parquet"):
        return pq.read_table(path).to_pylist()
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as file:
        if ".jsonl" in path.name:
            return [json.loads(line) for line in file]
        return list(csv.DictReader(file, delimiter="," if ".csv" in path.name else "\t"))


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with (
            pytest.raises(OSError, match=r"out\.jsonl cannot be written \(File too large\)"),
            write_whole(tmp_path / "out.jsonl") as file,
        ):
            file.write(bytes(1 << 21))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


# ---- formats and columns


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("jsonl", "csv.gz"),
        ("jsonl.gz", "parquet"),
        ("csv", "jsonl"),
        ("tsv.gz", "tsv"),
        ("parquet", "jsonl.gz"),
        ("parquet", "tsv"),
    ],
)
def test_rows_keep_their_columns_and_order(
    model: Path, expected: dict[str, str], tmp_path: Path, read: str, written: str
) -> None:
    rows = [{"id": str(number), "text": text, "note": 'a, "b"'} for number, text in enumerate(TEXTS)]
    output = tmp_path / f"out.{written}"
    assert main(command(model, write_table(tmp_path / f"in.{read}", rows), output)) == 0
    no = "False" if "sv" in written else False
    new = "prediction", "prediction_is_truncated"
    assert read_rows(output) == [row | dict(zip(new, (expected[row["text"]], no), strict=True)) for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"in.{read}", output.name])


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_carriage_returns_end_no_record(model: Path, tmp_path: Path, suffix: str) -> None:
    texts = ["a\rb", "a\r\nb", "a b"]
    source = write_table(tmp_path / "in.jsonl", [{"text": text} for text in texts])
    assert main(command(model, source, tmp_path / f"out.{suffix}")) == 0
    assert [row["text"] for row in read_rows(tmp_path / f"out.{suffix}")] == texts
    if suffix == "csv":
        pairs = load_pairs(test_file=tmp_path / "out.csv", text_column="text", summary_column="prediction")
        assert pairs["test"]["text"] == texts


def test_the_text_of_parquet_may_be_of_any_type_of_strings(model: Path, tmp_path: Path) -> None:
    column = pa.array(["a b", "c"])
    for number, texts in enumerate((column.dictionary_encode(), column.cast(pa.string_view()))):
        pq.write_table(pa.table({"n": [1, 2], "body": texts}), tmp_path / f"{number}.parquet")
        assert main(command(model, tmp_path / f"{number}.parquet", tmp_path / f"{number}.jsonl")) == 0
        assert [row["body"] for row in read_rows(tmp_path / f"{number}.jsonl")] == ["a b", "c"]


def test_json_keeps_its_values_and_parquet_gets_a_type_for_each_column(
    model: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    more = [{"n": 1, "o": {"k": [1]}}, {"n": 2.5}, {"o": "a", "late": True}]
    rows = [{"text": text, **(more[number - 10] if 10 <= number < 13 else {})} for number, text in enumerate(TEXTS)]
    source = write_table(tmp_path / "in.jsonl", rows)
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    for found, row in zip(read_rows(tmp_path / "out.jsonl"), rows, strict=True):
        assert found == {**row, "prediction": expected[row["text"]], "prediction_is_truncated": False}
    assert main(command(model, source, tmp_path / "out.parquet")) == 0
    result = pq.read_table(tmp_path / "out.parquet")
    assert result["n"].to_pylist()[9:14] == [None, 1.0, 2.5, None, None]
    assert result["o"].to_pylist()[9:14] == [None, '{"k": [1]}', None, '"a"', None]
    assert result["late"].to_pylist()[12] is True
    assert main(command(model, source, tmp_path / "out.csv")) == 0
    assert read_rows(tmp_path / "out.csv")[10]["o"] == '{"k": [1]}'


def test_folders_and_patterns_are_read_as_one_table(model: Path, expected: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    write_table(folder / "a.jsonl", [{"text": text} for text in TEXTS[:7]])
    write_table(folder / "b" / "part-0.parquet", [{"text": text} for text in TEXTS[7:9]])
    write_table(folder / "b" / "part-1.csv.gz", [{"text": text} for text in TEXTS[9:]])
    (folder / "notes.md").write_text("no table")
    (folder / "_SUCCESS.json").write_text("")
    (folder / "out.jsonl.parts").mkdir()
    (folder / "out.jsonl.parts" / "out.jsonl").write_text('{"text": "a"}\n')
    assert main(command(model, [folder], tmp_path / "out.jsonl")) == 0
    pairs = [(row["text"], row["prediction"]) for row in read_rows(tmp_path / "out.jsonl")]
    assert pairs == [(text, expected[text]) for text in TEXTS]
    files = [folder / "a.jsonl", folder / "b" / "part-0.parquet", folder / "b" / "part-1.csv.gz"]
    assert find_files([str(folder / "a.jsonl"), str(folder / "b" / "part-*")]) == files
    assert find_files([str(folder / "**/*.*sv*")]) == files[2:]
    with pytest.raises(FileNotFoundError, match="no such file"):
        find_files([str(folder / "*.tsv")])


def test_processes_give_the_rows_of_one(model: Path, expected: dict[str, str], tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS] + [{"text": 3}])
    assert main(command(model, source, tmp_path / "out.jsonl", "--num_proc=2", "--with_origins")) == 0
    rows = read_rows(tmp_path / "out.jsonl")
    assert [(row["text"], row["prediction"]) for row in rows] == [(text, expected[text]) for text in TEXTS]
    for row in rows:
        assert row["prediction_source_words"] == row["text"].split()
        words = [row["text"].split()[position] for position in row["prediction_source_positions"]]
        assert words == row["prediction"].split()


def test_the_line_of_a_parquet_row_is_its_number(model: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", "b", None, "c", None], "n": range(5)}), tmp_path / "in.parquet")
    assert main(command(model, tmp_path / "in.parquet", tmp_path / "out.parquet", "--window=4")) == 0
    assert [row["n"] for row in read_rows(tmp_path / "out.parquet")] == [0, 1, 3]
    assert [row["line"] for row in read_rows(tmp_path / "out.parquet.bad.jsonl")] == [3, 5]


def test_a_file_of_malformed_rows_is_refused_with_the_first_reasons(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.jsonl").write_text('{"text"\n[1]\n')
    message = refused(capsys, *command(model, tmp_path / "in.jsonl", tmp_path / "out.jsonl"))
    assert "(line 1: not valid JSON (Expecting ':' delimiter); line 2: of type list, not an object)" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]


def test_bad_rows_go_to_a_file_of_their_own_with_the_reason(
    model: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(TEXTS)]
    lines[3:3] = ['{"text": "a b', "[1]", '{"id": 5}', '{"text": ["a"]}', "", '{"text": ""}', '{"text": null}']
    lines += ['{"text": "a b", "facts": [["a"]]}', '{"text": "last", "facts": 7}']
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines) + "\n")
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    outputs = {**expected, "": ""}
    found = [(row["text"], row["prediction"]) for row in read_rows(tmp_path / "out.jsonl")]
    assert found == [(text, outputs[text]) for text in (*TEXTS[:3], "", *TEXTS[3:])]
    bad = read_rows(tmp_path / "out.jsonl.bad.jsonl")
    assert [row["line"] for row in bad] == [4, 5, 6, 7, 10, 31, 32]
    assert {row["file"] for row in bad} == {str(source)}
    reasons = ["not valid JSON", "of type list, not an object", "no 'text'", "'text' is of type list, not a string"]
    for row, reason in zip(bad, [*reasons, "no 'text'", "facts", "facts"], strict=True):
        assert reason in row["reason"]
    assert bad[2]["row"] == {"id": 5}


def test_most_rows_that_cannot_be_used_are_an_error_behind_the_output(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    argv = command(model, source, output, "--overwrite_output_file")
    for bad, good, code in ((21, 22, 0), (20, 1, 0), (21, 20, 2)):
        source.write_bytes(b"text\n" + b"caf\xe9\n" * bad + b"call me\n" * good)
        assert main(argv) == code
        out, err = capsys.readouterr()
        reason = f"{show_path(source)}, line 2: bytes that do not decode as UTF-8"
        assert f"{bad} rows without a prediction in {output}.bad.jsonl; the first, {reason}" in out
        assert (f"most rows have no prediction: {output}.bad.jsonl says why" in err) == (code == 2)
        assert len(read_rows(output)) == good


def test_rows_of_delimiters_alone_are_no_rows(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text,n\na b,1\n,\n,,,\n\n,2\n,\n")
    assert main(command(model, source, tmp_path / "out.csv")) == 0
    assert [(row["text"], row["n"]) for row in read_rows(tmp_path / "out.csv")] == [("a b", "1"), ("", "2")]


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are Unicode")
def test_bad_rows_of_a_file_whose_name_is_no_unicode_are_reported(model: Path, tmp_path: Path) -> None:
    source = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    source.write_text('{"text": "a b"}\n[1]\n')
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    assert "caf\\udce9.jsonl" in (tmp_path / "out.jsonl.bad.jsonl").read_text()


NUMBERS = [pa.int8(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]

CENTURY_100 = 253_402_300_800  # seconds from 1970 to the year 10000, which Python's dates lack

COLUMNS = [
    pa.nulls(2),
    pa.array([True, None]),
    *(pa.array([3, None], kind) for kind in NUMBERS),
    pa.array([2**53 + 1, None], pa.uint64()),  # not a float64
    pa.array(["1.20", None]).cast(pa.decimal128(10, 2)),
    *(pa.array(["ä", None], kind) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    pa.array([b"\xff", None]),
    pa.array([b"\xff", None]).view(pa.string()),
    pa.array([CENTURY_100 // 86400, None], pa.date32()),
    pa.array([1, None], pa.time64("ns")),
    pa.array([CENTURY_100 - 1, None], pa.timestamp("s", "Asia/Tokyo")),
    pa.array([1, None], pa.timestamp("ns")),
    pa.array([1, None], pa.duration("ns")),
    pa.array([[1], None]),
    pa.array([{"a": b"\xff"}, None]),
    pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    pa.array(["a", None]).dictionary_encode(),
]


def test_columns_that_are_not_predicted_are_of_any_types_in_two_files(model: Path, tmp_path: Path) -> None:
    """Each ordered pair of types is a column, of the first type in one file and of the second in the other."""
    pairs = {f"{i} {j}": pair for (i, one), (j, two) in product(enumerate(COLUMNS), repeat=2) for pair in [(one, two)]}
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for number, file in enumerate(files):
        table = pa.table({"text": ["a", "b"]} | {name: pair[number] for name, pair in pairs.items()})
        pq.write_table(table.replace_schema_metadata({"huggingface": "{}"}), file)
    assert main(command(model, files, tmp_path / "out.parquet", "--prediction_column=new")) == 0
    found, read = pq.read_table(tmp_path / "out.parquet"), pq.read_table(files[0])
    assert found.schema.metadata is None  # which would name the columns of the input
    assert found.column_names == [*read.column_names, "new", "new_is_truncated"]
    for name, (one, two) in pairs.items():
        assert found[name].is_valid().to_pylist() == [*one.is_valid().to_pylist(), *two.is_valid().to_pylist()]
        if one is two:
            assert found[name].type == read[name].type
            assert found[name].slice(0, 2).equals(read[name])
        elif {one.type, two.type} <= set(NUMBERS):
            values = found[name].to_pylist()
            assert [json.loads(str(values[row])) for row in (0, 2)] == [one[0].as_py(), two[0].as_py()]


def test_columns_of_any_type_are_written_as_text(model: Path, tmp_path: Path) -> None:
    columns = {str(number): column for number, column in enumerate(COLUMNS)}
    pq.write_table(pa.table({"text": ["a", "b"]} | columns), tmp_path / "in.parquet")
    for suffix in ("jsonl", "csv"):
        assert main(command(model, tmp_path / "in.parquet", tmp_path / f"out.{suffix}")) == 0
    of_json, of_csv = (read_rows(tmp_path / f"out.{suffix}")[0] for suffix in ("jsonl", "csv"))
    day = "10000-01-01"
    times = [day, "00:00:00.000000001", f"{day} 08:59:59.000+0900", "1970-01-01 00:00:00.000000001", "1"]
    names = list(columns)[11:]
    expected = ["1.20", "ä", "ä", "ä", "/w==", "\ufffd", *times, [1], {"a": "/w=="}, [["a", 1]], "a"]
    assert [of_json[name] for name in names] == expected
    texts = [*expected[:-4], "[1]", '{"a": "/w=="}', '[["a", 1]]', "a"]
    assert [of_csv[name] for name in names] == texts


def test_numbers_that_json_lacks_are_null(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a", "n": [NaN, 1e999, 0.5]}\n')
    pq.write_table(pa.table({"text": ["a"], "n": [[float("nan"), float("-inf"), 0.5]]}), tmp_path / "in.parquet")
    for name in ("in.jsonl", "in.parquet"):
        assert main(command(model, tmp_path / name, tmp_path / f"{name}.out.jsonl")) == 0
        (line,) = (tmp_path / f"{name}.out.jsonl").read_text().splitlines()
        assert json.loads(line, parse_constant=pytest.fail)["n"] == [None, None, 0.5]


def test_a_quote_that_is_never_closed_costs_its_row_and_no_memory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copynet_hf.data.rows.MAX_RECORD_SIZE", 5_000)
    line = "a b,{}\n"
    rows = [line.format(number) for number in range(40)]
    rows[5] = '"' + rows[5]
    filling = ["c," + "x" * 99 + "\n"] * 6_000
    source = tmp_path / "in.csv"
    source.write_text("text,id\n" + "".join([*rows, *filling]))
    tracemalloc.start()
    try:
        records = [row for _, row in number_rows(source, delimiter=",") if isinstance(row, str) or row["text"] != "c"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records) == 40
    assert peak < source.stat().st_size / 4
    source.write_text("text,id\n" + "".join(rows))
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    (bad,) = read_rows(tmp_path / "out.jsonl.bad.jsonl")
    assert (bad["line"], bad["reason"]) == (7, "not valid CSV (a quote is not closed, or followed by text)")
    assert [row["id"] for row in read_rows(tmp_path / "out.jsonl")] == [str(n) for n in range(40) if n != 5]


@pytest.mark.parametrize(("separator", "options"), [(";", []), ("\t", []), ("#", ["--delimiter=#"])])
def test_a_csv_file_gets_the_delimiter_of_those_that_are_read(
    model: Path, tmp_path: Path, separator: str, options: list[str]
) -> None:
    lines = [["id", "text"], ["7", "a, b"], ["8", "c, d"]]
    (tmp_path / "in.csv").write_text("".join(separator.join(line) + "\n" for line in lines))
    for name, used in (("out.csv", separator), ("out.tsv", "\t")):
        assert main(command(model, tmp_path / "in.csv", tmp_path / name, *options)) == 0
        with (tmp_path / name).open(newline="") as file:
            assert [fields[:2] for fields in csv.reader(file, delimiter=used)] == lines


@pytest.mark.parametrize(
    ("encoding", "name", "has_mark"),
    [
        ("utf-8", "out.csv", False),
        ("utf-8-sig", "out.csv", True),
        ("utf-8-sig", "out.csv.gz", True),
        ("utf-8-sig", "out.jsonl", False),
        ("utf-16", "out.csv", True),
    ],
)
def test_a_csv_file_starts_with_a_byte_order_mark_if_those_that_are_read_do(
    model: Path, tmp_path: Path, encoding: str, name: str, has_mark: bool
) -> None:
    (tmp_path / "in.csv").write_text("Größe,text\n7,a b\n", encoding=encoding)
    assert main(command(model, tmp_path / "in.csv", tmp_path / name)) == 0
    contents = (tmp_path / name).read_bytes()
    contents = gzip.decompress(contents) if name.endswith(".gz") else contents
    assert contents.startswith(b"\xef\xbb\xbf") is has_mark
    assert "Größe" in contents.decode()


def test_columns_and_delimiter_of_the_training_are_used(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    remember_options(tokenizer, {"text_column": "nl", "delimiter": "#", "summary_column": None})
    tokenizer.save_pretrained(folder)
    source = tmp_path / "in.csv"
    source.write_text("nl#other, one\na b#c c\nb a#c c\n")
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert main(command(folder, source, tmp_path / "out.jsonl")) == 0
    assert "text_column is 'nl', as in the training of the model (--text_column sets another)" in caplog.messages
    assert "delimiter is '#'" in caplog.text
    assert recall_options(tokenizer, {"delimiter": None, "text_column": None})["delimiter"] is None
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert recall_options(tokenizer, {"text_column": None}, ["english"]) == {"text_column": None}
    assert "there is no column 'nl', the text_column of the training" in caplog.messages
    with pytest.raises(ValueError, match="but 'id; NL ;other': if these are several, pass another delimiter"):
        recall_options(tokenizer, {"text_column": None}, ["id; NL ;other"])
    predicted = [row["prediction"] for row in read_rows(tmp_path / "out.jsonl")]
    predict = CopyNetPredictor(folder, num_beams=1, max_new_tokens=4)
    assert predict({"nl": ["a b", "b a"], "text": ["c", "c"]})["prediction"] == predicted
    with pytest.raises(ValueError, match=r"no column 'nl'; the columns are 'other'; text_column names another$"):
        predict({"other": ["a b"]})
    assert main(command(folder, source, tmp_path / "other.jsonl", "--text_column=other, one")) == 0
    assert [row["prediction"] for row in read_rows(tmp_path / "other.jsonl")] != predicted
    plain = write_table(tmp_path / "plain.jsonl", [{"text": "a b"}])  # without the column of the training
    caplog.clear()
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert main(command(folder, plain, tmp_path / "third.jsonl")) == 0
    assert "delimiter" not in caplog.text  # which tables alone have
    assert [row["prediction"] for row in read_rows(tmp_path / "third.jsonl")] == predicted[:1]
    assert "as guessed" not in caplog.text
    guessed = write_table(tmp_path / "guessed.jsonl", [{"mensagem": "a b", "id": 1}])
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert main(command(folder, guessed, tmp_path / "fourth.jsonl")) == 0
    assert "text is column 'mensagem', as guessed (--text_column names another)" in caplog.messages
    assert [row["prediction"] for row in read_rows(tmp_path / "fourth.jsonl")] == predicted[:1]


@pytest.mark.parametrize("cells", [[1, 2], [["a"], ["b"]]])
def test_a_column_called_facts_that_holds_something_else_is_not_read(
    model: Path, tmp_path: Path, cells: list[Any]
) -> None:
    source = write_table(tmp_path / "in.jsonl", [{"text": "a b", "facts": cell} for cell in cells])
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    assert [row["facts"] for row in read_rows(tmp_path / "out.jsonl")] == cells
    predict = CopyNetPredictor(model, num_beams=1, max_new_tokens=4)
    assert predict({"text": ["a b"] * 2, "facts": cells})["prediction"] == predict({"text": ["a b"] * 2})["prediction"]


def test_facts_in_tables_are_those_of_json_lines(model: Path, tmp_path: Path) -> None:
    rows = [
        {"text": "a b", "facts": [["a", "X", "b"]]},
        {"text": "a b", "facts": None},
        {"text": "c", "facts": [["a"]]},
    ]
    source = write_table(tmp_path / "in.jsonl", rows)
    first, second = tmp_path / "out.csv", tmp_path / "again.jsonl"
    assert main(command(model, source, first, "--with_origins", "--prediction_column=first")) == 0
    assert main(command(model, first, second, "--with_origins", "--prediction_column=again")) == 0
    again = read_rows(second)
    assert [row["again_source_words"] for row in again] == [["a", "b", "a", "X", "b"], ["a", "b"]]
    assert [row["again"] for row in again] == [row["first"] for row in read_rows(first)]
    bad = write_table(
        tmp_path / "bad.csv", [{"text": "a b", "facts": '[["a"]]'}, {"text": "c", "facts": '[["a", "b", "c"]]'}]
    )
    assert main(command(model, bad, tmp_path / "rest.csv")) == 0
    (reported,) = read_rows(tmp_path / "rest.csv.bad.jsonl")
    assert (reported["line"], reported["reason"]) == (2, "'facts' are not triples of strings")
    other = write_table(tmp_path / "other.csv", [{"facts": '[["a", "b", "c"]]', "request": "a b"}])
    assert main(command(model, other, tmp_path / "last.csv", "--with_origins")) == 0
    (row,) = read_rows(tmp_path / "last.csv")
    assert json.loads(row["prediction_source_words"]) == ["a", "b", "a", "b", "c"]


def test_a_model_that_retrieves_warns_once_of_rows_without_facts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_tiny_model(tmp_path / "retrieval", copy_mechanism="retrieval")
    rows = [{"text": "a b", "facts": "a | X | b"}] * 8
    source = write_table(tmp_path / "in.jsonl", rows)
    assert main(command(folder, source, tmp_path / "out.jsonl")) == 0
    predict = CopyNetPredictor(folder, max_new_tokens=4)
    for facts in ([[["a", "X", "b"]], []], [[], None]):
        predict({"text": ["a b", "a"], "facts": facts})
    predict({"text": [], "facts": []})
    assert predict({"text": [None, "a"], "facts": [[["a", "b"]], [["a", "X", "b"]]]})["prediction"][0] is None
    (warning,) = [message for message in caplog.messages if "facts" in message]
    assert warning.startswith(
        f"{folder} reads facts, and these rows have none: pass a column 'facts' of lists of triples"
    )
    evaluate_pairs(*predict.load(), [{"text": "a b", "summary": "b"}], max_new_tokens=4)
    assert caplog.messages[-1].startswith("the model reads facts, and these rows have none: pass a column 'facts'")


def test_facts_are_read_from_the_column_that_is_named_which_has_to_be_there(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": "a b", "Known Facts": [["a", "X", "b"]]}, {"text": "a b"}]
    source = write_table(tmp_path / "in.jsonl", rows)
    argv = command(model, source, tmp_path / "out.jsonl", "--with_origins", "--facts_column")
    assert "no column 'fatcs'" in refused(capsys, *argv, "fatcs")
    assert main([*argv, "known facts"]) == 0
    first, second = read_rows(tmp_path / "out.jsonl")
    assert first["prediction_source_words"] == ["a", "b", "a", "X", "b"]
    assert second["prediction_source_words"] == ["a", "b"]
    write_table(source, [{"text": "a b", "Facts": [["a", "X", "b"]]}])
    assert main(command(model, source, tmp_path / "guessed.jsonl", "--with_origins")) == 0
    (row,) = read_rows(tmp_path / "guessed.jsonl")
    assert row["prediction_source_words"] == first["prediction_source_words"]
    predictor = CopyNetPredictor(model, with_origins=True)
    predicted = predictor({"text": ["a b"], "Facts": [[["a", "X", "b"]]]})
    assert predicted["prediction_source_words"] == [first["prediction_source_words"]]
    numbered = pd.concat([pd.DataFrame({"text": ["a b", "b"]}), pd.Series([1, 2])], axis=1)
    assert len(predictor(numbered)["prediction"]) == 2
    assert len(first["prediction_copy_shares"]) == len(first["prediction_words"])
    with pytest.raises(ValueError, match="no column 'fatcs'"):
        CopyNetPredictor(model, facts_column="fatcs")({"text": ["a b"], "facts": [[["a", "X", "b"]]]})


def test_features_are_read_from_their_column_and_unknown_ones_have_no_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = tiny_tokenizer(feature_vocab=["V", "PST"])
    fields = {"feature_vocab_size": tokenizer.feature_vocab_size, "seed": 2}
    folder = save_tiny_model(tmp_path / "model", search={"min_new_tokens": 4}, **fields)
    tokenizer.save_pretrained(folder)
    tags = ["V;PST", "", "V PST", "V"]
    source = write_table(tmp_path / "in.csv", [{"text": "a b X", "tags": each} for each in tags])
    assert main(command(folder, source, tmp_path / "out.csv", "--features_column=tags", "--with_origins")) == 0
    both, none, unknown, one = (float(row["prediction_score"]) for row in read_rows(tmp_path / "out.csv"))
    assert unknown == pytest.approx(none, rel=1e-4)
    assert all(abs(known / none - 1) > 1e-2 for known in (both, one))
    warning = f"{folder} knows none of the features of these rows: check how they are spelled"
    assert not [message for message in caplog.messages if message.startswith(warning)]
    write_table(source, [{"text": "a b X", "tags": each} for each in ("V|PST", "")])
    assert main(command(folder, source, tmp_path / "out2.csv", "--features_column=tags")) == 0
    assert len([message for message in caplog.messages if message.startswith(warning)]) == 1


def test_rows_that_lack_the_column_of_the_features_are_bad(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(feature_vocab=["V", "PST"])
    folder = save_tiny_model(tmp_path / "model", feature_vocab_size=tokenizer.feature_vocab_size)
    tokenizer.save_pretrained(folder)
    rows = [{"text": "a", "features": ["V"]}, {"text": "a"}, {"text": "a", "features": None}]
    source = write_table(tmp_path / "in.jsonl", rows)
    assert main(command(folder, source, tmp_path / "out.jsonl")) == 0
    assert len(read_rows(tmp_path / "out.jsonl")) == 2
    (bad,) = read_rows(tmp_path / "out.jsonl.bad.jsonl")
    assert (bad["line"], bad["reason"]) == (2, "no 'features'")


def test_a_predictor_replaces_no_column_and_needs_a_name(model: Path) -> None:
    for taken in ("prediction", "prediction_is_truncated"):
        with pytest.raises(ValueError, match=f"the input has a column '{taken}': use another prediction_column"):
            CopyNetPredictor(model)({"text": ["a b"], taken: ["mine"]})
    with pytest.raises(TypeError, match="name is a dict: pass the folder or Hub name of a model"):
        CopyNetPredictor({})  # type: ignore[arg-type]


def test_halves_of_characters_in_a_vocabulary_stop_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_tiny_model(tmp_path / "model", search={"min_new_tokens": 2, "max_new_tokens": 2})
    words = ["<pad>", "<s>", "</s>", "<unk>", *(chr(0xD800 + number) for number in range(9))]
    CopyNetTokenizer({word: id for id, word in enumerate(words)}, "whitespace", max_source_oov=4).save_pretrained(
        folder
    )
    source = write_table(tmp_path / "in.jsonl", [{"text": "a b"}])
    assert (
        main(["predict", f"--model={folder}", f"--input_file={source}", f"--output_file={tmp_path / 'o.jsonl'}"]) == 0
    )
    assert read_rows(tmp_path / "o.jsonl")[0]["prediction"] == "\ufffd \ufffd"
    assert main(["generate", f"--model={folder}", "--text", "a b"]) == 0
    assert capsys.readouterr().out.endswith("\n? ?\n")


def test_truncated_texts_are_marked_and_counted_in_one_warning(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_table(tmp_path / "in.jsonl", [{"text": text} for text in ["a b c", "a b", "a b c d", None] * 4])
    assert main(command(model, source, tmp_path / "out.jsonl", "--max_source_length=2")) == 0
    (message,) = [message for message in caplog.messages if "truncated" in message]
    assert message == (
        "8 of 12 texts were truncated: raise max_source_length (--max_source_length) or, of a Transformers encoder, "
        "the tokenizer's encoder_max_length"
    )
    marks = [row["prediction_is_truncated"] for row in read_rows(tmp_path / "out.jsonl")]
    assert marks == [True, False, True] * 4


def test_outputs_that_are_cut_are_marked_counted_and_not_accepted(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, output = write_table(tmp_path / "in.jsonl", [{"text": "a b c"}, {"text": ""}]), tmp_path / "out.jsonl"
    options = ["--max_target_length=1", "--with_origins", "--min_confidence=0"]
    assert main(command(model, source, output, *options)) == 0
    assert (
        "1 of 2 outputs ended before they were complete: raise max_new_tokens (--max_target_length)" in caplog.messages
    )
    flags = [(row["prediction_is_cut"], row["prediction_accepted"]) for row in read_rows(output)]
    assert flags == [(True, False), (False, False)]


def test_the_words_of_facts_count_as_the_texts_own(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [{"text": text, "facts": [["a", "b", "c"]]} for text in ("a b", "a b c")]
    source = write_table(tmp_path / "in.jsonl", [*rows, {"text": "a b c", "facts": []}])
    assert main(command(model, source, tmp_path / "out.jsonl", "--max_source_length=5")) == 0
    (message,) = [message for message in caplog.messages if "truncated" in message]
    assert message.startswith("1 of 3 texts were truncated")


def test_an_interrupted_run_ends_its_workers_and_no_other_process(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that calls the command may have processes of its own."""

    def interrupt(futures: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(file_prediction, "as_completed", interrupt)
    source = write_table(tmp_path / "in.jsonl", [{"text": "a b"}] * 4)
    own = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    own.start()
    try:
        assert main(command(model, source, tmp_path / "out.jsonl", "--num_proc=2")) == 130
        assert multiprocessing.active_children() == [own]
        assert own.is_alive()
    finally:
        own.kill()
        own.join()


BAD_INPUT = {
    "--input_file {folder}/in.jsonl": "no --output_file: pass a file",
    "--output_file {folder}/o.jsonl": "no --input_file: pass a file",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.txt": "the name must end in .jsonl",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.parquet.gz": "all but .parquet",
    "--input_file {folder}/in.jsonl --output_file {folder}/in.jsonl": "would write the input file",
    "--input_file {folder} --output_file {folder}/in.jsonl --overwrite_output_file": "would write the input file",
    "--input_file {folder}/none.jsonl --output_file {folder}/o.jsonl": "no such file",
    "--input_file {folder}/a.txt --output_file {folder}/o.jsonl": "the name must end in one of .jsonl",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --text_column body": "no column 'body'",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --text_column n": "column 'n' holds no strings",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --prediction_column n": "has a column 'n'",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --prediction_column=": "prediction_column is empty",
    "--input_file {folder}/n.json --output_file {folder}/o.jsonl": "n.json: no column holds strings; its columns",
    "--input_file {folder}/id.csv --output_file {folder}/o.jsonl": "could be any of the columns 'id' of strings",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --num_proc 0": "--num_proc is 0",
    "--input_file {folder}/bad.parquet --output_file {folder}/o.jsonl": "bad.parquet: cannot be read",
}


@pytest.mark.parametrize(("argv", "message"), BAD_INPUT.items())
def test_bad_arguments_are_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: str, message: str
) -> None:
    write_table(tmp_path / "in.jsonl", [{"text": "a", "n": 1}])
    (tmp_path / "n.json").write_text('[{"n": 1}]')
    (tmp_path / "id.csv").write_text("id\nx\n")
    for name in ("a.txt", "bad.parquet"):
        (tmp_path / name).write_text("not a table")
    if "{folder} " in argv:
        (tmp_path / "bad.parquet").unlink()
    assert message in refused(capsys, "predict", f"--model={model}", *argv.format(folder=tmp_path).split())


# ---- runs that are interrupted


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [{"id": number, "text": text} for number, text in enumerate(TEXTS * 2)]
    rows[17]["text"] = None
    return write_table(tmp_path / "in.jsonl", rows)


def check_output(output: Path, expected: dict[str, str]) -> None:
    """Each row once, in its order, and the bad one in its file."""
    numbers = [number for number in range(2 * len(TEXTS)) if number != 17]
    found = [(row["id"], row["prediction"]) for row in read_rows(output)]
    assert found == [(number, expected[TEXTS[number % len(TEXTS)]]) for number in numbers]
    (bad,) = (json.loads(line) for line in output.with_name(f"{output.name}.bad.jsonl").read_text().splitlines())
    assert (bad["line"], bad["row"]["id"]) == (18, 17)
    assert {path.name for path in output.parent.iterdir()} == {"in.jsonl", f"{output.name}.bad.jsonl", output.name}


@contextmanager
def killed_after(num_windows: int | None) -> Iterator[list[str]]:
    """Ends what runs in it like a kill after some windows, if it does not end before (None); yields a list to which
    the texts that are predicted are added."""
    texts: list[str] = []
    predict_rows, left = CopyNetPredictor.predict_rows, iter(range(99 if num_windows is None else num_windows))

    def predict(self: CopyNetPredictor, columns: Any) -> Any:
        if next(left, None) is None:
            raise Killed
        texts.extend(columns["text"])
        return predict_rows(self, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CopyNetPredictor, "predict_rows", predict)
        with nullcontext() if num_windows is None else pytest.raises(Killed):
            yield texts


@pytest.mark.parametrize("suffix", ["jsonl.gz", "parquet"])
def test_a_run_goes_on_behind_the_last_whole_part(
    model: Path, source: Path, tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    output, whole = tmp_path / f"out.{suffix}", tmp_path / "whole" / f"out.{suffix}"
    assert main(command(model, source, whole)) == 0
    predicted: list[str] = []
    for _ in range(3):
        with killed_after(3) as texts:
            main(command(model, source, output))
        predicted += texts
        (folder,) = tmp_path.glob("*.parts/*/")
        (folder / f"{len(predicted) // 5:08}.part.unfinished").write_bytes(b"half of it")
    with killed_after(None) as texts:
        assert main(command(model, source, output, "--num_proc=1", "--batch_size=2")) == 0
    *_, said = re.finditer(r" is continued: (\d+) of (\d+) rows are done", caplog.text)
    assert int(said[2]) - int(said[1]) == len(texts)
    predicted += texts
    assert predicted == [text for number, text in enumerate(TEXTS * 2) if number != 17]
    assert output.read_bytes() == whole.read_bytes()
    bad = f"{output.name}.bad.jsonl"
    assert (tmp_path / bad).read_bytes() == (tmp_path / "whole" / bad).read_bytes()


@pytest.mark.parametrize("step", ["replace", "unlink", "rmdir"])
def test_a_run_killed_while_it_tidies_up_is_finished_by_the_next(
    model: Path, source: Path, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each call that moves or removes a file is once the last of its process."""
    output = tmp_path / "out.jsonl"
    run = command(model, source, output, "--window=50", "--batch_size=50")
    assert main(run) == 0
    for count in range(1, 40):
        output.unlink(missing_ok=True)
        (tmp_path / "out.jsonl.bad.jsonl").unlink(missing_ok=True)
        calls, function = iter(range(count)), getattr(Path, step)

        def fail(path: Path, *args: Any, calls: Any = calls, function: Any = function, **kwargs: Any) -> Any:
            if next(calls, None) is None:
                raise Killed
            return function(path, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(Path, step, fail)
            try:
                assert main(run) == 0
                check_output(output, expected)
                return
            except Killed:
                pass
        code = main(run)
        assert code == 0 or (output.exists() and not list(tmp_path.glob("*.parts/*")))
        for left in tmp_path.glob("*.parts"):
            left.rmdir()
        check_output(output, expected)


def test_parts_of_another_run_are_not_used_and_do_not_stand_in_the_way(
    model: Path, source: Path, expected: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "out.jsonl"
    runs = ["--max_target_length=2", "--with_origins", "--features_separator=|", "--window=4"]
    for more in runs:
        with killed_after(1):
            main(command(model, source, output, more))
    os.utime(source)
    assert len(list(tmp_path.glob("*.parts/*/*.part"))) == len(runs)
    caplog.clear()
    with killed_after(None) as texts:
        assert main(command(model, source, output)) == 0
    assert len(texts) == 2 * len(TEXTS) - 1
    assert "out.jsonl.parts holds parts of another run" in caplog.text
    check_output(output, expected)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.bad.jsonl"])
def test_outputs_are_replaced_only_when_told(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source = write_table(tmp_path / "in.jsonl", [{"text": "a"}])
    others = [tmp_path / "out.bad.jsonl", tmp_path / "out.jsonl.bad.jsonl"]
    for path in (*others, tmp_path / name):
        path.write_text("of another output")
    message = refused(capsys, *command(model, source, tmp_path / "out.csv"))
    assert f"{tmp_path / name} exists: use another file" in message
    assert main(command(model, source, tmp_path / "out.csv", "--overwrite_output_file")) == 0
    assert [path.read_text() for path in others] == ["of another output"] * 2
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.csv", *(path.name for path in others)}


def test_a_run_that_failed_before_any_row_leaves_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_table(tmp_path / "in.jsonl", [{"one": "a", "two": "b"}])
    argv = command(model, source, tmp_path / "out.jsonl")
    assert "could be any of the columns 'one', 'two' of strings: pass --text_column" in refused(capsys, *argv)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    with killed_after(0):
        main([*argv, "--text_column=two"])
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    assert main([*argv, "--text_column=one"]) == 0


def test_memory_is_that_of_a_window(model: Path, tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.jsonl", [{"text": "a", "note": "x" * 600_000}] * 20)
    argv = command(model, source, tmp_path / "out.csv", "--window=1")
    tracemalloc.start()
    try:
        assert main(argv) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < source.stat().st_size * 2 / 3
