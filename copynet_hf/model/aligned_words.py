"""The vocabulary of a source, for CoRe (Cao et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .configuration_copynet import CopyNetConfig
from .copy_distribution import replace_by_unk


class AlignedWords(nn.Module):
    """The words that may be generated for each source word (CoRe): a saved table, not a parameter."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.register_buffer("table", torch.full((config.vocab_size, config.aligned_words), config.unk_token_id))

    table: Tensor
    """(V, aligned_words) ids, filled up with UNK."""

    def forward(self, source_ids: Tensor, source_mask: Tensor, unk_token_id: int) -> Tensor:
        """(B, V) bool: the words that a source (B, S) allows, UNK among them."""
        words = replace_by_unk(source_ids, len(self.table), unk_token_id)
        aligned = self.table[words].masked_fill(~source_mask[..., None], unk_token_id)
        allowed = torch.zeros(words.shape[0], len(self.table), dtype=torch.bool, device=words.device)
        allowed[:, unk_token_id] = True
        return allowed.scatter_(1, aligned.flatten(1), True)

    def resize(self, vocab_size: int, unk_token_id: int) -> None:
        """Follows a new vocabulary size: new words are aligned with none, and none with removed ones."""
        table = self.table.new_full((vocab_size, self.table.shape[1]), unk_token_id)
        kept = min(vocab_size, len(self.table))
        table[:kept] = replace_by_unk(self.table[:kept], vocab_size, unk_token_id)
        self.table = table
