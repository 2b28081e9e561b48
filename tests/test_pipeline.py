"""`pipeline("copy-text2text")` returns the outputs and traces of the model, for single texts and batches."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from helpers import save_parts, tiny_model, tiny_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, pipeline
from transformers.utils import logging

from copynet_hf import CopyNetForConditionalGeneration, CopyText2TextPipeline
from copynet_hf.model.prediction import Prediction, predict

TEXTS = ["a X b Y X", "Z c", "", "a b c d e f g h i", "Q"]
TAGS: list[Any] = [["V", "PST"], ["PL"], ["N"], [], None]
FACTS = [("X", "b", "1931"), ("X", "c", "Y")]


def make(model: CopyNetForConditionalGeneration | None = None, tokenizer: Any = None, **options: Any) -> Any:
    return pipeline(
        "copy-text2text", model=model or tiny_model(seed=1), tokenizer=tokenizer or tiny_tokenizer(), **options
    )


def describe(prediction: Prediction) -> dict[str, Any]:
    fields, probs = prediction.to_dict(), prediction.copy_probs
    assert probs is not None
    return {"generated_text": fields.pop("text"), **fields, "copy_probs": probs.tolist()}


@pytest.mark.parametrize("side", ["right", "left"])
def test_outputs_are_those_of_predict(side: str) -> None:
    tokenizer = tiny_tokenizer(padding_side=side, feature_vocab=["N", "PST", "V"])
    pipe = make(tiny_model(seed=1, feature_vocab_size=5), tokenizer, num_beams=3, num_return_sequences=2)
    assert isinstance(pipe, CopyText2TextPipeline)
    options: dict[str, Any] = {"max_new_tokens": 6, "return_copy_probs": True}
    predictions = predict(pipe.model, tokenizer, TEXTS, features=TAGS, num_beams=3, num_return_sequences=2, **options)
    expected = [[describe(each) for each in row] for row in predictions]
    rows = [{"text": text, "features": tags} for text, tags in zip(TEXTS, TAGS, strict=True)]
    assert pipe(rows, batch_size=len(rows), **options) == expected
    batched = [pipe(rows, batch_size=size, **options) for size in (1, 3)]
    for found in (*batched, list(pipe((row for row in rows), **options))):
        assert len(found) == len(expected)
        for output, known in zip(chain(*found), chain(*expected), strict=True):
            for name in ("generated_text", "words", "copied", "source_positions", "source_words"):
                assert output[name] == known[name], name
            assert output["copy_probs"] == [pytest.approx(row, abs=1e-5) for row in known["copy_probs"]]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_truncated_texts_and_cut_outputs_are_counted_in_one_warning_each(
    batch_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = make(max_new_tokens=2, batch_size=batch_size)
    texts = ["a b c", "a b", "", "a b c d"]
    logger = logging.get_logger("copynet_hf.model.pipeline")
    logger.addHandler(caplog.handler)
    try:
        outputs = pipe(texts, max_source_length=2)
        pipe("a b", max_source_length=2)
    finally:
        logger.removeHandler(caplog.handler)
    assert [output[0]["is_truncated"] for output in outputs] == [True, False, False, True]
    assert [output[0]["is_cut"] for output in outputs] == [True, True, False, True]
    assert caplog.messages[:: len(caplog.messages) // 3] == [  # the root's handler may have them, too
        "2 of 4 texts were truncated: raise max_source_length (--max_source_length) or, of a Transformers encoder, "
        "the tokenizer's encoder_max_length",
        "3 of 4 outputs ended before they were complete: raise max_new_tokens (--max_target_length)",
        "1 of 1 outputs ended before they were complete: raise max_new_tokens (--max_target_length)",
    ]


def test_a_call_overrides_options_of_the_pipeline() -> None:
    pipe = make(max_new_tokens=2)
    assert len(pipe("a X b Y X")[0]["words"]) <= 2
    assert "copy_probs" not in pipe("a X b Y X")[0]
    longer = pipe("a X b Y X", max_new_tokens=6, min_new_tokens=6, return_copy_probs=True)[0]
    assert len(longer["words"]) == len(longer["copy_probs"]) == 6
    assert pipe("a X b Y X", max_source_length=2)[0]["source_words"] == ["a", "X"]


def test_inputs_may_have_facts() -> None:
    pipe = make(tiny_model(seed=8, copy_mechanism="retrieval"), max_new_tokens=6, batch_size=2)
    (output,), (without,) = pipe([{"text": "a X", "facts": FACTS}, "a X"])
    assert output["source_words"] == ["a", "X", "X", "b", "1931", "X", "c", "Y"]
    assert without["source_words"] == ["a", "X"]
    places = {place for place in output["source_positions"] if place is not None}
    assert places
    assert places <= {4, 7}  # the objects


def test_special_tokens_of_the_source_have_a_position_but_no_word() -> None:
    words = Tokenizer(models.WordLevel(tiny_tokenizer().get_vocab(), "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names)
    pipe = make(tiny_model(seed=1, max_source_oov=0), tokenizer, max_new_tokens=6, min_new_tokens=5)
    output = pipe("d e f g")[0]
    assert output["source_words"] == ["", "d", "e", "f", "g", ""]
    copied = [place for place in output["source_positions"] if place is not None]
    assert copied
    for word, place in zip(output["words"], output["source_positions"], strict=True):
        assert place is None or output["source_words"][place] == word.strip()


def words_and_places(pipe: Any) -> list[Any]:
    return [(row[0]["words"], row[0]["source_positions"]) for row in pipe(TEXTS, max_new_tokens=5)]


def test_a_saved_folder_loads_without_trust_remote_code(tmp_path: Path) -> None:
    model, tokenizer = tiny_model(seed=1), tiny_tokenizer()
    save_parts(tmp_path / "model", model, tokenizer)
    pipe = pipeline("copy-text2text", model=str(tmp_path / "model"))
    assert words_and_places(pipe) == words_and_places(make(model, tokenizer))
    pipe.save_pretrained(tmp_path / "again")
    assert {path.name for path in (tmp_path / "again").iterdir()} == {
        path.name for path in (tmp_path / "model").iterdir()
    }
    again = pipeline("copy-text2text", model=str(tmp_path / "again"))
    assert words_and_places(again) == words_and_places(pipe)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2, "num_return_sequences": 2}, {"do_sample": True}], ids=str)
@pytest.mark.parametrize("text", ["", " \n "])
def test_a_text_without_words_has_an_empty_output(text: str, options: dict[str, Any]) -> None:
    tokenizers = (tiny_tokenizer(), tiny_tokenizer(segmenter="word_punct"))
    for tokenizer in tokenizers:  # to the second, spaces are words
        pipe = make(tokenizer=tokenizer, min_new_tokens=3, max_new_tokens=5, return_copy_probs=True, **options)
        for outputs in (pipe(text), pipe([text, "a X"], batch_size=2)[0]):
            assert len(outputs) == options.get("num_return_sequences", 1)
            for output in outputs:
                assert output["generated_text"] == ""
                assert output["words"] == output["copied"] == output["source_positions"] == output["copy_probs"] == []
        assert pipe("a X")[0]["generated_text"]
        without = predict(pipe.model, tokenizer, [text, "a X"], trace=False, min_new_tokens=3, **options)
        assert [outputs[0].text == "" for outputs in without] == [True, False]


def test_a_column_of_a_dataset_is_a_list_of_texts() -> None:
    pipe, texts = make(num_beams=1, max_new_tokens=3), ["a X", "X b"]
    assert pipe(Dataset.from_dict({"text": texts})["text"]) == pipe(tuple(texts)) == pipe(texts)
    assert pipe([]) == []


@pytest.mark.parametrize("wrong", [{"facts": []}, 7, b"a", {"text": ["a"]}])
def test_wrong_inputs_raise_an_error(wrong: Any) -> None:
    with pytest.raises(ValueError, match="pass a text"):
        make()(wrong)


@pytest.mark.parametrize("name", ["facts", "features"])
def test_misspelled_keys_and_missing_features_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"the input has '{name[:-1]}', which is not read; did you mean '{name}'"):
        make()({"text": "a", name[:-1]: []})
    pipe = make(max_new_tokens=2)
    for more in ({"id": 1}, {"factors": 1, "Featured": 2}, {name: [], name[:-1]: []}):
        assert pipe({"text": "a", **more}) == pipe("a")
    with pytest.raises(ValueError, match=f"the input has '{name.title()}', which is not read; did you mean '{name}'"):
        pipe({"text": "a", name.title(): []})
    tokenizer = tiny_tokenizer(feature_vocab=["V"])
    pipe = make(tiny_model(feature_vocab_size=tokenizer.feature_vocab_size), tokenizer, max_new_tokens=2)
    assert pipe({"text": "a", "features": []})[0]["words"]
    with pytest.raises(ValueError, match=r"features\[0\] is 'V;PST'"):
        pipe({"text": "a", "features": "V;PST"})
    for row in ("a", {"text": "a", "tags": ["V"]}):
        with pytest.raises(ValueError, match=r"the model reads features, and the input .* has none: add 'features'"):
            pipe(row)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length_penalty": "x"}, "length_penalty is 'x': use a number"),
        (
            {"min_new_tokens": 9, "max_new_tokens": 8},
            "min_new_tokens is 9, and max_new_tokens 8: use a smaller min_new",
        ),
    ],
)
def test_settings_that_no_search_can_meet_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()("a", **settings)


def test_a_maximum_length_of_the_call_replaces_a_saved_one() -> None:
    model = tiny_model()
    model.generation_config.update(max_new_tokens=4, min_new_tokens=6)
    found = predict(model, tiny_tokenizer(), ["a b"], max_length=9, min_new_tokens=7)
    assert len(found[0][0].words) >= 7
    with pytest.warns(UserWarning, match="Unfeasible length constraints"):  # of Transformers, for saved settings
        assert len(predict(model, tiny_tokenizer(), ["a b"])[0][0].words) == 4


def test_saved_stop_strings_match_copied_words() -> None:
    options = {"max_new_tokens": 8, "repetition_penalty": 2.0}
    model = tiny_model()
    expected = make(model)(TEXTS, **options, stop_strings=["X", "Z"])
    assert expected != make(model)(TEXTS, **options)
    model.generation_config.stop_strings = ["X", "Z"]
    assert make(model)(TEXTS, **options) == expected
    assert make(model)(TEXTS, **options, stop_strings=["nowhere"]) == make(tiny_model())(TEXTS, **options)


def test_the_tokenizer_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="the tokenizer has max_source_oov=9, the model max_source_oov=4"):
        make(tokenizer=tiny_tokenizer(max_source_oov=9))
