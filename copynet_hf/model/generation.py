"""What `generate()` needs of a recurrent model with an extended vocabulary: its cache, its logits processor, and
the one way to see, afterwards, what was copied from where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.generation import GenerationMixin, LogitsProcessor, LogitsProcessorList
from transformers.utils import ModelOutput

from .configuration_copynet import CopyNetConfig
from .copy_distribution import target_matches
from .memory import DecoderState, Memory, combined

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.generation import CandidateGenerator, GenerationConfig

    class _Base(PreTrainedModel, GenerationMixin):
        """What the mixin is mixed into, for the type checker."""

        config: CopyNetConfig

        def allowed_words(self, output: Any) -> Tensor | None: ...
else:
    _Base = GenerationMixin


class CopyNetCacheLayer(CacheLayerMixin):
    """The decoder's state after each recorded step, newest last, and the memory it reads.

    Only the newest is kept unless `activate_past_recording` was called: assisted decoding rolls back to earlier ones.
    `states` holds the fields of `DecoderState`, each with a steps axis after the batch.
    """

    is_croppable = True
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.states: DecoderState | None = None
        self.memory: Memory | None = None
        self.record_past = False
        self.seen_tokens = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: the first `record` brings everything."""

    def update(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        raise TypeError("CopyNet's cache holds recurrent states, no keys and values: use `record`.")

    def record(self, states: DecoderState, memory: Memory) -> None:
        """Appends states (batch, steps, …) after the tokens they have read."""
        self.memory = memory
        self.seen_tokens += states.hidden.shape[1]
        if self.record_past and self.states is not None:
            states = combined([self.states, states], partial(torch.cat, dim=1))
        self.states = states if self.record_past else _each(states, lambda field: field[:, -1:])
        self.is_initialized = True

    def last(self) -> DecoderState | None:
        """The state after the last token, or None before the first."""
        return None if self.states is None else _each(self.states, lambda field: field[:, -1])

    def get_seq_length(self) -> int:
        return self.seen_tokens

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen_tokens + query_length, 0

    def activate_past_recording(self) -> None:
        self.record_past = True

    def crop(self, tokens_to_remove: int) -> None:
        """Goes back by −`tokens_to_remove` tokens, to the state before the first word if that many were read."""
        steps, recorded = -tokens_to_remove, 0 if self.states is None else self.states.hidden.shape[1]
        if self.states is None or steps == 0:
            return
        if steps < 0 or steps > recorded or (steps == recorded < self.seen_tokens):
            raise ValueError(
                f"crop({tokens_to_remove}) cannot be done: {recorded} states of {self.seen_tokens} are recorded. Pass "
                "a negative number, and call activate_past_recording() before decoding."
            )
        kept = recorded - steps
        self.states = None if kept == 0 else _each(self.states, lambda field: field[:, :kept])
        self.seen_tokens -= steps

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Follows the beams. They stay within their source, so the memory does not move."""
        if self.states is not None:
            self.states = _each(self.states, lambda field: field.index_select(0, beam_idx.to(field.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.states is not None:
            rows = torch.arange(self.states.hidden.shape[0], device=self.states.hidden.device)
            self.batch_select_indices(rows.repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.states is not None and self.memory is not None:
            self.states = _each(self.states, lambda field: field[indices])
            self.memory = self.memory.select(indices)

    def reset(self) -> None:
        self.states = self.memory = None
        self.seen_tokens = 0
        self.is_initialized = False


class CopyNetCache(Cache):
    """`past_key_values` of CopyNet: a `Cache` whose one layer holds a recurrent state instead of keys and values."""

    def __init__(self) -> None:
        super().__init__(layers=[CopyNetCacheLayer()])

    @property
    def layer(self) -> CopyNetCacheLayer:
        return self.layers[0]  # type: ignore[return-value]


class ExtendedVocabularyLogitsProcessor(LogitsProcessor):
    """Forbids what must not be emitted: slots that the row's source does not own, words that the mechanism does not
    allow, padding, the start symbol, and UNK where asked.

    Args:
        source_ids: (N, S) extended ids of the sources; each has as many rows of scores, side by side.
        source_mask: (N, S) bool, false on padding.
        vocab_size: V, where the slots begin.
        forbidden_ids: ids that no row may emit.
        allowed: (N, V) bool, the words that may be generated; those of the source may be copied. None: all.
    """

    supports_continuous_batching = False

    def __init__(
        self,
        source_ids: Tensor,
        source_mask: Tensor,
        vocab_size: int,
        max_source_oov: int,
        forbidden_ids: list[int],
        allowed: Tensor | None = None,
    ) -> None:
        sources, width = source_ids.shape[0], vocab_size + max_source_oov
        owned = torch.zeros(sources, width + 1, dtype=torch.bool, device=source_ids.device)
        owned = owned.scatter_(1, source_ids.masked_fill(~source_mask, width), True)[:, :width]
        self.first = vocab_size  # of the columns that differ from row to row
        if allowed is not None:
            self.first, owned[:, :vocab_size] = 0, owned[:, :vocab_size] | allowed
        self.forbidden, self.forbidden_ids = ~owned[:, self.first :], forbidden_ids

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, self.forbidden_ids] = float("-inf")
        rows = scores.shape[0] // self.forbidden.shape[0]
        if self.forbidden.shape[1]:  # else there are no slots
            scores[:, self.first :].masked_fill_(self.forbidden.repeat_interleave(rows, dim=0), float("-inf"))
        return scores


@dataclass
class CopyTrace(ModelOutput):
    """How each word of given outputs came about, N rows of T words over S source positions.

    sequences: (N, T) the words, without the start symbol.
    token_probs: (N, T) p(y_t); 0 after the end.
    copied: (N, T) share of p(y_t) that comes from copying, between 0 and 1.
    copy_probs: (N, T, S) probability of copying from each position, whatever the word.
    source_positions: (N, T) the likeliest position that y_t was copied from; −1 where it is not in the source.
    cross_attentions: (N, T, S) attention a_tj; None without attention.
    """

    sequences: Tensor | None = None
    token_probs: Tensor | None = None
    copied: Tensor | None = None
    copy_probs: Tensor | None = None
    source_positions: Tensor | None = None
    cross_attentions: Tensor | None = None


class CopyNetGenerationMixin(_Base):
    """`generate()` over the extended vocabulary."""

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise ValueError(
                f"cache_implementation={generation_config.cache_implementation!r} is for keys and values: CopyNet's "
                "state has one size from the first word to the last. Leave it out."
            )
        if generation_config.use_cache and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = CopyNetCache()
            if generation_config.is_assistant:
                model_kwargs["past_key_values"].activate_past_recording()

    def _get_logits_processor(
        self,
        generation_config: GenerationConfig,
        *args: Any,
        model_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> LogitsProcessorList:
        kwargs["model_kwargs"] = model_kwargs
        processors = super()._get_logits_processor(generation_config, *args, **kwargs)  # type: ignore[misc]
        if model_kwargs is not None and model_kwargs.get("encoder_outputs") is not None:
            processors.insert(0, self._extended_vocabulary_processor(generation_config, model_kwargs))
        return processors

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Any = None,
        **model_kwargs: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Repeats the target words alone: the rows of one source read it together (`Memory`)."""

        def repeated(value: Any) -> Any:
            return value.repeat_interleave(expand_size, dim=0) if isinstance(value, Tensor) else value

        shared = ("encoder_outputs", "attention_mask")
        kwargs = {name: value if name in shared else repeated(value) for name, value in model_kwargs.items()}
        return repeated(input_ids), kwargs

    def _get_candidate_generator(self, *args: Any, **kwargs: Any) -> CandidateGenerator:
        generator = super()._get_candidate_generator(*args, **kwargs)  # type: ignore[misc]
        if hasattr(generator, "vocab_size"):  # prompt lookup tries its candidates on scores of this width
            generator.vocab_size = self.config.extended_vocab_size
        return generator

    def _extended_vocabulary_processor(
        self, generation_config: GenerationConfig, model_kwargs: dict[str, Any]
    ) -> ExtendedVocabularyLogitsProcessor:
        config, encoder_outputs = self.config, model_kwargs["encoder_outputs"]
        symbols = (config.pad_token_id, config.decoder_start_token_id)
        forbidden = [word for word in symbols if word not in config.end_token_ids]
        if getattr(generation_config, "forbid_unk", False):
            forbidden.append(config.unk_token_id)
        return ExtendedVocabularyLogitsProcessor(
            encoder_outputs.source_ids,
            encoder_outputs.source_mask,
            config.vocab_size,
            config.max_source_oov,
            forbidden,
            self.allowed_words(encoder_outputs),
        )

    def compute_transition_scores(
        self,
        sequences: Tensor,
        scores: tuple[Tensor, ...],
        beam_indices: Tensor | None = None,
        normalize_logits: bool = False,
    ) -> Tensor:
        """Log-probability of each generated word, as the library's own method gives it.

        The library counts rows of width `config.vocab_size`; scores here are wider, so the rows are gathered by
        their real width.

        Args:
            sequences: (N, 1 + T) generated ids.
            scores: T tensors (rows, V + K), as `generate(output_scores=True)` returns them.
            beam_indices: (N, T) row of `scores` that each word was chosen in, negative after the end; for beams.
            normalize_logits: whether to take the log-softmax of `scores` first.

        Returns:
            (N, T) scores, 0 after the end; T is the longest output's length.
        """
        stacked = torch.stack(tuple(scores), dim=1)  # (rows, T, V + K)
        if normalize_logits:
            stacked = torch.log_softmax(stacked, dim=-1)
        if beam_indices is None:
            beam_indices = torch.arange(stacked.shape[0], device=sequences.device)[:, None].expand(-1, len(scores))
            alive = _until_end(sequences[:, -len(scores) :], self.generation_config.eos_token_id)
            beam_indices = beam_indices.masked_fill(~alive, -1)
        length = int((beam_indices >= 0).sum(-1).max())
        ended = beam_indices[:, :length] < 0
        rows = beam_indices[:, :length].masked_fill(ended, 0)
        first = sequences.shape[1] - len(scores)
        words = sequences[:, first : first + length]
        steps = torch.arange(length, device=sequences.device)
        return stacked[rows, steps, words].masked_fill(ended, 0.0)

    @torch.no_grad()
    def trace_copies(
        self,
        sequences: Tensor,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        **source: Tensor,
    ) -> CopyTrace:
        """Where each word of `sequences` came from, however they were decoded: one pass over the finished outputs.

        Args:
            sequences: (N, 1 + T) as `generate` returns them, start symbol first, N a multiple of the B sources (each
                source's outputs stand together).
            input_ids, attention_mask: (B, S) the sources, as given to `generate`; or
            encoder_outputs: what the encoder made of them.
            source: what else the encoder was given, such as `token_type_ids`.

        Raises:
            ValueError: the model does not copy, or N is no multiple of B.
        """
        if not self.config.copies:
            raise ValueError(
                f"copy_mechanism={self.config.copy_mechanism!r} copies nothing: there is nothing to trace."
            )
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(input_ids=input_ids, attention_mask=attention_mask, **source)
        sources = encoder_outputs.source_ids.shape[0]
        if sequences.shape[0] % sources:
            raise ValueError(f"{sequences.shape[0]} sequences cannot belong to {sources} sources: pass the same rows.")
        output = self(
            encoder_outputs=encoder_outputs,
            decoder_input_ids=sequences[:, :-1],
            output_attentions=True,
            use_cache=False,
            return_dict=True,
        )
        words = sequences[:, 1:]
        alive = _until_end(words, self.config.eos_token_id)
        repeats = sequences.shape[0] // sources
        read = (encoder_outputs.source_ids, encoder_outputs.source_mask)
        matches = target_matches(words, *(field.repeat_interleave(repeats, dim=0) for field in read))
        from_positions = output.copy_probs * matches
        token_probs = output.logits.gather(-1, words[..., None])[..., 0].exp()
        shares = from_positions.sum(-1) / token_probs.clamp(min=torch.finfo(token_probs.dtype).tiny)
        best = from_positions.argmax(-1).masked_fill(~matches.any(-1) | ~alive, -1)
        return CopyTrace(
            sequences=words,
            token_probs=token_probs * alive,
            copied=shares.clamp(max=1.0) * alive,
            copy_probs=output.copy_probs,
            source_positions=best,
            cross_attentions=None if output.cross_attentions is None else output.cross_attentions[0][:, 0],
        )


def _until_end(words: Tensor, eos_token_id: int | list[int] | None) -> Tensor:
    """(N, T) bool: up to and with the first end symbol."""
    if eos_token_id is None:
        return torch.ones_like(words, dtype=torch.bool)
    is_end = torch.isin(words, torch.as_tensor(eos_token_id, device=words.device))
    return (is_end.cumsum(-1) - is_end.long()) == 0


def _each(states: DecoderState, change: Callable[[Tensor], Tensor]) -> DecoderState:
    return combined([states], lambda fields: change(fields[0]))
