"""How the files of a training were read, kept in the config of the model's tokenizer.

Later commands read other files in the same way, unless they are told another one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import Values
from ..model.vocabularies import FEATURE_SEPARATOR
from .columns import match_column
from .files import FilePath, data_suffix, open_text, resolve_file, show_path
from .rows import DELIMITERS, SUFFIXES, TABLE_SUFFIXES, find_delimiter, number_rows

if TYPE_CHECKING:
    from datasets.info import SupervisedKeysData

logger = logging.getLogger(__name__)

KEY = "file_options"  # of tokenizer_config.json
NAMES = ("text_column", "summary_column", "features_column", "features_separator", "delimiter")


def remember_options(tokenizer: Any, options: Mapping[str, object], columns: SupervisedKeysData | None = None) -> None:
    """Adds those of the options `NAMES` that are not None to what is saved with the tokenizer, and the columns of text
    and summary that were guessed, unless they are called `text` and `summary`.

    Args:
        columns: of text and summary, given or guessed; None: unknown.
    """
    tokenizer.init_kwargs.pop(KEY, None)  # of an earlier training
    known = {name: options[name] for name in NAMES if options.get(name) is not None}
    if columns is not None:
        guessed = {"text_column": columns.input, "summary_column": columns.output}
        known = {name: column for name, column in guessed.items() if column != name.removesuffix("_column")} | known
    if known:
        tokenizer.init_kwargs[KEY] = known


def read_options(tokenizer: object) -> dict[str, str]:
    """The options that are saved with the tokenizer."""
    saved = getattr(tokenizer, "init_kwargs", {}).get(KEY)
    saved = saved if isinstance(saved, dict) else {}
    return {name: saved[name] for name in NAMES if isinstance(saved.get(name), str) and saved[name]}


def find_separator(tokenizer: object, given: str | None) -> str:
    """What separates features: as given, else as in the training."""
    return read_options(tokenizer).get("features_separator", FEATURE_SEPARATOR) if given is None else given


def recall_options(tokenizer: object, given: Values, columns: Collection[str] | None = None) -> dict[str, Any]:
    """The given options; those that are None, but for the delimiter, are those of the training, which is logged.

    Args:
        columns: those that there are; others are not taken. None: unknown.

    Raises:
        ValueError: there is one column, whose name is that of the training and others.
    """
    options = dict(given)
    for name, value in read_options(tokenizer).items():
        if name == "delimiter":  # left to `recall_delimiter`, which looks for it in the file
            continue
        if name not in given or given[name] is not None:
            continue
        if columns is None or not name.endswith("_column") or match_column(value, columns) is not None:
            options[name] = value
            logger.info("%s is %r, as in the training of the model (--%s sets another)", name, value, name)
        elif len(columns) == 1 and match_column(value, _split_names(only := next(iter(columns)))) is not None:
            raise ValueError(
                f"there is no column {value!r}, the {name} of the training, but {only!r}: if these are several, pass "
                "another delimiter (--delimiter)"
            )
        else:
            logger.info("there is no column %r, the %s of the training", value, name)
    return options


def recall_file_options(
    tokenizer: object, given: Values, path: FilePath, column_names: Sequence[str] | None = None
) -> dict[str, Any]:
    """As `recall_options`, for a file: a delimiter and columns that it does not have are not taken.

    Raises:
        DataFileError, FileNotFoundError: the file cannot be read.
    """
    if data_suffix(path) not in SUFFIXES:  # refused by what reads it
        return dict(given)
    file = resolve_file(path)
    delimiter = recall_delimiter(tokenizer, given["delimiter"], file)
    rows = (row for _, row in islice(number_rows(file, delimiter, column_names), 100) if isinstance(row, dict))
    columns = {name for row in rows for name in row}
    options = {**given, "delimiter": delimiter}
    return recall_options(tokenizer, options, columns) if columns else options


def recall_delimiter(tokenizer: object, given: str | None, path: Path) -> str:
    """The given delimiter, else that of the training if the first line of the file has it, else `find_delimiter`'s."""
    saved = read_options(tokenizer).get("delimiter")
    if given is None and saved is not None and data_suffix(path) in TABLE_SUFFIXES:
        with open_text(path) as file:
            line = file.readline()
        if saved.replace("\\t", "\t") in line:
            message = "%s: delimiter is %r, as in the training of the model (--delimiter sets another)"
            logger.info(message, show_path(path), saved)
            given = saved
    return find_delimiter(path, given)


def _split_names(header: str) -> list[str]:
    """The names of columns in a header that was read with another delimiter."""
    return re.split(f"[{''.join(DELIMITERS)}]", header)
