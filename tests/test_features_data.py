"""Features of sources from files to ids: columns, shared task files, the vocabulary, padding, saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_tokenizer, write_rows, write_table
from transformers import AutoTokenizer, DataCollatorForSeq2Seq

from copynet_hf import CopyNetTokenizer, load_pairs

BOTH = pytest.mark.parametrize("streaming", [False, True], ids=["cached", "streaming"])
UNKNOWN = 1


@pytest.fixture
def tokenizer() -> CopyNetTokenizer:
    """Its features PST, SG and V have the ids 2, 3 and 4."""
    features = [["V", "PST"], None, ["SG", "V"]]
    return CopyNetTokenizer.train_from_iterator(["go", "went"], 100, features=features)


# files


@BOTH
@pytest.mark.parametrize("suffix", ["train", "trn", "dev", "gold", "test", "tst", "dev.gz"])
def test_files_of_the_shared_tasks_have_lemma_form_and_features(tmp_path: Path, suffix: str, streaming: bool) -> None:
    import gzip

    path, rows = tmp_path / f"got_small.{suffix}", "go\twent\tV;PST\nice cream\tice creams\tN;PL\n"
    path.write_bytes(gzip.compress(rows.encode()) if suffix.endswith("gz") else rows.encode())
    data = load_pairs(path, features_column="features", streaming=streaming)["train"]
    assert list(data) == [
        {"text": "go", "summary": "went", "features": ["V", "PST"]},
        {"text": "ice cream", "summary": "ice creams", "features": ["N", "PL"]},
    ]


@BOTH
@pytest.mark.parametrize(("suffix", "tab"), [("tsv", "\t"), ("csv", ","), ("train", "\t")])
def test_a_table_without_a_header_has_the_given_columns(
    tmp_path: Path, suffix: str, tab: str, streaming: bool
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text("went|V PST |go\nran|V|run|\n".replace("|", tab), encoding="utf-8")
    names = {"column_names": ["form", "tags", "lemma"], "features_column": "tags", "features_separator": " "}
    data = load_pairs(path, streaming=streaming, **names)["train"]
    assert list(data) == [{"text": "go", "summary": "went", "features": ["V", "PST"]}]


def test_a_table_without_a_header_whose_columns_are_not_given_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("go\twent\tV;PST\nrun\tran\tV;PST\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"or column_names \(--column_names\) if the first line is no header"):
        load_pairs(path)


def test_column_names_for_a_file_that_names_its_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a.jsonl: column_names are for tables \(.csv, .tsv, .train"):
        load_pairs(tmp_path / "a.jsonl", column_names=["text", "summary"])


ROWS: list[dict[str, Any]] = [
    {"text": "go", "summary": "went", "tags": ["V", "PST"], "features": 1},
    {"text": "run", "summary": "run", "tags": None, "features": 2},
    {"text": "be", "summary": "is", "tags": ["V", " SG "], "features": 3},
]
EXPECTED = [
    {"text": "go", "summary": "went", "features": ["V", "PST"], "original_features": 1},
    {"text": "run", "summary": "run", "features": [], "original_features": 2},
    {"text": "be", "summary": "is", "features": ["V", "SG"], "original_features": 3},
]


@BOTH
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_lists_are_read_as_they_are(tmp_path: Path, suffix: str, streaming: bool) -> None:
    path = tmp_path / f"a.{suffix}"
    write_table(path, ROWS)
    assert list(load_pairs(path, features_column="tags", streaming=streaming)["train"]) == EXPECTED


def test_without_a_features_column_a_column_of_this_name_is_another_column(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", ROWS)
    assert load_pairs(path)["train"].column_names == ["text", "summary", "tags", "original_features"]


def test_rows_whose_features_are_something_else_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": "a", "summary": "b", "tags": tags} for tags in ("V", 5, [1], "")]
    path = write_rows(tmp_path / "a.jsonl", rows)
    assert load_pairs(path, features_column="tags")["train"]["features"][:] == [["V"], []]
    assert "line 2: 'tags' is of type int, neither a string nor a list of strings; " in caplog.text
    assert "line 3: 'tags' is of type list, " in caplog.text


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("tag", r"no column 'tag'; did you mean 'tags'\? The columns are 'text', 'summary', 'tags', 'features'"),
        ("text", "column 'text' cannot be both text and features"),
    ],
)
def test_a_features_column_that_cannot_be_used_is_refused(tmp_path: Path, column: str, message: str) -> None:
    path = write_rows(tmp_path / "a.jsonl", ROWS[:1])
    with pytest.raises(ValueError, match=message):
        load_pairs(path, text_column="text", features_column=column)


# ids


def test_features_have_ids_of_their_own_and_an_unseen_one_is_unknown(tokenizer: CopyNetTokenizer) -> None:
    assert tokenizer.feature_vocab_size == 5
    encoded = tokenizer(["go", "V"], features=[["V", "PST"], ["PL"]], text_target=["V", "PST"])
    assert encoded["feature_ids"] == [[4, 2], [UNKNOWN]]
    without = tokenizer(["go", "V"], text_target=["V", "PST"])
    assert "feature_ids" not in without
    assert {name: encoded[name] for name in without} == dict(without)  # words and slots are the same
    assert tokenizer("go", features=["SG", "SG"])["feature_ids"] == [3]


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_are_padded_on_the_right_to_the_longest(tokenizer: CopyNetTokenizer, side: str) -> None:
    tokenizer.padding_side = side
    rows = [["V", "PST", "SG"], None, ["PL"]]
    batch = tokenizer(["go", "went", "a"], features=rows, padding=True, return_tensors="pt")
    assert batch["feature_ids"].tolist() == [[4, 2, 3], [0, 0, 0], [1, 0, 0]]
    encoded = [tokenizer(text, features=row or []) for text, row in zip(["go", "went", "a"], rows, strict=True)]
    for padded in (
        tokenizer.pad(encoded, return_tensors="np"),
        tokenizer.pad({k: [e[k] for e in encoded] for k in encoded[0]}, return_tensors="pt"),
    ):
        assert all(np.array_equal(padded[name], batch[name]) for name in batch)
    tensors = [{name: torch.tensor(row) for name, row in each.items()} for each in encoded if each["feature_ids"]]
    assert tokenizer.pad(tensors)["feature_ids"].tolist() == [[4, 2, 3], [1, 0, 0]]
    assert tokenizer(["go"], features=[None], padding=True, return_tensors="pt")["feature_ids"].tolist() == [[0]]
    collated = DataCollatorForSeq2Seq(tokenizer)([{**each, "labels": [2]} for each in encoded])
    assert collated["feature_ids"].tolist() == batch["feature_ids"].tolist()
    assert collated["feature_ids"].dtype == torch.long


def test_they_are_saved_with_the_tokenizer_in_whatever_order_they_were_given(tmp_path: Path) -> None:
    tiny_tokenizer(feature_vocab=["V", "PST", "ADJ"]).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.feature_vocab == {"V": 2, "PST": 3, "ADJ": 4}
    assert loaded("go", features=["V", "X"])["feature_ids"] == [2, 1]


def test_a_tokenizer_without_features_is_saved_as_before(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    assert "feature" not in (tmp_path / "tokenizer_config.json").read_text(encoding="utf-8")
    assert tokenizer.feature_vocab_size == 0


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([["V"]], "features has 1 rows, text 2: they must match"),
        ([["V"], "PST"], r"features\[1\] is 'PST': pass a list of strings"),
        ([["V"], [3]], r"features\[1\] is \[3\]: pass a list of strings"),
        ([["V"], ["PST; V"]], r"features\[1\] has 'PST; V': pass one string for each feature, \['PST', 'V'\]"),
        ([["V"], ["V;"]], r"features\[1\] has 'V;': pass one string for each feature, \['V'\]"),
    ],
)
def test_what_are_no_features_is_refused(tokenizer: CopyNetTokenizer, features: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenizer(["go", "went"], features=features)


def test_features_for_a_tokenizer_without_features_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match="features are given, but the tokenizer has none: leave them out, or train a new model with them \\(",
    ):
        tiny_tokenizer()("a", features=["V"])


@pytest.mark.parametrize(
    ("vocab", "message"), [(["V", "V"], "'V' twice"), (["V", ""], "contains '': pass strings"), ([3], "contains 3")]
)
def test_vocabularies_of_features_are_checked(vocab: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CopyNetTokenizer(tiny_tokenizer().get_vocab(), feature_vocab=vocab)
