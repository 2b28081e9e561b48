"""The baseline of the speed benchmarks: an attention seq2seq without copying, as an ordinary PyTorch loop.

Embeddings, a bidirectional `nn.GRU`, tanh attention with precomputed keys, a `GRUCell` loop, and vocabulary scores
from [s; c; e] in one product after the loop.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class PlainSeq2Seq(nn.Module):
    """An attention seq2seq.

    Args:
        vocab_size: words.
        embedding: size of their embeddings.
        hidden: units of each direction of the encoder, of the attention and of the decoder.
        narrow: adds a tanh layer of `hidden` units before the vocabulary scores, as in CopyNet's readout.
        packed: skips padding in the encoder and masks it in the attention; without it padding is read as words.
    """

    def __init__(
        self, vocab_size: int, embedding: int, hidden: int, narrow: bool = False, packed: bool = True
    ) -> None:
        super().__init__()
        self.hidden, self.packed = hidden, packed
        self.embedding = nn.Embedding(vocab_size, embedding)
        self.encoder = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.init = nn.Linear(2 * hidden, hidden)
        self.key = nn.Linear(2 * hidden, hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.cell = nn.GRUCell(embedding + 2 * hidden, hidden)
        width = hidden + 2 * hidden + embedding
        self.output: nn.Module = nn.Linear(width, vocab_size)
        if narrow:
            self.output = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, vocab_size))

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Encodes ids (B, S) of lengths (B): states (B, S, 2H), keys (B, S, H), mask (B, S) and s_0 (B, H)."""
        words: Any = self.embedding(source)
        if self.packed:
            words = nn.utils.rnn.pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.encoder(words)
        if self.packed:
            states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        mask = torch.arange(source.shape[1], device=source.device) < lengths.to(source.device)[:, None]
        return states, self.key(states), mask, torch.tanh(self.init(torch.cat([last[0], last[1]], dim=-1)))

    def step(
        self, embedded: Tensor, state: Tensor, states: Tensor, keys: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One decoder step: the new state (B, H) and the context (B, 2H)."""
        energy = self.score(torch.tanh(keys + self.query(state)[:, None])).squeeze(-1)
        if self.packed:
            energy = energy.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(energy, dim=-1)
        context = torch.bmm(weights[:, None], states)[:, 0]
        return self.cell(torch.cat([embedded, context], dim=-1), state), context

    def forward(self, source: Tensor, lengths: Tensor, words: Tensor, labels: Tensor) -> Tensor:
        """The mean loss over the labels that are not −100; decoder inputs `words` and `labels` are (B, T)."""
        states, keys, mask, state = self.encode(source, lengths)
        embedded = self.embedding(words)
        readouts = []
        for t in range(words.shape[1]):
            state, context = self.step(embedded[:, t], state, states, keys, mask)
            readouts.append(torch.cat([state, context, embedded[:, t]], dim=-1))
        scores = self.output(torch.stack(readouts, dim=1))
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)

    @torch.no_grad()
    def greedy(self, source: Tensor, lengths: Tensor, steps: int, start: int) -> Tensor:
        """Greedy search from the id `start`; (B, steps) ids, without `start`."""
        states, keys, mask, state = self.encode(source, lengths)
        word = torch.full((source.shape[0],), start, device=source.device)
        words = []
        for _ in range(steps):
            embedded = self.embedding(word)
            state, context = self.step(embedded, state, states, keys, mask)
            word = self.output(torch.cat([state, context, embedded], dim=-1)).argmax(-1)
            words.append(word)
        return torch.stack(words, dim=1)

    @torch.no_grad()
    def beam(self, source: Tensor, lengths: Tensor, steps: int, start: int, beams: int) -> Tensor:
        """Beam search from the id `start`, the source repeated for each beam; (B, 1 + steps) ids of the best beam."""
        batch = source.shape[0]
        states, keys, mask, state = (x.repeat_interleave(beams, dim=0) for x in self.encode(source, lengths))
        totals = torch.full((batch, beams), float("-inf"), device=source.device)
        totals[:, 0] = 0.0
        firsts = beams * torch.arange(batch, device=source.device)[:, None]  # the rows of first beams
        words = torch.full((batch * beams, 1), start, device=source.device)
        for _ in range(steps):
            embedded = self.embedding(words[:, -1])
            state, context = self.step(embedded, state, states, keys, mask)
            scores = torch.log_softmax(self.output(torch.cat([state, context, embedded], dim=-1)), dim=-1)
            width = scores.shape[-1]
            totals, chosen = (totals[..., None] + scores.view(batch, beams, width)).view(batch, -1).topk(beams)
            rows = (chosen // width + firsts).flatten()
            words = torch.cat([words[rows], (chosen % width).view(-1, 1)], dim=1)
            state = state[rows]
        return words.view(batch, beams, -1)[:, 0]
