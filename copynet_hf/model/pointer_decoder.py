"""The decoder of Pointer Networks (Vinyals, Fortunato, Jaitly 2015, arXiv 1506.03134): positions of the input.

Shapes: R rows decode from N sources. S source positions, T target steps, H hidden_size, D = 2 · encoder_hidden_size,
A attention_size, E embedding_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import CopyNetAttention
from .configuration_copynet import CopyNetConfig
from .decoder import RecurrentDecoder
from .dropout import Dropout
from .memory import DecoderState, DecoderStep, DecoderSteps, Memory
from .outputs import CopyNetEncoderOutput


class PointerDecoder(RecurrentDecoder):
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

    def build_memory(self, encoded: CopyNetEncoderOutput) -> Memory:
        """The source with the keys W_1 e_j."""
        keys = self.attention.keys(encoded.last_hidden_state)
        source = (encoded.final_state, encoded.source_mask, encoded.source_ids)
        return Memory(encoded.last_hidden_state, keys, None, *source, slot_embeddings=encoded.slot_embeddings)

    def step(self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState) -> DecoderStep:
        """d_i, which is also the readout; u^i follows for all steps at once."""
        hidden = self.cell(embedding, state.hidden)  # (R, H)
        return DecoderStep(hidden, None, DecoderState(hidden, None, None))

    def finish_steps(self, steps: DecoderSteps, embeddings: Tensor, memory: Memory) -> DecoderSteps:
        """Adds u^i_j (R, T, S) as `copy_scores`, and as `switch` (R, T) the score of the end symbol."""
        readout = self.dropout(steps.hidden)  # (R, T, H)
        assert memory.attention_keys is not None
        pointed = self.attention.scores(readout, memory.attention_keys)  # (R, T, S)
        end_state = self.end(torch.zeros(1, 1, dtype=torch.long, device=readout.device))  # (1, 1, D)
        end_keys = self.attention.keys(end_state)  # (1, 1, A)
        end = self.attention.scores(readout.flatten(0, 1), end_keys).view(readout.shape[:2])  # (R, T)
        return steps._replace(readout=readout, switch=end, copy_scores=pointed)
