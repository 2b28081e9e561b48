"""CopyNet (Gu, Lu, Li, Li, ACL 2016) as ordinary Transformers models.

Importing the package registers model and tokenizer with the Auto classes. Everything else is loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration_copynet import CopyNetConfig
from .modeling_copynet import CopyNetForConditionalGeneration, CopyNetModel
from .pipeline_copynet import TASK, CopyText2TextPipeline
from .tokenization_copynet import CopyNetTokenizer

if TYPE_CHECKING:
    from .alignment import align_vocabulary
    from .building import check_tokenizer
    from .cards import write_model_card
    from .data.lcsts import load_lcsts
    from .data.pairs import load_pairs
    from .export import export_onnx, export_programs
    from .metrics import CopyMetrics, make_compute_metrics
    from .onnx import OnnxCopyNet
    from .visualization import copies_html, highlight_copies, plot_copy_heatmap

__version__ = "0.1.0"

_LAZY = {
    "align_vocabulary": ".alignment",
    "check_tokenizer": ".building",
    "write_model_card": ".cards",
    "load_lcsts": ".data.lcsts",
    "load_pairs": ".data.pairs",
    "export_onnx": ".export",
    "export_programs": ".export",
    "CopyMetrics": ".metrics",
    "make_compute_metrics": ".metrics",
    "OnnxCopyNet": ".onnx",
    "copies_html": ".visualization",
    "highlight_copies": ".visualization",
    "plot_copy_heatmap": ".visualization",
}

__all__ = [
    "CopyMetrics",
    "CopyNetConfig",
    "CopyNetForConditionalGeneration",
    "CopyNetModel",
    "CopyNetTokenizer",
    "CopyText2TextPipeline",
    "OnnxCopyNet",
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


def _register() -> None:
    """Makes the Auto classes and `pipeline()` know CopyNet, and `save_pretrained` put the code beside the weights."""
    AutoConfig.register("copynet", CopyNetConfig, exist_ok=True)
    AutoModel.register(CopyNetConfig, CopyNetModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(CopyNetConfig, CopyNetForConditionalGeneration, exist_ok=True)
    AutoTokenizer.register(CopyNetConfig, slow_tokenizer_class=CopyNetTokenizer, exist_ok=True)
    if TASK not in PIPELINE_REGISTRY.supported_tasks:
        PIPELINE_REGISTRY.register_pipeline(TASK, CopyText2TextPipeline, pt_model=AutoModelForSeq2SeqLM, type="text")
    CopyNetConfig.register_for_auto_class()
    CopyNetModel.register_for_auto_class("AutoModel")
    CopyNetForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
    CopyNetTokenizer.register_for_auto_class("AutoTokenizer")


_register()


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
