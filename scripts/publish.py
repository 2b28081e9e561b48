"""Publishes a trained model of an experiment on the Hub: weights, tokenizer, code, card, scores and ONNX graphs.

    python scripts/publish.py nl2bash --repo your-name/nl2bash-copynet

Everything is uploaded as one commit. The model must have been trained and scored by scripts/reproduce.py.
"""

from __future__ import annotations

import argparse
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
        OSError: the Hub refuses.
    """
    from experiments.publishing import (  # slow to import, and not needed for --help
        check_consent,
        find_trained_model,
        list_files,
        upload,
        write_contents,
    )

    if args.repo.count("/") != 1:
        raise ValueError(f"--repo is {args.repo!r}: use user/name")
    output_dir = args.output_dir or Path("runs") / args.name
    card, trained = find_trained_model(args.name, args.model, args.seed, output_dir, args.results_dir)
    check_consent(args.name, args.accept_data_licence or args.dry_run)
    with tempfile.TemporaryDirectory(prefix="publish-") as folder:
        if obstacle := write_contents(card, trained, args.repo, Path(folder)):
            print(f"without ONNX graphs: {obstacle}")
        files = list_files(Path(folder))
        if args.dry_run:
            sizes = {path: file.stat().st_size for path, file in files.items()}
            print("\n".join(f"{size:>14,}  {path}" for path, size in sizes.items()))
            print(f"{sum(sizes.values()):>14,}  bytes in {len(sizes)} files for {args.repo}; nothing was uploaded")
            return
        message = f"{args.model} of {args.name}, seed {args.seed}"
        url = upload(files, args.repo, message, is_private=args.private, revision=args.revision)
    print(f"published: {url}")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"names: {', '.join(EXPERIMENTS)}. hf auth login stores a token with write access.",
    )
    parser.add_argument("name", choices=EXPERIMENTS, metavar="NAME", help="experiment of scripts/reproduce.py")
    parser.add_argument("--repo", required=True, metavar="USER/NAME", help="repository, created if there is none")
    parser.add_argument("--model", default="CopyNet", help="model of the experiment (%(default)s)")
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
