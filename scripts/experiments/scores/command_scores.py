"""How shell commands are scored, and baselines without training (NL2Bash, Lin et al. 2018).

Exact match is the percentage of descriptions with one of their commands among the first k outputs, up to spacing. The
published outputs of Lin et al.'s sub-token CopyNet get 9.9 (k = 1) and 15.5 (k = 3). Their judges found 36.6 % and
44.8 % correct: most descriptions have more correct commands than the data lists.

That model was trained on commands that Lin et al.'s parser had rewritten. It never writes `xargs -n1` or
`find -type f`, which the test set has. With `spell_out` applied to both sides it gets 11.2 and 17.7, the fairer
comparison.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ..data.rows import Row, collapse_spaces

_QUOTED_WORD = re.compile(r"""(["'])([\w./+:@%=,-]+)\1""")
_SPELLINGS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(r"\s*(\|\|?|&&)\s*"), r" \1 "),
    (re.compile(r"\bfind (?=[-!(\\])"), "find . "),
    (re.compile(r"""(["'])\{\}\1|\\\{\\\}"""), "{}"),
    (re.compile(r"(?<=\s-)([A-Za-z])(?=\d|\{\})"), r"\1 "),
    (re.compile(r"(?<=\s)-([A-Za-z]{2,})(?!\S)"), lambda match: " ".join(f"-{letter}" for letter in match[1])),
    (re.compile(r"`([^`]*)`"), r"$(\1)"),
]


def spell_out(command: str) -> str:
    """Rewrites a command so that two which differ only in what Lin et al.'s parser rewrites become equal.

    Options of one letter are separated from each other and from their values, `find` names its folder, `{}` has no
    quotes, backquotes become `$( )`, and `|`, `||` and `&&` have spaces around them. Other quotes may carry meaning
    and stay. The result is for comparison only: `-name` is split like `-la`.
    """
    for pattern, replacement in _SPELLINGS:
        command = pattern.sub(replacement, collapse_spaces(command))
    return collapse_spaces(command)


def remove_quotes(command: str) -> str:
    """Removes the quotes around words without special characters, which mean nothing to a shell."""
    command = collapse_spaces(command)
    return _QUOTED_WORD.sub(r"\2", command)


def score_judgements(rows: Sequence[Row], k: int = 1) -> float:
    """The percentage of `read_published_outputs` with an output among the first k that the judges found correct."""
    return 100 * sum(any(row["correct"][:k]) for row in rows) / len(rows)


# ---- baselines


def find_frequent_commands(rows: Iterable[Row], k: int = 3) -> list[str]:
    """The k commands that occur in most pairs."""
    return [command for command, _ in Counter(collapse_spaces(row["summary"]) for row in rows).most_common(k)]


class NearestDescriptions:
    """Proposes the commands of the most similar descriptions, by the cosine of TF-IDF over words and punctuation."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.commands = [collapse_spaces(row["summary"]) for row in rows]
        counts = [_count_terms(row["text"]) for row in rows]
        frequency = Counter(term for terms in counts for term in terms)
        self.idf = {term: math.log(len(rows) / number) for term, number in frequency.items()}
        self.rows_with: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for index, terms in enumerate(counts):
            vector = {term: count * self.idf[term] for term, count in terms.items()}
            length = math.hypot(*vector.values()) or 1.0
            for term, value in vector.items():
                self.rows_with[term].append((index, value / length))

    def __call__(self, text: str, k: int = 3) -> list[str]:
        """The k best different commands; fewer if few descriptions share a word with the text."""
        similarity: dict[int, float] = defaultdict(float)
        for term, count in _count_terms(text).items():
            for index, value in self.rows_with.get(term, ()):
                similarity[index] += count * self.idf[term] * value
        best = sorted(similarity, key=lambda index: (-similarity[index], index))
        return list(dict.fromkeys(self.commands[index] for index in best))[:k]


def _count_terms(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+|[^\w\s]", text.casefold()))
