"""On a GPU, models compute, learn and write what they do on the processor; skipped where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import MECHANISMS, POINTER, READERS, SIZES, VARIANTS, batch, tiny_model, tiny_tokenizer, write_requests
from test_ensemble import MEMBERS, make_ensemble
from torch import Tensor
from transformers import pipeline

from copynet_hf import CopyNetPredictor
from copynet_hf.cli import main
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

MODELS: dict[str, dict[str, Any]] = VARIANTS | {
    "pointer": POINTER,
    "retrieval": MECHANISMS["retrieval"],
    "aligned_words": {"copy_mechanism": "gated", "aligned_words": 2, "frequent_words": 3},
}
models = pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
use_fused = pytest.mark.parametrize("use_fused", [True, False], ids=["fast", "readable"])


def on_gpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cuda() for name, tensor in tensors.items()}


@models
@use_fused
def test_probabilities_loss_and_gradients(changes, use_fused):
    fields = {"use_fused": use_fused, "letter_dropout": 0.0} | changes
    known, found = (tiny_model(**fields).double() for _ in range(2))
    inputs = batch("left", config=known.config)
    expected, output = known.train()(**inputs), found.train().cuda()(**on_gpu(inputs))
    torch.testing.assert_close(output.logits.cpu(), expected.logits)
    torch.testing.assert_close(output.loss.cpu(), expected.loss)
    expected.loss.backward()
    output.loss.backward()
    for (name, weight), other in zip(known.named_parameters(), found.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), weight.grad, msg=name)


@models
@use_fused
@pytest.mark.parametrize(
    "search",
    [{}, {"num_beams": 3, "num_return_sequences": 2}, {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}],
    ids=["greedy", "beams", "penalties"],
)
def test_searches(changes, use_fused, search):
    model = tiny_model(use_fused=use_fused, **changes).double()
    inputs = {name: tensor for name, tensor in batch(config=model.config).items() if name != "labels"}
    options = {"max_new_tokens": 8, "return_dict_in_generate": True, "output_scores": True, **search}
    expected = model.generate(**inputs, **options)
    found = model.cuda().generate(**on_gpu(inputs), **options)
    torch.testing.assert_close(found.sequences.cpu(), expected.sequences)
    if "num_beams" in search:  # the scores' rows are beams, whose order is open where two are equally probable
        torch.testing.assert_close(found.sequences_scores.cpu(), expected.sequences_scores)
    else:
        torch.testing.assert_close([each.cpu() for each in found.scores], list(expected.scores))


def test_samples_have_the_trace():
    texts = ["a X b Y X", "Z c"]
    rows = predict(tiny_model().cuda(), tiny_tokenizer(), texts, do_sample=True, max_new_tokens=6)
    for prediction in (prediction for row in rows for prediction in row):
        assert len(prediction.word_scores) == len(prediction.source_positions)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("changes", [{}, READERS["both_gated"], VARIANTS["transformer"], MECHANISMS["retrieval"]])
def test_half_precision_trains_and_searches(dtype, changes):
    model = tiny_model(scale=1.0, letter_dropout=0.0, **changes).cuda()
    inputs = on_gpu(batch(config=model.config))
    expected = model(**inputs).loss
    with torch.autocast("cuda", dtype=dtype):
        loss = model.train()(**inputs).loss
    torch.testing.assert_close(loss.float(), expected.float(), rtol=0.03, atol=0.03)
    loss.backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    inputs.pop("labels")
    with torch.autocast("cuda", dtype=dtype):
        model.eval().generate(**inputs, num_beams=2, max_new_tokens=5)
    model.to(dtype).generate(**inputs, num_beams=2, max_new_tokens=5)


def test_ensembles():
    known, found = make_ensemble(MEMBERS), make_ensemble(MEMBERS).cuda()
    inputs = batch()
    torch.testing.assert_close(found(**on_gpu(inputs)).logits.cpu(), known(**inputs).logits, atol=1e-4, rtol=1e-4)
    inputs.pop("labels")
    options = {"num_beams": 3, "max_new_tokens": 8}
    assert found.generate(**on_gpu(inputs), **options).tolist() == known.generate(**inputs, **options).tolist()


def test_compiled_steps():
    model = tiny_model().cuda()
    inputs = on_gpu(batch())
    expected = model(**inputs).logits
    torch.testing.assert_close(torch.compile(model)(**inputs).logits, expected, atol=1e-4, rtol=1e-4)


def test_train_resume_evaluate_and_predict(tmp_path):
    """The commands find the GPU by themselves."""
    files = write_requests(tmp_path, train=96, test=8)
    train = ["train", *(word for name, path in files.items() for word in (f"--{name}", path))]
    train += [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    folder = str(tmp_path / "model")
    train += ["--output_dir", folder, "--save_total_limit", "1"]
    assert main([*train, "--num_train_epochs", "1"]) == 0
    assert main([*train, "--num_train_epochs", "2", "--resume_from_checkpoint", "auto"]) == 0
    assert main(["evaluate", "--model", folder, "--test_file", files["test_file"]]) == 0
    out = tmp_path / "out.jsonl"
    assert main(["predict", "--model", folder, "--input_file", files["test_file"], "--output_file", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 8
    assert main(["generate", "--model", folder, "--text", "please call bob"]) == 0
    assert pipeline("copy-text2text", model=folder, num_beams=2)("please call bob")[0]["generated_text"] is not None
    assert CopyNetPredictor(folder)(["please call bob"])
    assert load_model(folder)[0].device.type == "cuda"


def test_a_model_of_the_gpu_is_exported(tmp_path: Path):
    pytest.importorskip("onnxruntime", reason="the extra onnx")
    from copynet_hf import export_onnx

    export_onnx(tiny_model().cuda(), tmp_path)
    assert list(tmp_path.glob("*.onnx"))
