"""Predictions for files of any size: in windows of rows, by several processes, continued after a kill.

The records of all files form one sequence. A window of it is sorted by length, predicted, brought back into its order
and written as one part, in a folder next to the output file. A run that is started again goes on behind the last part;
when all parts are there, they are joined to the output file and the folder is removed.
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from filelock import FileLock, Timeout
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from ..data.features import why_not_features
from ..data.tables import PARTS_SUFFIX, Record, Tables, choose_text_column, find_files, scan_tables
from ..saved.model_size import explain_memory_errors
from .part_files import PartFormat, check_output_suffix, write_whole
from .predictor import ORIGINS, CopyNetPredictor, stamp_files

ORIGIN_TYPES = (
    pa.list_(pa.string()),
    pa.list_(pa.bool_()),
    pa.list_(pa.int64()),
    pa.list_(pa.string()),
)
RUN_FILE, JOINED_FILE, LOCK_FILE = "run.json", "joined", "lock"
NUM_WAITING = 2  # windows, so that no process waits for the end of one

Outcome = dict[str, Any] | str  # the columns that a row gains, or why it has none


class Summary(NamedTuple):
    """The numbers of rows with a prediction and of those without, and the file of the latter."""

    rows: int
    bad_rows: int
    bad_file: Path


def predict_files(
    predictor: CopyNetPredictor,
    inputs: Sequence[str],
    output_file: Path,
    *,
    text_column: str | None = None,
    num_proc: int = 1,
    window: int = 4096,
    overwrite: bool = False,
) -> Summary:
    """Writes the rows of the input files with a column of predictions, in their order, in constant memory.

    Rows that cannot be used (malformed, or whose text, facts or features are missing or of another type) go to
    `bad_rows_path(output_file)`, as JSON lines with file, line and reason.

    Args:
        predictor: its `text_column` is set to the chosen one.
        inputs: files, folders and patterns; see `find_files`.
        output_file: its name says the format; see `PartFormat`.
        text_column: the column of the sources; None: guessed, see `choose_text_column`.
        num_proc: the number of processes; above 1 with one thread each unless the predictor has its own number.
        window: the number of records that are sorted by length together, and written together.
        overwrite: whether parts of another run may be removed.

    Raises:
        ImportError, ValueError, OSError: see `load_backend`, `find_files`, `scan_tables` and `PartFormat`; a column is
            missing, or there already; or the parts of another run are there.
    """
    check_output_suffix(output_file)
    files = find_files(inputs)
    for written in (output_file, bad_rows_path(output_file)):
        if written.absolute() in files:
            raise ValueError(f"--output_file {output_file} would write the input file {written}: give another folder")
    folder = _parts_folder(output_file)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        run = _describe_run(predictor, files, output_file, text_column, window)
        if _read_saved(folder / JOINED_FILE, run, overwrite):  # killed while the folder was being removed
            return _finish(folder, output_file)
        tables = _read_run(folder, run, overwrite)
        if tables is None:
            tables = scan_tables(files)
            _write_run(folder, run, tables)
        predictor.text_column = choose_text_column(tables, text_column)
        _check_columns(predictor, tables)
        with explain_memory_errors():
            predictor(["a"])  # errors of the settings, which would look like those of each row
        types = tables.types | {predictor.text_column: tables.types[predictor.text_column] or pa.string()}
        output = PartFormat(output_file, types | _new_types(predictor))
        parts = [folder / f"{start:015d}" for start in range(0, tables.num_records, window)]
        num_whole = next((number for number, part in enumerate(parts) if not part.exists()), len(parts))
        with tqdm(total=tables.num_records, initial=min(num_whole * window, tables.num_records), unit=" rows") as bar:
            records = tables.read(num_whole * window)
            windows = iter(lambda: list(islice(records, window)), [])
            with _start_workers(predictor, num_proc) as submit:
                predicted = _predict_windows(windows, predictor, submit, bar.update)
                for part, (rows, bad) in zip(parts[num_whole:], predicted, strict=True):
                    _write_bad_rows(_bad(part), bad)
                    output.write_part(part, rows)
        output.join_parts(parts, folder / output_file.name)
        return _join(folder, parts, output_file, run, tables.num_records)


def bad_rows_path(output_file: Path) -> Path:
    """The file of the rows without a prediction: `out.bad.jsonl` for `out.parquet` and for `out.csv.gz`."""
    name = output_file.name.removesuffix(".gz")
    return output_file.with_name(f"{Path(name).stem}.bad.jsonl")


def is_joined(output_file: Path) -> bool:
    """Whether an output file is complete, but its run was killed before it had removed the parts."""
    return (_parts_folder(output_file) / JOINED_FILE).exists()


def _parts_folder(output_file: Path) -> Path:
    return output_file.with_name(f"{output_file.name}{PARTS_SUFFIX}")


# ---- windows and workers


def _predict_windows(
    windows: Iterator[list[Record]],
    predictor: CopyNetPredictor,
    submit: Callable[[dict[str, Any]], Callable[[], list[Outcome]]],
    report: Callable[[int], Any],
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The rows with predictions, and the bad ones, of each window in turn; later windows are predicted meanwhile."""
    waiting: deque[_Window] = deque()
    for records in windows:
        waiting.append(_Window(records, predictor, submit))
        if len(waiting) == NUM_WAITING:
            yield waiting.popleft().collect(report)
    while waiting:
        yield waiting.popleft().collect(report)


class _Window:
    """The records of a part, whose usable rows are sent to the workers in batches of similar length, longest first."""

    def __init__(
        self,
        records: list[Record],
        predictor: CopyNetPredictor,
        submit: Callable[[dict[str, Any]], Callable[[], list[Outcome]]],
    ) -> None:
        self.records = records
        self.outcomes: list[Outcome] = [_why_unusable(record.row, predictor) or {} for record in records]
        text, columns = predictor.text_column, _read_columns(predictor)
        usable = [number for number, outcome in enumerate(self.outcomes) if isinstance(outcome, dict)]
        usable.sort(key=lambda number: len(records[number].row[text]), reverse=True)  # type: ignore[index]
        size = predictor.decoding.get("batch_size") or 32
        self.batches = []
        for start in range(0, len(usable), size):
            numbers = usable[start : start + size]
            rows: Any = [records[number].row for number in numbers]
            batch = {name: [row.get(name) for row in rows] for name in columns if any(name in row for row in rows)}
            self.batches.append((numbers, submit(batch)))

    def collect(self, report: Callable[[int], Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows with predictions and the bad ones, in the records' order; `report` gets the numbers of rows."""
        report(sum(isinstance(outcome, str) for outcome in self.outcomes))
        for numbers, result in self.batches:
            for number, outcome in zip(numbers, result(), strict=True):
                self.outcomes[number] = outcome
            report(len(numbers))
        rows, bad = [], []
        for (file, line, row), outcome in zip(self.records, self.outcomes, strict=True):
            if isinstance(outcome, str):
                content = {"row": row} if isinstance(row, dict) else {}
                bad.append({"file": str(file), "line": line, "reason": outcome, **content})
            else:
                assert isinstance(row, dict)
                rows.append({**row, **outcome})
        return rows, bad


def _predict_batch(predictor: CopyNetPredictor, batch: dict[str, Any]) -> list[Outcome]:
    """The new columns of each row. If the batch is refused, its rows are predicted one by one, to find the reason."""
    names = list(_new_types(predictor))
    predictor.load()  # whose errors are not those of a row
    try:
        with explain_memory_errors():
            columns = predictor(batch)
    except ValueError as error:
        texts = batch[predictor.text_column]
        if len(texts) == 1:
            return [str(error)]
        singles = ({name: [values[row]] for name, values in batch.items()} for row in range(len(texts)))
        return [outcome for single in singles for outcome in _predict_batch(predictor, single)]
    assert isinstance(columns, Mapping)
    return [dict(zip(names, values, strict=True)) for values in zip(*(columns[name] for name in names), strict=True)]


@contextmanager
def _start_workers(
    predictor: CopyNetPredictor, num_proc: int
) -> Iterator[Callable[[dict[str, Any]], Callable[[], list[Outcome]]]]:
    """A function that takes a batch and returns the function that returns its outcomes."""
    if num_proc == 1:
        yield lambda batch: partial(_predict_batch, predictor, batch)
        return
    context = multiprocessing.get_context("spawn")  # threads of the parent do not survive a fork
    with ProcessPoolExecutor(num_proc, context, _set_up_worker, (predictor,)) as executor:
        try:
            yield lambda batch: executor.submit(_predict_in_worker, batch).result
        except BrokenProcessPool:
            raise ValueError(
                "a worker process ended, perhaps for lack of memory: start the command again to continue, with a "
                "smaller --num_proc or --batch_size"
            ) from None
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


_worker_predictor: CopyNetPredictor


def _set_up_worker(predictor: CopyNetPredictor) -> None:
    """Keeps the predictor for all batches of this process, which ends with its parent."""
    global _worker_predictor
    _worker_predictor = predictor
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and stops its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _predict_in_worker(batch: dict[str, Any]) -> list[Outcome]:
    return _predict_batch(_worker_predictor, batch)


# ---- columns


def _read_columns(predictor: CopyNetPredictor) -> list[str]:
    """The columns that the predictor reads."""
    model, _ = predictor.load()
    features = [predictor.features_column] if getattr(model.config, "feature_vocab_size", 0) else []
    return [predictor.text_column, predictor.facts_column, *features]


def _new_types(predictor: CopyNetPredictor) -> dict[str, pa.DataType | None]:
    """The columns that the predictor adds, and their types."""
    name = predictor.prediction_column
    origins = {f"{name}_{field}": kind for field, kind in zip(ORIGINS, ORIGIN_TYPES, strict=True)}
    return {name: pa.string()} | (origins if predictor.with_origins else {})


def _check_columns(predictor: CopyNetPredictor, tables: Tables) -> None:
    """Raises ValueError if a column is missing, or there already."""
    name = predictor.features_column
    if name in _read_columns(predictor) and name not in tables.types:
        raise ValueError(f"the model reads features, and there is no column {name!r}: give --features_column")
    for name in _new_types(predictor):
        if name in tables.types:
            raise ValueError(f"the input has a column {name!r}: give another --prediction_column")


def _why_unusable(row: dict[str, Any] | str, predictor: CopyNetPredictor) -> str | None:
    """The reason why a record cannot be predicted, or None."""
    if isinstance(row, str):
        return row
    text = row.get(predictor.text_column)
    if text is None:
        return f"no {predictor.text_column!r}"
    if not isinstance(text, str):
        return f"{predictor.text_column!r} is a {type(text).__name__}, not a string"
    if not _are_facts(row.get(predictor.facts_column)):
        return f"{predictor.facts_column!r} are not triples of strings"
    if reason := why_not_features(row.get(predictor.features_column)):
        name = predictor.features_column
        return f"{name!r} is {reason}" if name in _read_columns(predictor) else None
    return None


def _are_facts(value: Any) -> bool:
    """Whether a cell holds triples, as `CopyNetTokenizer` reads them, or nothing."""
    triples = [] if value is None else value
    return isinstance(triples, list) and all(
        isinstance(triple, list) and len(triple) == 3 and all(isinstance(part, str) for part in triple)
        for triple in triples
    )


# ---- the folder of the parts


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps other runs out of the folder; the operating system frees the lock of a process that is killed."""
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"another run is writing {folder}: give another --output_file") from None
    try:
        yield
    finally:
        lock.release()


def _describe_run(
    predictor: CopyNetPredictor, files: Sequence[Path], output_file: Path, text_column: str | None, window: int
) -> dict[str, Any]:
    """What the rows of the output depend on; parts of a run are continued only where all of it is the same."""
    decoding = {name: value for name, value in predictor.decoding.items() if name != "batch_size"}
    return {
        "input files": [[str(file), (status := file.stat()).st_size, status.st_mtime_ns] for file in files],
        "model": [predictor.name, predictor.loading["backend"], predictor.loading["bf16"]],
        "model's files": [list(each) for each in stamp_files(predictor.name)],
        "decoding": decoding,
        "columns": [text_column, *_new_types(predictor), predictor.facts_column, predictor.features_column],
        "features separator": predictor.features_separator,
        "output format": output_file.name,
        "window": window,
    }


def _read_saved(path: Path, run: Mapping[str, Any], overwrite: bool) -> dict[str, Any] | None:
    """What a file of the folder says of the run; None if there is no such file, or another run's.

    Raises:
        ValueError: it is another run, and must not be overwritten.
    """
    if not path.exists():
        return None
    saved = json.loads(path.read_text(encoding="utf-8"))
    different = [name for name in run if saved["run"].get(name) != json.loads(json.dumps(run[name]))]
    if different and not overwrite:
        raise ValueError(
            f"{path.parent} holds parts of a run whose {' and '.join(different)} differ: start that run again to "
            "finish it, or give --overwrite_output_file"
        )
    return None if different else saved


def _read_run(folder: Path, run: Mapping[str, Any], overwrite: bool) -> Tables | None:
    """The tables of the run whose parts the folder holds; None for a new run, for which it is emptied.

    Raises:
        ValueError: it is another run, and must not be overwritten.
    """
    if saved := _read_saved(folder / RUN_FILE, run, overwrite):
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(saved["schema"])))
        types = {each.name: None if each.name in saved["json"] else each.type for each in schema}
        files = [Path(file) for file, *_ in saved["run"]["input files"]]
        return Tables(files, saved["counts"], types, saved["strings"])
    for left in folder.iterdir():
        if left.name != LOCK_FILE:
            left.unlink()
    return None


def _write_run(folder: Path, run: Mapping[str, Any], tables: Tables) -> None:
    schema = pa.schema([(name, pa.string() if kind is None else kind) for name, kind in tables.types.items()])
    content = {
        "run": run,
        "counts": tables.counts,
        "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
        "json": [name for name, kind in tables.types.items() if kind is None],
        "strings": tables.strings,
    }
    with write_whole(folder / RUN_FILE) as file:
        file.write(json.dumps(content).encode())


def _bad(part: Path) -> Path:
    """The bad rows of a part; written before it, so that they are whole where the part is there."""
    return part.with_name(f"{part.name}.bad")


def _write_bad_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        with write_whole(path) as file:
            file.writelines(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n" for row in rows)
    else:
        path.unlink(missing_ok=True)  # of a window of the same number that was not finished


def _join(folder: Path, parts: Sequence[Path], output_file: Path, run: Mapping[str, Any], num_records: int) -> Summary:
    """Makes the joined file the output, together with that of the bad rows, and removes the folder."""
    num_bad = 0
    bad_file = folder / bad_rows_path(output_file).name
    with write_whole(bad_file) as file:
        for part in parts:
            if _bad(part).exists():
                rows = _bad(part).read_bytes()
                num_bad += rows.count(b"\n")
                file.write(rows)
    if not num_bad:
        bad_file.unlink()
    with write_whole(folder / JOINED_FILE) as file:  # from here on, only files are moved and removed
        file.write(json.dumps({"run": run, "rows": [num_records - num_bad, num_bad]}).encode())
    return _finish(folder, output_file)


def _finish(folder: Path, output_file: Path) -> Summary:
    """Moves what is joined to its place and removes the folder; may be interrupted and done again."""
    rows, num_bad = json.loads((folder / JOINED_FILE).read_text(encoding="utf-8"))["rows"]
    bad_file = bad_rows_path(output_file)
    if not num_bad:
        bad_file.unlink(missing_ok=True)  # of an earlier run
    for target in (bad_file, output_file):
        if (folder / target.name).exists():
            (folder / target.name).replace(target)
    others = [path for path in folder.iterdir() if path.name not in (JOINED_FILE, LOCK_FILE)]
    for path in (*others, folder / LOCK_FILE, folder / JOINED_FILE):
        path.unlink(missing_ok=True)
    folder.rmdir()
    return Summary(rows, num_bad, bad_file)
