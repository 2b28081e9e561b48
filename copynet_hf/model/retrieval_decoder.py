"""CoreQA (He, Liu, Liu, Zhao, ACL 2017, P17-1019): answers that copy from the question and from facts.

A fact (subject, property, object) follows the question in the source, as three words marked by `token_type_ids` 1, 2,
3. Its object can be copied; a word that is both in the question and in facts has one id.

The paper's text was not available. Its overview figure shows: one softmax over vocabulary, question positions and
facts; a network each for the scores of copying and retrieving; a state whose inputs are the contexts of question and
facts, and [e(y_{t-1}); the copied word's state; the retrieved fact]. The form of the scores, and the attention history
as the sum of past attention (the coverage of See et al. 2017), are our reading; in the figure the history is also an
input of the state, which it reaches here through the attentions and scores that depend on it.

Shapes: R rows decode from N sources. S source positions, T target steps, H hidden_size, D = 2 · encoder_hidden_size,
E embedding_size, A attention_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import CopyNetAttention
from .configuration_copynet import CopyNetConfig
from .copy_distribution import selective_read_weights
from .decoder import Decoder
from .memory import DecoderState, Facts, Memory, read_memory, repeat_for_rows
from .outputs import CopyNetEncoderOutput


class RetrievalDecoder(Decoder):
    """s_t = GRU([e(y_{t-1}); r_q; r_kb; c_q; c_kb], s_{t-1}), and the scores of the three modes.

    c_q and c_kb are attentive reads of the question's states h_j and of the facts f_j, the latter by DNN1(q, s, f)
    with q the question's last states; r_q and r_kb are selective reads (CopyNet, Eq. 9), each of its own memory. Each
    attention and each score also sees the coverage of its position.
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
        self.cell = nn.GRUCell(config.embedding_size + 2 * (question + fact), state)
        self.readout_proj = nn.Linear(state + question + fact, state)
        self.dropout = nn.Dropout(config.dropout)

    def build_memory(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """The source with the keys of question and facts, for the attentions and for the scores."""
        hidden_states, facts = encoded.last_hidden_state, encoded.facts
        assert facts is not None
        assert encoded.is_object is not None
        assert encoded.is_question is not None
        times = rows // facts.shape[0]
        memory_of_facts = Facts(
            facts,
            encoded.is_object.repeat_interleave(times, dim=0),
            encoded.is_question.repeat_interleave(times, dim=0),
            self.fact_attention.keys(facts),
            self.retrieve_scores.keys(facts),
        )
        keys, copy_keys = self.attention.keys(hidden_states), self.copy_scores.keys(hidden_states)
        return Memory(hidden_states, keys, copy_keys, *repeat_for_rows(encoded, rows), facts=memory_of_facts)

    def step(
        self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """One word: r_t (R, H), the new state, and both attentions (R, S), each summing to one over its positions."""
        facts, history, s = memory.facts, state.coverage, state.hidden
        assert facts is not None
        assert history is not None
        assert state.copy_scores is not None
        assert memory.attention_keys is not None
        assert memory.copy_keys is not None
        # Selective reads r_q and r_kb: Eq. 9 of CopyNet, each over its own memory
        rho_question = selective_read_weights(state.copy_scores, matches & facts.is_question)  # (R, S)
        rho_facts = selective_read_weights(state.copy_scores, matches & facts.is_object)
        reads = [read_memory(rho_question, memory.hidden_states), read_memory(rho_facts, facts.hidden_states)]

        # Contexts c_q and c_kb: attentive reads, of the facts by S(q, s_t, f_j) = DNN1
        of_question = self.attention(s, memory.attention_keys, facts.is_question, history)  # (R, S)
        query = torch.cat([s, memory.final_state], dim=-1)  # (R, H + D)
        of_facts = self.fact_attention(query, facts.attention_keys, facts.is_object, history)
        contexts = [read_memory(of_question, memory.hidden_states), read_memory(of_facts, facts.hidden_states)]

        s = self.cell(torch.cat([embedding, *reads, *contexts], dim=-1), s)  # (R, H)
        scores = torch.where(  # ψ_re at objects, ψ_co at the question's words
            facts.is_object,
            self.retrieve_scores.scores(s, facts.retrieve_keys, history),
            self.copy_scores.scores(s, memory.copy_keys, history),
        )
        readout = self.dropout(self.readout_proj(torch.cat([s, *contexts], dim=-1)))
        attention = of_question + of_facts
        return readout, DecoderState(s, scores, history + attention), attention
