"""Loading a saved model and its tokenizer from a folder or the Hub."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from ..model.configuration_copynet import CopyNetConfig
from ..model.configuration_ensemble import CopyNetEnsembleConfig
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.modeling_ensemble import CopyNetEnsemble
from ..model.vocabularies import check_tokenizer
from .checks import check_generation_config, check_model_name, check_no_lfs_pointer, read_json
from .model_size import check_memory

GENERATION_FILE = "generation_config.json"
MODEL_FILES = ("config.json", GENERATION_FILE, "model.safetensors.index.json")
TOKENIZER_FILES = ("tokenizer_config.json", "vocab.json", "tokenizer.json")
LoadedModel = CopyNetForConditionalGeneration | CopyNetEnsemble
# In `torch.cpu.get_capabilities()`: of x86, then of Arm.
BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "avx10_2", "bf16", "sve_bf16")
logger = logging.getLogger(__name__)


def has_bfloat16(device: str = "cpu") -> bool:
    """Whether a device computes in bfloat16; a processor without its instructions takes longer than in float32."""
    if torch.device(device).type != "cpu":
        return True
    if not hasattr(torch.cpu, "get_capabilities"):  # earlier versions of torch do not say
        return True
    return any(torch.cpu.get_capabilities().get(name) for name in BFLOAT16_INSTRUCTIONS)


def warn_of_slow_bfloat16(device: str) -> None:
    """Warns if bfloat16 takes longer on this device than float32."""
    if not has_bfloat16(device):
        logger.warning("--bf16 is slower here: this processor has no bfloat16 instructions; leave it out")


def load_model(
    name: str | None, device: str | None = None, bf16: bool = False, trust_remote_code: bool = False
) -> tuple[LoadedModel, PreTrainedTokenizerBase]:
    """Loads a model, which may be an ensemble, and its tokenizer from a folder or the Hub.

    Args:
        device: where to put the model; None: CUDA if available, else the CPU.
        bf16: whether to load the weights in bfloat16.
        trust_remote_code: whether to run code that the model's config names.

    Raises:
        ValueError: the name is missing, model or tokenizer cannot be loaded, the model reads points instead of words,
            the tokenizer belongs to another model, or the device cannot be used.
    """
    name = check_model_name(name)
    dtype = torch.bfloat16 if bf16 else torch.float32
    model = load_copynet(name, trust_remote_code=trust_remote_code, dtype=dtype)
    if model.config.num_features:
        raise ValueError(f"model {name} reads points, not words: load it in Python and pass input_features")
    tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
    check_tokenizer(model.config, tokenizer)
    target: Any = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if bf16:
        warn_of_slow_bfloat16(target)
    try:
        return model.to(target).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:  # torch: an unknown name, a device that is not there
        raise ValueError(f"--device {target} cannot be used ({error}): use cpu, or leave it out") from None


def load_copynet(name: str, *, trust_remote_code: bool = False, **kwargs: object) -> LoadedModel:
    """Loads a model, which may be an ensemble, with `AutoModelForSeq2SeqLM`.

    Args:
        trust_remote_code: whether to run code that the model's config names.
        kwargs: arguments of `from_pretrained`, such as `dtype` and fields of the config.

    Raises:
        ValueError: it is not a CopyNet, too large for the memory, or one of ONNX graphs; a file is damaged, or the
            config names code that is not trusted.
    """
    folder = Path(name)
    if any(folder.glob("*.onnx")) and not any(folder.glob("*.safetensors*")):
        raise ValueError(
            f"{name} holds ONNX graphs: use backend='onnx' (--backend onnx), if the command has it, "
            "or pass the model they were exported from"
        )
    contents = {file: read_json(folder / file) for file in MODEL_FILES}
    check_generation_config(contents[GENERATION_FILE] or {}, folder / GENERATION_FILE)
    for path in sorted(folder.glob("*.safetensors")):
        _check_weights(path)
    with _loading(name):
        config = AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
        if isinstance(config, CopyNetConfig | CopyNetEnsembleConfig):
            check_memory(config, trains=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=trust_remote_code, **kwargs)
    if not isinstance(model, LoadedModel):
        raise ValueError(f"the model {name} is a {type(model).__name__}: pass a CopyNet")
    check_generation_config(vars(model.generation_config), folder / GENERATION_FILE, model.config.vocab_size)
    return model


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Loads a tokenizer with `AutoTokenizer`.

    Raises:
        ValueError: a file is missing or damaged, or the config names code that is not trusted.
    """
    folder = Path(name)
    contents = {file: read_json(folder / file) for file in TOKENIZER_FILES}
    if folder.is_dir():
        needed = {"tokenizer_config.json"}
        if "CopyNet" in str((contents["tokenizer_config.json"] or {}).get("tokenizer_class")):
            needed.add("vocab.json")
        for file in sorted(needed):
            if contents[file] is None:
                raise ValueError(
                    f"{folder} has no {file}: copy it from where the model was trained, or write it with "
                    "tokenizer.save_pretrained"
                )
    with _loading(name):
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code)
    length = tokenizer.model_max_length
    if not isinstance(length, int | float) or not length >= 1:  # Transformers' default is a float of 1e30
        raise ValueError(
            f"{folder / 'tokenizer_config.json'}: model_max_length is {reprlib.repr(length)}: write a number of at "
            "least 1, or remove the field"
        )
    return tokenizer


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Raises what Transformers raises while loading the model `name` as a ValueError that names it and the fix."""
    try:
        yield
    except (OSError, ImportError) as error:  # their messages name the file or the package
        is_of_hub = isinstance(error, OSError) and error.errno is None and not Path(name).exists()  # it names nothing
        if is_of_hub and name not in str(error):
            raise OSError(f"{name} is no folder here, and cannot be loaded from the Hub: {error}") from error
        raise
    except Exception as error:  # a file whose JSON is valid can make Transformers raise anything
        message = str(error)
        if "trust_remote_code" in message:
            raise ValueError(
                f"{name} names code of its own, which was not run: read that code, and pass --trust_remote_code if "
                "you trust it"
            ) from error
        if "ignore_mismatched_sizes" in message:
            raise ValueError(
                f"{name} has weights of other shapes than its config.json gives: use the files of one model"
            ) from error
        fault = message if isinstance(error, ValueError) else f"{type(error).__name__}: {message}"
        fix = "restore its files, for example by saving the model again"
        if "is unknown: use one of" in message:
            fix = "it was saved by another version of copynet_hf, which it needs, or by a changed one"
        raise ValueError(f"{name} cannot be loaded ({fault}): {fix}") from error


def _check_weights(path: Path) -> None:
    """Raises ValueError if a safetensors file is damaged; reads its header only."""
    check_no_lfs_pointer(path)
    try:
        with safe_open(path, framework="pt"):
            pass
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): copy or download the file again") from error
