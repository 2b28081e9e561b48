"""`copied_only`: words that match may be written only if the source has them, whatever the model and the search."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from helpers import tiny_model, tiny_tokenizer

from copynet_hf import CopyNetConfig, CopyNetEnsemble, CopyNetTokenizer
from copynet_hf.model.prediction import predict
from copynet_hf.model.segmentation import JOINER, OPTIONAL
from copynet_hf.model.source import find_matching_ids

DIGITS = "0123456789\u0663\u0967"  # and those of other scripts
TEXTS = [
    "pay 16,258.73 to Anna",
    "no number",
    "room 7 at 7:30, 7th",
    "x1 a_2 Wex3 \u0663",
    "\u30d7\u30e9\u30f38\u3092\u9078\u3076",
    "",
    "[initial] 5x",
]
SAMPLING: dict[str, Any] = {"do_sample": True, "temperature": 3.0, "max_new_tokens": 6}


def digit_tokenizer(segmenter: str, **options: Any) -> CopyNetTokenizer:
    """One whose vocabulary is mostly digits, alone, in words, and as letters of chains."""
    text = " ".join([*DIGITS, "a1 16 258 x7 3D to Anna a 1,2 _3 (4) 7th"]) + "\u0663\u0967 \u7b2c9"
    chains = segmenter in ("word_punct", "word_parts")
    changes = OPTIONAL if chains else ()
    return CopyNetTokenizer.train_from_iterator([text] * 2, 600, segmenter, chains=chains, changes=changes, **options)


def find_digits(text: str) -> set[str]:
    return set(re.findall(r"\d", text))


@pytest.mark.parametrize(
    ("segmenter", "kind"),
    [
        *((segmenter, "copynet") for segmenter in ("char", "whitespace", "jieba", "word_punct", "word_digits")),
        *(("word_parts", kind) for kind in ("none", "pointer_generator", "ensemble")),
    ],
)
def test_no_output_has_a_digit_that_its_source_lacks(segmenter: str, kind: str) -> None:
    tokenizer = digit_tokenizer(segmenter, max_source_oov=6)
    fields = CopyNetConfig.tokenizer_fields(tokenizer)
    if kind == "ensemble":
        model: Any = CopyNetEnsemble.from_models([tiny_model(seed, **fields) for seed in (0, 1)])
    else:
        model = tiny_model(**fields, copy_mechanism=kind)
    torch.manual_seed(0)
    free = grounded = written = 0
    for options in ({**SAMPLING, "num_return_sequences": 60}, {"num_beams": 6, "num_return_sequences": 6}):
        found = predict(model, tokenizer, TEXTS, copied_only=r"\d", trace=False, **options)
        for text, outputs in zip(TEXTS, found, strict=True):
            assert all(find_digits(output.text) <= find_digits(text) for output in outputs)
            grounded += len(outputs)
            written += sum(bool(find_digits(output.text)) for output in outputs)
    for text, outputs in zip(TEXTS, predict(model, tokenizer, TEXTS, trace=False, **SAMPLING), strict=True):
        free += sum(not find_digits(output.text) <= find_digits(text) for output in outputs)
    assert grounded == 66 * len(TEXTS)
    assert written
    assert free


def test_a_word_that_matches_is_written_as_the_source_has_it() -> None:
    tokenizer = digit_tokenizer("word_punct")
    matching = [tokenizer.convert_ids_to_tokens(index) for index in find_matching_ids(tokenizer, r"^\d$")]
    assert {"1", f"{JOINER}1", "7", "\u0663"} <= set(matching)
    assert not {"16", "a1", JOINER, "[initial]", "</s>"} & set(matching)
    assert set(find_matching_ids(tokenizer, "^<")) == {tokenizer.unk_token_id}
    assert find_matching_ids(tokenizer, "") == ()
    letters = find_matching_ids(tokenizer, "n")
    tokenizer.add_tokens(["number"])
    assert find_matching_ids(tokenizer, "n") == (*letters, tokenizer.convert_tokens_to_ids("number"))


def test_generate_takes_a_pattern_or_ids_and_composes_with_other_rules() -> None:
    model, tokenizer = tiny_model(seed=1), tiny_tokenizer()
    texts = ["a X b", "c d Y e"]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    options: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 8, "min_new_tokens": 4, "no_repeat_ngram_size": 1}
    rows: Any = model.generate(**inputs, copied_only=r"[^\W\d]", tokenizer=tokenizer, **options)
    for text, row in zip(texts, tokenizer.batch_decode(rows, source=texts, skip_special_tokens=True), strict=True):
        words = [word for word in row.split() if word != "<unk>"]
        assert set(words) <= set(text.split())
        assert len(set(words)) == len(words)
    by_ids: Any = model.generate(**inputs, copied_only=find_matching_ids(tokenizer, r"[^\W\d]"), **options)
    assert by_ids.tolist() == rows.tolist()
    free: Any = model.generate(**inputs, **options)
    assert free.tolist() != rows.tolist()
    assert model.generate(**inputs, copied_only="", tokenizer=tokenizer, **options).tolist() == free.tolist()


def test_a_rule_without_words_or_without_sense_is_refused() -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    with pytest.raises(ValueError, match="copied_only needs the words of the vocabulary: pass tokenizer="):
        model.generate(**tokenizer(["a"], return_tensors="pt"), copied_only="a")
    with pytest.raises(ValueError, match=r"copied_only is '\(a', no regular expression \(missing \)"):
        predict(model, tokenizer, ["a"], copied_only="(a")


# ---- the library's rules over extended ids


def test_bad_words_and_allowed_words_may_be_words_of_the_source() -> None:
    model, tokenizer = tiny_model(seed=1), tiny_tokenizer()
    text = "a Xeno b Yves Zork"
    source, inputs = tokenizer.encode_source(text), tokenizer([text], return_tensors="pt")
    assert source.ids_of(["Yves", "a", "Ulm", "b Zork", ""]) == [[14], [4], [5, 15]]
    options: dict[str, Any] = {"do_sample": True, "num_return_sequences": 40, "max_new_tokens": 6}
    free = model.generate(**inputs, **options)
    assert {13, 14, 4} <= set(free.flatten().tolist())
    banned = model.generate(**inputs, **options, bad_words_ids=source.ids_of(["Xeno", "a"]))
    assert not {13, 4} & set(banned.flatten().tolist())
    assert 14 in set(banned.flatten().tolist())
    allowed = [index for ids in source.ids_of(["Xeno", "b"]) for index in ids]
    only = model.generate(**inputs, **options, prefix_allowed_tokens_fn=lambda row, ids: [*allowed, 2])
    assert set(only[:, 1:].flatten().tolist()) == {13, 5, 2, 0}


def test_each_text_of_a_batch_may_have_its_own_allowed_words() -> None:
    model, tokenizer = tiny_model(seed=1), tiny_tokenizer()
    texts = ["a Xeno b Yves", "Yves Zork c"]
    words = [["Yves", "a"], ["Yves"]]
    sources = tokenizer.encode_sources(texts)
    allowed = [sum(source.ids_of(own), [2]) for source, own in zip(sources, words, strict=True)]
    assert allowed == [[2, 14, 4], [2, 13]]
    options: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 5, "min_new_tokens": 3}
    found = predict(model, tokenizer, texts, prefix_allowed_tokens_fn=lambda row, ids: allowed[row], **options)
    for own, (output,) in zip(words, found, strict=True):
        assert set(output.text.split()) <= set(own)
        assert output.text
