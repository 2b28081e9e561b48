"""Encoder and decoder step as graphs without Python: torch.export programs, and ONNX files for `OnnxCopyNet`.

Both graphs map named tensors to named tensors. Which there are follows from what the model's `Memory` and
`DecoderState` hold; what is None there is left out, and `past` is, for each layer, what a Transformers decoder keeps:

encoder: input_ids (N, S) int64, or input_features (N, S, num_features); attention_mask (N, S) int64; token_type_ids
    (N, S) int64 where the model reads facts; feature_ids (N, F) int64 where it reads features; letter_ids (N, L)
    int64 where it reads letters; over a Transformers encoder also encoder_input_ids, encoder_attention_mask and
    word_index, (N, P) int64. To `memory.…`, the fields of `Memory`; `state.…` (N, 1, …), those of `DecoderState`
    before the first word; and `forbidden` (N, V + K) bool, the words that no output of the source may hold. `past`:
    the keys and values `memory.past.….0` (N, S + F, heads, width), and `state.past.….0` (N, 1, 0, heads, width).
decoder: words (N, B) int64, the last word of each output, `memory.…` as they are, and `state.…` (N, B, …). To
    `log_probs` (N, B, V + K), `next_state.…`, and `copy_probs` (N, B, S) where the model copies. `past`:
    `state.past.….0` (N, B, t, heads, width) to `next_state.past.….0`, of t + 1 words.

Shapes: N sources, S source positions, F features of a source, L letters, P pieces, B outputs of each source (beams),
all of any size from 1 on; t words before the last one; V words, K slots.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.cache_utils import Cache, DynamicLayer

from ..model.copy_distribution import expand_to_rows
from ..model.memory import CopyNetCache, DecoderState, Facts, FeatureMemory, Memory, PastWords
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.modeling_ensemble import CopyNetEnsemble
from ..model.outputs import CopyNetEncoderOutput
from ..model.pieces import FIELDS
from ..saved.whole_folder import OLD_MODEL_FILES, replace_folder
from .onnx_search import DECODER, ENCODER, Search
from .quantization import check_quantization, quiet, write_int8

logger = logging.getLogger(__name__)
Tensors = dict[str, Tensor]
Fields = TypeVar("Fields", Memory, DecoderState, Facts, FeatureMemory)


class Programs(NamedTuple):
    """`program.module()` takes a dict of tensors and returns one; see above."""

    encoder: ExportedProgram
    decoder: ExportedProgram


def export_programs(model: CopyNetForConditionalGeneration) -> Programs:
    """The model, put in evaluation mode, as torch.export programs, which share its weights and their precision.

    Raises:
        ValueError: the model is an ensemble.
    """
    _check_exportable(model)
    model.eval()
    source = _example(model)
    with torch.no_grad(), _eager_attention(model):
        encoder = _exported(_Encoder(model), source)
        encoded = encoder.module()(source)
        parts = {name: tensor for name, tensor in encoded.items() if name.startswith("memory.")}
        for name, tensor in encoded.items():
            if name.startswith("state.past."):  # of two words, since the exporter takes sizes of 0 and 1 for fixed
                parts[name] = tensor.new_zeros(2, 2, 2, *tensor.shape[3:])
            elif name.startswith("state."):
                parts[name] = tensor.repeat_interleave(2, dim=1)
        words = torch.full((2, 2), model.config.decoder_start_token_id, device=model.device)
        return Programs(encoder, _exported(_Decoder(model), {"words": words, **parts}))


def export_onnx(
    model: CopyNetForConditionalGeneration,
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    quantize: str | None = None,
    replaces_model: bool = False,
) -> None:
    """Writes encoder.onnx, decoder.onnx, config, generation config and tokenizer, for `OnnxCopyNet.from_pretrained`.

    The folder is replaced as a whole, by `replace_folder`.

    Args:
        quantize: "int8": weights of 8 bits, a quarter of the size; None: float32.
        replaces_model: whether weights in the folder are those of another model, and removed.

    Raises:
        ImportError: onnx or onnxscript is missing; for int8, onnxruntime.
        ValueError: the model is an ensemble or not in float32, its generation config asks for what
            `OnnxCopyNet.generate` cannot do, `quantize` has another value, or another process writes to the folder.
    """
    check_export(model, quantize)
    with replace_folder(folder, OLD_MODEL_FILES if replaces_model else ()) as unfinished:
        write_graphs(model, unfinished, quantize)
        for part in (model.config, model.generation_config, tokenizer):
            if part is not None:
                part.save_pretrained(unfinished)


def check_export(model: CopyNetForConditionalGeneration, quantize: str | None = None) -> None:
    """Raises what `export_onnx` documents."""
    check_quantization(quantize)
    _check_exportable(model)
    try:
        import onnxscript  # noqa: F401 - torch.onnx imports it later, and says less
    except ImportError as error:
        raise ImportError(
            f"no {error.name}, which writes ONNX graphs: pip install onnx onnxruntime onnxscript"
        ) from None
    _check_search(model.generation_config)


def write_graphs(model: CopyNetForConditionalGeneration, folder: Path, quantize: str | None = None) -> None:
    """Writes encoder.onnx and decoder.onnx to a folder that exists."""
    logger.info("tracing encoder and decoder step")
    with quiet():
        programs = export_programs(model)
    for name, program in zip((ENCODER, DECODER), programs, strict=True):
        logger.info("writing %s%s", name, f" as {quantize}" if quantize else "")
        with quiet():
            _write(program, folder / name, quantize)


def _write(program: ExportedProgram, path: Path, quantize: str | None) -> None:
    """The program as an ONNX file, weights inside, inputs and outputs named as the tensors are."""
    import onnx_ir as ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    assert program.example_inputs is not None
    (inputs,), _ = program.example_inputs
    names = {"input_names": list(inputs), "output_names": list(program.module()(inputs))}
    table = {torch.ops.aten.logsumexp.default: _translate_logsumexp}
    made = torch.onnx.export(program, dynamo=True, verbose=False, custom_translation_table=table, **names)  # type: ignore[arg-type]
    assert made is not None
    for value in (*made.model.graph.inputs, *made.model.graph.outputs):
        sizes, axes = list(value.shape or ()), _axes(str(value.name))
        named = [size if isinstance(size, int) else axis for size, axis in zip(sizes, axes, strict=False)]
        value.shape = ir.Shape([*named, *sizes[len(axes) :]])
    ClearMetadataAndDocStringPass()(made.model)  # which name this machine's folders
    if quantize == "int8":
        write_int8(made.model, path)
    else:
        made.save(str(path), external_data=False)


def _translate_logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    """max + log Σ exp(x − max): onnxruntime takes three times as long for ReduceLogSumExp (CPU, 2,800 columns)."""
    from onnxscript import opset18

    op: Any = opset18
    lowest = op.Constant(value_float=torch.finfo(torch.float32).min)  # the largest of none but −inf
    largest = op.Max(op.ReduceMax(self, dim, keepdims=1), op.CastLike(lowest, self))
    total = op.Log(op.ReduceSum(op.Exp(op.Sub(self, largest)), dim, keepdims=1))
    result = op.Add(total, largest)
    return result if keepdim else op.Squeeze(result, dim)


class _Encoder(nn.Module):
    """What `generate()` does once: the source, the state before the first word, and what may not be written."""

    def __init__(self, model: CopyNetForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensors) -> Tensors:
        _agree(inputs)
        model = self.model
        encoded = model.get_encoder()(**inputs, return_dict=True)
        sources, decoder = encoded.source_ids.shape[0], model.model.decoder
        memory = decoder.build_memory(encoded)
        state = decoder.initial_state(memory, sources)
        past = {} if state.past is None else self._start_past(memory, state)
        rules = model._extended_vocabulary_processor(GenerationConfig(), {"encoder_outputs": encoded})
        scores = memory.hidden_states.new_zeros(sources, model.config.extended_vocab_size)
        by_output = state.map(lambda field: field[:, None])
        forbidden = rules(encoded.source_ids, scores).isneginf()
        return {**_named("memory", memory), **_named("state", by_output), **past, "forbidden": forbidden}

    def _start_past(self, memory: Memory, state: DecoderState) -> Tensors:
        """The keys and values of the source, as a first step computes them, and those of no words."""
        assert state.past is not None
        cache = CopyNetCache()
        cache.layer.record(state.map(lambda field: field[:, None]), memory)
        start = memory.ids.new_full((memory.ids.shape[0], 1), self.model.config.decoder_start_token_id)
        self.model(encoder_outputs=CopyNetEncoderOutput(), decoder_input_ids=start, cache=cache, use_cache=True)
        words = _past_tensors("state", state.past.self_attention_cache).items()
        nothing = {name: tensor.new_zeros(tensor.shape[0], 1, 0, *tensor.shape[2:]) for name, tensor in words}
        return _past_tensors("memory", state.past.cross_attention_cache) | nothing


class _Decoder(nn.Module):
    """What `generate()` does at each step: the model's own forward, whose cache comes in and goes out as tensors."""

    def __init__(self, model: CopyNetForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensors) -> Tensors:
        _agree(inputs)
        words = inputs["words"]
        memory, state = _fields(Memory, "memory", inputs), _fields(DecoderState, "state", inputs)
        if any(name.startswith("memory.facts.") for name in inputs):
            memory = memory._replace(facts=_fields(Facts, "memory.facts", inputs))
        if any(name.startswith("memory.features.") for name in inputs):
            memory = memory._replace(features=_fields(FeatureMemory, "memory.features", inputs))
        past = _read_past(inputs, words.numel())
        by_row = state.map(lambda field: field.flatten(0, 1)[:, None])  # and with an axis of one step
        cache = CopyNetCache()
        cache.layer.record(by_row._replace(past=past), memory)
        output = self.model(
            encoder_outputs=CopyNetEncoderOutput(),  # all that is read of it is in the memory
            decoder_input_ids=words.flatten()[:, None],
            cache=cache,
            use_cache=True,
            return_dict=True,
        )
        made = {
            "log_probs": output.logits,
            "copy_probs": output.copy_probs,
            **_named("next_state", cache.layer.states),
        }
        of_step = {name: field[:, 0] for name, field in made.items() if field is not None}
        of_words = {} if past is None else _past_tensors("next_state", past.self_attention_cache)
        return {name: tensor.unflatten(0, words.shape) for name, tensor in (of_step | of_words).items()}


# ---- names and axes


def _named(prefix: str, fields: NamedTuple | None) -> Tensors:
    """The tensors of a NamedTuple, and of those inside it, by name."""
    tensors: Tensors = {}
    for name, field in (fields._asdict() if fields else {}).items():
        if isinstance(field, Tensor):
            tensors[f"{prefix}.{name}"] = field
        elif field is not None and not isinstance(field, PastWords):
            tensors |= _named(f"{prefix}.{name}", field)
    return tensors


def _fields(kind: type[Fields], prefix: str, tensors: Mapping[str, Tensor]) -> Fields:
    """The NamedTuple that `_named` took apart, but for those inside it."""
    return kind._make(tensors.get(f"{prefix}.{name}") for name in kind._fields)


def _past_tensors(prefix: str, cache: Cache) -> Tensors:
    """Keys and values (R, words, heads, width) of each layer, by name."""
    tensors: Tensors = {}
    for number, layer in enumerate(cast("list[DynamicLayer]", cache.layers)):
        for kind, tensor in (("keys", layer.keys), ("values", layer.values)):
            assert tensor is not None
            tensors[f"{prefix}.past.{kind}.{number}"] = tensor.transpose(1, 2)
    return tensors


def _read_past(tensors: Tensors, rows: int) -> PastWords | None:
    """The past of R rows whose tensors `_past_tensors` has named; None: the decoder has none."""
    past, number = PastWords(), 0
    while f"state.past.keys.{number}" in tensors:
        keys, values = (tensors[f"state.past.{kind}.{number}"].flatten(0, 1) for kind in ("keys", "values"))
        past.self_attention_cache.update(keys.transpose(1, 2), values.transpose(1, 2), number)
        keys, values = (expand_to_rows(tensors[f"memory.past.{kind}.{number}"], rows) for kind in ("keys", "values"))
        past.cross_attention_cache.update(keys.transpose(1, 2), values.transpose(1, 2), number)
        past.is_updated[number] = True
        number += 1
    return past if number else None


def _axes(name: str) -> tuple[str, ...]:
    """The axes of a tensor that are of any size: its first ones."""
    if name == "feature_ids" or name.startswith("memory.features."):
        return ("batch", "source_features")
    if name in FIELDS:
        return ("batch", "num_pieces")
    if name == "letter_ids":
        return ("batch", "num_letters")
    if name == "memory.slot_embeddings":
        return ("batch", "num_slots")
    part, _, field = name.partition(".")
    if field.startswith("past."):
        words = {"state": "num_words", "next_state": "num_words_after"}
        return ("batch", "num_read") if part == "memory" else ("batch", "num_beams", words[part])
    axes = ["batch"]
    if part in ("words", "state", "next_state", "log_probs", "copy_probs"):
        axes.append("num_beams")
    if part not in ("words", "log_probs", "forbidden") and field not in ("final_state", "hidden"):
        axes.append("source_length")
    return tuple(axes)


def _agree(inputs: Tensors) -> None:
    """Says that an axis has one size wherever it stands, or the program would ask for it case by case.

    Named dimensions would say so, too, but are refused where an encoder limits its positions.
    """
    sizes: dict[str, int] = {}
    for name, tensor in inputs.items():
        for axis, size in zip(_axes(name), tensor.shape, strict=False):
            torch._check(sizes.setdefault(axis, size) == size)


# ---- making the graphs


def _example(model: CopyNetForConditionalGeneration) -> Tensors:
    """Two sources of two positions, and of three features, as the encoder takes them."""
    config, size = model.config, (2, 2)
    ones = torch.ones(size, dtype=torch.long, device=model.device)
    if config.num_features:
        example = {"input_features": torch.ones(*size, config.num_features, device=model.device, dtype=model.dtype)}
    else:
        example = {"input_ids": ones * config.unk_token_id}
    example["attention_mask"] = ones
    if config.feature_vocab_size:
        example["feature_ids"] = ones.new_ones(2, 3)
    if config.letter_vocab_size:
        example["letter_ids"] = ones.new_zeros(2, 3)
    if config.mechanism.retrieves:
        example["token_type_ids"] = torch.zeros_like(ones)
    if config.piece_encoder is not None:
        pieces = torch.ones(2, 3, dtype=torch.long, device=model.device)
        # a special piece and two words; the exporter takes a tensor that is given twice for one input
        example |= dict(zip(FIELDS, (pieces, pieces.clone(), pieces.cumsum(1) - 2), strict=True))
    return example


@contextmanager
def _eager_attention(model: CopyNetForConditionalGeneration) -> Iterator[None]:
    """The attention of a Transformers encoder as separate operations: the ONNX exporter fails on T5's fused one."""
    if model.config.encoder is None:
        yield
        return
    text_encoder: Any = model.get_encoder().text_encoder
    implementation = text_encoder.config._attn_implementation
    text_encoder.set_attn_implementation("eager")
    try:
        yield
    finally:
        text_encoder.set_attn_implementation(implementation)


def _exported(graph: nn.Module, example: Tensors) -> ExportedProgram:
    shapes = {name: dict.fromkeys(range(len(_axes(name))), Dim.DYNAMIC) for name in example}
    return torch.export.export(graph, (example,), dynamic_shapes=(shapes,))


def _check_exportable(model: CopyNetForConditionalGeneration | CopyNetEnsemble) -> None:
    if isinstance(model, CopyNetEnsemble):
        raise ValueError("an ensemble cannot be exported: export one of its members.")
    if model.dtype != torch.float32:
        raise ValueError(
            f"the model is in {model.dtype}, and graphs are in float32: load it with dtype=torch.float32."
        )


def _check_search(config: GenerationConfig) -> None:
    """Raises ValueError for what the generation config asks for and the loop over the graphs cannot do."""
    known = {*Search._fields, "max_length", "min_length", "use_cache", "transformers_version"}
    factors = {"repetition_penalty", "encoder_repetition_penalty", "num_beam_groups"}  # 1 is none
    of_sampling = {"temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}
    # Of the assisted search, which is chosen by arguments of generate(). Seq2SeqTrainer sets all to their defaults.
    of_assistants = ("assistant_", "num_assistant_", "target_lookbehind")
    for name, value in config.to_diff_dict().items():
        no_matter = name in known | of_sampling or name.startswith(("_", "output_", "return_", *of_assistants))
        is_id = name.endswith("_token_id")  # 0 is one
        neutral = value in (None, []) or (not value and not is_id) or (value == 1 and name in factors)
        if not (no_matter or neutral or name in ("pad_token_id", "bos_token_id", "decoder_start_token_id")):
            raise ValueError(
                f"the generation config has {name}={value!r}, which the search over ONNX graphs does not know: set "
                f"model.generation_config.{name} = None before the export."
            )
