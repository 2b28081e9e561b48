"""What a decoding step reads, and what it passes to the next.

Shapes: R rows decode from N sources, R / N of them side by side from each: beams, or outputs of one source. S source
positions, F features of a source, T target steps, H hidden_size, D = 2 · encoder_hidden_size, A attention_size,
E embedding_size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

Fields = TypeVar("Fields", bound=tuple)


class Facts(NamedTuple):
    """Which positions are objects of facts and which belong to the question, (N, S) bool each; `RetrievalDecoder`."""

    is_object: Tensor
    is_question: Tensor


class FeatureMemory(NamedTuple):
    """The features f_k of the source, which `CopyNetAttention.read_features` reads.

    keys: (N, F, A) U_f e(f_k).
    contents: (N, F, D) W_f e(f_k); where the source has facts, (N, F, D + 3E).
    mask: (N, F) bool, false on padding and unknown features.
    """

    keys: Tensor
    contents: Tensor
    mask: Tensor


class Memory(NamedTuple):
    """The N sources as every decoding step reads them (M of the paper), computed once for all steps and rows.

    hidden_states: (N, S, D) h_j; where the source has facts, (N, S, D + 3E) [h_j; f_j].
    attention_keys: (N, S, A) U h_j of Eq. 3; None without attention.
    copy_keys: (N, S, H) tanh(h_j W_c) of Eq. 8; None without copy scores.
    final_state: (N, D) both directions' last states.
    mask: (N, S) bool, positions that can be copied; false on padding.
    ids: (N, S) extended ids x_j.
    slot_embeddings: (N, W, E) of the first W slots, where they have embeddings of their own: fed back as e(y_{t-1}).
    facts: set where the source has facts.
    features: set where the source has features.
    """

    hidden_states: Tensor
    attention_keys: Tensor | None
    copy_keys: Tensor | None
    final_state: Tensor
    mask: Tensor
    ids: Tensor
    slot_embeddings: Tensor | None = None
    facts: Facts | None = None
    features: FeatureMemory | None = None


def select_sources(fields: Fields, sources: Tensor) -> Fields:
    """A NamedTuple of tensors with one entry for each source, also inside nested ones, for the given sources."""
    selected = (
        field[sources] if isinstance(field, Tensor) else None if field is None else select_sources(field, sources)
        for field in fields
    )
    return type(fields)(*selected)  # type: ignore[arg-type]


class DecoderState(NamedTuple):
    """What one step passes to the next.

    hidden: (R, H) s_{t-1}.
    copy_scores: (R, S) ψ_c of step t-1, of which ρ_t is made; zeros before the first step. None without copy scores.
    coverage: (R, S) sum of the attention so far, in float32 at least: narrower sums stop growing near one. None
        without coverage.
    attention: (R, S) a_{t-1}, for c_{t-1}; zeros before the first step. None where a_t is computed before s_t.
    """

    hidden: Tensor
    copy_scores: Tensor | None
    coverage: Tensor | None
    attention: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> DecoderState:
        """The state with every field changed; a field that is None stays None."""
        return join_states([self], lambda fields: change(fields[0]))


def join_states(states: Sequence[DecoderState], join: Callable[[Sequence[Tensor]], Tensor]) -> DecoderState:
    """One state whose fields are the given states' fields, joined; a field that is None stays None."""
    fields = (None if field[0] is None else join(field) for field in zip(*states, strict=True))
    return DecoderState(*fields)  # type: ignore[arg-type]


def choose_rows(condition: Tensor, state: DecoderState, other: DecoderState) -> DecoderState:
    """The state's rows where the condition (R, 1) holds, else the other's."""
    return join_states([state, other], lambda pair: torch.where(condition, pair[0], pair[1]))


class DecoderStep(NamedTuple):
    """What the decoder computes for one word: r_t (R, H), a_t (R, S) or None, and the state for the next step."""

    readout: Tensor
    attention: Tensor | None
    state: DecoderState


class DecoderSteps(NamedTuple):
    """What the decoder computed at each of T steps; the last four are those of `DecoderState`, with a steps axis.

    readout: (R, T, H) r_t. attention: (R, T, S) a_tj or None. switch: (R, T) the logit of p_gen or λ, or None.

    Flat, because reentrant gradient checkpointing passes no gradient to a tensor inside another tuple.
    """

    readout: Tensor
    attention: Tensor | None
    switch: Tensor | None
    hidden: Tensor
    copy_scores: Tensor | None
    coverage: Tensor | None
    last_attention: Tensor | None = None

    @property
    def states(self) -> DecoderState:
        return DecoderState(self.hidden, self.copy_scores, self.coverage, self.last_attention)


def stack_steps(steps: Sequence[DecoderStep]) -> DecoderSteps:
    """T steps side by side; a single step, as in a search, is not copied."""

    def stack(fields: Sequence[Tensor]) -> Tensor:
        return fields[0][:, None] if len(fields) == 1 else torch.stack(list(fields), dim=1)

    readouts, attentions, states = zip(*steps, strict=True)
    attention = None if attentions[0] is None else stack(attentions)
    return DecoderSteps(stack(readouts), attention, None, *join_states(states, stack))


class StepsRunner(Protocol):
    """Something else than `Decoder.run_steps` that computes the same; a cache may keep it from step to step."""

    def __call__(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps: ...

    def select_sources(self, sources: Tensor) -> StepsRunner:
        """The same for the given sources of the memory."""
        ...


def group_by_source(rows: Tensor, sources: Tensor) -> Tensor:
    """(R, …, X) as (N, R / N · …, X): the rows that decode from each of the N sources side by side."""
    return rows.reshape(sources.shape[0], -1, rows.shape[-1])


def read_memory(weights: Tensor, states: Tensor) -> Tensor:
    """Σ_j weight_j h_j: (R, …, D) from weights (R, …, S) and states (N, S, D)."""
    return torch.bmm(group_by_source(weights, states), states).view(*weights.shape[:-1], -1)
