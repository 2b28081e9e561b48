"""Loading a saved model and its tokenizer from a folder or the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from ..model.modeling_copynet import CopyNetForConditionalGeneration


def check_model_name(name: str | None) -> str:
    """Returns the name if it is a folder with a model or has the form of a name on the Hub.

    Raises:
        ValueError: it is neither.
    """
    if not name:
        raise ValueError("--model is missing: give the folder of a trained model")
    if Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"--model {name} holds no model: give the output_dir of copynet-hf train")
    if not Path(name).exists() and name.count("/") != 1:
        raise ValueError(f"--model {name}: no such folder; give the folder of a trained model, or its name on the Hub")
    return name


def load_model(
    name: str | None, device: str | None = None, bf16: bool = False
) -> tuple[CopyNetForConditionalGeneration, PreTrainedTokenizerBase]:
    """Loads a model and its tokenizer from a folder or the Hub.

    Args:
        device: where to put the model; None: CUDA if available, else the CPU.
        bf16: whether to load the weights in bfloat16.

    Raises:
        ValueError: the name is missing or holds no model, the model reads points instead of words, the tokenizer
            belongs to another model, or the device cannot be used.
    """
    name = check_model_name(name)
    model = load_copynet(name, dtype=torch.bfloat16 if bf16 else torch.float32)
    if model.config.num_features:
        raise ValueError(f"--model {name} reads points, not words: load it in Python and pass input_features")
    tokenizer = AutoTokenizer.from_pretrained(name)
    check_tokenizer(model.config, tokenizer)
    target: Any = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return model.to(target).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:  # torch: an unknown name, a device that is not there
        raise ValueError(f"--device {target} cannot be used ({error}): give cpu, or leave it out") from None


def load_copynet(name: str, **kwargs: Any) -> CopyNetForConditionalGeneration:
    """Loads a model with `AutoModelForSeq2SeqLM`.

    Raises:
        ValueError: it is no CopyNet.
    """
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **kwargs)
    if not isinstance(model, CopyNetForConditionalGeneration):
        raise ValueError(f"the model {name} is a {type(model).__name__}: give a CopyNet")
    return model


def check_tokenizer(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that model and tokenizer agree on the vocabulary size, the number of slots and the special tokens.

    Raises:
        ValueError: they do not.
    """
    fix = "load the tokenizer that was saved with the model"
    if len(tokenizer) != config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} words, the model vocab_size={config.vocab_size}: {fix}, or call "
            "model.resize_token_embeddings(len(tokenizer)) and train again"
        )
    slots = getattr(tokenizer, "max_source_oov", 0)
    if slots != getattr(config, "max_source_oov", 0):
        raise ValueError(
            f"the tokenizer has max_source_oov={slots}, the model max_source_oov={config.max_source_oov}: {fix}, or "
            "give both the same number"
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        in_tokenizer, in_model = getattr(tokenizer, name, None), getattr(config, name, None)
        accepted = in_model if isinstance(in_model, list) else [in_model]
        if in_tokenizer is not None and in_tokenizer not in accepted:
            raise ValueError(f"{name} is {in_tokenizer} for the tokenizer and {in_model} for the model: {fix}")
