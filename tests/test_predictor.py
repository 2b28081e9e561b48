"""`predict`, the one way from texts to outputs: in batches, for scores, and with every kind of tokenizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import POINTER, SIZES, tiny_model, tiny_tokenizer

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.model.words import add_spaces, decode_words
from copynet_hf.training.model_setup import build_config

FACTS = [("X", "b", "1931"), ("X", "c", "Y")]


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


def test_copy_probs_have_a_row_for_each_output_word_and_a_column_for_each_source_word(
    pairs: Dataset, tokenizer: CopyNetTokenizer, model: CopyNetForConditionalGeneration
) -> None:
    text = pairs["text"][0]
    ((output,),) = predict(model, tokenizer, [text], return_copy_probs=True, max_new_tokens=5)
    assert output.source_words == text.split()
    assert output.copy_probs is not None
    assert output.copy_probs.shape == (len(output.words), len(output.source_words))
    assert [word.strip() for word in output.words] == output.text.split()
    ((without,),) = predict(model, tokenizer, [text], max_new_tokens=5)
    assert without == output
    assert without.copy_probs is None


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


def test_the_best_of_several_outputs_is_the_single_one(
    pairs: Dataset, tokenizer: CopyNetTokenizer, model: CopyNetForConditionalGeneration
) -> None:
    with torch.no_grad():  # large weights, so that some words are copied and some are not
        for parameter in model.parameters():
            parameter.mul_(6)
    texts = list(pairs["text"][:6])
    search = {"num_beams": 3, "max_new_tokens": 6}
    single = predict_in_batches(model, tokenizer, texts, **search)
    several = predict_in_batches(model, tokenizer, texts, num_return_sequences=3, **search)
    assert {flag for (output,) in single for flag in output.copied} == {False, True}
    assert [len(outputs) for outputs in several] == [3] * 6
    assert words_and_origins([outputs[:1] for outputs in several]) == words_and_origins(single)


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


def test_extended_ids_are_words_of_the_source_and_others_are_unk(tokenizer: CopyNetTokenizer) -> None:
    first = len(tokenizer)
    ids = [first + 1, tokenizer.unk_token_id, first, first + 2, tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert decode_words(tokenizer, ids, "Zork , Blib") == ["Blib", "<unk>", "Zork", "<unk>"]


@pytest.mark.parametrize("segmenter", ["char", "whitespace", "jieba", "fugashi", "word_punct"])
def test_words_with_their_spaces_are_the_text(segmenter: str) -> None:
    text = 'send "report (v2).pdf" to 华为, now'
    tokenizer = CopyNetTokenizer.train_from_iterator([text], 100, segmenter=segmenter)
    words = tokenizer.tokenize(text)
    pieces = add_spaces(tokenizer, words)
    assert len(pieces) == len(words)
    assert "".join(pieces) == text
