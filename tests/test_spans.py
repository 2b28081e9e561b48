"""The text at the span of a copied word is that word, whatever the segmenter, in the text as it was passed in."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import tiny_model

from copynet_hf import CopyNetConfig, CopyNetTokenizer
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.model.segmentation import CHAINED, OPTIONAL, SEGMENTERS, strip_accents

TEXTS = [
    "Ottilie Krahn called\r\n\r\nMira 14:35 (Mira)",
    "\tsend  a_b\tto\u00a0Jo\u0308rg\u3000at 16,258.73 ",
    "\U0001f600\U0001f468\u200d\U0001f469 Zo\u00eb \ud83d x WexError2 maxSize",
    "\u4eca\u5929\u5317\u4eac\u4e0b\u96e8\u4e86\u3002Kim \u6771\u4eac\u3078\u884c\u304d\u307e\u3059",
    '"/usr/bin" --flag=[x] don\'t \uffed a\uffedb [lower] [initial] \uffed',
    "<pad> </s> x</s> a a a",
]

UNKNOWN = ("<unk>", "\ufffd")  # a piece that the vocabulary lacks, a character whose end was truncated
SEARCH: dict[str, Any] = {"do_sample": True, "temperature": 4.0, "num_return_sequences": 8, "max_new_tokens": 9}


def fold(text: str) -> str:
    """The text as marks may change it: in lower case, without accents."""
    return strip_accents(text).casefold()


def check(text: str, output: Prediction) -> int:
    """Checks the spans of an output; returns the number of copied words."""
    assert "".join(output.words) == output.text
    assert len(output.source_spans) == len(output.words)
    for word, copied, position, span in zip(
        output.words, output.copied, output.source_positions, output.source_spans, strict=True
    ):
        if span is None:
            continue
        start, end = span
        assert copied
        assert position is not None
        shown = word if word.isspace() else word.lstrip()
        if shown in UNKNOWN:
            continue
        assert text[start:end] in output.source_words[position]
        assert text[start:end] == shown or fold(text[start:end]) == fold(shown)
    for start, end, source_start, source_end in output.copied_spans:
        assert start < end
        if any(word in output.text[start:end] for word in UNKNOWN):
            continue
        assert output.text[start:end].split() == text[source_start:source_end].split() or (
            fold(output.text[start:end]).split() == fold(text[source_start:source_end]).split()
        )
    covered = {place for start, end, *_ in output.copied_spans for place in range(start, end)}
    ends = np.cumsum([0, *map(len, output.words)]).tolist()
    for word, span, start, end in zip(output.words, output.source_spans, ends, ends[1:], strict=False):
        start = start if word.isspace() else end - len(word.lstrip())
        assert set(range(start, end)) <= covered or span is None
        assert covered.isdisjoint(range(start, end)) or span is not None or word.isspace()
    return len(output.source_spans) - output.source_spans.count(None)


@pytest.mark.parametrize(
    ("segmenter", "side"), [*((name, "right") for name in SEGMENTERS), ("char", "left"), ("word_parts", "left")]
)
def test_the_text_at_the_span_is_the_copied_word(segmenter: str, side: str) -> None:
    chains = segmenter in CHAINED
    options = {"max_source_oov": 40, "chains": chains, "changes": OPTIONAL if chains else (), "truncation_side": side}
    tokenizer = CopyNetTokenizer.train_from_iterator(["send a to x"], 40, segmenter, **options)
    model, copies = tiny_model(**CopyNetConfig.tokenizer_fields(tokenizer)), 0
    for length in (None, 7):
        found = predict(model, tokenizer, TEXTS, max_source_length=length, **SEARCH)
        copies += sum(check(text, output) for text, outputs in zip(TEXTS, found, strict=True) for output in outputs)
    assert copies > 50


class Scripted:
    """Writes the given ids, all copied where the source has them."""

    def __init__(self, source: list[int], ids: list[int], end: int = 2) -> None:
        self.config, self.source, self.ids, self.end = SimpleNamespace(copies=True), source, ids, end

    def generate(self, **inputs: Any) -> Any:
        return np.array([[1, *self.ids, self.end]])

    def trace_copies(self, sequences: Any, **inputs: Any) -> Any:
        ids = self.source
        positions = [[ids.index(index) if index in ids else -1 for index in (*self.ids, self.end)]]
        shape = (*np.shape(positions), len(ids))
        return SimpleNamespace(
            token_probs=np.full(shape[:2], 0.5),
            copied=np.array(positions) >= 0,
            copy_probs=np.zeros(shape),
            source_positions=np.array(positions),
        )


def scripted(tokenizer: CopyNetTokenizer, text: str, tokens: list[str], facts: Any = None) -> Scripted:
    source = tokenizer.encode_source(text, facts)
    ids = {**tokenizer.get_vocab(), **source.slots}
    return Scripted(source.ids, [ids[token] for token in tokens])


@pytest.mark.parametrize(
    ("segmenter", "text", "tokens", "copied"),
    [
        ("word_punct", "call Ottilie Krahn now", ["Ottilie", "Krahn"], [("Ottilie Krahn", "Ottilie Krahn")]),
        ("word_punct", "call Ottilie, Krahn", ["Ottilie", "Krahn"], [("Ottilie", "Ottilie"), ("Krahn", "Krahn")]),
        ("word_punct", "Krahn Ottilie", ["Ottilie", "Krahn"], [("Ottilie", "Ottilie"), ("Krahn", "Krahn")]),
        ("word_punct", "at 14:35.", ["a", "14", "\uffed:\uffed", "35"], [("14:35", "14:35")]),
        ("word_punct", "16,258", ["16", "\uffed", "258"], [("16", "16"), ("258", "258")]),
        ("word_punct", "16 258", ["16", "\uffed", "258"], [("16", "16"), ("258", "258")]),
        ("word_punct", "to Jo Miller", ["[lower]", "Jo", "[upper]", "Miller"], [("jo MILLER", "Jo Miller")]),
        ("word_punct", "Jo Miller", ["[initial]", "Jo", "Miller"], [("J", "J"), ("Miller", "Miller")]),
        ("word_punct", "Jo Miller", ["[lower]", "[initial]", "Miller"], [("m", "M")]),
        ("word_punct", "Jo Miller", ["[initial]", "\uffed", "Miller"], [("Miller", "Miller")]),
        ("word_punct", "Miller JT", ["[initial]", "JT", "[second]", "JT"], [("J", "J"), ("T", "T")]),
        ("word_punct", "Jo Miller", ["[upper]", *["[drop_last]"] * 2, "Miller"], [("MILL", "Mill")]),
        ("word_punct", "Jo Miller", ["[drop_first]", "[drop_last]", "Miller", "Jo"], [("ille", "ille"), ("Jo", "Jo")]),
        ("word_punct", "Jo Miller", ["Jo", "[drop_first]", "[initial]", "Miller"], [("Jo", "Jo")]),
        ("word_punct", "José", ["[plain]", "[drop_first]", "José"], [("ose", "osé")]),
        ("word_punct", "Müller", ["[first_3]", "[digraphs]", "Müller"], [("Mue", "Mü")]),
        ("word_punct", "Müller", ["[drop_first]", "[drop_last]", "[digraphs]", "Müller"], [("uelle", "ülle")]),
        ("word_punct", "Weiß", ["[drop_last]", "[upper]", "Weiß"], [("WEIS", "Weiß")]),
        ("word_punct", "Jose\u0301", ["[first_4]", "[plain]", "Jose\u0301"], [("Jose", "Jose")]),
        ("word_punct", "a\r\n\tJo", ["\r", "\n", "\t", "Jo"], [("Jo", "Jo")]),
        ("word_punct", "x\r\n\tJo", ["x", "\r", "\n", "\t", "Jo"], [("x\r\n\tJo", "x\r\n\tJo")]),
        ("word_parts", "WexError2 x", ["Wex", "\uffed", "Error", "\uffed", "2"], [("WexError2", "WexError2")]),
        ("word_digits", "A19.5", ["A", "￭", "1", "9", "￭.￭", "5"], [("A19.5", "A19.5")]),
        ("word_parts", "Wex Error", ["Wex", "\uffed", "Error"], [("Wex", "Wex"), ("Error", "Error")]),
        ("whitespace", "\u3000Jo \t Kim", ["Jo", "Kim", "a"], [("Jo Kim", "Jo \t Kim")]),
        ("whitespace", "x [lower] \uffed", ["[lower]", "\uffed"], [("[lower] \uffed", "[lower] \uffed")]),
        (
            "char",
            "\U0001f600\u0308e\ud83d",
            ["\U0001f600", "\u0308", "e", "\ud83d"],
            [("\U0001f600\u0308e\ud83d",) * 2],
        ),
    ],
)
def test_copies_that_follow_each_other_are_one(
    segmenter: str, text: str, tokens: list[str], copied: list[tuple[str, str]]
) -> None:
    chains = segmenter in CHAINED
    tokenizer = CopyNetTokenizer.train_from_iterator(
        ["a"], 40, segmenter, chains=chains, changes=OPTIONAL if chains else ()
    )
    ((output,),) = predict(scripted(tokenizer, text, tokens), tokenizer, [text])
    spans = output.copied_spans
    assert [(output.text[start:end], text[first:last]) for start, end, first, last in spans] == copied
    assert output.score == pytest.approx(math.prod(output.word_scores or []) * 0.5)
    assert output.score == 0.5 ** (len(tokens) + 1)


def test_words_of_facts_have_no_place_in_the_text() -> None:
    tokenizer = CopyNetTokenizer.train_from_iterator(["a"], 30, "whitespace")
    facts = [("Kim", "born", "1931")]
    model = scripted(tokenizer, "when Kim", ["Kim", "1931"], facts)
    ((output,),) = predict(model, tokenizer, ["when Kim"], facts=[facts])
    assert output.copied == [True, True]
    assert output.source_spans == [(5, 8), None]
    assert output.copied_spans == [(0, 3, 5, 8)]
