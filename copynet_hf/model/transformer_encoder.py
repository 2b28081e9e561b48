"""A Transformers encoder as the source of M = {h_j}: it reads pieces, and the states of a word's pieces become h_j, or
it reads e(x_j), and its states are h_j.

Shapes: `memory.py`, and B rows, P pieces, W width of the encoder's states.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from .configuration_copynet import CopyNetConfig
from .copy_distribution import at_least_float32
from .encoder import Positions, SourceEncoder, build_layers, embed_facts
from .outputs import CopyNetEncoderOutput, SourceInputs, check_shape
from .text_models import (
    attend_to_some,
    build_projection,
    build_text_encoder,
    detach_embeddings,
    find_max_positions,
    find_position_offset,
    number_positions,
    roll_rows,
)


def find_word_positions(word_index: Tensor, mask: Tensor) -> Tensor:
    """(B, P) the source position of each piece's word; −1 for pieces of no word.

    Args:
        word_index: (B, P) the number of each piece's word among the words of its row.
        mask: (B, S) bool, where the source has words.
    """
    rows, size = mask.shape
    places = torch.arange(size, device=mask.device).expand_as(mask)
    numbers = torch.where(mask, mask.cumsum(-1) - 1, size)  # the last column has the positions without words
    positions = word_index.new_full((rows, size + 1), -1).scatter(1, numbers, places)[:, :-1]
    positions = positions.gather(1, word_index.clamp(0, size - 1))
    return torch.where((word_index >= 0) & (word_index < size), positions, -1)


def select_question(positions: Tensor, is_fact: Tensor) -> Tensor:
    """(B, P) bool, the pieces that a question has on its own: those before its facts, with one special piece after
    its last word where some encoders have two between the texts of a pair.

    Args:
        positions: (B, P) the source position of each piece's word; −1 for pieces of no word.
        is_fact: (B, P) bool, the pieces of facts, which follow the question.
    """
    numbers = torch.arange(positions.shape[1], device=positions.device)
    last = torch.where((positions >= 0) & ~is_fact, numbers, -1).amax(-1, keepdim=True)
    has_two_texts = is_fact.any(-1, keepdim=True) & (last >= 0)
    return (is_fact.cumsum(-1) == 0) & (~has_two_texts | (numbers <= last + 1))


def count_pieces(groups: Tensor, num_groups: int) -> Tensor:
    """(B, num_groups) the number of pieces of each group; groups (B, P) as for `pool_pieces`."""
    groups = _collect_others(groups, num_groups)
    counts = groups.new_zeros(groups.shape[0], num_groups + 1)
    return counts.scatter_add(1, groups, torch.ones_like(groups))[:, :-1]


def _collect_others(groups: Tensor, num_groups: int) -> Tensor:
    """The groups, with the pieces of none in a last one, `num_groups`."""
    return torch.where((groups >= 0) & (groups < num_groups), groups, num_groups)


def pool_pieces(states: Tensor, groups: Tensor, num_groups: int, pooling: str) -> Tensor:
    """One state for each group of pieces: the mean of the pieces' states, the first, or the last.

    Args:
        states: (B, P, W).
        groups: (B, P) the group of each piece; outside 0 … num_groups − 1: none.
        pooling: "mean", "first" or "last".

    Returns:
        (B, num_groups, W), zero for a group without pieces.
    """
    rows, pieces, width = states.shape
    groups, size = _collect_others(groups, num_groups), (rows, num_groups + 1)
    if pooling == "mean":
        wide = at_least_float32(states)  # a sum may exceed float16
        sums = wide.new_zeros(*size, width).scatter_add(1, groups[..., None].expand_as(wide), wide)
        counts = count_pieces(groups, num_groups).clamp(min=1)
        return (sums[:, :-1] / counts[..., None]).to(states.dtype)
    none, reduction = (pieces, "amin") if pooling == "first" else (-1, "amax")
    numbers = torch.arange(pieces, device=groups.device).expand_as(groups)
    chosen = groups.new_full(size, none).scatter_reduce(1, groups, numbers, reduction)[:, :-1]
    has_pieces = chosen != none
    positions = (chosen * has_pieces)[..., None].expand(-1, -1, width)
    return states.gather(1, positions) * has_pieces[..., None]


def encode_text(
    encoder: PreTrainedModel,
    words: Mapping[str, Tensor],
    mask: Tensor,
    output_hidden_states: bool,
    first_position: int | None = None,
) -> tuple[Tensor, tuple[Tensor, ...] | None]:
    """The encoder's states (B, P, W) of pieces or words with the mask (B, P) bool, and those of its layers.

    Args:
        words: `input_ids` (B, P), or `inputs_embeds` (B, P, W).
        first_position: of `find_position_offset`, where words are numbered without padding. None: by the encoder.
    """
    attended = attend_to_some(mask)
    options = {"output_hidden_states": True} if output_hidden_states else {}
    positions = number_positions(first_position, attended, attended.shape[1])
    output = encoder(**words, attention_mask=attended.long(), return_dict=True, **positions, **options)
    return output.last_hidden_state, output.hidden_states if output_hidden_states else None


class PiecesOfWords(NamedTuple):
    """The pieces of sources, (B, P) each, and what the words hold that they belong to.

    mask: bool, false on pieces that are not read: padding, and those of facts.
    positions: the source position of each piece's word; −1 for pieces of no word, and those that are not read.
    """

    pieces: Tensor
    mask: Tensor
    positions: Tensor
    words: Positions


class TextEncoder(SourceEncoder):
    """What the encoders of pieces and of words share: the Transformers encoder of `config.encoder`, which can be
    frozen."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        assert isinstance(config.encoder, PreTrainedConfig)  # the base class of configs makes an object of a dict
        self.text_encoder = build_text_encoder(config.encoder)

    @property
    def is_frozen(self) -> bool:
        """Whether no weight of the Transformers encoder is trained."""
        return not any(weight.requires_grad for weight in self.text_encoder.parameters())

    def freeze(self) -> None:
        """Keeps the Transformers encoder as it is, with embeddings that a decoder shares: without gradients, and in
        training without dropout."""
        self.text_encoder.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.is_frozen:
            self.text_encoder.eval()
        return self


class CopyNetTransformerEncoder(TextEncoder):
    """The Transformers encoder of `config.encoder`, with its states pooled into words and projected to D; with
    `config.encoder_gru` to E, and their sum with e(x_j) read by GRU layers.

    A word without a piece, dropped by the encoder's tokenizer or cut off by the encoder's limit, is masked: it is
    neither attended to nor copied. Without GRU layers, the embeddings of words, e(y), are the decoder's alone; of a
    fact they are what is retrieved ("retrieval").
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        width = config.embedding_size if config.encoder_gru else config.memory_size
        self.states_proj = nn.Linear(self.text_encoder.config.hidden_size, width)
        self.layers = build_layers(config) if config.encoder_gru else nn.ModuleList()
        self.max_pieces = find_max_positions(self.text_encoder)
        self.post_init()

    def set_text_encoder(self, text_encoder: PreTrainedModel) -> None:
        """Puts another Transformers encoder in place of this one's.

        Raises:
            ValueError: its states have another width.
        """
        width, projected = text_encoder.config.hidden_size, self.states_proj.in_features
        if width != projected:
            raise ValueError(
                f"the encoder {text_encoder.config.name_or_path} has states of {width} numbers, and the model was "
                f"made for {projected}: use another encoder, or make a new model with from_encoder_pretrained"
            )
        self.config.encoder, self.text_encoder = text_encoder.config, text_encoder
        self.max_pieces = find_max_positions(text_encoder)

    def encode(self, source: SourceInputs, output_hidden_states: bool) -> CopyNetEncoderOutput:
        """See `SourceEncoder.forward`."""
        if source.inputs_embeds is not None:
            raise ValueError(
                "inputs_embeds is for models without config.encoder: pass input_ids and encoder_input_ids."
            )
        input_ids, mask = self._check_source(source.input_ids, source.attention_mask, None)
        pieces, piece_mask, positions, in_words = self._assign_pieces(mask, source)
        piece_states, hidden_states = self.encode_pieces(pieces, piece_mask, output_hidden_states)
        piece_states = piece_states.to(self.states_proj.weight.dtype)  # a frozen encoder may be in half precision
        states = pool_pieces(piece_states, positions, mask.shape[1], self.config.encoder_pooling)
        states = self.states_proj(states)
        slots, facts = self.embed_slots(source.letter_ids, input_ids), None
        if in_words.is_object is not None:
            words = self.embed_source(input_ids, slots, source.letter_ids)
            facts = embed_facts(self.dropout(words), in_words.is_object)
        if self.config.encoder_gru:
            states = self.dropout(states + self.embed_source(input_ids, slots, source.letter_ids))
            for layer in self.layers:
                states, final_state = layer(states, in_words.read)
                states = self.dropout(states)
        else:
            states = self.dropout(states) * in_words.read[..., None]
            text_state = pool_pieces(piece_states, piece_mask.long() - 1, 1, self.config.initial_state)
            final_state = self.states_proj(text_state[:, 0])
        return self._make_output(
            source,
            input_ids,
            in_words,
            states,
            final_state,
            slots=slots,
            facts=facts,
            hidden_states=hidden_states,
        )

    def find_positions(self, mask: Tensor, source: SourceInputs) -> Positions:
        """As in the base class, with the words that have no piece masked."""
        return self._assign_pieces(mask, source).words

    def _assign_pieces(self, mask: Tensor, source: SourceInputs) -> PiecesOfWords:
        """The pieces of sources with the mask (B, S) bool."""
        pieces, piece_mask, word_index = self._check_pieces(
            mask.shape[0], source.encoder_input_ids, source.encoder_attention_mask, source.word_index
        )
        positions = find_word_positions(word_index, mask)
        token_types = self._check_token_types(source.token_type_ids, mask)
        if token_types is not None:
            is_fact = token_types.gather(1, positions.clamp(min=0)).bool() & (positions >= 0)
            piece_mask = piece_mask & select_question(positions, is_fact)
        positions = torch.where(piece_mask, positions, -1)
        mask = mask & (count_pieces(positions, mask.shape[1]) > 0)
        words = self._split_facts(mask if token_types is None else mask | (token_types > 0), token_types)
        return PiecesOfWords(pieces, piece_mask, positions, words)

    def encode_pieces(
        self, pieces: Tensor, mask: Tensor, output_hidden_states: bool = False
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The encoder's states (B, P, W) of pieces (B, P) with the mask (B, P) bool, and those of its layers."""
        return encode_text(self.text_encoder, {"input_ids": pieces}, mask, output_hidden_states)

    def _check_pieces(
        self, rows: int, pieces: Tensor | None, piece_mask: Tensor | None, word_index: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Pieces, their mask (B, P) bool, and the word of each; at least one position."""
        if pieces is None or piece_mask is None or word_index is None:
            raise ValueError(
                "encoder_input_ids, encoder_attention_mask or word_index is missing: pass all three, as a tokenizer "
                "with encoder_tokenizer returns them."
            )
        for name, tensor in (("encoder_attention_mask", piece_mask), ("word_index", word_index)):
            if tensor.shape != pieces.shape or pieces.shape[0] != rows:  # len() would fix the size in an export
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}, encoder_input_ids {tuple(pieces.shape)} for {rows} "
                    "sources: pass all of them as the tokenizer returned them."
                )
        if self.max_pieces is not None and pieces.shape[1] > self.max_pieces:
            raise ValueError(
                f"encoder_input_ids has {pieces.shape[1]} pieces, and the encoder has {self.max_pieces} positions: "
                f"create the tokenizer with encoder_max_length={self.max_pieces}."
            )
        if pieces.shape[1] == 0:  # empty sources: one position of padding
            pieces, piece_mask, word_index = (
                nn.functional.pad(each, (0, 1)) for each in (pieces, piece_mask, word_index)
            )
        return pieces, piece_mask.bool(), word_index.long()


class WordEncoder(TextEncoder):
    """The Transformers encoder of `config.encoder` with `encoder_reads="words"`.

    Every word is one piece, and its embedding that of the decoder's words, so that no second tokenizer is needed. A
    question's facts are not read, as by the other encoders: their embeddings are what is retrieved. With
    `config.seq2seq`, the encoder and the embeddings are those of a pretrained encoder-decoder.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        if config.seq2seq:
            del self.embed_tokens  # the encoder's own are those of all words
        else:
            self.input_proj = build_projection(config.embedding_size, detach_embeddings(self.text_encoder))
        self.states_proj = build_projection(self.text_encoder.config.hidden_size, config.memory_size)
        self.max_words = find_max_positions(self.text_encoder)
        self.first_position = find_position_offset(self.text_encoder)
        # Left padding would be counted in the words' positions. A pretrained encoder-decoder counts it as before.
        self.moves_padding = self.first_position is None and not config.seq2seq
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.text_encoder.get_input_embeddings() if self.config.seq2seq else self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        if self.config.seq2seq:
            self.text_encoder.set_input_embeddings(value)
        else:
            super().set_input_embeddings(value)

    def name_embeddings(self) -> str:
        """The name of the module that `get_input_embeddings` returns."""
        embeddings = self.get_input_embeddings()
        return next(name for name, module in self.named_modules() if module is embeddings)

    def encode(self, source: SourceInputs, output_hidden_states: bool) -> CopyNetEncoderOutput:
        """See `SourceEncoder.forward`."""
        config = self.config
        input_ids, mask = self._check_source(source.input_ids, source.attention_mask, source.inputs_embeds)
        slots = self.embed_slots(source.letter_ids, input_ids)
        embeddings = source.inputs_embeds
        if embeddings is None:
            embeddings = self.embed_source(input_ids, slots, source.letter_ids)
        check_shape("inputs_embeds", embeddings, (*input_ids.shape, config.embedding_size))
        embeddings = self.dropout(embeddings)
        positions = self.find_positions(mask, source)
        mask = positions.read
        if self.max_words is not None and mask.shape[1] > self.max_words:
            raise ValueError(
                f"the source has {mask.shape[1]} words, and the encoder's config has {self.max_words} positions: pass "
                "shorter sources, or a smaller max_source_length."
            )
        if config.seq2seq:  # some encoders scale the embeddings of ids
            words = {"input_ids": input_ids} if source.inputs_embeds is None else {"inputs_embeds": embeddings}
        else:
            words = {"inputs_embeds": self.input_proj(embeddings)}
        own_states, hidden_states = self._encode_words(words, mask, output_hidden_states)
        text_state = pool_pieces(own_states, mask.long() - 1, 1, config.initial_state)
        return self._make_output(
            source,
            input_ids,
            positions,
            self.dropout(self.states_proj(own_states)) * mask[..., None],
            self.states_proj(text_state[:, 0]),
            slots=slots,
            facts=embed_facts(embeddings, positions.is_object),
            hidden_states=hidden_states,
        )

    def _encode_words(
        self, words: Mapping[str, Tensor], mask: Tensor, output_hidden_states: bool
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The encoder's states (B, S, W) of words with the mask (B, S) bool, and those of its layers. With
        `moves_padding`, it reads the words of each row first, and padding on either side gives the same states."""
        encode = partial(encode_text, self.text_encoder)
        if not self.moves_padding:
            return encode(words, mask, output_hidden_states, self.first_position)
        shifts = (mask.cumsum(-1) == 0).sum(-1)  # the padding on the left
        moved = {name: roll_rows(values, shifts) for name, values in words.items()}
        states, layers = encode(moved, roll_rows(mask, shifts), output_hidden_states)
        if layers is not None:  # Funnel's pooled ones have fewer positions
            size = mask.shape[1]
            layers = tuple(roll_rows(layer, -shifts) if layer.shape[1] == size else layer for layer in layers)
        return roll_rows(states, -shifts), layers
