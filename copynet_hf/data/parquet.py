"""The rows of Parquet files, also with values that Python or JSON cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from .files import DataFileError, Row, show_path, warn_once


def read_batches(path: Path, size: int) -> Iterator[tuple[pa.RecordBatch, list[Row]]]:
    """Batches of at most `size` rows, and their rows, in which dates, times and decimals, which JSON lacks, are the
    text that Arrow writes."""
    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            if double := [name for name in names if names.count(name) > 1]:
                raise DataFileError(f"{show_path(path)}: there are two columns {double[0]!r}: rename one")
            for batch in file.iter_batches(size):
                columns = [_read_values(batch[name], f"{show_path(path)}, column {name!r}") for name in names]
                rows = zip(*columns, strict=True) if names else [()] * len(batch)
                yield batch, [dict(zip(names, row, strict=True)) for row in rows]
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"{show_path(path)}: cannot be read ({error})") from error


def _read_values(array: pa.Array, where: str) -> list[object]:
    try:
        array.validate(full=True)
        return array.cast(_plain_type(array.type, pa.string())).to_pylist()
    except pa.ArrowInvalid:
        warn_once(f"{where}: strings that are not UTF-8 are read with U+FFFD for their invalid bytes")
        return [_decode(value) for value in array.cast(_plain_type(array.type, pa.binary())).to_pylist()]


def _plain_type(kind: pa.DataType, text: pa.DataType) -> pa.DataType:
    """The type with `text` for strings, and strings for what only Arrow can write."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type, text)
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type, text)
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain_type(field.type, text)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type, text), _plain_type(kind.item_type, text))
    if pa.types.is_nested(kind):
        return pa.list_(_plain_type(kind.value_type, text))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.string()
    return text if is_string(kind) else kind


def is_string(kind: pa.DataType) -> bool:
    """Whether values are strings, also those of pandas' categories."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _decode(value: object) -> object:
    """The value with strings for bytes, U+FFFD for those that are not UTF-8."""
    if isinstance(value, dict):
        return {name: _decode(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_decode(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
