"""What the models read and return, and checks of it.

Shapes: `copy_distribution.py` and `memory.py`, and W words that own slots.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_outputs import Seq2SeqLMOutput, Seq2SeqModelOutput
from transformers.utils import ModelOutput

from .copy_distribution import has_values


class SourceInputs(NamedTuple):
    """What an encoder may read of B sources; `SourceEncoder.forward` describes the fields."""

    input_ids: Tensor | None = None
    attention_mask: Tensor | None = None
    inputs_embeds: Tensor | None = None
    input_features: Tensor | None = None
    token_type_ids: Tensor | None = None
    feature_ids: Tensor | None = None
    letter_ids: Tensor | None = None
    encoder_input_ids: Tensor | None = None
    encoder_attention_mask: Tensor | None = None
    word_index: Tensor | None = None


@dataclass
class CopyNetEncoderOutput(ModelOutput):
    """The encoded source: all that the decoder and `generate()` need of it.

    last_hidden_state: (B, S, D) h_j, with the sum of the source's features; zero on padding.
    final_state: (B, D) what s_0 is computed from: both directions' last states, or the text's state by
        `config.initial_state`.
    source_ids: (B, S) extended ids x_j, those beyond the last slot made UNK.
    source_mask: (B, S) bool, what can be copied: false on padding, and in a fact true only on its object.
    facts: (B, S, 3E) f_j at the position of each fact's object, zero elsewhere; is_object, is_question: (B, S) bool.
    slot_embeddings: (B, W, E) e(y) of the words that own the first W slots, if it is not UNK's: composed of their
        letters, or of a source that is not words the projected points, of which position j owns slot j.
    features: (B, F, E) e(f_k) of the source's features; feature_mask: (B, F) bool, false on padding and unknown
        features.
    hidden_states: embeddings (B, S, E), then each layer's states (B, S, D), before features are added; with
        `output_hidden_states`. Of a Transformers encoder, its own states of the pieces or words that it reads.
    """

    # The base class requires a default for every field; the encoder always sets the first four.

    last_hidden_state: Tensor = None  # type: ignore[assignment]
    final_state: Tensor = None  # type: ignore[assignment]
    source_ids: Tensor = None  # type: ignore[assignment]
    source_mask: Tensor = None  # type: ignore[assignment]
    hidden_states: tuple[Tensor, ...] | None = None
    slot_embeddings: Tensor | None = None
    facts: Tensor | None = None
    is_object: Tensor | None = None
    is_question: Tensor | None = None
    features: Tensor | None = None
    feature_mask: Tensor | None = None

    @property
    def is_empty(self) -> Tensor:
        """(B,) bool: whether a source has no words, neither to copy nor to read alone (`config.copies_from`)."""
        masks = [mask for mask in (self.source_mask, self.is_question, self.is_object) if mask is not None]
        return ~torch.stack(masks).any(0).any(-1)


class _FastAssignment:
    """Makes a `ModelOutput` cheap to create: the library lists all fields anew at each assignment, and a search makes
    two outputs for each word."""

    def __post_init__(self) -> None:
        if isinstance(next(iter(self.__dict__.values())), dict):  # all fields as one dict, as accelerate passes them
            super().__post_init__()  # type: ignore[misc]

    def __setattr__(self, name: str, value: object) -> None:
        if value is not None and name in self.__dataclass_fields__:  # type: ignore[attr-defined]
            OrderedDict.__setitem__(self, name, value)  # type: ignore[index]
        object.__setattr__(self, name, value)


@dataclass
class CopyNetEnsembleEncoderOutput(ModelOutput):
    """The source as each member of an ensemble encoded it, D_m wide by member m.

    last_hidden_state: (B, S, Σ D_m) the members' h_j side by side.
    source_ids: (B, S) extended ids x_j, those beyond the last slot made UNK.
    source_mask: (B, S) bool, what at least one member can copy.
    members: the output of each member's encoder.
    hidden_states: those of all members, one member after another; with `output_hidden_states`.
    """

    last_hidden_state: Tensor = None  # type: ignore[assignment]
    source_ids: Tensor = None  # type: ignore[assignment]
    source_mask: Tensor = None  # type: ignore[assignment]
    members: tuple[CopyNetEncoderOutput, ...] = None  # type: ignore[assignment]
    hidden_states: tuple[Tensor, ...] | None = None

    @property
    def is_empty(self) -> Tensor:
        """(B,) bool: whether a source has no words for any member."""
        return torch.stack([member.is_empty for member in self.members]).all(0)


@dataclass
class CopyNetModelOutput(_FastAssignment, Seq2SeqModelOutput):
    """`Seq2SeqModelOutput` with `last_hidden_state` (B, T, H) the readout r_t, and

    copy_scores: (B, T, S) ψ_c, Eq. 8; None where the mechanism has none.
    switch: (B, T) the logit of p_gen or λ; None where the mechanism has none.
    end_scores: (B, T) u of a Pointer Network's end symbol; None for others.
    source_ids: (N, S), the encoder's, of the N sources that B / N rows each decode from.
    source_mask: (N, S) int64, 1 where a position can be copied, as in an `attention_mask`.
    """

    copy_scores: Tensor | None = None
    switch: Tensor | None = None
    end_scores: Tensor | None = None
    source_ids: Tensor = None  # type: ignore[assignment]
    source_mask: Tensor = None  # type: ignore[assignment]


@dataclass
class CopyNetSeq2SeqLMOutput(_FastAssignment, Seq2SeqLMOutput):
    """`Seq2SeqLMOutput` with `logits` (B, T, V + K), which are log p(y), and

    copy_probs: (B, T, S) probability of copying from each source position; None if the mechanism does not copy.
    copy_mass: (B, T) probability of copying, the sum of `copy_probs`.
    """

    copy_probs: Tensor | None = None
    copy_mass: Tensor | None = None


def check_not_negative(name: str, ids: Tensor) -> None:
    """Raises ValueError for an id below 0, which would crash the embedding's kernel."""
    if has_values(ids) and ids.numel() and int(ids.min()) < 0:
        raise ValueError(
            f"{name} holds {int(ids.min())}, and ids start at 0: pad with pad_token_id (only labels may hold -100, "
            "where there is no target)."
        )


def check_no_slots(input_ids: Tensor, vocab_size: int) -> None:
    """Raises ValueError for out-of-vocabulary words, which a model with letters cannot read without `letter_ids`."""
    if has_values(input_ids) and input_ids.numel() and int(input_ids.max()) >= vocab_size:
        raise ValueError(
            f"letter_ids are missing, and input_ids holds {int(input_ids.max())}, an out-of-vocabulary word, which "
            "this model reads by its letters: pass all that the tokenizer returns, as in model.generate(**batch)."
        )


def check_shape(name: str, embeddings: Tensor, shape: tuple[int, ...]) -> None:
    """Raises ValueError for embeddings of another shape than (rows, words, embedding_size)."""
    if embeddings.shape != shape:
        raise ValueError(
            f"{name} has shape {tuple(embeddings.shape)}, the ids and embedding_size require {tuple(shape)}: pass one "
            "embedding for each id."
        )


def value_or_default(value: bool | None, config: PreTrainedConfig, name: str) -> bool:
    """An argument of a call, or the config's field of that name where the argument is None."""
    return bool(getattr(config, name) if value is None else value)
