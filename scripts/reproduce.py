"""Makes one of the tables: the data, a model for each row, its scores, the page and the pictures.

    python scripts/reproduce.py table1

Prints the table and writes results/NAME.json, results/NAME.md, the pictures and the models' cards. What is there
already is not done again, so an interrupted run goes on where it was; several seeds are averaged in one page.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from experiments.cards import write_cards
from experiments.runs import Settings

ROOT = Path(__file__).parents[1]
# What each one is, and how long it takes: so long that it must be said before anything heavy is imported.
EXPERIMENTS = {
    "table1": "the paper's synthetic rules, Table 1 and Figure 3; 6 hours on one core for seed 0, 3 for another one",
    "table3": "headlines for news, LCSTS, Table 3 and Figure 4; hours",
    "table4": "single-turn dialogue, Table 4 and Figure 5; minutes",
    "rewriting": "utterance rewriting, Chinese dialogues; minutes",
    "nl2bash": "shell commands for descriptions; minutes",
    "japanese": "Japanese replies, copied words marked; minutes",
}


def main(argv: list[str] | None = None) -> None:
    settings, name = read_settings(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    experiment = importlib.import_module(f"experiments.{name}")
    results = experiment.run(settings).read()
    text = experiment.page(results)
    settings.results_dir.joinpath(f"{name}.md").write_text(text, encoding="utf-8")
    write_cards(name, experiment.CARDS, results, settings)
    print(text)
    print(f"written to {settings.results_dir / name}.md and .json")


def read_settings(argv: list[str] | None = None) -> tuple[Settings, str]:
    lines = "\n".join(f"  {name:14}{text}" for name, text in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"names:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of data and models (0)")
    parser.add_argument("--max_minutes", type=float, help="cuts each training short")
    parser.add_argument("--max_samples", type=int, help="pairs of each split, to try the command")
    parser.add_argument("--models", nargs="+", default=[], metavar="MODEL", help="rows of the table; all of them")
    parser.add_argument("--output_dir", type=Path, help="models, outputs and scores (runs/NAME)")
    parser.add_argument("--results_dir", type=Path, default=ROOT / "results", help="page and pictures (results)")
    default = os.environ.get("COPYNET_DATA", "../shared/data")
    parser.add_argument("--data_dir", type=Path, default=Path(default), help="data that cannot be made (%(default)s)")
    parser.add_argument(
        "--fp32", action="store_true", help="train in float32; bfloat16 is twice as fast where it is native"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of torch (%(default)s)")
    args = parser.parse_args(argv)
    shortened = args.max_minutes is not None or args.max_samples is not None
    if shortened and args.results_dir == ROOT / "results":
        parser.error("--max_minutes and --max_samples give other numbers: name another --results_dir")
    if args.max_samples is not None and args.output_dir is None:
        parser.error("--max_samples trains other models: name another --output_dir")
    return Settings(
        output_dir=args.output_dir or Path("runs") / args.name,
        results_dir=args.results_dir,
        cards_dir=ROOT / "model_cards" if args.results_dir == ROOT / "results" else args.results_dir / "model_cards",
        data_dir=args.data_dir,
        seed=args.seed,
        max_minutes=args.max_minutes,
        max_samples=args.max_samples,
        models=tuple(args.models),
        bf16=not args.fp32,
        threads=args.threads,
    ), args.name


if __name__ == "__main__":
    main()
