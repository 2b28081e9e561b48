"""`copynet-hf predict`: files of every format against a loop over `generate()`, bad rows, and runs that are killed."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import tiny_model, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from copynet_hf.cli import main
from copynet_hf.data import load_pairs
from copynet_hf.data.tables import Tables, find_files
from copynet_hf.inference import file_prediction
from copynet_hf.inference.part_files import PartFormat

DECODING = ["--num_beams=1", "--max_target_length=4"]
DRAW = random.Random(0)
TEXTS = [" ".join(DRAW.choices("abcdefgXYZ", k=DRAW.randint(1, 9))) for _ in range(23)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pointer network, whose outputs are words of the source."""
    folder = tmp_path_factory.mktemp("model")
    model = tiny_model(copy_mechanism="pointer", max_source_oov=4)
    model.generation_config.update(min_new_tokens=2)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def expected(model: Path) -> dict[str, str]:
    """The output of each text, one at a time, by the library's own classes."""
    network, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    outputs = {}
    for text in TEXTS:
        ids = network.generate(**tokenizer([text], return_tensors="pt"), max_new_tokens=4)
        (outputs[text],) = tokenizer.batch_decode(ids, source=[text], skip_special_tokens=True)
    return outputs


def command(model: Path, inputs: list[Path] | Path, output: Path, *more: str) -> list[str]:
    files = inputs if isinstance(inputs, list) else [inputs]
    named = [f"--model={model}", "--input_file", *map(str, files), f"--output_file={output}"]
    return ["predict", *named, *DECODING, "--batch_size=3", "--window=5", *more]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w", newline="") as file:
        if ".jsonl" in path.name:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if ".csv" in path.name else "\t")
            writer.writeheader()
            writer.writerows(rows)
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.name.endswith(".parquet"):
        return pq.read_table(path).to_pylist()
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as file:
        if ".jsonl" in path.name:
            return [json.loads(line) for line in file]
        return list(csv.DictReader(file, delimiter="," if ".csv" in path.name else "\t"))


def refused(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    capsys.readouterr()
    assert main(argv) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


# ---- formats and columns


@pytest.mark.parametrize("written", ["jsonl", "csv.gz", "tsv", "parquet"])
@pytest.mark.parametrize("read", ["jsonl", "jsonl.gz", "csv", "tsv.gz", "parquet"])
def test_rows_keep_their_columns_and_order(
    model: Path, expected: dict[str, str], tmp_path: Path, read: str, written: str
) -> None:
    rows = [{"id": str(number), "text": text, "note": 'a, "b"'} for number, text in enumerate(TEXTS)]
    output = tmp_path / f"out.{written}"
    assert main(command(model, write_rows(tmp_path / f"in.{read}", rows), output)) == 0
    assert read_rows(output) == [{**row, "prediction": expected[row["text"]]} for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"in.{read}", output.name])


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_carriage_returns_end_no_record(model: Path, tmp_path: Path, suffix: str) -> None:
    texts = ["a\rb", "a\r\nb", "a b"]
    source = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in texts])
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


def test_types_of_parquet_are_kept(model: Path, expected: dict[str, str], tmp_path: Path) -> None:
    table = pa.table(
        {
            "key": pa.array(range(23), pa.int16()),
            "when": pa.array([datetime.datetime(2031, 1, 2, 3, 4, 5, 6)] * 23, pa.timestamp("ns")),
            "tags": pa.array([["a"], None] * 11 + [[]], pa.list_(pa.string())),
            "data": pa.array([b"\x00\xff"] * 23),
            "place": pa.array([{"x": 1.5, "y": None}] * 23),
            "body": pa.array(TEXTS, pa.large_string()),
        }
    ).replace_schema_metadata({"huggingface": "{}"})
    pq.write_table(table, tmp_path / "in.parquet")
    output = tmp_path / "out.parquet"
    assert main(command(model, tmp_path / "in.parquet", output, "--text_column=body", "--prediction_column=new")) == 0
    result = pq.read_table(output)
    assert result.select(table.column_names).equals(table)
    assert result.schema.metadata is None  # which would name the columns of the input
    assert result["new"].to_pylist() == [expected[text] for text in TEXTS]
    assert main(command(model, tmp_path / "in.parquet", tmp_path / "out.jsonl", "--text_column=body")) == 0
    row = read_rows(tmp_path / "out.jsonl")[0]
    assert (row["when"], row["data"], row["place"]) == ("2031-01-02 03:04:05.000006", "AP8=", {"x": 1.5, "y": None})


def test_json_keeps_its_values_and_parquet_gets_a_type_for_each_column(
    model: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    more = [{"n": 1, "o": {"k": [1]}}, {"n": 2.5}, {"o": "a", "late": True}]
    rows = [{"text": text, **(more[number - 10] if 10 <= number < 13 else {})} for number, text in enumerate(TEXTS)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    assert read_rows(tmp_path / "out.jsonl") == [{**row, "prediction": expected[row["text"]]} for row in rows]
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
    write_rows(folder / "a.jsonl", [{"text": text} for text in TEXTS[:7]])
    write_rows(folder / "b" / "part-0.parquet", [{"text": text} for text in TEXTS[7:9]])
    write_rows(folder / "b" / "part-1.csv.gz", [{"text": text} for text in TEXTS[9:]])
    (folder / "notes.md").write_text("no table")
    (folder / "_SUCCESS.json").write_text("")
    (folder / "out.jsonl.parts").mkdir()
    (folder / "out.jsonl.parts" / "out.jsonl").write_text('{"text": "a"}\n')
    for number, inputs in enumerate(([folder], [folder / "a.jsonl", folder / "b" / "part-*"], [folder / "**/*.*sv*"])):
        output = tmp_path / f"{number}.parquet"
        assert main(command(model, inputs, output)) == 0
        found = TEXTS[9:] if number == 2 else TEXTS
        assert pq.read_table(output).to_pylist() == [{"text": text, "prediction": expected[text]} for text in found]
    with pytest.raises(FileNotFoundError, match="no such file"):
        find_files([str(folder / "*.tsv")])


def test_processes_give_the_rows_of_one(model: Path, expected: dict[str, str], tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS] + [{"text": 3}])
    assert main(command(model, source, tmp_path / "out.jsonl", "--num_proc=2", "--with_origins")) == 0
    rows = read_rows(tmp_path / "out.jsonl")
    assert [(row["text"], row["prediction"]) for row in rows] == [(text, expected[text]) for text in TEXTS]
    for row in rows:
        assert row["prediction_source_words"] == row["text"].split()
        words = [row["text"].split()[position] for position in row["prediction_source_positions"]]
        assert words == row["prediction"].split()


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_bad_rows_go_to_a_file_of_their_own_with_the_reason(
    model: Path, expected: dict[str, str], tmp_path: Path, suffix: str
) -> None:
    lines = [json.dumps({"id": number, "text": text}) for number, text in enumerate(TEXTS)]
    lines[3:3] = ['{"text": "a b', "[1]", '{"id": 5}', '{"text": ["a"]}', "", '{"text": ""}', '{"text": null}']
    lines += ['{"text": "a b", "facts": [["a"]]}', '{"text": "last", "facts": 7}']
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(lines) + "\n")
    output = tmp_path / f"out.{suffix}"
    assert main(command(model, source, output)) == 0
    pairs = [(row["text"], row["prediction"]) for row in read_rows(output)]
    assert pairs == [(text, expected[text]) for text in TEXTS[:3]] + [("", "")] + [
        (text, expected[text]) for text in TEXTS[3:]
    ]
    bad = [json.loads(line) for line in (tmp_path / "out.bad.jsonl").read_text().splitlines()]
    assert [row["line"] for row in bad] == [4, 5, 6, 7, 10, 31, 32]
    assert {row["file"] for row in bad} == {str(source)}
    reasons = ["not valid JSON", "a list rather than an object", "no 'text'", "'text' is a list, not a string"]
    for row, reason in zip(bad, [*reasons, "no 'text'", "facts", "facts"], strict=True):
        assert reason in row["reason"]
    assert bad[2]["row"] == {"id": 5}


BAD_INPUT = {
    "--input_file {folder}/in.jsonl": "no --output_file: give a file",
    "--output_file {folder}/o.jsonl": "no --input_file: give a file",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.txt": "the name must end in .jsonl",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.parquet.gz": "all but .parquet",
    "--input_file {folder}/in.jsonl --output_file {folder}/in.jsonl": "is the input file",
    "--input_file {folder} --output_file {folder}/in.jsonl --overwrite_output_file": "would write the input file",
    "--input_file {folder}/none.jsonl --output_file {folder}/o.jsonl": "no such file",
    "--input_file {folder}/a.txt --output_file {folder}/o.jsonl": "the name must end in .jsonl",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --text_column body": "no column 'body'",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --prediction_column n": "has a column 'n'",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --num_proc 0": "--num_proc is 0",
    "--input_file {folder}/bad.parquet --output_file {folder}/o.jsonl": "bad.parquet: cannot be read",
    "--input_file {folder}/in.jsonl --output_file {folder}/o.jsonl --num_beams 10000000000": "the memory is full",
}


@pytest.mark.parametrize(("argv", "message"), BAD_INPUT.items())
def test_bad_arguments_are_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: str, message: str
) -> None:
    write_rows(tmp_path / "in.jsonl", [{"text": "a", "n": 1}])
    for name in ("a.txt", "bad.parquet"):
        (tmp_path / name).write_text("not a table")
    if "{folder} " in argv:
        (tmp_path / "bad.parquet").unlink()
    assert message in refused(capsys, ["predict", f"--model={model}", *argv.format(folder=tmp_path).split()])


# ---- runs that are interrupted


class Killed(BaseException):
    pass


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [{"id": number, "text": text} for number, text in enumerate(TEXTS * 2)]
    rows[17]["text"] = None
    return write_rows(tmp_path / "in.jsonl", rows)


def check_output(output: Path, expected: dict[str, str]) -> None:
    """Each row once, in its order, and the bad one in its file."""
    numbers = [number for number in range(2 * len(TEXTS)) if number != 17]
    found = [(row["id"], row["prediction"]) for row in read_rows(output)]
    assert found == [(number, expected[TEXTS[number % len(TEXTS)]]) for number in numbers]
    (bad,) = (json.loads(line) for line in output.with_name("out.bad.jsonl").read_text().splitlines())
    assert (bad["line"], bad["row"]["id"]) == (18, 17)
    assert {path.name for path in output.parent.iterdir()} == {"in.jsonl", "out.bad.jsonl", output.name}


@pytest.mark.parametrize("suffix", ["jsonl.gz", "parquet", "csv"])
def test_a_run_goes_on_behind_the_last_whole_part(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    output, whole = tmp_path / f"out.{suffix}", tmp_path / "whole" / f"out.{suffix}"
    assert main(command(model, source, whole)) == 0
    write_part, written = PartFormat.write_part, []

    def write_some(self: PartFormat, part: Path, rows: Any) -> None:
        if len(written) % 4 == 3:
            part.with_name(f"{part.name}.unfinished").write_bytes(b"half of it")
            written.append(None)
            raise Killed
        write_part(self, part, rows)
        written.append(part.name)

    monkeypatch.setattr(PartFormat, "write_part", write_some)
    starts: list[int] = []
    read = Tables.read
    monkeypatch.setattr(Tables, "read", lambda self, start=0: starts.append(start) or read(self, start))
    for _ in range(3):
        with pytest.raises(Killed):
            main(command(model, source, output))
    assert main(command(model, source, output, "--num_proc=1", "--batch_size=2")) == 0
    assert starts == [0, 15, 30, 45]
    assert [name for name in written if name] == [f"{start:015d}" for start in range(0, 46, 5)]
    assert output.read_bytes() == whole.read_bytes()
    assert (tmp_path / "out.bad.jsonl").read_bytes() == (tmp_path / "whole" / "out.bad.jsonl").read_bytes()


@pytest.mark.parametrize("step", ["replace", "unlink", "rmdir"])
def test_a_run_killed_while_it_tidies_up_is_finished_by_the_next(
    model: Path, source: Path, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Each call that moves or removes a file is once the last of its process."""
    output = tmp_path / "out.jsonl"
    assert main(command(model, source, output)) == 0
    for count in range(1, 40):
        output.unlink(missing_ok=True)
        (tmp_path / "out.bad.jsonl").unlink(missing_ok=True)
        calls, function = iter(range(count)), getattr(Path, step)

        def fail(path: Path, *args: Any, calls: Any = calls, function: Any = function, **kwargs: Any) -> Any:
            if next(calls, None) is None:
                raise Killed
            return function(path, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(Path, step, fail)
            try:
                assert main(command(model, source, output)) == 0
                check_output(output, expected)
                return
            except Killed:
                pass
        code = main(command(model, source, output))
        assert code == 0 or (output.exists() and not list(tmp_path.glob("*.parts/*")))
        for left in tmp_path.glob("*.parts"):
            left.rmdir()
        check_output(output, expected)


def test_parts_of_another_run_are_refused(
    model: Path, source: Path, expected: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"

    def start(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PartFormat, "join_parts", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            main(command(model, source, output))

    with pytest.MonkeyPatch.context() as patch:
        start(patch)
    assert "whose decoding differ" in refused(capsys, command(model, source, output, "--max_target_length=2"))
    assert "whose columns differ" in refused(capsys, command(model, source, output, "--with_origins"))
    separated = command(model, source, output, "--features_separator=|")
    assert "whose features separator differ" in refused(capsys, separated)
    os.utime(source)
    assert "whose input files differ" in refused(capsys, command(model, source, output))
    assert not output.exists()
    assert main(command(model, source, output, "--overwrite_output_file")) == 0
    check_output(output, expected)
    assert "exists: give another file" in refused(capsys, command(model, source, output))


def test_what_another_run_has_joined_is_not_taken_for_the_output(
    model: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(file_prediction, "_finish", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            main(command(model, source, output))
    row = {"text": "a"}
    other = write_rows(tmp_path / "other.jsonl", [row])
    assert "whose input files differ" in refused(capsys, command(model, other, output))
    assert main(command(model, other, output, "--overwrite_output_file")) == 0
    assert [each["text"] for each in read_rows(output)] == ["a"]


def test_rows_are_read_as_they_are_predicted(
    model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most two windows are in memory, whatever the size of the file."""
    numbers = {"read": 0, "written": 0}
    ahead: list[int] = []
    read, write_part = Tables.read, PartFormat.write_part

    def count_reads(self: Tables, start: int = 0) -> Iterator[Any]:
        for record in read(self, start):
            numbers["read"] += 1
            ahead.append(numbers["read"] - numbers["written"])
            yield record

    def count_writes(self: PartFormat, part: Path, rows: Any) -> None:
        write_part(self, part, rows)
        numbers["written"] += 5

    monkeypatch.setattr(Tables, "read", count_reads)
    monkeypatch.setattr(PartFormat, "write_part", count_writes)
    assert main(command(model, source, tmp_path / "out.jsonl")) == 0
    assert max(ahead) <= file_prediction.NUM_WAITING * 5


def start_forked(function: Callable[[], int]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = function()
        finally:
            os._exit(code)
    return pid


@pytest.mark.skipif(sys.platform == "win32", reason="forks and SIGKILL")
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_run_killed_at_random_moments_loses_and_doubles_no_row(
    model: Path, source: Path, expected: dict[str, str], tmp_path: Path, suffix: str
) -> None:
    output, draw = tmp_path / f"out.{suffix}", random.Random(0)
    argv = command(model, source, output, "--window=2")
    kills = 0
    for attempt in range(8):
        pid = start_forked(lambda: main(argv))
        time.sleep(draw.uniform(0, 0.1 * attempt))  # the first kill comes before a fast machine is done
        os.kill(pid, signal.SIGKILL)
        kills += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        if output.exists():
            break
    assert kills
    assert main(argv) == 0 or output.exists()
    check_output(output, expected)
