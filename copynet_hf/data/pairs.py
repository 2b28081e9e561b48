"""Pairs of texts from your own files (JSON lines, CSV, Parquet, raw LCSTS) or from the Hub.

Whatever the columns were called, they come out as `text` and `summary`; the other columns are kept.
"""

from __future__ import annotations

import codecs
import csv
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets.packaged_modules.parquet.parquet import Parquet

from .lcsts import Lcsts
from .records import DataFileError, FilePath, RecordsBuilder, Skipped, build_split, is_unicode

logger = logging.getLogger(__name__)

# Column names that are tried in this order, in any case of letters.
# fmt: off
TEXT_NAMES = (
    "text", "source", "document", "article", "input", "inputs", "dialogue", "dialog", "src", "content",
    "body", "passage", "sentence", "question", "prompt", "instruction", "query",
)
SUMMARY_NAMES = (
    "summary", "target", "highlights", "output", "outputs", "reply", "response", "tgt", "answer",
    "completion", "abstract", "headline", "title",
)
# fmt: on
# Columns that name a row rather than say something; never taken for a text by guessing.
KEY_NAMES = ("id", "idx", "index", "guid", "uid", "key", "split", "human_label")

LINES = (".jsonl", ".json", ".csv", ".tsv")
SUFFIXES = (*LINES, ".parquet", ".txt")

Numbered = tuple[int, Any]


def load_pairs(
    train_file: FilePath | None = None,
    validation_file: FilePath | None = None,
    test_file: FilePath | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    text_column: str | None = None,
    summary_column: str | None = None,
    *,
    streaming: bool = False,
) -> datasets.DatasetDict | datasets.IterableDatasetDict:
    """Read pairs from files, or from a data set on the Hub, into the columns `text` and `summary`.

    A file is JSON lines (or one JSON list), CSV or TSV with a header, Parquet, or raw LCSTS (.txt, scores of
    3 and more). A column that is not named is guessed: a usual name (`document`, `article`, `dialogue`, ...;
    `target`, `highlights`, ...), else the first column of strings that is left. Rows that cannot be read, or
    whose text or summary is missing, empty or not a string, are skipped and reported in a warning. A column
    whose name is taken over is kept as `original_text` or `original_summary`.

    Raises FileNotFoundError, DataFileError (a ValueError) for a file without a usable row, and ValueError
    for a column that is not there.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    given = {split: path for split, path in files.items() if path is not None}
    if bool(given) == (dataset_name is not None):
        raise ValueError("give either files or dataset_name")
    columns = (text_column, summary_column)
    if dataset_name is not None:
        loaded = datasets.load_dataset(dataset_name, dataset_config_name, streaming=streaming)
        splits = {name: _as_pairs(part, *columns, f"{dataset_name}/{name}") for name, part in loaded.items()}
    else:
        splits = {split: _load_file(path, split, *columns, streaming) for split, path in given.items()}
    return datasets.IterableDatasetDict(splits) if streaming else datasets.DatasetDict(splits)


def _load_file(
    path: FilePath, split: str, text_column: str | None, summary_column: str | None, streaming: bool
) -> datasets.Dataset | datasets.IterableDataset:
    suffix = Path(path).suffix.lower()
    if suffix in LINES:
        options = {"text_column": text_column, "summary_column": summary_column}
        return build_split(Pairs, path, split, streaming=streaming, **options)
    if suffix == ".parquet":
        table = build_split(Parquet, path, split, streaming=streaming)
        return _as_pairs(table, text_column, summary_column, str(path))
    if suffix == ".txt":
        pairs = build_split(Lcsts, path, split, streaming=streaming)
        return _as_pairs(pairs, text_column, summary_column, str(path))
    raise ValueError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}")


@dataclass
class PairsConfig(datasets.BuilderConfig):
    """The columns to take; None means guess."""

    text_column: str | None = None
    summary_column: str | None = None


class Pairs(RecordsBuilder):
    """JSON lines and CSV that survive a bad line, which the readers of `datasets` do not."""

    BUILDER_CONFIG_CLASS = PairsConfig
    survey: Survey | None = None

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        if not dl_manager.is_streaming:
            # A first reading fixes the types of the kept columns: with types guessed from the first rows, a
            # later row that differs would end the loading.
            ((path,),) = self.config.data_files.values()
            self.survey = Survey(row for _, row in read_rows(Path(path), Skipped(Path(path))))
            roles = self._roles(self.survey, path)
            others = [name for name in self.survey.types if name not in roles.values()]
            kept = _free_names({name: self.survey.feature(name) for name in others}, roles)
            self.info.features = datasets.Features({role: datasets.Value("string") for role in roles} | kept)
        return super()._split_generators(dl_manager)

    def _roles(self, survey: Survey, path: FilePath) -> dict[str, str]:
        """The columns to take; no choice at all when no row could be read, which is reported later."""
        if not survey.types:
            return {"text": "text", "summary": "summary"}
        config = self.config
        return choose_columns(list(survey.types), survey.strings, config.text_column, config.summary_column, str(path))

    def records(self, path: Path, skipped: Skipped) -> Iterator[dict[str, Any]]:
        """The rows with a usable pair, `text` and `summary` first."""
        # When streaming, the first rows have to do for the choice of the columns.
        survey = self.survey or Survey(row for _, row in islice(read_rows(path, Skipped(path)), 1000))
        roles = self._roles(survey, path)
        as_json = {name for name, kind in survey.types.items() if kind is None}
        for line, row in read_rows(path, skipped):
            pair = {role: row.get(column) for role, column in roles.items()}
            reason = _unusable(pair, roles)
            if reason:
                skipped.add(line, reason)
                continue
            others = {name: row.get(name) for name in survey.types if name not in roles.values()}
            for name in as_json & others.keys():
                if others[name] is not None:
                    others[name] = json.dumps(others[name], ensure_ascii=False)
            yield pair | _free_names(others, roles)


class Survey:
    """The columns of some rows: `types` (None for values that only JSON text can hold together), and
    `strings`, those in which a string was seen."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self.types: dict[str, pa.DataType | None] = {}
        self.strings: list[str] = []
        rows = iter(rows)
        while batch := list(islice(rows, 1000)):
            for name in dict.fromkeys(name for row in batch for name in row):
                values = [row.get(name) for row in batch]
                self.types[name] = _common_type(self.types.get(name, pa.null()), values)
                if name not in self.strings and any(isinstance(value, str) for value in values):
                    self.strings.append(name)

    def feature(self, name: str) -> Any:
        """The `datasets` feature of a column."""
        kind = self.types[name]
        if kind is None:
            return datasets.Value("string")
        return datasets.Features.from_arrow_schema(pa.schema([(name, kind)]))[name]


def _common_type(seen: pa.DataType | None, values: Sequence[Any]) -> pa.DataType | None:
    if seen is None:
        return None
    try:
        schemas = [pa.schema([("", kind)]) for kind in (seen, pa.array(values).type)]
        common = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowException, TypeError, OverflowError):
        return None
    # The fields of an object may differ from row to row.
    return None if "struct" in str(common) else common


def read_rows(path: Path, skipped: Skipped) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and row of every readable row of a JSON lines, JSON or CSV file."""
    for line, row in _csv_rows(path) if path.suffix.lower() in (".csv", ".tsv") else _json_rows(path):
        if isinstance(row, dict):
            yield line, row
        else:
            skipped.add(line, str(row))


def _json_rows(path: Path) -> Iterator[Numbered]:
    """Each line's object, or the reason why there is none; a file that holds one list gives its elements."""
    with path.open("rb") as file:
        start = file.read(1024).lstrip(codecs.BOM_UTF8 + b" \t\r\n")
        file.seek(0)
        if path.suffix.lower() == ".json" and start.startswith(b"["):
            try:
                elements = json.loads(file.read().decode("utf-8-sig"))
            except ValueError as error:
                raise DataFileError(f"{path}: not valid JSON ({error})") from None
            yield from ((number, _checked(element)) for number, element in enumerate(elements, 1))
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _parse_line(line)


def _parse_line(line: bytes) -> dict[str, Any] | str:
    try:
        return _checked(json.loads(line.decode("utf-8-sig")))
    except UnicodeDecodeError:
        return "not UTF-8"
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg})"
    except RecursionError:
        return "nested too deeply"


def _checked(row: Any) -> dict[str, Any] | str:
    if not isinstance(row, dict):
        return f"a {type(row).__name__} where an object should stand"
    # An escape such as \ud800 is valid JSON, yet no text that could be stored.
    return row if is_unicode(json.dumps(row, ensure_ascii=False)) else "not valid Unicode"


def _csv_rows(path: Path) -> Iterator[Numbered]:
    """Each row by the header's names (all values strings), or the reason why there is none."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise DataFileError(f"{path}: the header names a column twice: {', '.join(header)}")
        while True:
            line = reader.line_num + 1
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, f"not valid CSV ({error})"
                continue
            if len(values) == len(header) and all(map(is_unicode, values)):
                yield line, dict(zip(header, values, strict=True))
            elif len(values) == len(header):
                yield line, "not UTF-8"
            elif values:
                yield line, f"{len(values)} fields, the header has {len(header)}"


def choose_columns(
    columns: Sequence[str],
    strings: Sequence[str],
    text_column: str | None,
    summary_column: str | None,
    where: str,
) -> dict[str, str]:
    """Which of `columns` are the text and the summary; `strings` are those that hold strings.

    Raises ValueError naming a column that is not there, or the columns when two of them cannot be guessed.
    """
    for wanted in (text_column, summary_column):
        if wanted is not None and wanted not in columns:
            raise ValueError(f"{where}: no column {wanted!r}; the columns are {', '.join(columns)}")
    if text_column is not None and text_column == summary_column:
        raise ValueError(f"{where}: column {text_column!r} cannot be both text and summary")
    free = [name for name in strings if name not in (text_column, summary_column)]
    text = text_column or _known(free, TEXT_NAMES)
    summary = summary_column or _known([name for name in free if name != text], SUMMARY_NAMES)
    rest = iter(name for name in free if name not in (text, summary) and name.lower() not in KEY_NAMES)
    roles = {"text": text or next(rest, None), "summary": summary or next(rest, None)}
    for role, name in roles.items():
        if name is None:
            raise ValueError(
                f"{where}: no column of strings is left for the {role}; the columns are {', '.join(columns)}: "
                f"name the right one with {role}_column= (--{role}_column on the command line)"
            )
    return {role: name for role, name in roles.items() if name is not None}


def _known(columns: Sequence[str], names: Sequence[str]) -> str | None:
    by_name = {column.lower(): column for column in columns}
    return next((by_name[name] for name in names if name in by_name), None)


def _free_names(others: dict[str, Any], roles: dict[str, str]) -> dict[str, Any]:
    """The kept columns, those called like one of ours under another name."""
    return {f"original_{name}" if name in roles else name: value for name, value in others.items()}


def _unusable(pair: dict[str, Any], roles: dict[str, str]) -> str | None:
    """Why a row has no usable pair, or None."""
    for role, value in pair.items():
        if value is None:
            return f"no {roles[role]!r}"
        if not isinstance(value, str):
            return f"{roles[role]!r} is a {type(value).__name__}, not a string"
        if not value.strip():
            return f"empty {roles[role]!r}"
    return None


def _as_pairs(
    data: datasets.Dataset | datasets.IterableDataset,
    text_column: str | None,
    summary_column: str | None,
    where: str,
) -> datasets.Dataset | datasets.IterableDataset:
    """A loaded data set with our two columns, without the rows that lack one of them."""
    if data.features is None:
        first: dict[str, Any] = next(iter(data), {})
        columns, strings = list(first), [name for name, value in first.items() if isinstance(value, str)]
    else:
        columns = list(data.features)
        kinds = {name: str(getattr(kind, "dtype", "")) for name, kind in data.features.items()}
        strings = [name for name, kind in kinds.items() if kind in ("string", "large_string")]
    roles = choose_columns(columns, strings, text_column, summary_column, where)
    renamed = dict(zip(columns, _free_names(dict.fromkeys(columns), roles), strict=True))
    renamed |= {column: role for role, column in roles.items()}
    changed = {old: new for old, new in renamed.items() if old != new}
    data = data.rename_columns(changed) if changed else data
    # The pair stands first, as it does when we read the file ourselves.
    data = data.select_columns(["text", "summary", *(new for new in renamed.values() if new not in roles)])
    return _drop_unusable(data, roles, where)


def _drop_unusable(
    data: datasets.Dataset | datasets.IterableDataset, roles: dict[str, str], where: str
) -> datasets.Dataset | datasets.IterableDataset:
    columns = ["text", "summary"]
    if isinstance(data, datasets.IterableDataset):
        return _checked_stream(data, roles, where)
    skipped = Skipped(Path(where))
    good: list[int] = []
    for row, pair in enumerate(data.select_columns(columns)):
        problem = _unusable(pair, roles)
        if problem:
            skipped.add(row + 1, problem)
        else:
            good.append(row)
    if not good:
        raise skipped.nothing_left()
    if not skipped.count:
        return data
    logger.warning("%s", skipped)
    data = data.select(good)
    data.info.description = str(skipped)
    return data


def _checked_stream(data: datasets.IterableDataset, roles: dict[str, str], where: str) -> datasets.IterableDataset:
    """A stream without its unusable rows, which are reported at the end of each shard: of each file, that is."""
    count = data.num_shards
    # Lists, so that `datasets` shares the shards out among the workers of a loader.
    asked = {
        "shards": [data.shard(count, index) for index in range(count)],
        "names": [f"{where} (shard {index} of {count})" if count > 1 else where for index in range(count)],
        "roles": roles,
        "may_be_empty": count > 1,
    }
    return datasets.IterableDataset.from_generator(_usable_rows, data.features, asked, data.split or "train")


def _usable_rows(
    shards: list[datasets.IterableDataset], names: list[str], roles: dict[str, str], may_be_empty: bool
) -> Iterator[dict[str, Any]]:
    for shard, name in zip(shards, names, strict=True):
        skipped = Skipped(Path(name))
        found = 0
        for number, row in enumerate(_rows_of(shard), 1):
            problem = _unusable({role: row[role] for role in ("text", "summary")}, roles)
            if problem:
                skipped.add(number, problem)
            else:
                found += 1
                yield row
        if not found and not may_be_empty:
            raise skipped.nothing_left()
        if skipped.count:
            logger.warning("%s", skipped)


def _rows_of(shard: datasets.IterableDataset) -> Iterator[dict[str, Any]]:
    """All rows, in a worker as well: there `for row in shard` would share the shard out once more."""
    for batch in shard.iter(100):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))
