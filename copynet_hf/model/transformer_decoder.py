"""A Transformers decoder: s_t is its last state, and Eq. 4 to 8 follow as from the GRU's.

Shapes: `memory.py`, and t words before the T steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .configuration_copynet import CopyNetConfig
from .copy_distribution import copy_scores, expand_to_rows, selective_read_weights
from .decoder import Decoder
from .layers import Dropout
from .memory import DecoderState, DecoderSteps, FeatureMemory, Memory, PastWords, read_memory
from .outputs import CopyNetEncoderOutput
from .text_models import (
    CACHE_NAME,
    attend_to_some,
    build_projection,
    build_text_decoder,
    detach_embeddings,
    find_max_positions,
    find_position_offset,
    number_positions,
)

COPY_LOGIT = -12.0
"""The score of copying, relative to that of generating, with which a pretrained encoder-decoder begins: with 1,000
source positions it copies with a probability below 0.01."""


class TransformerDecoder(Decoder):
    """The layers of `config.decoder` over e(y_{t-1}) + W ζ(y_{t-1}), with cross-attention to h_j and to the source's
    features.

    All steps run at once; in a search, `PastWords` keeps what the layers computed of the words before. What is a
    function of step t − 1 is thus unknown at step t: the weights ρ of the selective read, Eq. 9, are equal over the
    positions of y_{t-1}, and there is no coverage. The layers read h_j, so the readout is s_t alone. Where the
    mechanism copies by the attention, a_t is that of `config.copy_layer` and `config.copy_head` (See et al. 2017 have
    one attention), and the context of its switch is Σ_j a_tj h_j.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.config = config
        width, mechanism = config.hidden_size, config.mechanism
        decoder_config: Any = config.decoder  # the base class of configs makes an object of a dict
        self.text_decoder = build_text_decoder(decoder_config, returns_attention=mechanism.copies_by_attention)
        self.max_words = find_max_positions(self.text_decoder)
        self.first_position = find_position_offset(self.text_decoder)
        input_width = detach_embeddings(self.text_decoder)
        self.input_proj = build_projection(config.embedding_size, input_width)
        self.read_proj = nn.Linear(config.memory_size, input_width, bias=False) if config.selective_read else None
        self.memory_proj = build_projection(config.memory_size, width)
        self.feature_proj = nn.Linear(config.embedding_size, width, bias=False) if config.feature_vocab_size else None
        self.copy_proj = None
        if mechanism.has_copy_projection:
            self.copy_proj = nn.Linear(config.memory_size, width, bias=False)  # W_c
        self.switch_proj = self.build_switch(config)
        self.copy_bias = nn.Parameter(torch.zeros(1)) if config.seq2seq and self.copy_proj is not None else None
        self.dropout = Dropout(config.dropout)

    def reset_copy_mode(self) -> None:
        """Initialises the copy mode of a pretrained encoder-decoder, so that it writes what it wrote without one: W_c
        and the switch are zero, and biases keep copying improbable, yet probable enough to be learned."""
        if self.copy_proj is not None and self.copy_bias is not None:
            nn.init.zeros_(self.copy_proj.weight)
            nn.init.constant_(self.copy_bias, COPY_LOGIT)
        if self.switch_proj is not None:
            logit = COPY_LOGIT / 2  # of all positions together
            nn.init.zeros_(self.switch_proj.weight)
            nn.init.constant_(self.switch_proj.bias, logit if self.config.copy_mechanism == "gated" else -logit)

    def build_memory(self, encoded: CopyNetEncoderOutput) -> Memory:
        """M with what the layers attend to, h_j projected to their width, and tanh(h_j W_c) of Eq. 8."""
        hidden_states, features = encoded.last_hidden_state.contiguous(), None
        if self.feature_proj is not None and encoded.features is not None and encoded.feature_mask is not None:
            contents = self.feature_proj(encoded.features)
            features = FeatureMemory(contents, contents, encoded.feature_mask)
        return Memory(
            hidden_states,
            self.memory_proj(hidden_states),
            None if self.copy_proj is None else torch.tanh(self.copy_proj(hidden_states)),
            encoded.final_state,
            encoded.source_mask,
            encoded.source_ids,
            slot_embeddings=encoded.slot_embeddings,
            features=features,
        )

    def initial_state(self, memory: Memory, rows: int) -> DecoderState:
        """No words before the first."""
        hidden = memory.hidden_states.new_zeros(rows, self.config.hidden_size)
        return DecoderState(hidden, None, None, past=PastWords())

    def run_steps(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None,
        keep: Tensor | None,
    ) -> DecoderSteps:
        """All steps at once.

        Padding before a word counts as a position in decoders such as BART's, which do not take `position_ids`.

        Raises:
            ValueError: more words than the decoder has positions.
        """
        rows, steps = embeddings.shape[:2]
        past = None if state is None else state.past
        num_words = steps if past is None else past.get_seq_length() + steps
        if self.max_words is not None and num_words > self.max_words:
            raise ValueError(
                f"the decoder is given {num_words} words, and its config has {self.max_words} positions: pass fewer, "
                "or a smaller max_new_tokens."
            )
        states, mask = self._collect_read(memory, rows)
        words = keep if past is None else past.extend_mask(keep, rows, steps)  # (R, t + T), None without padding
        returns_attention = self.text_decoder.config._attn_implementation == "eager"
        inputs = self.input_proj(embeddings)
        if self.read_proj is not None:  # ζ(y_{t-1}) with equal ρ, as of equal scores
            rho = selective_read_weights(memory.hidden_states.new_zeros(matches.shape), matches)  # (R, T, S)
            inputs = inputs + self.read_proj(read_memory(rho, memory.hidden_states))
        output = self.text_decoder(
            inputs_embeds=inputs,
            attention_mask=None if words is None else words.long(),
            encoder_hidden_states=states,
            encoder_attention_mask=mask.long(),
            **{CACHE_NAME: past},
            use_cache=past is not None,
            **number_positions(self.first_position, mask.new_ones(1, num_words) if words is None else words, steps),
            **({"output_attentions": True} if returns_attention else {}),
        )
        hidden = output.last_hidden_state  # s_t: (R, T, H)
        readout, scores = self.dropout(hidden), None
        if memory.copy_keys is not None:  # ψ_c(j) = tanh(h_j W_c)·s_t, Eq. 8
            scores = copy_scores(memory.copy_keys, readout)
            scores = scores if self.copy_bias is None else scores + self.copy_bias
        attention = self.select_attention(output.cross_attentions, memory) if returns_attention else None
        return DecoderSteps(readout, attention, DecoderState(hidden, scores, None, past=past))

    def finish_steps(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """Adds the switch, with c_t = Σ_j a_tj h_j."""
        if self.switch_proj is None:
            return steps
        assert steps.attention is not None
        parts = {"state": steps.states.hidden, "embedding": embeddings}
        if "context" in self.config.mechanism.switch:
            parts["context"] = read_memory(steps.attention, memory.hidden_states)
        return self.add_switch(steps, parts)

    def _collect_read(self, memory: Memory, rows: int) -> tuple[Tensor, Tensor]:
        """What the layers attend to, for each row: states (R, S + F, H) of words and features, and which there are."""
        assert memory.attention_keys is not None
        states, mask = memory.attention_keys, memory.mask
        if memory.features is not None:
            states = torch.cat([states, memory.features.contents], dim=1)
            mask = torch.cat([mask, memory.features.mask], dim=1)
        # contiguous, because GPT-2 reshapes what for a single source is a view of one row
        return expand_to_rows(states, rows).contiguous(), expand_to_rows(attend_to_some(mask), rows)

    def select_attention(self, attentions: tuple[Tensor, ...], memory: Memory) -> Tensor:
        """a_t (R, T, S) of the layer and head that are copied by, out of a tensor (R, heads, T, S + F) for each layer.

        What went to features is left out, and the rest scaled to sum to one.

        Raises:
            ValueError: there is no such layer or head.
        """
        layer, head = self.config.copy_layer, self.config.copy_head
        if not -1 <= layer < len(attentions):
            raise ValueError(
                f"copy_layer={layer}, and the decoder has {len(attentions)} layers: use one from 0 to "
                f"{len(attentions) - 1}, or -1 for the last."
            )
        heads = attentions[layer]
        if head is not None and not 0 <= head < heads.shape[1]:
            raise ValueError(
                f"copy_head={head}, and the decoder has {heads.shape[1]} heads: use one from 0 to "
                f"{heads.shape[1] - 1}, or None for their average."
            )
        attention = heads.mean(1) if head is None else heads[:, head]
        size = memory.mask.shape[1]
        attention = attention[..., :size] * expand_to_rows(memory.mask, attention.shape[0])[:, None]
        total = attention.sum(-1, keepdim=True)
        return attention / total.clamp(min=torch.finfo(total.dtype).tiny)
