"""The wrong outputs of an evaluation as a page, or as JSON lines: `copynet-hf evaluate --errors_file`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..inference.part_files import write_json_lines, write_whole
from ..visualization.highlighting import lang_attribute
from .errors import REASONS, FieldScore, Span, WrongOutput, count_reasons, find_wrong_outputs, score_fields

MAX_ROWS = 1000  # of the page

_STYLE = """
:root { color-scheme: light dark; --wrong: light-dark(#fbd5d0, #6b2a24); --wanted: light-dark(#cdebd0, #22502a);
  --copied: light-dark(#cfe6f7, #1d4560); --line: light-dark(#d5d8dc, #43474d); --quiet: light-dark(#5b626b, #a3abb5) }
body { font: 16px/1.6 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  background: light-dark(#fff, #17191c); color: light-dark(#1c1f23, #e4e7eb) }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse } th, td { text-align: left; padding: 0.15rem 1.2rem 0.15rem 0; vertical-align: top }
th { font-weight: 600; border-bottom: 1px solid var(--line) } td.number, th.number { text-align: right }
td.number { font-variant-numeric: tabular-nums }
.tables { overflow-x: auto }
article { border-top: 1px solid var(--line); padding: 0.8rem 0 }
article header { color: var(--quiet); font-size: 0.9rem } article header b { color: light-dark(#1c1f23, #e4e7eb) }
dl { display: grid; grid-template-columns: 6rem 1fr; gap: 0.25rem 0.5rem; margin: 0.4rem 0 0 }
dt { color: var(--quiet); font-size: 0.9rem } dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }
mark { background: var(--copied); color: inherit; border-radius: 0.2em }
del, ins { text-decoration: none; border-radius: 0.2em; padding: 0 0.1em; border-bottom: 2px solid }
del { background: var(--wrong); border-color: light-dark(#b3261e, #f2867c) }
ins { background: var(--wanted); border-color: light-dark(#1b7030, #74c987) }
:is(del, ins):empty::before { content: "\\2038" }
.quiet { color: var(--quiet) }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr } }
"""


def write_errors(path: Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Writes the wrong outputs, surest first; the file is there once it is whole.

    Args:
        path: in .html a page, which needs no other file and runs no script; in .jsonl a line an output.
        rows: of `evaluate_pairs`, those of right outputs as well.
    """
    outputs = find_wrong_outputs(rows)
    if path.suffix.lower() == ".jsonl":
        write_json_lines(path, map(describe_error, outputs))
        return
    page = format_page(outputs, len(rows), score_fields(rows), title)
    with write_whole(path) as file:
        file.write(page.encode(errors="backslashreplace"))  # a vocabulary may hold lone surrogates


def describe_error(output: WrongOutput) -> dict[str, Any]:
    """A wrong output as JSON: its row, its reasons, and each difference with both texts."""
    row, reference = output["row"], output["reference"]
    differences = [
        {
            "reason": reason,
            "output": row["prediction"][slice(*here)],
            "reference": reference[slice(*there)],
            "output_span": here,
            "reference_span": there,
        }
        for reason, here, there in output["differences"]
    ]
    reasons = list(dict.fromkeys(each["reason"] for each in differences))
    return {**row, "reasons": reasons, "differences": differences}


def format_page(outputs: Sequence[WrongOutput], total: int, fields: Mapping[str, FieldScore], title: str) -> str:
    """The page: how many outputs are wrong and why, the fields, and the outputs.

    Args:
        outputs: the wrong ones, surest first.
        total: the number of all outputs.
        fields: of `score_fields`; empty for outputs that are no named values.
    """
    reasons = count_reasons(outputs)
    tables = _format_table(
        ["why", "outputs", ""], [[reason, str(count), REASONS[reason]] for reason, count in reasons.items()]
    )
    if fields:
        rows = [
            [
                name,
                "" if score["accuracy"] is None else f"{score['accuracy']:.1f} %",
                str(score["count"]),
                str(score["added"]),
            ]
            for name, score in fields.items()
        ]
        tables += "<h2>Fields</h2>" + _format_table(["", "right", "references", "only in outputs"], rows)
    more = f", of which the {MAX_ROWS:,} surest are here" if len(outputs) > MAX_ROWS else ""
    more += "; some for several reasons" if sum(reasons.values()) > len(outputs) else ""
    name = html.escape(title)
    articles = "".join(map(_format_output, outputs[:MAX_ROWS]))
    if articles:
        articles = (
            '<h2>Wrong outputs, surest first</h2><p class="quiet"><mark>Copied</mark> words, <del>wrong</del> words '
            "of the output, and the <ins>words</ins> of the reference in their place; <ins></ins> marks a place where "
            f"one of the two has no words.</p>{articles}"
        )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Errors: {name}</title><style>{_STYLE}</style></head><body><h1>{name}</h1>"
        f'<p class="quiet">{len(outputs):,} of {total:,} outputs are wrong{more}.</p>'
        f'<div class="tables">{tables}</div>{articles}</body></html>\n'
    )


def _format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = list(rows)
    if not body:
        return ""
    kinds = [' class="number"' if cell[:1].isdigit() else "" for cell in body[0]]
    titles = "".join(f"<th{kind}>{html.escape(cell)}</th>" for cell, kind in zip(head, kinds, strict=True))
    lines = (
        "".join(f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) for row in body
    )
    return f"<table><tr>{titles}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _format_output(output: WrongOutput) -> str:
    row, reference = output["row"], output["reference"]
    reasons = ", ".join(dict.fromkeys(each.reason for each in output["differences"])) or "spacing"
    confidence = "" if row["confidence"] is None else f"confidence <b>{row['confidence']:.3f}</b>, "
    number = f"{html.escape(str(row['id']))}: " if "id" in row else ""
    copied = [span for span in row["source_spans"] if span is not None]
    texts = {
        "source": _mark_spans(row["text"], _join_spans(row["text"], copied), "mark"),
        "output": _mark_spans(row["prediction"], [each.output for each in output["differences"]], "del"),
        "reference": _mark_spans(reference, [each.reference for each in output["differences"]], "ins"),
    }
    lines = "".join(f"<dt>{name}</dt><dd{lang_attribute(row['text'])}>{text}</dd>" for name, text in texts.items())
    truncated = ", truncated" if row["is_truncated"] else ""
    return f"<article><header>{number}{confidence}{reasons}{truncated}</header><dl>{lines}</dl></article>\n"


def _join_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """The spans that hold more than spaces, in order; those with nothing but spaces between them as one."""
    joined: list[Span] = []
    for start, end in sorted(span for span in spans if text[slice(*span)].strip()):
        if joined and not text[joined[-1][1] : start].strip():
            start, last = joined.pop()
            end = max(end, last)
        joined.append((start, end))
    return joined


def _mark_spans(text: str, spans: Iterable[Span], tag: str) -> str:
    """The text as HTML, with an element around these characters, an empty one where there are none."""
    marked, end = "", 0
    for start, stop in spans:
        marked += f"{html.escape(text[end:start])}<{tag}>{html.escape(text[start:stop])}</{tag}>"
        end = stop
    return marked + html.escape(text[end:])
