"""Figure 4 of Gu et al. 2016: outputs with copied words coloured and words outside the vocabulary underlined."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from copynet_hf.inference.highlighting import Style, highlight_copies

from .runs import Row

STYLE = """body { max-width: 60em; margin: 2em auto; font-family: sans-serif } dt { margin-top: 1em }
mark { background: #bfe8c5 } u { text-decoration-color: #c0392b }"""
INTRODUCTION = """<h1>Figure 4</h1>
<p><mark>Coloured</mark>: the copy mode gave the word more than half of its probability. <u>Underlined</u>: the word is
not in the vocabulary.</p>"""


def with_unseen(folder: Path, outputs: Sequence[Row]) -> list[Row]:
    """The outputs, and which of their words and of their texts' words are not in the model's vocabulary."""
    if not outputs:
        return []
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = tokenizer.get_vocab()

    def unseen(words: Iterable[str]) -> list[bool]:
        return [word.strip() not in vocabulary for word in words]

    rows: list[Row] = []
    for output in outputs:
        words = tokenizer.tokenize(output["text"])
        of_text = {"text_words": words, "text_unseen": unseen(words)}
        rows.append({**output, "unseen": unseen(output["words"]), **of_text})
    return rows


def figure4(runs: Iterable[Mapping[str, Any]]) -> str:
    """The page: each model's outputs."""
    parts = []
    for model, outputs in _outputs(runs).items():
        parts += [f"<h2>{html.escape(model)}</h2>", "<dl>", *(_entry(output) for output in outputs), "</dl>"]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="zh">',
            f'<head><meta charset="utf-8"><title>Figure 4</title><style>{STYLE}</style></head>',
            f"<body>\n{INTRODUCTION}",
            *parts,
            "</body>\n</html>\n",
        ]
    )


def terminal(runs: Iterable[Mapping[str, Any]], style: Style) -> str:
    """The same for a terminal ("ansi"), or in [brackets] and _underlines_ ("plain")."""
    lines = []
    for model, outputs in _outputs(runs).items():
        for output in outputs:
            lines += ["", marked_text(output, style), f"  Reference: {output['reference']}"]
            lines += [f"  {model}: {marked_output(output, style)}"]
    return "\n".join(lines)


def _outputs(runs: Iterable[Mapping[str, Any]]) -> dict[str, Sequence[Row]]:
    """Those of each model's first seed that has some."""
    first: dict[str, Sequence[Row]] = {}
    for run in runs:
        if run.get("outputs"):
            first.setdefault(f"{run['model']}, {run['data']}", run["outputs"])
    return first


def _entry(output: Row) -> str:
    lines = [f"<dt>{marked_text(output, 'html')}</dt>", f"<dd>Reference: {html.escape(output['reference'])}</dd>"]
    if "paper" in output:
        lines.append(f"<dd>CopyNet in the paper: {html.escape(output['paper'])}</dd>")
    return "\n".join([*lines, f"<dd>Ours: <b>{marked_output(output, 'html')}</b></dd>"])


def marked_text(output: Row, style: Style) -> str:
    """The source, what is not in the vocabulary underlined."""
    words = output["text_words"]
    return highlight_copies(words, [False] * len(words), style, separator="", oov=output["text_unseen"])


def marked_output(output: Row, style: Style) -> str:
    """What the model said, copied words coloured, those that are not in the vocabulary underlined."""
    return highlight_copies(output["words"], output["copied"], style, separator="", oov=output["unseen"])
