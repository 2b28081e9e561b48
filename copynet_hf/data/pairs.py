"""Pairs of texts from files (JSON, CSV, Parquet, LCSTS) or from the Hub, with the columns `text` and `summary`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pyarrow as pa
from datasets.info import SupervisedKeysData
from datasets.packaged_modules.parquet.parquet import Parquet

from .features import SEPARATOR, split_features, why_not_features
from .lcsts import LcstsBuilder
from .records import (
    AnyDataset,
    FilePath,
    RecordsBuilder,
    SkippedRecords,
    build_split,
    data_suffix,
    describe_missing_column,
    name_in_errors,
    resolve_file,
)
from .rows import TABLE_SUFFIXES, find_delimiter, number_rows

logger = logging.getLogger(__name__)

# The usual names of the columns, the most likely first; case is ignored.
# fmt: off
TEXT_NAMES = (
    "text", "source", "document", "article", "input", "inputs", "dialogue", "dialog", "src", "content",
    "body", "passage", "sentence", "question", "prompt", "instruction", "query", "lemma",
)
SUMMARY_NAMES = (
    "summary", "target", "highlights", "output", "outputs", "reply", "response", "tgt", "answer",
    "completion", "abstract", "headline", "title", "form",
)
# fmt: on
# Columns that identify a row; never guessed to be a text.
KEY_NAMES = ("id", "idx", "index", "guid", "uid", "key", "split", "human_label")

ROLES = ("text", "summary", "features")
TEXT_SUFFIXES = (".jsonl", ".json", *TABLE_SUFFIXES)
ROLE_TYPES = {
    "text": datasets.Value("string"),
    "summary": datasets.Value("string"),
    "features": datasets.List(datasets.Value("string")),
}
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".txt")


def load_pairs(
    train_file: FilePath | None = None,
    validation_file: FilePath | None = None,
    test_file: FilePath | None = None,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    text_column: str | None = None,
    summary_column: str | None = None,
    *,
    features_column: str | None = None,
    features_separator: str = SEPARATOR,
    column_names: Sequence[str] | None = None,
    delimiter: str | None = None,
    streaming: bool = False,
) -> datasets.DatasetDict | datasets.IterableDatasetDict:
    """Loads pairs from files, or from a dataset on the Hub, with the columns `text` and `summary`.

    A file is JSON lines (or one JSON list), CSV or TSV with a header, Parquet, LCSTS (.txt, pairs with a score of 3 or
    more), or inflections as the SIGMORPHON shared tasks distribute them (.train, .dev, .test, .gold: tab-separated
    columns lemma, form and features, without a header). All but Parquet may be compressed (.gz), and in UTF-16 instead
    of UTF-8 if a byte order mark says so. Rows that cannot be read, or whose text or summary is missing, empty or not
    a string, are skipped and reported in a warning. Other columns are kept, one with the name `text`, `summary` or
    `features` as `original_text`, `original_summary` or `original_features`.

    Args:
        text_column, summary_column: by default guessed, and logged: a column with a usual name (`document`, `article`,
            ...; `target`, `highlights`, ...), else the columns of strings in their order, if no others are left.
        features_column: the column of the features, which become lists of strings in the column `features`. None: the
            sources have no features. See `CopyNetTokenizer`.
        features_separator: what separates the features where the column holds strings rather than lists.
        column_names: the columns of a CSV, TSV or shared task file without a header, in their order.
        delimiter: what separates the fields of CSV and TSV files; None: a tab in TSV files, in CSV files a comma,
            semicolon, tab or vertical bar, as their first lines show (logged).
        streaming: read the rows during iteration instead of caching them.

    Raises:
        ValueError: neither files nor a dataset, both, a column that does not exist, columns that cannot be guessed, or
            `column_names` for a file that names its columns.
        FileNotFoundError: no such file.
        DataFileError: a file without a usable row (when streaming, raised by the first iteration); a ValueError.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    given = {split: path for split, path in files.items() if path is not None}
    if bool(given) == (dataset_name is not None):
        raise ValueError("pass either files or dataset_name")
    choice = ColumnChoice(text_column, summary_column, features_column, features_separator)
    if dataset_name is not None:
        parts = datasets.load_dataset(dataset_name, dataset_config_name, streaming=streaming)
        splits = {split: _select_pairs(part, choice, f"{dataset_name}/{split}") for split, part in parts.items()}
    else:
        splits = {
            split: _load_file(path, split, choice, column_names, delimiter, streaming) for split, path in given.items()
        }
    return datasets.IterableDatasetDict(splits) if streaming else datasets.DatasetDict(splits)


class ColumnChoice(NamedTuple):
    """The columns that were named; None for a text or summary to guess, and for no features."""

    text: str | None = None
    summary: str | None = None
    features: str | None = None
    separator: str = SEPARATOR

    @property
    def guesses(self) -> bool:
        return None in (self.text, self.summary)


def _load_file(
    path: FilePath,
    split: str,
    choice: ColumnChoice,
    column_names: Sequence[str] | None,
    delimiter: str | None,
    streaming: bool,
) -> AnyDataset:
    suffix = data_suffix(path)
    if column_names is not None and suffix not in TABLE_SUFFIXES:
        raise ValueError(f"{path}: column_names are for tables ({', '.join(TABLE_SUFFIXES)}): leave them out")
    if suffix not in SUFFIXES and not Path(path).is_dir():
        raise ValueError(f"{path}: the name must end in one of {', '.join(SUFFIXES)}, with .gz if it is compressed")
    if suffix in TEXT_SUFFIXES:
        names = None if column_names is None else tuple(column_names)
        delimiter = find_delimiter(resolve_file(path), delimiter)
        options = {"choice": tuple(choice), "column_names": names, "delimiter": delimiter}
        data = build_split(PairsBuilder, path, split, streaming=streaming, **options)
        if data.info.supervised_keys is not None:
            _log_guess({"text": data.info.supervised_keys.input, "summary": data.info.supervised_keys.output}, path)
        return data
    builder = Parquet if suffix == ".parquet" else LcstsBuilder
    data = build_split(builder, path, split, streaming=streaming)
    return _select_pairs(data, choice, str(path))


@dataclass
class PairsConfig(datasets.BuilderConfig):
    """The columns of the pairs, the fields of a `ColumnChoice`; and the names of a file without a header."""

    choice: tuple[Any, ...] = ColumnChoice()
    column_names: tuple[str, ...] | None = None
    delimiter: str = ","


class PairsBuilder(RecordsBuilder):
    """Reads JSON lines, JSON, CSV and TSV; malformed lines are skipped and reported."""

    BUILDER_CONFIG_CLASS = PairsConfig
    columns: Columns | None = None

    @property
    def _choice(self) -> ColumnChoice:
        return ColumnChoice(*self.config.choice)

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        if not dl_manager.is_streaming:
            # A first pass finds the types of the other columns: with types inferred from the first rows, `datasets`
            # would fail at a later row of another type.
            ((path,),) = self.config.data_files.values()
            self.columns = Columns(self._read_rows(Path(path)))
            roles = self._choose_columns(self.columns, path)
            names = _choose_new_names(name for name in self.columns.types if name not in roles.values())
            kept = {new: self.columns.feature(old) for old, new in names.items()}
            self.info.features = datasets.Features({role: ROLE_TYPES[role] for role in roles} | kept)
            if self._choice.guesses:  # kept in the cache
                self.info.supervised_keys = SupervisedKeysData(roles["text"], roles["summary"])
        return super()._split_generators(dl_manager)

    def _read_rows(self, path: Path) -> Iterator[dict[str, Any]]:
        rows = number_rows(path, self.config.column_names, self.config.delimiter)
        return (row for _, row in rows if isinstance(row, dict))

    def _choose_columns(self, columns: Columns, path: FilePath) -> dict[str, str]:
        """The column of each role."""
        if not columns.types:  # no row could be read: `_generate_examples` reports it
            return {"text": "text", "summary": "summary"}
        return choose_columns(list(columns.types), columns.strings, self._choice, str(path))

    def records(self, path: Path, skipped: SkippedRecords) -> Iterator[dict[str, Any]]:
        """The rows with a usable pair, `text` and `summary` first."""
        columns = self.columns
        if columns is None:  # streaming: without a pass over the whole file, from its first rows
            columns = Columns(islice(self._read_rows(path), 1000))
        roles = self._choose_columns(columns, path)
        if self.columns is None and self._choice.guesses and self.info.supervised_keys is None:
            self.info.supervised_keys = SupervisedKeysData(roles["text"], roles["summary"])  # each pass comes here
            _log_guess(roles, path)
        json_columns = {name for name, arrow_type in columns.types.items() if arrow_type is None}
        new_names = _choose_new_names(name for name in columns.types if name not in roles.values())
        for line, row in number_rows(path, self.config.column_names, self.config.delimiter):
            if isinstance(row, str):
                skipped.add(line, row)
                continue
            pair = {role: row.get(column) for role, column in roles.items()}
            if reason := _explain_unusable_pair(pair, roles):
                skipped.add(line, reason)
                continue
            others = {new: row.get(old) for old, new in new_names.items()}
            for name in json_columns & new_names.keys():
                if row.get(name) is not None:
                    others[new_names[name]] = json.dumps(row[name], ensure_ascii=False)
            yield _split_pair(pair, self._choice.separator) | others


class Columns:
    """The columns of some rows.

    Attributes:
        types: the Arrow type of each column, None for a mix of types, which is stored as JSON text.
        strings: the columns that hold at least one string.
    """

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
        arrow_type = self.types[name]
        if arrow_type is None:
            return datasets.Value("string")
        return datasets.Features.from_arrow_schema(pa.schema([(name, arrow_type)]))[name]


def _common_type(previous: pa.DataType | None, values: Sequence[Any]) -> pa.DataType | None:
    """The type that holds the previous values and these, or None."""
    if previous is None:
        return None
    try:
        common = unify_types(previous, pa.array(values).type)
    except (pa.ArrowException, TypeError, OverflowError):
        return None
    # The keys of JSON objects can differ between rows; Arrow writes lists of at most 64 levels.
    return None if "struct" in str(common) or str(common).count("list<") > 32 else common


def unify_types(first: pa.DataType | None, second: pa.DataType | None) -> pa.DataType | None:
    """The type that holds the values of both, or None."""
    if first is None or second is None:
        return None
    try:
        schemas = [pa.schema([("", arrow_type)]) for arrow_type in (first, second)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowException, TypeError):
        return None


def choose_columns(columns: Sequence[str], strings: Sequence[str], choice: ColumnChoice, where: str) -> dict[str, str]:
    """The columns of `text` and `summary`, as given or guessed, and of `features`, if given.

    Args:
        columns: all columns.
        strings: the columns that hold strings.
        where: the file or dataset, for messages.

    Raises:
        ValueError: a given column does not exist or has two roles, or no column or too many are left to guess.
    """
    given = {role: column for role in ROLES if (column := getattr(choice, role)) is not None}
    for role, column in given.items():
        if column not in columns:
            raise ValueError(f"{where}: {describe_missing_column(column, columns)}")
        for other in given:
            if other != role and given[other] == column:
                raise ValueError(f"{where}: column {column!r} cannot be both {role} and {other}")
    candidates = [name for name in strings if name not in given.values()]
    text = choice.text or find_usual_name(candidates, TEXT_NAMES)
    summary = choice.summary or find_usual_name([name for name in candidates if name != text], SUMMARY_NAMES)
    roles: dict[str, str | None] = {"text": text, "summary": summary}
    missing = [role for role, name in roles.items() if name is None]
    rest = [name for name in candidates if name not in (text, summary) and name.lower() not in KEY_NAMES]
    if len(rest) > len(missing) > 0:
        raise ValueError(
            f"{where}: the {' and '.join(missing)} could be any of the columns {', '.join(map(repr, rest))}: name the "
            "right one "
            + " and ".join(f"with {role}_column= (--{role}_column on the command line)" for role in missing)
            + "; if the file has no header, name its columns with column_names= (--column_names)"
        )
    for role, name in zip(missing, rest, strict=False):
        roles[role] = name
    for role, column in roles.items():
        if column is None:
            raise ValueError(
                f"{where}: no column of strings is left for the {role}; the columns are "
                f"{', '.join(map(repr, columns))}: name one with {role}_column= (--{role}_column on the command line)"
            )
    return {role: column for role, column in roles.items() if column is not None} | given


def _log_guess(roles: dict[str, str], where: FilePath) -> None:
    """Logs guessed columns, unless they are named `text` and `summary`."""
    if any(role != name for role, name in roles.items()):
        logger.info(
            "%s: text is column %r, summary is column %r, as guessed from their names and order "
            "(--text_column and --summary_column select others)",
            where,
            roles["text"],
            roles["summary"],
        )


def find_usual_name(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column with the first of the names that is there, in any case."""
    by_name = {column.lower(): column for column in columns}
    return next((by_name[name] for name in names if name in by_name), None)


def _choose_new_names(columns: Iterable[str]) -> dict[str, str]:
    """The new name of each column without a role: `original_text` for `text`, and likewise for the other roles."""
    names = {name: name for name in columns}
    for name in names.keys() & ROLES:
        while names[name] in ROLES or names[name] in names:
            names[name] = f"original_{names[name]}"
    return names


def _split_pair(pair: dict[str, Any], separator: str) -> dict[str, Any]:
    """A usable pair with its features, if there are any, as a list."""
    return pair | ({"features": split_features(pair["features"], separator)} if "features" in pair else {})


def _explain_unusable_pair(pair: dict[str, Any], roles: dict[str, str]) -> str | None:
    """The reason why a pair cannot be used, or None."""
    for role, value in pair.items():
        if role == "features":
            if reason := why_not_features(value):
                return f"{roles[role]!r} is {reason}"
        elif value is None:
            return f"no {roles[role]!r}"
        elif not isinstance(value, str):
            return f"{roles[role]!r} is a {type(value).__name__}, not a string"
        elif not value.strip():
            return f"empty {roles[role]!r}"
    return None


def _select_pairs(data: AnyDataset, choice: ColumnChoice, where: str) -> AnyDataset:
    """A loaded dataset with the columns `text` and `summary` first, without its unusable rows."""
    if data.features is None:
        first: dict[str, Any] = next(iter(data), {})
        columns, strings = list(first), [name for name, value in first.items() if isinstance(value, str)]
    else:
        columns = list(data.features)
        dtypes = {name: str(getattr(feature, "dtype", "")) for name, feature in data.features.items()}
        strings = [name for name, dtype in dtypes.items() if dtype in ("string", "large_string", "string_view")]
    roles = choose_columns(columns, strings, choice, where)
    if choice.guesses:
        _log_guess(roles, where)
    new_names = _choose_new_names(name for name in columns if name not in roles.values())
    new_names |= {column: role for role, column in roles.items()}
    changed = {old: new for old, new in new_names.items() if old != new}
    if changed:  # in two steps: a stream refuses a new name that is the old one of another column
        data = data.rename_columns({old: f"new {new}" for old, new in changed.items()})
        data = data.rename_columns({f"new {new}": new for new in changed.values()})
    data = data.select_columns([*roles, *(new for new in new_names.values() if new not in roles)])
    if isinstance(data, datasets.IterableDataset):
        return _drop_unusable_from_stream(data, roles, choice.separator, where)
    data = _drop_unusable(data, roles, where)
    if "features" not in roles:
        return data
    types = datasets.Features({**data.features, "features": ROLE_TYPES["features"]})
    return data.map(_split_pair, fn_kwargs={"separator": choice.separator}, features=types)


def _drop_unusable(data: datasets.Dataset, roles: dict[str, str], where: str) -> datasets.Dataset:
    skipped = SkippedRecords(Path(where))
    usable: list[int] = []
    for index, pair in enumerate(data.select_columns(list(roles))):
        reason = _explain_unusable_pair(pair, roles)
        if reason:
            skipped.add(index + 1, reason)
        else:
            usable.append(index)
    if not usable:
        raise skipped.empty_error()
    if not skipped.count:
        return data
    logger.warning("%s", skipped)
    data = data.select(usable)
    data.info.description = str(skipped)
    return data


def _drop_unusable_from_stream(
    data: datasets.IterableDataset, roles: dict[str, str], separator: str, where: str
) -> datasets.IterableDataset:
    """A stream without its unusable rows, which are reported at the end of each shard (each file)."""
    num_shards = data.num_shards
    arguments = {  # `datasets` distributes the elements of lists over the workers of a DataLoader
        "shards": [data.shard(num_shards, index) for index in range(num_shards)],
        "names": [f"{where} (shard {i} of {num_shards})" if num_shards > 1 else where for i in range(num_shards)],
        "roles": roles,
        "separator": separator,
        "may_be_empty": num_shards > 1,
    }
    types = data.features
    if types is not None and "features" in roles:
        types = datasets.Features({**types, "features": ROLE_TYPES["features"]})
    return datasets.IterableDataset.from_generator(_usable_rows, types, arguments, data.split or "train")


def _usable_rows(
    shards: list[datasets.IterableDataset],
    names: list[str],
    roles: dict[str, str],
    separator: str,
    may_be_empty: bool,
) -> Iterator[dict[str, Any]]:
    for shard, name in zip(shards, names, strict=True):
        skipped = SkippedRecords(Path(name))
        num_usable = 0
        for number, row in enumerate(_iterate_rows(shard, name), 1):
            reason = _explain_unusable_pair({role: row[role] for role in roles}, roles)
            if reason:
                skipped.add(number, reason)
            else:
                num_usable += 1
                yield _split_pair(row, separator) if "features" in roles else row
        if not num_usable and not may_be_empty:
            raise skipped.empty_error()
        if skipped.count:
            warn_once(str(skipped))


@cache
def warn_once(message: str) -> None:
    """Logs once what is found repeatedly, as in each pass through a stream."""
    logger.warning("%s", message)


def _iterate_rows(shard: datasets.IterableDataset, name: str) -> Iterator[dict[str, Any]]:
    """All rows of a shard. In a worker, `for row in shard` would split the shard among the workers again."""
    with name_in_errors(name):
        for batch in shard.iter(100):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
