"""Figure 4 of Gu et al. 2016: outputs with copied words coloured and out-of-vocabulary words underlined."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from copynet_hf.visualization.highlighting import Style, highlight_copies

from ..data.rows import Row

STYLE = """body { max-width: 60em; margin: 2em auto; font-family: sans-serif } dt { margin-top: 1em }
mark { background: #bfe8c5 } u { text-decoration-color: #c0392b }"""
INTRODUCTION = """<h1>Figure 4</h1>
<p><mark>Coloured</mark>: the copy mode gave the word more than half of its probability. <u>Underlined</u>: the word is
not in the vocabulary.</p>"""


def mark_unseen_words(folder: Path, outputs: Sequence[Row]) -> list[Row]:
    """Adds which words of outputs and sources are out of the vocabulary of the folder's model.

    Returns:
        the outputs with `unseen` (of each word), `text_words` and `text_unseen`.
    """
    if not outputs:
        return []
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = tokenizer.get_vocab()

    def are_unseen(words: Iterable[str]) -> list[bool]:
        return [word.strip() not in vocabulary for word in words]

    rows: list[Row] = []
    for output in outputs:
        words = tokenizer.tokenize(output["text"])
        source = {"text_words": words, "text_unseen": are_unseen(words)}
        rows.append({**output, "unseen": are_unseen(output["words"]), **source})
    return rows


def render_html(runs: Iterable[Mapping[str, Any]]) -> str:
    """The figure as an HTML page."""
    parts = []
    for model, outputs in _collect_outputs(runs).items():
        parts += [f"<h2>{html.escape(model)}</h2>", "<dl>", *(_render_entry(output) for output in outputs), "</dl>"]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="zh">',
            f'<head><meta charset="utf-8"><title>Figure 4</title><style>{STYLE}</style></head>',
            f"<body>\n{INTRODUCTION}",
            *parts,
            "</body>\n</html>\n",
        ]
    )


def render_text(runs: Iterable[Mapping[str, Any]], style: Style) -> str:
    """The figure for a terminal ("ansi"), or with [brackets] and _underlines_ ("plain")."""
    lines = []
    for model, outputs in _collect_outputs(runs).items():
        for output in outputs:
            lines += ["", mark_source(output, style), f"  Reference: {output['reference']}"]
            lines += [f"  {model}: {mark_output(output, style)}"]
    return "\n".join(lines)


def _collect_outputs(runs: Iterable[Mapping[str, Any]]) -> dict[str, Sequence[Row]]:
    """The outputs of each model's first run that stored any, by model and data set."""
    outputs: dict[str, Sequence[Row]] = {}
    for run in runs:
        if run.get("outputs"):
            outputs.setdefault(f"{run['model']}, {run['data']}", run["outputs"])
    return outputs


def _render_entry(output: Row) -> str:
    lines = [f"<dt>{mark_source(output, 'html')}</dt>", f"<dd>Reference: {html.escape(output['reference'])}</dd>"]
    if "paper" in output:
        lines.append(f"<dd>CopyNet in the paper: {html.escape(output['paper'])}</dd>")
    return "\n".join([*lines, f"<dd>Ours: <b>{mark_output(output, 'html')}</b></dd>"])


def mark_source(output: Row, style: Style) -> str:
    """The source, out-of-vocabulary words underlined."""
    words = output["text_words"]
    return highlight_copies(words, [False] * len(words), style, separator="", oov=output["text_unseen"])


def mark_output(output: Row, style: Style) -> str:
    """The output, copied words coloured, out-of-vocabulary words underlined."""
    return highlight_copies(output["words"], output["copied"], style, separator="", oov=output["unseen"])
