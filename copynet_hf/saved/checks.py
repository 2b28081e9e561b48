"""What a saved model may be called, and what its files may hold: JSON objects, generation settings."""

from __future__ import annotations

import json
import re
import reprlib
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from ..arguments import MAX_EXPONENT

MAX_COUNT, MAX_BEAMS = 10**6, 10**4
LFS_POINTER = b"version https://git-lfs.github.com/"
# OWNER/NAME or NAME, without a dot in front or two together: ./model and ../model are folders.
_HUB_NAME = re.compile(r"(?!.*\.\.)(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)


# ---- names


def check_model_name(name: str | None) -> str:
    """Returns the name; raises ValueError unless it is a folder with a model or has the form of a name on the Hub."""
    if not name:
        raise ValueError("--model is missing: pass the folder of a trained model")
    folder = Path(name)
    if folder.exists() and not (folder / "config.json").is_file():
        from transformers.trainer_utils import get_last_checkpoint  # which imports much

        checkpoint = get_last_checkpoint(name) if folder.is_dir() else None
        fix = f"its training did not end; its last checkpoint is {checkpoint}" if checkpoint else ""
        raise ValueError(f"model {name} holds no model: {fix or 'pass the output_dir of copynet-hf train'}")
    check_name("model", name, needs_owner=True)
    return name


def check_name(argument: str, name: str, *, needs_owner: bool = False) -> None:
    """Raises ValueError unless `name`, the value of the argument, is a folder or has the form of a name on the Hub,
    which with `needs_owner` must be OWNER/NAME."""
    folder = Path(name)
    if folder.exists() or (_HUB_NAME.fullmatch(name) and ("/" in name or not needs_owner)):
        return
    fix = suggest_folder(folder) or "pass the model's folder, or its name on the Hub"
    raise ValueError(f"{argument} {name}: no such folder; {fix}")


def suggest_folder(missing: Path) -> str | None:
    """Asks whether a model's folder of a similar name was meant; None: there is none beside the missing one."""
    others = [path.name for path in missing.parent.glob("*/") if (path / "config.json").is_file()]
    nearest = get_close_matches(missing.name, others, 1)
    return f"did you mean {missing.with_name(nearest[0])}?" if nearest else None


# ---- files


def read_json(path: Path) -> dict[str, object] | None:
    """The JSON object of a file, None if there is no such file.

    Raises:
        ValueError: the file holds something else.
    """
    if not path.is_file():
        return None
    check_no_lfs_pointer(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object: restore the file, for example by saving the model again")
    return content


def check_no_lfs_pointer(path: Path) -> None:
    """Raises ValueError if the file is what Git leaves in place of a large file that it has not fetched."""
    with path.open("rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise ValueError(f"{path} is a Git LFS pointer, not the file itself: run git lfs pull in its repository")


def read_export(path: Path) -> dict[str, object]:
    """The JSON object of a file of an exported model; raises ValueError if it is missing or holds something else."""
    if (content := read_json(path)) is None:
        raise ValueError(f"{path} is missing: pass a folder that copynet-hf export wrote, with --target onnx")
    return content


def read_export_config(folder: Path) -> dict[str, object]:
    """The config of an exported model.

    Raises:
        ValueError: a file of the model is missing, or damaged.
    """
    config, generation_file = read_export(folder / "config.json"), folder / "generation_config.json"
    size = config.get("vocab_size")
    check_generation_config(
        read_export(generation_file), generation_file, size if isinstance(size, int) else sys.maxsize
    )
    for path in folder.glob("*.onnx"):
        check_no_lfs_pointer(path)
    return config


# ---- generation settings, whose values `generate()` would use without a check of their types


def _is_int(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high  # True and False are instances of int


def _is_number(value: object, limit: float = sys.float_info.max) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, int | float) and not is_bool and abs(value) <= limit  # false for NaN


class Kind(NamedTuple):
    """What some fields may hold, in words and as `accepts(value, vocab_size)`."""

    description: str
    accepts: Callable[[object, int], bool]
    names: str


def _whole_numbers(low: int, high: int, names: str) -> Kind:
    return Kind(f"a whole number from {low} to {high}", lambda value, _: _is_int(value, low, high), names)


KINDS = (
    _whole_numbers(1, MAX_BEAMS, "num_beams num_return_sequences num_beam_groups"),
    _whole_numbers(1, MAX_COUNT, "max_new_tokens max_length"),
    _whole_numbers(0, MAX_COUNT, "min_length min_new_tokens no_repeat_ngram_size encoder_no_repeat_ngram_size top_k"),
    Kind(
        "a number",
        lambda value, _: _is_number(value),
        "temperature top_p min_p top_h typical_p epsilon_cutoff eta_cutoff max_time repetition_penalty "
        "encoder_repetition_penalty guidance_scale diversity_penalty penalty_alpha",
    ),
    Kind(
        f"a number between -{MAX_EXPONENT} and {MAX_EXPONENT}",
        lambda value, _: _is_number(value, MAX_EXPONENT),
        "length_penalty",
    ),
    Kind(
        "true or false",
        lambda value, _: isinstance(value, bool),
        "do_sample use_cache forbid_unk renormalize_logits remove_invalid_values token_healing "
        "return_dict_in_generate output_scores output_logits output_attentions output_hidden_states",
    ),
    Kind(
        "an id of the vocabulary",
        lambda value, size: _is_int(value, 0, size - 1),
        "pad_token_id bos_token_id decoder_start_token_id forced_bos_token_id",
    ),
    Kind(
        "ids of the vocabulary",
        lambda value, size: all(
            _is_int(each, 0, size - 1) for each in (value if isinstance(value, list) else [value])
        ),
        "eos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens",
    ),
)


def check_generation_config(config: Mapping[str, object], path: Path, vocab_size: int = sys.maxsize) -> None:
    """Checks the types and ranges of the fields with which `generate()` searches.

    Raises:
        ValueError: a field holds something that no search can use.
    """
    for kind in KINDS:
        for name in kind.names.split():
            if (value := config.get(name)) is not None and not kind.accepts(value, vocab_size):
                raise ValueError(
                    f"{path}: {name} is {reprlib.repr(value)}: write {kind.description}, or remove the field"
                )
