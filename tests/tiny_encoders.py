"""Random Transformers encoders of every family, saved with a tokenizer that is trained on the spot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from helpers import byte_level_tokenizer, save_parts
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AutoModel,
    BertConfig,
    BertTokenizer,
    BigBirdConfig,
    DebertaV2Config,
    DebertaV2Tokenizer,
    DistilBertConfig,
    ElectraConfig,
    Gemma3TextConfig,
    GemmaTokenizer,
    ModernBertConfig,
    MT5Config,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaTokenizer,
    T5Config,
    T5Tokenizer,
    UMT5Config,
    XLMRobertaConfig,
    XLMRobertaTokenizer,
)

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer

TEXTS = [
    "please send budget_2031.xlsx to Ottilie Krahn before 14:35",
    "call Benedikta",
    "the museum of unbelievable instruments opens tomorrow at nine",
    "today",
]
SUMMARIES = ["sent budget_2031.xlsx to Ottilie Krahn", "called Benedikta", "opens at nine tomorrow", "today"]
CORPUS = [
    *TEXTS,
    *SUMMARIES,
    "hello, world (again)!",
    "今天北京下雨了",
    "東京へ行きます",
    "an instrument opened the unbelief",
]
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24}


@cache
def _wordpiece() -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=special))
    return tokenizer.get_vocab()


@cache
def _byte_level(special: tuple[str, ...]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")
    tokenizer = byte_level_tokenizer(CORPUS, 320, **dict(zip(names, special, strict=True))).backend_tokenizer
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


@cache
def _unigram(special: tuple[str, ...], unk: str = "<unk>") -> list[tuple[str, float]]:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=list(special), unk_token=unk)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return [tuple(piece) for piece in json.loads(tokenizer.to_str())["model"]["vocab"]]


def _bert(**limit: int) -> Any:
    return BertTokenizer(vocab=_wordpiece(), do_lower_case=False, **limit)


def _roberta(**limit: int) -> Any:
    vocab, merges = _byte_level(("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    return RobertaTokenizer(vocab=vocab, merges=merges, **limit)


def _modernbert(**limit: int) -> Any:
    """As on the Hub: a tokenizer without a class of its own."""
    backend = _roberta().backend_tokenizer
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names, **limit)


def _xlm_roberta(**limit: int) -> Any:
    return XLMRobertaTokenizer(vocab=_unigram(("<s>", "<pad>", "</s>", "<unk>")), **limit)


def _t5(**limit: int) -> Any:
    return T5Tokenizer(vocab=_unigram(("<pad>", "</s>", "<unk>")), extra_ids=0, **limit)


def _deberta(**limit: int) -> Any:
    vocab = _unigram(("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"), "[UNK]")
    return DebertaV2Tokenizer(vocab=vocab, **limit)


@cache
def _marked() -> tuple[dict[str, int], list[tuple[str, str]]]:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=160, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.train_from_iterator([word for text in CORPUS for word in re.findall(r" ?\w+| ?[^\w\s]", text)], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def _gemma(**limit: int) -> Any:
    vocab, merges = _marked()
    return GemmaTokenizer(vocab=vocab, merges=merges, **limit)


BIGBIRD = {"block_size": 2, "num_random_blocks": 1}  # attends to all pieces of up to 14
GEMMA_SIZES = SIZES | {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 8}
T5_SIZES = {"num_layers": 2, "num_heads": 2, "d_model": 16, "d_kv": 8, "d_ff": 24}
DISTILBERT_SIZES = {"n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 24}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
MODERNBERT = {"local_attention": 8, "global_attn_every_n_layers": 2, "bos_token_id": 0, "eos_token_id": 2}
FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]] = {
    "bert": (_bert, BertConfig, SIZES | {"max_position_embeddings": 64}),
    "roberta": (_roberta, RobertaConfig, SIZES | {"max_position_embeddings": 66, "pad_token_id": 1}),
    "distilbert": (_bert, DistilBertConfig, DISTILBERT_SIZES | {"max_position_embeddings": 64}),
    "electra": (_bert, ElectraConfig, SIZES | {"embedding_size": 12, "max_position_embeddings": 64}),
    "deberta-v2": (_deberta, DebertaV2Config, SIZES | DEBERTA | {"max_position_embeddings": 64}),
    "modernbert": (_modernbert, ModernBertConfig, SIZES | MODERNBERT | {"pad_token_id": 1}),
    "big-bird": (_xlm_roberta, BigBirdConfig, SIZES | BIGBIRD | {"max_position_embeddings": 64, "pad_token_id": 1}),
    "xlm-roberta": (_xlm_roberta, XLMRobertaConfig, SIZES | {"max_position_embeddings": 66, "pad_token_id": 1}),
    "t5": (_t5, T5Config, T5_SIZES),
    "mt5": (_t5, MT5Config, T5_SIZES),
    "umt5": (_t5, UMT5Config, T5_SIZES),
    "gemma": (_gemma, Gemma3TextConfig, GEMMA_SIZES | {"pad_token_id": 0}),
}


def save_encoder(folder: Path, family: str = "bert", **changes: Any) -> str:
    """Saves a random encoder, with every head and pooler of its base model, and its tokenizer; returns the folder."""
    make_tokenizer, config_class, sizes = FAMILIES[family]
    tokenizer = make_tokenizer(model_max_length=64)
    torch.manual_seed(0)
    model = AutoModel.from_config(config_class(vocab_size=len(tokenizer), **sizes | changes))
    with torch.no_grad():
        for parameter in model.parameters():  # larger than by default, so that no mistake is small
            parameter.mul_(3.0)
    return str(save_parts(folder, model, tokenizer))


def word_tokenizer(encoder: Any, segmenter: str = "whitespace", texts: list[str] = SUMMARIES, **kwargs: Any):
    """A tokenizer of words in `texts`, with the encoder's."""
    options = {"segmenter": segmenter, "encoder_tokenizer": encoder, "max_source_oov": 12} | kwargs
    return CopyNetTokenizer.train_from_iterator(texts, 40, **options)


SMALL = {"hidden_size": 14, "embedding_size": 6, "attention_size": 10, "dropout": 0.0}


def copynet_over(name: str, tokenizer: CopyNetTokenizer, **fields: Any) -> CopyNetForConditionalGeneration:
    """A random CopyNet over a saved encoder, with weights large enough for sharp distributions."""
    torch.manual_seed(1)
    model = CopyNetForConditionalGeneration.from_encoder_pretrained(name, tokenizer=tokenizer, **SMALL | fields)
    with torch.no_grad():
        for part in (model.model.decoder, model.model.encoder.states_proj):
            for parameter in part.parameters():
                parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
    return model


def batch_of(tokenizer: CopyNetTokenizer, **kwargs: Any) -> Any:
    """The texts and summaries as one batch of tensors."""
    return tokenizer(TEXTS, text_target=SUMMARIES, padding=True, return_tensors="pt", **kwargs)
