"""Pairs of texts from files (JSON, CSV, Parquet, LCSTS) or from the Hub, with the columns `text` and `summary`."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import datasets
import pyarrow as pa
from datasets.data_files import DataFilesDict, DataFilesList
from datasets.exceptions import DatasetGenerationError
from datasets.info import SupervisedKeysData

from ..model.vocabularies import FEATURE_SEPARATOR
from .columns import UNREAD_FACTS, ColumnChoice, Columns, choose_columns, choose_new_names
from .features import explain_unusable, read_facts, split_features
from .fields import format_record
from .files import (
    MANY_SKIPPED,
    DataFileError,
    FilePath,
    Row,
    SkippedRows,
    data_suffix,
    resolve_file,
    show_path,
    warn_once,
    wrong_format,
)
from .rows import LCSTS_SUFFIX, SUFFIXES, TABLE_SUFFIXES, NumberedRow, find_delimiter, find_unit, number_rows

logger = logging.getLogger(__name__)

SAMPLE_SIZE = 1000  # rows of a stream, whose columns show those of the others

Pairs: TypeAlias = datasets.Dataset | datasets.IterableDataset
ROLE_TYPES = {
    "text": datasets.Value("string"),
    "summary": datasets.Value("string"),
    "features": datasets.List(datasets.Value("string")),
    "facts": datasets.List(datasets.List(datasets.Value("string"))),
}


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
    features_separator: str = FEATURE_SEPARATOR,
    column_names: Sequence[str] | None = None,
    delimiter: str | None = None,
    streaming: bool = False,
) -> datasets.DatasetDict | datasets.IterableDatasetDict:
    """Loads pairs from files, or from a dataset on the Hub, with the columns `text` and `summary`.

    A file is JSON lines (or one JSON list), CSV or TSV with a header, Parquet, LCSTS (.txt, pairs with a score of 3 or
    more), or inflections as the SIGMORPHON shared tasks distribute them (.train, .trn, .dev, .test, .tst, .gold:
    tab-separated columns lemma, form and features, without a header; other columns by `column_names`). All but
    Parquet may be compressed (.gz), and in UTF-16 instead of UTF-8 if a byte order mark says so. A column `facts`
    of triples is read as well. A summary that is an object of named values, or a list of them, becomes the text of
    `data.fields.format_record`. Rows that cannot be read, whose text or summary is missing, empty or of another type,
    or whose facts are no triples of strings, are skipped and reported in a warning, those whose columns are all empty
    without one. Other columns are kept (objects, and values of several types, as JSON), one with the name `text`,
    `summary`, `features` or `facts` as `original_text`, and so on.

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
        DataFileError: a file without a usable row, or with more than 20 malformed ones that are more than half of it
            (when streaming, raised by the first iteration); a ValueError.
    """
    files = {"train": train_file, "validation": validation_file, "test": test_file}
    given = {split: path for split, path in files.items() if path is not None}
    if bool(given) == (dataset_name is not None):
        raise ValueError("pass either files or dataset_name")
    choice = ColumnChoice(text_column, summary_column, features_column, features_separator)
    if dataset_name is not None:
        parts = load_splits(dataset_name, dataset_config_name, streaming=streaming)
        splits = {}
        for split, part in parts.items():
            try:
                splits[split] = _select_pairs(part, choice, f"{dataset_name}/{split}")
            except ValueError as error:  # for example a test set whose labels are not published
                if split == list(parts)[-1] and not splits:
                    raise
                logger.warning("the split %r is left out: %s", split, error)
    else:
        names = None if column_names is None else tuple(column_names)
        splits = {
            split: _build_split(path, split, streaming, choice=choice, column_names=names, delimiter=delimiter)
            for split, path in given.items()
        }
        _log_columns({path: splits[split].info.supervised_keys for split, path in given.items()}, choice)
    return datasets.IterableDatasetDict(splits) if streaming else datasets.DatasetDict(splits)


def load_splits(name: str, config: str | None, *, streaming: bool) -> dict[str, Any]:
    """The splits of a dataset on the Hub, or in a folder; raises ValueError for a file, or a dataset with a script."""
    if Path(name).is_file():
        raise ValueError(f"the dataset {name} is a file: pass pairs as --train_file, --validation_file or --test_file")
    try:
        return datasets.load_dataset(name, config, streaming=streaming)
    except RuntimeError as error:
        raise ValueError(f"the dataset {name} cannot be loaded: {error}") from None


def load_lcsts(
    train: FilePath | None = None,
    validation: FilePath | None = None,
    test: FilePath | None = None,
    *,
    min_score: int = 3,
    encoding: str | None = None,
    streaming: bool = False,
) -> datasets.DatasetDict | datasets.IterableDatasetDict:
    """Loads LCSTS from its original files PART_I.txt, PART_II.txt and PART_III.txt, or some of them.

    The columns are `text`, `summary`, `id` and `human_label` (1 to 5, None in PART_I). Malformed rows are skipped
    and reported in a warning, which is also kept in `info.description`.

    Args:
        min_score: pairs with a lower human_label are left out. The paper evaluates on scores of at least 3.
        encoding: by default detected from the bytes, see `detect_encoding`.
        streaming: read the rows during iteration instead of caching them.

    Raises:
        ValueError: no file.
        FileNotFoundError: no such file.
        DataFileError: a file without a usable row (when streaming, raised by the first iteration).
    """
    named = {"train": train, "validation": validation, "test": test}
    files = {split: path for split, path in named.items() if path is not None}
    if not files:
        raise ValueError("no file: pass at least one of train, validation and test")
    options = {"choice": ColumnChoice("text", "summary"), "min_score": min_score, "encoding": encoding}
    splits = {split: _build_split(path, split, streaming, LCSTS_SUFFIX, **options) for split, path in files.items()}
    return datasets.IterableDatasetDict(splits) if streaming else datasets.DatasetDict(splits)


def _build_split(path: FilePath, split: str, streaming: bool, file_format: str | None = None, **options: Any) -> Pairs:
    """The dataset of one file, from the cache if the same contents were read before; `options` are fields of
    `PairsConfig`."""
    suffix = file_format or data_suffix(path)
    if options.get("column_names") is not None and suffix not in TABLE_SUFFIXES:
        raise ValueError(f"{path}: column_names are for tables ({', '.join(TABLE_SUFFIXES)}): leave them out")
    if suffix not in SUFFIXES and not Path(path).is_dir():
        raise wrong_format(path, SUFFIXES)
    file = resolve_file(path)
    options |= {"file_format": suffix, "delimiter": find_delimiter(file, options.get("delimiter"))}
    # Built here because `datasets` takes "[" and "*" in a path for a pattern, and keys its cache on the modification
    # time, which copying can preserve.
    key = "" if streaming else _hash_contents(file)
    builder = PairsBuilder(data_files=DataFilesDict({split: DataFilesList([str(file)], [(key,)])}), **options)
    if streaming:
        return builder.as_streaming_dataset(split=split)
    is_cached = builder.info.splits is not None
    try:
        builder.download_and_prepare()
    except (DatasetGenerationError, OSError) as error:  # which do not name the file
        if isinstance(error.__cause__, DataFileError):
            raise error.__cause__ from None
        raise DataFileError(f"{show_path(file)}: cannot be read ({error.__cause__ or error})") from error
    if not builder.info.splits[split].num_examples:
        raise SkippedRows(file).error()
    if is_cached and builder.info.description:
        logger.warning("%s: %s", show_path(file), builder.info.description)
    if is_cached and "original_facts" in builder.info.features and "facts" not in builder.info.features:
        logger.info(UNREAD_FACTS, show_path(file), "facts")
    return builder.as_dataset(split=split)


def _hash_contents(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "blake2b").hexdigest()


@dataclass
class PairsConfig(datasets.BuilderConfig):
    """How a file is read: its format, its columns, and what `number_rows` needs to know."""

    file_format: str = ".jsonl"
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    column_names: tuple[str, ...] | None = None
    delimiter: str = ","
    min_score: int = 3
    encoding: str | None = None


class PairsBuilder(datasets.GeneratorBasedBuilder):
    """A `datasets` builder of the pairs of one file.

    The report of the rows that were skipped is kept in `info.description`, the columns of text and summary in
    `info.supervised_keys`, and so in the cache.
    """

    # Part of the cache key: increase it when a change of the code changes the examples of a file.
    VERSION = datasets.Version("1.13.0")
    BUILDER_CONFIG_CLASS = PairsConfig
    columns: Columns
    roles: Mapping[str, str] = MappingProxyType({"text": "text", "summary": "summary"})

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo()

    def _split_generators(self, dl_manager: datasets.DownloadManager) -> list[datasets.SplitGenerator]:
        ((split, (path,)),) = self.config.data_files.items()
        # A first pass finds the types of the other columns: with types inferred from the first rows, `datasets` would
        # fail at a later row of another type. A stream has no types, and its first rows show its columns.
        rows = (row for _, row in self._number_rows(Path(path)) if isinstance(row, dict))
        self.columns = Columns(islice(rows, SAMPLE_SIZE) if dl_manager.is_streaming else rows)
        if self.columns.types:  # else `_generate_examples` reports that no row could be read
            is_table = self.config.file_format in TABLE_SUFFIXES
            self.roles = choose_columns(self.columns, self.config.choice, show_path(path), is_table=is_table)
            self.info.supervised_keys = SupervisedKeysData(self.roles["text"], self.roles["summary"])
        if not dl_manager.is_streaming:
            schema = pa.schema([(name, kind or pa.string()) for name, kind in self.columns.types.items()])
            self.info.features = _select_features(datasets.Features.from_arrow_schema(schema), self.roles)
        return [datasets.SplitGenerator(name=split, gen_kwargs={"paths": [path]})]

    def _number_rows(self, path: Path) -> Iterator[NumberedRow]:
        options = {name: getattr(self.config, name) for name in ("column_names", "delimiter", "min_score", "encoding")}
        return number_rows(path, file_format=self.config.file_format, **options)

    def _generate_examples(self, paths: list[str]) -> Iterator[tuple[int, Row]]:
        (path,) = map(Path, paths)
        skipped = SkippedRows(path, find_unit(path, self.config.file_format))
        separator = self.config.choice.separator
        pairs = _make_pairs(self._number_rows(path), self.columns.types, self.roles, separator, skipped)
        count, is_refused = 0, False
        try:
            for count, pair in enumerate(pairs, 1):
                yield count, pair
            is_refused = not count or skipped.count > max(count, MANY_SKIPPED)
        finally:  # also where a stream is read only in part
            is_new = self.info.description != str(skipped)  # a stream is read repeatedly
            if count and skipped.count and is_new and not is_refused:
                self.info.description = str(skipped)
                logger.warning("%s: %s", show_path(path), skipped)
        if is_refused:
            raise skipped.error(count)


def _make_pairs(
    rows: Iterable[NumberedRow],
    columns: Mapping[str, pa.DataType | None],
    roles: Mapping[str, str],
    separator: str,
    skipped: SkippedRows,
) -> Iterator[Row]:
    """The rows with a usable pair, `text` and `summary` first; the others are added to `skipped`. Values of columns
    without a type become JSON."""
    new_names = choose_new_names(columns, roles)
    for line, row in rows:
        if isinstance(row, str):
            skipped.add(line, row)
            continue
        if all(value in ("", None) for value in row.values()):  # an empty row of a table, which is no mistake
            continue
        pair = {role: row.get(column) for role, column in roles.items()}
        if "facts" in pair:
            pair["facts"] = read_facts(pair["facts"])
        if reason := _write_record(pair, roles) or _explain_unusable_pair(pair, roles):
            skipped.add(line, reason)
            continue
        if "features" in pair:
            pair["features"] = split_features(pair["features"], separator)
        for name, new in new_names.items():
            pair[new] = row.get(name)
            if columns[name] is None and pair[new] is not None:
                pair[new] = json.dumps(pair[new], ensure_ascii=False, default=str)
        yield pair


def _select_features(features: Mapping[str, object], roles: Mapping[str, str]) -> datasets.Features:
    """The features of the pairs that `_make_pairs` makes of columns with these features."""
    names = choose_new_names(features, roles)
    kept = {new: features[old] for old, new in names.items()}
    return datasets.Features({role: ROLE_TYPES[role] for role in roles} | kept)


def _log_columns(found: Mapping[FilePath, SupervisedKeysData | None], choice: ColumnChoice) -> None:
    """Logs the columns of the files, unless they are named `text` and `summary`, or as they were given."""
    expected = (choice.text or "text", choice.summary or "summary")
    guess = ", as guessed from their names and order (--text_column and --summary_column select others)"
    files: dict[tuple[str, str], list[str]] = {}
    for path, columns in found.items():
        if columns is not None and (columns.input, columns.output) != expected:
            files.setdefault((columns.input, columns.output), []).append(show_path(path))
    for names, paths in files.items():
        where, reason = ", ".join(paths), guess if None in (choice.text, choice.summary) else ""
        logger.info("%s: text is column %r, summary is column %r%s", where, *names, reason)


def _write_record(pair: Row, roles: Mapping[str, str]) -> str | None:
    """Replaces a summary of named values by its text; returns the reason why that cannot be done, or None."""
    if isinstance(pair["summary"], dict | list):
        try:
            pair["summary"] = format_record(pair["summary"])
        except (ValueError, RecursionError) as error:
            return f"{roles['summary']!r}: {error}"
    return None


def _explain_unusable_pair(pair: Mapping[str, object], roles: Mapping[str, str]) -> str | None:
    """The reason why a pair cannot be used, or None."""
    for role, value in pair.items():
        if reason := explain_unusable(value, role, roles[role]):
            return reason
        if role in ("text", "summary") and not str(value).strip():
            return f"empty {roles[role]!r}"
    return None


def _select_batch(
    version: object,
    types: Mapping[str, pa.DataType | None],
    roles: Mapping[str, str],
    separator: str,
    where: str,
    warns: bool,
    batch: dict[str, list[object]],
) -> dict[str, list[object]]:
    """`_make_pairs` of a batch of columns; `version` is that of what it does."""
    skipped = SkippedRows(Path(where))
    rows = (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))
    pairs = list(_make_pairs(enumerate(rows), types, roles, separator, skipped))
    for _, reason in skipped.first if warns else ():
        warn_once(f"{where}: unusable rows are skipped ({reason})")
    kept = [*roles, *choose_new_names(types, roles).values()]
    return {name: [pair[name] for pair in pairs] for name in kept}


def _select_pairs(data: Pairs, choice: ColumnChoice, where: str) -> Pairs:
    """A loaded dataset with the columns `text` and `summary` first, without its unusable rows."""
    schema = None if data.features is None else data.features.arrow_schema
    found = Columns(islice(data, 1)) if schema is None else Columns.of_schema(schema)
    if "facts" in found.strings:  # perhaps JSON text
        found.has_facts = Columns(islice(data.select_columns(["facts"]), SAMPLE_SIZE)).has_facts
    roles, columns = choose_columns(found, choice, where), list(found.types)
    keys = SupervisedKeysData(roles["text"], roles["summary"])
    _log_columns({where: keys}, choice)
    is_stream, types = isinstance(data, datasets.IterableDataset), dict.fromkeys(columns, pa.null())

    # Not a closure: `datasets` reuses the results of a function by a hash of what it reads.
    select = partial(_select_batch, PairsBuilder.VERSION, types, roles, choice.separator, where, is_stream)
    features = None if data.features is None else _select_features(data.features, roles)
    pairs = data.map(select, batched=True, remove_columns=columns, features=features)
    pairs.info.supervised_keys = keys
    if not is_stream and len(pairs) < len(data):  # also where they come from the cache
        if not len(pairs):
            raise DataFileError(f"{where}: none of its {len(data)} rows has a text and a summary")
        logger.warning("%s: %d of %d rows are skipped", where, len(data) - len(pairs), len(data))
    return pairs
