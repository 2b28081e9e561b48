"""A heatmap of copy probabilities, output words against source words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from .highlighting import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fonts with Chinese and Japanese characters, of Linux, macOS and Windows. Fonts for other scripts are named in
# matplotlib's `rcParams["font.family"]`.
CJK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Arial Unicode MS"),
)
_MAX_LABEL = 30  # characters; longer words are cut, because the time to draw a label grows with its length
_VISIBLE = str.maketrans({"\n": "⏎", "\t": "⇥"})


def plot_copy_heatmap(
    copy_probs: Any, source_words: Sequence[str], target_words: Sequence[str], path: str | PathLike[str] | None = None
) -> Figure:
    """Plots the probability of copying from each source word (columns) at each target step (rows).

    The form is that of Figure 3 of Gu et al. 2016. Long words are cut in the labels. Characters that no installed font
    has are drawn as boxes; for Chinese and Japanese, install Noto Sans CJK (package fonts-noto-cjk).

    Args:
        copy_probs: (T, S) array or tensor, such as `Prediction.copy_probs` or a row of
            `trace_copies(...).copy_probs`; what exceeds the words is taken for padding.
        source_words, target_words: at most S and T words.
        path: where to save the figure, in the format of the file extension; None: nowhere.

    Raises:
        ValueError: there are fewer probabilities than words, or no words.
    """
    from matplotlib.figure import Figure

    probs = np.asarray(copy_probs.float().cpu() if hasattr(copy_probs, "cpu") else copy_probs, dtype=float)
    steps, positions = len(target_words), len(source_words)
    if not steps or not positions or probs.ndim != 2 or probs.shape[0] < steps or probs.shape[1] < positions:
        raise ValueError(
            f"copy_probs has shape {probs.shape}: pass (target steps, source positions), at least "
            f"({steps}, {positions}) for these words, and at least one word on each side"
        )
    # No pyplot: it would change global state and need a display.
    figure = Figure(figsize=(2.6 + 0.34 * positions, 2.2 + 0.32 * steps), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(probs[:steps, :positions], cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    source_labels, target_labels = ([*map(_label, words)] for words in (source_words, target_words))
    axes.set_xticks(range(positions), source_labels, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(steps), target_labels)
    fonts = list_fonts()
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set(family=fonts, parse_math=False)
    for word, label in zip(source_labels, axes.get_xticklabels(), strict=True):
        if len(word) == 1:
            label.set(rotation=0, ha="center", rotation_mode="default")
    axes.set_xticks(np.arange(0.5, positions - 1), minor=True)
    axes.set_yticks(np.arange(0.5, steps - 1), minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel("source")
    axes.set_ylabel("output")
    figure.colorbar(image, ax=axes, label="probability of copying", fraction=0.04, pad=0.02)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _label(word: str) -> str:
    """A word without the spaces around it, at most `_MAX_LABEL` characters; whitespace by visible signs."""
    return shorten(word.strip() or re.sub(r"\s", "␣", word.translate(_VISIBLE)), _MAX_LABEL)


def list_fonts() -> list[str]:
    """The fonts of matplotlib's settings, then the installed ones of `CJK_FONTS`.

    matplotlib takes each character from the first font that has it, and warns about characters that none has.
    """
    from matplotlib import rcParams
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    return [*rcParams["font.family"], *(name for name in CJK_FONTS if name in installed)]
