"""Makes Transformers know the package's classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.pipelines import PIPELINE_REGISTRY

from .inference.backends import OnnxModel
from .model.configuration_copynet import CopyNetConfig
from .model.configuration_ensemble import CopyNetEnsembleConfig
from .model.modeling_copynet import CopyNetForConditionalGeneration, CopyNetModel
from .model.modeling_ensemble import CopyNetEnsemble
from .model.pipeline import TASK, CopyText2TextPipeline
from .model.pretrained import PublishedModel
from .model.tokenization_copynet import CopyNetTokenizer


def register() -> None:
    """Makes the Auto classes and `pipeline()` know CopyNet, and `save_pretrained` write code and card."""
    AutoConfig.register("copynet", CopyNetConfig, exist_ok=True)
    AutoConfig.register("copynet_ensemble", CopyNetEnsembleConfig, exist_ok=True)
    AutoModel.register(CopyNetConfig, CopyNetModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(CopyNetConfig, CopyNetForConditionalGeneration, exist_ok=True)
    AutoModelForSeq2SeqLM.register(CopyNetEnsembleConfig, CopyNetEnsemble, exist_ok=True)
    for config_class in (CopyNetConfig, CopyNetEnsembleConfig):
        AutoTokenizer.register(config_class, slow_tokenizer_class=CopyNetTokenizer, exist_ok=True)
        config_class.register_for_auto_class()
    if TASK not in PIPELINE_REGISTRY.supported_tasks:
        models: Any = (AutoModelForSeq2SeqLM, OnnxModel)  # the second loads the folders that the first does not
        PIPELINE_REGISTRY.register_pipeline(TASK, CopyText2TextPipeline, pt_model=models, type="text")
    CopyNetModel.register_for_auto_class("AutoModel")
    CopyNetForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
    CopyNetEnsemble.register_for_auto_class("AutoModelForSeq2SeqLM")
    CopyNetTokenizer.register_for_auto_class("AutoTokenizer")
    PublishedModel.write_card = staticmethod(_write_card)


def _write_card(model: PublishedModel, folder: Path, **fields: Any) -> None:
    """What `save_pretrained` of the package's own classes calls; code that was saved beside weights has no cards."""
    from .saved.cards import write_model_card

    write_model_card(folder, model, **fields)
