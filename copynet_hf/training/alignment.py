"""Which words translate which, for the vocabulary that CoRe takes from the source: IBM Model 1 (Brown et al. 1993).

Without its empty word, for every generated word is to have a reason in the source; and a word that stands several
times in a source counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

ITERATIONS = 5
CHUNK = 1_000


def align_vocabulary(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int, per_word: int, special_ids: Iterable[int]
) -> Tensor:
    """The target words that each source word brings about most often, by t(y | x) of IBM Model 1.

    Args:
        pairs: ids of a source and its target; those below 0, or from `vocab_size` on, are no words of the vocabulary.
            The pairs are gone through several times, a thousand at once: what is kept are the pairs of words that
            stand together.
        per_word: how many are kept of each word.
        special_ids: never aligned; the last of them fills the rows of words that have less than `per_word`.

    Returns:
        (vocab_size, per_word) ids, for `model.alignments.table`.
    """
    special = list(special_ids)
    keys = np.zeros(0, dtype=np.int64)
    for together, _ in _chunks(pairs, vocab_size, special):
        keys = np.union1d(keys, together)
    source_of, target_of = keys // vocab_size, keys % vocab_size
    probability = np.ones(len(keys))
    for _ in range(ITERATIONS if len(keys) else 0):
        counts = np.zeros(len(keys))
        for together, groups in _chunks(pairs, vocab_size, special):
            entry = np.searchsorted(keys, together)
            share = probability[entry] / np.bincount(groups, probability[entry])[groups]
            counts += np.bincount(entry, share, minlength=len(keys))
        probability = counts / np.bincount(source_of, counts)[source_of]
    table = np.full((vocab_size, per_word), special[-1])
    order = np.lexsort((target_of, -probability, source_of))
    rank = np.arange(len(order)) - np.searchsorted(source_of[order], source_of[order])
    kept = rank < per_word
    table[source_of[order][kept], rank[kept]] = target_of[order][kept]
    return torch.from_numpy(table)


def _chunks(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int, special: list[int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each target word and each different word of its source source · V + target, and which target word it is."""
    for first in range(0, len(pairs), CHUNK):
        keys, sizes = [], []
        for source, target in pairs[first : first + CHUNK]:
            of_source, of_target = _words(np.unique(source), vocab_size, special), _words(target, vocab_size, special)
            if len(of_source):
                keys.append((of_source[None, :] * vocab_size + of_target[:, None]).ravel())
                sizes.append(np.full(len(of_target), len(of_source)))
        if keys:
            size = np.concatenate(sizes)
            yield np.concatenate(keys), np.repeat(np.arange(len(size)), size)


def _words(ids: Sequence[int] | np.ndarray, vocab_size: int, special: list[int]) -> np.ndarray:
    words = np.asarray(ids, dtype=np.int64)
    return words[(words >= 0) & (words < vocab_size) & ~np.isin(words, special)]
