"""Commands from descriptions (NL2Bash, Lin et al. 2018): the pairs, words that can be copied, and how outputs count.

Exact match is the percentage of descriptions that have a command among the first k outputs, letter by letter but for
spacing. The published outputs of Lin et al.'s sub-token CopyNet get 9.9 for the first and 15.5 for the first three.
Their paper's judges found 36.6 and 44.8 correct: few of the commands that would do are known.

That model learned commands that Lin et al.'s parser had rewritten. It never says `xargs -n1` or `find -type f`, and
the test's commands do. With both sides in the form of `spelled_out` it gets 11.2 and 17.7, the fairer comparison.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .runs import Row, read_rows
from .scores import single_spaced

FOLDER = "nl2bash"
PUBLISHED = {"Sub-token CopyNet": "copynet_subtoken", "Tellina": "tellina"}


# ---- data


def command_pairs(data_dir: Path) -> dict[str, list[dict[str, str]]]:
    """The pairs of train and validation.

    Letter by letter, no description and no command of the data is in two splits. Here it does not count as another one
    for its spacing, nor a description for its capitals: what is in test or validation is left out of train, and a pair
    that train has twice is taken once. All commands of a description are kept.
    """
    held_out = [*_rows(data_dir, "test"), *_rows(data_dir, "validation")]
    descriptions, commands = ({_key(row)[side] for row in held_out} for side in (0, 1))
    train = {_key(row): row for row in reversed(_rows(data_dir, "train"))}  # of a pair's rows the first one
    kept = [row for (text, command), row in train.items() if text not in descriptions and command not in commands]
    return {"train": kept[::-1], "validation": _rows(data_dir, "validation")}


def test_groups(data_dir: Path) -> list[dict[str, Any]]:
    """Each of the test's 547 descriptions as `text`, with its commands as `answers`."""
    return grouped(_rows(data_dir, "test"))


def grouped(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Descriptions and all of their commands, in order.

    No two descriptions of the test, or of validation, differ in nothing but capitals and spacing.
    """
    answers: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        answers[row["text"]].append(row["summary"])
    return [{"text": text, "answers": commands} for text, commands in answers.items()]


def published_outputs(data_dir: Path, name: str = "copynet_subtoken") -> list[dict[str, Any]]:
    """What a model of Lin et al. said, in the order of `test_groups`.

    Returns:
        for each description `text`, the best three `outputs`, and for each of these whether it is `correct`: whether
        most of the paper's three judges thought that the command does what the description says.
    """
    rows = read_rows(data_dir / FOLDER / f"published_predictions_{name}.jsonl")
    predictions = {row["source"]: row["predictions"] for row in rows}
    return [
        {
            "text": group["text"],
            "outputs": [one["prediction"] for one in predictions[group["text"]]],
            "correct": [one["correct_command"] == "y" for one in predictions[group["text"]]],
        }
        for group in test_groups(data_dir)
    ]


def _rows(data_dir: Path, split: str) -> list[dict[str, str]]:
    rows = read_rows(data_dir / FOLDER / f"{split}.jsonl")
    return [{"text": row["source"], "summary": row["target"]} for row in rows]


def _key(row: Row) -> tuple[str, str]:
    return single_spaced(row["text"]).casefold(), single_spaced(row["summary"])


# ---- words


JOINER = "\uffed"
_PIECES = re.compile(r"^--?[A-Za-z]+(?:-[A-Za-z]+)*|\{\}|\\;|[^\W\d_]+|\d+|[\W_]")


def prepare(text: str) -> str:
    r"""Splits a description or a command into words, for `segmenter="whitespace"`.

    Runs of letters, runs of digits and all other characters stand apart. So what a description quotes, or ends a
    sentence with, has the words that it has in the command: `"*.txt"`, `*.txt` and `.txt` share `txt`, `100KB` and
    `+100k` share `100`. Options, `{}` and `\;` stay whole.

    Words are the same wherever they stand: a character that touches one says so with `￭` on that side, and between two
    words that touch it stands alone. `-size +100k` becomes `-size +￭ 100 ￭ k`.
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
    """The text of any words in any order; that of `prepare(text)` is `text` but for spacing, unless it has a `￭`."""
    return re.sub(f" ?{JOINER} ?", "", words)


def pieces(words: Sequence[str]) -> list[str]:
    """For each word what it adds to `restore(" ".join(words))`, with the space before it."""
    shown: list[str] = []
    touches = True
    for word in (each.strip() for each in words):
        touches |= word.startswith(JOINER)
        shown.append(("" if touches else " ") + word.strip(JOINER))
        touches = word.endswith(JOINER)
    return shown


# ---- scores


_REWRITTEN: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(r"\s*(\|\|?|&&)\s*"), r" \1 "),
    (re.compile(r"\bfind (?=[-!(\\])"), "find . "),
    (re.compile(r"""(["'])\{\}\1|\\\{\\\}"""), "{}"),
    (re.compile(r"(?<=\s-)([A-Za-z])(?=\d|\{\})"), r"\1 "),
    (re.compile(r"(?<=\s)-([A-Za-z]{2,})(?!\S)"), lambda match: " ".join(f"-{letter}" for letter in match[1])),
    (re.compile(r"`([^`]*)`"), r"$(\1)"),
]


def spelled_out(command: str) -> str:
    """A form that commands have in common which differ only in what Lin et al.'s parser rewrites.

    Options of one letter stand apart from each other and from their values, what `find` searches is said, `{}` has no
    quotes, backquotes are `$( )`, and `|`, `||` and `&&` have spaces. Other quotes stay: they may mean something. The
    form is for comparing alone, `-name` is taken apart like `-la`.
    """
    for pattern, replacement in _REWRITTEN:
        command = pattern.sub(replacement, single_spaced(command))
    return single_spaced(command)


def judged_correct(rows: Sequence[Row], k: int = 1) -> float:
    """The percentage of `published_outputs` with one among the first k that the judges thought correct."""
    return 100 * sum(any(row["correct"][:k]) for row in rows) / len(rows)


# ---- what needs no learning


def most_frequent(rows: Iterable[Row], k: int = 3) -> list[str]:
    """The k commands that stand in most pairs."""
    return [command for command, _ in Counter(single_spaced(row["summary"]) for row in rows).most_common(k)]


class Nearest:
    """Answers with the commands of the most similar descriptions: cosine of TF-IDF, words and punctuation."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.commands = [single_spaced(row["summary"]) for row in rows]
        counts = [_terms(row["text"]) for row in rows]
        frequency = Counter(term for terms in counts for term in terms)
        self.idf = {term: math.log(len(rows) / number) for term, number in frequency.items()}
        self.rows_with: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for index, terms in enumerate(counts):
            vector = {term: count * self.idf[term] for term, count in terms.items()}
            length = math.hypot(*vector.values()) or 1.0
            for term, value in vector.items():
                self.rows_with[term].append((index, value / length))

    def __call__(self, text: str, k: int = 3) -> list[str]:
        """The k best different commands, fewer where few descriptions share a word."""
        similarity: dict[int, float] = defaultdict(float)
        for term, count in _terms(text).items():
            for index, value in self.rows_with.get(term, ()):
                similarity[index] += count * self.idf[term] * value
        best = sorted(similarity, key=lambda index: (-similarity[index], index))
        return list(dict.fromkeys(self.commands[index] for index in best))[:k]


def _terms(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", text.casefold()))
