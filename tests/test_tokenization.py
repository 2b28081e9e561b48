"""Extended ids: which words own slots, decoding, and Transformers' use of the tokenizer."""

import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DataCollatorForSeq2Seq, TextStreamer
from transformers.utils import ModelOutput

from copynet_hf.model.segmentation import get_segmenter
from copynet_hf.model.tokenization_copynet import CopyNetTokenizer

PAD, BOS, EOS, UNK = range(4)
A, B, C = 4, 5, 6  # the ids of the words a, b, c
SLOT = 7  # the first slot: len(tokenizer)


def make(segmenter: str = "whitespace", max_source_oov: int = 3, **kwargs: Any) -> CopyNetTokenizer:
    vocab = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", "a", "b", "c"])}
    return CopyNetTokenizer(vocab, segmenter=segmenter, max_source_oov=max_source_oov, **kwargs)


@pytest.fixture
def tok() -> CopyNetTokenizer:
    return make()


# ---- extended ids


WRAPPED = " Call\u00a0Mira  at\r\n9 .\n\n(Or \t .\n\n\n) "


@pytest.mark.parametrize(
    ("segmenter", "known", "words"),
    [
        ("word_punct", [], ["Call", "Mira", "at", "9", ".", " ", "(￭", "Or", ".", " ", ")"]),
        ("word_punct", ["\n"], ["Call", "Mira", "at", "\n", "9", ".", "\n", "(￭", "Or", ".", "\n", ")"]),
        ("word_punct", ["\n\n"], ["Call", "Mira", "at", "9", ".", "\n\n", "(￭", "Or", ".", "\n\n", ")"]),
        ("word_punct", [" ", "  "], [" ", "Call", "Mira", "  ", "at", "9", ".", " ", "(￭", "Or", ".", " ", ")", " "]),
        ("char", [], list("Call Mira at 9 . (Or . )")),
        ("char", [" "], list(" Call Mira  at 9 . (Or . ) ")),
        ("char", ["\n"], list("Call Mira at\n9 .\n\n(Or .\n\n\n)")),
        ("whitespace", [], ["Call", "Mira", "at", "9", ".", "(Or", ".", ")"]),
    ],
)
def test_whitespace_outside_the_vocabulary_is_read_as_a_space(
    segmenter: str, known: list[str], words: list[str]
) -> None:
    vocab = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *known])}
    tokenizer = CopyNetTokenizer(vocab, segmenter, fold_whitespace=True)
    source = tokenizer.encode_source(WRAPPED)
    assert source.words == words
    assert source.text == WRAPPED
    for word, span in zip(source.surfaces, source.offsets, strict=True):
        assert span is not None
        found = WRAPPED[slice(*span)]
        assert found == word or (found.isspace() and word.isspace())
    as_it_is = CopyNetTokenizer(vocab, segmenter).encode_source(WRAPPED)
    assert as_it_is.words == get_segmenter(segmenter).split(WRAPPED)


@pytest.mark.parametrize(
    ("segmenter", "known", "text", "words"),
    [
        ("word_punct", ["\n"], "a\r\n\r\nb", ["a", "\n", "b"]),  # not the two that are left side by side
        ("word_punct", ["\n"], "\n \na", ["\n", "a"]),
        ("word_punct", ["  "], "a    b   c", ["a", "  ", "b", "  ", "c"]),
        ("word_punct", ["\n", "    "], "a:\n      b", ["a", "￭:", "\n", "    ", "b"]),
        ("word_punct", [" " * 70], f"a{' ' * 70}b{' ' * 69}c", ["a", " " * 70, "b", "c"]),
        ("jieba", ["\r\n"], "你好\r\n世界\n好", ["你好", "\r\n", "世界", " ", "好"]),
        ("fugashi", ["\n"], "今日\r\n本", ["今日", "\n", "本"]),
    ],
)
def test_what_is_known_of_whitespace_stays(segmenter: str, known: list[str], text: str, words: list[str]) -> None:
    if segmenter in ("jieba", "fugashi"):
        pytest.importorskip(segmenter)
    vocab = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *known])}
    source = CopyNetTokenizer(vocab, segmenter, fold_whitespace=True).encode_source(text)
    assert source.words == words
    assert None not in source.offsets


@pytest.mark.parametrize("side", ["left", "right"])
def test_folded_spaces_have_the_place_of_the_whitespace(side: str) -> None:
    tokenizer = tiny_tokenizer(
        segmenter="word_punct", max_source_oov=9, fold_whitespace=True, truncation_side=side, model_max_length=7
    )
    text = "Hi .\n\n(Mira) x.\t(Ann) y"
    source = tokenizer.encode_source(text, max_length=7)
    found = [text[slice(*span)] for span in source.offsets if span]
    expected = ["Hi", ".", "\n\n", "(", "Mira", ")", "x", ".", "\t", "(", "Ann", ")", "y"]
    assert found == (expected[:7] if side == "right" else expected[-7:])


def test_a_megabyte_of_folded_spaces_has_its_places_in_linear_time() -> None:
    tokenizer = tiny_tokenizer(segmenter="word_punct", fold_whitespace=True)
    start = time.process_time()
    offsets = tokenizer.encode_source(".\n" * 500_000 + "x").offsets
    assert time.process_time() - start < 10
    assert offsets[-1] == (1_000_000, 1_000_001)


@settings(deadline=None)
@given(words=st.lists(st.text("aB1é'.-(", min_size=1), min_size=1), data=st.data())
def test_any_unknown_whitespace_is_read_as_one_space(words: list[str], data: st.DataObject) -> None:
    tokenizer = tiny_tokenizer(segmenter="word_parts", max_source_oov=99, fold_whitespace=True)
    spaces = [data.draw(st.text("\n\t\r \u00a0\u2028", min_size=1)) for _ in words]
    text = "".join(map("".join, zip(spaces, words, strict=True)))
    assert tokenizer.encode_source(text).words == tokenizer.encode_source(" ".join(words)).words


def test_a_source_of_unknown_whitespace_is_blank() -> None:
    source = tiny_tokenizer(segmenter="word_punct", fold_whitespace=True).encode_source("\n\n \t")
    assert source.is_blank
    assert source.ids == []


def test_oov_words_get_slots_in_order_of_first_appearance(tok: CopyNetTokenizer) -> None:
    encoding = tok("X a Y X b")
    assert encoding["input_ids"] == [SLOT, A, SLOT + 1, SLOT, B]
    assert encoding["attention_mask"] == [1] * 5
    assert tok.oov_words("X a Y X b") == ["X", "Y"]
    assert tok.encode_source("X a Y X b").words == ["X", "a", "Y", "X", "b"]


def test_oov_words_beyond_the_last_slot_are_unk(tok: CopyNetTokenizer) -> None:
    encoding = tok("X Y Z W X W", text_target="W Z")
    assert encoding["input_ids"] == [SLOT, SLOT + 1, SLOT + 2, UNK, SLOT, UNK]
    assert encoding["labels"] == [UNK, SLOT + 2, EOS]
    assert tok.oov_words("X Y Z W X W") == ["X", "Y", "Z"]


def test_without_slots_every_oov_word_is_unk() -> None:
    assert make(max_source_oov=0)("X a", text_target="X")["labels"] == [UNK, EOS]


def test_a_target_word_is_in_the_vocabulary_or_copied_or_unk(tok: CopyNetTokenizer) -> None:
    assert tok("X a Y", text_target="Y b Z X")["labels"] == [SLOT + 1, B, UNK, SLOT, EOS]


def test_a_target_has_the_slots_of_its_own_row_only(tok: CopyNetTokenizer) -> None:
    labels = tok(["X", "Y", "a"], text_target=["X Y", "X Y", "X Y"])["labels"]
    assert labels == [[SLOT, UNK, EOS], [UNK, SLOT, EOS], [UNK, UNK, EOS]]


def test_only_words_that_survive_truncation_own_slots(tok: CopyNetTokenizer) -> None:
    encoding = tok("a X Y", text_target="X Y", truncation=True, max_length=2, max_target_length=9)
    assert encoding["input_ids"] == [A, SLOT]
    assert encoding["labels"] == [SLOT, UNK, EOS]
    assert tok.oov_words("a X Y", max_length=2) == ["X"]
    assert tok.encode_source("a X Y", max_length=2).words == ["a", "X"]


@settings(deadline=None)
@given(
    source=st.lists(st.sampled_from(["a", "b", "N0", "N1", "N2", "N3", "N4"]), max_size=8),
    target=st.lists(st.sampled_from(["a", "c", "N0", "N1", "N2", "N3", "N4"]), max_size=8),
    renaming=st.permutations(["P", "Q", "R", "</s>", "<oov-0>"]),
    segmenter=st.sampled_from(["whitespace", "char"]),
)
def test_ids_do_not_depend_on_the_spelling_of_oov_words(
    source: list[str], target: list[str], renaming: list[str], segmenter: str
) -> None:
    tok = make(segmenter)
    names = {f"N{number}": name for number, name in enumerate(renaming)}
    renamed = [[names.get(word, word) for word in words] for words in (source, target)]
    encode = {"is_split_into_words": True}
    assert dict(tok(source, text_target=target, **encode)) == dict(tok(renamed[0], text_target=renamed[1], **encode))


def test_special_tokens_spelled_out_in_a_text_are_oov_words(tok: CopyNetTokenizer) -> None:
    encoding = tok("</s> a <pad>", text_target="<pad> <s>")
    assert encoding["input_ids"] == [SLOT, A, SLOT + 1]
    assert encoding["labels"] == [SLOT + 1, UNK, EOS]
    text = "</s> a <pad>"
    assert tok.decode(encoding["input_ids"], source=text, skip_special_tokens=True) == text
    assert make("char").tokenize("</s>") == list("</s>")


def test_special_tokens_are_recognised_without_split_special_tokens() -> None:
    tok = make("char", split_special_tokens=False)
    tok.add_special_tokens({"extra_special_tokens": ["<turn>"]})
    assert tok("a<turn>bX</s>")["input_ids"] == [A, 7, B, 8, EOS]
    assert tok.decode([A, 7, 8, EOS], source="a<turn>bX</s>") == "a<turn>X</s>"
    with pytest.raises(ValueError, match="split_special_tokens"):
        tok("a", split_special_tokens=True)


def test_added_tokens_move_the_first_slot(tok: CopyNetTokenizer) -> None:
    assert tok("X Y")["input_ids"] == [7, 8]
    assert tok.add_tokens(["X"]) == 1
    assert (len(tok), tok.vocab_size) == (8, 7)
    encoding = tok("X Y", text_target="Y X")
    assert encoding["input_ids"] == [7, 8]
    assert encoding["labels"] == [8, 7, EOS]
    assert tok.decode([7, 8], source="X Y") == "X Y"
    assert tok.decode([7, 8, 11]) == "X <oov-0> <unk>"
    assert tok.oov_words("X Y") == ["Y"]


# ---- shapes, padding, truncation


def test_a_padded_batch_has_labels_that_the_loss_ignores(tok: CopyNetTokenizer) -> None:
    batch = tok(["a X", "", "c"], text_target=["X", "b a", ""], padding=True, return_tensors="pt")
    assert batch["input_ids"].tolist() == [[A, SLOT], [PAD, PAD], [C, PAD]]
    assert batch["attention_mask"].tolist() == [[1, 1], [0, 0], [1, 0]]
    assert batch["labels"].tolist() == [[SLOT, EOS, -100], [B, A, EOS], [EOS, -100, -100]]
    assert all(value.dtype == torch.int64 for value in batch.values())


def test_padding_to_a_length_pads_sources_and_labels(tok: CopyNetTokenizer) -> None:
    lengths = {"padding": "max_length", "truncation": True, "max_length": 4, "max_target_length": 3}
    encoding = tok("X a", text_target="X", **lengths)
    assert encoding["input_ids"] == [SLOT, A, PAD, PAD]
    assert encoding["labels"] == [SLOT, EOS, -100]
    encoding = tok(["a"], text_target=["a b c"], padding=True, pad_to_multiple_of=8)
    assert [len(row) for row in (*encoding["input_ids"], *encoding["labels"])] == [8, 8]
    assert tok("", padding="max_length", max_length=2)["input_ids"] == [PAD, PAD]


def test_left_padding_leaves_labels_on_the_left(tok: CopyNetTokenizer) -> None:
    tok.padding_side = "left"
    encoding = tok(["a b", "c"], text_target=["a b", "c"], padding=True)
    assert encoding["input_ids"] == [[A, B], [PAD, C]]
    assert encoding["labels"] == [[A, B, EOS], [C, EOS, -100]]


@pytest.mark.parametrize("side", ["left", "right"])
def test_truncated_labels_keep_their_beginning_and_end_in_eos(tok: CopyNetTokenizer, side: str) -> None:
    tok.truncation_side = side
    labels = [tok("a", text_target="a b c", truncation=True, max_length=n)["labels"] for n in (1, 2, 4)]
    assert labels == [[EOS], [A, EOS], [A, B, C, EOS]]
    assert tok("a b", text_target="a b c", max_target_length=2)["labels"] == [A, EOS]
    bare = tok("a", text_target="a b c", truncation=True, max_length=2, add_special_tokens=False)
    assert bare["labels"] == [A, B]


def test_truncation_is_off_by_default(tok: CopyNetTokenizer) -> None:
    assert tok("a b c", text_target="a b c", truncation=True)["labels"] == [A, B, C, EOS]
    assert tok("a b c", truncation=False, max_length=1)["input_ids"] == [A, B, C]
    tok.model_max_length = 2
    assert tok("a b c", text_target="a b c", truncation=True)["labels"] == [A, EOS]


def test_empty_texts_and_empty_batches(tok: CopyNetTokenizer) -> None:
    assert dict(tok("", text_target="")) == {"input_ids": [], "attention_mask": [], "labels": [EOS]}
    batch = tok(["", ""], padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == (2, 0)
    assert batch["input_ids"].dtype == torch.int64
    assert dict(tok([], text_target=[])) == {"input_ids": [], "attention_mask": [], "labels": []}


def test_pretokenized_words_are_not_split(tok: CopyNetTokenizer) -> None:
    encoding = tok([["New York", "a"], []], text_target=[["New York"], ["b"]], is_split_into_words=True)
    assert encoding["input_ids"] == [[SLOT, A], []]
    assert encoding["labels"] == [[SLOT, EOS], [B, EOS]]
    assert tok(["X", "a"], is_split_into_words=True)["input_ids"] == [SLOT, A]
    assert tok([], is_split_into_words=True)["input_ids"] == []
    assert tok.decode([SLOT, A], source=["New York", "a"], is_split_into_words=True) == "New York a"


def test_targets_without_sources_have_no_slots(tok: CopyNetTokenizer) -> None:
    encoding = tok(text_target=["X a", "b"], padding=True)
    assert encoding["input_ids"] == [[UNK, A, EOS], [B, EOS, PAD]]
    assert encoding["attention_mask"] == [[1, 1, 1], [1, 1, 0]]
    assert tok(text_target="a b c", max_target_length=2)["input_ids"] == [A, EOS]


def test_encode_gives_the_ids_of_a_source(tok: CopyNetTokenizer) -> None:
    assert tok.encode("a X") == [A, SLOT]
    assert tok("a X", return_tensors="pt")["input_ids"].tolist() == [[A, SLOT]]
    assert isinstance(tok(["a X"], return_tensors="np")["input_ids"], np.ndarray)
    assert "attention_mask" not in tok("a", return_attention_mask=False)


# ---- errors


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"text": ["a", None]}, TypeError, r"text\[1\] is NoneType"),
        ({"text": [1, 2]}, TypeError, r"text\[0\] is int"),
        ({"text": 3}, TypeError, "text is int"),
        ({"text": ["a"], "text_target": [2.5]}, TypeError, r"text_target\[0\] is float"),
        ({"text": [["a"]]}, TypeError, r"text\[0\] is list: pass a text, or words with is_split_into_words=True"),
        ({"text": "a b", "is_split_into_words": True}, TypeError, "not a list of words"),
        (
            {"text": [["a", None]], "is_split_into_words": True},
            TypeError,
            r"text\[0\]\[1\] is None, not a word: pass strings",
        ),
        (
            {"text": [["a"]], "text_target": ["a b"], "is_split_into_words": True},
            ValueError,
            "text has 1 rows, text_target one text: they must match; with is_split_into_words, a target is a list of",
        ),
        ({"text": None}, ValueError, "You need to specify either `text` or"),
        ({"text": ["a", "b"], "text_target": ["a"]}, ValueError, "text has 2 rows, text_target 1 rows"),
        ({"text": "a", "text_target": ["a"]}, ValueError, "text has one text"),
        ({"text": ["a"], "text_pair": ["b"]}, ValueError, "text_pair is not supported"),
        ({"text": "a", "max_lenght": 3}, ValueError, "max_lenght"),
        ({"text_target": "a", "return_offsets_mapping": True}, ValueError, "return_offsets_mapping"),
        (
            {"text": "a", "truncation": True, "max_length": 0},
            ValueError,
            "^max_length is 0: use a number",
        ),
        (
            {"text": "a", "text_target": "a", "max_target_length": 0},
            ValueError,
            "^max_target_length is 0: use",
        ),
    ],
)
def test_wrong_inputs_raise_an_error_that_names_them(
    tok: CopyNetTokenizer, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tok(**arguments)


def test_wrong_arguments_raise_an_error() -> None:
    with pytest.raises(ValueError, match="segmenter is 'words': choose one of char, whitespace, "):
        make("words")
    with pytest.raises(ValueError, match="max_source_oov is -1"):
        make(max_source_oov=-1)
    with pytest.raises(ValueError, match="lacks the special tokens </s>"):
        CopyNetTokenizer({"<pad>": 0, "<s>": 1, "<unk>": 2})
    with pytest.raises(ValueError, match="the ids of vocab have a gap"):
        CopyNetTokenizer({"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 4})
    with pytest.raises(ValueError, match="vocab is missing"):
        CopyNetTokenizer()


# ---- decoding


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=30), segmenter=st.sampled_from(["char", "jieba", "fugashi", "word_punct"]))
def test_an_encoded_text_decodes_to_itself(text: str, segmenter: str) -> None:
    tok = make(segmenter, max_source_oov=30)
    encoding = tok(text, text_target=text)
    assert tok.decode(encoding["input_ids"], source=text) == text
    assert tok.decode(encoding["labels"], source=text, skip_special_tokens=True) == text


def test_decoding_without_a_source_shows_the_slots(tok: CopyNetTokenizer) -> None:
    assert tok.decode([A, SLOT, SLOT + 2, SLOT + 3, 999, -100, EOS]) == "a <oov-0> <oov-2> <unk> <unk> </s>"
    assert tok.convert_ids_to_tokens([SLOT + 1, B]) == ["<oov-1>", "b"]


def test_a_slot_that_the_source_does_not_own_is_unk(tok: CopyNetTokenizer) -> None:
    assert tok.decode([SLOT, SLOT + 1, A], source="X a") == "X <unk> a"
    assert tok.decode([SLOT, SLOT + 1, A], source="X a", skip_special_tokens=True) == "X a"


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor])
def test_decode_takes_lists_arrays_and_tensors(tok: CopyNetTokenizer, form: Any) -> None:
    assert tok.decode(form([SLOT, A]), source="X a") == "X a"
    assert tok.decode(form([[SLOT, A], [B, SLOT]]), source=["X", "Y"]) == ["X a", "b Y"]
    assert tok.decode([form([SLOT, A]), form([SLOT])], source=["X", "Y"]) == ["X a", "Y"]


def test_batch_decode_always_returns_a_list(tok: CopyNetTokenizer) -> None:
    assert tok.decode(A) == "a"
    assert tok.decode([]) == ""
    assert tok.batch_decode([]) == []
    assert tok.batch_decode([A, B]) == ["a b"]
    assert tok.batch_decode([[], [A, -100]], source=["X", "Y"]) == ["", "a"]


def test_each_source_belongs_to_its_returned_sequences(tok: CopyNetTokenizer) -> None:
    ids = [[SLOT], [SLOT, A], [SLOT], [B, SLOT]]
    assert tok.batch_decode(ids, source=["X", "Y"]) == ["X", "X a", "Y", "b Y"]
    assert tok.batch_decode(ids, source="X") == ["X", "X a", "X", "b X"]
    assert tok.batch_decode([[A], [SLOT]], source=["X", "Y"]) == ["a", "Y"]
    with pytest.raises(ValueError, match="3 sources do not divide 4 sequences"):
        tok.batch_decode(ids, source=["X", "Y", "Z"])
    with pytest.raises(ValueError, match="0 sources"):
        tok.batch_decode(ids, source=[])
    with pytest.raises(TypeError, match=r"source\[1\]"):
        tok.batch_decode(ids, source=["X", None])
    with pytest.raises(TypeError, match="source="):
        tok.decode([SLOT], "X")


def test_decoding_needs_no_length_after_truncation_on_the_right(tok: CopyNetTokenizer) -> None:
    text = "X a Y Z"
    ids = tok(text, truncation=True, max_length=3)["input_ids"]
    assert tok.decode(ids, source=text) == "X a Y"


def test_decoding_needs_the_length_after_truncation_on_the_left(tok: CopyNetTokenizer) -> None:
    tok.truncation_side = "left"
    text = "X a Y Z"
    encoding = tok(text, text_target="Z X", truncation=True, max_length=3)
    assert encoding["input_ids"] == [A, SLOT, SLOT + 1]
    assert encoding["labels"] == [SLOT + 1, UNK, EOS]
    assert tok.decode(encoding["input_ids"], source=text, max_source_length=3) == "a Y Z"
    with pytest.raises(ValueError, match="max_source_length"):
        tok.decode(encoding["input_ids"], source=text)


# ---- vocabulary


def test_training_keeps_the_most_frequent_words_and_breaks_ties_by_code_point() -> None:
    texts = ["c b b", "a a c d", "</s> </s> </s>"]
    tok = CopyNetTokenizer.train_from_iterator(iter(texts), 7, segmenter="whitespace")
    assert list(tok.get_vocab()) == ["<pad>", "<s>", "</s>", "<unk>", "a", "b", "c"]
    assert [tok.pad_token_id, tok.bos_token_id, tok.eos_token_id, tok.unk_token_id] == [0, 1, 2, 3]
    again = CopyNetTokenizer.train_from_iterator(reversed(texts), 7, segmenter="whitespace")
    assert again.get_vocab() == tok.get_vocab()
    assert tok.max_source_oov == 32


def test_a_vocabulary_can_be_smaller_than_vocab_size() -> None:
    assert len(CopyNetTokenizer.train_from_iterator(["abca"], 100)) == 4 + 3
    assert len(CopyNetTokenizer.train_from_iterator(["abca"], 100, min_frequency=2)) == 4 + 1
    words = CopyNetTokenizer.train_from_iterator([["New York", "a"]], 9, is_split_into_words=True)
    assert words.convert_tokens_to_ids("New York") == 4


def test_training_without_texts_or_room_for_words_is_refused() -> None:
    with pytest.raises(ValueError, match="texts is empty"):
        CopyNetTokenizer.train_from_iterator(iter([]), 10)
    with pytest.raises(ValueError, match="vocab_size=3"):
        CopyNetTokenizer.train_from_iterator(["a"], 3)
    with pytest.raises(TypeError, match="one text"):
        CopyNetTokenizer.train_from_iterator("abc", 10)
    with pytest.raises(TypeError, match=r"texts\[1\] is NoneType"):
        CopyNetTokenizer.train_from_iterator(["a", None], 10)  # type: ignore[list-item]


def test_tokens_and_ids_convert_both_ways(tok: CopyNetTokenizer) -> None:
    assert tok.tokenize("a X  b") == ["a", "X", "b"]
    assert tok.convert_tokens_to_ids(["a", "X", "</s>"]) == [A, UNK, EOS]
    assert tok.convert_ids_to_tokens(tok.convert_tokens_to_ids(["a", "</s>"])) == ["a", "</s>"]
    assert tok.convert_tokens_to_string(["a", "X"]) == "a X"
    assert (len(tok), tok.vocab_size, len(tok.get_vocab())) == (7, 7, 7)


# ---- files, pickles, Transformers and datasets


def test_saving_and_loading_keeps_everything(tmp_path: Path) -> None:
    odd = ["\n", " ", "\u2028", '"', "\\", "\ud800", "文", "\ufeff"]
    tok = CopyNetTokenizer.train_from_iterator(["".join(odd)], 100, max_source_oov=5, model_max_length=99)
    tok.add_tokens(["X"])
    tok.truncation_side = "left"
    tok.save_pretrained(tmp_path)
    loaded = CopyNetTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == tok.get_vocab()
    assert set(odd) <= set(loaded.get_vocab())
    for name in (
        "segmenter",
        "max_source_oov",
        "model_max_length",
        "truncation_side",
        "split_special_tokens",
    ):
        assert getattr(loaded, name) == getattr(tok, name)
    assert len(loaded) == len(tok) == loaded.vocab_size + 1
    assert dict(loaded("文Xq\n")) == dict(tok("文Xq\n"))
    assert CopyNetTokenizer(tmp_path / "vocab.json").vocab_size == tok.vocab_size
    loaded.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "vocab.json").read_bytes() == (tmp_path / "vocab.json").read_bytes()


def test_a_special_token_replaced_later_survives_saving(tmp_path: Path, tok: CopyNetTokenizer) -> None:
    tok.add_special_tokens({"pad_token": "[PAD]"})
    tok.save_pretrained(tmp_path)
    loaded = CopyNetTokenizer.from_pretrained(tmp_path)
    assert (loaded.pad_token, loaded.pad_token_id) == ("[PAD]", 7)


def test_pickling_keeps_everything(tok: CopyNetTokenizer) -> None:
    copy = pickle.loads(pickle.dumps(tok))
    assert dict(copy("a X", text_target="X")) == dict(tok("a X", text_target="X"))


def test_the_hash_of_datasets_is_stable_under_use(tok: CopyNetTokenizer) -> None:
    fingerprint = pytest.importorskip("datasets.fingerprint")
    before = fingerprint.Hasher.hash(tok)
    features = [dict(tok("a X", text_target="X"))]
    DataCollatorForSeq2Seq(tok)(features)
    tok(text_target="a")
    tok.batch_decode([[SLOT]], source=["X"])
    assert fingerprint.Hasher.hash(tok) == before == fingerprint.Hasher.hash(make())
    assert fingerprint.Hasher.hash(make(max_source_oov=4)) != before


def test_what_is_not_ids_is_not_decoded(tok: CopyNetTokenizer) -> None:
    for wrong in (np.zeros((2, 3, 9)), torch.zeros(2, 3), ModelOutput(sequences=torch.ones(1, 2))):
        for decode in (tok.decode, tok.batch_decode):
            with pytest.raises(TypeError, match=r"does not hold ids: pass output.sequences, or logits.argmax\(-1\)"):
                decode(wrong, source=["a"])


def test_text_streamer_passes_the_source_on(tok: CopyNetTokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    streamer = TextStreamer(tok, source="Y b X", skip_special_tokens=True)
    for token in (BOS, B, SLOT + 1, SLOT, EOS):
        streamer.put(torch.tensor([token]))
    streamer.end()
    assert capsys.readouterr().out == "b X Y\n"


def test_a_column_of_a_dataset_is_a_batch(tok: CopyNetTokenizer) -> None:
    rows = pytest.importorskip("datasets").Dataset.from_dict({"text": ["a X", "Y b"]})
    assert tok(rows["text"])["input_ids"] == [[A, SLOT], [SLOT, B]]


def test_the_seq2seq_collator_pads_extended_ids(tok: CopyNetTokenizer) -> None:
    features = [dict(tok(text, text_target=target)) for text, target in (("", "b"), ("a X", "X a"))]
    batch = DataCollatorForSeq2Seq(tok)(features)
    assert batch["input_ids"].tolist() == [[PAD, PAD], [A, SLOT]]
    assert batch["attention_mask"].tolist() == [[0, 0], [1, 1]]
    assert batch["labels"].tolist() == [[B, EOS, -100], [SLOT, A, EOS]]


def test_a_saved_folder_holds_the_code_of_the_tokenizer(
    tmp_path: Path, tok: CopyNetTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CopyNetTokenizer, "_auto_class", None)  # put back after the test
    CopyNetTokenizer.register_for_auto_class("AutoTokenizer")
    folder = tmp_path / "model"
    tok.save_pretrained(folder)
    assert {path.name for path in folder.glob("*.py")} == {
        "chains.py",
        "neighbours.py",
        "pieces.py",
        "segmentation.py",
        "source.py",
        "text_models.py",  # imported only for the limit of a new encoder
        "tokenization_copynet.py",
        "vocabularies.py",
    }


def test_all_frequent_letters_are_kept_where_the_vocabulary_has_room() -> None:
    letters = [chr(code) for code in range(ord("가"), ord("가") + 60)]
    words = ["".join(pair) for pair in zip(letters, letters[7:] + letters[:7], strict=True)]
    for size, rare, number in ((400, [], 60), (400, ["힣힢"], 60), (80, [], 35), (80, ["ab"] * 60, 33)):
        tokenizer = CopyNetTokenizer.train_from_iterator([*words * 2, *rare], size, "word_punct", 3, chains=True)
        assert sum(letter in tokenizer.get_vocab() for letter in [*letters, *"힣힢"]) == number
