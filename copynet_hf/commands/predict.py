"""`copynet-hf predict`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..arguments import MIN_CONFIDENCE_HELP, Command, DecodingArguments, argument, between, count


@dataclass
class PredictArguments(DecodingArguments):
    _argument_group_name = "input and output"

    input_file: list[str] | None = argument(
        "JSON lines, CSV, TSV or parquet: files, folders or patterns", metavar="FILE"
    )
    output_file: str | None = argument("of .jsonl, .csv, .tsv (all with .gz) or .parquet", metavar="FILE")
    overwrite_output_file: bool = argument("replace output_file if it exists", False)
    text_column: str | None = argument("column of the sources; guessed by default", metavar="NAME")
    delimiter: str | None = argument("of CSV and TSV files; guessed by default", metavar="TEXT")
    facts_column: str | None = argument("column of the facts, if any", metavar="NAME", shown="facts")
    features_column: str | None = argument("column of the features", metavar="NAME", shown="features")
    features_separator: str | None = argument("between features", metavar="TEXT", shown=";")
    prediction_column: str = argument("column of the outputs", "prediction", "NAME")
    with_origins: bool = argument("add scores, words, and where they were copied from", False)
    min_confidence: float | None = argument(MIN_CONFIDENCE_HELP, check=between(0, 1))
    output_format: str = argument("text, or records of named values with their places", "text", "NAME")
    num_proc: int = count("processes, one thread each", 1)
    window: int = count("rows sorted and written together", 1024)


def predict(args: PredictArguments) -> None:
    """Adds a column of outputs to files of any size. Rows keep their columns and their order; those that cannot be
    used go to OUTPUT_FILE.bad.jsonl with the reason; if they are more than 20 and more than half, the exit code is 2.
    After a kill, the same command continues after the last whole window of rows (--window)."""
    if not args.input_file or not args.output_file:
        raise ValueError(f"no --{'output' if args.input_file else 'input'}_file: pass a file")
    from ..data.files import MANY_SKIPPED, show_path
    from ..data.rows import find_unit
    from ..inference.file_prediction import predict_files
    from ..inference.part_files import name_bad_file
    from ..inference.predictor import CopyNetPredictor
    from ..saved.checks import check_model_name
    from ..training.run_folder import check_output_file

    path = check_output_file(args.output_file, overwrite=True)  # predict_files says what is overwritten
    columns = (
        *("text_column", "facts_column", "features_column", "features_separator", "prediction_column"),
        *("with_origins", "min_confidence", "output_format"),
    )
    options = {**args.search_options(), **args.model_options()}
    options["name"] = check_model_name(args.model)
    predictor = CopyNetPredictor(**options, **{name: getattr(args, name) for name in columns})
    counts = predict_files(
        predictor,
        args.input_file,
        path,
        delimiter=args.delimiter,
        num_proc=args.num_proc,
        window=args.window,
        overwrite=args.overwrite_output_file,
    )
    print(f"{_count_rows(counts.rows)} in {path}")
    bad_file = name_bad_file(path)
    if counts.bad_rows:
        with bad_file.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
        place = f"{show_path(first['file'])}, {find_unit(Path(first['file']))} {first['line']}"
        bad_rows = f"{_count_rows(counts.bad_rows)} without a prediction in {bad_file}"
        print(f"{bad_rows}; the first, {place}: {first['reason']}")
    if counts.bad_rows > max(counts.rows, MANY_SKIPPED):
        raise ValueError(f"most rows have no prediction: {bad_file} says why")


def _count_rows(number: int) -> str:
    return f"{number:,} {'row' if number == 1 else 'rows'}"


COMMAND = Command(predict, "--model NAME --input_file FILE ... ", PredictArguments)
