"""A source knows where its words are in the text, what was cut off, and how its ids are spelled."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_encoders import FAMILIES, save_encoder
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertTokenizer, PreTrainedTokenizerFast

from copynet_hf import CopyNetTokenizer
from copynet_hf.model.segmentation import JOINER, SEGMENTERS, find_spans
from copynet_hf.model.source import Source

TEXTS = st.text(max_size=20) | st.text(alphabet=f"aB1_ .-\t\r\n\u3000\"'()[]{JOINER}文e\u0301\ud800😀", max_size=20)


FAST = {family: FAMILIES[family][0]() for family in ("roberta", "xlm-roberta", "gemma")}


def make(segmenter: str, **options: Any) -> CopyNetTokenizer:
    return tiny_tokenizer(segmenter=segmenter, max_source_oov=3, **options)


TOKENIZERS = {
    (segmenter, side): make(segmenter, truncation_side=side) for segmenter in SEGMENTERS for side in ("right", "left")
}


@pytest.mark.parametrize(("segmenter", "side"), TOKENIZERS)
@settings(deadline=None, max_examples=50)
@given(text=TEXTS, length=st.none() | st.integers(1, 8))
def test_offsets_are_where_the_words_are(segmenter: str, side: str, text: str, length: int | None) -> None:
    tokenizer = TOKENIZERS[segmenter, side]
    whole, source = tokenizer.encode_source(text), tokenizer.encode_source(text, max_length=length)
    assert len(source.offsets) == len(source.words) == len(source.ids)
    assert ["" if span is None else text[slice(*span)] for span in source.offsets] == source.surfaces
    borders = [0, *(border for span in whole.offsets if span for border in span), len(text)]
    assert borders == sorted(borders)
    between = "".join(text[start:end] for start, end in zip(borders[::2], borders[1::2], strict=True))
    assert not between.strip()  # nothing but spaces is in no word
    assert source.is_truncated == (len(whole.words) > len(source.words))
    kept = len(source.words)
    assert source.offsets == (whole.offsets[len(whole.words) - kept :] if side == "left" else whole.offsets[:kept])


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_tokenizer_returns_offsets_as_a_fast_one_does(side: str) -> None:
    texts = ["ab  c", "\U0001f600 d", ""]
    words = make("whitespace", padding_side=side)
    vocab = {word: index for index, word in enumerate(["<pad>", "<unk>"])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", padding_side=side)
    options: dict[str, Any] = {"padding": "max_length", "max_length": 4, "return_offsets_mapping": True}
    assert words(texts, **options)["offset_mapping"] == fast(texts, **options)["offset_mapping"]
    tensors = words(texts, return_tensors="pt", **options)["offset_mapping"]
    assert tensors.tolist() == fast(texts, return_tensors="pt", **options)["offset_mapping"].tolist()
    assert words(texts[0], return_offsets_mapping=True)["offset_mapping"] == [(0, 2), (4, 5)]
    with_facts = words([texts[0]], facts=[[("X", "a", "Kim")]], return_offsets_mapping=True)
    assert with_facts["offset_mapping"] == [[(0, 2), (4, 5), (0, 0), (0, 0), (0, 0)]]


def test_words_of_facts_and_of_lists_have_no_offsets() -> None:
    tokenizer = make("word_punct")
    source = tokenizer.encode_source(' "a" X', [("X", "a", "Kim")])
    assert source.surfaces == [" ", '"', "a", '"', "X", "X", "a", "Kim"]
    assert source.offsets == [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), None, None, None]
    assert source.token_type_ids == [0, 0, 0, 0, 0, 1, 2, 3]
    assert source.text_length == 5
    assert tokenizer.encode_source(["a", "New York"], is_split_into_words=True).offsets == [None, None]


def test_a_source_spells_ids_by_its_own_words() -> None:
    tokenizer = make("whitespace")
    sources = tokenizer.encode_sources(["a X Y Z Q", "Y b"], max_length=4)
    first = len(tokenizer)
    assert [source.oov_words for source in sources] == [["X", "Y", "Z"], ["Y"]]
    ids = [first + 1, 4, first, tokenizer.eos_token_id, first + 9, -100]
    assert sources[0].spell(ids) == ["Y", "a", "X", "</s>", "<unk>", "<unk>"]
    assert sources[1].spell(ids, {tokenizer.eos_token_id}) == ["<unk>", "a", "Y", "<unk>", "<unk>"]
    assert [source.is_truncated for source in sources] == [True, False]
    assert [source.is_blank for source in tokenizer.encode_sources(["", " \n", "a"])] == [True, True, False]


def test_a_word_that_a_tokenizer_changed_is_not_taken_for_a_later_one() -> None:
    assert find_spans("The cat The the", ["the", "cat", "the", "the"]) == [None, (4, 7), None, (12, 15)]
    assert find_spans("a  b", ["a", "", "c", "b"]) == [(0, 1), None, None, (3, 4)]


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "gemma"])
@settings(deadline=None, max_examples=50)
@given(text=TEXTS)
def test_a_fast_tokenizer_says_where_its_pieces_are(family: str, text: str) -> None:
    tokenizer = FAST[family]
    text = text.encode("utf-8", "replace").decode("utf-8")
    encoded = tokenizer(text, return_offsets_mapping=True)
    source = Source.of_ids(tokenizer, text, encoded["input_ids"], encoded["offset_mapping"])
    for word, index, span in zip(source.words, source.ids, source.offsets, strict=True):
        assert (span is None) == (not word)
        if span is not None and index != tokenizer.unk_token_id:
            assert text[slice(*span)] == word


def test_words_that_a_fast_tokenizer_normalised_are_found_in_the_text() -> None:
    tokenizer = BertTokenizer(vocab={"[UNK]": 0, "the": 1, "cat": 2, "zoe": 3, "[PAD]": 4, "[CLS]": 5, "[SEP]": 6})
    text = "The\u200b CAT Zo\u00eb  the Zoe\u0308"
    encoded = tokenizer(text, return_offsets_mapping=True)
    source = Source.of_ids(tokenizer, text, encoded["input_ids"], encoded["offset_mapping"])
    assert source.words == ["", "the", "cat", "zoe", "the", "zoe", ""]
    found = [None if span is None else text[slice(*span)] for span in source.offsets]
    assert found == [None, "The", "CAT", "Zo\u00eb", "the", "Zoe", None]


def test_a_source_of_another_tokenizer_has_its_words_as_they_are_in_the_text(tmp_path: Any) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(save_encoder(tmp_path / "encoder", "roberta"))
    text = "send it  to Zoë"
    source = Source.of_ids(tokenizer, text, tokenizer(text)["input_ids"])
    assert [source.words[0], source.words[-1]] == ["", ""]
    assert [source.offsets[0], source.offsets[-1]] == [None, None]
    for word, span in zip(source.words, source.offsets, strict=True):
        assert span is None or text[slice(*span)] == word
    assert "".join(source.words) == text.replace(" ", "")
