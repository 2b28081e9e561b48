"""A Transformers encoder over words: it reads e(x_j), and its states are h_j.

Shapes: B rows, S source positions, E embedding_size, D = 2 · encoder_hidden_size.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import PreTrainedConfig

from .configuration_copynet import CopyNetConfig
from .encoder import SourceEncoder, check_shape, embed_facts
from .outputs import CopyNetEncoderOutput, SourceInputs
from .text_models import (
    attend_to_some,
    build_projection,
    build_text_encoder,
    detach_embeddings,
    find_first_position,
    find_max_pieces,
    number_positions,
)
from .transformer_encoder import pool_pieces


class WordEncoder(SourceEncoder):
    """The Transformers encoder of `config.encoder` with `encoder_reads="words"`.

    Every word is one piece, and its embedding that of the decoder's words, so that no second tokenizer is needed. A
    question's facts are not read, as by the other encoders: their embeddings are what is retrieved. With
    `config.seq2seq`, the encoder and the embeddings are those of a pretrained encoder-decoder.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        assert isinstance(config.encoder, PreTrainedConfig)  # the base class of configs makes an object of a dict
        self.text_encoder = build_text_encoder(config.encoder)
        if config.seq2seq:
            del self.embed_tokens  # the encoder's own are those of all words
        else:
            self.input_proj = build_projection(config.embedding_size, detach_embeddings(self.text_encoder))
        self.states_proj = build_projection(config.encoder.hidden_size, config.memory_size)
        self.max_words = find_max_pieces(self.text_encoder)
        self.first_position = find_first_position(self.text_encoder)
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
        embeddings = self.embed(input_ids, slots) if source.inputs_embeds is None else source.inputs_embeds
        check_shape("inputs_embeds", embeddings, (*input_ids.shape, config.embedding_size))
        embeddings = self.dropout(embeddings)
        positions = self.split_facts(mask, self._check_token_types(source.token_type_ids, mask))
        mask = positions.read
        if config.seq2seq:  # some encoders scale the embeddings of ids
            words = {"input_ids": input_ids} if source.inputs_embeds is None else {"inputs_embeds": embeddings}
        else:
            words = {"inputs_embeds": self.input_proj(embeddings)}
        own_states, hidden_states = self.encode_words(words, mask, output_hidden_states)
        text_state, _ = pool_pieces(own_states, mask.long() - 1, 1, config.initial_state)
        return self._make_output(
            source,
            input_ids,
            positions,
            self.dropout(self.states_proj(own_states)) * mask[..., None],
            self.states_proj(text_state[:, 0]),
            slots=self.feed_back(slots, source.letter_ids, input_ids),
            facts=embed_facts(embeddings, positions.is_object),
            hidden_states=hidden_states,
        )

    def encode_words(
        self, words: dict[str, Tensor], mask: Tensor, output_hidden_states: bool
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The encoder's states (B, S, W) of words with the mask (B, S) bool, and those of its layers.

        Args:
            words: `inputs_embeds` (B, S, W) or `input_ids` (B, S).

        Raises:
            ValueError: more words than the encoder has positions.
        """
        if self.max_words is not None and mask.shape[1] > self.max_words:
            raise ValueError(
                f"the source has {mask.shape[1]} words, and the encoder's config has {self.max_words} positions: pass "
                "shorter sources, or a smaller max_source_length."
            )
        attended = attend_to_some(mask)
        options: dict[str, object] = {"output_hidden_states": True} if output_hidden_states else {}
        output = self.text_encoder(
            **words,
            attention_mask=attended.long(),
            return_dict=True,
            **number_positions(self.first_position, attended, attended.shape[1]),
            **options,
        )
        return output.last_hidden_state, output.hidden_states if output_hidden_states else None
