"""Heatmap and highlighting: contents, escaping, fonts."""

from __future__ import annotations

import html
import re
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from copynet_hf import copies_html, highlight_copies, plot_copy_heatmap
from copynet_hf.model.prediction import Prediction
from copynet_hf.visualization.highlighting import COPY_MARKS, find_words


def test_consecutive_copied_words_get_one_mark() -> None:
    words, copied = ["call", "Ann", "Lee", "at", "9:15"], [False, True, True, False, True]
    assert highlight_copies(words, copied, "plain") == "call [Ann Lee] at [9:15]"
    assert highlight_copies(words, copied, "ansi") == "call \x1b[1;32mAnn Lee\x1b[0m at \x1b[1;32m9:15\x1b[0m"


def test_a_share_above_one_half_is_a_copy() -> None:
    shares = torch.tensor([0.02, 0.98, 0.51, 0.5])
    for each in (shares, shares.numpy(), shares.tolist()):
        assert highlight_copies(["call", "Ann", "Lee", "at"], each, "plain") == "call [Ann Lee] at"


def test_marks_leave_out_the_space_before_a_word() -> None:
    assert highlight_copies(["call", " Ann", "!"], [False, True, False], "plain", separator="") == "call [Ann]!"
    assert highlight_copies(list("问华为"), [False, True, True], "plain", separator="") == "问[华为]"


def test_html_is_escaped() -> None:
    marked = highlight_copies(["<b>", "a&b"], [True, False], "html")
    assert marked == "<mark>&lt;b&gt;</mark> a&amp;b"


def test_oov_words_are_underlined_inside_and_outside_of_copied_spans() -> None:
    words, copied, oov = ["call", "Ann", "Lee", "now"], [False, True, True, False], [False, True, False, True]
    assert highlight_copies(words, copied, "html", oov=oov) == "call <mark><u>Ann</u> Lee</mark> <u>now</u>"
    assert highlight_copies(words, copied, "plain", oov=oov) == "call [_Ann_ Lee] _now_"
    # Ending the underline keeps the colour.
    assert highlight_copies(words[1:3], [True, True], "ansi", oov=oov[1:3]) == (
        "\x1b[1;32m\x1b[4mAnn\x1b[24m Lee\x1b[0m"
    )
    with pytest.raises(ValueError, match="4 words have 1 flags"):
        highlight_copies(words, copied, oov=[True])


@given(st.lists(st.tuples(st.text("ab ", max_size=3), st.booleans()), max_size=6), st.sampled_from(["ansi", "plain"]))
def test_removing_the_marks_restores_the_text(pairs: list[tuple[str, bool]], style: str) -> None:
    words, copied = [word for word, _ in pairs], [flag for _, flag in pairs]
    marked = highlight_copies(words, copied, style)
    for mark in COPY_MARKS[style]:
        marked = marked.replace(mark, "")
    assert marked == " ".join(words)


def test_wrong_numbers_of_flags_and_unknown_styles_are_refused() -> None:
    with pytest.raises(ValueError, match="2 words have 1 flags"):
        highlight_copies(["a", "b"], [True])
    with pytest.raises(ValueError, match="latex"):
        highlight_copies(["a"], [True], "latex")


def paragraphs(page: str) -> list[ET.Element]:
    """Source and output. If the text were not escaped, it would not parse as XML."""
    return ET.fromstring(page).findall("p")


def of_pipeline(words: list[str], positions: list[int | None], source: list[str], **more: Any) -> dict[str, Any]:
    copied = [position is not None for position in positions]
    return {"words": words, "copied": copied, "source_positions": positions, "source_words": source, **more}


def test_a_copied_word_is_linked_to_its_source_position() -> None:
    probs = [[0.0, 0.01, 0.0], [0.05, 0.02, 0.93]]
    output = of_pipeline(["to", ' <b>"&'], [None, 2], ["send", "it", '<b>"&'], copy_probs=probs)
    source, written = paragraphs(page := copies_html('send  it\n<b>"& !', output, oov=['<b>"&']))
    assert copies_html('send  it\n<b>"& !', Prediction("", **output), oov=['<b>"&']) == page
    assert "".join(source.itertext()) == 'send  it\n<b>"& !'
    assert "".join(written.itertext()) == 'to <b>"&'
    assert [word.get("data-at") for word in source] == ["0", "1", "2"]
    assert [word.get("data-from") for word in written] == [None, "2"]
    assert [word.get("aria-label") for word in written] == [
        "to: generated",
        '<b>"&: copied from position 2 with probability 0.93',
    ]
    assert [word.find("u") is not None for word in [*source, *written]] == [False, False, True, False, True]


def test_a_normalised_source_is_shown_normalised() -> None:
    source, written = paragraphs(copies_html("Call ANN", of_pipeline(["ann"], [1], ["call", "ann"])))
    assert "".join(source.itertext()) == "call ann"
    assert written[0].get("aria-label") == "ann: copied from position 1"


@pytest.mark.parametrize(
    ("text", "read", "spaced"),
    [("a b a c", ["a", "c"], ["a b a", " c"]), ("a b a c", ["a", "b"], ["a", " b"])],
)
def test_the_words_of_a_truncated_source_are_those_that_were_read(
    text: str, read: list[str], spaced: list[str]
) -> None:
    source, _ = paragraphs(copies_html(text, of_pipeline(["a"], [0], read, is_truncated=True)))
    assert "".join(source.itertext()) == text
    before = [source.text or "", *(word.tail or "" for word in source)]
    assert [f"{space}{word.text}" for space, word in zip(before, source, strict=False)] == spaced


@pytest.mark.parametrize(("text", "lang"), [("华为", "zh"), ("華は", "ja"), ("カナ", "ja"), ("call", None)])
def test_lang_distinguishes_chinese_and_japanese(text: str, lang: str | None) -> None:
    assert ET.fromstring(copies_html(text, of_pipeline([text], [0], [text]))).get("lang") == lang


def test_a_source_may_be_empty() -> None:
    source, written = paragraphs(copies_html("", of_pipeline(["a"], [None], [])))
    assert ("".join(source.itertext()), "".join(written.itertext())) == ("", "a")


def test_heatmap_has_source_words_as_columns_and_target_words_as_rows(tmp_path: Path) -> None:
    probs = torch.rand(4, 5)
    path = tmp_path / "map.png"
    figure = plot_copy_heatmap(probs, ["a", "b", "$c$"], ["x", "y_1"], path)
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), probs[:2, :3])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "$c$"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y_1"]
    assert path.read_bytes().startswith(b"\x89PNG")


def test_heatmap_takes_bfloat16_and_lists() -> None:
    for probs in (torch.ones(1, 2, dtype=torch.bfloat16), [[1.0, 1.0]]):
        assert plot_copy_heatmap(probs, ["a", "b"], ["x"]).axes[0].images[0].get_array().shape == (1, 2)


@pytest.mark.parametrize(("source", "target"), [(["a"] * 3, ["x"]), (["a"], ["x"] * 2), ([], ["x"]), (["a"], [])])
def test_probabilities_of_the_wrong_shape_are_refused(source: list[str], target: list[str]) -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        plot_copy_heatmap(np.ones((1, 2)), source, target)


def test_characters_are_taken_from_the_first_font_that_has_them(tmp_path: Path) -> None:
    from matplotlib import rc_context

    letter = "d\u1d81"  # of matplotlib's STIX fonts, and not of its default font
    with pytest.warns(UserWarning, match="missing from font"):
        plot_copy_heatmap(np.ones((1, 1)), ["\U00010380"], ["x"], tmp_path / "map.png")  # of no font
    with warnings.catch_warnings(), rc_context({"font.family": ["DejaVu Sans", "STIXGeneral"]}):
        warnings.simplefilter("error")
        plot_copy_heatmap(np.ones((1, 1)), [letter], ["x"], tmp_path / "map.png")


def test_installed_fonts_for_chinese_and_japanese_come_after_those_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from matplotlib.font_manager import fontManager

    monkeypatch.setattr(fontManager, "get_font_names", lambda: ["Yu Gothic", "Noto Sans CJK SC", "Other"])
    label = plot_copy_heatmap(np.ones((1, 2)), ["华", "为"], ["x"]).axes[0].get_xticklabels()[0]
    assert label.get_family() == ["sans-serif", "Noto Sans CJK SC", "Yu Gothic"]


def test_labels_of_single_characters_are_upright() -> None:
    axes = plot_copy_heatmap(np.ones((1, 3)), ["華", "call", "，"], ["x"]).axes[0]
    labels = axes.get_xticklabels()
    assert [label.get_rotation() for label in labels] == [0, 60, 0]
    assert [label.get_horizontalalignment() for label in labels] == ["center", "right", "center"]


def test_labels_show_whitespace(tmp_path: Path) -> None:
    words = [" call", " ", "\n\n", "\t", "\r\u3000", " " * 500]
    figure = plot_copy_heatmap(np.eye(6), words, words, tmp_path / "copies.png")
    for labels in (figure.axes[0].get_xticklabels(), figure.axes[0].get_yticklabels()):
        assert [label.get_text() for label in labels] == ["call", "␣", "⏎⏎", "⇥", "␣␣", f"{'␣' * 29}…"]


def test_pyplot_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # an import of it is an error
    plot_copy_heatmap(np.ones((1, 1)), ["a"], ["x"])


@pytest.mark.parametrize("side", ["left", "right"])
def test_folded_whitespace_is_shown_as_it_is_in_the_text(side: str) -> None:
    text = 'Dear team,\n(urgent) move 12 crates.\r\n\r\n"Regards" '
    options = {"segmenter": "word_punct", "fold_whitespace": True, "truncation_side": side}
    tokenizer = tiny_tokenizer(**options, max_source_oov=20)
    found, rest = find_words(text, tokenizer.encode_source(text).surfaces)
    assert "".join(before + word for before, word in found) + rest == text
    assert [word for _, word in found][:5] == ["Dear", "team", ",", "\n", "("]
    cut = tokenizer.encode_source(text, max_length=6)
    page = copies_html(text, {"source_words": cut.surfaces, "words": [], "copied": [], "is_truncated": True})
    source = page.partition('<p data-name="source">')[2].partition("</p>")[0]
    assert html.unescape(re.sub("<[^>]+>", "", source)) == text
    read = [html.unescape(word) for word in re.findall(r'data-at="\d+"[^>]*>([^<]*)<', source)]
    expected = ["Dear", "team", ",", "\n", "(", "urgent"] if side == "right" else ["crates", ".", "\r\n\r\n"]
    assert read[: len(expected)] == expected
