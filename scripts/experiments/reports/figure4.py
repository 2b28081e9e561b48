"""Figure 4 of Gu et al. 2016: outputs with copied words coloured and out-of-vocabulary words underlined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ..data.rows import Row
from .markdown import TEMPLATES


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
    """The figure as an HTML page, with the outputs of each model's first run that stored any."""
    models: dict[str, Sequence[Row]] = {}
    for run in runs:
        if run.get("outputs"):
            models.setdefault(f"{run['model']}, {run['data']}", run["outputs"])
    return TEMPLATES.get_template("table3.html.jinja").render(models=models)
