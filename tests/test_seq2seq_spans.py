"""What a pretrained encoder-decoder copies is found in the text by the offsets of its tokenizer's pieces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import byte_level_tokenizer
from test_seq2seq import make_copying, make_tokenizer
from test_spans import SEARCH, TEXTS, Scripted, check
from tiny_encoders import CORPUS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.model.prediction import predict
from copynet_hf.visualization.highlighting import find_words

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
NAMES = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
# The library's tokenizers refuse half of a pair of surrogates; in NFKC, a letter and its accent are one character.
WHOLE = [text.replace("\ud83d ", "").replace("\u0308", "") if not text.isascii() else text for text in TEXTS]


def make_byte_level() -> PreTrainedTokenizerBase:
    """Of BART's kind."""
    return byte_level_tokenizer(CORPUS, 400, **NAMES)


def make_unigram() -> PreTrainedTokenizerBase:
    """Of T5's and Pegasus' kind."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=SPECIAL, unk_token="<unk>")
    backend.train_from_iterator(CORPUS + WHOLE[:3], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **NAMES)


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "metaspace": lambda: make_tokenizer(300, sorted(set("".join(WHOLE[:3])))),
    "byte level": make_byte_level,
    "unigram": make_unigram,
    "bytes": ByT5Tokenizer,
}


def make_model(tokenizer: PreTrainedTokenizerBase, folder: Path) -> CopyNetForConditionalGeneration:
    """A random model that copies most of the time."""
    return make_copying(folder, "bart", tokenizer, bias=3.0, max_position_embeddings=100)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_text_at_the_span_is_the_copied_piece(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]()
    model, copies = make_model(tokenizer, tmp_path), 0
    for length in (None, 7):
        found = predict(model, tokenizer, WHOLE, max_source_length=length, **SEARCH)
        copies += sum(check(text, output) for text, outputs in zip(WHOLE, found, strict=True) for output in outputs)
    assert copies > 100


@pytest.mark.parametrize("kind", ["byte level", "bytes"])
def test_a_character_of_several_bytes_is_one_span(kind: str) -> None:
    """Where its bytes are copied one after the other; with a byte that was generated, it is another character."""
    tokenizer: Any = TOKENIZERS[kind]()
    source = tokenizer("to \u00fcx")["input_ids"]
    for text, copied in (("to \u00fcx", [(0, 5, 0, 5)]), ("\u017cx", [(1, 2, 4, 5)])):  # \u017c ends as \u00fc does
        model: Any = Scripted(source, tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
        ((output,),) = predict(model, tokenizer, ["to \u00fcx"])
        assert (output.text, output.copied_spans) == (text, copied)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_stop_strings_and_lone_surrogates_reach_other_tokenizers(kind: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]()
    model, text = make_model(tokenizer, tmp_path), "\ud83d send it"
    options: dict[str, Any] = {"max_new_tokens": 9, "min_new_tokens": 9}
    ((whole,),) = predict(model, tokenizer, [text], **options)
    check(text.replace("\ud83d", "?"), whole)
    stop = whole.words[2].strip() or whole.words[2]
    ((stopped,),) = predict(model, tokenizer, [text], **options, stop_strings=stop)
    assert whole.text.startswith(stopped.text)
    assert len(stopped.words) <= 3
    for name in ("facts", "features"):
        with pytest.raises(ValueError, match=f"{name} cannot be read by a .*Tokenizer.*: leave {name} out"):
            predict(model, tokenizer, [text], **options, **{name: [["a"]]})


def test_unknown_pieces_leave_the_text_of_a_page_as_it_is() -> None:
    assert find_words("a {b} c", ["a", "<unk>", "b", "<unk>", "c", ""]) == (
        [("", "a"), (" ", "<unk>"), (" ", "b"), (" ", "<unk>"), (" ", "c"), ("", "")],
        "",
    )
    assert find_words("call Ann now", ["", "call", "ann", "now"]) == (
        [("", ""), ("", "call"), (" ", "ann"), (" ", "now")],
        "",
    )
