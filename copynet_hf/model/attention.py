"""The attentive read's weights, Eq. 3."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .copy_distribution import masked_softmax
from .memory import by_source


class CoverageProjection(nn.Linear):
    """w_cov, which begins at zero: a model that is given coverage later begins where it ended without."""

    def __init__(self, attention_size: int) -> None:
        super().__init__(1, attention_size, bias=False)


class CopyNetAttention(nn.Module):
    """a_tj = softmax_j v·tanh(U h_j + W s_{t-1} (+ w_cov cov_tj)), Eq. 3 (coverage: See et al. 2017, Eq. 11).

    As tanh(x) = 2σ(2x) − 1 and a softmax drops constants, v·tanh(x) is computed as 2v·σ(2x): the sigmoid is several
    times faster than tanh on a CPU. The keys are doubled once, for all steps.
    """

    def __init__(self, memory_size: int, query_size: int, attention_size: int, coverage: bool = False) -> None:
        super().__init__()
        self.key_proj = nn.Linear(memory_size, attention_size)  # U
        self.query_proj = nn.Linear(query_size, attention_size, bias=False)  # W
        self.score_proj = nn.Linear(attention_size, 1, bias=False)  # v
        self.coverage_proj = CoverageProjection(attention_size) if coverage else None

    def forward(self, hidden: Tensor, keys: Tensor, mask: Tensor, coverage: Tensor | None) -> Tensor:
        """Weights (R, S) from s_{t-1} (R, H), 2U h (N, S, A), mask (R, S), coverage (R, S); R and N as in `Memory`."""
        return masked_softmax(self.scores(hidden, keys, coverage), mask)

    def scores(self, hidden: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """v·tanh(…) itself: (R, …, S) from states (R, …, H), and coverage (R, …, S)."""
        features = keys[:, None] + by_source(2 * self.query_proj(hidden), keys)[:, :, None]  # (N, R / N · …, S, A)
        if self.coverage_proj is not None and coverage is not None:
            covered = by_source(coverage.to(keys.dtype), keys)[..., None]
            features = features + covered * (2 * self.coverage_proj.weight[:, 0])
        scores = 2 * self.score_proj(torch.sigmoid(features)) - self.score_proj.weight.sum()
        return scores.view(*hidden.shape[:-1], keys.shape[1])
