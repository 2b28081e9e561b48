"""A saved model and its tokenizer, by folder or by name on the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from ..model.modeling_copynet import CopyNetForConditionalGeneration


def checked_name(name: str | None) -> str:
    """A folder with a model, or what may be a name on the Hub.

    Raises:
        ValueError: neither.
    """
    if not name:
        raise ValueError("no --model: give the folder of a trained model")
    if Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"--model {name} holds no model: give the output_dir of copynet-hf train")
    if not Path(name).exists() and name.count("/") != 1:
        raise ValueError(f"--model {name}: no such folder")
    return name


def load_model(
    name: str | None, device: str | None = None, bf16: bool = False
) -> tuple[CopyNetForConditionalGeneration, PreTrainedTokenizerBase]:
    """Model and tokenizer of a folder or Hub name, which must belong together.

    Raises:
        ValueError: no name, a folder without a model, a model of points, a tokenizer of another model, no such
            device.
    """
    name = checked_name(name)
    model = load_copynet(name, dtype=torch.bfloat16 if bf16 else torch.float32)
    if model.config.num_features:
        raise ValueError(f"--model {name} reads points, not words: load it in Python, and give it input_features")
    tokenizer = AutoTokenizer.from_pretrained(name)
    check_tokenizer(model.config, tokenizer)
    place: Any = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return model.to(place).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:  # torch's, for a name it does not know and for no such device
        raise ValueError(f"--device {place} cannot be used ({error}): give cpu, or leave it out") from None


def load_copynet(name: str, **kwargs: Any) -> CopyNetForConditionalGeneration:
    """A saved CopyNet; ValueError for a model of another kind."""
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **kwargs)
    if not isinstance(model, CopyNetForConditionalGeneration):
        raise ValueError(f"the model {name} is a {type(model).__name__}: give a CopyNet")
    return model


def check_tokenizer(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError unless model and tokenizer count words, slots and special symbols alike."""
    mend = "load the tokenizer that was saved with the model"
    if len(tokenizer) != config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} words, the model vocab_size={config.vocab_size}: {mend}, or call "
            "model.resize_token_embeddings(len(tokenizer)) and train again"
        )
    slots = getattr(tokenizer, "max_source_oov", 0)
    if slots != getattr(config, "max_source_oov", 0):
        raise ValueError(
            f"the tokenizer has {slots} slots for unseen words, the model max_source_oov={config.max_source_oov}: "
            f"{mend}, or give both the same max_source_oov"
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        own, of_model = getattr(tokenizer, name, None), getattr(config, name, None)
        accepted = of_model if isinstance(of_model, list) else [of_model]
        if own is not None and own not in accepted:
            raise ValueError(f"{name} is {own} for the tokenizer and {of_model} for the model: {mend}")
