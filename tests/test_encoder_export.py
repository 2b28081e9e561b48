"""A model over a Transformers encoder as ONNX graphs: the same outputs and traces, for sources of any sizes; that over
BERT has a GRU and a Transformers decoder, too, whose past grows from nothing."""

from __future__ import annotations

import pytest
from helpers import BART, check_same_outputs, save_parts
from tiny_encoders import FAMILIES, TEXTS, copynet_over, save_encoder, word_tokenizer

from copynet_hf.cli import main
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.model.prediction import predict
from copynet_hf.serving.process import load_predict

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.slow  # an export each

FACTS = [[("Ottilie", "city", "Bonn")], None, [("museum", "opens", "nine"), ("museum", "city", "Bonn")], None]


@pytest.fixture(scope="module", params=[*FAMILIES, "retrieval"])
def exported(request, tmp_path_factory):
    """A model, its tokenizer, and what the command exports of it."""
    folders = [tmp_path_factory.mktemp(name) for name in ("encoder", "saved", "graphs")]
    if request.param == "bert":
        name = save_encoder(folders[0], num_hidden_layers=1)  # an export of two takes longer
        tokenizer = word_tokenizer(name)
        decoder = BART | {"decoder_layers": 1, "vocab_size": len(tokenizer)}
        model = copynet_over(name, tokenizer, encoder_gru=True, decoder=decoder, hidden_size=BART["d_model"])
    else:
        is_fact = request.param == "retrieval"
        name = save_encoder(folders[0], "bert" if is_fact else request.param)
        tokenizer = word_tokenizer(name)
        model = copynet_over(name, tokenizer, copy_mechanism="retrieval" if is_fact else "copynet")
    save_parts(folders[1], model, tokenizer)
    assert main(["export", f"--model={folders[1]}", f"--output_dir={folders[2]}"]) == 0
    return model, tokenizer, OnnxCopyNet.from_pretrained(folders[2], threads=1), folders[2]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1], ["today"], ["", "call Benedikta"]], ids=len)
def test_searches_find_the_models_outputs(exported, texts, beams):
    model, tokenizer, onnx, _ = exported
    options = {"num_beams": beams, "max_new_tokens": 6}
    facts = FACTS[: len(texts)] if model.config.mechanism.retrieves else None
    for side in ("right", "left"):
        arguments = {"facts": facts, "padding": True, "padding_side": side}
        expected = model.generate(**tokenizer(texts, **arguments, return_tensors="pt"), **options)
        found = onnx.generate(**tokenizer(texts, **arguments, return_tensors="np"), **options)
        assert found.tolist() == expected.tolist()


def test_predictions_and_traces_are_those_of_the_model(exported):
    model, tokenizer, onnx, _ = exported
    check_same_outputs((model, tokenizer), (onnx, tokenizer), TEXTS, num_beams=2, max_new_tokens=5)


def test_the_server_predicts_what_the_model_predicts(exported):
    model, tokenizer, _, folder = exported
    predict_batch, saved = load_predict(str(folder), threads=1)
    found = predict_batch([{"text": text} for text in TEXTS], saved | {"max_new_tokens": 5}, lambda: None)
    expected = predict(model, tokenizer, TEXTS, **saved | {"max_new_tokens": 5})
    assert [output.text for (output,) in found] == [output.text for (output,) in expected]
    assert [output.source_positions for (output,) in found] == [output.source_positions for (output,) in expected]


def test_missing_pieces_are_named(exported):
    _, tokenizer, onnx, _ = exported
    encoded = dict(tokenizer(TEXTS, padding=True, return_tensors="np"))
    del encoded["word_index"]
    with pytest.raises(ValueError, match="word_index is missing: pass what the tokenizer returned"):
        onnx.generate(**encoded)
