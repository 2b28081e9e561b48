"""ONNX graphs with 8-bit weights: `copynet-hf export --quantize int8`, by onnxruntime's dynamic quantisation.

A weight W is stored as round(W / s), with one scale s for the whole tensor; a table of embeddings has a zero point as
well. The other factor of a product is quantised while the graph runs, with one scale for the whole batch. Products of
two computed tensors, such as those of the attention, and everything else stay in float32.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir


def check_quantization(quantize: str | None) -> None:
    """Raises ValueError unless `quantize` is None or "int8"; ImportError without onnxruntime."""
    if quantize is None:
        return
    if quantize != "int8":
        raise ValueError(f"quantize is {quantize!r}: use int8, or leave it out for float32")
    try:
        import onnxruntime.quantization  # noqa: F401 - only the commands of this extra need it
    except ImportError as error:
        raise ImportError(f"no {error.name}, which quantises ONNX graphs: pip install onnx onnxruntime") from None


def write_int8(graph: ir.Model, path: Path) -> None:
    """Writes the graph, an `onnx_ir.Model`, with 8-bit weights.

    Weights use 7 of the 8 bits. Processors without VNNI instructions add pairs of products in 16 bits, which overflow
    with 8; with 7 the outputs do not depend on the processor.
    """
    import onnx_ir as ir
    from onnxruntime.quantization import quantize_dynamic

    _make_weights_constant(graph)
    with quiet():
        # a Scan holds the recurrence of the encoder in a subgraph; onnxruntime rejects a scale per channel for the
        # weights of both directions, which are one tensor
        quantize_dynamic(ir.to_proto(graph), path, reduce_range=True, extra_options={"EnableSubgraph": True})


def _make_weights_constant(graph: ir.Model) -> None:
    """Turns each product with a weight into a MatMul whose second input is a constant: the quantiser passes over
    weights that the graph transposes, and a Gemm whose weight has another use becomes wrong."""
    from onnx_ir.passes.common import CommonSubexpressionEliminationPass, RemoveUnusedNodesPass
    from onnxscript.optimizer import fold_constants
    from onnxscript.rewriter.pattern import RewriteRule, RewriteRuleSet

    attributes = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}

    def linear(op: Any, x: ir.Value, weight: ir.Value) -> ir.Value:
        return op.Gemm(x, weight, **attributes)

    def product(op: Any, x: ir.Value, weight: ir.Value) -> ir.Value:
        return op.MatMul(x, op.Transpose(weight, perm=[1, 0]))

    def linear_with_bias(op: Any, x: ir.Value, weight: ir.Value, bias: ir.Value) -> ir.Value:
        return op.Gemm(x, weight, bias, **attributes)

    def product_and_sum(op: Any, x: ir.Value, weight: ir.Value, bias: ir.Value) -> ir.Value:
        return op.Add(product(op, x, weight), bias)

    rules = [RewriteRule(linear, product), RewriteRule(linear_with_bias, product_and_sum)]
    RewriteRuleSet(rules).apply_to_model(graph)
    CommonSubexpressionEliminationPass()(graph)  # one transpose of each weight, so that it is stored once
    fold_constants(graph, input_size_limit=sys.maxsize, output_size_limit=sys.maxsize)
    RemoveUnusedNodesPass()(graph)


@contextmanager
def quiet() -> Iterator[None]:
    """Without what exporter and quantiser log about packages and tensors that need nothing, and without the handler
    that the latter adds."""
    handlers, disabled = logging.root.handlers[:], logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.disable(disabled)
        logging.root.handlers[:] = handlers
