"""CopyNet (Gu, Lu, Li, Li, ACL 2016) as ordinary Transformers models.

Importing the package registers model and tokenizer with the Auto classes. Everything else is loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.pipelines import PIPELINE_REGISTRY

from .inference.backends import OnnxModel
from .model.configuration_copynet import CopyNetConfig
from .model.generation import StopStrings
from .model.modeling_copynet import CopyNetForConditionalGeneration, CopyNetModel
from .model.pipeline import TASK, CopyText2TextPipeline
from .model.pretrained import CopyNetPreTrainedModel
from .model.tokenization_copynet import CopyNetTokenizer

if TYPE_CHECKING:
    from .data.lcsts import load_lcsts
    from .data.pairs import load_pairs
    from .evaluation.cards import write_model_card
    from .evaluation.compute_metrics import make_compute_metrics
    from .evaluation.metrics import CopyMetrics
    from .inference.heatmap import plot_copy_heatmap
    from .inference.highlighting import copies_html, highlight_copies
    from .inference.loading import check_tokenizer
    from .inference.onnx_export import export_onnx, export_programs
    from .inference.onnx_search import OnnxCopyNet
    from .inference.predictor import CopyNetPredictor
    from .training.alignment import align_vocabulary

__version__ = "0.1.0"

_LAZY = {
    "align_vocabulary": ".training.alignment",
    "check_tokenizer": ".inference.loading",
    "write_model_card": ".evaluation.cards",
    "load_lcsts": ".data.lcsts",
    "load_pairs": ".data.pairs",
    "export_onnx": ".inference.onnx_export",
    "export_programs": ".inference.onnx_export",
    "CopyMetrics": ".evaluation.metrics",
    "CopyNetPredictor": ".inference.predictor",
    "make_compute_metrics": ".evaluation.compute_metrics",
    "OnnxCopyNet": ".inference.onnx_search",
    "copies_html": ".inference.highlighting",
    "highlight_copies": ".inference.highlighting",
    "plot_copy_heatmap": ".inference.heatmap",
}

__all__ = [
    "CopyMetrics",
    "CopyNetConfig",
    "CopyNetForConditionalGeneration",
    "CopyNetModel",
    "CopyNetPredictor",
    "CopyNetTokenizer",
    "CopyText2TextPipeline",
    "OnnxCopyNet",
    "StopStrings",
    "align_vocabulary",
    "check_tokenizer",
    "copies_html",
    "export_onnx",
    "export_programs",
    "highlight_copies",
    "load_lcsts",
    "load_pairs",
    "make_compute_metrics",
    "plot_copy_heatmap",
    "write_model_card",
]


def _write_card(model: CopyNetPreTrainedModel, folder: Path, **fields: Any) -> None:
    """What `save_pretrained` of the package's own classes calls; code that was saved beside weights has no cards."""
    import_module(".evaluation.cards", __name__).write_model_card(folder, model, **fields)


def _register() -> None:
    """Makes the Auto classes and `pipeline()` know CopyNet, and `save_pretrained` put the code beside the weights."""
    AutoConfig.register("copynet", CopyNetConfig, exist_ok=True)
    AutoModel.register(CopyNetConfig, CopyNetModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(CopyNetConfig, CopyNetForConditionalGeneration, exist_ok=True)
    AutoTokenizer.register(CopyNetConfig, slow_tokenizer_class=CopyNetTokenizer, exist_ok=True)
    if TASK not in PIPELINE_REGISTRY.supported_tasks:
        models: Any = (AutoModelForSeq2SeqLM, OnnxModel)  # the second loads the folders that the first does not
        PIPELINE_REGISTRY.register_pipeline(TASK, CopyText2TextPipeline, pt_model=models, type="text")
    CopyNetConfig.register_for_auto_class()
    CopyNetModel.register_for_auto_class("AutoModel")
    CopyNetForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
    CopyNetTokenizer.register_for_auto_class("AutoTokenizer")


_register()
CopyNetPreTrainedModel.write_card = staticmethod(_write_card)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
