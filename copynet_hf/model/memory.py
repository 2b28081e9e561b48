"""What a decoding step reads, what it passes to the next, and the cache, which keeps both between calls.

Shapes: R rows decode from N sources, R / N of them side by side from each: beams, or outputs of one source. S source
positions, F features of a source, T target steps, H hidden_size, D = 2 · encoder_hidden_size, A attention_size,
E embedding_size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache

from .copy_distribution import group_by_source


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
    attention_keys: (N, S, A) U h_j of Eq. 3, or (N, S, H) what the layers of a Transformers decoder attend to; None
        without attention.
    copy_keys: (N, S, H) tanh(h_j W_c) of Eq. 8; None without copy scores.
    final_state: (N, D) what s_0 is computed from: both directions' last states, or the text's state by
        `config.initial_state`.
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


class PastWords(EncoderDecoderCache):
    """What the layers of a Transformers decoder keep of the t words before: keys and values of words and source, and
    which words are padding. Steps change it in place.

    The source's keys and values are there once for each row, not for each source as in `Memory`: the library's
    attention has no rows that share them.
    """

    def __init__(self) -> None:
        super().__init__(DynamicCache(), DynamicCache())
        self.mask: Tensor | None = None
        """(R, t) bool, false on padding; None: there is none."""

    def extend_mask(self, keep: Tensor | None, rows: int, steps: int) -> Tensor | None:
        """The mask (R, t + steps) with that of new words, (R, steps) or None; call it before they are added."""
        if keep is None and self.mask is None:
            return None
        device = keep.device if keep is not None else self.mask.device  # type: ignore[union-attr]
        no_padding = torch.ones(rows, self.get_seq_length() + steps, dtype=torch.bool, device=device)
        before = no_padding[:, steps:] if self.mask is None else self.mask
        self.mask = torch.cat([before, no_padding[:, :steps] if keep is None else keep], dim=1)
        return self.mask

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorders the words by beam. Beams stay within their source, whose keys and padding do not move."""
        self.self_attention_cache.reorder_cache(beam_idx)  # type: ignore[arg-type]

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)
        if self.mask is not None:
            self.mask = self.mask[:, : self.get_seq_length()]


class DecoderState(NamedTuple):
    """What one step passes to the next.

    hidden: (R, H) s_{t-1}.
    copy_scores: (R, S) ψ_c of step t-1, of which ρ_t is made; zeros before the first step. None without copy scores.
    coverage: (R, S) sum of the attention so far, in float32 at least: narrower sums stop growing near one. None
        without coverage.
    attention: (R, S) a_{t-1}, for c_{t-1}; zeros before the first step. None where a_t is computed before s_t.
    past: of a Transformers decoder, the words before.
    """

    hidden: Tensor
    copy_scores: Tensor | None
    coverage: Tensor | None
    attention: Tensor | None = None
    past: PastWords | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> DecoderState:
        """The state with every tensor changed; a field that is None stays None."""
        return join_states([self], lambda fields: change(fields[0]))


def join_states(states: Sequence[DecoderState], join: Callable[[Sequence[Tensor]], Tensor]) -> DecoderState:
    """One state whose tensors are the given states' tensors, joined; a field that is None stays None. The words before
    are the last state's: there is one `PastWords` for all."""
    *fields, pasts = zip(*states, strict=True)
    joined = (None if field[0] is None else join(field) for field in fields)
    return DecoderState(*joined)._replace(past=pasts[-1])  # type: ignore[arg-type]


def choose_rows(condition: Tensor, state: DecoderState, other: DecoderState) -> DecoderState:
    """The state's rows where the condition (R, 1) holds, else the other's."""
    return join_states([state, other], lambda pair: torch.where(condition, pair[0], pair[1]))


class DecoderStep(NamedTuple):
    """What the decoder computes for one word: r_t (R, H), a_t (R, S) or None, and the state for the next step."""

    readout: Tensor
    attention: Tensor | None
    state: DecoderState


class DecoderSteps(NamedTuple):
    """What the decoder computed at each of T steps.

    readout: (R, T, H) r_t. attention: (R, T, S) a_tj or None. states: with an axis of T steps after the first.
    switch: (R, T) the logit of p_gen or λ, or None. end_scores: (R, T) u of a Pointer Network's end symbol, else None.
    """

    readout: Tensor
    attention: Tensor | None
    states: DecoderState
    switch: Tensor | None = None
    end_scores: Tensor | None = None


def stack_steps(steps: Sequence[DecoderStep]) -> DecoderSteps:
    """T steps side by side; a single step, as in a search, is not copied."""

    def stack(fields: Sequence[Tensor]) -> Tensor:
        return fields[0][:, None] if len(fields) == 1 else torch.stack(list(fields), dim=1)

    readouts, attentions, states = zip(*steps, strict=True)
    attention = None if attentions[0] is None else stack(attentions)
    return DecoderSteps(stack(readouts), attention, join_states(states, stack))


StepsRunner = Callable[[Tensor, Tensor, Memory, DecoderState | None, Tensor | None], DecoderSteps]
"""Computes what `Decoder.run_steps` does, from the same arguments; a cache may keep it from step to step."""


def read_memory(weights: Tensor, states: Tensor) -> Tensor:
    """Σ_j weight_j h_j: (R, …, D) from weights (R, …, S) and states (N, S, D)."""
    return torch.bmm(group_by_source(weights, states), states).view(*weights.shape[:-1], -1)


# ---- the cache


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

    def reset(self) -> None:
        self.states = self.memory = self.runner = None
        self.seen_tokens = 0
        self.is_initialized = False


class CopyNetCache(Cache):
    """A `Cache` whose layer holds a recurrent state instead of keys and values. For an ensemble, it has one layer for
    each member.

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


def choose_cache(cache: CopyNetCache | None, past_key_values: CopyNetCache | None) -> CopyNetCache | None:
    """The cache that was passed, by the name that Transformers has for it or had before 5.24; None: neither.

    Raises:
        ValueError: both were passed.
    """
    if cache is not None and past_key_values is not None:
        raise ValueError("cache and past_key_values are two names of one argument: pass one of them.")
    return past_key_values if cache is None else cache


def start_cache(cache: Cache | None, is_used: bool, number: int = 1) -> CopyNetCache | None:
    """The given cache; if there is none but one is used, an empty one with this number of layers.

    Raises:
        ValueError: the given cache is of another kind, or another number of models.
    """
    if cache is None:
        return CopyNetCache([CopyNetCacheLayer() for _ in range(number)]) if is_used else None
    if not isinstance(cache, CopyNetCache):
        raise ValueError(f"the cache is a {type(cache).__name__}: pass the CopyNetCache of an earlier call.")
    if len(cache) != number:
        raise ValueError(
            f"the cache has {len(cache)} layers, not {number}: pass the CopyNetCache of an earlier call of this model."
        )
    return cache
