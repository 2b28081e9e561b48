"""Greedy and beam search over the ONNX graphs of `copynet_hf.inference.onnx_export`, with onnxruntime and NumPy alone.

The file imports nothing else, so it can be copied to a machine without torch. `onnx_export` documents the inputs and
outputs of the graphs. Shapes: N sources, S source positions, F features, B beams, T words of an output, V words, K
slots.
"""

from __future__ import annotations

import json
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
_DROPPED_SHARE = 0.25  # of the sources in the batch whose search has ended; fewer are not worth the copy of the rest
_LOWEST = np.float32(-1e9)  # the score of an impossible beam, as in Transformers
_TINY = np.finfo(np.float32).tiny

SOURCE_FIELDS = (
    *("attention_mask", "input_features", "token_type_ids", "feature_ids", "letter_ids"),
    *("encoder_input_ids", "encoder_attention_mask", "word_index"),
)

Array: TypeAlias = np.ndarray
Tensors = dict[str, Array]


class Search(NamedTuple):
    """The supported fields of Transformers' generation config, and `forbid_unk`, with the same defaults.

    copied_only: ids of words that no output may hold whose source does not; saved with no model.
    """

    num_beams: int = 1
    num_return_sequences: int = 1
    max_new_tokens: int = 20
    min_new_tokens: int = 0
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    max_time: float | None = None
    forbid_unk: bool = False
    eos_token_id: int | list[int] | None = None
    copied_only: Sequence[int] = ()

    @property
    def end_token_ids(self) -> list[int]:
        """None, one or several."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [end for end in ends if end is not None]


class OnnxCopyTrace(NamedTuple):
    """The origin of each word of R outputs of T words: the fields of the model's own `CopyTrace`.

    token_probs: (R, T) p(y_t); 0 after the end.
    copied: (R, T) share of p(y_t) that copying accounts for, from 0 to 1.
    copy_probs: (R, T, S) probability of copying from each position, whatever the word.
    source_positions: (R, T) the likeliest position from which y_t was copied; −1 where the source does not contain it.
    """

    token_probs: Array
    copied: Array
    copy_probs: Array
    source_positions: Array


class OnnxCopyNet:
    """An exported CopyNet. `generate` and `trace_copies` are those of the model, with NumPy arrays.

    Args:
        encoder, decoder: sessions of onnxruntime.
        config, generation_config: the contents of the model's JSON files.

    Attributes:
        config: the fields of `config`, and `copies`: whether the model copies.
        before_run: is called before each run of a graph, and may raise to stop a search.
    """

    def __init__(
        self, encoder: Any, decoder: Any, config: Mapping[str, object], generation_config: Mapping[str, Any]
    ) -> None:
        self.encoder, self.decoder = encoder, decoder
        self.before_run: Callable[[], object] = lambda: None
        self.generation_config = {name: value for name, value in generation_config.items() if value is not None}
        self._token_ids = {**config, **self.generation_config}
        self._encoder_inputs = [each.name for each in encoder.get_inputs()]
        self._encoder_outputs = [each.name for each in encoder.get_outputs()]
        self._decoder_outputs = [each.name for each in decoder.get_outputs()]
        self.config: Any = SimpleNamespace(**{**config, "copies": "copy_probs" in self._decoder_outputs})

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        threads: int = 0,
        providers: Sequence[object] | None = None,
        *,
        keep_memory: bool = True,
    ) -> OnnxCopyNet:
        """Loads the model from a folder that `export_onnx` or `copynet-hf export` wrote.

        Args:
            threads: number of onnxruntime's threads; 0: one per core.
            providers: onnxruntime's execution providers, in order of preference; None: the CPU's.
            keep_memory: whether onnxruntime keeps the memory of its largest run for later ones.

        Raises:
            ImportError: onnxruntime is not installed.
            ValueError: the folder holds no exported model, or a graph is damaged.
        """
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("onnxruntime is not installed: pip install onnxruntime") from None
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"{folder}: no such folder; pass that of an exported model")
        if not (folder / DECODER).is_file():
            config = folder / "config.json"
            if config.is_file() and "copynet_ensemble" in config.read_text(encoding="utf-8"):
                raise ValueError(f"{folder} is an ensemble, which has no graphs: export one of its members")
            saved, exported = shlex.quote(str(folder)), shlex.quote(f"{folder.name}-onnx")
            export = f"copynet-hf export --model {saved} --output_dir {exported}"
            raise ValueError(f"{folder} holds no {DECODER}: run {export}, and use {exported}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_cpu_mem_arena = keep_memory
        try:
            encoder, decoder = (
                onnxruntime.InferenceSession(folder / name, options, providers or ["CPUExecutionProvider"])
                for name in (ENCODER, DECODER)
            )
        except Exception as error:  # onnxruntime's errors have no common class
            raise ValueError(f"{folder} cannot be loaded ({error}): export the model again") from error
        files = (folder / name for name in ("config.json", "generation_config.json"))
        return cls(encoder, decoder, *(json.loads(file.read_text(encoding="utf-8")) for file in files))

    def generate(self, input_ids: Array | None = None, **inputs: Any) -> Array:
        """`model.generate()`: greedy search, or beam search with `num_beams` above 1.

        Args:
            input_ids: (N, S), as the tokenizer returns them.
            inputs: its other arrays, attention_mask and token_type_ids (N, S), feature_ids (N, F), letter_ids (N, L),
                encoder_input_ids, encoder_attention_mask and word_index (N, P), or in place of a text input_features
                (N, S, num_features); and fields of `Search`, by default those of the saved generation config.

        Returns:
            (N · num_return_sequences, 1 + T) ids, starting with the start token; the outputs of a source are
            consecutive rows, best first.

        Raises:
            ValueError: an option is not supported, or the model does not accept the source.
        """
        source = {name: inputs.pop(name) for name in SOURCE_FIELDS if name in inputs}
        search = self.search_options(inputs)
        memory, state, forbidden = self._encode(input_ids=input_ids, **source)
        unknown = self._token_ids["unk_token_id"]
        if search.forbid_unk and unknown not in search.end_token_ids:
            forbidden = forbidden | (np.arange(forbidden.shape[1]) == unknown)
        if search.copied_only:
            forbidden = forbidden | _find_ungrounded(memory, forbidden.shape[1], search.copied_only)
        penalties = np.where(forbidden, np.float32(-np.inf), np.float32(0))[:, None]
        return (self._greedy if search.num_beams == 1 else self._beams)(memory, state, penalties, search)

    def trace_copies(
        self, sequences: Array, eos_token_id: int | list[int] | None = None, **source: Array
    ) -> OnnxCopyTrace:
        """The origin of each word of `sequences`, which `generate` returned for these sources.

        Args:
            eos_token_id: the end tokens that were passed to `generate`, if any.
            source: the arguments of `generate` with the sources.

        Returns:
            The trace; of a model that does not copy, all copy shares and probabilities are 0.

        Raises:
            ValueError: the number of sequences is not a multiple of that of the sources.
        """
        memory, state, _ = self._encode(**source)
        ids, mask = memory["memory.ids"][:, None, None], memory["memory.mask"][:, None, None]
        if len(sequences) % len(ids):
            raise ValueError(f"{len(sequences)} sequences cannot belong to {len(ids)} sources: pass the same rows.")
        rows = sequences.reshape(len(ids), -1, sequences.shape[1])
        words, state = rows[..., 1:], _repeat(state, rows.shape[1])
        log_probs, copy_probs = [], []
        nothing = np.zeros((*words.shape[:2], ids.shape[-1]), np.float32)
        for step in range(words.shape[2]):
            outputs, state = self._step(rows[..., step], memory, state)
            log_probs.append(np.take_along_axis(outputs["log_probs"], words[..., step, None], axis=-1)[..., 0])
            copy_probs.append(outputs.get("copy_probs", nothing))
        probs = np.minimum(np.exp(np.stack(log_probs, axis=2)), 1)  # rounding can take log p above 0
        copied = np.stack(copy_probs, axis=2)
        matches = (words[..., None] == ids) & mask & self.config.copies
        from_positions = copied * matches
        options = {} if eos_token_id is None else {"eos_token_id": eos_token_id}
        is_end = np.isin(words, self.search_options(options).end_token_ids)
        alive = is_end.cumsum(-1) == is_end  # up to and including the first end token
        shares = np.minimum(from_positions.sum(-1) / np.maximum(probs, _TINY), 1) * alive
        positions = np.where(matches.any(-1) & alive, from_positions.argmax(-1), -1)
        fields: tuple[Array, ...] = (probs * alive, shares, copied, positions)
        return OnnxCopyTrace(*(field.reshape(len(sequences), *field.shape[2:]) for field in fields))

    def search_options(self, options: Mapping[str, Any]) -> Search:
        """The options, completed by the saved generation config.

        None counts as left out, but for `eos_token_id`, where it means that no symbol ends an output.
        """
        if unsupported := options.keys() - set(Search._fields):
            raise ValueError(f"generate() does not support {', '.join(unsupported)}: use {', '.join(Search._fields)}.")
        saved = {name: value for name, value in self.generation_config.items() if name != "copied_only"}
        for bound in ("max", "min"):  # max_length and min_length count the start token
            if f"{bound}_length" in saved:
                saved.setdefault(f"{bound}_new_tokens", saved[f"{bound}_length"] - 1)
        given = {name: value for name, value in options.items() if value is not None or name == "eos_token_id"}
        search = Search(**{name: value for name, value in saved.items() if name in Search._fields} | given)
        for name in ("num_beams", "num_return_sequences", "max_new_tokens"):
            if getattr(search, name) < 1:
                raise ValueError(f"{name} is {getattr(search, name)}: use 1 or more.")
        if isinstance(search.copied_only, str):
            raise ValueError(f"copied_only is {search.copied_only!r}: pass ids, as find_matching_ids returns them.")
        if search.num_return_sequences > search.num_beams:
            raise ValueError(
                f"num_return_sequences={search.num_return_sequences} is more than num_beams={search.num_beams}: use "
                "at least as many beams."
            )
        return search

    def _encode(self, **source: Array | None) -> tuple[Tensors, Tensors, Array]:
        """The decoder's memory, its initial state, and `forbidden` (N, V + K) bool."""
        given = {name: _to_array(name, array) for name, array in source.items() if array is not None}
        name = self._encoder_inputs[0]
        if name not in given:
            raise ValueError(f"The source is missing: pass {name}.")
        words, slots = given[name], self.config.max_source_oov
        if words.ndim < 2 or not len(words):
            raise ValueError(f"{name} has shape {words.shape}: pass at least one row of words.")
        if name == "input_features" and words.shape[1] > slots:
            raise ValueError(
                f"the source has {words.shape[1]} positions, the model max_source_oov={slots}: pass fewer positions."
            )
        is_word = words != self.config.pad_token_id if words.ndim == 2 else np.ones(words.shape[:2])
        defaults = {"attention_mask": is_word, "token_type_ids": np.zeros(words.shape[:2])}
        defaults["feature_ids"] = np.zeros((len(words), 1))
        if not np.any(words >= self.config.vocab_size):  # else a model with letters needs them
            defaults["letter_ids"] = np.zeros((len(words), 1))
        arrays = {**defaults, **given}
        feeds = {}
        for key in self._encoder_inputs:
            if key not in arrays:
                raise ValueError(f"{key} is missing: pass what the tokenizer returned.")
            array = np.asarray(arrays[key], np.float32 if key == "input_features" else np.int64)
            # what is empty is read as one position of padding
            feeds[key] = array if array.shape[1] else np.zeros((len(array), 1, *array.shape[2:]), array.dtype)
        self.before_run()
        encoded = dict(zip(self._encoder_outputs, self.encoder.run(None, feeds), strict=True))
        memory, state = (
            {name: tensor for name, tensor in encoded.items() if name.startswith(prefix)}
            for prefix in ("memory.", "state.")
        )
        return memory, state, encoded["forbidden"]

    def _step(self, words: Array, memory: Tensors, state: Tensors) -> tuple[Tensors, Tensors]:
        """Feeds the last words (N, B): returns `log_probs` and `copy_probs` of the next words, and the next state."""
        self.before_run()
        values = self.decoder.run(None, {"words": words, **memory, **state})
        outputs = dict(zip(self._decoder_outputs, values, strict=True))
        return outputs, {name: outputs[f"next_{name}"] for name in state}

    def _greedy(self, memory: Tensors, state: Tensors, penalties: Array, search: Search) -> Array:
        """Greedy search: (N, 1 + T). penalties: (N, 1, V + K), −inf for forbidden words, else 0."""
        words = np.full((len(penalties), 1), self._token_ids["decoder_start_token_id"])
        sequences = np.full((len(penalties), 1 + search.max_new_tokens), self._token_ids["pad_token_id"])
        sequences[:, 0] = words[:, 0]
        rows, step = np.arange(len(penalties)), -1  # the sources whose output has not ended
        done, end = np.zeros(words.shape, bool), _end_time(search)
        for step in range(search.max_new_tokens):
            outputs, state = self._step(words, memory, state)
            likeliest = _scores(outputs["log_probs"], penalties, step, search).argmax(-1)
            words = np.where(done, self._token_ids["pad_token_id"], likeliest)
            sequences[rows, step + 1] = words[:, 0]
            done |= np.isin(words, search.end_token_ids)
            if done.all() or time.monotonic() > end:
                break
            if done.mean() >= _DROPPED_SHARE:
                kept = ~done[:, 0]
                memory, state = _select(memory, kept), _select(state, kept)
                rows, words, done, penalties = (each[kept] for each in (rows, words, done, penalties))
        return sequences[:, : step + 2]

    def _beams(self, memory: Tensors, state: Tensors, penalties: Array, search: Search) -> Array:
        """Transformers' beam search and stopping rules: (N · num_return_sequences, 1 + T)."""
        sources, beams, width = len(penalties), search.num_beams, penalties.shape[2]
        row, candidates = np.arange(sources)[:, None], max(2, 1 + len(search.end_token_ids)) * beams
        state = _repeat(state, beams)
        running: Array = np.full((sources, beams, 1 + search.max_new_tokens), -1)
        running[..., 0] = self._token_ids["decoder_start_token_id"]
        scores: Array = np.full((sources, beams), _LOWEST)
        done, done_scores, is_done = running.copy(), scores.copy(), np.zeros(scores.shape, bool)
        scores[:, 0] = 0  # all beams start alike: only the first may be extended
        improvable, end = np.ones((sources, 1), bool), _end_time(search)
        returned = np.empty((sources, search.num_return_sequences, running.shape[2]), int)
        searched: Array = np.arange(sources)  # the rows of the sources whose search has not ended
        for step in range(search.max_new_tokens):
            length = step + 1
            outputs, state = self._step(running[..., step], memory, state)
            totals = _scores(outputs["log_probs"], penalties, step, search)
            totals += scores[..., None]
            best, indices = _top_k(totals.reshape(len(totals), -1), candidates)
            parents, words = np.divmod(indices, width)
            sequences = running[row, parents]
            sequences[..., length] = words
            is_last = length == search.max_new_tokens or time.monotonic() > end
            stops = np.isin(words, search.end_token_ids) | is_last

            scores, chosen = _top_k(np.where(stops, best + _LOWEST, best), beams)
            running = sequences[row, chosen]
            state = {name: tensor[row, parents[row, chosen]] for name, tensor in state.items()}

            ends = stops & (np.arange(candidates) < beams)  # the other candidates only replace beams that ended
            full = is_done.all(1, keepdims=True) & (search.early_stopping is True)
            end_scores = best / np.float32(length**search.length_penalty)
            end_scores = np.where(ends & improvable & ~full, end_scores, end_scores + _LOWEST)
            done_scores, chosen = _top_k(np.concatenate([done_scores, end_scores], axis=1), beams)
            done = np.concatenate([done, sequences], axis=1)[row, chosen]
            is_done = np.concatenate([is_done, ends], axis=1)[row, chosen]

            by_longest = search.early_stopping == "never" and search.length_penalty > 0
            best_possible = scores[:, :1] / (search.max_new_tokens if by_longest else length) ** search.length_penalty
            worst_done = np.where(is_done, done_scores.min(1, keepdims=True), _LOWEST)
            improvable &= (best_possible > worst_done).any(1, keepdims=True)
            has_ended = ~improvable[:, 0] | (is_done.all(1) & (search.early_stopping is True))
            if has_ended.all() or stops.all():
                break
            if has_ended.mean() >= _DROPPED_SHARE:  # the others may take many more steps
                returned[searched] = done[:, : search.num_return_sequences]
                kept = ~has_ended
                memory, state = _select(memory, kept), _select(state, kept)
                searched, penalties, running, scores = (each[kept] for each in (searched, penalties, running, scores))
                done, done_scores, is_done, improvable = (
                    each[kept] for each in (done, done_scores, is_done, improvable)
                )
                row = np.arange(len(searched))[:, None]
        returned[searched] = done[:, : search.num_return_sequences]
        found = returned.reshape(-1, done.shape[2])
        found = found[:, : (found >= 0).sum(1).max()]
        # As in Transformers, a padding id of 0 counts as none.
        padding = self._token_ids["pad_token_id"] or (search.end_token_ids or [0])[0]
        return np.where(found < 0, padding, found)


def _to_array(name: str, value: object) -> Array:
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} has rows of several lengths: pass padding=True to the tokenizer.") from None


def _find_ungrounded(memory: Tensors, width: int, copied_only: Sequence[int]) -> Array:
    """(N, V + K) bool: the words of `copied_only` that a source does not have."""
    ungrounded = np.zeros((len(memory["memory.ids"]), width), bool)
    ungrounded[:, list(copied_only)] = True
    rows, positions = np.nonzero(memory["memory.mask"])
    ungrounded[rows, memory["memory.ids"][rows, positions]] = False
    return ungrounded


def _end_time(search: Search) -> float:
    """When a search of `max_time` seconds that begins now ends, by the clock of `time.monotonic`."""
    return math.inf if search.max_time is None else time.monotonic() + search.max_time


def _select(tensors: Tensors, rows: Array) -> Tensors:
    """The tensors of some of the sources: rows (N) bool."""
    return {name: tensor[rows] for name, tensor in tensors.items()}


def _repeat(state: Tensors, times: int) -> Tensors:
    """Repeats the initial state (N, 1, …) for each output of a source."""
    return {name: tensor.repeat(times, axis=1) for name, tensor in state.items()}


def _scores(log_probs: Array, penalties: Array, step: int, search: Search) -> Array:
    """log p (N, B, V + K), written over: −inf for forbidden words, and before `min_new_tokens` for end tokens, unless
    nothing else is left, as for an empty source."""
    log_probs += penalties
    if step < search.min_new_tokens:
        ends, others = search.end_token_ids, penalties == 0
        others[..., ends] = False
        log_probs[..., ends] = np.where(others.any(-1, keepdims=True), -np.inf, log_probs[..., ends])
    return log_probs


def _top_k(scores: Array, count: int) -> tuple[Array, Array]:
    """The largest scores of each row of (N, M) in descending order, and their indices: both (N, count)."""
    indices = np.argpartition(scores, -count, axis=1)[:, -count:]
    values = np.take_along_axis(scores, indices, axis=1)
    order = np.argsort(-values, axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(indices, order, axis=1)
