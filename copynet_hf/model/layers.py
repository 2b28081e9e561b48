"""What encoders and decoders are made of: dropout, repeated words, the attention of Eq. 3, the read of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor, nn

from .configuration_copynet import CopyNetConfig
from .copy_distribution import (
    expand_to_rows,
    find_first_positions,
    group_by_source,
    has_values,
    masked_softmax,
    replace_by_unk,
)
from .memory import FeatureMemory, read_memory
from .outputs import CopyNetEncoderOutput

NEIGHBOURS = 3  # on either side, of a mention of a word, which are read where the word is mentioned again


def part_widths(config: CopyNetConfig) -> dict[str, int]:
    """The widths of what a state, a readout or a switch is computed from: s_t, c_t, e(y_{t-1}) and ζ(y_{t-1})."""
    return {
        "state": config.hidden_size,
        "context": config.memory_size,
        "embedding": config.embedding_size,
        "selective_read": config.memory_size,
    }


def join_parts(parts: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """[s_t; c_t; …], the parts of these names beside each other: (…, the sum of their widths)."""
    return torch.cat([parts[name] for name in names], dim=-1)


class Dropout(nn.Dropout):
    """`nn.Dropout`, but twice as fast on a CPU: `torch.rand` takes a third of the time of `bernoulli_`."""

    def forward(self, input: Tensor) -> Tensor:
        """The input, each value zero with probability p and else divided by 1 − p, in training."""
        if not (self.training and self.p and input.is_cpu) or self.p == 1:
            return super().forward(input)
        keep = torch.rand(input.shape, dtype=torch.float32, device=input.device) >= self.p
        return input * keep.to(input.dtype).div_(1 - self.p)


class AddedProjection(nn.Linear):
    """W x, with W = 0 at first, so that it can be added to a trained model."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)


class AddedEmbedding(nn.Embedding):
    """One vector, zero at first, so that it can be added to a trained model."""


class TiedRepetitions(nn.Module):
    """Ties the mentions of a rare word to each other: each but the first to the first, and this to the second.

    Where x_j is tied to x_i, e(x_j) + r + W_n [e(x_{i-3}); …; e(x_{i+3})] is read, and W_r h_i is added to h_j; at
    first mentions, r' and W_f take the places of r and W_r. Rare are words outside the vocabulary, and those of
    `is_rare`. Without it, a name that is read again looks like another name, or nearly so where letters are read; and
    nothing says that a word appears elsewhere in the source.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, config.embedding_size)  # r
        self.output_proj = nn.Linear(config.memory_size, config.memory_size, bias=False)  # W_r
        self.first_embedding = AddedEmbedding(1, config.embedding_size)  # r'
        self.first_proj = AddedProjection(config.memory_size, config.memory_size)  # W_f
        window_size = (2 * NEIGHBOURS + 1) * config.embedding_size
        self.neighbour_proj = AddedProjection(window_size, config.embedding_size)  # W_n
        self.register_buffer("is_rare", torch.zeros(config.vocab_size, dtype=torch.bool))
        self.num_slots = config.max_source_oov

    is_rare: Tensor
    """(V,) bool: the words of the vocabulary whose mentions are tied; saved, not a parameter."""

    def find_partners(self, ids: Tensor, read: Tensor) -> Tensor:
        """(B, S) the position that each is tied to, or its own, from extended ids (B, S) below V + slots."""
        slots = self.is_rare.new_ones(self.num_slots)
        return pair_mentions(ids, read & torch.cat([self.is_rare, slots])[ids], len(self.is_rare) + self.num_slots)

    def mark(self, embeddings: Tensor, partners: Tensor, is_read: Tensor) -> Tensor:
        """e(x_j) (B, S, E), + r or r' and W_n times the neighbours of the position of `partners` (B, S), if tied."""
        first, later = _find_tied(partners)
        windows, padded = find_neighbours(is_read, NEIGHBOURS), nn.functional.pad(embeddings, (0, 0, 0, 1))

        def read_window(rows: Tensor, places: Tensor) -> Tensor:
            return padded[rows[..., None], windows[rows, places]].flatten(-2)

        row = partners.new_zeros(1)  # the only one of each table, read by its module, for adapters and offloading
        marks = self.embedding(row) * later[..., None] + self.first_embedding(row) * first[..., None]
        return _add_read(embeddings + marks, partners, first | later, self.neighbour_proj, read_window)

    def add_partners(self, states: Tensor, partners: Tensor) -> Tensor:
        """h_j (B, S, D), + W_r or W_f times that of the position it is tied to."""

        def read_state(rows: Tensor, places: Tensor) -> Tensor:
            return states[rows, places]

        first, later = _find_tied(partners)
        added = _add_read(states, partners, later, self.output_proj, read_state)
        return _add_read(added, partners, first, self.first_proj, read_state)

    def resize(self, vocab_size: int) -> None:
        """Follows a new vocabulary size: words that are added are rare, as they were outside the vocabulary."""
        is_rare = self.is_rare.new_ones(vocab_size)
        kept = min(vocab_size, len(self.is_rare))
        is_rare[:kept] = self.is_rare[:kept]
        self.is_rare = is_rare


def pair_mentions(ids: Tensor, is_tied: Tensor, width: int) -> Tensor:
    """For each position (B, S) another one with the same word: the first, and for the first the second. Its own where
    there is none, or `is_tied` (B, S) is false.

    Args:
        ids: (B, S) below `width`.
    """
    own = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    first = find_first_positions(ids, is_tied, width)
    second = find_first_positions(ids, is_tied & (own > first), width)
    partners = torch.where(own > first, first, torch.where(second < ids.shape[1], second, own))
    return torch.where(is_tied, partners, own)


def find_neighbours(is_read: Tensor, number: int) -> Tensor:
    """(B, S, 2 · number + 1) the positions of each word that is read and its neighbours, in their order and wherever
    there is padding; S beyond the first and the last word."""
    rows, size = is_read.shape
    ranks, width = is_read.cumsum(-1) - 1, size + 2 * number
    own = torch.arange(size, device=is_read.device).expand_as(ranks)
    columns = torch.where(is_read, ranks + number, width)  # the last one collects what is not read
    places = own.new_full((rows, width + 1), size).scatter(1, columns, own)
    around = ranks.clamp(min=0)[..., None] + torch.arange(2 * number + 1, device=is_read.device)
    return places.gather(1, around.flatten(1)).view_as(around)


def _find_tied(partners: Tensor) -> tuple[Tensor, Tensor]:
    """(B, S) bool each: the first mentions that are tied to the second, and those that are tied to the first."""
    own = torch.arange(partners.shape[1], device=partners.device)
    return partners > own, partners < own


def _add_read(
    values: Tensor, partners: Tensor, is_tied: Tensor, proj: nn.Linear, read: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Values (B, S, ·), + the projection of what is read at the position of `partners` (B, S), where `is_tied`.

    Args:
        read: returns vectors (…, ·) of rows (…,) and positions (…,).
    """
    if has_values(values):  # few words are tied: a product over all positions takes a tenth of a training step
        rows, places = is_tied.nonzero(as_tuple=True)
        added = proj(read(rows, partners[rows, places]))
        return values.index_put((rows, places), added.to(values.dtype), accumulate=True)
    rows = torch.arange(partners.shape[0], device=partners.device)[:, None]
    return values + proj(read(rows.expand_as(partners), partners) * is_tied[..., None])


class AlignedWords(nn.Module):
    """The words that may be generated for each source word (CoRe): a saved table, not a parameter."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.unk_token_id = config.unk_token_id
        self.register_buffer("table", torch.full((config.vocab_size, config.aligned_words), config.unk_token_id))

    table: Tensor
    """(V, aligned_words) ids, filled up with UNK."""

    def forward(self, source_ids: Tensor, source_mask: Tensor) -> Tensor:
        """(B, V) bool: the words that a source (B, S) allows, UNK among them."""
        words = replace_by_unk(source_ids, len(self.table), self.unk_token_id)
        aligned = self.table[words].masked_fill(~source_mask[..., None], self.unk_token_id)
        allowed = torch.zeros(words.shape[0], len(self.table), dtype=torch.bool, device=words.device)
        allowed[:, self.unk_token_id] = True
        return allowed.scatter_(1, aligned.flatten(1), True)

    def resize(self, vocab_size: int) -> None:
        """Follows a new vocabulary size: new words are aligned with none, and none with removed ones."""
        table = self.table.new_full((vocab_size, self.table.shape[1]), self.unk_token_id)
        kept = min(vocab_size, len(self.table))
        table[:kept] = replace_by_unk(self.table[:kept], vocab_size, self.unk_token_id)
        self.table = table


class CopyNetAttention(nn.Module):
    """a_tj = softmax_j v·tanh(U h_j + W s_{t-1} (+ w_cov cov_tj)): Eq. 3; with coverage, See et al. 2017, Eq. 11.

    Shapes: `memory.py`, but H is query_size, D memory_size.
    """

    def __init__(self, memory_size: int, query_size: int, attention_size: int, coverage: bool = False) -> None:
        super().__init__()
        self.key_proj = nn.Linear(memory_size, attention_size)  # U
        self.query_proj = nn.Linear(query_size, attention_size, bias=False)  # W
        self.score_proj = nn.Linear(attention_size, 1, bias=False)  # v
        self.coverage_proj = AddedProjection(1, attention_size) if coverage else None

    def keys(self, hidden_states: Tensor) -> Tensor:
        """U h_j: (N, S, A), the same at all steps."""
        return self.key_proj(hidden_states)

    def scores(self, queries: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """v·tanh(U h_j + W s_{t-1} (+ w_cov cov_tj)): (R, …, S) from queries (R, …, H), coverage (R, …, S)."""
        query = group_by_source(self.query_proj(queries), keys)  # W s_{t-1}: (N, R / N · …, A)
        units = keys[:, None] + query[:, :, None]  # (N, R / N · …, S, A)
        if self.coverage_proj is not None and coverage is not None:
            covered = group_by_source(coverage.to(keys.dtype), keys)  # (N, R / N · …, S)
            units = units + self.coverage_proj(covered[..., None])
        return self.score_proj(torch.tanh(units)).view(*queries.shape[:-1], keys.shape[1])

    def forward(self, queries: Tensor, keys: Tensor, mask: Tensor, coverage: Tensor | None = None) -> Tensor:
        """a_tj: (R, S) from queries (R, H), keys (N, S, A), mask (N, S) and coverage (R, S)."""
        return masked_softmax(self.scores(queries, keys, coverage), expand_to_rows(mask, queries.shape[0]))

    def read_features(self, queries: Tensor, features: FeatureMemory) -> Tensor:
        """Σ_k b_tk W_f e(f_k), b_tk = softmax_k v·tanh(U_f e(f_k) + W s_{t-1}): (R, …, D) from queries (R, …, H).

        The weights W and v are those of the words; the softmax is over the features alone.
        """
        mask = expand_to_rows(features.mask, queries.shape[0])
        mask = mask if queries.dim() == 2 else mask[:, None]
        return read_memory(masked_softmax(self.scores(queries, features.keys), mask), features.contents)


class FeatureProjection(nn.Module):
    """What `CopyNetAttention.read_features` needs of the features: keys U_f e(f_k) and contents W_f e(f_k).

    Features are a set, and a combination of features that training has not seen is read as any other.
    """

    def __init__(self, embedding_size: int, memory_size: int, attention_size: int) -> None:
        super().__init__()
        self.key_proj = nn.Linear(embedding_size, attention_size)  # U_f
        self.content_proj = nn.Linear(embedding_size, memory_size, bias=False)  # W_f

    def forward(self, encoded: CopyNetEncoderOutput) -> FeatureMemory | None:
        """The features of N sources; None: no features."""
        if encoded.features is None or encoded.feature_mask is None:
            return None
        features = encoded.features
        return FeatureMemory(self.key_proj(features), self.content_proj(features), encoded.feature_mask)
