"""`copynet-hf export --quantize int8`: smaller graphs without float weights, whose outputs are nearly the model's."""

from __future__ import annotations

import logging
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers import PLAIN, POINTER, SOURCES, padded, request_pair, save_tiny_model, tiny_model

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer, export_onnx
from copynet_hf.cli import main
from copynet_hf.inference import onnx_export
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.inference.quantization import write_int8
from copynet_hf.model.prediction import predict

onnx = pytest.importorskip("onnx")
ir = pytest.importorskip("onnx_ir")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

FILES = ("encoder.onnx", "decoder.onnx")


class Quantized(NamedTuple):
    model: CopyNetForConditionalGeneration
    tokenizer: CopyNetTokenizer
    folder: Path


def pairs(count: int, seed: int) -> list[tuple[str, str]]:
    generator = random.Random(seed)
    return [request_pair(generator) for _ in range(count)]


@pytest.fixture(scope="module")
def quantized(requests: Path, tmp_path_factory: pytest.TempPathFactory) -> Quantized:
    """A trained model, whose graphs are quantised."""
    folder = shutil.copytree(requests / "onnx", tmp_path_factory.mktemp("quantized") / "int8")
    for name in FILES:
        write_int8(ir.load(folder / name), folder / name)
    model = CopyNetForConditionalGeneration.from_pretrained(requests / "model")
    return Quantized(model, CopyNetTokenizer.from_pretrained(folder), folder)


# ---- graphs


def walk(graph: Any) -> Iterator[Any]:
    """The graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from walk(attribute.g)


def find_float_products(path: Path) -> list[str]:
    """The products with a weight, also one that the graph transposes, that are computed in float32."""
    graphs = list(walk(onnx.load(path).graph))
    constants = {tensor.name for graph in graphs for tensor in graph.initializer}
    nodes = [node for graph in graphs for node in graph.node]
    for _ in nodes:
        for node in nodes:
            if node.op_type in ("Transpose", "Identity") and node.input[0] in constants:
                constants.add(node.output[0])
    products = [node for node in nodes if node.op_type in ("MatMul", "Gemm")]
    return [node.name for node in products if constants.intersection(node.input[:2])]


def test_no_weight_is_left_in_float32(quantized: Quantized, exported_once: Callable[..., Path]) -> None:
    float32 = exported_once(copy_mechanism="retrieval", seed=1)
    for name in FILES:
        assert find_float_products(float32 / name)
        assert find_float_products(quantized.folder / name) == []
    sizes = [
        np.prod(tensor.dims)
        for name in FILES
        for graph in walk(onnx.load(quantized.folder / name).graph)
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
    ]
    assert max(sizes) <= 3 * 32 * 2  # the GRU's biases


def test_a_weight_with_two_uses_keeps_both(tmp_path: Path) -> None:
    """x Wᵀ + b, then Wᵀ once more, as a Gemm each; the quantiser's own conversion transposes W at each."""
    rng = np.random.default_rng(0)
    weight, bias, x = (rng.normal(size=size).astype(np.float32) for size in ((256, 256), (256,), (5, 256)))
    tensors = [onnx.numpy_helper.from_array(weight, "weight"), onnx.numpy_helper.from_array(bias, "bias")]
    settings = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "weight", "bias"], ["first"], "first", **settings),
        onnx.helper.make_node("Gemm", ["first", "weight"], ["second"], "second", **settings),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 256]) for name in ("x", "second")]
    graph = onnx.helper.make_graph(nodes, "graph", ends[:1], ends[1:], tensors)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    write_int8(ir.from_proto(proto), tmp_path / "int8.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "int8.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})
    expected = (x @ weight.T + bias) @ weight.T
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    assert (tmp_path / "int8.onnx").stat().st_size < 0.3 * 4 * weight.size
    assert find_float_products(tmp_path / "int8.onnx") == []


# ---- outputs

TEXTS = [source for source, _ in pairs(200, seed=1)]


@pytest.mark.parametrize("beams", [1, 4])
def test_outputs_are_mostly_those_of_the_model(quantized: Quantized, beams: int) -> None:
    int8 = OnnxCopyNet.from_pretrained(quantized.folder, threads=1)
    found, expected = (
        [outputs[0] for outputs in predict(model, quantized.tokenizer, TEXTS, num_beams=beams)]
        for model in (int8, quantized.model)
    )
    same = [
        (one.words, one.copied, one.source_positions) == (other.words, other.copied, other.source_positions)
        for one, other in zip(found, expected, strict=True)
    ]
    assert np.mean(same) >= 0.95
    assert (
        np.mean([output.text == target for output, (_, target) in zip(found, pairs(200, seed=1), strict=True)]) > 0.8
    )


def test_traces_are_probabilities_near_those_of_the_model(quantized: Quantized) -> None:
    int8 = OnnxCopyNet.from_pretrained(quantized.folder, threads=1)
    inputs = quantized.tokenizer(TEXTS[:40], padding=True, return_tensors="np")
    sequences = int8.generate(**inputs, num_beams=4, num_return_sequences=2)
    traced = int8.trace_copies(sequences, **inputs)
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    expected: Any = quantized.model.trace_copies(torch.from_numpy(sequences), **tensors)
    for name in ("token_probs", "copied", "copy_probs"):
        found, other = getattr(traced, name), expected[name].numpy()
        assert ((found >= 0) & (found <= 1 + 1e-5)).all(), name
        assert np.abs(found - other).mean() < 0.01, name
    assert (traced.source_positions == expected.source_positions.numpy()).mean() > 0.98
    assert (traced.source_positions >= 0).any()


MODELS: dict[str, dict[str, Any]] = PLAIN | {
    "points": POINTER | {"num_features": 2},
    "retrieval": {"copy_mechanism": "retrieval", "seed": 1},
}


@pytest.mark.slow  # an export each
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_every_mechanism_has_nearly_the_models_probabilities(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = tiny_model(scale=0.5, **MODELS[name])
    export_onnx(model, tmp_path, quantize="int8")
    assert [find_float_products(tmp_path / file) for file in FILES] == [[], []]
    int8, ids = OnnxCopyNet.from_pretrained(tmp_path, threads=1), padded(SOURCES, 0)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    if model.config.num_features:
        inputs = {"input_features": torch.randn(*ids.shape, model.config.num_features)} | inputs
        del inputs["input_ids"]
    elif model.config.mechanism.retrieves:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    arrays = {key: tensor.numpy() for key, tensor in inputs.items()}
    memory, state, _ = int8._encode(**arrays)
    words = np.full((len(ids), 1), model.config.decoder_start_token_id)
    found = int8._step(words, memory, state)[0]["log_probs"][:, 0]
    expected = model(**inputs, decoder_input_ids=torch.from_numpy(words)).logits[:, 0].numpy()
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, atol=1e-4)
    np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=0.02)
    assert int8.generate(**arrays, num_beams=3, max_new_tokens=4).shape[0] == len(ids)


# ---- the command, errors


def test_the_command_says_its_steps_and_writes_both_graphs_in_8_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written: list[tuple[str, str | None]] = []
    monkeypatch.setattr(onnx_export, "export_programs", lambda model: (None, None))
    monkeypatch.setattr(onnx_export, "_write", lambda program, path, quantize: written.append((path.name, quantize)))
    argv = ["export", f"--model={save_tiny_model(tmp_path / 'saved')}", f"--output_dir={tmp_path / 'int8'}"]
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert main([*argv, "--quantize=int8"]) == 0
    assert written == [(name, "int8") for name in FILES]
    steps = ["tracing encoder and decoder step", *(f"writing {name} as int8" for name in FILES)]
    assert [message for message in caplog.messages if message in steps] == steps


@pytest.mark.parametrize("target", ["onnx", "web"])
def test_an_unknown_quantisation_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    argv = ["export", "--model=some/one", f"--output_dir={tmp_path / 'new'}", f"--target={target}", "--quantize=int4"]
    assert main(argv) == 2
    assert "quantize is 'int4': use int8, or leave it out for float32" in capsys.readouterr().err
    with pytest.raises(ValueError, match="quantize is 'INT8': use int8"):
        export_onnx(tiny_model(), tmp_path / "new", quantize="INT8")
    assert not (tmp_path / "new").exists()


def test_without_onnxruntime_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization", None)
    assert main(["export", "--model=some/one", f"--output_dir={tmp_path / 'new'}", "--quantize=int8"]) == 2
    assert "pip install onnx onnxruntime" in capsys.readouterr().err


def test_the_quantiser_leaves_logging_as_it_was(
    exported_once: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    float32 = exported_once(copy_mechanism="retrieval", seed=1)
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    capsys.readouterr()
    write_int8(ir.load(float32 / "encoder.onnx"), tmp_path / "encoder.onnx")
    assert (root.level, list(root.handlers)) == before
    assert "quantiz" not in capsys.readouterr().err
    assert find_float_products(tmp_path / "encoder.onnx") == []
