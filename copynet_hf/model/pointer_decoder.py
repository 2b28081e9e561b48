"""The decoder of Pointer Networks (Vinyals, Fortunato, Jaitly 2015, arXiv 1506.03134): positions of the input.

Shapes: R rows decode from N sources. S source positions, T target steps, H hidden_size, D = 2 · encoder_hidden_size,
A attention_size, E embedding_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import CopyNetAttention
from .configuration_copynet import CopyNetConfig
from .decoder import Decoder
from .dispatch import find_fast_form_obstacles
from .dropout import Dropout
from .gru import FusedGRU
from .memory import DecoderState, DecoderSteps, Memory, repeat_for_rows
from .outputs import CopyNetEncoderOutput


class PointerDecoder(Decoder):
    """d_i = GRU(e(y_{i-1}), d_{i-1}) and u^i_j = v·tanh(W_1 e_j + W_2 d_i), section 2.3, without a context vector.

    The paper does not say how the end symbol is pointed at: here it has a learned state e_⇐.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.config = config
        self.init_proj = nn.Linear(config.memory_size, config.hidden_size)
        self.cell = nn.GRUCell(config.embedding_size, config.hidden_size)
        self.attention = CopyNetAttention(config.memory_size, config.hidden_size, config.attention_size)
        self.end = nn.Embedding(1, config.memory_size)  # e_⇐
        self.dropout = Dropout(config.dropout)

    def build_memory(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """The source with the keys W_1 e_j."""
        keys = self.attention.keys(encoded.last_hidden_state)
        return Memory(encoded.last_hidden_state, keys, None, *repeat_for_rows(encoded, rows), inputs=encoded.inputs)

    def explain_readable_form(self, memory: Memory) -> list[str]:
        """Why the recurrence runs in the readable form; empty: the fast form may run. See `dispatch`."""
        return find_fast_form_obstacles(self.config, {"cell": self.cell}, memory.mask.device)

    def run_all_steps(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps:
        """`copy_scores` are u^i_j (R, T, S), and `switch` (R, T) is the score of the end symbol."""
        before = (self.initial_state(memory) if state is None else state).hidden
        hidden = self._run_gru(embeddings, before, keep, not self.explain_readable_form(memory))  # (R, T, H)
        readout = self.dropout(hidden)
        assert memory.attention_keys is not None
        pointed = self.attention.scores(readout, memory.attention_keys)  # (R, T, S)
        end_state = self.end(torch.zeros(1, 1, dtype=torch.long, device=readout.device))  # (1, 1, D)
        end_keys = self.attention.keys(end_state)  # (1, 1, A)
        end = self.attention.scores(readout.flatten(0, 1), end_keys).view(readout.shape[:2])  # (R, T)
        return DecoderSteps(readout, None, end, hidden, pointed, None)

    def _run_gru(self, embeddings: Tensor, initial: Tensor, keep: Tensor | None, is_fast: bool) -> Tensor:
        """d_1 … d_T (R, T, H)."""
        if keep is None:
            keep = torch.ones_like(embeddings[..., 0], dtype=torch.bool)
        if is_fast:
            return self._run_fused_gru(embeddings, initial, keep)
        hidden, states = initial, []
        for t in range(embeddings.shape[1]):
            hidden = torch.where(keep[:, t, None], self.cell(embeddings[:, t], hidden), hidden)
            states.append(hidden)
        return torch.stack(states, dim=1)

    def _run_fused_gru(self, embeddings: Tensor, initial: Tensor, keep: Tensor) -> Tensor:
        """The same in the fast form: nothing is read between the steps, so one product serves all inputs."""
        cell = self.cell
        gates = nn.functional.linear(embeddings.transpose(0, 1), cell.weight_ih, cell.bias_ih)  # (T, R, 3H)
        recurrent = (cell.weight_hh.t(), cell.bias_hh[None], initial.to(gates.dtype))
        states = FusedGRU.apply(*(part[None] for part in (gates, keep.t()[..., None], *recurrent)))
        return states[0].transpose(0, 1)
