"""`copynet-hf evaluate`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace

from ..arguments import Command, DecodingArguments, PairsArguments, argument, count


@dataclass
class EvaluateArguments(PairsArguments, DecodingArguments):
    _argument_group_name = "outputs"

    num_return_sequences: int = count("outputs per source, for exact_match_top_N", 1)
    output_file: str | None = argument("write the predictions to this file, as JSON lines", metavar="FILE")
    overwrite_output_file: bool = argument("replace output_file if it exists", False)


def evaluate(args: EvaluateArguments) -> None:
    """Prints the scores of a model on pairs of texts as one JSON object. All are percentages but edit_distance,
    examples and seconds. copied_fraction is the share of the outputs' words that occur in the source, copied or
    generated; copy_mode_fraction, only for models that copy, is the share of the outputs' words that got more than
    half of their probability from the copy mode."""
    with redirect_stdout(sys.stderr):  # only the scores go to stdout
        from ..data.remembered import NAMES, recall_file_options, recall_options
        from ..evaluation.scoring import evaluate_pairs, write_predictions
        from ..inference.backends import load_backend
        from ..saved.model_size import explain_memory_errors
        from ..training.dataset import read_pairs
        from ..training.run_folder import check_output_file

        if args.test_file is None and args.dataset_name is None:
            raise ValueError("no --test_file: pass a file of pairs, or --dataset_name")
        output_file = None
        if args.output_file:
            output_file = check_output_file(args.output_file, args.overwrite_output_file, args.test_file)
        model, tokenizer = load_backend(**args.model_options())
        columns = {name: getattr(args, name) for name in NAMES}
        if args.test_file is not None:
            columns = recall_file_options(tokenizer, columns, args.test_file, args.column_names)
        else:
            columns = recall_options(tokenizer, columns)
        args = replace(args, **columns)
        if model.config.feature_vocab_size and args.features_column is None:
            raise ValueError(f"{args.model} reads features: name their column with --features_column")
        pairs = read_pairs(args, {}, "test")["test"]
        options = {**args.search_options(), "num_return_sequences": args.num_return_sequences}
        with explain_memory_errors():
            scores, predictions = evaluate_pairs(model, tokenizer, pairs, progress=True, **options)
        if output_file is not None:
            write_predictions(output_file, predictions)
    print(json.dumps(scores))


COMMAND = Command(evaluate, "--model NAME --test_file FILE ", EvaluateArguments)
