"""Seeing what was copied: a heatmap over the source, and an output's copied words marked or linked with the source."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["ansi", "plain", "html"]

# What stands before and after a copied stretch.
MARKS: dict[str, tuple[str, str]] = {
    "ansi": ("\x1b[1;32m", "\x1b[0m"),
    "plain": ("[", "]"),
    "html": ("<mark>", "</mark>"),
}
# And before and after words that are not in the vocabulary.
UNSEEN_MARKS: dict[str, tuple[str, str]] = {
    "ansi": ("\x1b[4m", "\x1b[24m"),
    "plain": ("_", "_"),
    "html": ("<u>", "</u>"),
}
# What `copies_html` looks like. Tints let light and dark pages shine through; blue and orange differ to everybody. The
# last line says where the word that is pointed at came from.
_STYLE = """
.copynet-copies { position: relative; padding-bottom: 3em }
.copynet-copies p { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.8; margin: 0 0 0.8em }
.copynet-copies p::before { content: attr(data-name); display: block; font-size: 0.85em; opacity: 0.75 }
.copynet-copies span { border-radius: 0.2em }
.copynet-copies .copied { background: rgb(86 180 233 / 0.4) }
.copynet-copies u { text-underline-offset: 0.25em }
.copynet-copies span:is(:hover, :focus) { outline: 2px solid rgb(86 180 233) }
.copynet-copies::after, .copynet-copies span::after { position: absolute; left: 0; top: calc(100% - 3em) }
.copynet-copies:not(:has(span:is(:hover, :focus)))::after { content: attr(data-hint); opacity: 0.75 }
.copynet-copies span:hover::after { content: attr(aria-label) }
.copynet-copies:not(:has(span:hover)) span:focus::after { content: attr(aria-label) }
"""
# One word and its place in the source mark each other.
_LINK = """
.copynet-copies:has([data-from="{0}"]:hover) [data-at="{0}"],
.copynet-copies:has([data-at="{0}"]:hover) [data-from="{0}"],
.copynet-copies:not(:has(span:hover)):has([data-from="{0}"]:focus) [data-at="{0}"]
{{ background: rgb(230 159 0 / 0.5); outline: 2px solid rgb(230 159 0) }}
"""
_HINT = "Point at a word, or press Tab, to see where it came from."
_PLAIN_FONT = "DejaVu Sans"  # comes with matplotlib
_NO_FONTS = {"Last Resort", "Last Resort High-Efficiency"}  # a box for every character


def highlight_copies(
    words: Sequence[str],
    copied: Sequence[bool],
    style: Style = "ansi",
    *,
    separator: str = " ",
    unseen: Sequence[bool] | None = None,
) -> str:
    """The words as one text, each stretch of copied ones marked, as in the paper's Figures 4 and 5.

    Args:
        copied: for each word, whether it was copied.
        style: "ansi" for terminals, "plain" for [brackets], "html" for <mark> (everything else is escaped).
        separator: what stands between two words; "" where the words bring their own spaces.
        unseen: for each word, whether it is outside the vocabulary, to be underlined.

    Raises:
        ValueError: an unknown style, or another number of flags than of words.
    """
    if style not in MARKS:
        raise ValueError(f"unknown style {style!r}: choose one of {', '.join(MARKS)}")
    unseen = [False] * len(words) if unseen is None else unseen
    for flags in (copied, unseen):
        if len(words) != len(flags):
            raise ValueError(f"{len(words)} words, but {len(flags)} flags: give one for each word")
    stretches = []
    for is_copied, stretch in groupby(zip(copied, unseen, words, strict=True), key=lambda word: bool(word[0])):
        parts = []
        for is_unseen, part in groupby(stretch, key=lambda word: bool(word[1])):
            text = separator.join(word for _, _, word in part)
            text = html.escape(text) if style == "html" else text
            parts.append(_marked(text, UNSEEN_MARKS[style]) if is_unseen else text)
        text = separator.join(parts)
        stretches.append(_marked(text, MARKS[style]) if is_copied else text)
    return separator.join(stretches)


def _marked(text: str, marks: tuple[str, str]) -> str:
    """The text between marks, which leave out the space before it."""
    if not text.strip():
        return text
    space = text[: len(text) - len(text.lstrip())]
    return f"{space}{marks[0]}{text[len(space) :]}{marks[1]}"


def copies_html(text: str, output: Mapping[str, Any], unseen: Container[str] = ()) -> str:
    """Source and output as a piece of HTML in which each copied word and its place in the source mark each other.

    For notebooks (`IPython.display.HTML`) and pages, light or dark. There are no scripts in it, nothing is loaded, and
    what comes from the text is escaped.

    Args:
        text: the source, and after it its facts, if any, as they shall be shown.
        output: one of the outputs that `pipeline("copy-text2text")` gives for it; probabilities are said where it has
            `copy_probs`.
        unseen: words to be underlined, such as `tokenizer.oov_words(text)`.
    """
    found, rest = _find_words(text, output["source_words"])
    source = [
        html.escape(before) + _span(word, f"position {at}", word in unseen, f'data-at="{at}"')
        for at, (before, word) in enumerate(found)
    ]
    written, origins = [], set[int]()
    for step, (piece, copied) in enumerate(zip(output["words"], output["copied"], strict=True)):
        said, attributes = "generated", 'tabindex="0" role="note"'
        if copied:
            origin = output["source_positions"][step]
            said, attributes = f"copied from position {origin}", f'{attributes} class="copied" data-from="{origin}"'
            if "copy_probs" in output:
                said += f" with probability {output['copy_probs'][step][origin]:.2f}"
            origins.add(origin)
        word = piece.lstrip()
        written.append(piece[: len(piece) - len(word)] + _span(word, said, word in unseen, attributes))
    links = "".join(_LINK.format(origin) for origin in sorted(origins))
    return (
        f'<div class="copynet-copies"{_lang(text)} data-hint="{_HINT}"><style>{_STYLE}{links}</style>'
        f'<p data-name="source">{"".join(source)}{html.escape(rest)}</p>'
        f'<p data-name="output">{"".join(written)}</p></div>'
    )


def _span(word: str, said: str, is_unseen: bool, attributes: str) -> str:
    """The word with what is said when it is pointed at."""
    if not word:
        return ""
    text, label = html.escape(word), html.escape(f"{word}: {said}")
    text = _marked(text, UNSEEN_MARKS["html"]) if is_unseen else text
    return f'<span {attributes} aria-label="{label}">{text}</span>'


def _find_words(text: str, words: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """Each word with what stands before it in the text, and the rest of the text.

    Of a text that a tokenizer has changed, the words with spaces between them.
    """
    found, end = [], 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            return [(" " * bool(at), word) for at, word in enumerate(words)], ""
        found.append((text[end:start], word))
        end = start + len(word)
    return found, text[end:]


def _lang(text: str) -> str:
    """Chinese and Japanese share characters, but not their forms: the attribute makes browsers take the right ones."""
    language = "ja" if re.search("[\u3040-\u30ff]", text) else "zh" if re.search("[\u4e00-\u9fff]", text) else None
    return f' lang="{language}"' if language else ""


def plot_copy_heatmap(
    copy_probs: Any,
    source_words: Sequence[str],
    target_words: Sequence[str],
    path: str | PathLike[str] | None = None,
) -> Figure:
    """Probability of copying from each source word (across) at each target step (down), as the paper's Figure 3.

    Args:
        copy_probs: (T, S) array or tensor, such as a row of `trace_copies(...).copy_probs`; what lies beyond the
            words is padding and left out.
        source_words, target_words: at most S and T words.
        path: where to write the picture; its ending says the format.

    Raises:
        ValueError: fewer probabilities than words, or no words at all.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    probs = np.asarray(copy_probs.float().cpu() if hasattr(copy_probs, "cpu") else copy_probs, dtype=float)
    steps, positions = len(target_words), len(source_words)
    if probs.ndim != 2 or probs.shape[0] < steps or probs.shape[1] < positions or not steps * positions:
        raise ValueError(
            f"copy_probs has shape {probs.shape}: give (target steps, source positions), at least "
            f"({steps}, {positions}) for these words, and a word on each side"
        )
    # No pyplot: nothing global is touched, and no display is needed.
    figure = Figure(figsize=(2.6 + 0.34 * positions, 2.2 + 0.32 * steps), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(probs[:steps, :positions], cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    text: dict[str, Any] = {"family": fonts_for([*source_words, *target_words]), "parse_math": False}
    axes.set_xticks(range(positions), source_words, rotation=60, ha="right", rotation_mode="anchor", **text)
    for word, label in zip(source_words, axes.get_xticklabels(), strict=True):
        if len(word.strip()) == 1:  # nothing is gained by tilting it
            label.set(rotation=0, ha="center", rotation_mode="default")
    axes.set_yticks(range(steps), target_words, **text)
    axes.set_xticks(np.arange(0.5, positions - 1), minor=True)
    axes.set_yticks(np.arange(0.5, steps - 1), minor=True)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel("source")
    axes.set_ylabel("output")
    figure.colorbar(image, ax=axes, label="probability of copying", fraction=0.04, pad=0.02)
    if path is not None:
        with warnings.catch_warnings():  # fonts_for has said it, once and not for every character
            warnings.filterwarnings("ignore", message="Glyph .* missing")
            figure.savefig(path, dpi=150)
    return figure


def fonts_for(words: Iterable[str]) -> list[str]:
    """Installed fonts that together have the words' characters; warns about those that none has.

    Fonts that were installed after matplotlib listed them are looked at as well, and made known to it.
    """
    from matplotlib.font_manager import fontManager

    wanted = {char for word in words for char in word if char.isprintable() and not char.isspace()}
    families = [_PLAIN_FONT]
    wanted = _add_families(families, wanted, fontManager.ttflist)
    if wanted:
        wanted = _add_families(families, wanted, _new_fonts())
    if wanted:
        missing = "".join(sorted(wanted)[:10])
        warnings.warn(
            f"no installed font has {missing!r}{' and others' if len(wanted) > 10 else ''}, which are drawn as boxes: "
            "install one that does (for Chinese and Japanese: Noto Sans CJK, package fonts-noto-cjk)",
            stacklevel=3,
        )
    return families


def _add_families(families: list[str], wanted: set[str], entries: Iterable[Any]) -> set[str]:
    """Appends the families of those fonts that have some of the wanted characters; returns what none has."""
    from matplotlib.font_manager import get_font

    # The default font first, then those whose names speak of Chinese and Japanese: they have the most. One file of
    # theirs has several forms of each character; the simplified ones (SC) before those that only come first by name.
    def rank(entry: Any) -> tuple[bool, bool, bool, str]:
        return entry.name != _PLAIN_FONT, "CJK" not in entry.name, "CJK SC" not in entry.name, entry.name

    for entry in sorted(entries, key=rank):
        if not wanted:
            break
        if entry.name in _NO_FONTS or (entry.name in families and entry.name != _PLAIN_FONT):
            continue
        font = get_font(entry.fname)
        found = {char for char in wanted if font.get_char_index(ord(char))}
        if found and entry.name not in families:
            families.append(entry.name)
        wanted = wanted - found
    return wanted


def _new_fonts() -> list[Any]:
    """The entries of fonts that are not yet in matplotlib's list, which it keeps in a file and seldom renews."""
    from matplotlib import font_manager

    listed = font_manager.fontManager.ttflist
    before = len(listed)
    for path in sorted(set(font_manager.findSystemFonts()) - {entry.fname for entry in listed}):
        # A broken file, or a format that matplotlib cannot read: the list is made without those, too.
        with suppress(Exception):
            font_manager.fontManager.addfont(path)
    return listed[before:]
