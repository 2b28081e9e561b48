"""`past_key_values` of the decoders."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from .memory import DecoderState, Memory, StepsRunner, join_states, select_sources


class CopyNetCacheLayer(CacheLayerMixin):
    """The decoder's state after each recorded step, newest last, and what the steps of a search share.

    Only the newest state is kept unless `activate_past_recording` was called: assisted decoding rolls back to earlier
    ones. `states` holds the fields of `DecoderState`, each with a steps axis after the rows.
    """

    is_croppable = True
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.states: DecoderState | None = None
        self.memory: Memory | None = None
        self.runner: StepsRunner | None = None
        self.record_past = False
        self.seen_tokens = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: there are no keys and values, and the first `record` sets everything."""

    def update(self, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        raise TypeError("CopyNet's cache holds recurrent states, not keys and values: use `record`.")

    def record(self, states: DecoderState, memory: Memory, runner: StepsRunner | None = None) -> None:
        """Appends the states (rows, steps, …) after the tokens that led to them; keeps what the next steps need."""
        self.memory, self.runner = memory, runner
        self.seen_tokens += states.hidden.shape[1]
        if self.record_past and self.states is not None:
            states = join_states([self.states, states], lambda fields: torch.cat(list(fields), dim=1))
        self.states = states if self.record_past else states.map(lambda field: field[:, -1:])
        self.is_initialized = True

    def last(self) -> DecoderState | None:
        """The state after the last token, or None before the first."""
        return None if self.states is None else self.states.map(lambda field: field[:, -1])

    def get_seq_length(self) -> int:
        return self.seen_tokens

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen_tokens + query_length, 0

    def activate_past_recording(self) -> None:
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Removes the last −`tokens_to_remove` tokens; removing all of them returns to s_0."""
        steps, recorded = -tokens_to_remove, 0 if self.states is None else self.states.hidden.shape[1]
        if self.states is None or steps == 0:
            return
        if steps < 0 or steps > recorded or (steps == recorded < self.seen_tokens):
            raise ValueError(
                f"crop({tokens_to_remove}) is impossible with {recorded} of {self.seen_tokens} states recorded: pass "
                "a negative number, and call activate_past_recording() before decoding."
            )
        kept = recorded - steps
        if self.states.past is not None:
            self.states.past.crop(tokens_to_remove)
        self.states = self.states.map(lambda field: field[:, :kept])
        self.seen_tokens -= steps
        if kept == 0:  # the next call may decode from other sources
            self.states = self.memory = self.runner = None

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorders the states by beam. Beams stay within their source, so the memory does not move."""
        if self.states is None:
            return
        self.states = self.states.map(lambda field: field.index_select(0, beam_idx.to(field.device)))
        if self.states.past is not None:
            self.states.past.reorder_cache(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.states is not None:
            rows = torch.arange(self.states.hidden.shape[0], device=self.states.hidden.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.states is None or self.memory is None:
            return
        rows_per_source = self.states.hidden.shape[0] // self.memory.ids.shape[0]
        sources = indices // rows_per_source  # each row has a source of its own from here on
        self.states = self.states.map(lambda field: field[indices])
        if self.states.past is not None:
            self.states.past.batch_select_indices(indices)
        self.memory = select_sources(self.memory, sources)
        if self.runner is not None:
            self.runner = self.runner.select_sources(sources)

    def reset(self) -> None:
        self.states = self.memory = self.runner = None
        self.seen_tokens = 0
        self.is_initialized = False


class CopyNetCache(Cache):
    """`past_key_values` of CopyNet: a `Cache` whose layer holds a recurrent state instead of keys and values. That of
    an ensemble has a layer for each member.

    Args:
        layers: None: one that is empty.
    """

    def __init__(self, layers: list[CopyNetCacheLayer] | None = None) -> None:
        super().__init__(layers=[CopyNetCacheLayer()] if layers is None else layers)  # type: ignore[arg-type]

    @property
    def layer(self) -> CopyNetCacheLayer:
        return self.layers[0]  # type: ignore[return-value]

    def split(self) -> list[CopyNetCache]:
        """The caches of an ensemble's members, which share its layers."""
        return [CopyNetCache([layer]) for layer in self.layers]  # type: ignore[list-item]


def start_cache(cache: Cache | None, is_used: bool, number: int = 1) -> CopyNetCache | None:
    """The given cache; if there is none but one is used, an empty one with this number of layers.

    Raises:
        ValueError: the given cache is of another kind, or another number of models.
    """
    if cache is None:
        return CopyNetCache([CopyNetCacheLayer() for _ in range(number)]) if is_used else None
    if not isinstance(cache, CopyNetCache):
        raise ValueError(f"past_key_values is a {type(cache).__name__}: pass the CopyNetCache of an earlier call.")
    if len(cache) != number:
        raise ValueError(
            f"past_key_values has {len(cache)} layers, not {number}: pass the CopyNetCache of an earlier call of this "
            "model."
        )
    return cache
