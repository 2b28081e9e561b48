"""How right the surest outputs are, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

import numpy as np


def plot_coverage(curves: Mapping[str, Sequence[float] | np.ndarray], path: str | PathLike[str]) -> None:
    """Draws how many percent of the surest outputs are right, over their share, and saves the picture.

    Args:
        curves: by name, percentages for k of N outputs, k = 1 … N, or for as many shares of equal distance.
        path: of the picture, in the format of the file extension.
    """
    from matplotlib.figure import Figure

    # No pyplot: it would change global state and need a display.
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.plot(100 * np.arange(1, len(values) + 1) / len(values), values, label=name)
    axes.set(xlabel="surest outputs, %", ylabel="right, %", xlim=(0, 100), ylim=(0, 102))
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend()
    figure.savefig(path, dpi=150)
