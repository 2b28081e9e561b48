"""Dropout: what it computes, beside `nn.Dropout`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from copynet_hf.model.layers import Dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_drops_as_nn_dropout_does(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ones = torch.ones(1_000, 400, dtype=dtype)
    for p in (0.1, 0.3, 0.75):
        dropped = Dropout(p)(ones)
        assert dropped.dtype is dtype
        assert set(dropped.unique().tolist()) == set(nn.Dropout(p)(ones).unique().tolist())
        kept = dropped != 0
        share = kept.double().mean()
        assert abs(share - (1 - p)) < 5 * (p * (1 - p) / ones.numel()) ** 0.5
        assert kept.double().mean(0).std() < 2 * (p * (1 - p) / 1_000) ** 0.5  # no column is favoured
        assert kept.double().mean(1).std() < 2 * (p * (1 - p) / 400) ** 0.5


def test_gradient_passes_where_the_value_did() -> None:
    torch.manual_seed(0)
    values = torch.randn(50, 40, requires_grad=True)
    dropped = Dropout(0.4)(values)
    dropped.sum().backward()
    assert values.grad is not None
    expected = torch.where(dropped != 0, 1 / (1 - 0.4), 0.0)
    torch.testing.assert_close(values.grad, expected)
    torch.testing.assert_close(dropped, values * expected)


def test_is_nn_dropout_otherwise() -> None:
    values = torch.randn(20, 30)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
    assert not Dropout(1.0)(values).any()
    assert isinstance(Dropout(0.5), nn.Dropout)  # for those who change p or look for it
    assert Dropout(0.5)(values.to("meta")).is_meta
    with pytest.raises(ValueError, match="probability"):
        Dropout(1.5)


def test_is_repeated_by_the_seed() -> None:
    dropped = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        dropped.append(Dropout(0.5)(torch.ones(9, 9)))
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])
