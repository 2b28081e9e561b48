"""A pretrained encoder-decoder of Transformers with a copy head: its tokenizer's pieces are the words.

Nothing is outside the vocabulary, K = 0. Its encoder gives h_j, its decoder s_t, its output layer ψ_g; new are W_c of
ψ_c, or a switch, initialised so that next to nothing is copied (`TransformerDecoder.reset_copy_mode`).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase

from .configuration_copynet import CopyNetConfig

_TOLERANCE = 1e-3  # of logits, relative to the largest


def load_seq2seq(name: str, **options: Any) -> PreTrainedModel:
    """The encoder-decoder of a folder or Hub name, in float32 unless `options` has another dtype, for evaluation.

    Raises:
        ValueError: it is no encoder-decoder that a copy head can be added to.
    """
    model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(name, **{"dtype": torch.float32, **options}).eval()
    parts = (model.get_input_embeddings(), model.get_encoder(), model.get_decoder(), model.get_output_embeddings())
    if not isinstance(parts[-1], nn.Linear) or any(part is None or part is model for part in parts):
        raise ValueError(f"{name} is a {type(model).__name__}: use an encoder-decoder such as T5, BART or Marian")
    if parts[1].get_input_embeddings().weight is not parts[2].get_input_embeddings().weight:
        raise ValueError(
            f"{name} has other embeddings in its encoder than in its decoder: use a model that shares them"
        )
    return model


def make_config(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **fields: Any) -> CopyNetConfig:
    """The config of a CopyNet whose encoder, decoder and output layer are the model's."""
    own: Any = model.config
    head: Any = model.get_output_embeddings()
    bos, unk = tokenizer.bos_token_id, tokenizer.unk_token_id
    return CopyNetConfig(
        seq2seq=True,
        encoder=own,
        encoder_reads="words",
        decoder=own,
        vocab_size=head.out_features,
        embedding_size=own.hidden_size,
        encoder_hidden_size=own.hidden_size // 2,
        max_source_oov=0,
        tie_word_embeddings=head.weight is model.get_input_embeddings().weight,
        logits_scale=_find_scale(model),
        logits_bias=_find_bias(model) is not None,
        pad_token_id=own.pad_token_id,
        bos_token_id=getattr(own, "bos_token_id", None) if bos is None else bos,
        eos_token_id=own.eos_token_id,
        unk_token_id=own.pad_token_id if unk is None else unk,
        decoder_start_token_id=model.generation_config.decoder_start_token_id or own.decoder_start_token_id,
        **{"dropout": 0.0, **fields},  # its layers have dropout of their own
    )


@torch.no_grad()
def take_weights(model: Any, own: PreTrainedModel) -> None:
    """Gives a model of a config by `make_config` the weights and the generation config of the encoder-decoder.

    Args:
        model: a `CopyNetForConditionalGeneration`, whose module is above this one.
    """
    encoder: Any = model.get_encoder().text_encoder
    stack = own.get_encoder()
    _load(encoder if type(encoder) is type(stack) else encoder.get_encoder(), stack)  # T5's is inside another
    encoder.get_input_embeddings().weight.copy_(own.get_input_embeddings().weight)
    decoder: Any = model.model.decoder
    _load(decoder.text_decoder, own.get_decoder())
    decoder.reset_copy_mode()
    head: Any = own.get_output_embeddings()
    model.lm_head.weight.copy_(head.weight)
    if (bias := _find_bias(own)) is not None:
        model.lm_head.bias.copy_(bias)
    model.generation_config = deepcopy(own.generation_config)
    model.init_generation_config()


def _load(part: nn.Module, weights: nn.Module) -> None:
    """Copies weights by their names; embeddings of words, which one of both may lack, are left out."""
    found = part.load_state_dict(weights.state_dict(), strict=False)
    others = [name for name in (*found.missing_keys, *found.unexpected_keys) if "embed_tokens" not in name]
    assert not others, others


def _find_bias(model: PreTrainedModel) -> Tensor | None:
    """What is added to the logits (V): a buffer of BART and its kind, or the output layer's own; None: nothing."""
    bias = getattr(model, "final_logits_bias", None)
    head: Any = model.get_output_embeddings()
    return head.bias if bias is None else bias[0]


@torch.no_grad()
def _find_scale(model: PreTrainedModel) -> float:
    """What s_t is multiplied by before the output layer: d^−½ in T5, else 1.

    Raises:
        ValueError: neither gives the model's own logits.
    """
    config, head, bias = model.config, model.get_output_embeddings(), _find_bias(model)
    words = torch.arange(config.vocab_size, device=model.device)[None, -4:]
    output: Any = model(input_ids=words, decoder_input_ids=words, use_cache=False, output_hidden_states=True)
    own, state = output.logits, output.decoder_hidden_states[-1]
    for scale in (1.0, config.hidden_size**-0.5):
        logits = head(state * scale) + (0.0 if bias is None else bias)
        if torch.allclose(logits, own, rtol=0, atol=_TOLERANCE * float(own.abs().max())):
            return float(scale)
    raise ValueError(
        f"the output layer of {type(model).__name__} does more than a product: use a model such as T5, BART or Marian"
    )
