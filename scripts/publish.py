"""Publishes a trained model of an experiment on the Hub: weights, tokenizer, code, card, scores and ONNX graphs.

    python scripts/publish.py nl2bash --repo your-name/nl2bash-copynet

Everything is uploaded as one commit. The model must have been trained and scored by scripts/reproduce.py.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reproduce import EXPERIMENTS, ROOT


def main(argv: Sequence[str] | None = None) -> int:
    """Publishes a model and returns the exit code: 0, or 2 after an error, which is one line on stderr."""
    args = make_parser().parse_args(argv)
    try:
        publish(args)
    except (ValueError, OSError, ImportError) as error:
        print(f"publish.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def publish(args: argparse.Namespace) -> None:
    """Uploads the model that the arguments name, or lists its files.

    Raises:
        ValueError: the model cannot be published as the arguments say.
    """
    if args.name not in EXPERIMENTS:
        raise ValueError(f"NAME is {args.name!r}: choose one of {', '.join(EXPERIMENTS)}")
    # slow to import, and not needed for --help
    from experiments.data.licences import check_consent, find_licence
    from experiments.publishing.contents import write_contents
    from experiments.publishing.trained_model import find_trained_model
    from experiments.publishing.upload import check_login, check_repo_name, list_files, upload

    check_repo_name(args.repo)
    experiment = importlib.import_module(f"experiments.tables.{args.name}")
    output_dir = args.output_dir or Path("runs") / args.name
    trained = find_trained_model(args.name, experiment, args.model, args.seed, output_dir, args.results_dir)
    (dataset,) = trained.card.datasets
    check_consent(dataset, args.accept_data_licence or args.dry_run)
    if not args.dry_run:
        check_login()
    with tempfile.TemporaryDirectory(prefix="publish-") as folder:
        obstacle = write_contents(trained, args.repo, Path(folder))
        files = list_files(Path(folder))
        if obstacle is not None:
            print(f"without ONNX graphs: {obstacle}")
        if args.dry_run:
            for path, file in files.items():
                print(f"{file.stat().st_size:>14,}  {path}")
            total = sum(file.stat().st_size for file in files.values())
            print(f"{total:>14,}  bytes in {len(files)} files for {args.repo}; nothing was uploaded")
            if restriction := find_licence(dataset).restriction:
                print(f"needs --accept_data_licence: {restriction}")
            return
        message = f"{trained.name} of {args.name}, seed {args.seed}"
        url = upload(files, args.repo, message, private=args.private, revision=args.revision)
    print(f"published: {url}")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"names: {', '.join(EXPERIMENTS)}. hf auth login stores a token with write access.",
    )
    parser.add_argument("name", metavar="NAME", help="experiment, as scripts/reproduce.py names it")
    parser.add_argument("--repo", required=True, metavar="USER/NAME", help="repository, created if there is none")
    parser.add_argument("--model", help="model of the experiment (CopyNet, where there is one of that name)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the model (%(default)s)")
    parser.add_argument("--output_dir", type=Path, help="folder of the experiment's models (runs/NAME)")
    parser.add_argument(
        "--results_dir", type=Path, default=ROOT / "results", help="folder of the scores, NAME.json (results)"
    )
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--revision", metavar="BRANCH", help="branch, created from main if there is none (main)")
    parser.add_argument(
        "--accept_data_licence",
        action="store_true",
        help="publish although the licence of the training data restricts the use of the model",
    )
    parser.add_argument("--dry_run", action="store_true", help="list the files and their sizes, and upload nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
