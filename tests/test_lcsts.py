"""Reading LCSTS as its authors distribute it."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from copynet_hf import load_lcsts
from copynet_hf.data import DataFileError
from copynet_hf.data.lcsts import detect_encoding

pytestmark = pytest.mark.usefixtures("only_warnings")


def record(number: int = 0, summary: str = "雅虎剥离股份", text: str = "雅虎发布财报", label: Any = None) -> str:
    label_line = "" if label is None else f"    <human_label>{label}</human_label>\n"
    return (
        f"<doc id={number}>\n{label_line}    <summary>\n        {summary}\n    </summary>\n"
        f"    <short_text>\n        {text}\n    </short_text>\n</doc>\n"
    )


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_all_of_part_iii_is_read(data_dir: Path) -> None:
    path = data_dir / "lcsts" / "raw" / "PART_III.txt"
    if not path.is_file():
        pytest.skip(f"no real data: {path}")
    found = load_lcsts(test=path, min_score=1)["test"]
    expected = [json.loads(line) for line in (data_dir / "lcsts" / "test_all_1106.jsonl").open(encoding="utf-8")]
    assert len(found) == 1106
    assert [f"III-{number}" for number in found["id"]] == [row["id"] for row in expected]
    for name in ("text", "summary", "human_label"):
        assert found[name][:] == [row[name] for row in expected]


def test_a_part_without_labels_is_kept_with_labels_of_none(tmp_path: Path) -> None:
    path = write(tmp_path / "PART_I.txt", record(7) + record(8))
    data = load_lcsts(train=path)
    assert list(data) == ["train"]
    assert data["train"][:] == {
        "id": ["7", "8"],
        "text": ["雅虎发布财报"] * 2,
        "summary": ["雅虎剥离股份"] * 2,
        "human_label": [None, None],
    }


def test_only_labelled_pairs_below_the_minimum_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "mixed.txt", record(0, label=2) + record(1) + record(2, label=3) + record(3, label=5))
    assert load_lcsts(test=path)["test"]["id"][:] == ["1", "2", "3"]
    assert load_lcsts(test=path, min_score=5)["test"]["id"][:] == ["1", "3"]


@pytest.mark.parametrize(
    ("encoding", "start"),
    [
        ("utf-8", b""),
        ("utf-8", codecs.BOM_UTF8),
        ("gb18030", b""),
        ("gb18030", "\ufeff".encode("gb18030")),
        ("utf-16", b""),
    ],
    ids=["utf-8", "utf-8 with BOM", "gb18030", "gb18030 with BOM", "utf-16"],
)
def test_the_encoding_is_detected_from_the_bytes(tmp_path: Path, encoding: str, start: bytes) -> None:
    content = record(0, "第一条", "镕基 𠮷 €") + record(1, "第二条")
    path = write(tmp_path / "part.txt", start + content.replace("\n", "\r\n").encode(encoding))
    data = load_lcsts(train=path)["train"]
    assert data["summary"][:] == ["第一条", "第二条"]
    assert data["text"][0] == "镕基 𠮷 €"


def test_the_encoding_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "part.txt", record(summary="繁體").encode("big5", errors="ignore"))
    assert load_lcsts(train=path, encoding="big5")["train"][0]["summary"] == "繁體"


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_an_invalid_byte_loses_one_record_and_not_the_encoding(tmp_path: Path, encoding: str) -> None:
    good = "".join(record(number) for number in range(20)).encode(encoding)
    # 0xFF is a byte of neither encoding.
    invalid = record(20, "甲乙丙").encode(encoding).replace("乙".encode(encoding), b"\xff")
    path = write(tmp_path / "part.txt", good + invalid + good)
    assert detect_encoding(path) == encoding
    data = load_lcsts(train=path)["train"]
    assert len(data) == 40
    assert "bytes that do not decode" in data.info.description


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_a_file_cut_inside_a_character_keeps_its_encoding(tmp_path: Path, encoding: str) -> None:
    cut = (record(0) + record(1).split("发布")[0]).encode(encoding)[:-1]
    path = write(tmp_path / "part.txt", cut)
    assert detect_encoding(path) == encoding
    assert load_lcsts(train=path)["train"]["id"][:] == ["0"]


MALFORMED = {
    "no <summary>": "<doc id=1>\n<short_text>\n甲\n</short_text>\n</doc>\n",
    "no <short_text>": "<doc id=1>\n<summary>\n甲\n</summary>\n</doc>\n",
    "2 <summary>": record().replace("</summary>", "</summary><summary>乙</summary>"),
    "empty <short_text>": record(text="   "),
    "empty <summary>": record(summary=""),
    "<doc> is not closed": record().replace("</doc>\n", ""),
    "human_label '3.5'": record(label="3.5"),
    "human_label '9'": record(label=9),
    "human_label ''": record(label="").replace("</human_label>", ""),
    "text outside a <doc>": "hello\nworld\n",
    "no <doc id=...>": record().replace("<doc id=0>", "<document>"),
}


@pytest.mark.parametrize("reason", MALFORMED)
def test_a_malformed_record_is_named_by_its_line_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    path = write(tmp_path / "part.txt", record(0) + MALFORMED[reason] + record(2))
    data = load_lcsts(train=path)["train"]
    assert data["id"][:] == ["0", "2"]
    (message,) = caplog.messages
    assert f"{path}: skipped 1 malformed row (line 9: {reason}" in message


def test_skipped_records_are_reported_again_from_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "part.txt", record(0) + record(1, summary="") * 7)
    first = load_lcsts(train=path)["train"]
    caplog.clear()
    again = load_lcsts(train=path)["train"]
    assert again.cache_files == first.cache_files
    assert again.info.description == first.info.description
    assert "skipped 7 malformed rows (lines 9, 17, 25, 33, 41: empty <summary>; ...)" in first.info.description
    assert caplog.messages == [f"{path}: {first.info.description}"]


def test_a_min_score_that_no_record_reaches_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "part.txt", record(label=2) * 3)
    with pytest.raises(DataFileError, match=r"part\.txt: none of its 3 records has a human_label of 3"):
        load_lcsts(test=path)


def test_streaming_yields_rows_without_reading_the_whole_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "part.txt", record(summary="") + "".join(map(record, range(50))) + record(summary=""))
    data = load_lcsts(train=path, streaming=True)["train"]
    assert isinstance(data, datasets.IterableDataset)
    assert [row["id"] for row in data.take(3)] == ["0", "1", "2"]
    assert "skipped 1 malformed row " in caplog.text
    assert len(list(data)) == 50
    assert "skipped 2 malformed rows " in caplog.text


def test_streams_are_read_by_worker_processes(tmp_path: Path) -> None:
    data = load_lcsts(train=write(tmp_path / "part.txt", record(0) + record(1)), streaming=True)["train"]
    loader = torch.utils.data.DataLoader(data.select_columns(["summary"]), num_workers=1)
    assert len(list(loader)) == 2
