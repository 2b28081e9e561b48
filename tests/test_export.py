"""Exported ONNX graphs and the searches over them give the model's outputs, for every mechanism and any sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers import BART, LETTERED, POINTER, SOURCES, SPELLED, VARIANTS, padded, refused, save_tiny_model, tiny_model
from helpers import SEARCHES as ALL_SEARCHES
from torch import Tensor

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.cli import main
from copynet_hf.inference import onnx_export
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.model.copy_distribution import MODES, ModeScores

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

Tensors = dict[str, Tensor]

# Those whose memories and states differ most, exported once for all files; an export takes 20 seconds, so the others
# are slow tests.
CASES: dict[str, dict[str, Any]] = {
    "features and letters": LETTERED,
    "retrieval": {"copy_mechanism": "retrieval", "seed": 1},  # a seed with which out-of-vocabulary words are copied
    "encoder over words": {"encoder": BART, "encoder_reads": "words"},
}
ALIGNED = {"copy_mechanism": "gated", "aligned_words": 2, "frequent_words": 6}
SLOW: dict[str, dict[str, Any]] = VARIANTS | {"aligned_words": ALIGNED, "pointer": POINTER}
SLOW |= {"two layers and coverage": {"use_coverage": True, "num_hidden_layers": 2}}
SLOW["points"] = POINTER | {"num_features": 2}
# Its words with seed 0 soon have equal probabilities, so that rounding decides between them.
SLOW["features_pointer_generator_coverage"] = VARIANTS["features_pointer_generator_coverage"] | {"seed": 1}
SLOW |= {"letters of pointers": POINTER | SPELLED, "letters of facts": CASES["retrieval"] | SPELLED}
NAMES = [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


class Exported(NamedTuple):
    model: CopyNetForConditionalGeneration
    folder: Path
    onnx: OnnxCopyNet


@pytest.fixture(scope="module", params=NAMES)
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exported_once: Callable[..., Path]
) -> Exported:
    """A small model and its graphs."""
    fields = (CASES | SLOW)[request.param]
    model = tiny_model(**fields)
    if model.alignments is None:
        folder = exported_once(**fields)
    else:
        model.alignments.table.copy_(torch.randint(4, 13, model.alignments.table.shape))
        onnx_export.export_onnx(model, folder := tmp_path_factory.mktemp("graphs"))
    return Exported(model, folder, OnnxCopyNet.from_pretrained(folder, threads=1))


def run(session: Any, tensors: Tensors) -> Tensors:
    """The outputs of an onnxruntime session, by name."""
    made = session.run(None, {name: tensor.numpy() for name, tensor in tensors.items()})
    return dict(zip([each.name for each in session.get_outputs()], map(torch.from_numpy, made), strict=True))


BATCHES: dict[str, tuple[list[list[int]], str]] = {
    "padded right": (SOURCES, "right"),
    "padded left": (SOURCES, "left"),
    "one word": ([[13]], "right"),
    "one source": (SOURCES[:1], "right"),
    "an empty row": ([[5, 13], [0, 0], [7, 8]], "right"),
}


def source(model: CopyNetForConditionalGeneration, rows: list[list[int]], side: str = "right") -> Tensors:
    """What the model's encoder takes: words, or numbers in their place; of longer rows the last three are a fact.
    Features and letters are drawn, the latter of three words."""
    ids = padded(rows, 0, side)
    mask = {"attention_mask": (ids != 0).long()}
    if model.config.num_features:
        return {"input_features": torch.randn(*ids.shape, model.config.num_features), **mask}
    if model.config.feature_vocab_size:
        mask["feature_ids"] = torch.randint(model.config.feature_vocab_size, (len(rows), 3))
    if model.config.letter_vocab_size:
        mask["letter_ids"] = torch.randint(1, model.config.letter_vocab_size, (len(rows), 6))
        mask["letter_ids"][:, [0, 3, 5]] = 0
    if not model.config.mechanism.retrieves:
        return {"input_ids": ids, **mask}
    kinds = [[0] * (len(row) - 3) + [1, 2, 3] if len(row) > 4 else [0] * len(row) for row in rows]
    return {"input_ids": ids, **mask, "token_type_ids": padded(kinds, 0, side)}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("beams", [1, 3])
@torch.no_grad()
def test_the_graphs_have_the_models_probabilities(exported: Exported, beams: int, batch: str) -> None:
    """Of four random words for each output, fed one by one."""
    torch.manual_seed(0)
    model, _, onnx = exported
    inputs = source(model, *BATCHES[batch])
    words = torch.randint(2, model.config.extended_vocab_size, (len(inputs["attention_mask"]), beams, 4))
    expected = model(encoder_outputs=model.get_encoder()(**inputs), decoder_input_ids=words.flatten(0, 1))
    encoded = run(onnx.encoder, inputs)
    memory = {name: tensor for name, tensor in encoded.items() if name.startswith("memory.")}
    state = {
        name: tensor.repeat_interleave(beams, dim=1) for name, tensor in encoded.items() if name.startswith("state.")
    }
    for step in range(words.shape[2]):
        made = run(onnx.decoder, {"words": words[..., step], **memory, **state})
        state = {name: made[f"next_{name}"] for name in state}
        torch.testing.assert_close(made["log_probs"].flatten(0, 1), expected.logits[:, step], atol=1e-5, rtol=1e-5)
        assert ("copy_probs" in made) == model.config.copies
        if model.config.copies:
            copied = made["copy_probs"].flatten(0, 1)
            torch.testing.assert_close(copied, expected.copy_probs[:, step], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mechanism", ["pointer_generator", "gated"])
def test_exported_switches_are_exact_where_one_mode_has_hardly_any_probability(mechanism: str, tmp_path: Path) -> None:
    """onnxruntime's sigmoid of −18 is 0."""

    class Switch(torch.nn.Module):
        def forward(self, switch: Tensor) -> tuple[Tensor, Tensor]:
            mask, attention = torch.ones(1, 1, dtype=torch.bool), torch.ones(1, switch.shape[1], 1)
            modes = MODES[mechanism](ModeScores(torch.zeros_like(switch), mask, attention=attention, switch=switch))
            assert modes.copy_normaliser is not None
            return modes.generate_normaliser, modes.copy_normaliser

    switch = torch.tensor([[-30.0, -18, -9, 0, 9, 18, 30]])
    torch.onnx.export(Switch().eval(), (switch,), path := str(tmp_path / "switch.onnx"), dynamo=True, verbose=False)
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    made = session.run(None, {session.get_inputs()[0].name: switch.numpy()})
    for found, expected in zip(made, Switch()(switch.double()), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


# ---- searches


# Options of `generate`; the others come from the saved generation config.
SEARCHES = {
    "greedy": {},
    "greedy, not short": {"min_new_tokens": 4, "max_new_tokens": 9, "forbid_unk": True},
    "beams": {"num_beams": 3},
    **ALL_SEARCHES,
}


@pytest.mark.parametrize(
    ("batch", "name"), [*(("padded left", name) for name in SEARCHES), *((batch, "beams") for batch in BATCHES)]
)
def test_searches_find_the_models_outputs(exported: Exported, batch: str, name: str) -> None:
    torch.manual_seed(0)
    inputs, options = source(exported.model, *BATCHES[batch]), SEARCHES[name]
    expected = exported.model.generate(**inputs, **options)
    found = exported.onnx.generate(**{key: tensor.numpy() for key, tensor in inputs.items()}, **options)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("ids", [padded(SOURCES, 0), torch.zeros(2, 0, dtype=torch.long)], ids=["", "no words"])
def test_without_a_mask_padding_is_found_by_its_id(exported: Exported, ids: Tensor) -> None:
    if exported.model.config.num_features:
        pytest.skip("padding shows in ids")
    if exported.model.config.letter_vocab_size:  # whose letters would be another input
        ids = ids.clamp(max=exported.model.config.vocab_size - 1)
    expected: Any = exported.model.generate(input_ids=ids, max_new_tokens=5)
    assert exported.onnx.generate(ids.numpy(), max_new_tokens=5).tolist() == expected.tolist()


def test_traces_are_those_of_the_model(exported: Exported) -> None:
    torch.manual_seed(0)
    model, inputs = exported.model, source(exported.model, SOURCES, "left")
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    sequences = exported.onnx.generate(**arrays, num_beams=3, num_return_sequences=2, max_new_tokens=6)
    if model.config.copies:
        # a slot of the first source, which can only be copied; without slots, one of its words
        sequences[0, 1] = model.config.vocab_size if model.config.max_source_oov else SOURCES[0][0]
    traced = exported.onnx.trace_copies(sequences, **arrays)
    expected: Any = model.trace_copies(torch.tensor(sequences), **inputs)
    for name, field in traced._asdict().items():
        np.testing.assert_allclose(field, expected[name].numpy(), atol=1e-5, err_msg=name)
    assert (traced.source_positions >= 0).any() == model.config.copies
    with pytest.raises(ValueError, match="7 sequences cannot belong to 4 sources"):
        exported.onnx.trace_copies(sequences[:7], **arrays)


def test_traces_are_zero_after_the_end_token_of_the_call(exported: Exported) -> None:
    inputs = source(exported.model, SOURCES, "left")
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    first = int(exported.onnx.generate(**arrays, max_new_tokens=6)[0, 1])
    sequences = exported.onnx.generate(**arrays, eos_token_id=first, max_new_tokens=6)
    traced = exported.onnx.trace_copies(sequences, **arrays, eos_token_id=first)
    expected: Any = exported.model.trace_copies(torch.tensor(sequences), **inputs, eos_token_id=first)
    np.testing.assert_allclose(traced.token_probs, expected.token_probs.numpy(), atol=1e-5)
    assert traced.token_probs[0, 0] > 0
    assert (traced.token_probs[0, 1:] == 0).all()


def test_rounded_probabilities_give_traces_between_0_and_1(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, arrays = OnnxCopyNet._step, {name: array.numpy() for name, array in source(exported.model, SOURCES).items()}
    sequences = exported.onnx.generate(**arrays, max_new_tokens=2)
    for log_prob, token_prob in ((1e-6, 1), (-200, 0)):  # a little above 0; and its exponential is 0

        def round_log_probs(*arguments: Any, log_prob: float = log_prob) -> Any:
            outputs, state = step(*arguments)
            return {
                name: np.full_like(array, max(log_prob, 0) if name == "copy_probs" else log_prob)
                for name, array in outputs.items()
            }, state

        monkeypatch.setattr(OnnxCopyNet, "_step", round_log_probs)
        traced = exported.onnx.trace_copies(sequences, **arrays)
        assert (traced.token_probs[:, 0] == token_prob).all()
        assert ((traced.copied >= 0) & (traced.copied <= 1)).all()


# ---- the command, errors


def test_graphs_contain_no_paths_of_the_machine(exported: Exported) -> None:
    for name in ("encoder.onnx", "decoder.onnx"):
        assert str(Path(onnx_export.__file__).parent).encode() not in (exported.folder / name).read_bytes()


def test_errors_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = f"--model={save_tiny_model(tmp_path / 'saved')}"
    assert "no --output_dir" in refused(capsys, "export", model)
    assert "--overwrite_output_dir" in refused(capsys, "export", model, f"--output_dir={tmp_path / 'saved'}")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    assert "pip install onnx onnxruntime onnxscript" in refused(
        capsys, "export", model, f"--output_dir={tmp_path / 'new'}"
    )
    assert not (tmp_path / "new").exists()


def test_unsupported_generation_configs_are_refused_before_the_export(tmp_path: Path) -> None:
    model = tiny_model()
    model.generation_config.no_repeat_ngram_size = 1
    with pytest.raises(ValueError, match="no_repeat_ngram_size=1"):
        onnx_export.export_onnx(model, tmp_path / "new")
    model.generation_config.update(no_repeat_ngram_size=None, repetition_penalty=1.2)
    with pytest.raises(ValueError, match=r"repetition_penalty=1\.2"):
        onnx_export.export_onnx(model, tmp_path / "new")
    model.generation_config.update(repetition_penalty=None, forced_bos_token_id=0)
    with pytest.raises(ValueError, match="forced_bos_token_id=0"):
        onnx_export.export_onnx(model, tmp_path / "new")
    model.generation_config.update(forced_bos_token_id=None)
    defaults = model.generation_config._get_default_generation_params()
    model.generation_config.update(**defaults)  # as Seq2SeqTrainer does
    onnx_export._check_search(model.generation_config)
    with pytest.raises(ValueError, match=r"torch\.bfloat16, and graphs are in float32: load it with dtype="):
        onnx_export.export_onnx(model.bfloat16(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def write_no_graphs(model: Any, folder: Path, quantize: str | None) -> None:
    assert model.dtype == torch.float32
    (folder / "decoder.onnx").write_bytes(b"graph")


def test_an_export_replaces_another_model_and_stands_beside_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_export, "write_graphs", write_no_graphs)
    own, other = save_tiny_model(tmp_path / "own"), save_tiny_model(tmp_path / "other", seed=1)
    tiny_model().bfloat16().save_pretrained(own)
    for folder in (own, other):
        command = ["export", f"--model={own}", f"--output_dir={folder}", "--overwrite_output_dir"]
        assert main(command) == 0
    assert (own / "model.safetensors").exists()
    assert not (other / "model.safetensors").exists()


def test_tensors_and_lists_are_read_as_arrays(exported: Exported) -> None:
    inputs = source(exported.model, SOURCES)
    lists = {name: tensor.tolist() for name, tensor in inputs.items()}
    expected = exported.onnx.generate(**{name: tensor.numpy() for name, tensor in inputs.items()}, max_new_tokens=3)
    for each in (inputs, lists):
        assert np.array_equal(exported.onnx.generate(**each, max_new_tokens=3), expected)


def test_an_option_that_is_none_is_as_one_left_out(exported: Exported) -> None:
    assert exported.onnx.search_options({"num_beams": None, "max_new_tokens": 7}) == exported.onnx.search_options(
        {"max_new_tokens": 7}
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"num_beams": 1, "num_return_sequences": 2}, "num_return_sequences=2 is more than num_beams=1"),
        ({"do_sample": True}, "does not support do_sample"),
        ({"num_beams": 0}, "num_beams is 0: use 1 or more"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0: use 1 or more"),
        ({"num_return_sequences": 0}, "num_return_sequences is 0: use 1 or more"),
        ({"copied_only": r"\d"}, r"copied_only is '\\\\d': pass ids, as find_matching_ids returns them"),
    ],
    ids=str,
)
def test_unsupported_options_are_refused(exported: Exported, arguments: dict[str, Any], said: str) -> None:
    arrays = {name: tensor.numpy() for name, tensor in source(exported.model, SOURCES).items()}
    with pytest.raises(ValueError, match=said):
        exported.onnx.generate(**arrays, **arguments)
    with pytest.raises(ValueError, match="The source is missing"):
        exported.onnx.generate()
    if not exported.model.config.num_features:
        with pytest.raises(ValueError, match="input_ids has rows of several lengths: pass padding=True"):
            exported.onnx.generate([[4], [4, 5]])
        with pytest.raises(ValueError, match=r"input_ids has shape \(2,\): pass at least one row of words"):
            exported.onnx.generate(np.array([5, 6]))
