"""What encoders and decoders are made of: dropout, repeated words, the attention of Eq. 3, the read of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from .configuration_copynet import CopyNetConfig
from .copy_distribution import expand_to_rows, find_first_positions, group_by_source, has_values, masked_softmax
from .memory import FeatureMemory, read_memory
from .outputs import CopyNetEncoderOutput


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


class TiedRepetitions(nn.Module):
    """Ties each repetition of a word outside the vocabulary to its first mention: e(x_j) + r is read, and W_r h_i is
    added to h_j, where x_j = x_i and i is the position of that mention.

    Without it, a name that is read again looks like another name, or nearly so where letters are read.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, config.embedding_size)  # r
        self.output_proj = nn.Linear(config.memory_size, config.memory_size, bias=False)  # W_r

    def mark(self, embeddings: Tensor, first_mentions: Tensor) -> Tensor:
        """e(x_j) (B, S, E), + r where a word is repeated."""
        return embeddings + self.embedding.weight * _is_repeated(first_mentions)

    def add_first(self, states: Tensor, first_mentions: Tensor) -> Tensor:
        """h_j (B, S, D), + W_r h_i where a word is repeated."""
        is_repeated = _is_repeated(first_mentions)
        if has_values(states):  # few words are: a product over all positions takes a tenth of a training step
            rows, places, _ = is_repeated.nonzero(as_tuple=True)
            added = self.output_proj(states[rows, first_mentions[rows, places]])
            return states.index_put((rows, places), added.to(states.dtype), accumulate=True)
        first = states.gather(1, first_mentions[..., None].expand_as(states))
        return states + self.output_proj(first * is_repeated)


def find_first_mentions(ids: Tensor, read: Tensor, vocab_size: int, num_slots: int) -> Tensor:
    """(B, S) the position at which the word is mentioned first, if it owns a slot and is read; else its own position.

    Args:
        ids: (B, S) extended ids below `vocab_size` + `num_slots`.
        read: (B, S) bool.
    """
    is_unseen = read & (ids >= vocab_size)
    first = find_first_positions((ids - vocab_size).clamp(min=0), is_unseen, max(num_slots, 1))
    return torch.where(is_unseen, first, torch.arange(ids.shape[1], device=ids.device))


def _is_repeated(first_mentions: Tensor) -> Tensor:
    """(B, S, 1) bool."""
    return (first_mentions < torch.arange(first_mentions.shape[1], device=first_mentions.device))[..., None]


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
