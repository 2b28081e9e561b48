"""Checks a saved generation config, whose values `generate()` would use without a check of their types."""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ..arguments import MAX_EXPONENT

MAX_COUNT, MAX_BEAMS = 10**6, 10**4


class _Kind(NamedTuple):
    """What fields of one kind may hold: `accepts(value, vocab_size)`, and the same in words."""

    accepts: Callable[[object, int], bool]
    description: str


def _is_whole_number(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high  # True and False are instances of int


def _is_number(value: object, limit: float = math.inf) -> bool:
    is_bool = isinstance(value, bool)
    return isinstance(value, int | float) and not is_bool and math.isfinite(value) and abs(value) <= limit


def _is_id(value: object, vocab_size: int) -> bool:
    return _is_whole_number(value, 0, vocab_size - 1)


def _are_ids(value: object, vocab_size: int) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_id(each, vocab_size) for each in value)


def _are_texts(value: object, vocab_size: int) -> bool:
    return all(isinstance(text, str) and text for text in (value if isinstance(value, list) else [value]))


def _is_decay(value: object, vocab_size: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and _is_whole_number(value[0], 0, MAX_COUNT)
        and _is_number(value[1])
    )


def _are_biases(value: object, vocab_size: int) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, list) and len(entry) == 2 and _are_ids(entry[0], vocab_size) and _is_number(entry[1])
        for entry in value
    )


_COUNT = _Kind(lambda value, _: _is_whole_number(value, 1, MAX_COUNT), f"a whole number from 1 to {MAX_COUNT}")
_BEAMS = _Kind(lambda value, _: _is_whole_number(value, 1, MAX_BEAMS), f"a whole number from 1 to {MAX_BEAMS}")
_COUNT_OR_0 = _Kind(lambda value, _: _is_whole_number(value, 0, MAX_COUNT), f"a whole number from 0 to {MAX_COUNT}")
_NUMBER = _Kind(lambda value, _: _is_number(value), "a number")
_EXPONENT = _Kind(
    lambda value, _: _is_number(value, MAX_EXPONENT), f"a number between -{MAX_EXPONENT} and {MAX_EXPONENT}"
)
_BOOL = _Kind(lambda value, _: isinstance(value, bool), "true or false")
_ID = _Kind(_is_id, "an id of the vocabulary")
_IDS = _Kind(_are_ids, "a list of ids of the vocabulary")
_ID_OR_IDS = _Kind(lambda value, size: _is_id(value, size) or _are_ids(value, size), "ids of the vocabulary")

KINDS: dict[_Kind, tuple[str, ...]] = {
    _BEAMS: ("num_beams", "num_return_sequences", "num_beam_groups"),
    _COUNT: ("max_new_tokens", "max_length"),
    _COUNT_OR_0: (
        "min_length",
        "min_new_tokens",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "top_k",
    ),
    _NUMBER: (
        *("temperature", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"),
        *("repetition_penalty", "encoder_repetition_penalty", "guidance_scale", "diversity_penalty", "penalty_alpha"),
        "max_time",
    ),
    _EXPONENT: ("length_penalty",),
    _BOOL: (
        *("do_sample", "use_cache", "forbid_unk", "renormalize_logits", "remove_invalid_values", "token_healing"),
        *("return_dict_in_generate", "output_scores", "output_logits", "output_attentions", "output_hidden_states"),
    ),
    _ID: ("pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id"),
    _ID_OR_IDS: ("eos_token_id", "forced_eos_token_id"),
    _IDS: ("suppress_tokens", "begin_suppress_tokens"),
    _Kind(_are_texts, "a text or a list of texts"): ("stop_strings",),
    _Kind(_is_decay, "a list of a whole number and a factor"): ("exponential_decay_length_penalty",),
    _Kind(_are_biases, "a list of pairs of a list of ids and a number"): ("sequence_bias",),
    _Kind(lambda value, _: value is False, "false"): ("is_assistant",),
    _Kind(lambda value, _: False, "null"): ("prompt_lookup_num_tokens", "prefill_chunk_size"),
}

_KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def check_generation_config(config: Mapping[str, object], path: Path, vocab_size: int = sys.maxsize) -> None:
    """Checks the types and ranges of the fields with which `generate()` searches.

    Args:
        config: the fields.
        path: their file, for the message.

    Raises:
        ValueError: a field holds something that no search can use.
    """
    for name, kind in _KIND_OF.items():
        if (value := config.get(name)) is not None and not kind.accepts(value, vocab_size):
            raise ValueError(f"{path}: {name} is {reprlib.repr(value)}: write {kind.description}, or remove the field")
