"""Scores of outputs and words: what the search itself gave each token, however it decoded."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
import torch
from helpers import VARIANTS, tiny_model, tiny_tokenizer

from copynet_hf import CopyNetConfig, CopyNetEnsemble, CopyNetTokenizer, StopStrings
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.model.segmentation import MARKS

TEXTS = ["a b c X", "b", "X Y a X Z d e f", "Q i h", "a a X b", "c d"]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "truncated": {"max_new_tokens": 2},
    "beams": {"num_beams": 3, "num_return_sequences": 3},
    "beams of many lengths": {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -2.0},
    "truncated beams": {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 2, "min_new_tokens": 2},
    "stop strings": {"stop_strings": ["a", "X"]},
    "stop strings and beams": {"num_beams": 4, "num_return_sequences": 4, "stop_strings": ["a", "X", "h", "f"]},
    "sampling": {"do_sample": True, "top_k": 0, "num_return_sequences": 3},
    "another end": {"num_beams": 3, "num_return_sequences": 2, "eos_token_id": [4, 7]},
}
MODELS = {
    **{name: (lambda name=name: tiny_model(seed=3, **VARIANTS[name])) for name in ("defaults", "rnnsearch", "gated")},
    "ensemble": lambda: CopyNetEnsemble.from_models([tiny_model(seed=3), tiny_model(seed=4)]),
}


@pytest.mark.parametrize(
    ("kind", "search"),
    [*(("defaults", search) for search in SEARCHES), *((kind, "beams") for kind in MODELS if kind != "defaults")],
)
def test_scores_are_the_products_of_transition_scores(kind: str, search: str) -> None:
    model, tokenizer = MODELS[kind](), tiny_tokenizer()
    for text in TEXTS[:3]:
        options = {"max_new_tokens": 7, **SEARCHES[search]}
        torch.manual_seed(0)
        (outputs,) = predict(model, tokenizer, [text], **options)
        torch.manual_seed(0)
        stop = options.pop("stop_strings", None)
        more = {"stopping_criteria": [StopStrings(tokenizer, stop, [text])]} if stop else {}
        found: Any = model.generate(
            **tokenizer([text], return_tensors="pt"),
            **options,
            **more,
            output_scores=True,
            return_dict_in_generate=True,
        )
        scores = model.compute_transition_scores(
            found.sequences, found.scores, getattr(found, "beam_indices", None)
        ).tolist()
        assert [each.score for each in outputs] == pytest.approx([math.exp(sum(row)) for row in scores], abs=1e-5)
        for output, ids, row in zip(outputs, found.sequences[:, 1:].tolist(), scores, strict=True):
            of_words = [
                math.exp(score) for index, score in zip(ids, row, strict=False) if index > 2
            ]  # no special token
            assert output.word_scores == pytest.approx(of_words[: len(output.words)], abs=1e-5)


@pytest.mark.parametrize("search", [name for name in SEARCHES if name != "sampling"])
def test_what_fills_up_the_rows_of_a_batch_is_in_no_score(search: str) -> None:
    model, tokenizer = tiny_model(seed=3), tiny_tokenizer()
    options = {"max_new_tokens": 9, **SEARCHES[search]}
    together = predict(model, tokenizer, TEXTS, **options)
    alone = [predict(model, tokenizer, [text], **options)[0] for text in TEXTS]
    assert [[each.text for each in row] for row in together] == [[each.text for each in row] for row in alone]
    for rows in zip(together, alone, strict=True):
        first, second = ([each.score for each in row] for row in rows)
        assert first == pytest.approx(second, rel=1e-4)


def test_an_output_is_cut_where_nothing_that_was_asked_for_ended_it() -> None:
    model, tokenizer, seen = tiny_model(seed=3), tiny_tokenizer(), set()
    searches = [*SEARCHES.values(), {"stop_strings": ["oo", "\n"]}, {"stop_strings": "b "}]
    for search, text in itertools.product(searches, [*TEXTS, "foox b"]):
        options = {"max_new_tokens": 7, **search}
        torch.manual_seed(0)
        (outputs,) = predict(model, tokenizer, [text], min_confidence=0.0, **options)
        torch.manual_seed(0)
        stops = options.pop("stop_strings", [])
        stops = [stops] if isinstance(stops, str) else stops
        more = {"stopping_criteria": [StopStrings(tokenizer, stops, [text])]} if stops else {}
        sequences: Any = model.generate(**tokenizer([text], return_tensors="pt"), **options, **more)
        for output, ids in zip(outputs, sequences[:, 1:].tolist(), strict=True):
            has_end = any(end in ids for end in options.get("eos_token_id", [2]))
            is_stopped = any(stop in output.text for stop in stops)
            assert json.dumps([output.is_cut, output.accepted]) == (
                "[false, true]" if has_end or is_stopped else "[true, false]"
            )
            seen.add((has_end, is_stopped))
    assert seen >= {(True, False), (False, True), (False, False)}
    model.generation_config.eos_token_id = None
    assert predict(model, tokenizer, TEXTS[:1], max_new_tokens=3)[0][0].is_cut


def test_a_mark_is_a_factor_of_the_word_that_it_changes() -> None:
    tokenizer = CopyNetTokenizer.train_from_iterator(["aZé_ 1,-"], 60, "word_parts", max_source_oov=6, chains=True)
    model = tiny_model(**CopyNetConfig.tokenizer_fields(tokenizer))
    marks = MARKS
    seen = 0
    for text in ("AbcDef 12", "z", "Zork12 ab_c"):
        inputs = tokenizer([text], return_tensors="pt")
        (outputs,) = predict(model, tokenizer, [text], num_beams=4, num_return_sequences=4, max_new_tokens=8)
        sequences: Any = model.generate(**inputs, num_beams=4, num_return_sequences=4, max_new_tokens=8)
        probs = model.trace_copies(sequences, **inputs).token_probs
        for output, ids, row in zip(outputs, sequences[:, 1:].tolist(), probs.tolist(), strict=True):
            words, expected, factor, end = tokenizer.encode_source(text).spell(ids), [], 1.0, 1.0
            for word, prob in zip(words, row, strict=True):
                if word == "</s>":
                    end = prob
                    break
                factor *= prob
                if word not in marks:
                    expected.append(factor)
                    factor = 1.0
            if expected:
                expected[-1] *= factor
                factor = 1.0
            seen += any(word in marks for word in words)
            assert output.word_scores == pytest.approx(expected, rel=1e-4)
            assert output.score == pytest.approx(math.prod(expected) * factor * end, rel=1e-4)
    assert seen


def test_without_a_trace_and_without_a_source_there_is_no_score() -> None:
    model, tokenizer = tiny_model(), tiny_tokenizer()
    (full,), (empty,) = predict(model, tokenizer, ["a X", " "], max_new_tokens=4)
    assert (empty.text, empty.score, empty.word_scores, empty.is_empty) == ("", None, None, True)
    assert full.score
    assert not full.is_empty
    (full,), (empty,) = predict(model, tokenizer, ["a X", " "], max_new_tokens=4, trace=False)
    assert full == Prediction(full.text, is_cut=full.is_cut)
    assert empty == Prediction("", is_empty=True)
