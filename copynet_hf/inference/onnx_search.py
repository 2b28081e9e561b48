"""Models that `copynet_hf.inference.onnx_export` wrote as ONNX graphs, searched with onnxruntime and NumPy alone.

This file imports nothing else, so that it can be copied to where torch is not. `onnx_export` says what the graphs take
and give. Shapes: N sources, S source positions, B beams, T words of an output, V words, K slots.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
_LOWEST = np.float32(-1e9)  # what Transformers' beam search takes for the score of nothing

Array = NDArray[Any]
Tensors = dict[str, Array]


class Search(NamedTuple):
    """How outputs are searched: fields of Transformers' generation config and `forbid_unk`, with the same defaults."""

    num_beams: int = 1
    num_return_sequences: int = 1
    max_new_tokens: int = 20
    min_new_tokens: int = 0
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    forbid_unk: bool = False
    eos_token_id: int | list[int] | None = None

    @property
    def ends(self) -> list[int]:
        """The end symbols: none, one or several."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [end for end in ends if end is not None]


class CopyTrace(NamedTuple):
    """How each word of given outputs came about, as the model's own `trace_copies` tells it, R rows of T words.

    token_probs: (R, T) p(y_t); 0 after the end.
    copied: (R, T) share of p(y_t) that comes from copying, between 0 and 1.
    copy_probs: (R, T, S) probability of copying from each position, whatever the word.
    source_positions: (R, T) the likeliest position that y_t was copied from; −1 where it is not in the source.
    """

    token_probs: Array
    copied: Array
    copy_probs: Array
    source_positions: Array


class OnnxCopyNet:
    """An exported CopyNet: `generate` and `trace_copies` as the model has them, with NumPy arrays.

    Args:
        encoder, decoder: onnxruntime's sessions.
        config, generation_config: the model's, as their JSON files have them.
    """

    def __init__(
        self, encoder: Any, decoder: Any, config: Mapping[str, Any], generation_config: Mapping[str, Any]
    ) -> None:
        self.encoder, self.decoder = encoder, decoder
        self.config = config
        self.generation_config = {name: value for name, value in generation_config.items() if value is not None}
        self._ids = {**config, **self.generation_config}
        self._inputs = [each.name for each in encoder.get_inputs()]
        self._encoded = [each.name for each in encoder.get_outputs()]
        self._decoded = [each.name for each in decoder.get_outputs()]

    @classmethod
    def from_pretrained(cls, folder: str | Path, threads: int = 0, providers: list[Any] | None = None) -> OnnxCopyNet:
        """The model of a folder that `export_onnx` or `copynet-hf export` wrote.

        Args:
            threads: of onnxruntime; 0: as many as there are cores.
            providers: onnxruntime's, best first; None: its CPU's.

        Raises:
            ImportError: onnxruntime is missing.
            ValueError: no exported model is there.
        """
        try:
            import onnxruntime
        except ImportError:
            raise ImportError('no onnxruntime, which runs ONNX graphs: pip install "copynet-hf[onnx]"') from None
        folder = Path(folder)
        if not (folder / DECODER).is_file():
            raise ValueError(f"{folder} holds no {DECODER}: give a folder that copynet-hf export wrote")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        encoder, decoder = (
            onnxruntime.InferenceSession(folder / name, options, providers or ["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )
        files = (folder / name for name in ("config.json", "generation_config.json"))
        return cls(encoder, decoder, *(json.loads(file.read_text(encoding="utf-8")) for file in files))

    def generate(
        self,
        input_ids: Array | None = None,
        attention_mask: Array | None = None,
        input_features: Array | None = None,
        token_type_ids: Array | None = None,
        **options: Any,
    ) -> Array:
        """What `model.generate` gives: greedy search, or beams where `num_beams` is above 1.

        Args:
            input_ids, attention_mask, token_type_ids: (N, S); input_features: (N, S, F): as the encoder takes them.
            options: fields of `Search`; the others are as the model was saved.

        Returns:
            (N · num_return_sequences, 1 + T) ids, the start symbol first; each source's outputs side by side, the best
            one first.

        Raises:
            ValueError: an unknown option, or a source that the model does not take.
        """
        search = self._search(options)
        memory, state, forbidden = self._encode(input_ids, attention_mask, input_features, token_type_ids)
        if search.forbid_unk:
            forbidden = forbidden | (np.arange(forbidden.shape[1]) == self._ids["unk_token_id"])
        penalties = np.where(forbidden, np.float32(-np.inf), np.float32(0))[:, None]
        return (self._greedy if search.num_beams == 1 else self._beams)(memory, state, penalties, search)

    def trace_copies(self, sequences: Array, **source: Array) -> CopyTrace:
        """Where each word came from, of what `generate` returned for these sources.

        Raises:
            ValueError: the model does not copy, or there are not as many sequences for each source.
        """
        if "copy_probs" not in self._decoded:
            raise ValueError(
                f"copy_mechanism={self.config['copy_mechanism']!r} copies nothing: there is nothing to trace."
            )
        memory, state, _ = self._encode(**source)
        ids, mask = memory["memory.ids"][:, None, None], memory["memory.mask"][:, None, None]
        if len(sequences) % len(ids):
            raise ValueError(f"{len(sequences)} sequences cannot belong to {len(ids)} sources: pass the same rows.")
        rows = sequences.reshape(len(ids), -1, sequences.shape[1])
        words, state = rows[..., 1:], _repeated(state, rows.shape[1])
        log_probs, copy_probs = [], []
        for step in range(words.shape[2]):
            made, state = self._step(rows[..., step], memory, state)
            log_probs.append(np.take_along_axis(made["log_probs"], words[..., step, None], axis=-1)[..., 0])
            copy_probs.append(made["copy_probs"])
        probs, copied = np.exp(np.stack(log_probs, axis=2)), np.stack(copy_probs, axis=2)
        matches = (words[..., None] == ids) & mask
        from_positions = copied * matches
        is_end = np.isin(words, self._search({}).ends)
        alive = is_end.cumsum(-1) == is_end  # up to and with the first end
        shares = np.minimum(from_positions.sum(-1) / probs, 1) * alive
        places = np.where(matches.any(-1) & alive, from_positions.argmax(-1), -1)
        fields: tuple[Array, ...] = (probs * alive, shares, copied, places)
        return CopyTrace(*(field.reshape(len(sequences), *field.shape[2:]) for field in fields))

    def _search(self, options: Mapping[str, Any]) -> Search:
        """The options, and what they leave out as the model was saved."""
        if unknown := options.keys() - set(Search._fields):
            raise ValueError(f"generate() does not know {', '.join(unknown)}: use {', '.join(Search._fields)}.")
        saved = dict(self.generation_config)
        for bound in ("max", "min"):  # a length counts the start symbol
            if f"{bound}_length" in saved:
                saved.setdefault(f"{bound}_new_tokens", saved[f"{bound}_length"] - 1)
        search = Search(**{name: value for name, value in saved.items() if name in Search._fields} | dict(options))
        if search.num_return_sequences > search.num_beams:
            raise ValueError(
                f"num_return_sequences={search.num_return_sequences}, but num_beams={search.num_beams}: give as many "
                "beams, or more."
            )
        return search

    # ---- the graphs

    def _encode(
        self,
        input_ids: Array | None = None,
        attention_mask: Array | None = None,
        input_features: Array | None = None,
        token_type_ids: Array | None = None,
    ) -> tuple[Tensors, Tensors, Array]:
        """What the decoder reads of the sources, its state before the first word, and `forbidden` (N, V + K)."""
        name = self._inputs[0]
        source = input_ids if name == "input_ids" else input_features
        if source is None:
            raise ValueError(f"The source is missing: pass {name}.")
        slots = self.config["max_source_oov"]
        if name == "input_features" and source.shape[1] > slots:
            raise ValueError(
                f"the source has {source.shape[1]} positions, the model max_source_oov={slots}: pass fewer."
            )
        if attention_mask is None:
            attention_mask = source != self.config["pad_token_id"] if source.ndim == 2 else np.ones(source.shape[:2])
        if token_type_ids is None:
            token_type_ids = np.zeros(source.shape[:2])
        given = {name: source, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        if source.shape[1] == 0:  # sources without a word: one position of padding
            given = {kind: np.zeros((len(source), 1, *array.shape[2:])) for kind, array in given.items()}
        types = {kind: np.float32 if kind == "input_features" else np.int64 for kind in self._inputs}
        made = self.encoder.run(None, {kind: np.asarray(given[kind], dtype) for kind, dtype in types.items()})
        encoded = dict(zip(self._encoded, made, strict=True))
        parts = (
            {name: tensor for name, tensor in encoded.items() if name.startswith(prefix)}
            for prefix in ("memory.", "state.")
        )
        return *parts, encoded["forbidden"]

    def _step(self, words: Array, memory: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        """From the last words (N, B): `log_probs` and `copy_probs` of the next ones, and the state behind them."""
        made = dict(zip(self._decoded, self.decoder.run(None, {"words": words, **memory, **state}), strict=True))
        return made, {name: made[f"next_{name}"] for name in state}

    # ---- the searches. penalties: (N, 1, V + K) 0, −inf where a word is forbidden

    def _greedy(self, memory: Tensors, state: Tensors, penalties: Array, search: Search) -> Array:
        """The likeliest word at each step: (N, 1 + T)."""
        words = np.full((len(penalties), 1), self._ids["decoder_start_token_id"])
        sequences, done = [words], np.zeros(words.shape, bool)
        for step in range(search.max_new_tokens):
            made, state = self._step(words, memory, state)
            likeliest = _allowed(made["log_probs"], penalties, step, search).argmax(-1)
            words = np.where(done, self._ids["pad_token_id"], likeliest)
            sequences.append(words)
            done |= np.isin(words, search.ends)
            if done.all():
                break
        return np.concatenate(sequences, axis=1)

    def _beams(self, memory: Tensors, state: Tensors, penalties: Array, search: Search) -> Array:
        """Transformers' beam search, with the rules by which it ends: (N · num_return_sequences, 1 + T)."""
        sources, beams, width = len(penalties), search.num_beams, penalties.shape[2]
        row, candidates = np.arange(sources)[:, None], max(2, 1 + len(search.ends)) * beams
        state = _repeated(state, beams)
        running = np.full((sources, beams, 1 + search.max_new_tokens), -1)
        running[..., 0] = self._ids["decoder_start_token_id"]
        scores = np.full((sources, beams), _LOWEST)
        done, done_scores, is_done = running.copy(), scores.copy(), np.zeros(scores.shape, bool)
        scores[:, 0] = 0  # the other beams are the same before the first word
        improvable = np.ones((sources, 1), bool)
        for step in range(search.max_new_tokens):
            length = step + 1
            made, state = self._step(running[..., step], memory, state)
            ranked = _allowed(made["log_probs"], penalties, step, search) + scores[..., None]
            best, places = _largest(ranked.reshape(sources, -1), candidates)
            parents, words = np.divmod(places, width)
            sequences = running[row, parents]
            sequences[..., length] = words
            stops = np.isin(words, search.ends) | (length == search.max_new_tokens)

            scores, chosen = _largest(np.where(stops, best + _LOWEST, best), beams)
            running = sequences[row, chosen]
            state = {name: tensor[row, parents[row, chosen]] for name, tensor in state.items()}

            ends = stops & (np.arange(candidates) < beams)  # the others are there for as many to go on
            full = is_done.all(1, keepdims=True) & (search.early_stopping is True)
            end_scores = best / np.float32(length**search.length_penalty)
            end_scores = np.where(ends & improvable & ~full, end_scores, end_scores + _LOWEST)
            done_scores, chosen = _largest(np.concatenate([done_scores, end_scores], axis=1), beams)
            done = np.concatenate([done, sequences], axis=1)[row, chosen]
            is_done = np.concatenate([is_done, ends], axis=1)[row, chosen]

            by_longest = search.early_stopping == "never" and search.length_penalty > 0
            hoped_for = scores[:, :1] / (search.max_new_tokens if by_longest else length) ** search.length_penalty
            worst = np.where(is_done, done_scores.min(1, keepdims=True), _LOWEST)
            improvable &= (hoped_for > worst).any(1, keepdims=True)
            if not improvable.any() or stops.all() or (search.early_stopping is True and is_done.all()):
                break
        returned = done[:, : search.num_return_sequences].reshape(-1, done.shape[2])
        returned = returned[:, : (returned >= 0).sum(1).max()]
        behind = self._ids["pad_token_id"] or (search.ends or [0])[0]  # as there: padding of id 0 does not count
        return np.where(returned < 0, behind, returned)


def _repeated(state: Tensors, times: int) -> Tensors:
    """The state (N, 1, …) before the first word, for so many outputs of each source."""
    return {name: tensor.repeat(times, axis=1) for name, tensor in state.items()}


def _allowed(log_probs: Array, penalties: Array, step: int, search: Search) -> Array:
    """log p (N, B, V + K), −inf where a word is forbidden, and at the end symbols while the output is too short."""
    scores = log_probs + penalties
    if step < search.min_new_tokens:
        scores[..., search.ends] = -np.inf
    return scores


def _largest(scores: Array, count: int) -> tuple[Array, Array]:
    """The largest of each row of (N, M), largest first, and where they stand: both (N, count)."""
    places = np.argpartition(scores, -count, axis=1)[:, -count:]
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(-values, axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)
