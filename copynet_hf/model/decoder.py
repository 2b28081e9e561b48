"""The decoder with its selective read, as the paper writes it.

Letters: `copy_distribution.py`; shapes: `memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_copynet import CopyNetConfig
from .copy_distribution import at_least_float32, copy_scores, expand_to_rows, selective_read_weights
from .layers import CopyNetAttention, Dropout, FeatureProjection, join_parts, part_widths
from .memory import (
    DecoderState,
    DecoderStep,
    DecoderSteps,
    Memory,
    StepsRunner,
    choose_rows,
    read_memory,
    stack_steps,
)
from .outputs import CopyNetEncoderOutput


class Decoder(nn.Module):
    """What all decoders share. A new one defines `build_memory`, `initial_state` and `run_steps`."""

    config: CopyNetConfig
    dropout: nn.Dropout
    switch_proj: nn.Linear | None

    def build_memory(self, encoded: CopyNetEncoderOutput) -> Memory:
        """The N sources' states and everything computed from them once for all steps."""
        raise NotImplementedError

    def initial_state(self, memory: Memory, rows: int) -> DecoderState:
        """The state before the first word.

        Args:
            rows: R, a multiple of N.
        """
        raise NotImplementedError

    def run_steps(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps:
        """T steps, arguments as in `forward`."""
        raise NotImplementedError

    def finish_steps(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """Computes what the steps do not pass on, for all of them at once."""
        return steps

    @staticmethod
    def build_switch(config: CopyNetConfig) -> nn.Linear | None:
        """The projection of a mechanism's switch, if it has one."""
        widths, names = part_widths(config), config.mechanism.switch
        return nn.Linear(sum(widths[name] for name in names), 1) if names else None

    def add_switch(self, steps: DecoderSteps, parts: Mapping[str, Tensor]) -> DecoderSteps:
        """Adds the switch w·[c_t; s_t; …] + b, whose sigmoid is p_gen (See et al. 2017, Eq. 8) or λ_t of CoRe.

        Args:
            parts: (R, T, …) the parts of `Mechanism.switch`.
        """
        if self.switch_proj is None:
            return steps
        switch = self.switch_proj(join_parts(parts, self.config.mechanism.switch))
        return steps._replace(switch=switch[..., 0])

    def forward(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None = None,
        keep: Tensor | None = None,
        runner: StepsRunner | None = None,
    ) -> DecoderSteps:
        """T steps.

        Args:
            embeddings: (R, T, E) e(y_{t-1}).
            matches: (R, T, S) bool, x_j = y_{t-1}.
            state: what the steps before left, in a search; None: there were none, and none will continue.
            keep: (R, T) bool; where false, the word is padding: a recurrent state stays as it was, and a Transformers
                decoder does not attend to it.
            runner: computes the steps in place of `run_steps`.
        """
        steps = (runner or self.run_steps)(embeddings, matches, memory, state, keep)
        return self.finish_steps(steps, embeddings, memory)


class RecurrentDecoder(Decoder, GradientCheckpointingLayer):
    """What recurrent decoders share: s_0 and the loop over t. A new one defines `build_memory` and `step`."""

    init_proj: nn.Linear

    def initial_state(self, memory: Memory, rows: int) -> DecoderState:
        """s_0 = tanh(W `final_state`), with nothing copied or attended to yet."""
        mechanism = self.config.mechanism
        hidden = expand_to_rows(torch.tanh(self.init_proj(memory.final_state)), rows)  # (R, H)
        zeros = expand_to_rows(torch.zeros_like(memory.mask, dtype=hidden.dtype), rows)  # (R, S)
        return DecoderState(
            hidden=hidden,
            copy_scores=zeros if mechanism.has_copy_projection or mechanism.retrieves else None,
            coverage=at_least_float32(zeros) if self.config.use_coverage or mechanism.retrieves else None,
            attention=zeros if mechanism.attends_after else None,
        )

    def step(self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState) -> DecoderStep:
        """One word: `embedding` is e(y_{t-1}) (R, E), and `matches` (R, S) bool where x_j = y_{t-1}."""
        raise NotImplementedError

    def run_steps(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None,
        keep: Tensor | None,
        step: Callable[[Tensor, Tensor, Memory, DecoderState], DecoderStep] | None = None,
    ) -> DecoderSteps:
        """The loop over t. Arguments as in `forward`; `step` takes the place of the decoder's own."""
        step = step or self.step
        state = self.initial_state(memory, embeddings.shape[0]) if state is None else state
        steps: list[DecoderStep] = []
        for t in range(embeddings.shape[1]):
            result = step(embeddings[:, t], matches[:, t], memory, state)
            state = result.state if keep is None else choose_rows(keep[:, t, None], result.state, state)
            steps.append(result._replace(state=state))
        return stack_steps(steps)


class CopyNetDecoder(RecurrentDecoder):
    """s_t = GRU([e(y_{t-1}); ζ(y_{t-1}); c_t], s_{t-1}), sections 2 and 3.3, and the readout that both modes score.

    Where the mechanism attends after the state (See et al. 2017), s_t = GRU([e(y_{t-1}); c_{t-1}], s_{t-1}) with
    c_0 = 0, and s_t is the query of a_t. (Theirs is an LSTM.)

    Where the source has features, what is read of them is added to c_t; c_0 is what s_0 reads of them.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.config = config
        self.attends_after = config.mechanism.attends_after
        widths = part_widths(config)
        self.input_parts = ["embedding", *(["selective_read"] if config.selective_read else []), "context"]
        self.readout_parts = list(config.readout or ())
        self.init_proj = nn.Linear(config.memory_size, config.hidden_size)
        self.attention = self.feature_proj = self.copy_proj = None
        if config.attention:
            sizes = (config.memory_size, config.hidden_size, config.attention_size)
            self.attention = CopyNetAttention(*sizes, coverage=config.use_coverage)
        if config.feature_vocab_size:
            self.feature_proj = FeatureProjection(config.embedding_size, config.memory_size, config.attention_size)
        if config.mechanism.has_copy_projection:
            self.copy_proj = nn.Linear(config.memory_size, config.hidden_size, bias=False)  # W_c
        self.cell = nn.GRUCell(sum(widths[part] for part in self.input_parts), config.hidden_size)
        self.readout_proj = self.linear_readout_proj = None
        if self.readout_parts != ["state"]:
            readout_proj = nn.Linear(sum(widths[part] for part in self.readout_parts), config.hidden_size)
            if config.mechanism.tanh_readout:
                self.readout_proj = readout_proj
            else:  # no step needs it: computed after the recurrence, for all steps at once
                self.linear_readout_proj = readout_proj
        self.switch_proj = self.build_switch(config)
        self.dropout = Dropout(config.dropout)

    def build_memory(self, encoded: CopyNetEncoderOutput) -> Memory:
        """M with the keys U h_j of Eq. 3 and tanh(h_j W_c) of Eq. 8."""
        hidden_states = encoded.last_hidden_state
        keys = None if self.attention is None else self.attention.keys(hidden_states)
        copy_keys = None if self.copy_proj is None else torch.tanh(self.copy_proj(hidden_states))
        if keys is not None:  # autocast may begin after the encoder
            hidden_states = hidden_states.to(keys.dtype)
        hidden_states = hidden_states.contiguous()  # every step reads them, in bfloat16 from a copy if they are not
        features = None if self.feature_proj is None else self.feature_proj(encoded)
        source = (encoded.final_state, encoded.source_mask, encoded.source_ids)
        return Memory(
            hidden_states, keys, copy_keys, *source, slot_embeddings=encoded.slot_embeddings, features=features
        )

    def step(self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState) -> DecoderStep:
        """One word by the paper's equations; see `RecurrentDecoder.step`."""
        h, s = memory.hidden_states, state.hidden  # (N, S, D), (R, H)
        parts = {"embedding": embedding}  # e(y_{t-1}): (R, E)

        # Selective read, Eq. 9: ρ_tj ∝ e^ψ_c(j) of step t-1 where x_j = y_{t-1}; ζ(y_{t-1}) = Σ_j ρ_tj h_j
        if self.config.selective_read:
            assert state.copy_scores is not None
            rho = selective_read_weights(state.copy_scores, matches)  # (R, S)
            parts["selective_read"] = read_memory(rho, h)  # (R, D)

        # Attentive read, Eq. 3: c_t = Σ_j a_tj h_j; without attention c = φ(M), Eq. 1
        attention = state.attention if self.attends_after else self.attend(s, memory, state.coverage)  # (R, S)
        parts["context"] = self._read(attention, s, memory)  # (R, D)

        # State, Eq. 2 and section 3.3: s_t = GRU([e(y_{t-1}); ζ(y_{t-1}); c_t], s_{t-1})
        s = self.cell(join_parts(parts, self.input_parts), s)  # (R, H)
        parts["state"] = s
        if self.attends_after:
            attention = self.attend(s, memory, state.coverage)

        # Coverage (See et al. 2017): cov_{t+1} = Σ_{t' ≤ t} a_t'
        coverage = None if state.coverage is None or attention is None else state.coverage + attention

        # Readout r_t (R, H): s_t in the paper, tanh(W [s_t; c_t; e(y_{t-1}); ζ]) after its authors' code
        readout = s
        if self.readout_proj is not None:
            readout = torch.tanh(self.readout_proj(join_parts(parts, self.readout_parts)))
        if self.linear_readout_proj is None:
            readout = self.dropout(readout)

        # Copy scores, Eq. 8: ψ_c(j) = tanh(h_j W_c)·r_t
        scores = None if memory.copy_keys is None else copy_scores(memory.copy_keys, readout)
        after = DecoderState(s, scores, coverage, attention if self.attends_after else None)
        return DecoderStep(readout, attention, after)

    def attend(self, query: Tensor, memory: Memory, coverage: Tensor | None) -> Tensor | None:
        """a_t (R, S) of Eq. 3 for the query s (R, H); None without attention."""
        if self.attention is None or memory.attention_keys is None:
            return None
        return self.attention(query, memory.attention_keys, memory.mask, coverage)

    def _read(self, attention: Tensor | None, query: Tensor, memory: Memory) -> Tensor:
        """c (R, …, D) by the attention (R, …, S), with what the query (R, …, H) reads of features."""
        if attention is None:
            return expand_to_rows(memory.final_state, query.shape[0])
        context = read_memory(attention, memory.hidden_states)
        if self.attention is None or memory.features is None:
            return context
        return context + self.attention.read_features(query, memory.features)

    def finish_steps(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """Adds a linear readout V [s_t; c_t] + b, and the switch."""
        if self.linear_readout_proj is None and self.switch_proj is None:
            return steps
        linear_parts = () if self.linear_readout_proj is None else self.readout_parts
        hidden = steps.states.hidden
        parts = {"state": hidden, "embedding": embeddings}
        if "context" in (*linear_parts, *self.config.mechanism.switch):
            parts["context"] = self._read(steps.attention, hidden, memory)  # (R, T, D)
        if self.linear_readout_proj is not None:
            readout = self.linear_readout_proj(join_parts(parts, linear_parts))
            steps = steps._replace(readout=self.dropout(readout))
        return self.add_switch(steps, parts)
