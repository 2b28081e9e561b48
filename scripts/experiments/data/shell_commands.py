"""NL2Bash (Lin et al. 2018): descriptions and shell commands, and how both are split into words that can be copied."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .rows import Row, collapse_spaces, read_rows

FOLDER = "nl2bash"
PUBLISHED = {"Sub-token CopyNet": "copynet_subtoken", "Tellina": "tellina"}


def read_command_pairs(data_dir: Path) -> dict[str, list[dict[str, str]]]:
    """Reads `train` and `validation`.

    As published, no two splits share a description or a command letter by letter. Here texts are compared without
    regard to spacing, descriptions also to case: a training pair whose description or command is in test or validation
    set is removed, and duplicates of a training pair are. All commands of a description are kept.
    """
    held_out = [*_read_split(data_dir, "test"), *_read_split(data_dir, "validation")]
    descriptions, commands = ({_key(row)[side] for row in held_out} for side in (0, 1))
    train = {_key(row): row for row in reversed(_read_split(data_dir, "train"))}  # the first one of duplicates
    kept = [row for (text, command), row in train.items() if text not in descriptions and command not in commands]
    return {"train": kept[::-1], "validation": _read_split(data_dir, "validation")}


def read_test_groups(data_dir: Path) -> list[dict[str, Any]]:
    """Reads the 547 descriptions of the test set as `text`, each with its commands as `answers`."""
    return group_by_description(_read_split(data_dir, "test"))


def group_by_description(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Collects the commands of each description, in order.

    Descriptions are compared letter by letter: no two of the test set, nor of the validation set, differ only in case
    and spacing.
    """
    answers: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        answers[row["text"]].append(row["summary"])
    return [{"text": text, "answers": commands} for text, commands in answers.items()]


def read_published_outputs(data_dir: Path, name: str = "copynet_subtoken") -> list[dict[str, Any]]:
    """Reads the outputs of a model of Lin et al., in the order of `read_test_groups`.

    Returns:
        for each description `text`, the best three `outputs`, and for each output whether it is `correct`, by the
        majority of the paper's three judges.
    """
    rows = read_rows(data_dir / FOLDER / f"published_predictions_{name}.jsonl")
    predictions = {row["source"]: row["predictions"] for row in rows}
    return [
        {
            "text": group["text"],
            "outputs": [output["prediction"] for output in predictions[group["text"]]],
            "correct": [output["correct_command"] == "y" for output in predictions[group["text"]]],
        }
        for group in read_test_groups(data_dir)
    ]


def _read_split(data_dir: Path, split: str) -> list[dict[str, str]]:
    rows = read_rows(data_dir / FOLDER / f"{split}.jsonl")
    return [{"text": row["source"], "summary": row["target"]} for row in rows]


def _key(row: Row) -> tuple[str, str]:
    return collapse_spaces(row["text"]).casefold(), collapse_spaces(row["summary"])


# ---- words


JOINER = "\uffed"
_PIECES = re.compile(r"^--?[A-Za-z]+(?:-[A-Za-z]+)*|\{\}|\\;|[^\W\d_]+|\d+|[\W_]")


def prepare(text: str) -> str:
    r"""Splits a description or a command into words separated by spaces, for `segmenter="whitespace"`.

    Runs of letters, runs of digits and all other characters become words of their own, so that a description and its
    command share words in spite of quotes and punctuation: `"*.txt"`, `*.txt` and `.txt` share `txt`, `100KB` and
    `+100k` share `100`. Options, `{}` and `\;` stay whole.

    `￭` marks missing spaces: it is attached to a punctuation mark on the side of its neighbour, and is a word of its
    own between two words. `-size +100k` becomes `-size +￭ 100 ￭ k`. So words are the same in every context.
    """
    return " ".join(_split(chunk) for chunk in text.split())


def _split(chunk: str) -> str:
    pieces = _PIECES.findall(chunk)
    words = pieces[0]
    for before, piece in pairwise(pieces):
        words += f" {JOINER}" if _is_mark(piece) else f"{JOINER} " if _is_mark(before) else f" {JOINER} "
        words += piece
    return words


def _is_mark(piece: str) -> bool:
    return len(piece) == 1 and not piece.isalnum()


def restore(words: str) -> str:
    """Joins words again: `restore(prepare(text))` is `text` up to spacing, unless `text` has a `￭`."""
    return re.sub(f" ?{JOINER} ?", "", words)


def restore_pieces(words: Sequence[str]) -> list[str]:
    """What each word contributes to `restore(" ".join(words))`, with the space before it."""
    restored: list[str] = []
    is_joined = True
    for word in (each.strip() for each in words):
        is_joined |= word.startswith(JOINER)
        restored.append(("" if is_joined else " ") + word.strip(JOINER))
        is_joined = word.endswith(JOINER)
    return restored
