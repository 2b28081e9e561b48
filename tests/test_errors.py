"""The wrong outputs of an evaluation: where they differ, why, and the page and lines that say so."""

from __future__ import annotations

import json
import re

import pytest

from copynet_hf.evaluation.error_report import write_errors
from copynet_hf.evaluation.errors import count_reasons, find_differences, find_wrong_outputs, score_fields


def make_row(text, reference, *words, confidence=0.5, right=False, is_truncated=False):
    """A row of `evaluate_pairs`; words with a star were copied from the first such word in the text."""
    plain = [word.removesuffix("*") for word in words]
    flags = [word.endswith("*") for word in words]
    starts = [text.index(word.strip()) if flag else None for word, flag in zip(plain, flags, strict=True)]
    spans = [
        None if start is None else (start, start + len(word.strip()))
        for word, start in zip(plain, starts, strict=True)
    ]
    return {
        "text": text,
        "reference": reference,
        "prediction": "".join(plain),
        "right": right,
        "score": confidence,
        "confidence": confidence,
        "words": plain,
        "copied": flags,
        "source_spans": spans,
        "is_truncated": is_truncated,
    }


TEXT = "mail bob and ann now"


@pytest.mark.parametrize(
    ("reference", "words", "expected"),
    [
        ("sent to ann", ["sent", " to", " bob*"], [("wrong copy", "bob", "ann")]),
        ("sent to ann", ["sent", " to", " carl"], [("generated instead of copied", "carl", "ann")]),
        ("sent to Ann", ["sent", " to", " bob*"], [("wrong copy", "bob", "Ann")]),
        ("sent to dora", ["sent", " to", " bob*"], [("word not in source", "bob", "dora")]),
        ("sent to ann", ["sent", " ann*"], [("missing", "", "to")]),
        ("sent", ["sent", " ann*", " now*"], [("added", "ann now", "")]),
        ("a ann now", ["b", " bob*", " now*"], [("word not in source", "b bob", "a ann")]),
        ("ann sent now", ["bob*", " sent", " today"],
         [("wrong copy", "bob", "ann"), ("generated instead of copied", "today", "now")]),
        ("sent", [], [("missing", "", "sent")]),
    ],
)  # fmt: skip
def test_a_difference_has_its_reason_and_its_places(reference, words, expected):
    row = make_row(TEXT, reference, *words)
    found = find_differences(row, reference)
    texts = [(reason, row["prediction"][slice(*here)], reference[slice(*there)]) for reason, here, there in found]
    assert texts == expected


def test_the_words_of_facts_are_in_the_source() -> None:
    facts = [["ann", "born in", "paris"], ["bob", "born in", "rome"]]
    row = make_row("rome", "paris", "rome*") | {"text": "where was ann born", "facts": facts}
    assert [each.reason for each in find_differences(row, "paris")] == ["wrong copy"]


def test_chinese_is_compared_by_characters():
    row = make_row("我喜欢北京上海", "北京好", "北*", "海*", "好")
    ((reason, here, there),) = find_differences(row, "北京好")
    assert (reason, here, there) == ("wrong copy", (1, 2), (1, 2))


def make_rows():
    return [
        make_row(TEXT, "sent to ann", "sent", " to", " bob*", confidence=0.2),
        make_row(TEXT, "sent to ann", "sent", " to", " ann*", confidence=0.9, right=True),
        make_row(TEXT, ["gone", "sent ann"], "sent", " bob*", confidence=0.7, is_truncated=True),
        make_row("<b> & co", "x", "<b>*", " & co*", confidence=None),
    ]


def test_wrong_outputs_come_surest_first_each_with_its_most_similar_reference():
    outputs = find_wrong_outputs(make_rows())
    assert [output["row"]["confidence"] for output in outputs] == [0.7, 0.2, None]
    assert [output["reference"] for output in outputs] == ["sent ann", "sent to ann", "x"]
    assert count_reasons(outputs) == {"wrong copy": 2, "word not in source": 1}


def test_the_lines_have_the_row_and_its_differences(tmp_path):
    write_errors(tmp_path / "deep" / "errors.jsonl", make_rows(), "a model")
    rows = [json.loads(line) for line in (tmp_path / "deep" / "errors.jsonl").read_text().splitlines()]
    assert [row["reasons"] for row in rows] == [["wrong copy"], ["wrong copy"], ["word not in source"]]
    assert rows[0]["differences"] == [
        {"reason": "wrong copy", "output": "bob", "reference": "ann", "output_span": [5, 8], "reference_span": [5, 8]}
    ]
    assert rows[0]["prediction"] == "sent bob"


def test_the_page_shows_source_output_and_reference_with_what_was_copied_and_what_differs(tmp_path):
    path = tmp_path / "errors.html"
    write_errors(path, make_rows(), "a <model>")
    page = path.read_text(encoding="utf-8")
    assert "3 of 4 outputs are wrong." in page
    assert "<h1>a &lt;model&gt;</h1>" in page
    articles = re.findall(r"<article>.*?</article>", page, re.DOTALL)
    headers = [article.split("</header>")[0] for article in articles]
    assert headers[0].endswith("confidence <b>0.700</b>, wrong copy, truncated")
    assert "truncated" not in headers[1]
    assert ">mail <mark>bob</mark> and ann now<" in articles[0]
    assert ">sent <del>bob</del><" in articles[0]
    assert ">sent <ins>ann</ins><" in articles[0]
    assert "<mark>&lt;b&gt; &amp; co</mark>" in articles[2]
    assert "<script" not in page
    assert "http" not in page
    assert "<h2>Fields</h2>" not in page


def test_the_page_says_where_outputs_are_counted_for_several_reasons(tmp_path):
    row = make_row(TEXT, "please sent ann", "sent", " bob*")
    write_errors(tmp_path / "errors.html", [row], "a model")
    assert "1 of 1 outputs are wrong; some for several reasons." in (tmp_path / "errors.html").read_text()


def test_an_evaluation_without_errors_has_a_page(tmp_path):
    write_errors(tmp_path / "errors.html", make_rows()[1:2], "a model")
    assert "0 of 1 outputs are wrong" in (tmp_path / "errors.html").read_text()


def test_named_values_have_a_score_each(tmp_path):
    texts = [
        ("a=1 | b=2", "a=1 | b=3"),
        ("a=1 | b=2 | b=3", "a=1 | b=2 | b=3 | c=4"),
        ("b = 2", "b =  2"),
        ("a=1", "something else"),
    ]
    rows = [make_row("text", reference, prediction) for reference, prediction in texts]
    scores = score_fields(rows)
    assert scores == {
        "a": {"count": 3, "accuracy": pytest.approx(200 / 3), "added": 0},
        "b": {"count": 3, "accuracy": pytest.approx(200 / 3), "added": 0},
        "c": {"count": 0, "accuracy": None, "added": 1},  # made up
    }
    write_errors(tmp_path / "errors.html", rows, "a model")
    page = (tmp_path / "errors.html").read_text()
    assert '<td>a</td><td class="number">66.7 %</td><td class="number">3</td><td class="number">0</td>' in page
    assert '<td>c</td><td class="number"></td><td class="number">0</td><td class="number">1</td>' in page
    assert score_fields([make_row("t", '{"a": [1, 2]}', '{"a": [1,2]}')])["a"]["accuracy"] == 100.0
    assert score_fields([make_row("t", "no fields", "a=1")]) == {}
    assert score_fields([]) == {}
