"""How right the surest outputs are, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np


def plot_coverage(curves: Mapping[str, Sequence[float]], path: str | Path) -> None:
    """Draws the exact match of the surest outputs over their share, and saves the picture.

    Args:
        curves: by name, percentages for shares of equal distance, the last of them all outputs.
        path: of the picture, in a format that matplotlib writes, such as .png.
    """
    from matplotlib.figure import Figure  # here: slow to import

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, values in curves.items():
        axes.plot(100 * np.arange(1, len(values) + 1) / len(values), values, label=name)
    axes.set(xlabel="surest outputs, %", ylabel="right, %", xlim=(0, 100), ylim=(0, 102))
    axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend()
    figure.savefig(path, dpi=150)
