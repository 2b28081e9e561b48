"""PlainTokenizer gives what CopyNetTokenizer gives, from the files that it saves."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copynet_hf import CopyNetTokenizer, PlainTokenizer
from copynet_hf.model.source import add_spaces, skipped_ids, stack_sources

WORDS = [*["the", "file", "copy", "a", "b", ".", "-", "￭", "东", "京", "<pad>", "</s>", "added", "é"], " ", "  ", "\n"]
TEXTS = [
    "please send budget_2031.xlsx to Ottilie Krahn before 14:35",
    "find /usr/bin -name '*.py' | xargs grep -n \"TODO\"  # and\tmore\n\nlines ",
    "请问北京大学的图书馆在哪里？他说：“在五道口。”",
    "東京タワーの高さは三百三十三メートルです。  本当？",
    "",
    "   ",
    "don't re-read <unk> or </s>: naïve café, 3.14 ￭ 🎉 e\u0301",
    "word " * 70,
]
FACTS = [[["Ada", "born in", "London"]], None, [], [["a", "b", "c"], ["<s>", "the", "Ada"]], None, None, [], None]
FEATURES = [["V", "PST"], None, [], ["unseen", "V", "V"], ["N"], None, ["PST"], []]


def save(folder: Path, **options: Any) -> CopyNetTokenizer:
    """A tokenizer as it is loaded from the folder in which it was saved."""
    vocab = {
        word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS[:7], "北京", "です", "￭.￭"])
    }
    tokenizer = CopyNetTokenizer(vocab, **{"feature_vocab": ["N", "PST", "V"], "max_source_oov": 5, **options})
    tokenizer.add_tokens(["added", "东"])
    tokenizer.save_pretrained(folder)
    return CopyNetTokenizer.from_pretrained(folder)


def check_equal(
    tokenizer: CopyNetTokenizer, plain: PlainTokenizer, texts: list[str], limit: int | None, **columns: Any
) -> None:
    length = plain.model_max_length if limit is None else limit
    encoded = plain.pad(stack_sources(plain.encode_sources(texts, **columns, max_length=length)))
    options: dict[str, Any] = {"padding": True, "truncation": True, "max_length": limit, "return_tensors": "np"}
    expected = tokenizer(texts, **options, **columns)
    assert set(encoded) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(encoded[name], array, name)
        assert encoded[name].dtype == np.int64
    ids = [*range(len(tokenizer) + tokenizer.max_source_oov + 1), 2, 0]
    found, sources = (each.encode_sources(texts, **columns, max_length=limit) for each in (plain, tokenizer))
    for one, other in zip(found, sources, strict=True):
        for name in ("words", "ids", "oov_words", "offsets", "surfaces", "is_truncated"):
            assert getattr(one, name) == getattr(other, name), name
        words = one.spell(ids, skipped_ids(plain))
        assert words == other.spell(ids, skipped_ids(tokenizer))
        assert add_spaces(plain, words) == add_spaces(tokenizer, words)


@pytest.mark.parametrize(("limit", "side"), [(None, "right"), (8, "left"), (20, "right")])
@pytest.mark.parametrize("segmenter", ["word_punct", "jieba", "fugashi"])
def test_real_texts_have_the_same_ids_slots_and_words(
    tmp_path: Path, segmenter: str, side: str, limit: int | None
) -> None:
    if segmenter in ("jieba", "fugashi"):
        pytest.importorskip(segmenter)
    options: dict[str, Any] = {"padding_side": side, "truncation_side": side, "model_max_length": 30}
    options["fold_whitespace"] = side == "left"
    tokenizer = save(tmp_path, segmenter=segmenter, **options)
    plain = PlainTokenizer.from_pretrained(tmp_path)
    assert len(plain) == len(tokenizer)
    assert plain.feature_vocab_size == tokenizer.feature_vocab_size
    assert sorted(plain.all_special_ids) == sorted(tokenizer.all_special_ids)
    check_equal(tokenizer, plain, TEXTS, limit)
    check_equal(tokenizer, plain, TEXTS, limit, facts=FACTS, features=FEATURES)
    check_equal(tokenizer, plain, [""], limit)


SEGMENTED: dict[str, tuple[CopyNetTokenizer, PlainTokenizer]] = {}


def load_both(segmenter: str) -> tuple[CopyNetTokenizer, PlainTokenizer]:
    if segmenter not in SEGMENTED:
        with tempfile.TemporaryDirectory() as folder:
            SEGMENTED[segmenter] = save(Path(folder), segmenter=segmenter), PlainTokenizer.from_pretrained(folder)
    return SEGMENTED[segmenter]


texts = st.lists(st.sampled_from(WORDS), max_size=12).map("".join) | st.text(max_size=12)
triples = st.lists(st.lists(st.text(max_size=4), min_size=3, max_size=3), max_size=2)
tags = st.lists(st.sampled_from(["N", "V", "other"]), max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["whitespace", "char", "word_punct"]),
    st.lists(st.tuples(texts, st.none() | triples, st.none() | tags), min_size=1, max_size=4),
    st.none() | st.integers(7, 12),
)
def test_any_texts_have_the_same_ids_slots_and_words(segmenter: str, rows: list[Any], limit: int | None) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    check_equal(*load_both(segmenter), columns[0], limit)
    check_equal(*load_both(segmenter), columns[0], limit, facts=columns[1], features=columns[2])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"facts": [[["a", "b"]]]}, "pass \\(subject, property, object\\)"),
        ({"facts": [[["a", "b", "c"]]], "max_length": 2}, "max_length=2 is too small"),
        ({"features": [["N"], ["N"]]}, "features has 2 rows, text 1"),
        ({"features": [[3]]}, "pass a list of strings"),
        ({"max_length": 0}, "max_length is 0"),
    ],
)
def test_errors_are_those_of_the_tokenizer(more: dict[str, Any], said: str) -> None:
    tokenizer, plain = load_both("whitespace")
    with pytest.raises(ValueError, match=said):
        tokenizer(["a"], truncation=True, **more)
    with pytest.raises(ValueError, match=said):
        plain.encode_sources(["a"], **more)


def test_what_needs_transformers_is_refused(tmp_path: Path) -> None:
    tokenizer = save(tmp_path, segmenter="whitespace")
    tokenizer.split_special_tokens = False
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="split_special_tokens is False"):
        PlainTokenizer.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    with pytest.raises(ValueError, match="split_special_tokens is False"):
        PlainTokenizer(config, tokenizer.get_vocab())
    save(tmp_path, segmenter="whitespace")
    (tmp_path / "encoder_tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="has pieces of a Transformers encoder: load the tokenizer"):
        PlainTokenizer.from_pretrained(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is missing"):
        PlainTokenizer.from_pretrained(tmp_path)
    save(tmp_path, segmenter="whitespace")
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    for changed, said in (
        ({name: value for name, value in config.items() if name != "segmenter"}, "has no field 'segmenter'"),
        (config | {"segmenter": "words"}, "segmenter is 'words'"),
        (config | {"tokenizer_class": "BertTokenizer"}, "tokenizer_class is 'BertTokenizer'"),
        (config | {"max_source_oov": None}, "is damaged"),
        ([], "is not a JSON object"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=said):
            PlainTokenizer.from_pretrained(tmp_path)
    path.write_text(json.dumps(config | {"tokenizer_class": "TokenizersBackend"}))
    (tmp_path / "vocab.json").unlink()  # as of T5 with a copy head
    with pytest.raises(ValueError, match="load the tokenizer with AutoTokenizer, which needs Transformers"):
        PlainTokenizer.from_pretrained(tmp_path)
