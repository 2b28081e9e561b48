"""Writes the CLGE training pairs of LCSTS: rows of train.jsonl marked as such, without texts that are also tested on.

    python scripts/prepare_lcsts.py --data_dir DATA/lcsts --output_file runs/lcsts/train.jsonl

DATA/lcsts holds train.jsonl, validation.jsonl, clge_test.jsonl and test.jsonl with the fields text and summary;
train.jsonl tells by `clge_split` what CLGE trains on ("train") and what it tests on.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("COPYNET_DATA", "../shared/data")) / "lcsts"
    parser.add_argument("--data_dir", type=Path, default=default, help="folder of the JSONL files (%(default)s)")
    parser.add_argument("--output_file", type=Path, required=True)
    args = parser.parse_args()
    if not args.data_dir.is_dir():
        parser.error(f"{args.data_dir} is not there: name the folder with --data_dir or COPYNET_DATA.")

    held_out = {
        row["text"] for name in ("validation", "clge_test", "test") for row in read(args.data_dir / f"{name}.jsonl")
    }
    marked = [row for row in read(args.data_dir / "train.jsonl") if row["clge_split"] == "train"]
    kept = [row for row in marked if row["text"] not in held_out]
    args.output_file.parent.mkdir(parents=True, exist_ok=True)
    with args.output_file.open("w", encoding="utf-8") as output:
        for row in kept:
            print(json.dumps({"text": row["text"], "summary": row["summary"]}, ensure_ascii=False), file=output)
    print(f"{len(kept)} pairs written to {args.output_file}; {len(marked) - len(kept)} held-out texts left out")


if __name__ == "__main__":
    main()
