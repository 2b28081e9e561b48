"""CoreQA's decoder under teacher forcing in its fast form, with the gradient by hand.

The readable form is `RetrievalDecoder.step`. It has four networks v·tanh(U m_j + W s + w_cov cov_j), two for each
position: ψ_co and an attention in the question, ψ_re and an attention in the facts. Here they are one network whose
weights depend on the position. It runs once for each state: s_{t-1} is the query of ψ_{t-1} and of a_t.

Letters and shapes are those of `fused_decoder`, with M = D + 3E columns of the memory, and P ≤ S positions that are
read: the question's words and the objects of facts. d_x is the gradient of the loss with respect to x. A step lays out
what it computes side by side in columns; see `gru`:

    w_cov of the four networks, 4A | their W s_{t-1}, 4A | W_hn s_{t-1} + b_hn | r | z | n
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .attention import CopyNetAttention
from .copy_distribution import at_least_float32, masked_softmax
from .fused_decoder import add_reads_of_single_positions, softmax_backward, sum_outer_products
from .gru import gru_step, gru_step_backward, steps_to_keep, tanh_backward
from .memory import Memory


class RetrievalWeights(NamedTuple):
    """Weights of the recurrence.

    score, coverage: (4, A) v and w_cov of the networks ψ_co, ψ_re, attention to the question, attention to facts.
    state: (4A + 3H, H) W of the networks above W_hh of the GRU, its gates in the order n, r, z: all multiply s_{t-1}.
    constant: (B, 4A + 3H) what every step adds to them: the product with q, and b_hh.
    selective: (3H, M) W_ih for [r_q; r_kb]. context: (3H, M) W_ih for [c_q; c_kb].
    """

    score: Tensor
    coverage: Tensor
    state: Tensor
    constant: Tensor
    selective: Tensor
    context: Tensor


def run_fused_retrieval(
    embeddings: Tensor,
    matches: Tensor,
    memory: Memory,
    initial: Tensor,
    cell: nn.GRUCell,
    networks: tuple[CopyNetAttention, ...],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All steps from s_0 (B, H), with the gradient by hand.

    Args:
        embeddings: (B, T, E). matches: (B, T, S) bool, x_j = y_{t-1}.
        networks: in the order of `RetrievalWeights`.

    Returns:
        s_t (B, T, H), [c_q; c_kb] (B, T, M), ψ_t (B, T, S) and a_t (B, T, S).
    """
    assert memory.facts is not None
    assert memory.attention_keys is not None
    assert memory.copy_keys is not None
    is_part = torch.stack([memory.facts.is_question, memory.facts.is_object], dim=1)  # (B, 2, S)
    index = _find_read_positions(is_part)  # (B, P)
    is_part = is_part.gather(2, index[:, None].expand(-1, 2, -1))
    fields = (memory.hidden_states, memory.copy_keys, memory.attention_keys)
    states, *keys = (_take_positions(field, index) for field in fields)
    index_by_step = index.expand(embeddings.shape[1], -1, -1)
    selected = matches.transpose(0, 1).gather(2, index_by_step)[:, :, None] & is_part  # (T, B, 2, P)
    is_single = selected.sum(-1, keepdim=True) == 1

    sizes = (embeddings.shape[2], states.shape[2], states.shape[2])
    weight_of_embedding, *weights_of_reads = cell.weight_ih.split(sizes, dim=1)
    inputs = nn.functional.linear(embeddings.transpose(0, 1), weight_of_embedding, cell.bias_ih)  # (T, B, 3H)
    inputs = add_reads_of_single_positions(inputs, (selected & is_single).any(2), states, weights_of_reads[0])
    weights = _stack_weights(cell, networks, memory.final_state, *weights_of_reads)
    tensors = (states, torch.stack(keys, dim=1), initial, *weights)
    hidden, contexts, scores, attention = FusedRetrieval.apply(
        inputs, selected & ~is_single, is_part, *(tensor.to(inputs.dtype) for tensor in tensors)
    )
    nothing = inputs.new_zeros(matches.transpose(0, 1).shape)
    scores, attention = (nothing.scatter(2, index_by_step, each) for each in (scores, attention))
    return hidden.transpose(0, 1), contexts.transpose(0, 1), scores.transpose(0, 1), attention.transpose(0, 1)


def _find_read_positions(is_part: Tensor) -> Tensor:
    """(B, P) the positions of question and facts, the others last; from (B, 2, S) bool."""
    is_read = is_part.any(1)
    count = max(1, int(is_read.sum(1).max()))
    return is_read.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :count]


def _take_positions(field: Tensor, index: Tensor) -> Tensor:
    """(B, P, X) of (B, S, X)."""
    rows = index + field.shape[1] * torch.arange(len(index), device=index.device)[:, None]
    return field.flatten(0, 1).index_select(0, rows.flatten()).view(*index.shape, -1)


def _stack_weights(
    cell: nn.GRUCell, networks: tuple[CopyNetAttention, ...], q: Tensor, selective: Tensor, context: Tensor
) -> RetrievalWeights:
    """The weights for q (B, D), the question's last states; the query of the attention to facts is [s; q]."""
    size = cell.hidden_size
    queries = [network.query_proj.weight[:, :size] for network in networks]
    product_of_q = nn.functional.linear(q, networks[-1].query_proj.weight[:, size:])  # (B, A)
    zeros = product_of_q.new_zeros(len(q), sum(map(len, queries[:-1])))
    gates = (2 * size, size)  # r and z, n
    bias = torch.cat(cell.bias_hh.split(gates)[::-1]).expand(len(q), -1)
    return RetrievalWeights(
        score=torch.cat([network.score_proj.weight for network in networks]),
        coverage=torch.cat([network.coverage_proj.weight.t() for network in networks if network.coverage_proj]),
        state=torch.cat([*queries, *cell.weight_hh.split(gates)[::-1]]),
        constant=torch.cat([zeros, product_of_q.to(bias.dtype), bias], dim=1),
        selective=selective,
        context=context,
    )


# ---- the recurrence


class _Saved(NamedTuple):
    """What the backward pass reads; see `FusedRetrieval`. R of the T steps have repeated words."""

    columns: Tensor  # (T + 1, B, 8A + 4H), the last ones for ψ_{T-1} alone
    decoder_states: Tensor  # (T + 1, B, H) s_{-1} … s_{T-1}
    attention: Tensor  # (T, B, 2, P) a_t in the question and in the facts
    contexts: Tensor  # (T, B, M) [c_q; c_kb]
    rho: Tensor  # (R, B, 2, P)
    reads: Tensor  # (R, B, M) [r_q; r_kb]
    coefficients: Tensor  # (T + 1, B, 2P, 8) of w_cov and W s_{t-1}; see `_write_units`
    states: Tensor  # (B, P, M)
    keys: Tensor  # (B, 2P, A)


class FusedRetrieval(torch.autograd.Function):
    """All steps of `RetrievalDecoder` under teacher forcing, from s_0, with the gradient by hand.

    Args:
        inputs: (T, B, 3H) the products of all that is known before the loop, biases included: of e(y_{t-1}), and of
            r_q and r_kb where y_{t-1} is at one position.
        repeats: (T, B, 2, P) bool, x_j = y_{t-1} where that word is at several positions of the question, or of the
            facts.
        is_part: (B, 2, P) bool, whether a position belongs to the question, and whether to the facts.
        states: (B, P, M) [h_j; 0] in the question, [0; f_j] in the facts.
        keys: (B, 2, P, A) U m_j, of ψ and of the attention.
        initial: (B, H) s_0.
        weights: the fields of `RetrievalWeights`.

    Returns:
        s_t (T, B, H), [c_q; c_kb] (T, B, M), ψ_t (T, B, P) and a_t (T, B, P).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        repeats: Tensor,
        is_part: Tensor,
        states: Tensor,
        keys: Tensor,
        initial: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        w = RetrievalWeights(*weights)
        (steps, batch, _), size, (_, length, width) = inputs.shape, initial.shape[1], states.shape
        numbers = {t: number for number, t in enumerate(repeats.flatten(1).any(1).nonzero()[:, 0].tolist())}
        new, kept = inputs.new_empty, steps_to_keep(ctx, steps + 1)
        saved = _Saved(
            columns=new(kept, batch, w.coverage.numel() + len(w.state) + size),
            decoder_states=new(steps + 1, batch, size),
            attention=new(steps, batch, 2, length),
            contexts=new(steps, batch, width),
            rho=new(len(numbers), batch, 2, length),
            reads=new(len(numbers), batch, width),
            coefficients=new(steps + 1, batch, 2 * length, 8),
            states=states,
            keys=keys.flatten(1, 2),
        )
        saved.decoder_states[0] = initial
        saved.columns[..., : w.coverage.numel()] = w.coverage.flatten()
        saved.coefficients[..., 4:] = _find_networks(is_part)
        is_own = saved.coefficients[0, ..., 4:]
        score, units = is_own @ w.score, torch.empty_like(saved.keys)  # (B, 2P, A)
        coverage = at_least_float32(inputs.new_zeros(batch, steps + 2, length))  # cov_{-1} … cov_T
        covered, views, scores = _pair_steps(coverage), _view_columns(saved.columns, size), []
        hidden, attention, contexts, coefficients = _unbind(
            saved.decoder_states, saved.attention, saved.contexts, saved.coefficients
        )
        known, coverage_coefficients = _unbind(inputs, saved.coefficients[..., :4].unflatten(2, (2, -1)))
        coverage_by_step, own_by_part = coverage.unbind(1), is_own.unflatten(1, (2, -1))
        state_weight, context_weight = w.state.t(), w.context.t()
        for t in range(steps + 1):
            products, vectors, gates = views[t % kept]
            torch.addmm(w.constant, hidden[t], state_weight, out=products)
            torch.mul(covered[t], own_by_part, out=coverage_coefficients[t])
            _write_units(saved.keys, coefficients[t], vectors, units)
            psi, energies = (units * score).sum(-1).chunk(2, dim=1)  # (B, P): ψ_{t-1}, and of a_t
            scores.append(psi)
            if t == steps:
                break
            input_gates = known[t]
            if t in numbers:
                psi = psi if t else torch.zeros_like(psi)  # nothing was copied before the first step
                read = _read(psi, repeats[t], states, saved.rho[numbers[t]], saved.reads[numbers[t]])
                input_gates = torch.addmm(input_gates, read, w.selective.t())
            context = _read(energies, is_part, states, attention[t], contexts[t])
            gru_step(gates, torch.addmm(input_gates, context, context_weight), hidden[t], None, hidden[t + 1])
            torch.add(coverage_by_step[t + 1], attention[t].sum(1), out=coverage_by_step[t + 2])
        ctx.numbers = numbers
        ctx.save_for_backward(*saved, *weights)
        return saved.decoder_states[1:], saved.contexts, torch.stack(scores[1:]), saved.attention.sum(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor, d_contexts: Tensor, d_scores: Tensor, d_attention: Tensor) -> Any:
        tensors = ctx.saved_tensors  # checkpointing allows one access
        saved, w = _Saved(*tensors[: len(_Saved._fields)]), RetrievalWeights(*tensors[len(_Saved._fields) :])
        (steps, batch, size), numbers = d_states.shape, ctx.numbers
        d_columns, d_reads = torch.empty_like(saved.columns), torch.empty_like(saved.reads)
        d_columns[steps] = 0  # there is no step T
        d_products, d_gates = d_columns[..., w.coverage.numel() : -size], d_columns[:-1, :, -3 * size :]
        d_contexts = d_contexts.clone()  # the gates add to it
        d_hidden, states = torch.zeros_like(saved.decoder_states[0]), saved.states.transpose(1, 2)
        grads = _NetworkGradients.zeros(saved, w)
        d_psi, d_energies = grads.energies.chunk(2, dim=1)
        d_coverage = at_least_float32(d_attention.new_zeros(batch, steps + 2, d_attention.shape[2]))
        d_covered = _pair_steps(d_coverage)
        views, d_views = _view_columns(saved.columns, size), _view_columns(d_columns, size)
        hidden, attention, coefficients = _unbind(saved.decoder_states, saved.attention, saved.coefficients)
        d_states_by_step, d_gates_by_step, d_contexts_by_step = _unbind(d_states, d_gates, d_contexts)
        d_coverage_by_step, d_attention_by_step = d_coverage.unbind(1), d_attention.unbind()
        for t in reversed(range(steps + 1)):
            (_, vectors, gru_columns), (d_product, d_vectors, d_gru_columns) = views[t], d_views[t]
            d_psi.copy_(d_scores[t - 1] if t else torch.zeros_like(d_psi))
            if t < steps:
                d_state = d_states_by_step[t] + d_hidden
                d_hidden = gru_step_backward(d_state, hidden[t], gru_columns, d_gru_columns)
                d_weights = d_attention_by_step[t] + d_coverage_by_step[t + 2]  # cov_{t+1} = cov_t + a_t
                d_coverage_by_step[t + 1].add_(d_coverage_by_step[t + 2])
                d_context = d_contexts_by_step[t].addmm_(d_gates_by_step[t], w.context)
                d_energies.copy_(_read_backward(d_context, d_weights, attention[t], states))
            if t in numbers:
                d_read = torch.mm(d_gates_by_step[t], w.selective, out=d_reads[numbers[t]])
                if t:  # ψ_{-1} is constant
                    d_psi.add_(_read_backward(d_read, None, saved.rho[numbers[t]], states))
            d_covered[t].add_(grads.add_step(saved.keys, coefficients[t], vectors, d_vectors))
            d_hidden.addmm_(d_product, w.state)  # through W s_{t-1} and W_hh s_{t-1}
        # [c_q; c_kb] = Σ_j a_tj m_j and [r_q; r_kb] = Σ_j ρ_tj m_j, over all steps
        weights = torch.cat([saved.attention, saved.rho]).sum(2)  # (T + R, B, P)
        d_memory = torch.bmm(weights.permute(1, 2, 0), torch.cat([d_contexts, d_reads]).transpose(0, 1))
        d_w = RetrievalWeights(
            score=sum_outer_products(saved.coefficients[0, ..., 4:].to(grads.score.dtype), grads.score),
            coverage=d_columns[..., : w.coverage.numel()].sum((0, 1)).view_as(w.coverage),
            state=sum_outer_products(d_products, saved.decoder_states),
            constant=d_products.sum(0),
            selective=sum_outer_products(d_gates[list(numbers)], saved.reads),
            context=sum_outer_products(d_gates, saved.contexts),
        )
        return d_gates, None, None, d_memory, grads.keys.unflatten(1, (2, -1)), d_hidden, *d_w


class _NetworkGradients(NamedTuple):
    """Gradients of the networks by position, and what they are computed with; each (B, 2P, A) unless stated.

    energies: (B, 2P) of the step's ψ and attention; the caller writes them. keys, score: summed over the steps.
    score_weight, coverage_weight: v and w_cov. units, d_units: buffers.
    """

    energies: Tensor
    keys: Tensor
    score: Tensor
    score_weight: Tensor
    coverage_weight: Tensor
    units: Tensor
    d_units: Tensor

    @classmethod
    def zeros(cls, saved: _Saved, w: RetrievalWeights) -> _NetworkGradients:
        zeros, is_own = torch.zeros_like(saved.keys), saved.coefficients[0, ..., 4:]
        by_position = (is_own @ w.score, is_own @ w.coverage)
        buffers = (torch.empty_like(zeros), torch.empty_like(zeros))
        energies = zeros.new_zeros(zeros.shape[:2])
        return cls(energies, zeros, at_least_float32(torch.zeros_like(zeros)), *by_position, *buffers)

    def add_step(self, keys: Tensor, coefficients: Tensor, vectors: Tensor, d_vectors: Tensor) -> Tensor:
        """The backward pass of v·tanh(x_j), x_j = U m_j + W s_{t-1} + w_cov cov_j; writes d_vectors (B, 8, A).

        Returns:
            (B, 2, P, 1) the gradients of cov_{t-1} and cov_t.
        """
        _write_units(keys, coefficients, vectors, self.units)
        d_energies = self.energies[..., None]
        self.score.addcmul_(d_energies, self.units)
        torch.mul(d_energies, self.score_weight, out=self.d_units)
        tanh_backward(self.d_units, self.units, grad_input=self.d_units)
        self.keys.add_(self.d_units)
        d_vectors.copy_(torch.bmm(coefficients.transpose(1, 2), self.d_units))
        products = torch.mul(self.d_units, self.coverage_weight, out=self.units)
        return products.sum(-1).unflatten(1, (2, -1))[..., None]


def _find_networks(is_part: Tensor) -> Tensor:
    """(B, 2P, 4) bool: the network of each position, for ψ and then for the attention; none on padding."""
    none = torch.zeros_like(is_part)
    of_scores, of_attention = torch.cat([is_part, none], dim=1), torch.cat([none, is_part], dim=1)
    return torch.cat([of_scores, of_attention], dim=2).transpose(1, 2)


def _view_columns(columns: Tensor, size: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Views for each step: products with s_{t-1} (B, 4A + 3H), w_cov and W s_{t-1} (B, 8, A), the GRU's (B, 4H)."""
    vectors, gates = columns[..., : -4 * size], columns[..., -4 * size :]
    products = columns[..., vectors.shape[2] // 2 : -size]
    views = (products, vectors.unflatten(2, (8, -1)), gates)
    return list(zip(*(view.unbind() for view in views), strict=True))


def _unbind(*fields: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    """The fields (T, …) by step; an index at each step would take as long as a small product."""
    return tuple(field.unbind() for field in fields)


def _pair_steps(coverage: Tensor) -> tuple[Tensor, ...]:
    """For each t cov_{t-1}, which ψ_{t-1} depends on, and cov_t, for a_t: views (B, 2, P, 1) of (B, T + 2, P)."""
    return coverage.unfold(1, 2, 1).permute(1, 0, 3, 2)[..., None].unbind()


def _write_units(keys: Tensor, coefficients: Tensor, vectors: Tensor, units: Tensor) -> None:
    """Writes tanh(U m_j + W s + w_cov cov_j) to units (B, 2P, A).

    Args:
        keys: (B, 2P, A) U m_j. vectors: (B, 8, A) w_cov and W s of the four networks.
        coefficients: (B, 2P, 8) cov_j and 1 for the position's own network, 0 for others.
    """
    torch.baddbmm(keys, coefficients, vectors, out=units).tanh_()


def _read(energies: Tensor, can_read: Tensor, states: Tensor, weights: Tensor, content: Tensor) -> Tensor:
    """Writes the softmax of the energies (B, P) over each part to weights (B, 2, P); returns Σ_j weight_j m_j.

    can_read: (B, 2, P) bool, no position in both parts. content: (B, M), where the sum is written.
    """
    weights.copy_(masked_softmax(energies[:, None], can_read))
    torch.bmm(weights.sum(1, keepdim=True), states, out=content[:, None])
    return content


def _read_backward(d_content: Tensor, d_weights: Tensor | None, weights: Tensor, states: Tensor) -> Tensor:
    """The gradient (B, P) of the energies of `_read`; d_weights (B, P) is that of the weights' other uses.

    states: (B, M, P).
    """
    d_sum = torch.bmm(d_content[:, None], states)  # (B, 1, P)
    if d_weights is not None:
        d_sum = d_sum + d_weights[:, None]
    return softmax_backward(d_sum, weights).sum(1)
