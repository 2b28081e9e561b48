"""Mutated input files and damaged model folders: an error of a documented type or documented skipping, in time.

python tests/soak/mutated_files.py --rounds 5000 --folders 500
python tests/soak/mutated_files.py --only 4711            # one file again, with its traceback
python tests/soak/mutated_files.py --only_folder 17
"""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import random
import re
import resource
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness import Check, Crash, parse_arguments, run_tasks, temporary_folder

import datasets  # isort: skip - after harness, which sets the cache
import pyarrow as pa
import pyarrow.parquet
import torch
from helpers import save_parts, tiny_model, tiny_tokenizer

from copynet_hf import load_pairs
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.saved.loading import load_model

FILES = """JSON lines, CSV, TSV, Parquet and LCSTS files are mutated at one to four places: bits, bytes, chunks,
truncation, quotes, NULs, other encodings, deep nesting, long numbers, parts of other formats. `load_pairs` must
return pairs of non-empty texts, or raise ValueError (DataFileError among them) or OSError, within 30 seconds. Of
JSON lines, the rows that were loaded and those reported as skipped must be all; of CSV and TSV, no row may vanish
inside a field of another without a warning."""
FOLDERS = """One to three of the JSON and safetensors files of a saved model are damaged: cut, bits flipped, emptied,
deleted, replaced by text, a Git LFS pointer, null or a list, or one field of the JSON set to another type or size.
`load_model` and a search must give outputs, or raise ValueError or OSError, within 60 seconds and 12 GiB of addresses.
(Weights with flipped bits load.)"""
ROWS, LIMIT_BYTES = 24, 12 * 2**30
LFS_POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


# ---- intact files


def sample_rows() -> list[dict[str, Any]]:
    draw = random.Random(0)
    words = ["call", "Anna", "at", "noon", "请问", "路", 'say "hi"', "naïve", "a,b", "x\\y", "10", "über"]
    return [
        {
            "text": f"{row} " + " ".join(draw.choices(words, k=draw.randint(2, 12))),
            "summary": " ".join(draw.choices(words, k=3)),
            "score": draw.random(),
        }
        for row in range(ROWS)
    ]


def write_separated(rows: Sequence[dict[str, Any]], delimiter: str) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def build_intact_files() -> dict[str, bytes]:
    """The bytes of one intact file for each suffix."""
    rows = sample_rows()
    parquet = io.BytesIO()
    pa.parquet.write_table(pa.Table.from_pylist(rows), parquet)
    lcsts = "".join(
        f"<doc id={number}>\n    <human_label>{1 + number % 5}</human_label>\n"
        f"    <summary>\n        {row['summary']}\n    </summary>\n"
        f"    <short_text>\n        {row['text']}\n    </short_text>\n</doc>\n"
        for number, row in enumerate(rows)
    )
    return {
        ".jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(),
        ".csv": write_separated(rows, ","),
        ".tsv": write_separated(rows, "\t"),
        ".parquet": parquet.getvalue(),
        ".txt": lcsts.encode(),
    }


INTACT = build_intact_files()
PIECES = (
    b'"', b"'", b"\\", b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\n\n", b"\t", b",",
    b"{", b"}", b"[", b"]", b"null", b"NaN", b"-Infinity", b"1" * 5000, b"[" * 20000, b'{"a":' * 5000, b'"\\ud800"',
    b"\x1b]0;x\x07", b"</doc>", b"<doc id=1>", b"<summary>", b"<human_label>9</human_label>", b"\xed\xa0\x80",
    "\u2028".encode(), b"text", b"x" * 200_000, b'""', b"PAR1", b"\x1f\x8b\x08\x00",
)  # fmt: skip


def mutate(data: bytes, draw: random.Random) -> bytes:
    """The data with one mutation."""
    place, length = draw.randrange(len(data) + 1), draw.choice([1, 1, 3, 20, 300])
    changes: list[Callable[[], bytes]] = [
        lambda: data[:place] + draw.choice(PIECES) + data[place:],
        lambda: data[:place] + draw.choice(PIECES) + data[place:],
        lambda: data[:place] + data[place + length :],
        lambda: data[:place],
        lambda: data[:place] + draw.randbytes(length) + data[place + length :],
        lambda: data[:place] + data[place : place + length] * draw.choice([2, 50]) + data[place + length :],
        lambda: bytes(byte ^ (1 << draw.randrange(8)) if draw.random() < 0.003 else byte for byte in data),
        lambda: data[:place] + draw.choice(list(INTACT.values()))[: draw.choice([10, 100, 2000])] + data[place:],
        lambda: data.decode("utf-8", "replace").encode(draw.choice(["utf-16", "gb18030", "utf-8-sig", "utf-16-le"])),
        lambda: data.decode("utf-8", "replace").encode("latin-1", "ignore"),
        lambda: data.replace(b"\n", draw.choice([b"\r\n", b"\r", b"\n\n", b""])),
        lambda: data.replace(*draw.choice([(b"text", b"texts"), (b"summary", b"text"), (b'"', b""), (b"<", b"")])),
    ]
    return draw.choice(changes)()


# ---- one file


class Warnings(logging.Handler):
    """Collects the package's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def check_file(folder: Path, seed: int, number: int) -> tuple[str, str]:
    """Returns the outcome, "loaded", "skipped some" or "error", and what is wrong with it."""
    draw = random.Random(f"{seed}-{number}")
    suffix = draw.choice(list(INTACT))
    data = INTACT[suffix]
    for _ in range(draw.choice([1, 1, 2, 4])):
        data = mutate(data, draw)
    file = folder / f"file{number}{suffix}"
    file.write_bytes(data)
    datasets.config.HF_DATASETS_CACHE = cache = folder / f"cache{os.getpid()}"
    warnings = Warnings()
    logging.getLogger("copynet_hf").addHandler(warnings)
    try:
        pairs = load_pairs(file, streaming=draw.random() < 0.3)["train"]
        rows = list(pairs)
    except (ValueError, OSError) as error:
        return "error", "" if str(error).strip() else f"{suffix}: {type(error).__name__} without a message"
    finally:
        logging.getLogger("copynet_hf").removeHandler(warnings)
        file.unlink()
        shutil.rmtree(cache, ignore_errors=True)
    return "skipped some" if warnings.messages else "loaded", find_problem(rows, suffix, data, warnings.messages)


def find_problem(rows: Sequence[dict[str, Any]], suffix: str, data: bytes, warnings: Sequence[str]) -> str:
    """What is wrong with the pairs that were loaded, or an empty text."""
    for row in rows:
        if not all(isinstance(row[name], str) and row[name].strip() for name in ("text", "summary")):
            return f"{suffix}: a pair that is no pair of texts was loaded: {row!r}"
    if suffix == ".jsonl":
        skipped = sum(int(count) for message in warnings for count in re.findall(r"skipped (\d+) malformed", message))
        is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = data.decode("utf-16" if is_utf16 else "latin-1", errors="replace")
        lines = sum(bool(line.strip()) for line in text.split("\n"))
        if len(rows) + skipped != lines:
            return f"{suffix}: of {lines} lines, {len(rows)} were loaded and {skipped} reported as skipped"
    if suffix in (".csv", ".tsv") and not warnings:
        loaded = Counter((row["text"], row["summary"]) for row in rows)
        vanished = find_untouched_pairs(suffix, data) - loaded
        if vanished:
            return f"{suffix}: {vanished.total()} rows that no mutation touched vanished without a warning"
    return ""


def find_untouched_pairs(suffix: str, data: bytes) -> Counter[tuple[str, str]]:
    """The pairs of the lines that are still as in the intact file, if the header is."""
    header, *lines = INTACT[suffix].decode().splitlines()
    found = Counter(data.decode("utf-8", "replace").split("\n"))
    if not data.startswith(f"{header}\n".encode()):
        return Counter()
    pairs = {line: (row["text"], row["summary"]) for line, row in zip(lines, sample_rows(), strict=True)}
    return Counter({pair: found[line] for line, pair in pairs.items()})


# ---- one folder


def damage_file(file: Path, draw: random.Random) -> None:
    data = file.read_bytes()
    place = draw.randrange(len(data) + 1)
    changes: list[Callable[[], bytes | None]] = [
        lambda: data[:place],
        lambda: bytes(byte ^ (1 << draw.randrange(8)) if draw.random() < 0.001 else byte for byte in data),
        lambda: b"",
        lambda: None,
        lambda: b"<html>not found</html>",
        lambda: LFS_POINTER.encode(),
        lambda: draw.choice([b"null", b"[]", b"[1, 2]", b"3", b'"x"', b"{}"]),
        lambda: data[:place] + draw.choice(PIECES) + data[place:],
        lambda: draw.randbytes(len(data)),
    ]
    if file.suffix == ".json":
        changes += [lambda: change_field(data, draw)] * 6
    changed = draw.choice(changes)()
    if changed is None:
        file.unlink()
    else:
        file.write_bytes(changed)


def change_field(data: bytes, draw: random.Random) -> bytes:
    """The JSON with one field of another type or size, or without it."""
    try:
        fields = json.loads(data)
        name = draw.choice(sorted(fields))
    except (ValueError, IndexError, TypeError, RecursionError):
        return data
    values = [None, -1, 0, 1, 10**6, 10**12, 0.5, "", "x", "../../x", [], [None], {}, {"a": 1}, True, False, 1e300]
    fields[name] = draw.choice(values)
    if draw.random() < 0.2:
        del fields[name]
    return json.dumps(fields).encode()


def check_folder(folder: Path, intact: Path, seed: int, number: int) -> tuple[str, str]:
    """Returns the outcome, "works" or "error", and what is wrong with it."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    torch.set_num_threads(1)
    draw = random.Random(f"{seed}-folder-{number}")
    damaged = folder / f"model{number}"
    shutil.copytree(intact, damaged)
    names = sorted(path.name for path in damaged.iterdir() if path.suffix in (".json", ".safetensors"))
    chosen = draw.sample(names, draw.choice([1, 1, 2, 3]))
    for name in chosen:
        damage_file(damaged / name, draw)
    try:
        model, tokenizer = load_model(str(damaged), "cpu")
        list(predict_in_batches(model, tokenizer, ["a b X"], max_new_tokens=4))
    except (ValueError, OSError) as error:
        return "error", "" if str(error).strip() else f"{type(error).__name__} without a message, {chosen}"
    finally:
        shutil.rmtree(damaged)
    return "works", ""


# ---- all of them


def describe_errors(check: Callable[[int], tuple[str, str]], number: int) -> tuple[str, str]:
    """As `check`; any other exception is wrong, and is described with the package's last function in its traceback."""
    try:
        return check(number)
    except BaseException as error:  # SystemExit and KeyboardInterrupt as well
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "copynet_hf" in frame.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "elsewhere"
        message = " ".join(str(error).split())[:160]
        return "other", f"{type(error).__name__} from {where}: {message}"


def run_check(
    check: Check, arguments: Any, task: Callable[[int], tuple[str, str]], rounds: int, time_limit: float, option: str
) -> None:
    outcomes: Counter[str] = Counter()
    described = partial(describe_errors, task)
    for number, result in run_tasks(described, range(rounds), arguments.processes, time_limit, arguments.minutes):
        outcome, problem = ("other", result.reason) if isinstance(result, Crash) else result
        outcomes[outcome] += 1
        if problem:
            kind = problem.partition(": ")[0] if outcome == "other" else re.sub(r"\d+", "N", problem)
            check.fail(f"{option} {number}: {problem}", kind)
        else:
            check.passed()
        check.figure = ", ".join(f"{name}: {count:,}" for name, count in sorted(outcomes.items()))


def main(argv: Sequence[str] | None = None) -> int:
    number = {"type": int, "default": None}
    arguments = parse_arguments(
        "mutated_files.py",
        __doc__,
        5_000,
        argv,
        folders={"type": int, "default": 500},
        processes={"type": int, "default": 2},
        only=number,
        only_folder=number,
    )
    datasets.disable_progress_bars()
    with temporary_folder() as folder:
        intact = folder / "intact"
        save_parts(intact, tiny_model(seed=1), tiny_tokenizer())
        check_one_file = partial(check_file, folder, arguments.seed)
        check_one_folder = partial(check_folder, folder, intact, arguments.seed)
        if arguments.only is not None or arguments.only_folder is not None:
            repeat = check_one_file if arguments.only is not None else check_one_folder
            print(repeat(arguments.only if arguments.only is not None else arguments.only_folder))
            return 0
        failed = 0
        with Check("mutated files", FILES, arguments) as check:
            run_check(check, arguments, check_one_file, arguments.rounds, 30, "--only")
            failed += check.failed
        with Check("damaged model folders", FOLDERS, arguments) as check:
            run_check(check, arguments, check_one_folder, arguments.folders, 60, "--only_folder")
            failed += check.failed
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
