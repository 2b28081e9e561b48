"""The commands of `copynet-hf`."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arguments import DecodingArguments


def main(argv: Sequence[str]) -> int:
    """Runs one command, `argv[0]`, with the arguments after it, and returns its exit code.

    0 after success; 2 after an error, which is one line on stderr; 130 when interrupted; 141 when the reader of
    standard output has closed it, as `head` does.
    """
    try:
        try:
            return _run(*argv)
        finally:
            sys.stdout.flush()  # here rather than at exit, where a closed pipe cannot be handled
    except BrokenPipeError:
        _discard_output()
        return 141


def _run(command: str, *argv: str) -> int:
    if command not in COMMANDS:
        print(f"copynet-hf: unknown command {command!r}: use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("copynet_hf").setLevel(logging.INFO)
    try:
        COMMANDS[command](argv)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("COPYNET_DEBUG"):
            traceback.print_exc()
        from .inference.console import escape_controls

        message = str(error)
        if isinstance(error, ModuleNotFoundError):
            message = f"{error.name} is not installed: pip install copynet-hf, without --no-deps"
        with suppress(OSError):  # of a full disk that holds the log as well
            print(f"copynet-hf {command}: {escape_controls(' '.join(message.split()))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"copynet-hf {command}: interrupted", file=sys.stderr)
        return 130
    return 0


def _discard_output() -> None:
    """Lets the interpreter's flush at exit succeed although the pipe is closed."""
    with suppress(OSError, ValueError):  # a stream without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def train(argv: Sequence[str]) -> None:
    """Trains a model on pairs of texts. A JSON or YAML file of arguments may come first; the arguments after it
    override it. Any argument of Seq2SeqTrainingArguments can be given too, see --help_all."""
    from .arguments import TrainArgumentParser, parse_arguments
    from .training.presets import MODEL_DEFAULTS
    from .training.run import train_from_arguments
    from .training.tokenizer_setup import COMPUTED_TOKENIZER_DEFAULTS
    from .training.trainer import COMPUTED_TRAINING_DEFAULTS, TRAINING_DEFAULTS

    parser = TrainArgumentParser(
        MODEL_DEFAULTS | COMPUTED_TOKENIZER_DEFAULTS | TRAINING_DEFAULTS | COMPUTED_TRAINING_DEFAULTS,
        prog="copynet-hf train",
        usage="%(prog)s [CONFIG] --train_file FILE --output_dir FOLDER [ARGUMENTS]",
        description=train.__doc__,
    )
    arguments = parse_arguments(parser, argv)
    metrics = train_from_arguments(arguments)
    for name, value in metrics.items():
        print(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}")
    if not arguments.get("dry_run"):
        print(f"saved in {arguments['output_dir']}")


def evaluate(argv: Sequence[str]) -> None:
    """Prints the scores of a model on pairs of texts as one JSON object. All are percentages but edit_distance,
    examples and seconds. copied_fraction is the share of the outputs' words that occur in the source, copied or
    generated; copy_mode_fraction, only for models that copy, is the share of the outputs' words that got more than
    half of their probability from the copy mode."""
    import json

    from .arguments import DecodingArguments, EvaluateArguments, PairsArguments, check_positive
    from .training.run_folder import check_output_file

    arguments = _parse("evaluate", argv, PairsArguments, DecodingArguments, EvaluateArguments)
    data_args, decoding_args, output_args = arguments
    with redirect_stdout(sys.stderr):  # only the scores go to stdout
        from .evaluation.scoring import evaluate_pairs, write_predictions
        from .inference.backends import load_backend
        from .saved.model_size import explain_memory_errors
        from .training.dataset import read_pairs

        check_positive(output_args, "num_return_sequences")
        check_positive(data_args, "max_eval_samples")
        if data_args.test_file is None and data_args.dataset_name is None:
            raise ValueError("no --test_file: give a file of pairs, or --dataset_name")
        options = _prepare_decoding(decoding_args) | {"num_return_sequences": output_args.num_return_sequences}
        output_file = None
        if output_args.output_file:
            output_file = check_output_file(
                output_args.output_file, output_args.overwrite_output_file, data_args.test_file
            )
        model, tokenizer = load_backend(**decoding_args.model_options())
        if model.config.feature_vocab_size and data_args.features_column is None:
            raise ValueError(f"{decoding_args.model} reads features: name their column with --features_column")
        pairs = read_pairs(data_args, {}, "test")["test"]
        with explain_memory_errors():
            scores, predictions = evaluate_pairs(model, tokenizer, pairs, progress=True, **options)
        if output_file is not None:
            write_predictions(output_file, predictions)
    print(json.dumps(scores))


def generate(argv: Sequence[str]) -> None:
    """Generates an output for each source: one line for each line of input; an empty line stays empty."""
    from .arguments import DecodingArguments, GenerateArguments

    text_args, decoding_args = _parse("generate", argv, GenerateArguments, DecodingArguments)
    options = _prepare_decoding(decoding_args)
    from .data.features import split_features
    from .inference.backends import load_backend
    from .inference.console import escape_controls
    from .inference.predictor import parse_facts, predict_in_batches
    from .saved.model_size import explain_memory_errors
    from .visualization.highlighting import Style, highlight_copies

    facts = None if text_args.facts is None else parse_facts("\n".join(text_args.facts))
    features = None
    if text_args.features is not None:
        features = split_features(text_args.features, text_args.features_separator)
    model, tokenizer = load_backend(**decoding_args.model_options())
    is_terminal = sys.stdout.isatty()
    style: Style = "ansi" if is_terminal else "plain"
    for texts in _batches(text_args.text, options["batch_size"]):
        sources = [text for text in texts if text.strip()]
        for_all = {"facts": facts, "features": features}
        more: dict[str, Any] = {name: [value] * len(sources) for name, value in for_all.items() if value is not None}
        with explain_memory_errors():
            more["trace"] = text_args.show_copies
            predictions = iter(predict_in_batches(model, tokenizer, sources, **more, **options))
        for text in texts:
            line = ""
            if text.strip():
                output = next(predictions)[0]
                line = escape_controls(output.text) if is_terminal else output.text
                if text_args.show_copies:
                    words = [escape_controls(word) for word in output.words] if is_terminal else output.words
                    line = highlight_copies(words, output.copied, style, separator="")
            print(" ".join(line.split("\n")).strip(), flush=True)


def predict(argv: Sequence[str]) -> None:
    """Adds a column of outputs to files of any size. Rows keep their columns and their order; those that cannot be
    used go to OUTPUT.bad.jsonl with the reason. Started again after a kill, the command continues where it was."""
    from pathlib import Path

    from .arguments import DecodingArguments, PredictArguments, check_positive
    from .training.run_folder import check_output_file

    args, decoding_args = _parse("predict", argv, PredictArguments, DecodingArguments)
    check_positive(args, "num_proc", "window")
    options = _prepare_decoding(decoding_args)
    if not args.input_file or not args.output_file:
        raise ValueError(f"no --{'output' if args.input_file else 'input'}_file: give a file")
    from .inference.file_prediction import is_joined, predict_files
    from .inference.predictor import CopyNetPredictor
    from .saved.loading import check_model_name

    overwrite = args.overwrite_output_file
    for input_file in args.input_file:
        path = check_output_file(args.output_file, overwrite or is_joined(Path(args.output_file)), input_file)
    columns = ("facts_column", "features_column", "features_separator", "prediction_column", "with_origins")
    options |= decoding_args.model_options() | {"name": check_model_name(decoding_args.model)}
    predictor = CopyNetPredictor(**options, **{name: getattr(args, name) for name in columns})
    summary = predict_files(
        predictor,
        args.input_file,
        path,
        text_column=args.text_column,
        num_proc=args.num_proc,
        window=args.window,
        overwrite=overwrite,
    )
    print(f"{summary.rows} rows in {path}")
    if summary.bad_rows:
        print(f"{summary.bad_rows} rows without a prediction in {summary.bad_file}")


def demo(argv: Sequence[str]) -> None:
    """Serves a web page on which a model can be tried."""
    from .arguments import DemoArguments, check_positive

    (args,) = _parse("demo", argv, DemoArguments)
    check_positive(args, "port")
    from .serving.page import launch_demo

    launch_demo(
        args.model,
        host=args.host,
        port=args.port,
        share=args.share,
        backend=args.backend,
        device=args.device,
        trust_remote_code=args.trust_remote_code,
        examples=args.examples or (),
    )


def export(argv: Sequence[str]) -> None:
    """Exports the encoder and one decoder step as ONNX graphs, which copynet_hf.OnnxCopyNet runs; with --target web in
    a page that runs them in the browser, which is also a static Hugging Face Space. --quantize int8 makes the graphs
    about four times smaller, and searches faster; some outputs change."""
    from .arguments import ExportArguments
    from .inference.quantization import check_quantization
    from .training.run_folder import check_output_dir

    (args,) = _parse("export", argv, ExportArguments)
    if args.target not in ("onnx", "web"):
        raise ValueError(f"--target is {args.target}: choose onnx or web")
    check_quantization(args.quantize)
    folder = check_output_dir(args.output_dir, args.overwrite_output_dir)
    from .inference.onnx_export import export_onnx
    from .saved.loading import check_model_name, load_copynet, load_model, load_tokenizer
    from .serving.web_export import export_web

    name = check_model_name(args.model)
    model: Any
    tokenizer: Any
    if args.target == "web":
        model, tokenizer = load_model(name, "cpu", trust_remote_code=args.trust_remote_code)
        options = {"examples": args.examples or (), "onnxruntime_web": args.onnxruntime_web}
        export_web(model, tokenizer, folder, name=Path(name).resolve().name, quantize=args.quantize, **options)
        print(f"saved in {folder}; to try it: python -m http.server --bind 127.0.0.1 --directory {folder}")
        return
    for option in ("examples", "onnxruntime_web"):
        if getattr(args, option) is not None:
            raise ValueError(f"--{option} belongs to the page: give --target web, or leave it out")
    model = load_copynet(name, trust_remote_code=args.trust_remote_code)
    reads_words = not model.config.num_features
    tokenizer = load_tokenizer(name, trust_remote_code=args.trust_remote_code) if reads_words else None
    export_onnx(model, folder, tokenizer, quantize=args.quantize)
    print(f"saved in {folder}")


def ensemble(argv: Sequence[str]) -> None:
    """Joins trained models of one vocabulary to one model, whose probabilities are the mean of theirs. Its generation
    settings are those of the first one."""
    from .arguments import EnsembleArguments
    from .training.run_folder import check_output_dir

    (args,) = _parse("ensemble", argv, EnsembleArguments)
    folder = check_output_dir(args.output_dir, args.overwrite_output_dir)
    from .saved.cards import write_model_card
    from .saved.ensembles import join_models
    from .saved.whole_folder import replace_folder

    model, tokenizer = join_models(args.models or (), args.trust_remote_code)
    with replace_folder(folder) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        write_model_card(unfinished, model, tokenizer, title=folder.resolve().name)
    print(f"saved in {folder}")


def serve(argv: Sequence[str]) -> None:
    """Serves an exported model over HTTP, without torch: POST /predict, GET /health, GET /metrics."""
    from .serving.command import serve as run_server

    run_server(argv, serve.__doc__)


def quickstart(argv: Sequence[str]) -> None:
    """Trains a small model on synthetic requests and shows what it copies, in under three minutes."""
    from .arguments import QuickstartArguments, check_positive
    from .training.quickstart import run_quickstart

    (args,) = _parse("quickstart", argv, QuickstartArguments)
    check_positive(args, "threads")
    run_quickstart(args.output_dir, args.seed, args.threads)


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "quickstart": quickstart,
    "train": train,
    "evaluate": evaluate,
    "generate": generate,
    "predict": predict,
    "demo": demo,
    "export": export,
    "ensemble": ensemble,
    "serve": serve,
}
USAGES: Mapping[str, str] = {
    "evaluate": "--model NAME --test_file FILE ",
    "generate": "--model NAME [--text TEXT ...] ",
    "predict": "--model NAME --input_file FILE ... ",
    "demo": "--model NAME ",
    "export": "--model NAME --output_dir FOLDER ",
    "ensemble": "--models NAME ... --output_dir FOLDER ",
}


def _parse(command: str, argv: Sequence[str], *dataclass_types: type[Any]) -> tuple[Any, ...]:
    """The command's arguments as instances of its dataclasses."""
    from .arguments import ArgumentParser, build_dataclass, parse_arguments

    parser = ArgumentParser(
        dataclass_types,
        prog=f"copynet-hf {command}",
        usage=f"%(prog)s {USAGES.get(command, '')}[ARGUMENTS]",
        description=COMMANDS[command].__doc__,
    )
    arguments = parse_arguments(parser, argv)
    return tuple(build_dataclass(dataclass_type, arguments) for dataclass_type in dataclass_types)


def _prepare_decoding(args: DecodingArguments) -> dict[str, Any]:
    """Checks the arguments, and returns the keyword arguments of `predict_in_batches`."""
    from .arguments import check_positive
    from .saved.generation_settings import check_generation_argument

    check_positive(args, "batch_size", "num_beams", "max_source_length", "max_target_length", "threads")
    check_generation_argument("length_penalty", args.length_penalty)
    return {
        "batch_size": args.batch_size,
        "num_beams": args.num_beams,
        "length_penalty": args.length_penalty,
        "max_source_length": args.max_source_length,
        "max_new_tokens": args.max_target_length,
        "forbid_unk": args.forbid_unk,
    }


def _batches(texts: Sequence[str] | None, batch_size: int) -> Iterator[list[str]]:
    """The texts, or the lines of standard input as they come in, in batches."""
    from .inference.console import read_batches

    if texts is None:
        return read_batches(sys.stdin.buffer, batch_size)  # type: ignore[arg-type]  # BinaryIO has no read1
    return (list(texts[start : start + batch_size]) for start in range(0, len(texts), batch_size))


if __name__ == "__main__":
    sys.exit("copynet_hf.cli is not a script: use python -m copynet_hf")
