"""IBM Model 1 (Brown et al. 1993): the target words that each source word allows in CoRe (Cao et al. 2016).

There is no NULL word, because each generated word must follow from a source word, and repeated words of a source
count once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

ITERATIONS = 5  # of expectation-maximisation
CHUNK_SIZE = 1_000  # pairs


def align_vocabulary(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int, per_word: int, special_ids: Iterable[int]
) -> Tensor:
    """The target words y with the largest t(y | x) of IBM Model 1, for each source word x.

    Memory grows with the number of different word pairs (x, y) that occur together, not with the number of `pairs`,
    which are read in chunks once per iteration.

    Args:
        pairs: ids of a source and its target; those below 0 or from `vocab_size` on are ignored.
        per_word: number of target words for each source word.
        special_ids: ids that are never aligned; the last one fills the rows of words with fewer than `per_word`.

    Returns:
        (vocab_size, per_word) ids, for `model.alignments.table`.
    """
    special = list(special_ids)
    keys = np.zeros(0, dtype=np.int64)  # x · vocab_size + y of each pair of words that occur together
    for chunk_keys, _ in _cooccurrences(pairs, vocab_size, special):
        keys = np.union1d(keys, chunk_keys)
    source_ids, target_ids = keys // vocab_size, keys % vocab_size
    probs = np.ones(len(keys))  # t(y | x), up to a factor at first
    for _ in range(ITERATIONS):
        counts = np.zeros(len(keys))
        for chunk_keys, occurrence in _cooccurrences(pairs, vocab_size, special):
            index = np.searchsorted(keys, chunk_keys)
            posterior = probs[index] / np.bincount(occurrence, probs[index])[occurrence]  # E step: p(x | y, source)
            counts += np.bincount(index, posterior, minlength=len(keys))
        probs = counts / np.bincount(source_ids, counts)[source_ids]  # M step
    table = np.full((vocab_size, per_word), special[-1])
    order = np.lexsort((target_ids, -probs, source_ids))
    rank = np.arange(len(order)) - np.searchsorted(source_ids[order], source_ids[order])
    kept = rank < per_word
    table[source_ids[order][kept], rank[kept]] = target_ids[order][kept]
    return torch.from_numpy(table)


def _cooccurrences(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int, special: list[int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each chunk of the pairs, (n,) keys x · vocab_size + y for every occurrence of a target word y and every
    different word x of its source, and (n,) the number of that occurrence in the chunk."""
    for start in range(0, len(pairs), CHUNK_SIZE):
        keys, source_sizes = [], []
        for source, target in pairs[start : start + CHUNK_SIZE]:
            source_ids = _vocabulary_ids(np.unique(source), vocab_size, special)
            target_ids = _vocabulary_ids(target, vocab_size, special)
            if len(source_ids):
                keys.append((source_ids[None, :] * vocab_size + target_ids[:, None]).ravel())
                source_sizes.append(np.full(len(target_ids), len(source_ids)))
        if keys:
            sizes = np.concatenate(source_sizes)
            yield np.concatenate(keys), np.repeat(np.arange(len(sizes)), sizes)


def _vocabulary_ids(ids: Sequence[int] | np.ndarray, vocab_size: int, special: list[int]) -> np.ndarray:
    """The ids without special ones and those outside the vocabulary."""
    array = np.asarray(ids, dtype=np.int64)
    return array[(array >= 0) & (array < vocab_size) & ~np.isin(array, special)]
