"""The embedding of a word outside the vocabulary, composed of its letters.

Shapes: B rows, L letters of a row with the boundaries between words, W words of a row, E embedding_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .configuration_copynet import CopyNetConfig
from .dispatch import has_values
from .letters import BOUNDARY, UNKNOWN_LETTER

LETTER_SIZE = 32  # the width of a letter's embedding


class LetterEncoder(nn.Module):
    """W max_i ReLU(F [l_{i-1}; l_i; l_{i+1}] + b) over the letters l_i of a word, with l = 0 before and after it: a
    convolution over letters (Kim et al. 2016), here with filters of one width."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.embed_letters = nn.Embedding(config.letter_vocab_size, LETTER_SIZE)
        self.filters = nn.Linear(3 * LETTER_SIZE, config.embedding_size)  # F and b
        self.output_proj = nn.Linear(config.embedding_size, config.embedding_size, bias=False)  # W

    def forward(self, letter_ids: Tensor) -> Tensor:
        """(B, W, E) from (B, L): what the letters of each word add to its embedding, zero for a word without letters.

        W is the largest number of words in a row, or L if traced.
        """
        if letter_ids.shape[1] == 0:  # no row has words: one without letters, so that every weight has a gradient
            letter_ids = nn.functional.pad(letter_ids, (0, 1), value=BOUNDARY)
        num_letters = self.embed_letters.num_embeddings
        letter_ids = torch.where(letter_ids < num_letters, letter_ids, UNKNOWN_LETTER)
        is_letter = (letter_ids != BOUNDARY)[..., None]
        letters = self.embed_letters(letter_ids) * is_letter
        before, after = (nn.functional.pad(letters, (0, 0, *sides)) for sides in ((1, 0), (0, 1)))
        windows = torch.cat([before[:, :-1], letters, after[:, 1:]], dim=-1)
        filtered = torch.relu(self.filters(windows)) * is_letter
        words = (letter_ids == BOUNDARY).cumsum(-1) - 1
        pooled = filtered.new_zeros(letter_ids.shape[0], _count_words(words, is_letter[..., 0]), filtered.shape[-1])
        words = words.clamp(0, pooled.shape[1] - 1)[..., None].expand_as(filtered)
        pooled = pooled.scatter_reduce(1, words, filtered, "amax")
        return self.output_proj(pooled)


def _count_words(words: Tensor, is_letter: Tensor) -> int:
    """The words of the row that has most, without those of padding; if traced, as many as there are letters.

    Args:
        words: (B, L) the word of each letter.
        is_letter: (B, L) bool, false at boundaries and padding.
    """
    return int((words * is_letter).max()) + 1 if has_values(words) else words.shape[1]
