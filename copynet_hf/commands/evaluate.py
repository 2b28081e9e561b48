"""`copynet-hf evaluate`."""

from __future__ import annotations

import logging
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from ..arguments import Command, DecodingArguments, TestArguments, argument, count

logger = logging.getLogger(__name__)

WRITTEN = {
    "output_file": (".jsonl", ".json"),
    "errors_file": (".html", ".jsonl"),
    "curve_file": (".png", ".svg", ".pdf"),
}
"""The files that can be written, and how their names may end."""
THRESHOLDS = (0.5, 0.8, 0.9, 0.95, 0.98)
"""Thresholds of the confidence: the log says how many outputs reach each, and how many of those are right."""


@dataclass
class EvaluateArguments(TestArguments, DecodingArguments):
    _argument_group_name = "outputs"

    num_return_sequences: int = count("outputs per source, for exact_match_top_N", 1)
    output_file: str | None = argument("write the predictions to this file, as JSON lines", metavar="FILE")
    errors_file: str | None = argument("the wrong outputs and why, as .html or .jsonl", metavar="FILE")
    curve_file: str | None = argument("picture of how right the surest outputs are", metavar="FILE")
    overwrite_output_file: bool = argument("replace these files if they exist", False)


def evaluate(args: EvaluateArguments) -> None:
    """Prints the scores of a model on pairs of texts as one JSON object. All are percentages but edit_distance,
    examples and seconds. exact_match_surest_50 is the exact match of the surest half of the outputs; auroc, how often
    a right output has a higher confidence than a wrong one. docs/evaluate.md explains every score."""
    with redirect_stdout(sys.stderr):  # only the scores go to stdout
        from ..evaluation.error_report import write_errors
        from ..evaluation.errors import score_fields
        from ..evaluation.reliability import measure_accepted, measure_coverage
        from ..evaluation.scoring import evaluate_pairs
        from ..inference.backends import load_backend
        from ..inference.console import format_json
        from ..inference.part_files import write_json_lines
        from ..model.prediction import describe_incomplete
        from ..saved.model_size import explain_memory_errors
        from ..training.dataset import read_split
        from ..training.run_folder import check_output_file
        from ..visualization.curves import plot_coverage

        if args.test_file is None and args.dataset_name is None:
            raise ValueError("no --test_file: pass a file of pairs, or --dataset_name")
        files = {name: getattr(args, name) for name in WRITTEN}
        output_file, errors_file, curve_file = (
            check_output_file(path, args.overwrite_output_file, args.test_file, name) if path else None
            for name, path in files.items()
        )
        paths = [Path(path).resolve() for path in files.values() if path]
        if len(set(paths)) < len(paths):
            raise ValueError(f"{', '.join(f'--{name}' for name in files)}: two are the same file; use others")
        for name, path in files.items():
            if path and Path(path).suffix.lower() not in WRITTEN[name]:
                raise ValueError(f"--{name} {path}: the name must end in {', '.join(WRITTEN[name])}")
        model, tokenizer = load_backend(**args.model_options())
        pairs = read_split(args, "test", args.test_file, tokenizer)
        options = {**args.search_options(), "num_return_sequences": args.num_return_sequences}
        with explain_memory_errors():
            scores, predictions = evaluate_pairs(model, tokenizer, pairs, progress=True, **options)
        for warning in describe_incomplete(0, sum(each["is_cut"] for each in predictions), len(predictions)):
            logger.warning("%s", warning)
        right = [bool(each["right"]) for each in predictions]
        confidences = [float(each["confidence"] or 0.0) for each in predictions]
        acceptable = [0.0 if each["is_cut"] else sure for each, sure in zip(predictions, confidences, strict=True)]
        for threshold, (accepted, num_right) in measure_accepted(acceptable, right, THRESHOLDS).items():
            share = f"{100 * num_right / accepted:.1f} % right" if accepted else "none"
            counts = f"{accepted:,} of {len(right):,} outputs"
            logger.info("confidence at least %g: %s, %s", threshold, counts, share)
        if fields := score_fields(predictions):
            scores["field_accuracy"] = {
                name: round(accuracy, 2)
                for name, field in fields.items()
                if (accuracy := field["accuracy"]) is not None
            }
        if output_file is not None:
            write_json_lines(output_file, predictions)
        if errors_file is not None:
            write_errors(errors_file, predictions, f"{args.model} on {args.test_file or args.dataset_name}")
        if curve_file is not None:
            curve_file.parent.mkdir(parents=True, exist_ok=True)
            plot_coverage({"": 100 * measure_coverage(confidences, right)}, curve_file)
    print(format_json(scores, sys.stdout.encoding))


COMMAND = Command(evaluate, "--model NAME --test_file FILE ", EvaluateArguments)
