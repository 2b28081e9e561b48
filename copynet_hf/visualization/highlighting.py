"""An output with its copied words marked, for terminals and HTML, or linked to their source positions."""

from __future__ import annotations

import html
import re
from collections.abc import Container, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from ..model.prediction import Prediction
from ..model.segmentation import find_space

Style = Literal["ansi", "plain", "html"]

# Before and after copied words.
COPY_MARKS: dict[str, tuple[str, str]] = {
    "ansi": ("\x1b[1;32m", "\x1b[0m"),
    "plain": ("[", "]"),
    "html": ("<mark>", "</mark>"),
}
# Before and after out-of-vocabulary words.
OOV_MARKS: dict[str, tuple[str, str]] = {
    "ansi": ("\x1b[4m", "\x1b[24m"),
    "plain": ("_", "_"),
    "html": ("<u>", "</u>"),
}
# The style of `copies_html`. Translucent colours suit light and dark pages; blue and orange remain distinct to the
# colour-blind. The last line of the element shows the origin of the word under the pointer.
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
# Highlights a source position while an output word copied from it is hovered or focused, and the other way round.
_LINK = """
.copynet-copies:has([data-from="{0}"]:hover) [data-at="{0}"],
.copynet-copies:has([data-at="{0}"]:hover) [data-from="{0}"],
.copynet-copies:not(:has(span:hover)):has([data-from="{0}"]:focus) [data-at="{0}"]
{{ background: rgb(230 159 0 / 0.5); outline: 2px solid rgb(230 159 0) }}
"""
_MAX_LABEL = 100  # characters of a word in the label that states its origin
_HINT = "Point at a word, or press Tab, to see where it came from."


def highlight_copies(
    words: Sequence[str],
    copied: Sequence[float],
    style: Style = "ansi",
    *,
    separator: str = " ",
    oov: Sequence[bool] | None = None,
) -> str:
    """Joins the words to a text with the copied ones marked, as in Figures 4 and 5 of Gu et al. 2016.

    Consecutive copied words get one mark.

    Args:
        copied: for each word, whether it was copied, or the share of its probability that comes from copying, as in
            `CopyTrace.copied`: it was copied if that is above 1/2.
        style: "ansi" for terminals, "plain" for [brackets], "html" for <mark>, with the words escaped.
        separator: between two words; "" for words that include their spaces, as in `Prediction.words`.
        oov: for each word, whether it is out-of-vocabulary and is underlined; None: no word is.

    Raises:
        ValueError: the style is unknown, or the numbers of words and flags differ.
    """
    if style not in COPY_MARKS:
        raise ValueError(f"style is {style!r}: choose one of {', '.join(COPY_MARKS)}")
    oov = [False] * len(words) if oov is None else oov
    for flags in (copied, oov):
        if len(words) != len(flags):
            raise ValueError(f"{len(words)} words have {len(flags)} flags: pass one flag per word")
    spans = []
    for is_copied, span in groupby(zip(copied, oov, words, strict=True), key=lambda row: bool(row[0] > 0.5)):
        parts = []
        for is_oov, part in groupby(span, key=lambda row: bool(row[1])):
            text = separator.join(word for _, _, word in part)
            text = html.escape(text) if style == "html" else text
            parts.append(_mark(text, OOV_MARKS[style]) if is_oov else text)
        text = separator.join(parts)
        spans.append(_mark(text, COPY_MARKS[style]) if is_copied else text)
    return separator.join(spans)


def _mark(text: str, marks: tuple[str, str]) -> str:
    """Puts the marks around the text, after its leading space."""
    if not text.strip():
        return text
    space = text[: len(text) - len(text.lstrip())]
    return f"{space}{marks[0]}{text[len(space) :]}{marks[1]}"


def copies_html(text: str, output: Mapping[str, Any] | Prediction, oov: Container[str] = ()) -> str:
    """Source and output as HTML in which each copied word and its source position highlight each other.

    For notebooks (`IPython.display.HTML`) and web pages, light or dark. It has no scripts and loads nothing; the texts
    are escaped.

    Args:
        text: the source; with facts, followed by these as they are to be shown.
        output: an output of `pipeline("copy-text2text")` or `CopyNetPredictor` for this source; with `copy_probs`,
            probabilities are shown.
        oov: out-of-vocabulary words to underline, as they are in the text.
    """
    if not isinstance(output, Mapping):
        output = {name: value for name, value in vars(output).items() if value is not None}
    found, rest = find_words(text, output["source_words"])
    if output.get("is_truncated") and any(before.strip() for before, _ in found[1:]):  # not what was read: the end was
        start = _find_start(text, output["source_words"])
        found, rest = find_words(text[start:], output["source_words"])
        found[0] = (text[:start] + found[0][0], found[0][1])
    source = [
        html.escape(before) + _span(word, f"position {position}", word in oov, f'data-at="{position}"')
        for position, (before, word) in enumerate(found)
    ]
    target, copied_from = [], set[int]()
    for step, (piece, copied) in enumerate(zip(output["words"], output["copied"], strict=True)):
        origin, attributes = "generated", 'tabindex="0" role="note"'
        if copied:
            position = output["source_positions"][step]
            origin, attributes = (
                f"copied from position {position}",
                f'{attributes} class="copied" data-from="{position}"',
            )
            if "copy_probs" in output:
                origin += f" with probability {output['copy_probs'][step][position]:.2f}"
            copied_from.add(position)
        word = piece.lstrip()
        target.append(piece[: len(piece) - len(word)] + _span(word, origin, word in oov, attributes))
    links = "".join(_LINK.format(position) for position in sorted(copied_from))
    return (
        f'<div class="copynet-copies"{lang_attribute(text)} data-hint="{_HINT}"><style>{_STYLE}{links}</style>'
        f'<p data-name="source">{"".join(source)}{html.escape(rest)}</p>'
        f'<p data-name="output">{"".join(target)}</p></div>'
    )


def _span(word: str, origin: str, is_oov: bool, attributes: str) -> str:
    """The word as an element whose label states its origin."""
    if not word:
        return ""
    text, label = html.escape(word), html.escape(f"{shorten(word, _MAX_LABEL)}: {origin}")
    text = _mark(text, OOV_MARKS["html"]) if is_oov else text
    return f'<span {attributes} aria-label="{label}">{text}</span>'


def shorten(text: str, length: int) -> str:
    """The text, cut to at most `length` characters, of which the last is then an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def find_words(text: str, words: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """Each word with the text before it, and the rest of the text.

    A word that is not found, because the tokenizer has normalised it or does not know it, follows a space, and takes
    the place of the text up to the next word. Whitespace is that of the text.
    """
    found: list[tuple[str, str]] = []
    end, is_lost = 0, False
    for word in words:
        space = find_space(text, word, end) if word.isspace() and not is_lost else None
        if space is not None:
            found.append((text[end : space[0]], text[slice(*space)]))
            end = space[1]
            continue
        start = text.find(word, end)
        if start < 0:
            found.append((" " if found else "", word))
            is_lost = True
        elif word:
            found.append((" " if is_lost else text[end:start], word))
            end, is_lost = start + len(word), False
        else:
            found.append(("", ""))
    return found, "" if is_lost else text[end:]


def _find_start(text: str, words: Sequence[str]) -> int:
    """Where the words start that end the text."""
    start = len(text)
    for word in reversed(words):
        start = len(text[:start].rstrip()) if word.isspace() else max(text.rfind(word, 0, start), 0)
    return start


def lang_attribute(text: str) -> str:
    """The `lang` attribute, by which browsers choose between the Chinese and the Japanese forms of characters."""
    language = "ja" if re.search("[\u3040-\u30ff]", text) else "zh" if re.search("[\u4e00-\u9fff]", text) else None
    return f' lang="{language}"' if language else ""
