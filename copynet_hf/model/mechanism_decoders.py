"""The recurrent decoders of mechanisms that read the source in another way than CopyNet.

Pointer Networks (Vinyals, Fortunato, Jaitly 2015, arXiv 1506.03134) point at positions of the input. In CoreQA (He,
Liu, Liu, Zhao, ACL 2017, P17-1019), answers copy from the question and from facts.

A fact (subject, property, object) follows the question in the source, as three words marked by `token_type_ids` 1, 2,
3. Its object can be copied; a word that is both in the question and in facts has one id.

The text of CoreQA was not available. Its overview figure shows: one softmax over vocabulary, question positions and
facts; a network each for the scores of copying and retrieving; a state whose inputs are the contexts of question and
facts, and [e(y_{t-1}); the copied word's state; the retrieved fact]. The form of the scores, and the attention history
as the sum of past attention (the coverage of See et al. 2017), are our reading; in the figure the history is also an
input of the state, which it reaches here through the attentions and scores that depend on it.

Shapes: `memory.py`, and M = D + 3E.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .configuration_copynet import CopyNetConfig
from .copy_distribution import expand_to_rows, selective_read_weights
from .decoder import Decoder, RecurrentDecoder
from .layers import CopyNetAttention, Dropout, FeatureProjection
from .memory import DecoderState, DecoderStep, DecoderSteps, Facts, Memory, read_memory
from .outputs import CopyNetEncoderOutput


class PointerDecoder(RecurrentDecoder):
    """d_i = GRU(e(y_{i-1}), d_{i-1}) and u^i_j = v·tanh(W_1 e_j + W_2 d_i), section 2.3, without a context vector.
    The paper has LSTMs.

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
        """Adds u^i_j (R, T, S) as `copy_scores`, and that of the end symbol (R, T) as `end_scores`."""
        readout = self.dropout(steps.states.hidden)  # (R, T, H)
        assert memory.attention_keys is not None
        pointed = self.attention.scores(readout, memory.attention_keys)  # (R, T, S)
        end_state = self.end(torch.zeros(1, 1, dtype=torch.long, device=readout.device))  # (1, 1, D)
        end_keys = self.attention.keys(end_state)  # (1, 1, A)
        end = self.attention.scores(readout.flatten(0, 1), end_keys).view(readout.shape[:2])  # (R, T)
        states = steps.states._replace(copy_scores=pointed)
        return steps._replace(readout=readout, states=states, end_scores=end)


class RetrievalDecoder(RecurrentDecoder):
    """s_t = GRU([e(y_{t-1}); r_q; r_kb; c_q; c_kb], s_{t-1}), and the scores of the three modes.

    c_q and c_kb are attentive reads of the question's states h_j and of the facts f_j, the latter by DNN1(q, s, f)
    with q the question's last states; r_q and r_kb are selective reads (CopyNet, Eq. 9), each of its own part of the
    memory. Each attention and each score also sees the coverage of its position. What s_{t-1} reads of features,
    by the question's attention, is added to both contexts.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.config = config
        state, question, fact = config.hidden_size, config.memory_size, 3 * config.embedding_size
        size = config.attention_size
        self.init_proj = nn.Linear(question, state)
        self.attention = CopyNetAttention(question, state, size, coverage=True)
        self.fact_attention = CopyNetAttention(fact, state + question, size, coverage=True)  # DNN1
        self.copy_scores = CopyNetAttention(question, state, size, coverage=True)  # DNN2
        self.retrieve_scores = CopyNetAttention(fact, state, size, coverage=True)  # DNN3
        self.feature_proj = None
        if config.feature_vocab_size:
            self.feature_proj = FeatureProjection(config.embedding_size, question + fact, size)
        self.cell = nn.GRUCell(config.embedding_size + 2 * (question + fact), state)
        self.readout_proj = nn.Linear(state + question + fact, state)
        self.dropout = Dropout(config.dropout)

    def build_memory(self, encoded: CopyNetEncoderOutput) -> Memory:
        """The source with the keys of the attentions and of the scores, each position's by its own network.

        Its states (N, S, M) are [h_j; 0] in the question and [0; f_j] at objects, so that one product reads both.
        """
        hidden_states, facts, is_object = encoded.last_hidden_state, encoded.facts, encoded.is_object
        assert facts is not None
        assert is_object is not None
        assert encoded.is_question is not None
        at_object = is_object[..., None]
        return Memory(
            torch.cat([hidden_states, facts], dim=-1),
            torch.where(at_object, self.fact_attention.keys(facts), self.attention.keys(hidden_states)),
            torch.where(at_object, self.retrieve_scores.keys(facts), self.copy_scores.keys(hidden_states)),
            encoded.final_state,
            encoded.source_mask,
            encoded.source_ids,
            slot_embeddings=encoded.slot_embeddings,
            facts=Facts(is_object, encoded.is_question),
            features=None if self.feature_proj is None else self.feature_proj(encoded),
        )

    def step(self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState) -> DecoderStep:
        """One word; the attention (R, S) is both, which sum to one each."""
        facts, history, s = memory.facts, state.coverage, state.hidden
        assert facts is not None
        assert history is not None
        assert state.copy_scores is not None
        assert memory.attention_keys is not None
        assert memory.copy_keys is not None
        is_question, is_object = (
            expand_to_rows(positions, s.shape[0]) for positions in (facts.is_question, facts.is_object)
        )
        # Selective reads [r_q; r_kb]: Eq. 9 of CopyNet, each over its own part of the memory
        rho_question = selective_read_weights(state.copy_scores, matches & is_question)  # (R, S)
        rho_facts = selective_read_weights(state.copy_scores, matches & is_object)
        reads = read_memory(rho_question + rho_facts, memory.hidden_states)  # (R, M)

        # Contexts [c_q; c_kb]: attentive reads, of the facts by S(q, s_t, f_j) = DNN1
        of_question = self.attention(s, memory.attention_keys, facts.is_question, history)  # (R, S)
        query = torch.cat([s, expand_to_rows(memory.final_state, s.shape[0])], dim=-1)  # (R, H + D)
        of_facts = self.fact_attention(query, memory.attention_keys, facts.is_object, history)
        attention = of_question + of_facts
        contexts = read_memory(attention, memory.hidden_states)  # (R, M)
        if memory.features is not None:
            contexts = contexts + self.attention.read_features(s, memory.features)

        s = self.cell(torch.cat([embedding, reads, contexts], dim=-1), s)  # (R, H)
        scores = torch.where(  # ψ_re at objects, ψ_co at the question's words
            is_object,
            self.retrieve_scores.scores(s, memory.copy_keys, history),
            self.copy_scores.scores(s, memory.copy_keys, history),
        )
        readout = self.dropout(self.readout_proj(torch.cat([s, contexts], dim=-1)))  # r_t = V [s_t; c_q; c_kb] + b
        return DecoderStep(readout, attention, DecoderState(s, scores, history + attention))


DECODERS: dict[str, Callable[[CopyNetConfig], Decoder]] = {"pointer": PointerDecoder, "retrieval": RetrievalDecoder}
"""The decoder of each such `config.copy_mechanism`."""
