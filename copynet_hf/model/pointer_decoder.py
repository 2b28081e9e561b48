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
from .fused import FusedGRU, gru_naive
from .memory import DecoderState, DecoderSteps, Memory, for_rows
from .outputs import CopyNetEncoderOutput


class PointerDecoder(Decoder):
    """d_i = GRU(e(y_{i-1}), d_{i-1}) and u^i_j = v·tanh(W_1 e_j + W_2 d_i), section 2.3: no context is read.

    The paper does not say how the end symbol is pointed at: here a learned e_⇐ stands beside the source.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.config = config
        self.init_proj = nn.Linear(config.memory_size, config.hidden_size)
        self.cell = nn.GRUCell(config.embedding_size, config.hidden_size)
        self.attention = CopyNetAttention(config.memory_size, config.hidden_size, config.attention_size)
        self.end = nn.Embedding(1, config.memory_size)  # e_⇐
        self.dropout = nn.Dropout(config.dropout)

    def remember(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """With W_1 e_j, doubled (see `CopyNetAttention`)."""
        keys = 2 * self.attention.key_proj(encoded.last_hidden_state)
        return Memory(encoded.last_hidden_state, keys, None, *for_rows(encoded, rows), inputs=encoded.inputs)

    def initial_state(self, memory: Memory) -> DecoderState:
        """d_0 = tanh(W [last forward state; last backward state])."""
        return DecoderState(torch.tanh(self.init_proj(memory.final_state)), None, None)

    def all_at_once(
        self, embeddings: Tensor, matches: Tensor, memory: Memory, state: DecoderState | None, keep: Tensor | None
    ) -> DecoderSteps:
        """`copy_scores` u^i_j (R, T, S), and as `switch` (R, T) that of the end symbol."""
        before = (self.initial_state(memory) if state is None else state).hidden
        hidden = self._states(embeddings, before, keep)
        readout = self.dropout(hidden)
        assert memory.attention_keys is not None
        pointed = self.attention.scores(readout, memory.attention_keys)
        end_keys = 2 * self.attention.key_proj(self.end.weight)[None]
        end = self.attention.scores(readout.flatten(0, 1)[None], end_keys).view(readout.shape[:2])
        return DecoderSteps(readout, None, end, hidden, pointed, None)

    def _states(self, embeddings: Tensor, initial: Tensor, keep: Tensor | None) -> Tensor:
        """d_1 … d_T (R, T, H): nothing is read between the steps, so that all inputs are multiplied at once."""
        cell = self.cell
        gates = nn.functional.linear(embeddings.transpose(0, 1), cell.weight_ih, cell.bias_ih)
        keep = torch.ones_like(gates[..., :1], dtype=torch.bool) if keep is None else keep.t()[..., None]
        gru = FusedGRU.apply if self.config.use_fused and not torch.compiler.is_compiling() else gru_naive
        weight, bias = cell.weight_hh.t(), cell.bias_hh[None]
        states = gru(*(part[None] for part in (gates, keep, weight, bias, initial.to(gates.dtype))))
        return states[0].transpose(0, 1)
