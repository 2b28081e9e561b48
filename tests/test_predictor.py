"""`predict`, the one way from texts to outputs: in batches, for scores, and with every kind of tokenizer."""

from __future__ import annotations

import codecs
import random
import re
from dataclasses import asdict
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from helpers import POINTER, SIZES, byte_level_tokenizer, tiny_model, tiny_tokenizer
from transformers import GenerationConfig, PreTrainedTokenizerFast

from copynet_hf import CopyNetForConditionalGeneration, CopyNetPredictor, CopyNetTokenizer, copies_html
from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.model.source import Source, add_spaces, skipped_ids
from copynet_hf.training.model_setup import build_config

FACTS = [("X", "b", "1931"), ("X", "c", "Y")]


def spell(tokenizer: Any, ids: list[int], text: str = "") -> list[str]:
    """The words of an output whose source is the text."""
    source = tokenizer.encode_source(text) if text else Source(tokenizer, "", [], [])
    return source.spell(ids, skipped_ids(tokenizer))


def baseline(tokenizer: CopyNetTokenizer) -> CopyNetForConditionalGeneration:
    return CopyNetForConditionalGeneration(build_config(tokenizer, fields=SIZES | {"copy_mechanism": "none"}))


def words_and_origins(predictions: list[list[Prediction]]) -> list[Any]:
    return [[(each.words, each.copied, each.source_positions) for each in row] for row in predictions]


# ---- predictions


def test_predictions_are_the_decoded_outputs_with_their_traces(
    pairs: Dataset, tokenizer: CopyNetTokenizer, model: CopyNetForConditionalGeneration
) -> None:
    texts = list(pairs["text"][:3])
    options: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}
    predictions = predict(model, tokenizer, texts, return_copy_probs=True, **options)
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    sequences: Any = model.generate(**inputs, **options)
    trace: Any = model.trace_copies(sequences, **inputs)
    decoded = tokenizer.batch_decode(
        [[word for word in row if word not in (0, 1, 2)] for row in sequences.tolist()], source=texts
    )
    assert [each.text for row in predictions for each in row] == decoded
    for row, output in enumerate(each for outputs in predictions for each in outputs):
        steps, source = len(output.words), texts[row // 2].split()
        assert output.copy_probs is not None
        np.testing.assert_allclose(output.copy_probs, trace.copy_probs[row, :steps, : len(source)], atol=1e-6)
        np.testing.assert_allclose(output.copy_shares, trace.copied[row, :steps], atol=1e-6)
        assert output.source_words == source


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize("end", [4, 11])
def test_outputs_end_at_an_end_symbol_that_is_a_word(end: int, trace: bool) -> None:
    """Beam search fills up shorter rows of a batch with it."""
    model, tokenizer, texts = tiny_model(), tiny_tokenizer(), ["zz", "c zz zz i yy xx ww h", "a zz b yy", "d e f g"]
    options: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 12, "trace": trace}
    for more in ({"eos_token_id": end}, {"generation_config": GenerationConfig(eos_token_id=end)}):
        together = predict(model, tokenizer, texts, **options, **more)
        alone = [predict(model, tokenizer, [text], **options, **more)[0] for text in texts]
        assert [row[0].text for row in together] == [row[0].text for row in alone]
        assert words_and_origins(together) == words_and_origins(alone)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("fields", [{}, {"copy_mechanism": "retrieval"}, POINTER, {"copy_mechanism": "none"}], ids=str)
def test_facts_no_facts_and_no_words_share_a_batch(fields: dict[str, Any], side: str) -> None:
    model, tokenizer = tiny_model(seed=8, **fields), tiny_tokenizer()
    tokenizer.max_source_oov, tokenizer.padding_side = model.config.max_source_oov, side
    texts, facts = ["a X", "", "a X b Z c", "d"], [FACTS, None, [], FACTS[:1]]
    options: dict[str, Any] = {"return_copy_probs": True, "max_new_tokens": 5}
    together = predict(model, tokenizer, texts, facts=facts, **options)
    alone = [
        predict(model, tokenizer, [text], facts=[own], **options)[0] for text, own in zip(texts, facts, strict=True)
    ]
    assert words_and_origins(together) == words_and_origins(alone)
    for (one,), (other,) in zip(together, alone, strict=True):
        assert one.source_words == other.source_words
        np.testing.assert_allclose(one.copy_probs, other.copy_probs, atol=1e-5)
    assert together[0][0].source_words == ["a", "X", "X", "b", "1931", "X", "c", "Y"]
    assert together[1][0].source_words == []


def test_outputs_of_a_model_saved_to_return_a_dict_are_read_from_it() -> None:
    model, tokenizer = tiny_model(seed=1), tiny_tokenizer()
    expected = predict(model, tokenizer, ["a X b", "Z"])
    model.generation_config.update(return_dict_in_generate=True, output_scores=True)
    assert predict(model, tokenizer, ["a X b", "Z"]) == expected


def test_a_batch_has_at_least_one_text() -> None:
    with pytest.raises(ValueError, match="batch_size is 0: use 1 or more"):
        predict_in_batches(tiny_model(), tiny_tokenizer(), ["a"], batch_size=0)


def test_one_text_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(TypeError, match="texts is one text, 'a X b': pass a list of texts"):
        predict(tiny_model(), tiny_tokenizer(), "a X b")


def test_a_model_that_does_not_copy_marks_nothing(tokenizer: CopyNetTokenizer) -> None:
    ((output,),) = predict(baseline(tokenizer), tokenizer, ["call Ann"], return_copy_probs=True, max_new_tokens=4)
    assert not any(output.copied)
    assert output.copy_shares == [0.0] * len(output.words)
    assert output.source_positions == [None] * len(output.words)
    assert output.copy_probs is not None
    assert output.copy_probs.shape == (len(output.words), 2)
    assert not output.copy_probs.any()


# ---- batches and scores


def test_outputs_are_in_the_order_of_the_sources_whatever_the_batches(
    pairs: Dataset, tokenizer: CopyNetTokenizer, model: CopyNetForConditionalGeneration
) -> None:
    texts = list(pairs["text"][:9])
    alone = [predict(model, tokenizer, [text], max_new_tokens=6)[0] for text in texts]
    batched = predict_in_batches(model, tokenizer, texts, batch_size=4, max_new_tokens=6, num_beams=None)
    assert words_and_origins(batched) == words_and_origins(alone)
    assert predict_in_batches(model, tokenizer, [], max_new_tokens=6) == predict(model, tokenizer, []) == []


def test_the_share_of_the_copy_mode_is_that_of_the_copied_words(
    pairs: Dataset, tokenizer: CopyNetTokenizer, model: CopyNetForConditionalGeneration
) -> None:
    few = pairs.select(range(6))
    scores, records = evaluate_pairs(model, tokenizer, few, max_new_tokens=6)
    flags = [flag for record in records for flag in record["copied"]]
    assert scores["copy_mode_fraction"] == 100 * sum(flags) / len(flags)
    scores, _ = evaluate_pairs(baseline(tokenizer), tokenizer, few, max_new_tokens=6)
    assert "copy_mode_fraction" not in scores
    assert "copied_fraction" in scores


# ---- words


@pytest.mark.parametrize("segmenter", ["char", "whitespace", "jieba", "fugashi", "word_punct"])
def test_words_with_their_spaces_are_the_text(segmenter: str) -> None:
    text = 'send "report (v2).pdf" to 华为, now'
    tokenizer = CopyNetTokenizer.train_from_iterator([text], 100, segmenter=segmenter)
    words = tokenizer.tokenize(text)
    pieces = add_spaces(tokenizer, words)
    assert len(pieces) == len(words)
    assert "".join(pieces) == text


def make_tokenizer(unk_token: str | None = "[UNK]") -> PreTrainedTokenizerFast:
    """One of bytes, with few merges."""
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    special |= {"unk_token": unk_token} if unk_token else {}
    return byte_level_tokenizer(["send the report to the office"] * 3, 280, **special)


def find_complete_characters(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    """The text of the ids without the bytes of an unfinished character: GPT-2's table of bytes, written anew."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    bytes_of = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    data = bytes(bytes_of[char] for token in tokenizer.convert_ids_to_tokens(ids) for char in token)
    return codecs.getincrementaldecoder("utf-8")().decode(data)


@pytest.mark.parametrize(
    "text",
    ["send the report", "déjà vu, naïve", "ok 😀👩‍👩‍👧 to Zoë", "请问 the 路", "", "😀"],
)
def test_bytes_of_a_byte_level_tokenizer_are_shown_where_their_character_ends(text: str) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer(text)["input_ids"]
    pieces = add_spaces(tokenizer, spell(tokenizer, ids))
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text
    for count, shown in enumerate(accumulate(pieces), start=1):
        assert shown == find_complete_characters(tokenizer, ids[:count])


def test_bytes_that_are_no_character_are_shown_as_in_the_text() -> None:
    tokenizer, generator = make_tokenizer(), random.Random(0)
    for _ in range(200):
        ids = generator.choices(range(4, len(tokenizer)), k=generator.randint(1, 12))
        words = tokenizer.convert_ids_to_tokens(ids)
        pieces = add_spaces(tokenizer, words)
        assert len(pieces) == len(words)
        assert "".join(pieces) == tokenizer.convert_tokens_to_string(words).strip()
    text = "\ufffd a \ufffd\ufffd"  # the character itself, not the sign of a missing one
    assert "".join(add_spaces(tokenizer, tokenizer.tokenize(text))) == text


def test_the_time_for_the_spaces_grows_with_the_number_of_words() -> None:
    tokenizer, joined = make_tokenizer(), []
    join = tokenizer.convert_tokens_to_string
    tokenizer.convert_tokens_to_string = lambda words: joined.append(len(words)) or join(words)
    words = tokenizer.tokenize("naïve 😀 report " * 100)
    add_spaces(tokenizer, words)
    assert sum(joined) < 12 * len(words)


def test_an_unknown_word_is_written_as_the_tokenizer_does() -> None:
    tokenizer = make_tokenizer()
    assert spell(tokenizer, [tokenizer.unk_token_id, len(tokenizer) + 3]) == ["[UNK]", "[UNK]"]
    without = make_tokenizer(unk_token=None)
    assert spell(without, [len(without) + 3, without.eos_token_id]) == ["<unk>"]


def test_an_end_symbol_that_is_the_unknown_word_too_is_not_shown() -> None:
    tokenizer = make_tokenizer("</s>")  # as in GPT-2
    assert spell(tokenizer, [tokenizer.convert_tokens_to_ids("a"), tokenizer.eos_token_id]) == ["a"]


def test_the_words_of_an_output_are_its_text_without_outer_spaces() -> None:
    tokenizer = make_tokenizer()
    others = sorted(set(range(len(tokenizer))) - {tokenizer.convert_tokens_to_ids("Ġ")})
    ((output,),) = predict(baseline(tokenizer), tokenizer, ["send"], max_new_tokens=3, suppress_tokens=others)
    assert (output.text, output.words) == ("", ["", "", ""])
    words = add_spaces(tokenizer, ["Ġ", "Ġ", "a", "Ġ", "b", "Ġ"])
    assert words == ["", "", "a", " ", "b", ""]


def test_unknown_words_of_another_tokenizer_count_as_unknown() -> None:
    tokenizer = make_tokenizer()
    others = sorted(set(range(len(tokenizer))) - {tokenizer.unk_token_id})
    pairs = Dataset.from_dict({"text": ["send it"], "summary": ["send"]})
    options: dict[str, Any] = {"max_new_tokens": 2, "suppress_tokens": others}
    scores, (record,) = evaluate_pairs(baseline(tokenizer), tokenizer, pairs, **options)
    assert record["prediction"] == "[UNK][UNK]"
    assert scores["unk_rate"] == 100.0


def test_source_words_are_those_of_the_text_and_not_the_tokens() -> None:
    text = " send src/a.py (now),  Otto! "
    tokenizer = CopyNetTokenizer.train_from_iterator(["send a now"], 30, "word_punct", max_source_oov=16)
    ((output,),) = predict(tiny_model(vocab_size=30, max_source_oov=16), tokenizer, [text], max_new_tokens=2)
    words = [" ", "send", "src", "/", "a", ".", "py", "(", "now", ")", ",", "  ", "Otto", "!", " "]
    assert output.source_words == words
    page = copies_html(text, asdict(output))
    assert f'<p data-name="source">{text}</p>' in re.sub("</?span[^>]*>", "", page)


@pytest.mark.parametrize("name", ["num_beams", "min_confidence", "text_column", "max_new_tokens"])
def test_a_misspelled_argument_is_refused_before_the_model_is_loaded(name: str) -> None:
    right: dict[str, Any] = {"batch_size": 4, "trace": False, "forbid_unk": False, "streamer": None}
    CopyNetPredictor("no-such-folder", **right)
    with pytest.raises(TypeError, match=f"{name[:-1]} is not an argument; did you mean {name}\\?"):
        CopyNetPredictor("no-such-folder", **right, **{name[:-1]: 2})
    with pytest.raises(ValueError, match="num_return_sequences: there is one output for each text"):
        CopyNetPredictor("no-such-folder", **right, num_return_sequences=2)
