"""The decoder with its selective read, as the paper writes it.

Letters are the paper's: h_j the encoder's states, s_t the decoder's, c_t the attentive read, ζ(y_{t-1}) the selective
read with weights ρ, e(y) the embedding, r_t the readout that the scores are computed from. Shapes: R rows decode from
N sources (`Memory`), S source positions, T target steps, E embedding_size, H hidden_size, D = 2 · encoder_hidden_size,
A attention_size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import CopyNetAttention, FeatureProjection
from .configuration_copynet import CopyNetConfig
from .copy_distribution import at_least_float32, copy_scores, find_first_positions, selective_read_weights
from .dispatch import find_fast_form_obstacles
from .dropout import Dropout
from .fused_decoder import run_fused
from .fused_mixture import find_copy_columns
from .fused_step import DecoderWeights, SearchTables, fused_search_step, precompute_tables, stack_decoder_weights
from .memory import (
    DecoderState,
    DecoderSteps,
    Memory,
    group_by_source,
    join_states,
    read_memory,
    repeat_for_rows,
)
from .outputs import CopyNetEncoderOutput


class Decoder(GradientCheckpointingLayer):
    """What all decoders share: s_0, and the loop from word to word.

    A decoder has `step`; one that can compute all steps together overrides `run_all_steps`.
    """

    config: CopyNetConfig
    init_proj: nn.Linear
    dropout: nn.Dropout

    def build_memory(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """The source's states and everything computed from them once for all steps.

        Args:
            encoded: the encoder's output for N sources.
            rows: R, a multiple of N.
        """
        raise NotImplementedError

    def initial_state(self, memory: Memory) -> DecoderState:
        """s_0 = tanh(W [last forward state; last backward state]), with nothing copied or attended to yet."""
        mechanism = self.config.mechanism
        hidden = torch.tanh(self.init_proj(memory.final_state))  # (R, H)
        zeros = hidden.new_zeros(memory.mask.shape)  # (R, S)
        return DecoderState(
            hidden=hidden,
            copy_scores=zeros if mechanism.has_copy_projection or mechanism.retrieves else None,
            coverage=at_least_float32(zeros) if self.config.use_coverage or mechanism.retrieves else None,
            attention=zeros if mechanism.attends_after else None,
        )

    def step(
        self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One word: r_t (R, H), the new state, and a_t (R, S) or None.

        Args:
            embedding: (R, E) e(y_{t-1}).
            matches: (R, S) bool, x_j = y_{t-1}.
        """
        raise NotImplementedError

    def explain_readable_form(self, memory: Memory) -> list[str]:
        """Why the steps run in the readable form; empty: the fast form may run. See `dispatch`."""
        return ["this decoder has no fast form"]

    def can_run_all_steps(
        self, embeddings: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> bool:
        """Whether the fast form for teacher forcing may run: from s_0 on, without padding, one row for each source."""
        one_row_per_source = memory.hidden_states.shape[0] == embeddings.shape[0]
        return state is None and keep is None and one_row_per_source and not self.explain_readable_form(memory)

    def run_all_steps(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps | None:
        """All steps together, or None where they have to be computed one by one. Arguments as in `forward`."""
        return None

    def precompute_search_tables(self, memory: Memory) -> SearchTables | None:
        """Products that are the same at every step of a search; None where the search runs `step`."""
        return None

    def finish_steps(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """Computes what the recurrence does not need, for all steps at once."""
        return steps

    def prepare_search(self, memory: Memory) -> Memory:
        """The memory with the first position of each word, found once instead of at each step."""
        if not self.config.copies:
            return memory
        return memory._replace(
            first_positions=find_first_positions(memory.ids, memory.mask, self.config.extended_vocab_size)
        )

    def forward(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None = None,
        keep: Tensor | None = None,
        tables: SearchTables | None = None,
    ) -> DecoderSteps:
        """T steps.

        Args:
            embeddings: (R, T, E) e(y_{t-1}).
            matches: (R, T, S) bool, x_j = y_{t-1}.
            state: what the steps before left; None: there were none.
            keep: (R, T) bool; where false, the word is padding and the state stays as it was.
            tables: of `precompute_search_tables`.
        """
        steps = self.run_all_steps(embeddings, matches, memory, state, keep)
        if steps is None:
            steps = self._run_one_by_one(embeddings, matches, memory, state, keep, tables)
        return self.finish_steps(steps, embeddings, memory)

    def _run_one_by_one(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None,
        keep: Tensor | None,
        tables: SearchTables | None,
    ) -> DecoderSteps:
        state = self.initial_state(memory) if state is None else state
        if torch.is_grad_enabled() or self.dropout.training:  # a search's cache may be continued with gradients
            tables = None
        readouts: list[Tensor] = []
        states: list[DecoderState] = []
        attentions: list[Tensor | None] = []
        for t in range(embeddings.shape[1]):
            inputs = (embeddings[:, t], matches[:, t], memory, state)
            readout, after, attention = self.step(*inputs) if tables is None else fused_search_step(*inputs, tables)
            state = after if keep is None else _select_rows(keep[:, t, None], after, state)
            readouts.append(readout)
            states.append(state)
            attentions.append(attention)
        return DecoderSteps(
            _stack(readouts),
            None if attentions[0] is None else _stack(attentions),  # type: ignore[arg-type]
            None,
            *join_states(states, _stack),
        )


def _stack(steps: Sequence[Tensor]) -> Tensor:
    """(R, T, …) from T tensors (R, …); a single step, as in a search, is not copied."""
    return steps[0][:, None] if len(steps) == 1 else torch.stack(list(steps), dim=1)


def _select_rows(condition: Tensor, state: DecoderState, other: DecoderState) -> DecoderState:
    """The state's rows where the condition (R, 1) holds, else the other's."""
    return join_states([state, other], lambda pair: torch.where(condition, pair[0], pair[1]))


class CopyNetDecoder(Decoder):
    """s_t = GRU([e(y_{t-1}); ζ(y_{t-1}); c_t], s_{t-1}), sections 2 and 3.3, and the readout that both modes score.

    `step` is the paper's form. The fast form is in `fused_decoder` for training and in `fused_step` for search.

    Where the mechanism attends after the state (See et al. 2017), s_t = GRU([e(y_{t-1}); c_{t-1}], s_{t-1}) with
    c_0 = 0, and s_t is the query of a_t. (Theirs is an LSTM.)

    Where the source has features, what is read of them is added to c_t; c_0 is what s_0 reads of them.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.config = config
        self.widths = {
            "state": config.hidden_size,
            "context": config.memory_size,
            "embedding": config.embedding_size,
            "selective_read": config.memory_size,
        }
        self.input_parts = ["embedding", *(["selective_read"] if config.selective_read else []), "context"]
        self.readout_parts = list(config.readout or ())
        self.init_proj = nn.Linear(config.memory_size, config.hidden_size)
        self.attention = None
        if config.attention:
            sizes = (config.memory_size, config.hidden_size, config.attention_size)
            self.attention = CopyNetAttention(*sizes, coverage=config.use_coverage)
        self.feature_proj = None
        if config.feature_vocab_size:
            self.feature_proj = FeatureProjection(config.embedding_size, config.memory_size, config.attention_size)
        self.copy_proj = None
        if config.mechanism.has_copy_projection:
            self.copy_proj = nn.Linear(config.memory_size, config.hidden_size, bias=False)  # W_c
        self.cell = nn.GRUCell(self._width(self.input_parts), config.hidden_size)
        self.readout_proj = self.linear_readout_proj = None
        if self.readout_parts != ["state"]:
            readout_proj = nn.Linear(self._width(self.readout_parts), config.hidden_size)
            if config.mechanism.tanh_readout:
                self.readout_proj = readout_proj
            else:  # no step needs it: computed after the recurrence, for all steps at once
                self.linear_readout_proj = readout_proj
        self.switch_proj = nn.Linear(self._width(config.mechanism.switch), 1) if config.mechanism.switch else None
        self.dropout = Dropout(config.dropout)

    def _width(self, parts: Iterable[str]) -> int:
        return sum(self.widths[part] for part in parts)

    def build_memory(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """M with the keys U h_j of Eq. 3 and tanh(h_j W_c) of Eq. 8."""
        hidden_states = encoded.last_hidden_state
        keys = None if self.attention is None else self.attention.keys(hidden_states)
        copy_keys = None if self.copy_proj is None else torch.tanh(self.copy_proj(hidden_states))
        if keys is not None:  # autocast may begin after the encoder
            hidden_states = hidden_states.to(keys.dtype)
        hidden_states = hidden_states.contiguous()  # every step reads them, in bfloat16 from a copy if they are not
        features = None if self.feature_proj is None else self.feature_proj(encoded, rows)
        return Memory(hidden_states, keys, copy_keys, *repeat_for_rows(encoded, rows), features=features)

    def step(
        self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One word by the paper's equations; see `Decoder.step`."""
        h, s = memory.hidden_states, state.hidden  # (N, S, D), (R, H)
        parts = {"embedding": embedding}  # e(y_{t-1}): (R, E)

        # Selective read, Eq. 9: ρ_tj ∝ e^ψ_c(j) of step t-1 where x_j = y_{t-1}; ζ(y_{t-1}) = Σ_j ρ_tj h_j
        if self.config.selective_read:
            assert state.copy_scores is not None
            rho = selective_read_weights(state.copy_scores, matches)  # (R, S)
            parts["selective_read"] = read_memory(rho, h)  # (R, D)

        # Attentive read, Eq. 3: c_t = Σ_j a_tj h_j; without attention c = φ(M), Eq. 1
        attention = state.attention  # a_{t-1}, where the mechanism attends after the state
        if attention is None:
            attention = self._attend(s, memory, state.coverage)  # (R, S)
        parts["context"] = memory.final_state if attention is None else read_memory(attention, h)  # (R, D)
        if self.attention is not None and memory.features is not None:
            parts["context"] = parts["context"] + self.attention.read_features(s, memory.features)

        # State, Eq. 2 and section 3.3: s_t = GRU([e(y_{t-1}); ζ(y_{t-1}); c_t], s_{t-1})
        s = self.cell(torch.cat([parts[name] for name in self.input_parts], dim=-1), s)  # (R, H)
        parts["state"] = s
        if state.attention is not None:
            attention = self._attend(s, memory, state.coverage)
        coverage = None if state.coverage is None or attention is None else state.coverage + attention

        # Readout r_t (R, H): s_t in the paper, tanh(W [s_t; c_t; e(y_{t-1}); ζ]) after its authors' code
        readout = s
        if self.readout_proj is not None:
            readout = torch.tanh(self.readout_proj(torch.cat([parts[name] for name in self.readout_parts], dim=-1)))
        if self.linear_readout_proj is None:
            readout = self.dropout(readout)

        # Copy scores, Eq. 8: ψ_c(j) = tanh(h_j W_c)·r_t
        scores = None
        if memory.copy_keys is not None:
            scores = copy_scores(memory.copy_keys, group_by_source(readout, memory.copy_keys)).view(matches.shape)
        last_attention = None if state.attention is None else attention
        return readout, DecoderState(s, scores, coverage, last_attention), attention

    def _attend(self, query: Tensor, memory: Memory, coverage: Tensor | None) -> Tensor | None:
        """a_t (R, S) of Eq. 3 for the query s (R, H); None without attention."""
        if self.attention is None or memory.attention_keys is None:
            return None
        weights: Tensor = self.attention(query, memory.attention_keys, memory.mask, coverage)
        return weights

    def finish_steps(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """Adds a linear readout V [s_t; c_t] + b, and the switch w·[c_t; s_t; …] + b."""
        if self.linear_readout_proj is None and self.switch_proj is None:
            return steps
        linear_parts = () if self.linear_readout_proj is None else self.readout_parts
        parts = {"state": steps.hidden, "embedding": embeddings}
        if "context" in (*linear_parts, *self.config.mechanism.switch):
            assert steps.attention is not None
            parts["context"] = read_memory(steps.attention, memory.hidden_states)  # (R, T, D)
            if self.attention is not None and memory.features is not None:
                parts["context"] = parts["context"] + self.attention.read_features(steps.hidden, memory.features)

        def concatenate(names: Iterable[str]) -> Tensor:
            return torch.cat([parts[name] for name in names], dim=-1)

        if self.linear_readout_proj is not None:
            readout = self.linear_readout_proj(concatenate(linear_parts))
            steps = steps._replace(readout=self.dropout(readout))
        if self.switch_proj is not None:
            steps = steps._replace(switch=self.switch_proj(concatenate(self.config.mechanism.switch))[..., 0])
        return steps

    # ---- the fast form

    def explain_readable_form(self, memory: Memory) -> list[str]:
        """Why the steps run in the readable form; empty: the fast form may run. See `dispatch`."""
        modules = {"cell": self.cell, "readout_proj": self.readout_proj, "attention": self.attention}
        if self.attention is not None:
            names = ("query_proj", "score_proj", "coverage_proj")
            modules |= {f"attention.{name}": getattr(self.attention, name) for name in names}
        reasons = find_fast_form_obstacles(self.config, modules, memory.mask.device)
        return reasons if self.attention is not None else [*reasons, "attention=False: there is nothing to speed up"]

    def run_all_steps(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps | None:
        """Teacher forcing from s_0 on in the fast form; None where the readable form has to run."""
        if not self.can_run_all_steps(embeddings, memory, state, keep):
            return None
        dropout = self.dropout if self.linear_readout_proj is None else None
        initial = self.initial_state(memory).hidden
        weights = self._stacked_weights()
        readout, hidden, attention = run_fused(
            embeddings, matches, memory, initial, weights, dropout, self.config.mechanism.attends_after
        )
        if self.config.mechanism.attends_after:  # the loop computes a_t at step t + 1, the last one is missing
            coverage = at_least_float32(attention).sum(1) if self.config.use_coverage else None
            last = self._attend(hidden[:, -1], memory, coverage)
            assert last is not None
            attention = torch.cat([attention[:, 1:], last[:, None]], dim=1)
        scores = None if memory.copy_keys is None else copy_scores(memory.copy_keys, readout)
        return DecoderSteps(readout, attention, None, hidden, scores, None)

    def precompute_search_tables(self, memory: Memory) -> SearchTables | None:
        """Tables for `fused_search_step`; None where the readable step runs (`explain_readable_form`)."""
        if torch.is_grad_enabled() or self.dropout.training or self.explain_readable_form(memory):
            return None
        tables = precompute_tables(memory, self._stacked_weights())
        if self.config.copy_mechanism != "copynet":
            return tables
        columns = find_copy_columns(memory, self.config.vocab_size, self.config.max_source_oov)
        return tables._replace(copy_columns=columns)

    def _stacked_weights(self) -> DecoderWeights:
        assert self.attention is not None
        return stack_decoder_weights(
            self.cell, self.attention, self.readout_proj, self.input_parts, self.readout_parts, self.widths
        )
