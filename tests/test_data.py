"""Reading files of pairs and data sets of the Hub."""

from __future__ import annotations

import csv
import gzip
import json
import logging
import os
import random
import re
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import tiny_tokenizer, write_rows, write_table
from test_lcsts import record, write

from copynet_hf import load_lcsts, load_pairs
from copynet_hf.commands.evaluate import EvaluateArguments
from copynet_hf.data import DataFileError
from copynet_hf.training.dataset import read_split

pytestmark = pytest.mark.usefixtures("only_warnings")

PAIR = {"text": "a b", "summary": "a"}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_summary_of_named_values_becomes_a_line_of_text(tmp_path: Path, suffix: str, caplog: Any) -> None:
    rows = [
        {"text": "play westbam", "slots": {"intent": "PlayMusic", "artist": "westbam", "year": None}},
        {"text": "rain in mt", "slots": {"intent": "GetWeather", "artist": None, "year": None}},
        {"text": "nothing", "slots": {"intent": None, "artist": None, "year": None}},
    ]
    path = tmp_path / f"train.{suffix}"
    if suffix == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    else:
        write_rows(path, [*rows, {"text": "a", "slots": {"a": [["c"]]}}, {"text": "b", "slots": ["c"]}])
    pairs = load_pairs(path, text_column="text", summary_column="slots")["train"]
    assert pairs["summary"] == ["intent = PlayMusic | artist = westbam", "intent = GetWeather"]
    assert "empty 'slots'" in caplog.text
    if suffix == "jsonl":
        assert "'a' holds a list" in caplog.text


def test_json_lines_with_other_names_and_other_columns(tmp_path: Path) -> None:
    rows = [
        {"id": "x1", "document": "甲 乙", "n": 1, "tags": ["a"], "target": "甲"},
        {"id": "x2", "document": "丙 丁", "n": 2.5, "tags": [], "target": "丙", "late": True},
    ]
    data = load_pairs(train_file=write_rows(tmp_path / "a.jsonl", rows))["train"]
    assert data.column_names == ["text", "summary", "id", "n", "tags", "late"]
    assert data[0] == {"text": "甲 乙", "summary": "甲", "id": "x1", "n": 1.0, "tags": ["a"], "late": None}
    assert data[1]["late"] is True


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_every_format_gives_the_same_pairs(tmp_path: Path, suffix: str, streaming: bool) -> None:
    rows = [
        {"key": "1", "Article": 'one, "two"\nthree', "Highlights": "N/A"},
        {"key": "2", "Article": "镕基", "Highlights": "null"},
    ]
    path = tmp_path / f"set[1]*.{suffix}"
    if suffix == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    elif suffix == "json":
        write(path, json.dumps(rows, indent=1))
    elif suffix == "jsonl":
        write_rows(path, rows)
    else:
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if suffix == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    data = load_pairs(validation_file=path, streaming=streaming)["validation"]
    assert list(data) == [{"text": row["Article"], "summary": row["Highlights"], "key": row["key"]} for row in rows]


def test_splits_can_be_files_of_different_formats(tmp_path: Path) -> None:
    train = write_rows(tmp_path / "a.jsonl", [{"source": "a b", "target": "a"}])
    test = write(tmp_path / "b.csv", "text,summary\nc d,c\n")
    data = load_pairs(train_file=train, test_file=test)
    assert {split: part[0] for split, part in data.items()} == {
        "train": {"text": "a b", "summary": "a"},
        "test": {"text": "c d", "summary": "c"},
    }


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_bad_lines_are_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture, streaming: bool) -> None:
    path = write(
        tmp_path / "a.jsonl",
        b'{"text": "a", "summary": "b"}\n'
        b'{"text": "a", "summ\n'
        b"\n"
        b'{"text": "a"}\n'
        b'{"text": 5, "summary": "b"}\n'
        b'["text"]\n'
        b'{"text": "\\ud800", "summary": "b"}\n'
        b'{"text": "\xff", "summary": "b"}\n'
        b'{"text": " ", "summary": "b"}\n'
        b'{"text": "c", "summary": "d"}\n'
        b'{"text": "e", "su',
    )
    rows = list(load_pairs(train_file=path, streaming=streaming)["train"])
    assert rows == [{"text": "a", "summary": "b"}, {"text": "c", "summary": "d"}]
    (message,) = caplog.messages
    assert "skipped 8 malformed rows (line 2: not valid JSON" in message
    for part in (
        "line 4: no 'summary'",
        "line 5: 'text' is of type int",
        "line 6: of type list",
        "line 7: not valid Unicode",
    ):
        assert part in message


@pytest.mark.parametrize("malformed", [[["s", "p"]], "s p o", [["s", "p", 3]], 7, ["s", "p", "o"]])
def test_rows_with_malformed_facts_are_named_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, malformed: object
) -> None:
    facts = [[["s", "p", "o"]], None, malformed, []]
    rows = [{"text": "a", "summary": str(number), "facts": cell} for number, cell in enumerate(facts)]
    path = write_rows(tmp_path / "a.jsonl", rows)
    pairs = load_pairs(train_file=path)["train"]
    assert [(pair["summary"], pair["facts"]) for pair in pairs] == [("0", [["s", "p", "o"]]), ("1", None), ("3", [])]
    assert caplog.messages == [f"{path}: skipped 1 malformed row (line 3: 'facts' are not triples of strings)"]


def test_tables_hold_facts_as_json_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.csv"
    lines = [
        "text,summary,facts",
        'a,x0,"[[""s"", ""p"", ""o""]]"',
        "a,x1,",
        "a,x2,[]",
        'a,x3,"[[""s"", ""p""]]"',
        "a,x4,s | p | o",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = load_pairs(train_file=path)["train"]
    expected = [("x0", [["s", "p", "o"]]), ("x1", None), ("x2", [])]
    assert [(pair["summary"], pair["facts"]) for pair in pairs] == expected
    assert caplog.messages == [f"{path}: skipped 2 malformed rows (lines 5, 6: 'facts' are not triples of strings)"]
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / "train.csv")
    pairs = load_pairs(dataset_name=str(tmp_path / "folder"))["train"]
    assert [(pair["summary"], pair["facts"]) for pair in pairs] == expected


HEADERS = ["request,summary,facts", "facts,request,summary", "facts,request,answer", "Facts ,request,answer"]


@pytest.mark.parametrize("header", HEADERS)
def test_facts_in_tables_are_not_taken_for_texts(tmp_path: Path, header: str) -> None:
    cells = {"request": "a", "summary": "0", "answer": "0", "facts": '"[[""s"", ""p"", ""o""]]"'}
    path = tmp_path / "a.csv"
    row = ",".join(cells[name.strip().lower()] for name in header.split(","))
    path.write_text(f"{header}\n{row}\n", encoding="utf-8")
    (pair,) = load_pairs(train_file=path)["train"]
    assert pair == {"text": "a", "summary": "0", "facts": [["s", "p", "o"]]}


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"text": "a", "summary": "b", "facts": "see below", "Facts": '[["s", "p", "o"]]'}, None),
        ({"request": "a", "facts": [["s", "p", "o"]], "Facts": "b"}, [["s", "p", "o"]]),
    ],
)
def test_facts_are_those_of_the_column_with_the_exact_name(tmp_path: Path, row: dict[str, Any], facts: Any) -> None:
    (pair,) = load_pairs(train_file=write_rows(tmp_path / "a.jsonl", [row]))["train"]
    assert (pair["text"], pair["summary"], pair.get("facts")) == ("a", "b", facts)


@pytest.mark.parametrize("cells", [[7, 8], ["a, b", "c"], [["a", "b"], ["c"]], [[[1, 2]], [[3]]], [{"a": "b"}, 1]])
def test_a_column_called_facts_that_holds_something_else_is_another_column(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cells: list[object]
) -> None:
    rows = [{"text": "a", "summary": "b", "facts": cell} for cell in cells]
    path = write_rows(tmp_path / "a.jsonl", rows)
    for _ in ("read", "from the cache"):
        caplog.clear()
        with caplog.at_level(logging.INFO, "copynet_hf"):
            data = load_pairs(train_file=path)["train"]
        assert data.column_names == ["text", "summary", "original_facts"]
        assert f"{path}: the column 'facts' holds no triples (subject, property, object), and is" in caplog.text


@pytest.mark.parametrize(("cells", "name"), [([[["s", "p", "o"]], []], "facts"), ([1, 2], "original_facts")])
def test_the_facts_of_a_data_set_are_read_where_they_are_triples(
    cells: list[object], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = datasets.Dataset.from_dict({"text": ["a", "c"], "summary": ["b", "d"], "facts": cells})
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: {"train": data})
    assert load_pairs(dataset_name="someone/news")["train"][name] == cells


def test_a_file_whose_records_are_mostly_malformed_is_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a file in Windows-1252, of which only the lines without umlauts decode; said once."""
    file = tmp_path / "windows.csv"
    rows = [f"Gr\u00fc\u00dfe {number},a" for number in range(21)]
    file.write_bytes("\n".join(["text,summary", "b,a", *rows]).encode("cp1252"))
    reason = r"\(lines 3, 4, 5, 6, 7: bytes that do not decode as UTF-8 \(iconv [^)]*\); \.\.\.\): only 1 left"
    with pytest.raises(ValueError, match=rf"skipped 21 malformed rows {reason}"):
        load_pairs(str(file))
    assert caplog.messages == []
    file.write_bytes("\n".join(["text,summary", *["b,a"] * 21, *rows]).encode("cp1252"))
    assert len(load_pairs(str(file))["train"]) == 21


def test_bad_csv_rows_are_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.csv", b'text,summary\n"a\nb",c\nonly\na,b,c\n,x\n\xff,x\nd,e\n')
    rows = list(load_pairs(train_file=path)["train"])
    assert rows == [{"text": "a\nb", "summary": "c"}, {"text": "d", "summary": "e"}]
    (message,) = caplog.messages
    assert "skipped 4 malformed rows (line 4: 1 field, the header has 2; line 5: 3 fields" in message
    assert "line 6: empty 'text'; line 7: bytes that do not decode" in message


TABLES = {
    "wider than its header": "text;summary;;\na b;c;;\n",
    "a line for Excel": "sep=;\r\ntext;summary\r\na b;c\r\n",
    "a quoted line for Excel": '"sep=;"\ntext;summary\na b;c\n',
    "an index without a name": ";body;reply\n0;a b;c\n",
    "unnamed columns": "Unnamed: 0;body;reply;;\n0;a b;c;;\n",
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_tables_of_spreadsheets_are_read(tmp_path: Path, table: str) -> None:
    (row,) = load_pairs(train_file=write(tmp_path / "a.csv", table))["train"]
    assert (row.pop("text"), row.pop("summary")) == ("a b", "c")
    assert row.keys() <= {"", "Unnamed: 0", "Unnamed: 2", "Unnamed: 3", "Unnamed: 4"}


REFUSED_TABLES = {
    "text,summary\na,b\n".encode("utf-16-le"): "the header holds NUL characters: save the file as UTF-8",
    b"text~summary\na~b\n": "pass summary_column (--summary_column), or delimiter (--delimiter) if it is several",
    "gr\u00f6\u00dfe,text\na,b\n".encode("latin-1"): "the header is bytes that do not decode as UTF-8",
    b'{"text": "a", "summary": "b"}\n{"text": "c", "summary": "d"}\n': "the first line is JSON: name the file .jsonl",
}


@pytest.mark.parametrize(("table", "message"), REFUSED_TABLES.items(), ids=["utf-16", "tilde", "latin-1", "JSON"])
def test_tables_of_another_form_are_refused_with_what_to_do(tmp_path: Path, table: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=rf"a\.csv.*{re.escape(message)}"):
        load_pairs(train_file=write(tmp_path / "a.csv", table))


def test_empty_rows_of_a_table_are_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.csv", b"text,summary,note\na,b,c\n\n,,\n,,,,,\n,\nd,e,\n,,\n")
    rows = load_pairs(train_file=path)["train"]
    assert rows["text"] == ["a", "d"]
    assert caplog.messages == []


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_a_quote_in_an_unquoted_tsv_is_a_character_of_the_text(tmp_path: Path, streaming: bool) -> None:
    rows = [(f"a {n}", f"b {n}") for n in range(200)]
    rows[20], rows[60] = ('"Yes," he said', "b"), ("he said", '"No')
    rows[90], rows[91] = ('"open\u2028', "x"), ('close"', "y")
    path = write(tmp_path / "a.tsv", "".join(f"{text}\t{summary}\n" for text, summary in [("text", "summary"), *rows]))
    data = load_pairs(train_file=path, streaming=streaming)["train"]
    assert [(row["text"], row["summary"]) for row in data] == rows


def test_a_tsv_with_quoted_fields_over_several_lines_is_read(tmp_path: Path) -> None:
    rows = [("a\nb", "c"), ("a", "b\nc\n\nd"), ('"', '""'), ("tab\there", 'say "x"\n')]
    path = tmp_path / "a.tsv"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("text", "summary"), *rows])
    data = load_pairs(train_file=path)["train"]
    assert [(row["text"], row["summary"]) for row in data] == rows


def test_a_malformed_line_within_quotes_does_not_hide_rows_of_an_unquoted_tsv(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "a.tsv", 'text\tsummary\n"Hello\tgreeting\nno tab\nshe said"\tend\n')
    pairs = load_pairs(path)["train"]
    assert list(pairs["text"]) == ['"Hello', 'she said"']
    assert any("line 3: 1 field, the header has 2" in message for message in caplog.messages)


def test_an_unclosed_quote_in_csv_loses_one_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = ["text,summary", *(f'"a, {n}",b {n}' if n % 3 else f"a {n},b {n}" for n in range(200))]
    lines[51] = '"open, text,b 50'
    path = write(tmp_path / "a.csv", "\n".join(lines) + "\n")
    data = load_pairs(train_file=path)["train"]
    assert data["summary"][:] == [f"b {n}" for n in range(200) if n != 50]
    (message,) = caplog.messages
    assert "skipped 1 malformed row (line 52: not valid CSV (a quote is not closed, or followed by text))" in message


def test_a_quote_that_the_end_of_the_file_leaves_open_loses_one_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,summary\na,b\n"c,d\ne,f\n')
    assert load_pairs(train_file=path)["train"]["text"][:] == ["a", "e"]


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_the_delimiter_of_csv_is_recognised_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, separator: str, name: str, streaming: bool
) -> None:
    rows = ["text|summary", *(f'"a, {n}"|b, {n}, {n}' for n in range(9)), "one, field"]
    path = write(tmp_path / "a.csv", "\n".join(rows).replace("|", separator))
    with caplog.at_level(logging.INFO, "copynet_hf"):
        data = list(load_pairs(train_file=path, streaming=streaming)["train"])
    assert data == [{"text": f"a, {n}", "summary": f"b, {n}, {n}"} for n in range(9)]
    assert caplog.messages[0] == f"{path}: fields are separated by {name} (--delimiter sets another)"
    given = load_pairs(train_file=path, streaming=streaming, delimiter="\\t" if separator == "\t" else separator)
    assert list(given["train"]) == data
    with pytest.raises(ValueError, match="--delimiter is ';;': use one character"):
        load_pairs(train_file=path, delimiter=";;")


def test_a_missing_column_is_named_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Raw Text ,Summary\na,b\n")
    hint = "no column 'RawText'; did you mean 'Raw Text ' (with a space at its end)? The columns are 'Raw Text ', "
    with pytest.raises(ValueError, match=re.escape(f"{path}: {hint}'Summary'")):
        load_pairs(train_file=path, text_column="RawText")
    hint = "the columns are 'Raw Text ,Summary': if these are several, pass delimiter (--delimiter)"
    with pytest.raises(ValueError, match=re.escape(f"{path}: no column 'Raw'; {hint}")):
        load_pairs(train_file=path, text_column="Raw", delimiter=";")
    with pytest.raises(ValueError, match="cannot be both"):
        load_pairs(train_file=path, text_column="Summary", summary_column="Summary")


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_capitals_and_spaces_of_a_column_name_do_not_matter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    monkeypatch.chdir(tmp_path)  # messages name files relative to it
    files = {
        f"{split}_file": write(tmp_path / f"{split}.csv", "Raw  Text ,Re\u0301su\u00a0me\na,b\n")
        for split in ("train", "test")
    }
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.INFO, "copynet_hf"):
            pairs = load_pairs(**files, text_column="raw text", summary_column="r\u00e9su me", streaming=streaming)
        assert [*pairs["train"]] == [{"text": "a", "summary": "b"}]
        columns = "text is column 'Raw  Text ', summary is column 'Re\u0301su\\xa0me'"
        assert caplog.messages == [f"train.csv, test.csv: {columns}"]
    ambiguous = write(tmp_path / "b.csv", "Text,TEXT,cmd\na,b,c\n")
    with pytest.raises(ValueError, match="no column 'text'; did you mean"):
        load_pairs(train_file=ambiguous, text_column="text")
    with pytest.raises(ValueError, match="the text and summary could be any of the columns 'Text', 'TEXT', 'cmd'"):
        load_pairs(train_file=ambiguous)


def test_the_exact_name_of_a_column_comes_first(tmp_path: Path) -> None:
    row = {"text": "a", "summary": "b", "Text": "c", " summary": "d"}
    (pair,) = load_pairs(train_file=write_rows(tmp_path / "a.jsonl", [row]))["train"]
    assert (pair["text"], pair["summary"]) == ("a", "b")


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_field_can_have_more_than_131072_characters(tmp_path: Path, suffix: str) -> None:
    limit = csv.field_size_limit()
    long = "one, two\n" * 20_000
    path = tmp_path / f"a.{suffix}"
    with path.open("w", newline="") as file:
        delimiter = "\t" if suffix == "tsv" else ","
        csv.writer(file, delimiter=delimiter).writerows([("text", "summary"), ("a", "b"), (long, "c"), ("d", "e")])
    data = load_pairs(train_file=path)["train"]
    assert data["text"][:] == ["a", long, "d"]
    assert csv.field_size_limit() == limit  # of the whole process


@pytest.mark.parametrize(("encoding", "suffix"), [("utf-16", "csv"), ("utf-16-le", "tsv"), ("utf-16-be", "jsonl")])
def test_utf_16_is_recognised_by_its_byte_order_mark(tmp_path: Path, encoding: str, suffix: str) -> None:
    rows = [("镕基 𠮷", "ä"), ("a", "b")]
    if suffix == "jsonl":
        lines = [json.dumps({"text": text, "summary": summary}, ensure_ascii=False) for text, summary in rows]
    else:
        lines = [("," if suffix == "csv" else "\t").join(row) for row in [("text", "summary"), *rows]]
    mark = "" if encoding == "utf-16" else "\ufeff"
    content = (mark + "\r\n".join(lines) + "\r\n").encode(encoding)
    path = write(tmp_path / f"a.{suffix}", content)
    data = load_pairs(train_file=path)["train"]
    assert [(row["text"], row["summary"]) for row in data] == rows
    write(path, content[:-9])  # within a character
    assert load_pairs(train_file=path)["train"]["text"][:1] == ["镕基 𠮷"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.json.gz", "a.csv.gz", "a.TSV.GZ", "a.txt.gz"])
def test_compressed_files_are_read(tmp_path: Path, name: str) -> None:
    contents = {
        ".jsonl": json.dumps(PAIR),
        ".json": json.dumps([PAIR]),
        ".csv": "text,summary\na b,a\n",
        ".tsv": "text\tsummary\na b\ta\n",
        ".txt": record(0, "a", "a b"),
    }
    content = gzip.compress(contents[Path(name).with_suffix("").suffix.lower()].encode())
    path = write(tmp_path / name, content)
    (row,) = load_pairs(train_file=path)["train"]
    assert (row["text"], row["summary"]) == ("a b", "a")
    for damaged in (content[:-12], b"no gzip", content[:20] + b"\xff" + content[21:]):
        write(path, damaged)
        with pytest.raises(DataFileError, match=f"{name}: not a complete gzip file"):
            load_pairs(train_file=path)


@pytest.mark.parametrize("name", ["a", "a.jsonl"])
def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(DataFileError, match=f"{name} is a folder: pass a file"):
        load_pairs(train_file=tmp_path / name)


HOSTILE_JSON = {
    "an integer of 5,000 digits": '{"text": "a", "summary": "b", "n": %s}' % ("9" * 5_000),
    "deep nesting": '{"text": "a", "summary": "b", "n": %s}' % ("[" * 100_000 + "]" * 100_000),
    "a deeply nested line": "[" * 100_000 + "]" * 100_000,
    "a nested list": "[" + json.dumps([PAIR]) + "]",
}


@pytest.mark.parametrize("line", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_skipped(tmp_path: Path, line: str) -> None:
    pair = json.dumps(PAIR)
    path = write(tmp_path / "a.jsonl", f"{pair}\n{line}\n{pair}\n")
    assert len(load_pairs(train_file=path)["train"]) == 2
    for content in (line, f"[{line}]"):
        with pytest.raises(DataFileError, match=r"b\.json: "):
            load_pairs(train_file=write(tmp_path / "b.json", content))


def test_large_integers_and_deep_columns_are_kept_as_json(tmp_path: Path) -> None:
    rows = [PAIR | {"n": 10**4000, "deep": json.loads("[" * 300 + "]" * 300)}, PAIR | {"n": 1, "deep": []}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data = load_pairs(train_file=path)["train"]
    assert data[0]["n"] == "1" + "0" * 4000
    assert len(data) == 2


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_damage_of_a_parquet_file_is_an_error_that_names_it(tmp_path: Path, streaming: bool) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"text": f"a {n} {n**9}", "summary": f"b {n}"} for n in range(400)]
    write_table(path, rows)
    content = path.read_bytes()
    damages = [content[: len(content) // 2], content[:100], content[4:]]
    rng = random.Random(0)
    for _ in range(15):
        start, garbage = rng.randrange(4, len(content) - 8), rng.randbytes(200)
        damages.append(content[:start] + garbage + content[start + len(garbage) :])
    messages = []
    for damaged in damages:
        write(path, damaged)
        try:
            list(load_pairs(train_file=path, streaming=streaming)["train"])
        except DataFileError as error:
            messages.append(str(error))
    assert len(messages) > 5
    assert all("a.parquet" in message for message in messages)


def test_parquet_rows_without_a_pair_are_named_and_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.parquet"
    datasets.Dataset.from_dict({"text": ["a", None, "b"], "summary": ["x", "y", ""]}).to_parquet(path)
    data = load_pairs(train_file=path)["train"]
    assert data[:] == {"text": ["a"], "summary": ["x"]}
    assert "skipped 2 malformed rows (row 2: no 'text'; row 3: empty 'summary')" in caplog.messages[0]
    streamed = load_pairs(train_file=path, streaming=True)["train"]
    caplog.clear()
    for _ in range(2):  # counted anew each time, and told once
        assert list(streamed) == [{"text": "a", "summary": "x"}]
        (message,) = caplog.messages
        assert f"{path}: skipped 2 malformed rows (row 2: no 'text'; row 3: empty 'summary')" in message


def test_elements_of_a_json_list_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": "a", "summary": "x"}, {"text": 3, "summary": "y"}], indent=2), "utf-8")
    assert load_pairs(train_file=path)["train"][:] == {"text": ["a"], "summary": ["x"]}
    assert "(element 2: 'text' is of type int, not a string)" in caplog.text


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_parquet_columns_may_hold_what_python_cannot(tmp_path: Path, streaming: bool) -> None:
    path = tmp_path / "a.parquet"
    columns = {
        "text": pa.array([b"a\xff"]).view(pa.string()),
        "summary": ["b"],
        "day": pa.array([2_932_897], pa.date32()),  # in the year 10000
        "time": pa.array([1], pa.time64("ns")),
    }
    pq.write_table(pa.table(columns), path)
    (row,) = load_pairs(train_file=path, streaming=streaming)["train"]
    assert row == {"text": "a\ufffd", "summary": "b", "day": "10000-01-01", "time": "00:00:00.000000001"}


def test_two_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 3, ["text", "text", "summary"]), path)
    with pytest.raises(DataFileError, match=r"a\.parquet: there are two columns 'text': rename one"):
        load_pairs(train_file=path)


def test_workers_read_all_shards_of_a_stream_and_report_what_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [None if number in (2, 6, 7, 8) else f"t{number}" for number in range(9)]
    rows = datasets.Dataset.from_dict({"text": texts, "summary": ["s"] * 9}).to_iterable_dataset(num_shards=3)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.IterableDatasetDict({"train": rows}))
    data = load_pairs(dataset_name="someone/news", streaming=True)["train"]
    assert data.num_shards == 3
    kept = [text for text in texts if text]
    assert [row["text"] for row in data] == kept
    assert caplog.messages == ["someone/news/train: unusable rows are skipped (no 'text')"]
    loader = torch.utils.data.DataLoader(data, num_workers=2, batch_size=None)
    assert sorted(row["text"] for row in loader) == kept


def test_columns_of_mixed_values_are_kept_as_json(tmp_path: Path) -> None:
    rows = [PAIR | {"extra": 1, "more": {"a": 1}}] * 1001  # types are found in batches of 1,000
    rows += [PAIR | {"extra": "two", "more": {"b": [2]}}, PAIR]
    data = load_pairs(train_file=write_rows(tmp_path / "a.jsonl", rows))["train"]
    assert [data[0]["extra"], data[1001]["extra"]] == ["1", '"two"']
    assert [data[0]["more"], data[1001]["more"]] == ['{"a": 1}', '{"b": [2]}']
    assert data[1002] == PAIR | {"extra": None, "more": None}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_given_columns_are_used_and_columns_of_their_new_names_are_kept(tmp_path: Path, suffix: str) -> None:
    path = write_table(tmp_path / f"a.{suffix}", [{"text": "raw", "context": "a b", "answer": "a", "summary": "s"}])
    (row,) = load_pairs(train_file=path, text_column="context", summary_column="answer")["train"]
    assert row == {"text": "a b", "summary": "a", "original_text": "raw", "original_summary": "s"}
    (row,) = load_pairs(train_file=path, text_column="summary", summary_column="text")["train"]
    assert (row["text"], row["summary"]) == ("s", "raw")
    write_table(path, [{"text": "raw", "original_text": "a b", "summary": "s"}])
    (row,) = load_pairs(train_file=path, text_column="original_text")["train"]
    assert row == {"text": "a b", "summary": "s", "original_text": "raw"}


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_columns_with_unusual_names_are_guessed_in_order_without_ids_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, streaming: bool
) -> None:
    path = write_rows(tmp_path / "a.jsonl", [{"id": "r1", "year": 3, "long": "a b", "short": "a"}])
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with caplog.at_level(logging.INFO, "copynet_hf"):
            pairs = load_pairs(train_file=path, streaming=streaming)["train"]
            (row,) = [list(pairs) for _ in range(2)][1]  # a second pass says nothing again
        assert (row["text"], row["summary"]) == ("a b", "a")
        (message,) = caplog.messages
        assert message.startswith(f"{path}: text is column 'long', summary is column 'short', as guessed")
    caplog.clear()
    with caplog.at_level(logging.INFO, "copynet_hf"):
        list(load_pairs(train_file=path, text_column="long", summary_column="short", streaming=streaming)["train"])
    assert not caplog.messages


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_where_several_columns_could_be_meant_an_error_names_them(tmp_path: Path, streaming: bool) -> None:
    path = write_rows(tmp_path / "a.jsonl", [{"category": "files", "difficulty": "easy", "nl": "list", "cmd": "ls"}])
    message = "the text and summary could be any of the columns 'category', 'difficulty', 'nl', 'cmd': pass "
    options = "text_column (--text_column) and summary_column (--summary_column)"
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}{options}")):
        list(load_pairs(train_file=path, streaming=streaming)["train"])
    message = "the summary could be any of the columns 'category', 'difficulty', 'cmd': pass summary_column "
    hint = "; texts without a summary are for copynet-hf predict"
    with pytest.raises(ValueError, match=re.escape(f"{message}(--summary_column){hint}")):
        list(load_pairs(train_file=path, text_column="nl", streaming=streaming)["train"])
    pairs = load_pairs(train_file=path, text_column="nl", summary_column="cmd", streaming=streaming)["train"]
    assert next(iter(pairs))["text"] == "list"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", ""),
        ("a.jsonl", "\n"),
        ("a.jsonl", '{"text": "a", "summ\n'),
        ("a.jsonl", '{"text": "a", "summary": ""}\n'),
        ("a.json", "[{]"),
        ("a.json", "[]"),
        ("a.csv", ""),
        ("a.csv", "text,summary\n"),
        ("a.csv", "text,text\na,b\n"),
        ("a.parquet", ""),
        ("a.parquet", "not parquet"),
        ("a.txt", ""),
        ("a.txt", "nothing of the kind\n"),
    ],
)
def test_a_file_without_a_pair_is_an_error_that_names_it(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataFileError, match=name.replace(".", r"\.")):
        load_pairs(train_file=path)


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "txt"])
def test_a_file_of_malformed_records_is_an_error_with_line_and_reason(
    tmp_path: Path, suffix: str, streaming: bool
) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        datasets.Dataset.from_list([PAIR | {"text": ""}] * 2).to_parquet(path)
    else:
        content = {"jsonl": "{\n[]\n", "csv": "text,summary\n,b\na,\n", "txt": record(summary="") * 2}
        write(path, content[suffix])
    first = {"csv": 2}.get(suffix, 1)
    unit = "row" if suffix == "parquet" else "line"
    message = rf"a\.{suffix}: skipped 2 malformed rows \({unit}s? {first}[:,] .*\): no row is left"
    with pytest.raises(DataFileError, match=message):
        list(load_pairs(train_file=path, streaming=streaming)["train"])


def test_what_names_no_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.docx: the name must end in one of \.jsonl"):
        load_pairs(train_file=write(tmp_path / "a.docx", "x"))
    with pytest.raises(ValueError, match=r"a\.xlsx: .*: save the sheet as CSV \(UTF-8\)"):
        load_pairs(train_file=write(tmp_path / "a.xlsx", "x"))
    with pytest.raises(DataFileError, match=r"a\.csv: a zip archive, as of Excel: save the sheet as CSV \(UTF-8\)"):
        load_pairs(train_file=write(tmp_path / "a.csv", "PK\x03\x04 x\n"))
    with pytest.raises(FileNotFoundError, match=r"gone\.csv"):
        load_pairs(train_file=tmp_path / "gone.csv")
    with pytest.raises(ValueError, match="either files or dataset_name"):
        load_pairs()
    with pytest.raises(ValueError, match="either files or dataset_name"):
        load_pairs(train_file="a.jsonl", dataset_name="x/y")
    with pytest.raises(ValueError, match="at least one"):
        load_lcsts()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_changed_file_is_not_read_from_the_cache(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    for word in ("old", "new"):
        write_table(path, [{"text": word, "summary": word}])
        os.utime(path, ns=(0, 0))
        assert load_pairs(train_file=path)["train"][0]["text"] == word


@pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
def test_a_dataset_on_the_hub_gets_the_same_columns(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, streaming: bool
) -> None:
    def load_dataset(name: str, config: str | None, streaming: bool) -> Any:
        assert (name, config) == ("someone/news", "3.0.0")
        part = datasets.Dataset.from_list([{"id": "1", "article": "a b", "highlights": "a"}, {"id": "2"}])
        kind = datasets.IterableDatasetDict if streaming else datasets.DatasetDict
        return kind({"train": part.to_iterable_dataset() if streaming else part})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for _ in range(2):  # the second time from the cache
        data = load_pairs(dataset_name="someone/news", dataset_config_name="3.0.0", streaming=streaming)
        assert list(data["train"]) == [{"text": "a b", "summary": "a", "id": "1"}]
        if not streaming:
            assert caplog.messages[-1] == "someone/news/train: 1 of 2 rows are skipped"
            caplog.clear()


def test_results_for_a_dataset_are_found_in_the_cache_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ds").mkdir()
    write_table(tmp_path / "ds" / "train.jsonl", [{"text": "a b", "summary": "a", "n": 1}])
    for _ in range(2):
        data = load_pairs(dataset_name=str(tmp_path / "ds"))
    files = {Path(each["filename"]).name for each in data["train"].cache_files}
    data = load_pairs(dataset_name=str(tmp_path / "ds"))
    assert files == {Path(each["filename"]).name for each in data["train"].cache_files}
    assert "hash" not in caplog.text


@pytest.mark.parametrize("texts", [pa.string(), pa.large_string()], ids=str)
def test_facts_of_a_dataset_may_be_large_strings(tmp_path: Path, texts: pa.DataType) -> None:
    facts = [[["Ann", "born in", "Rome"]]]
    columns = {"text": ["where"], "summary": ["Rome"], "facts": pa.array([facts[0]], pa.list_(pa.list_(texts)))}
    (tmp_path / "ds").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "ds" / "train.parquet")
    assert load_pairs(dataset_name=str(tmp_path / "ds"))["train"]["facts"][:] == facts


def test_a_split_without_pairs_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ds").mkdir()
    write_table(tmp_path / "ds" / "train.jsonl", [{"text": "a b", "summary": "a"}])
    write_table(tmp_path / "ds" / "test.jsonl", [{"text": "a b", "summary": ""}])
    assert list(load_pairs(dataset_name=str(tmp_path / "ds"))) == ["train"]
    assert "the split 'test' is left out: " in caplog.text
    with pytest.raises(ValueError, match="no column 'body'"):
        load_pairs(dataset_name=str(tmp_path / "ds"), text_column="body")


def test_ids_of_several_types_are_texts_in_a_limited_evaluation(tmp_path: Path) -> None:
    numbers = [*range(1100), *(f"x{number}" for number in range(3))]  # types are found in batches of 1,000
    rows = [{"text": "a b", "summary": "a", "id": number} for number in numbers]
    path = write_table(tmp_path / "a.jsonl", rows)
    args = EvaluateArguments(test_file=str(path), max_eval_samples=1103)
    assert read_split(args, "test", str(path), tiny_tokenizer())["id"][-4:] == ["1099", "x0", "x1", "x2"]


def test_usual_names_are_found_between_spaces_and_records_beside_ids(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text, summary, score\na b,a,high\n")
    assert load_pairs(train_file=tmp_path / "a.csv")["train"][0]["summary"] == "a"
    rows = [{"id": "q1", "text": "a b", "summary": {"x": "a"}}, {"id": None, "text": None, "summary": None}, {}]
    path = write_rows(tmp_path / "a.jsonl", rows)
    assert load_pairs(train_file=path)["train"]["summary"][:] == ["x = a"]


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        (
            "a.jsonl",
            {"text": "a", "n": 1},
            "no column of strings is left for the summary; the columns are 'text', 'n': pass summary_column "
            "(--summary_column)",
        ),
        (
            "a.jsonl",
            {"text": 1, "summary": 2},
            "the column 'text' holds no strings: write its values as strings, or pass text_column (--text_column)",
        ),
        (
            "a.jsonl",
            {"text": "a", "summary": 2},
            "the column 'summary' holds no strings: write its values as strings, or "
            "pass summary_column (--summary_column)",
        ),
        # nothing is advised that is for tables
        ("a.jsonl", {"data": [PAIR]}, "if it holds the pairs, write their list alone"),
        ("a.jsonl", {"a": "x"}, "pass summary_column (--summary_column)"),
        ("a.jsonl", {"a": "x", "b": "y", "c": "z"}, "and summary_column (--summary_column)"),
        # in the form of another file
        ("a.txt", PAIR, "a .txt file holds LCSTS: name JSON lines .jsonl"),
        ("a.json", {"data": [PAIR]}, "write a list of objects, or one object on each"),
    ],
)
def test_what_cannot_be_read_is_refused_with_advice(tmp_path: Path, name: str, content: Any, advice: str) -> None:
    path = write(tmp_path / name, json.dumps(content, indent=2 if name == "a.json" else None))
    with pytest.raises(ValueError, match=re.escape(advice) + ("$" if name == "a.jsonl" else "")):
        load_pairs(train_file=path)
