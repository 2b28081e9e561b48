"""The recurrent layers of CopyNet: the encoder's, the attention, and the decoder with its selective read.

Letters are the paper's: M = {h_j} the encoder's states, s_t the decoder's, c_t the attentive read, ζ(y_{t-1}) the
selective read with weights ρ, e(y) the embedding, r_t what the scores are taken from. Shapes: B rows, S source
positions, T target steps, E embedding_size, H hidden_size, D = 2 · encoder_hidden_size, A attention_size.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import CopyNetAttention, CoverageProjection
from .configuration_copynet import CopyNetConfig
from .copy_distribution import (
    at_least_float32,
    copy_scores,
    first_positions,
    selective_read_weights,
)
from .fused import DecoderWeights, FusedDecoder
from .fused_step import fused_step, key_factors
from .memory import DecoderState, DecoderSteps, Memory, StepWeights, by_source, combined, for_rows, read, where
from .outputs import CopyNetEncoderOutput

_EXPECTED_WORDS = 16
"""Words that a row is expected to write, in choosing what to compute ahead."""


class Decoder(GradientCheckpointingLayer):
    """What all decoders have in common: a state that goes from word to word.

    One that can take many steps together says so in `all_at_once`; else they are taken one by one.
    """

    config: CopyNetConfig

    def remember(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """The source with all that does not depend on the step.

        Args:
            encoded: N sources, as the encoder gave them.
            rows: R that decode from them, a multiple of N.
        """
        raise NotImplementedError

    def initial_state(self, memory: Memory) -> DecoderState:
        """The state before the first word."""
        raise NotImplementedError

    def step(
        self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One word: r_t (R, H), the new state, and a_t (R, S) or None."""
        raise NotImplementedError

    def prepared(self, memory: Memory, embed_tokens: nn.Module) -> Memory:
        """The memory with what the steps of a search would otherwise compute again."""
        if not self.config.copies:
            return memory
        width = self.config.extended_vocab_size
        return memory._replace(leaders=first_positions(memory.ids, memory.mask, width))

    def all_at_once(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps | None:
        """All steps together; None where they have to be taken one by one. Arguments as in `forward`."""
        return None

    def step_of(self, embeddings: Tensor, memory: Memory, words: Tensor | None) -> tuple[Any, Tensor]:
        """What takes a step, and what it takes of each word (R, T, …)."""
        return self.step, embeddings

    def completed(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """With what no later step needs."""
        return steps

    def forward(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None = None,
        keep: Tensor | None = None,
        words: Tensor | None = None,
    ) -> DecoderSteps:
        """T steps from e(y_{t-1}) (R, T, E) and the positions where x_j = y_{t-1} (R, T, S) bool.

        state: what the steps before left; None: there were none.
        keep: (R, T) bool; where false, the word is padding and the state stays as it was.
        words: (R, T) ids below V that the embeddings are of, for a memory that knows what is taken of each.
        """
        steps = self.all_at_once(embeddings, matches, memory, state, keep)
        if steps is None:
            steps = self._one_by_one(embeddings, matches, memory, state, keep, words)
        return self.completed(steps, embeddings, memory)

    def _one_by_one(
        self,
        embeddings: Tensor,
        matches: Tensor,
        memory: Memory,
        state: DecoderState | None,
        keep: Tensor | None,
        words: Tensor | None,
    ) -> DecoderSteps:
        state = self.initial_state(memory) if state is None else state
        step, inputs = self.step_of(embeddings, memory, words)
        readouts: list[Tensor] = []
        states: list[DecoderState] = []
        attentions: list[Any] = []
        for t in range(inputs.shape[1]):
            readout, after, attention = step(inputs[:, t], matches[:, t], memory, state)
            state = after if keep is None else combined([after, state], partial(where, keep[:, t, None]))
            readouts.append(readout)
            states.append(state)
            attentions.append(attention)
        attention = None if attentions[0] is None else torch.stack(attentions, dim=1)
        joined = combined(states, partial(torch.stack, dim=1))
        return DecoderSteps(torch.stack(readouts, dim=1), attention, None, *joined)


class CopyNetDecoder(Decoder):
    """s_t = GRU([e(y_{t-1}); ζ(y_{t-1}); c_t], s_{t-1}), sections 2 and 3.3, and the readout both modes score.

    Where the mechanism attends after (See et al. 2017), s_t = GRU([e(y_{t-1}); c_{t-1}], s_{t-1}) with c_0 = 0, and
    a_t asks with s_t: the same recurrence, whose first step sees nothing, and each step makes the attention of the one
    before. Theirs is an LSTM.
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
        reads = config.memory_size * (2 if config.selective_read else 1)
        self.init_proj = nn.Linear(config.memory_size, config.hidden_size)
        self.attention = None
        if config.attention:
            sizes = (config.memory_size, config.hidden_size, config.attention_size)
            self.attention = CopyNetAttention(*sizes, coverage=config.use_coverage)
        self.copy_proj = None
        if config.mechanism.scores_positions:
            self.copy_proj = nn.Linear(config.memory_size, config.hidden_size, bias=False)
        self.cell = nn.GRUCell(config.embedding_size + reads, config.hidden_size)
        self.readout_parts = list(config.readout or ())
        self.readout_proj = self.linear_readout_proj = None
        if self.readout_parts != ["state"]:
            readout_proj = nn.Linear(self._width(self.readout_parts), config.hidden_size)
            if config.mechanism.tanh_readout:
                self.readout_proj = readout_proj
            else:  # taken behind the recurrence, of all steps at once
                self.linear_readout_proj = readout_proj
        self.switch_proj = nn.Linear(self._width(config.mechanism.switch), 1) if config.mechanism.switch else None
        self.dropout = nn.Dropout(config.dropout)

    def _width(self, parts: Iterable[str]) -> int:
        return sum(self.widths[part] for part in parts)

    def remember(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """With 2U h_j for Eq. 3 and tanh(h_j W_c) of Eq. 8."""
        hidden_states = encoded.last_hidden_state
        keys = None if self.attention is None else 2 * self.attention.key_proj(hidden_states)
        copy_keys = None if self.copy_proj is None else torch.tanh(self.copy_proj(hidden_states))
        if keys is not None:  # autocast may have begun behind the encoder
            hidden_states = hidden_states.to(keys.dtype)
        return Memory(hidden_states, keys, copy_keys, *for_rows(encoded, rows))

    def prepared(self, memory: Memory, embed_tokens: nn.Module) -> Memory:
        """The memory with all that the steps of a search would otherwise compute again. Nothing of it has a gradient.

        What gates and readout take of each position, and of each word as `embed_tokens` has it, is computed ahead
        where there are fewer of them than words to come.
        """
        memory = super().prepared(memory, embed_tokens)
        if not self._searches(memory):
            return memory
        weights, hidden_states = self._step_weights(), memory.hidden_states
        embedding, bias = (weights[name].to(hidden_states.dtype) for name in ("embedding", "bias"))
        recurrent, words = self._loop_weights(weights, hidden_states.dtype), None
        to_come = _EXPECTED_WORDS * memory.ids.shape[0]
        if self.config.vocab_size <= to_come:
            every_word = torch.arange(self.config.vocab_size, device=memory.ids.device)
            words = nn.functional.linear(embed_tokens(every_word).to(bias.dtype), embedding, bias)
        memory = memory._replace(weights=StepWeights(embedding, bias, recurrent, words))
        if recurrent.coverage is None and memory.attention_keys is not None and bias.dtype != torch.float16:
            memory = memory._replace(key_factors=key_factors(memory.attention_keys))
        if hidden_states.shape[:2].numel() > to_come:
            return memory
        stacked = [weight for weight in (recurrent.context, recurrent.selective) if weight is not None]
        weight = torch.cat([nn.functional.pad(part, (0, 0, 0, len(bias) - len(part))) for part in stacked])
        reads = nn.functional.linear(hidden_states, weight).view(len(hidden_states), -1, len(bias))
        return memory._replace(reads=reads)

    def _is_fused(self, memory: Memory) -> bool:
        """Whether the weights may be read past their modules: not where those were replaced (by adapters, quantised
        ones) or are kept elsewhere (offloaded)."""
        if not self.config.use_fused or self.attention is None or torch.compiler.is_compiling():
            return False
        modules = [self.cell, self.attention.query_proj, self.attention.score_proj, self.attention.coverage_proj]
        return all(
            type(module) in (nn.Linear, CoverageProjection, nn.GRUCell)
            and next(module.parameters()).device == memory.mask.device
            for module in (*modules, self.readout_proj)
            if module is not None
        )

    def _searches(self, memory: Memory) -> bool:
        """Whether steps can be taken by `fused_step`, which knows neither gradients nor dropout."""
        return self._is_fused(memory) and not torch.is_grad_enabled() and not self.dropout.training

    def initial_state(self, memory: Memory) -> DecoderState:
        """s_0 = tanh(W [last forward state; last backward state]); nothing copied, nothing attended yet."""
        hidden = torch.tanh(self.init_proj(memory.final_state))
        zeros = hidden.new_zeros(memory.mask.shape)
        return DecoderState(
            hidden=hidden,
            copy_scores=None if self.copy_proj is None else zeros,
            coverage=at_least_float32(zeros) if self.config.use_coverage else None,
            attention=zeros if self.config.mechanism.attends_after else None,
        )

    def all_at_once(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps | None:
        """The steps from s_0 on, by the loop whose gradient is written by hand."""
        if state is not None or keep is not None or not self._is_fused(memory):
            return None
        one_row_each = memory.hidden_states.shape[0] == embeddings.shape[0]
        return self._fused(embeddings, matches, memory) if one_row_each else None

    def step_of(self, embeddings: Tensor, memory: Memory, words: Tensor | None) -> tuple[Any, Tensor]:
        """`step`, or in a search `fused_step`."""
        if memory.weights is not None and self._searches(memory):
            return fused_step, _word_inputs(memory.weights, embeddings, words)
        return self.step, embeddings

    def completed(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """With what no later step needs: a linear readout V [s_t; c_t] + b, and the switch w [c_t; s_t; …] + b."""
        if self.linear_readout_proj is None and self.switch_proj is None:
            return steps
        assert steps.attention is not None
        context = read(steps.attention, memory.hidden_states)
        parts = {"state": steps.hidden, "context": context, "embedding": embeddings}

        def joined(names: Iterable[str]) -> Tensor:
            return torch.cat([parts[name] for name in names], dim=-1)

        if self.linear_readout_proj is not None:
            steps = steps._replace(readout=self.dropout(self.linear_readout_proj(joined(self.readout_parts))))
        if self.switch_proj is not None:
            steps = steps._replace(switch=self.switch_proj(joined(self.config.mechanism.switch))[..., 0])
        return steps

    def _fused(self, embeddings: Tensor, matches: Tensor, memory: Memory) -> DecoderSteps:
        weights = self._step_weights()
        inputs = nn.functional.linear(embeddings.transpose(0, 1), weights["embedding"], weights["bias"])
        repeats = None
        if self.config.selective_read:
            matches = matches.transpose(0, 1)
            times = matches.sum(-1, keepdim=True)
            repeats = matches & (times > 1)
            inputs = _with_reads_of_one_place(inputs, matches & (times == 1), memory, weights["selective_read"])
        dropped = None
        if self.dropout.training and self.dropout.p and self.linear_readout_proj is None:
            dropped = self.dropout(inputs.new_ones(*inputs.shape[:2], self.config.hidden_size))
        readout, hidden, attention = FusedDecoder.apply(
            inputs,
            dropped,
            repeats,
            memory.mask,
            memory.hidden_states,
            memory.attention_keys,
            None if repeats is None else memory.copy_keys,
            self.initial_state(memory).hidden,
            self.config.mechanism.attends_after,
            *self._loop_weights(weights, inputs.dtype),
        )
        readout, hidden, attention = (field.transpose(0, 1) for field in (readout, hidden, attention))
        if self.config.mechanism.attends_after:  # a_t stands with step t + 1, but for the last
            coverage = attention.sum(1) if self.config.use_coverage else None
            last = self._attend(hidden[:, -1], memory, coverage)
            attention = torch.cat([attention[:, 1:], last[:, None]], dim=1)
        scores = None if memory.copy_keys is None else copy_scores(memory.copy_keys, readout)
        return DecoderSteps(readout, attention, None, hidden, scores, None)

    def _step_weights(self) -> dict[str, Tensor]:
        """What the gates (3H), and below it what the readout (H) unless r_t = s_t, takes of each of its inputs.

        "state" is the readout's alone, missing where r_t = s_t. One that the readout does not take has the gates' rows
        only; "embedding" and "bias" have zeros there.
        """
        config, cell = self.config, self.cell
        names = ["embedding", *(["selective_read"] if config.selective_read else []), "context"]
        weights = dict(zip(names, cell.weight_ih.split([self.widths[name] for name in names], dim=1), strict=True))
        weights["bias"] = cell.bias_ih
        if self.readout_proj is not None:
            columns = self.readout_proj.weight.split([self.widths[part] for part in self.readout_parts], dim=1)
            readout = dict(zip(self.readout_parts, columns, strict=True), bias=self.readout_proj.bias)
            readout.setdefault("embedding", weights["embedding"].new_zeros(config.hidden_size, config.embedding_size))
            for name, weight in readout.items():
                weights[name] = torch.cat([weights[name], weight]) if name in weights else weight
        return weights

    def _loop_weights(self, weights: dict[str, Tensor], dtype: torch.dtype) -> DecoderWeights:
        """What the loop multiplies with, in its precision; twice the attention's, for the sigmoid in place of tanh."""
        attention, cell, size = self.attention, self.cell, self.config.hidden_size
        assert attention is not None
        query = 2 * attention.query_proj.weight
        loop = DecoderWeights(
            state=torch.cat([query, cell.weight_hh.roll(size, dims=0)]),
            state_bias=torch.cat([query.new_zeros(query.shape[0]), cell.bias_hh.roll(size, dims=0)]),
            score=2 * attention.score_proj.weight[0],
            coverage=None if attention.coverage_proj is None else 2 * attention.coverage_proj.weight[:, 0],
            context=weights["context"],
            selective=weights.get("selective_read"),
            readout=weights.get("state"),
        )
        return DecoderWeights(*(None if field is None else field.to(dtype) for field in loop))  # type: ignore[arg-type]

    def step(
        self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One word: r_t (B, H), the new state, and a_t (B, S) or None."""
        parts = {"embedding": embedding}
        if self.config.selective_read and state.copy_scores is not None:  # ζ(y_{t-1}) = Σ_j ρ_tj h_j, Eq. 9
            rho = selective_read_weights(state.copy_scores, matches)
            parts["selective_read"] = read(rho, memory.hidden_states)
        attention = state.attention
        if self.attention is None:  # c = φ(M), Eq. 1
            parts["context"] = memory.final_state
        else:  # c_t = Σ_j a_tj h_j, Eq. 3
            if attention is None:
                attention = self._attend(state.hidden, memory, state.coverage)
            parts["context"] = read(attention, memory.hidden_states)
        inputs = [parts[name] for name in ("embedding", "selective_read", "context") if name in parts]
        parts["state"] = self.cell(torch.cat(inputs, dim=-1), state.hidden)
        if state.attention is not None:
            attention = self._attend(parts["state"], memory, state.coverage)
        coverage = None if state.coverage is None or attention is None else state.coverage + attention

        readout = parts["state"]
        if self.readout_proj is not None:
            readout = torch.tanh(self.readout_proj(torch.cat([parts[name] for name in self.readout_parts], dim=-1)))
        if self.linear_readout_proj is None:
            readout = self.dropout(readout)
        scores = None
        if memory.copy_keys is not None:
            scores = copy_scores(memory.copy_keys, by_source(readout, memory.copy_keys)).view(matches.shape)
        attended = None if state.attention is None else attention
        return readout, DecoderState(parts["state"], scores, coverage, attended), attention

    def _attend(self, hidden: Tensor, memory: Memory, coverage: Tensor | None) -> Tensor:
        """a (R, S) of Eq. 3 by a state (R, H)."""
        assert self.attention is not None
        assert memory.attention_keys is not None
        weights: Tensor = self.attention(hidden, memory.attention_keys, memory.mask, coverage)
        return weights


def _word_inputs(weights: StepWeights, embeddings: Tensor, words: Tensor | None) -> Tensor:
    """What gates and readout take of the embeddings, with the bias: (B, T, X), see `StepWeights`."""
    if weights.words is not None and words is not None:
        return nn.functional.embedding(words, weights.words)
    return nn.functional.linear(embeddings.to(weights.bias.dtype), weights.embedding, weights.bias)


def _with_reads_of_one_place(inputs: Tensor, matches: Tensor, memory: Memory, weight: Tensor) -> Tensor:
    """Adds what is taken of ζ(y_{t-1}) where y_{t-1} stands once in the source: ρ = 1 there, so that ζ is h_j.

    inputs (T, B, X); matches (T, B, S) bool, at most one in a row; weight (at most X, D), of the first X.
    """
    _, batch, length = matches.shape
    places = matches.any(-1).flatten().nonzero()[:, 0]  # in T · B
    positions = matches.flatten(0, 1)[places].to(torch.uint8).argmax(-1)
    zeta = memory.hidden_states.flatten(0, 1).index_select(0, places % batch * length + positions)
    taken = nn.functional.pad(nn.functional.linear(zeta, weight), (0, inputs.shape[-1] - weight.shape[0]))
    return inputs.flatten(0, 1).index_add(0, places, taken).view(inputs.shape)
