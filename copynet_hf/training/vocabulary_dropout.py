"""Vocabulary dropout: words of a source become out-of-vocabulary words now and then.

The model then learns to copy words whatever they are, even from pairs that have hardly a word outside the vocabulary.
A model that reads letters also learns from those of known words: `septembre` then resembles `september`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from datasets import Dataset
from torch import Tensor

from ..model.configuration_copynet import CopyNetConfig
from ..model.copy_distribution import find_first_positions
from ..model.source import pad_rows
from ..model.vocabularies import BOUNDARY
from .dataset import Pairs, count_sources, spread
from .model_setup import RARE_SAMPLE_SIZE, RARE_SHARE
from .segmenters import are_few

COUNTED_PAIRS = 100_000
RARE, MAX_PROBABILITY = 5, 0.5  # a word of as many sources is dropped every second time, and none more often
COPIED_SHARE = 0.1  # a word that fewer of its sources share with their targets is hardly copied


def find_drop_probabilities(share: float, config: CopyNetConfig, rows: Pairs) -> Tensor:
    """The probabilities (2, V + K) of dropping each word: from a source that has it once, and from one that repeats
    it. They are `share`, or for a word of n sources `RARE / (RARE + n)` if that is more and the model reads letters,
    at most `MAX_PROBABILITY`; n is estimated from a sample.

    Rare words stand for those that training does not show: names that pairs have in common are in the vocabulary, the
    names of new texts are not. Kiperwasser and Goldberg (2016) drop the words of a parser's sentences in this way.

    A model that ties repetitions ties those of words that are dropped. Of frequent words that are hardly copied, such
    as articles, no repetitions are tied later: they are not dropped where the source repeats them.

    Args:
        rows: the encoded training pairs. How often to drop is not counted in a stream, nor in few pairs, in which the
            words of the task itself are rare, too.
    """
    probabilities = torch.full((config.extended_vocab_size,), share)
    if share and config.letter_vocab_size and isinstance(rows, Dataset) and not are_few(rows):
        counts, num_counted = count_sources(rows, COUNTED_PAIRS)
        counted = torch.tensor([max(counts[index], 1) for index in range(config.extended_vocab_size)])
        num_sources = counted * len(rows) / num_counted
        probabilities = torch.maximum(probabilities, (RARE / (RARE + num_sources)).clamp(max=MAX_PROBABILITY))
    repeated = probabilities.clone()
    if share and config.tie_repetitions:
        repeated[_list_uncopied(rows)] = 0
    return torch.stack([probabilities, repeated])


def _list_uncopied(rows: Pairs) -> list[int]:
    """The ids of the frequent words that are hardly copied, as counted in a sample."""
    counts, copies, num_pairs = Counter[int](), Counter[int](), 0
    for row in spread(rows, RARE_SAMPLE_SIZE).select_columns(["input_ids", "labels"]):
        num_pairs += 1
        source = {*row["input_ids"]}
        counts.update(source)
        copies.update(source.intersection(row["labels"]))
    frequent = (index for index, count in counts.items() if count >= RARE_SHARE * num_pairs)
    return [index for index in frequent if copies[index] < COPIED_SHARE * counts[index]]


def drop_from_vocabulary(
    input_ids: Tensor, labels: Tensor, probabilities: Tensor, config: CopyNetConfig, can_copy: Tensor
) -> tuple[Tensor, Tensor]:
    """Gives each vocabulary word that a row's source and target share, with its probability, a free slot of the row;
    with letters also those of the source alone.

    All occurrences of a word in the row change together. Special symbols never change, nor does a word that cannot be
    copied, which would be UNK as a target, nor any once the row's slots are used up; shared words are the first to get
    one.

    Args:
        input_ids: (B, S) extended ids.
        labels: (B, T) extended ids, −100 where there is no target.
        probabilities: (2, V + K) of each id, from `find_drop_probabilities`.
        can_copy: (B, S) bool, the positions that can be copied.

    Returns:
        both with the new ids; the random numbers are the device's default generator's.
    """
    special_ids = [config.pad_token_id, config.decoder_start_token_id, config.unk_token_id, *config.end_token_ids]
    is_label = input_ids[:, :, None] == labels[:, None, :]  # (B, S, T)
    is_shared = is_label.any(-1)
    can_drop = input_ids < config.vocab_size
    if not config.letter_vocab_size:
        can_drop &= is_shared
    can_drop &= ~torch.isin(input_ids, torch.tensor(special_ids, device=input_ids.device))
    length = input_ids.shape[1]
    first_positions = find_first_positions(input_ids, can_copy, config.extended_vocab_size)
    is_first = first_positions == torch.arange(length, device=input_ids.device)
    ones = torch.ones_like(input_ids, dtype=torch.int16)
    counts = ones.new_zeros(len(input_ids), config.extended_vocab_size).scatter_add(1, input_ids, ones)
    is_repeated = counts.gather(1, input_ids) > 1
    drawn = torch.rand(input_ids.shape, device=input_ids.device)
    is_dropped = can_drop & is_first & (drawn < probabilities[is_repeated.long(), input_ids])
    first_free = (input_ids.amax(1, keepdim=True) + 1).clamp(min=config.vocab_size)
    shared, others = is_dropped & is_shared, is_dropped & ~is_shared
    numbers = torch.where(is_shared, shared.cumsum(1), shared.sum(1, keepdim=True) + others.cumsum(1))
    slots = first_free + numbers - 1
    is_dropped &= slots < config.extended_vocab_size
    changed = torch.where(is_dropped, slots, input_ids).gather(1, first_positions.clamp(max=length - 1))
    changed = torch.where(first_positions < length, changed, input_ids)
    new_labels = (slots[:, :, None] * (is_label & is_dropped[:, :, None])).amax(1)
    return changed, torch.where(new_labels > 0, new_labels, labels)


def append_letters(
    letter_ids: Tensor, input_ids: Tensor, changed: Tensor, letters: Sequence[Sequence[int]], vocab_size: int
) -> Tensor:
    """The letters of all words that own slots, after `drop_from_vocabulary`: (B, L').

    Args:
        letter_ids: (B, L) those of the words that owned slots before.
        input_ids, changed: (B, S) the ids before and after.
        letters: of each word of the vocabulary.
    """
    rows = []
    for own, before, after in zip(letter_ids.tolist(), input_ids.tolist(), changed.tolist(), strict=True):
        dropped = {slot: word for slot, word in zip(after, before, strict=True) if slot != word}
        starts = [place for place, letter in enumerate(own) if letter == BOUNDARY]
        num_owned = max(0, max(before) + 1 - vocab_size)
        end = starts[num_owned] if num_owned < len(starts) else len(own)  # what follows is padding
        rows.append(own[:end] + [letter for slot in sorted(dropped) for letter in letters[dropped[slot]]])
    return torch.tensor(pad_rows(rows, BOUNDARY, 1), device=letter_ids.device)
