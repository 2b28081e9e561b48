"""CopyNet (Gu, Lu, Li, Li, ACL 2016) as ordinary Transformers models.

Importing the package registers model and tokenizer with the Auto classes. Everything else is loaded when first used.
Where torch or Transformers is not installed, as on a server of ONNX models, nothing is registered.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `X as X`: type checkers take it for a public name
    from .data.pairs import load_lcsts as load_lcsts
    from .data.pairs import load_pairs as load_pairs
    from .evaluation.compute_metrics import make_compute_metrics as make_compute_metrics
    from .evaluation.metrics import CopyMetrics as CopyMetrics
    from .evaluation.scoring import calibrate_model as calibrate_model
    from .inference.extraction import extract_records as extract_records
    from .inference.onnx_export import export_onnx as export_onnx
    from .inference.onnx_export import export_programs as export_programs
    from .inference.onnx_search import OnnxCopyNet as OnnxCopyNet
    from .inference.predictor import CopyNetPredictor as CopyNetPredictor
    from .model.configuration_copynet import CopyNetConfig as CopyNetConfig
    from .model.configuration_ensemble import CopyNetEnsembleConfig as CopyNetEnsembleConfig
    from .model.generation import StopStrings as StopStrings
    from .model.modeling_copynet import CopyNetForConditionalGeneration as CopyNetForConditionalGeneration
    from .model.modeling_copynet import CopyNetModel as CopyNetModel
    from .model.modeling_ensemble import CopyNetEnsemble as CopyNetEnsemble
    from .model.pipeline import CopyText2TextPipeline as CopyText2TextPipeline
    from .model.tokenization_copynet import CopyNetTokenizer as CopyNetTokenizer
    from .model.vocabularies import check_tokenizer as check_tokenizer
    from .saved.cards import write_model_card as write_model_card
    from .serving.tokenizer import PlainTokenizer as PlainTokenizer
    from .training.alignment import align_vocabulary as align_vocabulary
    from .visualization.heatmap import plot_copy_heatmap as plot_copy_heatmap
    from .visualization.highlighting import copies_html as copies_html
    from .visualization.highlighting import highlight_copies as highlight_copies

__version__ = "0.1.0"

_MODULES = {
    "CopyNetConfig": ".model.configuration_copynet",
    "CopyNetEnsemble": ".model.modeling_ensemble",
    "CopyNetEnsembleConfig": ".model.configuration_ensemble",
    "CopyNetForConditionalGeneration": ".model.modeling_copynet",
    "CopyNetModel": ".model.modeling_copynet",
    "CopyNetTokenizer": ".model.tokenization_copynet",
    "CopyText2TextPipeline": ".model.pipeline",
    "PlainTokenizer": ".serving.tokenizer",
    "StopStrings": ".model.generation",
    "align_vocabulary": ".training.alignment",
    "calibrate_model": ".evaluation.scoring",
    "check_tokenizer": ".model.vocabularies",
    "write_model_card": ".saved.cards",
    "load_lcsts": ".data.pairs",
    "load_pairs": ".data.pairs",
    "export_onnx": ".inference.onnx_export",
    "export_programs": ".inference.onnx_export",
    "CopyMetrics": ".evaluation.metrics",
    "CopyNetPredictor": ".inference.predictor",
    "extract_records": ".inference.extraction",
    "make_compute_metrics": ".evaluation.compute_metrics",
    "OnnxCopyNet": ".inference.onnx_search",
    "copies_html": ".visualization.highlighting",
    "highlight_copies": ".visualization.highlighting",
    "plot_copy_heatmap": ".visualization.heatmap",
}

__all__ = list(_MODULES)


def register_classes() -> None:
    """Makes Transformers know the model, where it is installed."""
    if all(find_spec(package) for package in ("torch", "transformers")):
        import_module(".registration", __name__).register()


# The commands register the classes once their arguments are parsed: `copynet-hf`, which sets the variable until then,
# and `python -m copynet_hf`, whose module Python is still looking for.
_is_run = sys.argv[:1] == ["-m"] and ("-m", __name__) in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
if "COPYNET_REGISTER_LATER" not in os.environ and not _is_run:
    register_classes()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name], __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{__name__}.{name} needs {error.name}, which is not installed: install copynet-hf without --no-deps"
        ) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
