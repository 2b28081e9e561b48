"""`copynet-hf generate`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..arguments import MIN_CONFIDENCE_HELP, Command, DecodingArguments, argument, between

if TYPE_CHECKING:
    from ..visualization.highlighting import Style

logger = logging.getLogger(__name__)


@dataclass
class GenerateArguments(DecodingArguments):
    _argument_group_name = "input and output"

    text: list[str] | None = argument("sources; by default the lines of standard input", metavar="TEXT")
    facts: list[str] | None = argument("facts for all sources, each 'subject | property | object'", metavar="FACT")
    features: str | None = argument("features of all sources, such as 'V;PST'", metavar="TEXT")
    features_separator: str | None = argument("what separates the features", metavar="TEXT", shown=";")
    show_copies: bool = argument("mark copied words, by colour in a terminal, else by [brackets]", False)
    min_confidence: float | None = argument(MIN_CONFIDENCE_HELP, check=between(0, 1))
    json: bool = argument("print JSON: text, scores, and where words were copied from", False)


def generate(args: GenerateArguments) -> None:
    """Generates an output for each source: one line for each line of input; an empty line stays empty. With
    --min_confidence two columns follow, separated by tabs: the confidence, and `accepted` or `doubtful`."""
    from ..data.features import split_features
    from ..data.remembered import find_separator
    from ..inference.backends import load_backend
    from ..inference.console import escape_controls, format_json
    from ..inference.predictor import parse_facts, predict_in_batches
    from ..model.prediction import describe_incomplete, reads_features
    from ..saved.model_size import explain_memory_errors
    from ..visualization.highlighting import highlight_copies

    if args.show_copies and args.json:
        raise ValueError("--show_copies marks words in text: leave it or --json out")
    facts = None if args.facts is None else parse_facts(args.facts)
    model, tokenizer = load_backend(**args.model_options())
    features = None
    if args.features is not None:
        features = split_features(args.features, find_separator(tokenizer, args.features_separator))
    elif reads_features(model):
        raise ValueError(f"{args.model} reads features: pass --features, such as 'V;PST' ('' for none)")
    is_terminal = sys.stdout.isatty()
    style: Style = "ansi" if is_terminal else "plain"
    num_texts = num_truncated = num_cut = 0
    for texts in _batches(args.text, args.batch_size):
        with explain_memory_errors():
            predictions = predict_in_batches(
                model,
                tokenizer,
                texts,
                facts=None if facts is None else [facts] * len(texts),
                features=None if features is None else [features] * len(texts),
                trace=args.show_copies or args.json,
                min_confidence=args.min_confidence,
                **args.search_options(),
            )
        for output, *_ in predictions:
            num_texts, num_truncated = num_texts + 1, num_truncated + output.is_truncated
            num_cut += output.is_cut
            if args.json:
                line = format_json(output.to_dict(), sys.stdout.encoding)
            elif args.show_copies:
                words = [escape_controls(word) for word in output.words] if is_terminal else output.words
                line = highlight_copies(words, output.copied, style, separator="")
            else:
                line = escape_controls(output.text) if is_terminal else output.text
            line = " ".join(line.split("\n")).strip()
            if output.accepted is not None and not args.json:
                confidence = "" if output.confidence is None else f"{output.confidence:.4f}"
                verdict = "accepted" if output.accepted else "doubtful"
                line = "\t".join((line.replace("\t", " "), confidence, verdict))
            print(line.encode(errors="replace").decode(), flush=True)  # a vocabulary may hold lone surrogates
    for warning in describe_incomplete(num_truncated, num_cut, num_texts):
        logger.warning("%s", warning)


def _batches(texts: Sequence[str] | None, batch_size: int) -> Iterator[list[str]]:
    """The texts, or the lines of standard input as they come in, in batches."""
    from ..inference.console import read_line_batches

    if texts is None:
        return read_line_batches(sys.stdin.buffer, batch_size)  # type: ignore[arg-type]  # BinaryIO has no read1
    return (list(texts[start : start + batch_size]) for start in range(0, len(texts), batch_size))


COMMAND = Command(generate, "--model NAME [--text TEXT ...] ", GenerateArguments)
