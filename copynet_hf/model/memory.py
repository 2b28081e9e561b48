"""What a decoding step reads, and what it passes to the next.

Shapes: R rows decode from N sources, R / N of them side by side from each: beams, or outputs of one source. S source
positions, F features of a source, T target steps, H hidden_size, D = 2 · encoder_hidden_size, A attention_size,
E embedding_size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

from .outputs import CopyNetEncoderOutput

_ROW = "one entry for each of the R rows"
PerRow = Annotated[Tensor, _ROW]
PerSource = Annotated[Tensor, "one entry for each of the N sources"]

Fields = TypeVar("Fields", bound=tuple)


class Facts(NamedTuple):
    """Which positions are objects of facts and which belong to the question, (R, S) bool each; `RetrievalDecoder`."""

    is_object: PerRow
    is_question: PerRow


class FeatureMemory(NamedTuple):
    """The features f_k of the source, which `CopyNetAttention.read_features` reads.

    keys: (N, F, A) U_f e(f_k).
    contents: (N, F, D) W_f e(f_k); where the source has facts, (N, F, D + 3E).
    mask: (R, F) bool, false on padding and unknown features.
    """

    keys: PerSource
    contents: PerSource
    mask: PerRow


class Memory(NamedTuple):
    """The source as every decoding step reads it (M of the paper), computed once for all steps.

    Wide tensors are kept once for each source, narrow ones once for each row.

    hidden_states: (N, S, D) h_j; where the source has facts, (N, S, D + 3E) [h_j; f_j].
    attention_keys: (N, S, A) U h_j of Eq. 3; None without attention.
    copy_keys: (N, S, H) tanh(h_j W_c) of Eq. 8; None without copy scores.
    final_state: (R, D) both directions' last states.
    mask: (R, S) bool, positions that can be copied; false on padding.
    ids: (R, S) extended ids x_j.
    first_positions: (R, S) the first position of each word, as `find_first_positions` returns it; only in a search.
    inputs: (N, S, E) projected points, for sources that are not words: fed back as e(y_{t-1}).
    facts: set where the source has facts.
    features: set where the source has features.
    """

    hidden_states: PerSource
    attention_keys: PerSource | None
    copy_keys: PerSource | None
    final_state: PerRow
    mask: PerRow
    ids: PerRow
    first_positions: PerRow | None = None
    inputs: PerSource | None = None
    facts: Facts | None = None
    features: FeatureMemory | None = None

    def select(self, rows: Tensor) -> Memory:
        """The memory of the given rows, each with a source of its own."""
        sources = rows // (self.ids.shape[0] // self.hidden_states.shape[0])
        return select_rows(self, rows, sources)

    def expand(self, times: int) -> Memory:
        """The memory of N sources, for `times` rows side by side from each."""

        def repeat(field: Tensor, is_per_row: bool) -> Tensor:
            return field[:, None].expand(-1, times, *field.shape[1:]).flatten(0, 1) if is_per_row else field

        return _map_fields(self, repeat)


def select_rows(fields: Fields, rows: Tensor, sources: Tensor) -> Fields:
    """A NamedTuple of `PerRow` and `PerSource` tensors, for the given rows and their sources."""
    return _map_fields(fields, lambda field, is_per_row: field[rows if is_per_row else sources])


def _map_fields(fields: Fields, change: Callable[[Tensor, bool], Tensor]) -> Fields:
    """Changes each tensor, also inside nested tuples; `change` is told whether the field is declared `PerRow`."""
    declared: dict[str, Any] = get_type_hints(type(fields), include_extras=True)
    changed: dict[str, Any] = {}
    for name, field in fields._asdict().items():  # type: ignore[attr-defined]
        if isinstance(field, Tensor):
            kinds = (declared[name], *get_args(declared[name]))  # the kind itself, or inside `| None`
            changed[name] = change(field, any(_ROW in getattr(kind, "__metadata__", ()) for kind in kinds))
        elif isinstance(field, tuple):
            changed[name] = _map_fields(field, change)
    return fields._replace(**changed)  # type: ignore[attr-defined]


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


def repeat_for_rows(encoded: CopyNetEncoderOutput, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Last states (R, D), mask (R, S) and ids (R, S) of N sources, for the R rows that decode from them."""
    times = rows // encoded.source_ids.shape[0]
    fields = (encoded.final_state, encoded.source_mask, encoded.source_ids)
    final_state, mask, ids = (field.repeat_interleave(times, dim=0) for field in fields)
    return final_state, mask, ids


def group_by_source(rows: Tensor, sources: Tensor) -> Tensor:
    """(R, …, X) as (N, R / N · …, X): the rows that decode from each of the N sources side by side."""
    return rows.reshape(sources.shape[0], -1, rows.shape[-1])


def read_memory(weights: Tensor, states: Tensor) -> Tensor:
    """Σ_j weight_j h_j: (R, …, D) from weights (R, …, S) and states (N, S, D)."""
    return torch.bmm(group_by_source(weights, states), states).view(*weights.shape[:-1], -1)
