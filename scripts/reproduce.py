"""Makes one of the tables: the data, a model for each row, its scores, the page, the pictures and the models' cards.

    python scripts/reproduce.py table1

Prints the table and writes results/NAME.json, results/NAME.md, pictures and model_cards/. What is there already is not
done again, so an interrupted run goes on where it was; several seeds are averaged in one page.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.runs import Settings

ROOT = Path(__file__).parents[1]
# What each one is, and how long its trainings take on one core with bfloat16.
EXPERIMENTS = {
    "table1": "the paper's synthetic rules, Table 1 and Figure 3; 10 to 15 minutes a model: 11 with seed 0, else 6",
    "table3": "headlines for news, LCSTS, Table 3 and Figure 4; about 40 minutes a model, 4 models",
    "table4": "single-turn dialogue, Table 4 and Figure 5; 10 minutes a model, 2 models",
    "rewriting": "utterance rewriting, Chinese dialogues; 20 minutes a model, 2 models",
    "nl2bash": "shell commands for descriptions; 30 minutes a model, 2 models",
    "convex_hull": "corners of convex hulls, Pointer Networks; 20 and 50 minutes, 2 models",
    "tsp": "short tours, Pointer Networks; 20 and 45 minutes, 2 models",
    "coreqa": "answers about birthdays from facts, CoreQA; 5 to 12 minutes a model, 5 models",
    "mechanisms": "all copy mechanisms on four tasks, 1,000 updates each; 4 minutes a model, CoreQA 10, 32 models",
    "japanese": "Japanese replies, copied words marked; 5 minutes a model, 2 models; needs pip install copynet-hf[ja]",
}


def main(argv: list[str] | None = None) -> None:
    parser = make_parser()
    args = parser.parse_args(argv)
    from experiments.cards import write_cards  # heavy: --help should not wait for it
    from experiments.runs import write

    experiment: Any = importlib.import_module(f"experiments.{args.name}")
    if unknown := [model for model in args.models if model not in experiment.NAMES]:
        parser.error(f"--models {unknown[0]!r}: {args.name} has {', '.join(map(repr, experiment.NAMES))}")
    settings = make_settings(args)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = experiment.run(settings).read()
    text = experiment.page(results)
    write(settings.results_dir / f"{args.name}.md", text)
    write_cards(args.name, experiment.CARD, results, settings)
    print(text)
    print(f"written to {settings.results_dir / args.name}.md and .json")


def make_parser() -> argparse.ArgumentParser:
    lines = "\n".join(f"  {name:12}{text}" for name, text in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"names:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = os.environ.get("COPYNET_DATA", "../shared/data")
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of data and models (0)")
    parser.add_argument("--max_minutes", type=float, help="cuts each training short")
    parser.add_argument("--max_samples", type=int, help="pairs of each split, to try the command")
    parser.add_argument("--models", nargs="+", default=[], metavar="MODEL", help="rows of the table; all of them")
    parser.add_argument("--output_dir", type=Path, help="models, outputs and scores (runs/NAME)")
    parser.add_argument(
        "--results_dir",
        type=Path,
        help="page and pictures (results; with --max_minutes or --max_samples the output_dir)",
    )
    parser.add_argument("--data_dir", type=Path, default=Path(data), help="data that cannot be made (%(default)s)")
    parser.add_argument("--fp32", action="store_true", help="no bfloat16, which is twice as fast where it is native")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch (%(default)s)")
    return parser


def make_settings(args: argparse.Namespace) -> Settings:
    """Shortened trainings are kept apart from the others, and so are their results."""
    from experiments.runs import Settings

    shortened = args.max_minutes is not None or args.max_samples is not None
    output_dir = args.output_dir or Path("runs") / (f"{args.name}_short" if shortened else args.name)
    results_dir = args.results_dir or (output_dir if shortened else ROOT / "results")
    return Settings(
        output_dir=output_dir,
        results_dir=results_dir,
        cards_dir=results_dir.parent / "model_cards" if results_dir.name == "results" else results_dir / "model_cards",
        data_dir=args.data_dir,
        seed=args.seed,
        max_minutes=args.max_minutes,
        max_samples=args.max_samples,
        models=tuple(args.models),
        bf16=not args.fp32,
        threads=args.threads,
    )


if __name__ == "__main__":
    main()
