"""`copynet-hf`: train, evaluate, generate, demo, export and quickstart from the command line."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from .arguments import DecodingArguments

HELP = """usage: copynet-hf COMMAND ...

commands:
  quickstart   train a small model on made-up requests and see what it copies, in under three minutes
  train        train a model on your own pairs of texts
  evaluate     score a model on pairs of texts; prints one JSON object
  generate     answer lines of text
  demo         try a model on a page in the browser
  export       write a model as ONNX graphs

copynet-hf COMMAND --help lists the arguments. COPYNET_DEBUG=1 shows where an error comes from.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns 0, or 2 after an error that one line on stderr explains."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if argv[0] not in COMMANDS:
        print(f"copynet-hf: no command {argv[0]!r}: use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("copynet_hf").setLevel(logging.INFO)
    try:
        COMMANDS[argv[0]](argv[1:])
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("COPYNET_DEBUG"):
            traceback.print_exc()
        print(f"copynet-hf {argv[0]}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


def train(argv: Sequence[str]) -> None:
    """`copynet-hf train`."""
    from transformers import Seq2SeqTrainingArguments

    from . import arguments
    from .arguments import read_arguments
    from .training.presets import DEFAULT_SIZES
    from .training.run import train_from_arguments
    from .training.trainer import TRAINING_DEFAULTS

    kinds = [
        arguments.DataArguments,
        arguments.TokenizerArguments,
        arguments.ModelArguments,
        arguments.RunArguments,
        arguments.CardArguments,
        Seq2SeqTrainingArguments,
    ]
    said = read_arguments(kinds, argv, "copynet-hf train", TRAINING_DEFAULTS | DEFAULT_SIZES)
    figures = train_from_arguments(said)
    for name, value in figures.items():
        print(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}")
    print(f"saved in {said['output_dir']}")


def evaluate(argv: Sequence[str]) -> None:
    """`copynet-hf evaluate`: one JSON object on stdout, everything else on stderr."""
    import json

    from .arguments import EvaluateArguments, check_positive, pick, read_arguments
    from .training.run_folder import checked_output_file

    asked = pick(EvaluateArguments, read_arguments([EvaluateArguments], argv, "copynet-hf evaluate"))
    with redirect_stdout(sys.stderr):
        from .data import load_pairs
        from .evaluation.scoring import evaluate_pairs, write_predictions
        from .inference.loading import load_model
        from .training.dataset import first_rows

        check_positive(asked, "num_return_sequences", "max_eval_samples")
        if asked.test_file is None and asked.dataset_name is None:
            raise ValueError("nothing to score: give --test_file (jsonl, csv, parquet, txt) or --dataset_name")
        options = _decoding_options(asked) | {"num_return_sequences": asked.num_return_sequences}
        written: Path | None = None
        if asked.output_file:
            written = checked_output_file(asked.output_file, asked.overwrite_output_file, asked.test_file)
        model, tokenizer = load_model(asked.model, asked.device, asked.bf16)
        loaded = load_pairs(test_file=asked.test_file, **asked.source())
        if "test" not in loaded:
            raise ValueError(f"{asked.dataset_name} has no split 'test', only {', '.join(loaded)}")
        pairs = first_rows(loaded["test"], asked.max_eval_samples)
        scores, predictions = evaluate_pairs(model, tokenizer, pairs, progress=True, **options)
        if written is not None:
            write_predictions(written, predictions)
    print(json.dumps(scores))


def generate(argv: Sequence[str]) -> None:
    """`copynet-hf generate`: one line of output for each line of input; an empty line stays empty."""
    from .arguments import GenerateArguments, pick, read_arguments

    asked = pick(GenerateArguments, read_arguments([GenerateArguments], argv, "copynet-hf generate"))
    options = _decoding_options(asked)
    from .inference.highlighting import Style, highlight_copies
    from .inference.loading import load_model
    from .inference.predictor import parse_facts, predict_in_batches

    facts = None if asked.facts is None else parse_facts("\n".join(asked.facts))
    model, tokenizer = load_model(asked.model, asked.device, asked.bf16)
    style: Style = "ansi" if sys.stdout.isatty() else "plain"
    for texts in _batches(asked.text, options["batch_size"]):
        filled = [text for text in texts if text.strip()]
        known = None if facts is None else [facts] * len(filled)
        predictions = iter(predict_in_batches(model, tokenizer, filled, facts=known, **options))
        for text in texts:
            line = ""
            if text.strip():
                output = next(predictions)[0]
                line = output.text
                if asked.show_copies:
                    line = highlight_copies(output.words, output.copied, style, separator="")
            print(" ".join(line.split("\n")).strip(), flush=True)


def demo(argv: Sequence[str]) -> None:
    """`copynet-hf demo`."""
    from .arguments import DemoArguments, check_positive, pick, read_arguments

    asked = pick(DemoArguments, read_arguments([DemoArguments], argv, "copynet-hf demo"))
    check_positive(asked, "port")
    from .inference.page import launch_demo

    examples = asked.examples or ()
    launch_demo(
        asked.model, host=asked.host, port=asked.port, share=asked.share, device=asked.device, examples=examples
    )


def export(argv: Sequence[str]) -> None:
    """`copynet-hf export`."""
    from .arguments import ExportArguments, pick, read_arguments
    from .training.run_folder import checked_output_dir

    asked = pick(ExportArguments, read_arguments([ExportArguments], argv, "copynet-hf export"))
    folder = checked_output_dir(asked.output_dir, asked.overwrite_output_dir, resumes=False)
    from transformers import AutoTokenizer

    from .inference.loading import check_model_name, load_copynet
    from .inference.onnx_export import export_onnx

    name = check_model_name(asked.model)
    model = load_copynet(name)
    export_onnx(model, folder, None if model.config.num_features else AutoTokenizer.from_pretrained(name))
    print(f"saved in {folder}")


def quickstart(argv: Sequence[str]) -> None:
    """`copynet-hf quickstart`."""
    from .arguments import QuickstartArguments, check_positive, pick, read_arguments
    from .training.quickstart import run_quickstart

    asked = pick(QuickstartArguments, read_arguments([QuickstartArguments], argv, "copynet-hf quickstart"))
    check_positive(asked, "threads")
    run_quickstart(asked.output_dir, asked.seed, asked.threads)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "quickstart": quickstart,
    "train": train,
    "evaluate": evaluate,
    "generate": generate,
    "demo": demo,
    "export": export,
}


def _decoding_options(asked: DecodingArguments) -> dict[str, Any]:
    """The options of `predict_in_batches`, once they have been looked at; sets the number of threads."""
    import torch

    from .arguments import check_positive

    check_positive(asked, "batch_size", "num_beams", "max_source_length", "max_target_length", "threads")
    if asked.threads:
        torch.set_num_threads(asked.threads)
    return {
        "batch_size": asked.batch_size,
        "num_beams": asked.num_beams,
        "length_penalty": asked.length_penalty,
        "max_source_length": asked.max_source_length,
        "max_new_tokens": asked.max_target_length,
        "forbid_unk": asked.forbid_unk,
    }


def _batches(texts: Sequence[str] | None, size: int) -> Iterator[list[str]]:
    """The texts, or the lines of standard input, so many at a time; at a keyboard one by one."""
    lines = iter(texts) if texts is not None else (line.rstrip("\r\n") for line in sys.stdin)
    size = 1 if texts is None and sys.stdin.isatty() else size
    while batch := list(islice(lines, size)):
        yield batch


if __name__ == "__main__":
    sys.exit(main())
