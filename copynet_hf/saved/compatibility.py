"""Whether a tokenizer belongs to a model."""

from __future__ import annotations

from typing import Any


def check_tokenizer(config: Any, tokenizer: Any) -> None:
    """Checks that model and tokenizer agree on the vocabulary size, the number of slots, the special tokens and the
    pieces of a Transformers encoder.

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
            "use the same number for both"
        )
    features = getattr(tokenizer, "feature_vocab_size", 0)
    if features != getattr(config, "feature_vocab_size", 0):
        raise ValueError(
            f"the tokenizer has feature_vocab_size={features}, the model feature_vocab_size="
            f"{config.feature_vocab_size}: {fix}"
        )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id"):
        in_tokenizer, in_model = getattr(tokenizer, name, None), getattr(config, name, None)
        accepted = in_model if isinstance(in_model, list) else [in_model]
        if in_tokenizer is not None and in_tokenizer not in accepted:
            raise ValueError(f"{name} is {in_tokenizer} for the tokenizer and {in_model} for the model: {fix}")
    pieces, encoder = getattr(tokenizer, "encoder_tokenizer", None), getattr(config, "encoder", None)
    if encoder is not None and (pieces is None or len(pieces) > encoder.vocab_size):
        has = "no encoder_tokenizer" if pieces is None else f"{len(pieces)} pieces"
        raise ValueError(f"the tokenizer has {has}, the model's encoder {encoder.vocab_size} pieces: {fix}")
