"""Predictions for files of any size: window by window, by several processes, continued after a kill.

The rows are read in windows, each of which one process predicts and writes to a part, in a folder next to the output
file. A run that is started again predicts the windows without a part. When all parts are there, the rows are read once
more, and written to the output file with what is in the parts; then the folder is removed.
"""

from __future__ import annotations

import glob
import logging
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets.fingerprint import Hasher
from filelock import FileLock, Timeout
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from ..data.columns import TEXT_NAMES, Columns, find_column, find_usual_name, is_key
from ..data.features import explain_unusable
from ..data.files import Row, SkippedRows, data_suffix, resolve_file, show_path, wrong_format
from ..data.remembered import read_options, recall_delimiter, recall_options
from ..data.rows import NumberedRow, find_unit
from ..model.prediction import Prediction, describe_incomplete, reads_features
from ..saved.model_size import explain_memory_errors
from .part_files import (
    FLAGS,
    WRITTEN_SUFFIXES,
    Counts,
    Types,
    Window,
    find_csv_style,
    find_types,
    name_bad_file,
    pair_parts,
    read_windows,
    write_output,
    write_whole,
)
from .predictor import CopyNetPredictor, stamp_files

logger = logging.getLogger(__name__)

READ_SUFFIXES = (*WRITTEN_SUFFIXES, ".json")
PARTS_SUFFIX, PART_SUFFIX, LOCK_FILE = ".parts", ".part", "lock"
RECORD_TYPES = {
    "slot": pa.string(),
    "value": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "confidence": pa.float64(),
}
FIELD_TYPES = {
    "score": pa.float64(),
    "confidence": pa.float64(),
    "accepted": pa.bool_(),
    "words": pa.list_(pa.string()),
    "word_scores": pa.list_(pa.float64()),
    "copied": pa.list_(pa.bool_()),
    "copy_shares": pa.list_(pa.float64()),
    "source_positions": pa.list_(pa.int64()),
    "source_spans": pa.list_(pa.list_(pa.int64())),
    "copied_spans": pa.list_(pa.list_(pa.int64())),
    "source_words": pa.list_(pa.string()),
    "is_truncated": pa.bool_(),
    "is_cut": pa.bool_(),
    "is_empty": pa.bool_(),
    "records": pa.list_(pa.struct(RECORD_TYPES)),
}  # of what is not a string


def predict_files(
    predictor: CopyNetPredictor,
    inputs: Sequence[str],
    output_file: Path,
    *,
    delimiter: str | None = None,
    num_proc: int = 1,
    window: int = 1024,
    overwrite: bool = False,
) -> Counts:
    """Writes the rows of the input files with a column of predictions, in their order, in constant memory. A CSV file
    gets the delimiter and the byte order mark of those that are read.

    Rows that cannot be used (malformed, or whose text, facts or features are missing or of another type) go to
    `name_bad_file(output_file)`, as JSON lines with file, line and reason.

    Args:
        predictor: its columns are set to the chosen ones; a text column that neither it nor the training names is
            guessed.
        inputs: files, folders and patterns; see `find_files`.
        output_file: .jsonl, .csv, .tsv or .parquet; all but the last may be compressed (.gz).
        delimiter: of CSV and TSV files; None: that of the training, if it was given there, else guessed.
        num_proc: the number of processes; above 1 with one thread each unless the predictor has its own number.
        window: the number of rows that are sorted by length together, and written together.
        overwrite: whether the output file and that of the bad rows may be replaced.

    Raises:
        ImportError, ValueError, OSError: see `load_backend`, `find_files` and `read_windows`; the output file is there
            or has another format, or a column is missing, or there already.
    """
    files = find_files(inputs)
    folder = output_file.with_name(f"{output_file.name}{PARTS_SUFFIX}")
    own = folder / _fingerprint(predictor, files, delimiter, window)
    _check_output(output_file, files, overwrite=overwrite or own.exists())
    with _lock_folder(folder, own):
        tokenizer = predictor.load()[1]
        delimiters = [recall_delimiter(tokenizer, delimiter, file) for file in files]
        read = partial(read_windows, files, delimiters, window)
        columns, sizes = _read_columns(read(), files[0], predictor.facts_column, window)
        if columns.has_facts:
            predictor.facts_column = predictor.facts_column or "facts"
        _choose_columns(predictor, columns, show_path(files[0]))
        parts = [own / f"{number:08}{PART_SUFFIX}" for number in range(len(sizes))]
        _predict_missing(predictor, read(), parts, sizes, num_proc, output_file)
        types: Types = columns.types
        if data_suffix(output_file) == ".parquet":
            pairs = pair_parts(read(), parts)
            types = find_types(files, (row for _, rows, _ in pairs for row in rows if row is not None), window)
        style = find_csv_style(files, delimiters)
        counts = write_output(read(), parts, own / output_file.name, {**types, **_new_types(predictor)}, style)
        bad_file = name_bad_file(output_file)
        if counts.bad_rows:
            (own / bad_file.name).replace(bad_file)
        else:
            bad_file.unlink(missing_ok=True)  # of the run that is overwritten
        (own / output_file.name).replace(output_file)
        _remove_folder(folder, own)
    for warning in describe_incomplete(counts.truncated, counts.cut, counts.rows):
        logger.warning("%s", warning)
    if counts.without_records:
        logger.warning(
            "%s of %s outputs hold no records, such as a = b | c = d, and are null: was the model trained on records?",
            f"{counts.without_records:,}",
            f"{counts.rows:,}",
        )
    return counts


def _check_output(output_file: Path, files: Sequence[Path], *, overwrite: bool) -> None:
    """Raises ValueError for a format that cannot be written, and where an input file or, unless `overwrite`, any other
    would be lost."""
    if data_suffix(output_file) not in WRITTEN_SUFFIXES or output_file.name.lower().endswith(".parquet.gz"):
        formats = f"{', '.join(WRITTEN_SUFFIXES)}; all but .parquet may be followed by .gz"
        raise ValueError(f"--output_file {output_file}: the name must end in {formats}")
    for written in (output_file, name_bad_file(output_file)):
        if written.exists() and any(map(written.samefile, files)):
            raise ValueError(f"--output_file {output_file} would write the input file {written}: use another name")
        if written.exists() and not overwrite:
            raise ValueError(f"{written} exists: use another file, or --overwrite_output_file")


def _read_columns(
    windows: Iterable[Window], first_file: Path, facts_column: str | None, size: int
) -> tuple[Columns, list[int]]:
    """The columns of all rows, and the number of rows in each window, bad ones included.

    Raises:
        DataFileError: there is no row; it names the bad ones of the first file.
    """
    sizes: list[int] = []
    skipped = SkippedRows(first_file, find_unit(first_file))

    def iterate_rows() -> Iterator[Row]:
        for each in windows:
            sizes.append(len(each.rows))
            for line, row in each.rows:
                if isinstance(row, dict):
                    yield row
                elif each.file == first_file:
                    skipped.add(line, row)

    columns = Columns(iterate_rows(), facts_column or "facts", size)
    if not columns.types:
        raise skipped.error()
    return columns, sizes


def _predict_missing(
    predictor: CopyNetPredictor,
    windows: Iterable[Window],
    parts: Sequence[Path],
    sizes: Sequence[int],
    num_proc: int,
    output_file: Path,
) -> None:
    """Writes the parts that an earlier run has not written."""
    with explain_memory_errors():
        predictor.try_settings()  # their errors would look like those of each row
    missing = [not part.exists() for part in parts]
    done = sum(size for size, is_missing in zip(sizes, missing, strict=True) if not is_missing)
    tasks = ((each.rows, part) for each, part, is_missing in zip(windows, parts, missing, strict=True) if is_missing)
    if done:
        logger.info("%s is continued: %s of %s rows are done", output_file, f"{done:,}", f"{sum(sizes):,}")
    with tqdm(total=sum(sizes), initial=done, unit=" rows") as bar:
        for size in _predict_windows(predictor, tasks, num_proc):
            bar.update(size)


def find_files(paths: Sequence[str]) -> list[Path]:
    """The files that the paths name: files, folders (with those below them) and patterns such as `part-*.jsonl`.

    Files of a folder or pattern are sorted by name. In a folder, files of other formats, hidden ones and the parts of
    an unfinished output are left out.

    Raises:
        FileNotFoundError: no such file, or none that matches.
        DataFileError: a file of another format, or an empty one.
    """
    files: list[Path] = []
    for path in paths:
        given = Path(path).expanduser()
        found = [given]
        if given.is_dir():
            found = sorted(file for file in given.rglob("*") if _is_table(file, file.relative_to(given)))
            if not found:
                raise FileNotFoundError(f"{path} holds no file that ends in {', '.join(READ_SUFFIXES)}")
        elif not given.exists():
            matches = sorted(glob.glob(str(given), recursive=True))  # noqa: PTH207 - Path.glob takes no absolute one
            found = [Path(match) for match in matches if Path(match).is_file()] or found
        for file in found:
            if data_suffix(file) not in READ_SUFFIXES:
                raise wrong_format(file, READ_SUFFIXES)
        files += [resolve_file(file) for file in found]
    return files


def _is_table(file: Path, name: Path) -> bool:
    """Whether a file of a folder, in which it has this path, is one to read."""
    is_hidden = any(part.startswith((".", "_")) or part.endswith(PARTS_SUFFIX) for part in name.parts)
    return not is_hidden and file.is_file() and data_suffix(file) in READ_SUFFIXES and file.stat().st_size > 0


def _choose_columns(predictor: CopyNetPredictor, columns: Columns, where: str) -> None:
    """Sets the predictor's column of the sources, to the given one, else that of the training, else one with a usual
    name, else the only column of strings; likewise that of the features, and that of the facts, if it is given.
    `where` names the file in errors.

    Raises:
        ValueError: a column is missing or cannot be guessed, or one that the predictor adds is there.
    """
    options = {"text_column": predictor.text_column}
    if predictor.facts_column is not None:
        options["facts_column"] = predictor.facts_column
    if reads_features(predictor.load()[0]):
        options["features_column"] = predictor.features_column
    options = recall_options(predictor.load()[1], options, columns.types)
    strings = [name for name in columns.texts(predictor.facts_column or "facts") if not is_key(name)]
    guess = find_usual_name(strings, TEXT_NAMES) or (strings[0] if len(strings) == 1 else None)
    if (options["text_column"] or guess) is None:
        if not columns.strings:
            names = ", ".join(map(repr, columns.types))
            raise ValueError(f"{where}: no column holds strings; its columns are {names}: write the texts as strings")
        names = ", ".join(map(repr, strings or columns.strings))
        raise ValueError(f"the text could be any of the columns {names} of strings: pass --text_column")
    for name, value in options.items():
        default = guess if name == "text_column" else read_options(predictor.load()[1]).get(name) or "features"
        try:
            column = find_column(value or str(default), columns.types)
        except ValueError as error:
            raise ValueError(f"{error} (--{name})") from None
        role = name.removesuffix("_column")
        if column != (value or role):
            guessed = "" if value else f", as guessed (--{name} names another)"
            logger.info("%s is column %r%s", role, column, guessed)
        setattr(predictor, name, column)
    if predictor.text_column not in columns.strings:
        raise ValueError(f"the column {predictor.text_column!r} holds no strings: name another with --text_column")
    predictor.refuse_columns(columns.types)


def _new_types(predictor: CopyNetPredictor) -> dict[str, pa.DataType]:
    """The columns that the predictor adds, and their types."""
    return {name: FIELD_TYPES.get(field, pa.string()) for name, field in predictor.new_columns().items()}


# ---- predictions


def _predict_windows(
    predictor: CopyNetPredictor, tasks: Iterator[tuple[list[NumberedRow], Path]], num_proc: int
) -> Iterator[int]:
    """Writes the part of each window; yields the number of rows of each. As many windows as processes wait."""
    if num_proc == 1:
        yield from (_write_part(predictor, *task) for task in tasks)
        return
    context = multiprocessing.get_context("spawn")  # threads of the parent do not survive a fork
    others = set(multiprocessing.active_children())  # of the program that calls this
    with ProcessPoolExecutor(num_proc, context, _set_up_worker, (predictor,)) as executor:
        running: set[Future[int]] = set()
        try:
            for task in tasks:
                running.add(executor.submit(_write_part_in_worker, *task))
                while len(running) >= 2 * num_proc:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (part.result() for part in done)
            yield from (part.result() for part in as_completed(running))
        except BrokenProcessPool:
            raise ValueError(
                "a worker process ended, perhaps for lack of memory: start the command again to continue, with a "
                "smaller --num_proc or --batch_size"
            ) from None
        except BaseException:  # the workers are in the middle of windows
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise


_worker_predictor: CopyNetPredictor


def _set_up_worker(predictor: CopyNetPredictor) -> None:
    """Keeps the predictor for all windows of this process, which ends with its parent."""
    global _worker_predictor
    _worker_predictor = predictor
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _write_part_in_worker(rows: Sequence[NumberedRow], path: Path) -> int:
    return _write_part(_worker_predictor, rows, path)


def _write_part(predictor: CopyNetPredictor, rows: Sequence[NumberedRow], path: Path) -> int:
    """Predicts the rows of a window and writes its part; returns their number."""
    reasons = [row if isinstance(row, str) else _explain_unusable_row(row, predictor) for _, row in rows]
    usable = [row for (_, row), reason in zip(rows, reasons, strict=True) if isinstance(row, dict) and reason is None]
    predicted = iter(_predict_rows(predictor, usable))
    part: list[Row] = []
    for (_, row), reason in zip(rows, reasons, strict=True):
        outcome = next(predicted) if reason is None else reason
        if isinstance(row, str) or isinstance(outcome, str):
            part.append({"reason": outcome, **dict.fromkeys(FLAGS, False)})
            continue
        new = _replace_surrogates(predictor.fill_columns(outcome, row[str(predictor.text_column)]))
        lacks_records = not outcome.is_empty and new[predictor.prediction_column] is None
        flags = (outcome.is_truncated, outcome.is_cut, lacks_records)
        part.append({"new": new, **dict(zip(FLAGS, flags, strict=True))})
    flag_types = dict.fromkeys(FLAGS, pa.bool_())
    schema = pa.schema({"reason": pa.string(), "new": pa.struct(_new_types(predictor)), **flag_types})
    with write_whole(path) as file:
        pq.write_table(pa.Table.from_pylist(part, schema), file)
    return len(rows)


def _replace_surrogates(value: Any) -> Any:
    """The value, with U+FFFD for what no file can hold: halves of characters, which a vocabulary may."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list | tuple):
        return [_replace_surrogates(each) for each in value]
    return {key: _replace_surrogates(each) for key, each in value.items()} if isinstance(value, dict) else value


def _columns_read(predictor: CopyNetPredictor) -> dict[str, str]:
    """The column of each role that is read."""
    columns = {"text": predictor.text_column, "facts": predictor.facts_column}
    if reads_features(predictor.load()[0]):
        columns["features"] = predictor.features_column
    return {role: column for role, column in columns.items() if column is not None}


def _predict_rows(predictor: CopyNetPredictor, rows: Sequence[Row]) -> list[Prediction | str]:
    """The prediction of each row, or why it has none. If rows are refused, each half of them is predicted."""
    if not rows:
        return []
    columns = {name: [row.get(name) for row in rows] for name in _columns_read(predictor).values()}
    try:
        with explain_memory_errors():
            predictions = predictor.predict_rows(columns)
    except ValueError as error:
        middle = len(rows) // 2
        halves = (rows[:middle], rows[middle:])
        return [new for half in halves for new in _predict_rows(predictor, half)] if middle else [str(error)]
    return [each for each in predictions if each is not None]  # None only for a missing text, which is not usable


def _explain_unusable_row(row: Row, predictor: CopyNetPredictor) -> str | None:
    """The reason why a row cannot be predicted, or None. Features that a row lacks are not read as none."""
    columns = _columns_read(predictor)
    if "features" in columns and columns["features"] not in row:
        return f"no {columns['features']!r}"
    reasons = (explain_unusable(row.get(column), role, column) for role, column in columns.items())
    return next((reason for reason in reasons if reason is not None), None)


# ---- the folder of parts


def _fingerprint(predictor: CopyNetPredictor, files: Sequence[Path], *settings: object) -> str:
    """A hash of what the output depends on: a run with other files, models or settings has parts of its own."""
    stamps = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    model = [predictor.name, predictor.loading["backend"], predictor.loading["bf16"], stamp_files(predictor.name)]
    columns = [
        *predictor.new_columns().items(),
        *FLAGS,
        predictor.min_confidence,
        predictor.text_column,
        predictor.facts_column,
        predictor.features_column,
        predictor.features_separator,
    ]
    decoding = sorted((name, repr(value)) for name, value in predictor.decoding.items() if name != "batch_size")
    return Hasher.hash([stamps, model, columns, decoding, settings])


@contextmanager
def _lock_folder(folder: Path, own: Path) -> Iterator[None]:
    """Keeps other runs of the same output out until this one ends or is killed, and creates its own folder. If no part
    is there at the end, the folder is removed."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is writing {folder}: use another --output_file") from None
    if any(path.is_dir() and path != own for path in folder.iterdir()):
        logger.warning("%s holds parts of another run, with other files or settings, which are not used", folder)
    own.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if folder.exists() and not any(folder.glob(f"*/*{PART_SUFFIX}")):
            _remove_folder(folder, own)
        lock.release()


def _remove_folder(folder: Path, own: Path) -> None:
    """Removes this run's own folder last: as long as it is there, the run can be started again."""
    for path in sorted(folder.iterdir(), key=lambda path: path == own):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    folder.rmdir()
