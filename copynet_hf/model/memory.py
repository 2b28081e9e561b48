"""What a decoding step reads and what it hands on.

Shapes: R rows decode from N sources, R / N of them side by side from each: beams, or outputs of one source. S source
positions, T target steps, H hidden_size, D = 2 · encoder_hidden_size, A attention_size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .fused import DecoderWeights
from .outputs import CopyNetEncoderOutput


class StepWeights(NamedTuple):
    """The decoder's weights as `fused_step` multiplies with them, put together once for all steps.

    embedding: (X, E) and bias: (X), where X = 3H for the gates, or 4H with the readout below them unless r_t = s_t.
    recurrent: what depends on the state and on what is read.
    words: (V, X) what is taken of each word's embedding, with the bias; None where it does not pay.
    """

    embedding: Tensor
    bias: Tensor
    recurrent: DecoderWeights
    words: Tensor | None


class Facts(NamedTuple):
    """The facts of a source, each at the position of its object; see `retrieval_copynet`.

    hidden_states: (N, S, 3E) f_j, zero elsewhere.
    is_object, is_question: (R, S) bool.
    attention_keys, retrieve_keys: (N, S, A), for what is read and for what is written.
    """

    hidden_states: Tensor
    is_object: Tensor
    is_question: Tensor
    attention_keys: Tensor
    retrieve_keys: Tensor


class Memory(NamedTuple):
    """The source as every decoding step reads it (M of the paper), computed once for all steps.

    What is wide is kept once for each source, what is narrow for each row. From `leaders` to `weights`, they are
    made for searches alone (`CopyNetDecoder.prepared`).

    hidden_states: (N, S, D) h_j.
    attention_keys: (N, S, A) 2U h_j, see `CopyNetAttention`; None without attention.
    copy_keys: (N, S, H) tanh(h_j W_c) of Eq. 8; None without copying.
    final_state: (R, D) both directions' last states.
    mask: (R, S) bool, false on padding.
    ids: (R, S) extended ids x_j.
    leaders: (R, S) the first position of each word, as `first_positions` gives it.
    key_factors: (N, S, A) e^(−2U h_j); None where the attention takes the keys.
    reads: (N, S, X) what gates and readout take of h_j as part of c_t; (N, 2S, X) with a selective read, each followed
        by what they take of h_j as part of ζ_t. None where it does not pay.
    weights: for `fused_step`; None where `CopyNetDecoder.step` is taken.
    inputs: (N, S, E) what the encoder read, where the source is no words and is fed back.
    facts: what stands at the positions of objects, where the source has facts.
    """

    hidden_states: Tensor
    attention_keys: Tensor | None
    copy_keys: Tensor | None
    final_state: Tensor
    mask: Tensor
    ids: Tensor
    leaders: Tensor | None = None
    key_factors: Tensor | None = None
    reads: Tensor | None = None
    weights: StepWeights | None = None
    inputs: Tensor | None = None
    facts: Facts | None = None

    def select(self, rows: Tensor) -> Memory:
        """The memory of the given rows, each of them with a source of its own."""
        sources = rows // (self.ids.shape[0] // self.hidden_states.shape[0])
        return self._changed(lambda field, is_narrow: field[rows if is_narrow else sources])

    def repeated(self, times: int) -> Memory:
        """The memory of N sources, for so many rows side by side from each."""

        def change(field: Tensor, is_narrow: bool) -> Tensor:
            return field[:, None].expand(-1, times, *field.shape[1:]).flatten(0, 1) if is_narrow else field

        return self._changed(change)

    def _changed(self, change: Callable[[Tensor, bool], Tensor]) -> Memory:
        """With each tensor changed, which is told whether it is kept for each row."""
        narrow = {"final_state", "mask", "ids", "leaders", "is_object", "is_question"}

        def changed(part: Memory | Facts) -> dict[str, Any]:
            fields = {name: field for name, field in part._asdict().items() if isinstance(field, Tensor)}
            return {name: change(field, name in narrow) for name, field in fields.items()}

        return self._replace(**changed(self), facts=None if self.facts is None else Facts(**changed(self.facts)))


class DecoderState(NamedTuple):
    """All that one step hands to the next.

    hidden: (R, H) s_{t-1}.
    copy_scores: (R, S) ψ_c of step t-1, which ρ_t is made of; zeros before the first step. None without copying.
    coverage: (R, S) sum of the attention so far, in float32 at least: narrower sums stop growing near one. None
        without coverage.
    attention: (R, S) a_{t-1}, which the next state reads the source by; zeros before the first step. None where that
        state's own step attends first.
    """

    hidden: Tensor
    copy_scores: Tensor | None
    coverage: Tensor | None
    attention: Tensor | None = None


def combined(states: Sequence[DecoderState], join: Callable[[Sequence[Tensor]], Tensor]) -> DecoderState:
    """One state whose fields are the given states' fields, joined; a field that is None stays None."""
    fields = (None if field[0] is None else join(field) for field in zip(*states, strict=True))
    return DecoderState(*fields)  # type: ignore[arg-type]


def where(condition: Tensor, pair: Sequence[Tensor]) -> Tensor:
    """The first field where the condition holds, else the second; for `combined`."""
    return torch.where(condition, pair[0], pair[1])


class DecoderSteps(NamedTuple):
    """What the decoder did at each of T steps; the last four are those of `DecoderState`, with a steps axis.

    readout: (R, T, H) r_t; attention: (R, T, S) a_tj or None; switch: (R, T) the logit of p_gen or λ, or None. All
    stand side by side, because reentrant gradient checkpointing hands on no gradient to a tensor inside another tuple.
    """

    readout: Tensor
    attention: Tensor | None
    switch: Tensor | None
    hidden: Tensor
    copy_scores: Tensor | None
    coverage: Tensor | None
    attended: Tensor | None = None

    @property
    def states(self) -> DecoderState:
        return DecoderState(self.hidden, self.copy_scores, self.coverage, self.attended)


def for_rows(encoded: CopyNetEncoderOutput, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Last states, mask and ids of N sources, for the rows that decode from them: (R, D), (R, S) and (R, S)."""
    times = rows // encoded.source_ids.shape[0]
    narrow = (encoded.final_state, encoded.source_mask, encoded.source_ids)
    final_state, mask, ids = (field.repeat_interleave(times, dim=0) for field in narrow)
    return final_state, mask, ids


def by_source(rows: Tensor, sources: Tensor) -> Tensor:
    """(R, …, X) as (N, R / N · …, X): the rows that decode from each of the N sources side by side."""
    return rows.reshape(sources.shape[0], -1, rows.shape[-1])


def read(weights: Tensor, hidden_states: Tensor) -> Tensor:
    """Σ_j weight_j h_j: (R, …, D) from (R, …, S) and (N, S, D)."""
    return torch.bmm(by_source(weights, hidden_states), hidden_states).view(*weights.shape[:-1], -1)
