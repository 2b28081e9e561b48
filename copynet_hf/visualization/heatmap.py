"""A heatmap of copy probabilities, output words against source words."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from .highlighting import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULT_FONT = "DejaVu Sans"  # comes with matplotlib
_MAX_LABEL = 30  # characters; longer words are cut, because the time to draw a label grows with its length
_FALLBACK_FONTS = {"Last Resort", "Last Resort High-Efficiency"}  # the same box for every character


def plot_copy_heatmap(
    copy_probs: Any,
    source_words: Sequence[str],
    target_words: Sequence[str],
    path: str | PathLike[str] | None = None,
) -> Figure:
    """Plots the probability of copying from each source word (columns) at each target step (rows).

    The form is that of Figure 3 of Gu et al. 2016. Long words are cut in the labels.

    Args:
        copy_probs: (T, S) array or tensor, such as `Prediction.copy_probs` or a row of
            `trace_copies(...).copy_probs`; what exceeds the words is taken for padding.
        source_words, target_words: at most S and T words.
        path: where to save the figure, in the format of the file extension; None: nowhere.

    Raises:
        ValueError: there are fewer probabilities than words, or no words.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    probs = np.asarray(copy_probs.float().cpu() if hasattr(copy_probs, "cpu") else copy_probs, dtype=float)
    steps, positions = len(target_words), len(source_words)
    if not steps or not positions or probs.ndim != 2 or probs.shape[0] < steps or probs.shape[1] < positions:
        raise ValueError(
            f"copy_probs has shape {probs.shape}: give (target steps, source positions), at least "
            f"({steps}, {positions}) for these words, and at least one word on each side"
        )
    # No pyplot: it would change global state and need a display.
    figure = Figure(figsize=(2.6 + 0.34 * positions, 2.2 + 0.32 * steps), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(probs[:steps, :positions], cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    source_labels, target_labels = (
        [shorten(word, _MAX_LABEL) for word in words] for words in (source_words, target_words)
    )
    text: dict[str, Any] = {"family": find_fonts([*source_labels, *target_labels]), "parse_math": False}
    axes.set_xticks(range(positions), source_labels, rotation=60, ha="right", rotation_mode="anchor", **text)
    for word, label in zip(source_labels, axes.get_xticklabels(), strict=True):
        if len(word.strip()) == 1:
            label.set(rotation=0, ha="center", rotation_mode="default")
    axes.set_yticks(range(steps), [word.strip() for word in target_labels], **text)
    axes.set_xticks(np.arange(0.5, positions - 1), minor=True)
    axes.set_yticks(np.arange(0.5, steps - 1), minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel("source")
    axes.set_ylabel("output")
    figure.colorbar(image, ax=axes, label="probability of copying", fraction=0.04, pad=0.02)
    if path is not None:
        with warnings.catch_warnings():  # find_fonts has warned, once for all characters
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(path, dpi=150)
    return figure


def find_fonts(words: Iterable[str]) -> list[str]:
    """Finds installed fonts that together have the words' characters, and warns about characters that no font has.

    matplotlib keeps its list of fonts in a file and does not notice fonts installed later. Where a character is
    missing, the system is searched for new fonts, so that the advice in the warning works.
    """
    from matplotlib.font_manager import fontManager

    missing = {char for word in words for char in word if char.isprintable() and not char.isspace()}
    families = [_DEFAULT_FONT]
    missing = _add_families(families, missing, fontManager.ttflist)
    if missing:
        missing = _add_families(families, missing, _register_new_fonts())
    if missing:
        shown = "".join(sorted(missing)[:10])
        warnings.warn(
            f"no installed font has {shown!r}{' and others' if len(missing) > 10 else ''}, which are drawn as boxes: "
            "install one that does (for Chinese and Japanese: Noto Sans CJK, package fonts-noto-cjk)",
            stacklevel=3,
        )
    return families


def _add_families(families: list[str], missing: set[str], entries: Iterable[Any]) -> set[str]:
    """Appends the families of fonts that have missing characters; returns the characters that are still missing."""
    from matplotlib.font_manager import get_font

    # The default font first, then CJK fonts, which have the most characters. A CJK font file has a family for each
    # regional form of the characters: simplified Chinese (SC) is preferred.
    def rank(entry: Any) -> tuple[bool, bool, bool, str]:
        return entry.name != _DEFAULT_FONT, "CJK" not in entry.name, "CJK SC" not in entry.name, entry.name

    for entry in sorted(entries, key=rank):
        if not missing:
            break
        if entry.name in _FALLBACK_FONTS or (entry.name in families and entry.name != _DEFAULT_FONT):
            continue
        font = get_font(entry.fname)
        found = {char for char in missing if font.get_char_index(ord(char))}
        if found and entry.name not in families:
            families.append(entry.name)
        missing = missing - found
    return missing


def _register_new_fonts() -> list[Any]:
    """Adds the system's fonts that matplotlib's list lacks; returns their entries."""
    from matplotlib import font_manager

    entries = font_manager.fontManager.ttflist
    before = len(entries)
    for path in sorted(set(font_manager.findSystemFonts()) - {entry.fname for entry in entries}):
        with suppress(Exception):  # a broken file or an unsupported format, which matplotlib's own scan skips too
            font_manager.fontManager.addfont(path)
    return entries[before:]
