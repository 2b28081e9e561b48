"""An ensemble of saved models, after a comparison of their tokenizers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from ..model.modeling_ensemble import CopyNetEnsemble
from .loading import load_model


def join_models(
    names: Sequence[str], trust_remote_code: bool = False
) -> tuple[CopyNetEnsemble, PreTrainedTokenizerBase]:
    """Loads models and joins them to an ensemble, on the CPU.

    Returns:
        The ensemble, and a tokenizer for it: the first one, or the first one with the pieces of a Transformers encoder
        if a model has such an encoder; with letters if a model reads them.

    Raises:
        ValueError: fewer than two names, a model that cannot be loaded, tokenizers that differ in their words, or what
            `CopyNetEnsemble.from_models` refuses.
    """
    if len(names) < 2:
        raise ValueError(f"--models has {len(names)} models: pass two or more")
    loaded = [load_model(name, "cpu", trust_remote_code=trust_remote_code) for name in names]
    models, tokenizers = zip(*loaded, strict=True)
    all_pieces = [getattr(each, "encoder_tokenizer", None) for each in tokenizers]
    first = next((i for i, each in enumerate(all_pieces) if each is not None), 0)
    for name, tokenizer in zip(names, tokenizers, strict=True):
        check_same_tokenizer(tokenizer, tokenizers[first], name, names[first])
    pieces = [each for each in all_pieces if each is not None]
    if limits := [each.max_length for each in pieces if each.max_length is not None]:
        pieces[0].set_max_length(min(limits))
    with_letters = next((each for each in tokenizers if _letter_vocab(each)), None)
    if with_letters is not None and not _letter_vocab(tokenizers[first]):
        tokenizers[first].set_letter_vocab(with_letters.letter_vocab, with_letters.case_variants)
    return CopyNetEnsemble.from_models(models), tokenizers[first]


def check_same_tokenizer(
    tokenizer: PreTrainedTokenizerBase, expected: PreTrainedTokenizerBase, name: str, expected_name: str
) -> None:
    """Raises ValueError unless a tokenizer gives every text the ids that the expected one gives it, but for the number
    of words or pieces to which it truncates."""
    fix = f"train the models with one tokenizer, by --tokenizer_name {expected_name}"
    found, wanted = _list_by_kind(tokenizer), _list_by_kind(expected)
    for kind in found:
        is_of_letters = kind in ("letter", "case variants setting")
        if is_of_letters and not (found[kind] and wanted[kind]):  # a model that reads none
            continue
        if len(found[kind]) != len(wanted[kind]):
            raise ValueError(f"{name} has {len(found[kind])} {kind}s, {expected_name} {len(wanted[kind])}: {fix}")
        for word, other in zip(found[kind], wanted[kind], strict=True):
            if word != other:
                raise ValueError(f"{name} has the {kind} {word!r} where {expected_name} has {other!r}: {fix}")


def _list_by_kind(tokenizer: PreTrainedTokenizerBase) -> dict[str, list[str]]:
    """What gives a text its ids: settings, and the words, features and pieces in the order of their ids."""
    lists = {
        "segmenter": [getattr(tokenizer, "segmenter", type(tokenizer).__name__)],
        "word": _sort_words(tokenizer.get_vocab()),
        "special token": [str(getattr(tokenizer, f"{name}_token")) for name in ("pad", "bos", "eos", "unk")],
        "truncation_side": [tokenizer.truncation_side],
        "split_special_tokens": [str(tokenizer.split_special_tokens)],
        "fold_whitespace": [str(getattr(tokenizer, "fold_whitespace", False))],
        "feature": _sort_words(getattr(tokenizer, "feature_vocab", {})),
        "letter": _sort_words(_letter_vocab(tokenizer)),
        "case variants setting": [str(tokenizer.case_variants)] if _letter_vocab(tokenizer) else [],
    }
    pieces = getattr(tokenizer, "encoder_tokenizer", None)
    if pieces is None:
        return lists
    parts = json.loads(pieces.backend.to_str())
    settings = {name: [json.dumps(parts[name])] for name in ("normalizer", "pre_tokenizer", "post_processor")}
    merges = [str(merge) for merge in parts["model"].get("merges", ())]
    return lists | {"piece": _sort_words(pieces.backend.get_vocab()), **settings, "merge": merges}


def _letter_vocab(tokenizer: PreTrainedTokenizerBase) -> Mapping[str, int]:
    return getattr(tokenizer, "letter_vocab", {})


def _sort_words(vocab: Mapping[str, int]) -> list[str]:
    return sorted(vocab, key=vocab.__getitem__)
