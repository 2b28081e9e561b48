"""How the words of targets are reached: known, copied, joined from other words, or spelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..model.segmentation import JOINER, is_spelled
from ..model.source import Source
from ..model.tokenization_copynet import CopyNetTokenizer

KINDS = ("known", "copied", "joined", "spelled", "unknown")


class Reach(NamedTuple):
    """How often the words of targets are reached in each way; those that are spelled or unknown, with their sources.

    words: by kind. "known": in the vocabulary. "copied": whole, from the source. "joined": of words, parts or letters,
        perhaps in another case. "spelled": mostly of letters. "unknown": UNK.
    hard: (word, words of its source), "spelled" and "unknown".
    """

    words: Counter[str]
    hard: list[tuple[str, list[str]]]

    @property
    def num_words(self) -> int:
        return self.words.total()


def measure_reach(tokenizer: CopyNetTokenizer, pairs: Iterable[Mapping[str, Any]]) -> Reach:
    """The reach of the targets of these pairs."""
    reach = Reach(Counter(), [])
    known = tokenizer.get_vocab().keys() - {*tokenizer.all_special_tokens}
    for row in pairs:
        source = tokenizer.encode_source(row["text"], row.get("facts"))
        for word in tokenizer.tokenize(row["summary"]):
            if word == JOINER:
                continue
            kind = "known" if word in known else find_kind(tokenizer, word, source)
            reach.words[kind] += 1
            if kind in ("spelled", "unknown"):
                reach.hard.append((word, source.words))
    return reach


def find_kind(tokenizer: CopyNetTokenizer, word: str, source: Source) -> str:
    """One of `KINDS`, for a word of a target."""
    ids = tokenizer.encode_target([word], source)
    if len(ids) == 1:
        return "unknown" if ids[0] == tokenizer.unk_token_id else "known" if ids[0] < len(tokenizer) else "copied"
    return "spelled" if is_spelled(source.spell(ids)) else "joined"
