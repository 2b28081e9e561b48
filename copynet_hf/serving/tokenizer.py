"""The tokenizer of an exported model; `CopyNetTokenizer` without Transformers, in plain Python and NumPy over its
saved files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model.segmentation import get_segmenter
from ..model.source import ExtendedVocabulary, pad_rows
from ..model.vocabularies import BOUNDARY, NO_FEATURE, check_vocab, find_case_variants, number_entries
from ..saved.checks import read_export

CONFIG_FILE, VOCAB_FILE, PIECES_FILE = "tokenizer_config.json", "vocab.json", "encoder_tokenizer.json"
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

Arrays = dict[str, NDArray[np.int64]]


def load_exported_tokenizer(folder: str | Path) -> Any:
    """The tokenizer of an exported model: a `PlainTokenizer`, or where the model reads pieces for a Transformers
    encoder, or has a tokenizer of its own, that of Transformers.

    Raises:
        ModuleNotFoundError: Transformers is needed, and not installed.
        ValueError: a file is missing or damaged.
    """
    folder = Path(folder)
    config = read_export(folder / CONFIG_FILE)
    if _find_transformers_part(config, folder) is None:
        return PlainTokenizer.from_pretrained(folder)
    if find_spec("torch") is None:
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that there is none
    from transformers import AutoTokenizer, PreTrainedConfig

    from ..model.tokenization_copynet import CopyNetTokenizer

    try:
        if config.get("tokenizer_class") == "CopyNetTokenizer":
            return CopyNetTokenizer.from_pretrained(folder)
        # With the config of a CopyNet, it would ask whether to run the code of the folder.
        return AutoTokenizer.from_pretrained(folder, config=PreTrainedConfig(), trust_remote_code=False)
    except (OSError, ImportError):  # their messages name the file or the package
        raise
    except Exception as error:  # a file whose JSON is valid can make Transformers raise anything
        raise ValueError(f"the tokenizer of {folder} cannot be loaded ({error}): export the model again") from error


def _find_transformers_part(config: Mapping[str, Any], folder: Path | None = None) -> str | None:
    """What of a saved tokenizer needs Transformers: another class, texts with special tokens, pieces of an encoder."""
    if config.get("tokenizer_class") != "CopyNetTokenizer":
        return f"tokenizer_class is {config.get('tokenizer_class')!r}"
    if not config.get("split_special_tokens", True):
        return "split_special_tokens is False"
    has_pieces = folder is not None and (folder / PIECES_FILE).exists()
    return f"{PIECES_FILE} has pieces of a Transformers encoder" if has_pieces else None


def _check_plain(config: Mapping[str, Any], folder: Path | None = None) -> None:
    if part := _find_transformers_part(config, folder):
        where = "" if folder is None else f"{folder}: "
        raise ValueError(f"{where}{part}: load the tokenizer with AutoTokenizer, which needs Transformers")


class PlainTokenizer(ExtendedVocabulary):
    """Encodes sources as `CopyNetTokenizer` does: the same ids, slots, truncation, padding and features.

    `copynet_hf.model.prediction.predict` takes it in place of a tokenizer of Transformers. There are no targets, which
    only training needs.

    Args:
        config: the contents of tokenizer_config.json.
        vocab: those of vocab.json, the id of each word.

    Raises:
        ValueError: the tokenizer needs Transformers, or a field has a value that CopyNetTokenizer does not accept.
    """

    def __init__(self, config: Mapping[str, Any], vocab: Mapping[str, int]) -> None:
        _check_plain(config)
        self.split_special_tokens = True
        self.segmenter = config["segmenter"]
        get_segmenter(self.segmenter)
        self.max_source_oov = int(config["max_source_oov"])
        self.model_max_length = int(config["model_max_length"])
        self.padding_side, self.truncation_side = config["padding_side"], config["truncation_side"]
        self.feature_vocab = number_entries("feature", config.get("feature_vocab") or ())
        self.letter_vocab = number_entries("letter", config.get("letter_vocab") or ())
        added = {_text(token): int(index) for index, token in config.get("added_tokens_decoder", {}).items()}
        named = {name: _text(config[name]) for name in _NAMED_TOKENS if config.get(name) is not None}
        extra = [_text(token) for token in config.get("extra_special_tokens") or ()]
        self._ids = {**check_vocab(vocab, list(named.values()), set(added)), **added}
        self._words = {index: word for word, index in self._ids.items()}
        self.all_special_tokens = list(dict.fromkeys([*named.values(), *extra]))
        self.fold_whitespace = bool(config.get("fold_whitespace", False))
        has_variants = config.get("case_variants", False)
        self._case_variants = find_case_variants(self._ids, self.all_special_tokens) if has_variants else {}
        self.all_special_ids = [self._ids[token] for token in self.all_special_tokens]
        self.unk_token = named["unk_token"]
        self.pad_token_id, self.bos_token_id, self.eos_token_id, self.unk_token_id = (
            self._ids[named[f"{name}_token"]] for name in ("pad", "bos", "eos", "unk")
        )

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> PlainTokenizer:
        """Loads the tokenizer from a folder that `CopyNetTokenizer.save_pretrained` or `copynet-hf export` wrote.

        Raises:
            ValueError: a file is missing or damaged, or the tokenizer needs Transformers.
        """
        folder = Path(folder)
        config = read_export(folder / CONFIG_FILE)
        _check_plain(config, folder)
        vocab = read_export(folder / VOCAB_FILE)
        try:
            return cls(config, vocab)  # type: ignore[arg-type]  # whose values `check_vocab` checks
        except KeyError as error:
            raise ValueError(f"{folder / CONFIG_FILE} has no field {error}: save the tokenizer again") from None
        except (TypeError, AttributeError) as error:  # a field of another type
            raise ValueError(f"{folder / CONFIG_FILE} is damaged ({error}): save the tokenizer again") from None

    def __len__(self) -> int:
        """The number of words; the first slot."""
        return len(self._ids)

    def convert_ids_to_tokens(self, index: int) -> str:
        """The word of an id below `len(self)`."""
        return self._words.get(index, self.unk_token)

    def pad(self, fields: Mapping[str, Sequence[Sequence[int]]], return_tensors: str = "np") -> Arrays:
        """Pads what `stack_sources` returned to one length.

        Returns:
            `input_ids` and `attention_mask`, (batch, source length), with facts `token_type_ids`, with features
            `feature_ids`, (batch, features), with letters `letter_ids`, (batch, letters), all int64.
        """
        rows = {**fields, "attention_mask": [[1] * len(row) for row in fields["input_ids"]]}
        padding = {"input_ids": self.pad_token_id, "attention_mask": 0, "token_type_ids": 0}
        padded = {name: pad_rows(rows[name], padding[name], 0, self.padding_side) for name in padding.keys() & rows}
        for name, value in {"feature_ids": NO_FEATURE, "letter_ids": BOUNDARY}.items():
            if name in rows:
                padded[name] = pad_rows(rows[name], value, 1)
        return {name: np.array(each, np.int64) for name, each in padded.items()}


def _text(token: object) -> str:
    """A special token as saved: its text, or an object with its "content"."""
    return str(token["content"] if isinstance(token, Mapping) else token)
