"""CoreQA (He, Liu, Liu, Zhao, ACL 2017, P17-1019): answers that copy from the question and from facts.

A fact (subject, property, object) stands in the source behind the question, as three words marked by
`token_type_ids` 1, 2, 3. Its object can be written; a word that stands in the question and in facts has one id.

The paper's text could not be had. Verified by its overview figure: one softmax over vocabulary, question positions and
facts; scores for copying and retrieving from networks of their own; a state that is fed with the contexts of question
and facts, and with [e(y_{t-1}); what was copied; what was retrieved]. The scores' form and that histories are the
attention so far (as in a coverage) are the most sensible reading; the figure has them reach the state as well, which
they do here through the attentions and scores that see them.

Shapes: R rows decode from N sources. S source positions, T target steps, H hidden_size, D = 2 · encoder_hidden_size,
E embedding_size, A attention_size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import CopyNetAttention
from .configuration_copynet import CopyNetConfig
from .copy_distribution import at_least_float32, selective_read_weights
from .decoder import Decoder
from .memory import DecoderState, Facts, Memory, for_rows, read
from .outputs import CopyNetEncoderOutput


class RetrievalDecoder(Decoder):
    """s_t = GRU([e(y_{t-1}); r_q; r_kb; c_q; c_kb], s_{t-1}), and the scores of the three modes.

    c_q and c_kb are attentive reads of the question's states h_j and of the facts f_j, the latter by DNN1(q, s, f)
    with q the question's last states; r_q and r_kb selective reads (CopyNet, Eq. 9), each of its own memory. Each
    attention and each score sees how much of its position was read before.
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

    def remember(self, encoded: CopyNetEncoderOutput, rows: int) -> Memory:
        """With the keys of question and facts, for what is read and for what is written."""
        hidden_states, facts = encoded.last_hidden_state, encoded.facts
        assert facts is not None
        assert encoded.is_object is not None
        assert encoded.is_question is not None
        of_facts = Facts(
            facts,
            encoded.is_object.repeat_interleave(rows // facts.shape[0], dim=0),
            encoded.is_question.repeat_interleave(rows // facts.shape[0], dim=0),
            2 * self.fact_attention.key_proj(facts),
            2 * self.retrieve_scores.key_proj(facts),
        )
        keys, copy_keys = (2 * scores.key_proj(hidden_states) for scores in (self.attention, self.copy_scores))
        return Memory(hidden_states, keys, copy_keys, *for_rows(encoded, rows), facts=of_facts)

    def initial_state(self, memory: Memory) -> DecoderState:
        """s_0 = tanh(W q); nothing copied, nothing attended yet."""
        hidden = torch.tanh(self.init_proj(memory.final_state))
        zeros = hidden.new_zeros(memory.mask.shape)
        return DecoderState(hidden, zeros, at_least_float32(zeros))

    def step(
        self, embedding: Tensor, matches: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState, Tensor]:
        """One word: r_t (R, H), the new state, and both attentions (R, S), each summing to one over its positions."""
        facts, history, before = memory.facts, state.coverage, state.copy_scores
        assert facts is not None
        assert history is not None
        assert before is not None
        assert memory.attention_keys is not None
        assert memory.copy_keys is not None
        copied = selective_read_weights(before, matches & facts.is_question)
        retrieved = selective_read_weights(before, matches & facts.is_object)
        query = torch.cat([state.hidden, memory.final_state], dim=-1)
        of_question = self.attention(state.hidden, memory.attention_keys, facts.is_question, history)
        of_facts = self.fact_attention(query, facts.attention_keys, facts.is_object, history)
        contexts = [read(of_question, memory.hidden_states), read(of_facts, facts.hidden_states)]
        reads = [read(copied, memory.hidden_states), read(retrieved, facts.hidden_states)]
        hidden = self.cell(torch.cat([embedding, *reads, *contexts], dim=-1), state.hidden)
        scores = torch.where(
            facts.is_object,
            self.retrieve_scores.scores(hidden, facts.retrieve_keys, history),
            self.copy_scores.scores(hidden, memory.copy_keys, history),
        )
        readout = self.dropout(self.readout_proj(torch.cat([hidden, *contexts], dim=-1)))
        attention = of_question + of_facts
        return readout, DecoderState(hidden, scores, history + attention), attention
