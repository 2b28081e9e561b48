"""The words that a vocabulary is made of, counted so that what can be copied is copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from ..data.records import Row
from ..model.segmentation import CASES, Chains, get_segmenter, is_spelled, list_marks

MAX_GENERATED = 0.02
"""The share of a word's targets whose sources may lack it, for a word that sources often have in another case."""


def list_words(pairs: Iterable[Row], segmenter: str, generated_count: int, *, has_chains: bool) -> Iterator[list[str]]:
    """The words of sources, facts and targets, each as often as it counts.

    Without chains, all count. With them, a word of a target counts where its source has it, or where neither the case
    of a source word nor a chain with copies gives it. A word that is always copied, and sometimes in another case,
    does not count at all: a model that knows it would write it from memory, and not where it sees a new one.

    Args:
        generated_count: how often a word of a target counts that would have to be spelled.
    """
    split = get_segmenter(segmenter).split
    counts: Counter[str] = Counter()
    copied, cased, generated = Counter[str](), Counter[str](), Counter[str]()
    for row in pairs:
        facts = [word for fact in row.get("facts") or () for word in fact]
        source, target = [*split(row["text"]), *facts], split(row["summary"])
        counts.update(source)
        in_source = {*source}
        in_another_case = {change(word) for word in in_source for change in CASES.values()} if has_chains else set()
        others = [word for word in target if word not in in_source]
        generated.update(word for word in others if word not in in_another_case)
        cased.update(word for word in others if word in in_another_case)
        copied.update(word for word in target if word in in_source)
        if generated_count > 1:
            for word in _find_spelled(others, in_source, has_chains):
                generated[word] += generated_count - 1
    for word, number in cased.items():
        if generated[word] <= MAX_GENERATED * (number + copied[word]):
            del counts[word], copied[word], generated[word]
    return ([word] * number for each in (counts, copied, generated) for word, number in each.items())


def _find_spelled(words: list[str], source: Collection[str], has_chains: bool) -> list[str]:
    """The words that would have to be spelled."""
    if not has_chains:
        return words
    chains = Chains(list_marks(Counter(words)))
    found = ((word, chains.find(word, source)) for word in words)
    return [word for word, chain in found if chain is None or is_spelled(chain)]
