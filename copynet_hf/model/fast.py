"""Which form of the equations runs, the fast or the readable one, and what runs the decoder's steps in the fast form.

The fast form, `fused` in code and config, has gradients by hand and uses weights directly: it bypasses modules' hooks
and replacements, and tracers cannot see into it. So it runs only where that makes no difference. `find_runner` looks
up the exact type of the decoder, so that a new decoder, or a subclass, runs its own `step`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from .configuration_copynet import CopyNetConfig
from .copy_distribution import copy_scores, expand_to_rows, group_by_source, masked_softmax
from .decoder import CopyNetDecoder, Decoder
from .fast_copynet import DecoderWeights, run_all_steps, stack_weights
from .fast_step import allocate_units, attend_to_features, attention_energies, multiply_state, update_state
from .layers import AddedProjection, CopyNetAttention, Dropout
from .memory import (
    CopyNetCache,
    DecoderState,
    DecoderStep,
    DecoderSteps,
    FeatureMemory,
    Memory,
    StepsRunner,
    read_memory,
)

# The expected length of outputs, and the number of rows up to which a product takes as long as with one: they decide
# whether projecting the memory pays.
_EXPECTED_WORDS = 16
_FEWEST_ROWS = 8
# The modules whose weights the fast form reads instead of calling them.
_MODULES = (
    "cell",
    "readout_proj",
    "attention",
    "attention.query_proj",
    "attention.score_proj",
    "attention.coverage_proj",
    "dropout",
)
_METHODS = ("step", "run_steps", "attend", "_read")  # of the decoder, that the fast form does not call
_OWN_TYPES = (nn.Linear, nn.GRU, nn.GRUCell, AddedProjection, CopyNetAttention, Dropout)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def find_fast_form_obstacles(
    config: CopyNetConfig, modules: Mapping[str, nn.Module | None] | None = None, device: torch.device | None = None
) -> list[str]:
    """Why the readable form has to run; an empty list: the fast form may.

    Args:
        modules: by name, those whose weights the fast form reads; None where the config leaves one out.
        device: where the activations are.
    """
    reasons = []
    if not config.use_fused:
        reasons.append("use_fused=False: the user's choice")
    if torch.compiler.is_compiling():
        reasons.append("torch.compile or torch.export is tracing the model")
    if torch.jit.is_tracing():
        reasons.append("torch.jit.trace is tracing the model, and cannot save the fast form")
    if torch._C._are_functorch_transforms_active():
        reasons.append("torch.func is transforming the model")
    if device is not None and device.type == "meta":
        reasons.append("the meta device has no values to index by")
    if modules and any(getattr(torch_module, f"_global{hooks}") for hooks in _HOOKS):
        reasons.append("a hook is registered for all modules")
    for name, module in (modules or {}).items():
        if module is not None:
            reasons += [f"{name} {reason}" for reason in _replacements(module, device)]
    return reasons


def _replacements(module: nn.Module, device: torch.device | None) -> list[str]:
    """What makes a module do more than its class and weights say."""
    reasons = []
    if type(module) not in _OWN_TYPES:  # an adapter, quantised, pruned or otherwise parametrised
        reasons.append(f"is a {type(module).__name__}")
    if any(getattr(module, hooks) for hooks in _HOOKS):
        reasons.append("has hooks")
    reasons += _replaced_methods(module)
    kinds = {type(weight) for weight in module.parameters(recurse=False)} - {nn.Parameter}
    reasons += [f"has a weight that is a {kind.__name__}" for kind in kinds]  # a quantised or distributed one
    if any(weight.device != device for weight in module.parameters(recurse=False)):
        reasons.append("is offloaded")
    return reasons


def _replaced_methods(module: nn.Module, names: Collection[str] = ("forward", "scores", "read_features")) -> list[str]:
    """Which of these methods were replaced on this module, as accelerate replaces `forward`."""
    return [f"has a {name} of its own" for name in names if name in vars(module)]


def find_runner(
    decoder: Decoder,
    memory: Memory,
    rows: int,
    state: DecoderState | None,
    keep: Tensor | None,
    cache: CopyNetCache | None,
) -> StepsRunner | None:
    """What computes these steps faster than `Decoder.run_steps`, the same numbers; None: nothing does.

    Args:
        rows: R, how many rows decode from the memory.
        state, keep: as in `Decoder.forward`.
        cache: of a search, which keeps the runner from step to step; None: teacher forcing.
    """
    begun = None if cache is None else cache.layer.runner
    if begun is not None and not (torch.is_grad_enabled() or decoder.dropout.training):
        return begun
    if find_obstacles(decoder, memory, rows, state, keep, cache is not None):
        return None
    assert isinstance(decoder, CopyNetDecoder)
    if cache is not None:
        return SearchPlan.precompute(decoder, memory, rows)
    return partial(run_all_steps, decoder)


def find_obstacles(
    decoder: Decoder,
    memory: Memory,
    rows: int,
    state: DecoderState | None = None,
    keep: Tensor | None = None,
    is_search: bool = False,
) -> list[str]:
    """Why the decoder's own steps have to run; empty: a runner may. Arguments as in `find_runner`."""
    if type(decoder) is not CopyNetDecoder:
        return [f"a {type(decoder).__name__} has no fast form"]
    found = dict(decoder.named_modules(remove_duplicate=False))
    modules = {name: found.get(name) for name in _MODULES}
    reasons = find_fast_form_obstacles(decoder.config, modules, memory.mask.device)
    reasons += [f"the decoder {reason}" for reason in _replaced_methods(decoder, _METHODS)]
    if decoder.attention is None:
        reasons.append("attention=False: there is nothing to speed up")
    if is_search and torch.is_grad_enabled():
        reasons.append("a search with gradients")
    if is_search and decoder.dropout.training:
        reasons.append("a search with dropout")
    if not is_search and (state is not None or keep is not None or rows != memory.ids.shape[0]):
        reasons.append("teacher forcing that continues, with padding, or with several rows for a source")
    return reasons


@dataclass(frozen=True)
class SearchPlan:
    """The steps of a search, without gradients and dropout: one softmax and one pass over the memory serve both reads.

    weights: in the memory's precision.
    keys: (N, S, A) 2U h_j.
    context, selective: (N, S, 3H or X) h_j projected by the weights of c_t and of ζ_t; None where the projection would
        cost more than it saves.
    features: `Memory.features` with keys 2U_f e(f_k) and contents (N, F, 3H or X) projected by the weights of c_t.
    """

    decoder: CopyNetDecoder
    weights: DecoderWeights
    keys: Tensor
    context: Tensor | None
    selective: Tensor | None
    features: FeatureMemory | None

    @classmethod
    def precompute(cls, decoder: CopyNetDecoder, memory: Memory, rows: int) -> SearchPlan:
        """Projects the memory if that multiplies fewer rows than the steps of the search are expected to; features,
        which are few, always."""
        assert memory.attention_keys is not None
        states, features = memory.hidden_states, memory.features
        weights = stack_weights(decoder).to(states.dtype)
        context = selective = None
        if states.shape[:2].numel() <= _EXPECTED_WORDS * max(rows, _FEWEST_ROWS):
            context = states @ weights.recurrent.context.t()
            if weights.recurrent.selective is not None:
                selective = states @ weights.recurrent.selective.t()
        if features is not None:
            contents = features.contents @ weights.recurrent.context.t()
            features = features._replace(keys=2 * features.keys, contents=contents)
        return cls(decoder, weights, 2 * memory.attention_keys, context, selective, features)

    def __call__(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps:
        return self.decoder.run_steps(embeddings, matches, memory, state, keep, self.step)

    def step(self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState) -> DecoderStep:
        """`CopyNetDecoder.step`."""
        weights, keys, (rows, size) = self.weights.recurrent, self.keys, state.hidden.shape
        attention_size, attends_after = keys.shape[2], self.decoder.attends_after
        mask, features = expand_to_rows(memory.mask, rows), self.features
        inputs = nn.functional.linear(embedding.to(self.weights.bias.dtype), self.weights.embedding, self.weights.bias)
        columns, units = inputs.new_empty(rows, attention_size + 4 * size), allocate_units(keys, rows)
        query = columns[:, :attention_size]
        multiply_state(state.hidden, weights, columns, with_query=not attends_after or features is not None)

        def compute_energies(query: Tensor) -> Tensor:
            return attention_energies(keys, query, state.coverage, weights, units)

        attention: Tensor | None
        if attends_after:  # c_{t-1}; nothing is read selectively
            assert state.attention is not None
            attention = state.attention
            reads = attention[:, None]
        elif weights.selective is None or state.copy_scores is None:
            attention = masked_softmax(compute_energies(query), mask)
            reads = attention[:, None]
        else:  # a_t and ρ_t
            scores = torch.stack([compute_energies(query), state.copy_scores], dim=1)
            reads = masked_softmax(scores, torch.stack([mask, matches], dim=1))  # (R, 2, S)
            attention = reads[:, 0]
        self._add_contents(inputs, reads, memory)
        if features is not None:
            read = attend_to_features(features._replace(mask=expand_to_rows(features.mask, rows)), query, weights)
            _add_projected(inputs, read, features.contents)
        hidden, readout = torch.empty_like(state.hidden), torch.empty_like(state.hidden)
        update_state(inputs, state.hidden, weights, columns, hidden, readout)
        if attends_after:  # the query is s_t, not s_{t-1}
            attention = masked_softmax(compute_energies(hidden @ weights.state[:attention_size].t()), mask)
        copied = None if memory.copy_keys is None else copy_scores(memory.copy_keys, readout)
        coverage = None if state.coverage is None else state.coverage + attention
        after = DecoderState(hidden, copied, coverage, attention if attends_after else None)
        return DecoderStep(readout, attention, after)

    def _add_contents(self, inputs: Tensor, reads: Tensor, memory: Memory) -> None:
        """Adds the products of c_t, and of ζ(y_{t-1}) if it is read, to inputs (R, X).

        reads: (R, 1 or 2, S) a_t, and ρ_t if there is a selective read.
        """
        recurrent = self.weights.recurrent
        if self.context is None:
            contents = read_memory(reads, memory.hidden_states).unbind(1)  # c_t and ζ(y_{t-1}): (R, D) each
            for content, weight in zip(contents, (recurrent.context, recurrent.selective), strict=False):
                assert weight is not None
                inputs[:, : len(weight)].addmm_(content, weight.t())
            return
        for weights, states in zip(reads.unbind(1), (self.context, self.selective), strict=False):
            assert states is not None
            _add_projected(inputs, weights, states)


def _add_projected(inputs: Tensor, weights: Tensor, projected: Tensor) -> None:
    """Adds to inputs (R, X) what the weights (R, S) read of the projected states (N, S, at most X)."""
    products = group_by_source(inputs, projected)[..., : projected.shape[2]]
    products.baddbmm_(group_by_source(weights, projected), projected)
