"""Reproduces a table of results: makes or reads the data, trains and scores the models, writes page and model cards.

    python scripts/reproduce.py table1

Prints the table and writes results/NAME.json, results/NAME.md, figures and model_cards/. What is there already is not
computed again, so that an interrupted run continues where it stopped. A page averages over the seeds that were run.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import importlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.running.settings import Settings

ROOT = Path(__file__).parents[1]
# What each one is, and how long its trainings take on one core with bfloat16.
EXPERIMENTS = {
    "table1": "the paper's synthetic rules, Table 1 and Figure 3; 10 to 15 minutes a model, 11 models (seed 0) or 6",
    "table3": "headlines for news, LCSTS, Table 3 and Figure 4; about 40 minutes a model, 4 models",
    "table4": "single-turn dialogue, Table 4 and Figure 5; 10 minutes a model, 2 models",
    "rewriting": "utterance rewriting, Chinese dialogues; 20 minutes a model, 2 models",
    "nl2bash": "shell commands from descriptions; 45 minutes a model, 2 models",
    "convex_hull": "corners of convex hulls, Pointer Networks; 20 and 50 minutes, 2 models",
    "tsp": "short tours, Pointer Networks; 20 and 45 minutes, 2 models",
    "coreqa": "answers about birthdays from facts, CoreQA; 5 to 12 minutes a model, 5 models",
    "mechanisms": "all copy mechanisms on four tasks, 1,000 updates each; 4 minutes a model, 32 models",
    "inflection": "word forms from lemmas and features, SIGMORPHON 2022 (or 2023); 5 to 15 minutes a model, 53 models",
    "reach": "outputs that are not words of their sources, generated tasks; 1 to 20 minutes a model, 34 models",
    "proof": "intents and slots as records, confidence; SNIPS, ATIS and two others; 5 to 40 minutes a model, 4 models",
    "defaults": "the default command on four tasks of other tables; 10 to 45 minutes a model, 4 models",
    "recipe": "alternatives to the defaults on 16 tasks; 2 to 30 minutes a model, 240 models",
    "encoders": "GRU and Transformer encoders, pre-trained or not; 15 to 60 minutes a model, 2 encoders and 8 models",
    "minilm": "five tasks by the default command, GRU encoder and published weights; 12 to 90 minutes a model",
    "decoders": "GRU and Transformer decoders, with copying and without; 2 to 45 minutes a model, 65 models",
    "japanese": "Japanese replies, copied words marked; 5 minutes a model, 2 models; needs the extra ja",
}
# The tables of the years of a shared task, the default first.
YEARS = {"inflection": {2022: "inflection", 2023: "inflection_2023"}}
MAX_NAMED = 12  # of the models that an error names


def main(argv: list[str] | None = None) -> None:
    parser = make_parser()
    args = parser.parse_args(argv)
    from experiments.data.rows import write_text
    from experiments.reports.markdown import render_page
    from experiments.reports.model_cards import write_cards  # slow to import, and not needed for --help

    if args.year is not None:
        years = YEARS.get(args.name, {})
        if args.year not in years:
            choices = f"use {' or '.join(map(str, years))}" if years else f"leave it out: {args.name} has no years"
            parser.error(f"--year is {args.year}: {choices}")
        args.name = years[args.year]
    experiment: Any = importlib.import_module(f"experiments.tables.{args.name}")
    if unknown := [pattern for pattern in args.models if not fnmatch.filter(experiment.MODEL_NAMES, pattern)]:
        near = difflib.get_close_matches(unknown[0], experiment.MODEL_NAMES, MAX_NAMED, cutoff=0)
        choices = f"the {len(experiment.MODEL_NAMES)} models of {args.name}, such as {', '.join(map(repr, near))}"
        parser.error(f"--models is {unknown[0]!r}: choose from {choices}")
    settings = make_settings(args)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = experiment.run(settings).read()
    page = render_page(args.name, results, experiment.collect_figures(results))
    write_text(settings.results_dir / f"{args.name}.md", page)
    write_cards(args.name, results, settings.cards_dir)
    print(page)
    print(f"written to {settings.results_dir / args.name}.md and .json")


def make_parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:12}{text}" for name, text in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"names, with training times on one core:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = os.environ.get("COPYNET_DATA", "../shared/data")
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME")
    parser.add_argument("--year", type=int, help="of the shared task, for inflection: 2022 or 2023 (2022)")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and models (%(default)s)")
    parser.add_argument("--max_minutes", type=float, help="limit of each training")
    parser.add_argument("--max_samples", type=int, help="limit of the pairs of each split, to try the command")
    parser.add_argument(
        "--models", nargs="+", default=[], metavar="MODEL", help="models to train, or patterns such as '*_small' (all)"
    )
    parser.add_argument("--output_dir", type=Path, help="folder of models, outputs and scores (runs/NAME)")
    parser.add_argument(
        "--results_dir",
        type=Path,
        help="folder of page and figures (results; with --max_minutes or --max_samples the output_dir)",
    )
    parser.add_argument(
        "--data_dir", type=Path, default=Path(data), help="folder of the data that cannot be generated (%(default)s)"
    )
    parser.add_argument(
        "--fp32", action="store_true", help="train without bfloat16, which some processors run twice as fast"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of torch (%(default)s)")
    return parser


def make_settings(args: argparse.Namespace) -> Settings:
    """Builds the settings; models and results of shortened trainings go to a folder of their own."""
    from experiments.running.settings import Settings

    from copynet_hf.saved.loading import has_bfloat16

    is_shortened = args.max_minutes is not None or args.max_samples is not None
    output_dir = args.output_dir or Path("runs") / (f"{args.name}_short" if is_shortened else args.name)
    results_dir = args.results_dir or (output_dir if is_shortened else ROOT / "results")
    return Settings(
        output_dir=output_dir,
        results_dir=results_dir,
        cards_dir=results_dir.parent / "model_cards" if results_dir.name == "results" else results_dir / "model_cards",
        data_dir=args.data_dir,
        seed=args.seed,
        max_minutes=args.max_minutes,
        max_samples=args.max_samples,
        models=tuple(args.models),
        bf16=not args.fp32 and has_bfloat16(),
        threads=args.threads,
    )


if __name__ == "__main__":
    main()
