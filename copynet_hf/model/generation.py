"""`generate()` over the extended vocabulary: the logits processor, and the trace of what was copied from where."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from transformers.generation import (
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)
from transformers.utils import ModelOutput

from .copy_distribution import find_matches
from .memory import CopyNetCache, choose_cache, start_cache
from .source import ExtendedVocabulary, Source, count_tokens, find_marks, find_matching_ids
from .text_models import CACHE_NAME

ModelInputs = dict[str, Any]  # the arguments of a model's `forward`, by name

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation import CandidateGenerator, GenerationConfig

    from .outputs import CopyNetEncoderOutput, CopyNetEnsembleEncoderOutput

    class _Base(PreTrainedModel, GenerationMixin):
        """What the mixin is mixed into, for the type checker."""

        config: Any  # a CopyNetBaseConfig

        def find_allowed_words(self, output: Any) -> Tensor | None: ...
else:
    _Base = GenerationMixin


class ExtendedVocabularyLogitsProcessor(LogitsProcessor):
    """Forbids slots that the row's source does not own, words that the mechanism does not allow or that are for
    copying only and not in the source, padding, the start symbol, UNK where the generation config forbids it, and all
    but the end where the source has no words.

    Args:
        source_ids: (N, S) extended ids; each source has the same number of rows of scores, side by side.
        source_mask: (N, S) bool, false on padding.
        vocab_size: V, the first slot.
        forbidden_ids: ids that no row may generate.
        allowed: (N, V) bool, the words that may be generated; a source's own may be copied as well. None: all.
        copied_only: ids of words that no row may hold whose source does not.
        end_ids: ids that end an output, all that a source without words may have; none: it is like others.
        is_empty: (N,) bool, which sources have no words. None: each has.
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
        copied_only: Sequence[int] = (),
        end_ids: Sequence[int] = (),
        is_empty: Tensor | None = None,
    ) -> None:
        sources, width = source_ids.shape[0], vocab_size + max_source_oov
        owned = torch.zeros(sources, width + 1, dtype=torch.bool, device=source_ids.device)
        owned = owned.scatter_(1, source_ids.masked_fill(~source_mask, width), True)[:, :width]
        may_write = torch.ones_like(owned[:, :vocab_size]) if allowed is None else allowed.clone()
        may_write[:, list(copied_only)] = False
        owned[:, :vocab_size] |= may_write
        owned[:, forbidden_ids] = False
        if end_ids and is_empty is not None:
            is_end = torch.zeros(width, dtype=torch.bool, device=owned.device)
            is_end[list(end_ids)] = True
            owned &= ~is_empty[:, None] | is_end
        self.forbidden = ~owned[:, None]  # (N, 1, V + K)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """−inf (R, V + K) where a word is forbidden, else the score."""
        by_source = scores.unflatten(0, (self.forbidden.shape[0], -1))
        return by_source.masked_fill(self.forbidden, float("-inf")).flatten(0, 1)


class EmptySourceLogitsProcessor(LogitsProcessor):
    """Lets the outputs of sources without words, `is_empty` (N,) bool, end before the minimum length: nothing else is
    left for them."""

    def __init__(self, is_empty: Tensor, end_ids: list[int]) -> None:
        self.is_empty, self.end_ids = is_empty[:, None], end_ids

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores (R, V + K), 0 for the end of an empty source."""
        is_empty = self.is_empty.repeat_interleave(len(scores) // len(self.is_empty), dim=0)
        scores[:, self.end_ids] = scores[:, self.end_ids].masked_fill(is_empty, 0.0)
        return scores


class StopStrings(StoppingCriteria):
    """Ends a row when its text holds a stop string, copied words included, which the library's criterion cannot spell.

    `generate(stop_strings=..., tokenizer=...)` uses it without sources; `predict` and the pipeline, with them. With
    `generate`, pass the sources by `stopping_criteria=[StopStrings(tokenizer, stop_strings, source=texts)]`.

    Args:
        tokenizer: with `oov_words`, such as `CopyNetTokenizer`.
        stop_strings: one or several.
        source: the N sources: texts, or with facts and another truncation than to the tokenizer's `model_max_length`
            what `tokenizer.encode_sources` returned. None: they are unknown, so a slot spells nothing.

    Raises:
        ValueError: no text or an empty one; without `source`, a stop string with a word that is not in the vocabulary.
    """

    _GAP = "\N{OBJECT REPLACEMENT CHARACTER}"  # in place of a special token or an unknown slot

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stop_strings: str | Sequence[str],
        source: str | Sequence[str] | Sequence[Source] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_strings = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings or [""])
        if not all(self.stop_strings):
            raise ValueError(f"stop_strings is {stop_strings!r}: use one or several texts that are not empty")
        self.gaps = frozenset(tokenizer.all_special_ids)
        self.marks = frozenset(map(tokenizer.convert_tokens_to_ids, find_marks(tokenizer))) - self.gaps
        self.longest = max(map(len, self.stop_strings), default=0)  # words, and the one before, for its space
        self._length = 0  # of the rows at the last call, or of what a search begins with
        if source is None:
            self._check_spelling()
        # slots depend on the length of a source only where it is truncated on the left
        limit = tokenizer.model_max_length if tokenizer.truncation_side == "left" else None
        find_words = cast(ExtendedVocabulary, tokenizer).oov_words
        self.slot_words = [
            find_words(each, limit) if isinstance(each, str) else each.oov_words
            for each in ([source] if isinstance(source, str) else source or [""])
        ]

    def __call__(self, input_ids: Tensor, scores: object, **kwargs: object) -> Tensor:
        """(R) bool: which rows of `input_ids` (R, T), R / N side by side for each source, hold a stop string that ends
        in the words since the last call, or since what was given to `generate`."""
        before, length = self._length, input_ids.shape[1]
        self._length = length
        num_new = length - before if length > before else length  # several in assisted decoding; all in a new search
        rows, sources = input_ids.tolist(), len(self.slot_words)
        if len(rows) % sources:
            raise ValueError(f"source has {sources} texts for {len(rows)} rows: pass those of this batch.")
        repeats = len(rows) // sources
        slot_words = (self.slot_words[row // repeats] for row in range(len(rows)))
        found = [self._is_stopped(ids, length - num_new, words) for ids, words in zip(rows, slot_words, strict=True)]
        return torch.tensor(found, device=input_ids.device)

    def begin(self, length: int) -> None:
        """Begins a search with rows of this length, in which no stop string is looked for."""
        self._length = length

    def _is_stopped(self, ids: list[int], start: int, slot_words: list[str]) -> bool:
        """Whether a stop string is in the text that was not there before `start`."""
        window = self._take_window(ids, start)
        text, old = (self._spell(part, slot_words) for part in (window, window[: start - len(ids)]))
        return any(_count_places(stop, text) > _count_places(stop, old) for stop in self.stop_strings)

    def _take_window(self, ids: list[int], start: int) -> list[int]:
        """The row from `start` on, and the words before it that a stop string may begin with. A mark spells none, and
        is kept with the word that it changes."""
        missing = self.longest
        while start and (missing or ids[start - 1] in self.marks):
            start -= 1
            missing -= ids[start] not in self.marks
        return ids[start:]

    def _spell(self, ids: list[int], slot_words: list[str]) -> str:
        first = len(self.tokenizer)

        def spell_word(index: int) -> str:
            if index >= first:
                return slot_words[index - first] if index - first < len(slot_words) else self._GAP
            return self._GAP if index in self.gaps else str(self.tokenizer.convert_ids_to_tokens(index))

        return self.tokenizer.convert_tokens_to_string(list(map(spell_word, ids)))

    def _check_spelling(self) -> None:
        for text in self.stop_strings:
            ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
            if any(index in self.gaps or index >= len(self.tokenizer) for index in ids):
                raise ValueError(
                    f"stop_strings holds {text!r}, a word outside the vocabulary, which only a source can spell: pass "
                    f"stopping_criteria=[StopStrings(tokenizer, {text!r}, source=texts)] instead."
                )


def _count_places(part: str, text: str) -> int:
    """The places where a text has a part, which may overlap."""
    return sum(text.startswith(part, place) for place in range(len(text)))


@dataclass
class CopyTrace(ModelOutput):
    """Where each word of given outputs came from, N rows of T words over S source positions.

    sequences: (N, T) extended ids, without the start symbol.
    token_probs: (N, T) p(y_t); 0 after the end.
    copied: (N, T) share of p(y_t) that comes from copying, between 0 and 1.
    copy_probs: (N, T, S) probability of copying from each position, whatever the word.
    source_positions: (N, T) the most probable position that y_t was copied from; −1 where it is not in the source.
    cross_attentions: (N, T, S) attention a_tj; None without attention.
    """

    sequences: Tensor | None = None
    token_probs: Tensor | None = None
    copied: Tensor | None = None
    copy_probs: Tensor | None = None
    source_positions: Tensor | None = None
    cross_attentions: Tensor | None = None


class CopyNetGenerationMixin(_Base):
    """`generate()` over the extended vocabulary, for a model and for an ensemble."""

    num_caches: int = 1
    """How many layers the cache has: the number of models that decode."""

    def init_generation_config(self) -> None:
        """Sets the fields that the library's generation config does not have."""
        # Generation configs derived from the model's config do not save fields of our own.
        self.generation_config.forbid_unk = False  # type: ignore[attr-defined]
        self.generation_config._from_model_config = False

    def generate(
        self,
        *args: Any,
        copied_only: str | Sequence[int] | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> Any:
        """As in the library, over the extended vocabulary, but that a `max_length` that is passed replaces a
        `max_new_tokens` that was saved with the model.

        Args:
            copied_only: a regular expression, such as r"\\d": a word in which it finds something may only be written
                if the row's source has it. Or the ids of these words, as `find_matching_ids` returns them. Joiners and
                marks for case still apply to words that were copied.
            tokenizer: for a regular expression, and for `stop_strings`.

        Raises:
            ValueError: there is no tokenizer for the regular expression, or it is none; or there is an
                `assistant_model` and more than one beam.
        """
        if isinstance(copied_only, str):
            if tokenizer is None:
                raise ValueError("copied_only needs the words of the vocabulary: pass tokenizer=")
            copied_only = find_matching_ids(tokenizer, copied_only)
        library: Any = super()
        if (cache := choose_cache(kwargs.pop("cache", None), kwargs.pop("past_key_values", None))) is not None:
            kwargs[CACHE_NAME] = cache
        own = {"copied_only": copied_only, "is_assisted": kwargs.get("assistant_model") is not None}
        return library.generate(*args, tokenizer=tokenizer, **own, **kwargs)

    def _prepare_generation_config(
        self,
        generation_config: GenerationConfig | None,
        copied_only: Sequence[int] | None = None,
        is_assisted: bool = False,
        **kwargs: Any,
    ) -> tuple[GenerationConfig, ModelInputs]:
        library: Any = super()
        given = [kwargs, *([] if generation_config is None else [generation_config.to_dict()])]
        lengths = {name for each in given for name in ("max_length", "max_new_tokens") if each.get(name) is not None}
        prepared, model_kwargs = library._prepare_generation_config(generation_config, **kwargs)
        beams = 1 if prepared.num_beams is None else prepared.num_beams
        if not isinstance(beams, Integral) or beams < 1:
            raise ValueError(f"num_beams is {beams!r}: use a whole number, 1 or more")
        prepared.copied_only = copied_only  # of this call: no model brings it along
        if lengths == {"max_length"}:
            prepared.max_new_tokens = None  # that of the model, which the library prefers
        if is_assisted and (num_beams := prepared.num_beams or 1) > 1:
            raise ValueError(f"assistant_model is for one beam, and num_beams is {num_beams}: pass num_beams=1")
        return prepared, model_kwargs

    def _prepare_generated_length(  # type: ignore[override]
        self, generation_config: GenerationConfig, *args: Any, input_ids_length: int, **kwargs: Any
    ) -> GenerationConfig:
        library: Any = super()
        prepared: Any = library._prepare_generated_length(
            generation_config, *args, input_ids_length=input_ids_length, **kwargs
        )
        prepared.num_given = input_ids_length  # of this call, as `copied_only`
        return prepared

    def _prepare_cache_for_generation(
        self, generation_config: GenerationConfig, model_kwargs: ModelInputs, *args: Any, **kwargs: Any
    ) -> Any:
        for name, supported in (("cache_implementation", (None, "dynamic")), ("prefill_chunk_size", (None,))):
            if (value := getattr(generation_config, name)) not in supported:
                raise ValueError(
                    f"{name}={value!r} is for the library's caches, and CopyNet has one of its own, which holds a "
                    "state of fixed size, or grows with the words of a Transformers decoder: leave it out."
                )
        if generation_config.use_cache and model_kwargs.get(CACHE_NAME) is None:
            model_kwargs[CACHE_NAME] = start_cache(None, True, self.num_caches)
            if generation_config.is_assistant:
                model_kwargs[CACHE_NAME].activate_past_recording()

    def _get_logits_processor(
        self,
        generation_config: GenerationConfig,
        *args: Any,
        model_kwargs: ModelInputs | None = None,
        **kwargs: Any,
    ) -> LogitsProcessorList:
        kwargs["model_kwargs"] = model_kwargs
        processors = super()._get_logits_processor(generation_config, *args, **kwargs)  # type: ignore[misc]
        if model_kwargs is not None and model_kwargs.get("encoder_outputs") is not None:
            processors.insert(0, self._extended_vocabulary_processor(generation_config, model_kwargs))
            is_empty = model_kwargs["encoder_outputs"].is_empty
            if is_empty.any():
                processors.append(EmptySourceLogitsProcessor(is_empty, self._find_ends(generation_config)))
        return processors

    def _get_stopping_criteria(
        self,
        generation_config: GenerationConfig,
        stopping_criteria: StoppingCriteriaList | None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> StoppingCriteriaList:
        known = [criterion for criterion in stopping_criteria or () if isinstance(criterion, StopStrings)]
        if generation_config.stop_strings is not None and not known and hasattr(tokenizer, "oov_words"):
            assert tokenizer is not None
            known = [StopStrings(tokenizer, generation_config.stop_strings)]
            stopping_criteria = StoppingCriteriaList([*(stopping_criteria or ()), *known])
        for criterion in known:
            criterion.begin(generation_config.num_given)  # type: ignore[attr-defined]
        if known:  # they take the place of the library's
            generation_config = copy(generation_config)
            generation_config.stop_strings = None
        return super()._get_stopping_criteria(generation_config, stopping_criteria, tokenizer, **kwargs)  # type: ignore[misc]

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        input_ids: Tensor,
        next_sequence_length: int | None = None,
        *,
        tokenizer: object = None,
        assistant_tokenizer: object = None,
        **kwargs: Any,
    ) -> ModelInputs:
        """As in the library, without the tokenizers, which `generate` takes and passes on.

        Once the cache holds a state, which takes the place of everything before, only the new words are prepared.
        """
        cache = kwargs.get(CACHE_NAME)
        state = cache.layer.states if isinstance(cache, CopyNetCache) else None
        if next_sequence_length is None or state is None or state.hidden.device != input_ids.device:
            library: Any = super()
            inputs: ModelInputs = library.prepare_inputs_for_generation(
                input_ids, next_sequence_length=next_sequence_length, **kwargs
            )
            return inputs
        words = {"decoder_input_ids": input_ids[:, -next_sequence_length:]}
        # a Trainer passes the labels to generate()
        return words | {name: value for name, value in kwargs.items() if name not in ("is_first_iteration", "labels")}

    def _expand_inputs_for_generation(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Any = None,
        **model_kwargs: Any,
    ) -> tuple[Any, ModelInputs]:
        """Repeats the target words, and not the sources: the rows of one source share it (`Memory`)."""

        def repeat(value: Any) -> Any:
            return value.repeat_interleave(expand_size, dim=0) if isinstance(value, Tensor) else value

        shared = ("encoder_outputs", "attention_mask", "encoder_input_ids", "encoder_attention_mask", "word_index")
        kwargs = {name: value if name in shared else repeat(value) for name, value in model_kwargs.items()}
        return repeat(input_ids), kwargs

    def _get_candidate_generator(self, *args: Any, **kwargs: Any) -> CandidateGenerator:
        if kwargs.get("assistant_tokenizer") is not None:
            raise ValueError(
                "assistant_tokenizer is set: leave it out, and use an assistant with the model's own tokenizer, "
                "because the slots of another tokenizer hold other words."
            )
        generator = super()._get_candidate_generator(*args, **kwargs)  # type: ignore[misc]
        if hasattr(generator, "vocab_size"):  # prompt lookup scores its candidates by one-hot vectors of this width
            generator.vocab_size = self.config.extended_vocab_size
        return generator

    def _extended_vocabulary_processor(
        self, generation_config: GenerationConfig, model_kwargs: ModelInputs
    ) -> ExtendedVocabularyLogitsProcessor:
        config, encoder_outputs = self.config, model_kwargs["encoder_outputs"]
        symbols, ends = (config.pad_token_id, config.decoder_start_token_id), self._find_ends(generation_config)
        # a pretrained encoder-decoder may generate all that it did
        forbidden = [word for word in symbols if word not in (*config.end_token_ids, *ends) and not config.seq2seq]
        if getattr(generation_config, "forbid_unk", False) and config.unk_token_id not in ends:
            forbidden.append(config.unk_token_id)
        return ExtendedVocabularyLogitsProcessor(
            encoder_outputs.source_ids,
            encoder_outputs.source_mask,
            config.vocab_size,
            config.max_source_oov,
            forbidden,
            self.find_allowed_words(encoder_outputs),
            getattr(generation_config, "copied_only", None) or (),
            ends,
            encoder_outputs.is_empty,
        )

    def _find_ends(self, generation_config: GenerationConfig) -> list[int]:
        """The end symbols of a call, those of the model's config if the call has none."""
        return _list_ends(generation_config.eos_token_id) or self.config.end_token_ids

    def compute_transition_scores(
        self,
        sequences: Tensor,
        scores: tuple[Tensor, ...],
        beam_indices: Tensor | None = None,
        normalize_logits: bool = False,
    ) -> Tensor:
        """Log-probability of each generated word, as the library's own method gives it.

        The library assumes scores of width `config.vocab_size`; they are V + K wide here.

        Args:
            sequences: (N, 1 + T) generated ids.
            scores: T tensors (rows, V + K), as `generate(output_scores=True)` returns them.
            beam_indices: (N, T) row of `scores` that each word was chosen in, negative after the end; for beams.
            normalize_logits: whether to take the log-softmax of `scores` first.

        Returns:
            (N, T) scores, 0 after the end; T is the longest output's length, which a search by beams may outlast.
        """
        stacked = torch.stack(tuple(scores), dim=1)  # (rows, at least T, V + K)
        if normalize_logits:
            stacked = torch.log_softmax(stacked, dim=-1)
        if beam_indices is None:
            beam_indices = torch.arange(stacked.shape[0], device=sequences.device)[:, None].expand(-1, len(scores))
            beam_indices = beam_indices.masked_fill(self._mask_after_end(sequences[:, -len(scores) :]), -1)
        else:
            beam_indices = beam_indices[:, : int((beam_indices >= 0).sum(-1).max())]
        ended, length = beam_indices < 0, beam_indices.shape[1]
        rows, words = beam_indices.masked_fill(ended, 0), sequences[:, -length:]
        steps = torch.arange(length, device=sequences.device)
        return stacked[rows, steps, words].masked_fill(ended, 0.0)

    def _mask_after_end(self, words: Tensor, eos_token_id: int | list[int] | None = None) -> Tensor:
        """(N, T) bool: true after the end of each output, where `generate` fills up its row; see `count_tokens`.

        Args:
            eos_token_id: the call's end symbols; None: those of the generation config.
        """
        ends = _list_ends(self.generation_config.eos_token_id if eos_token_id is None else eos_token_id)
        lengths = [count_tokens(row, ends, self.config.pad_token_id) for row in words.tolist()]
        return torch.arange(words.shape[1], device=words.device) >= torch.tensor(lengths, device=words.device)[:, None]

    @torch.no_grad()
    def trace_copies(
        self,
        sequences: Tensor,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: CopyNetEncoderOutput | CopyNetEnsembleEncoderOutput | None = None,
        eos_token_id: int | list[int] | None = None,
        **source: Tensor,
    ) -> CopyTrace:
        """Where each word of `sequences` came from, however they were decoded: one forward pass over finished outputs.

        Args:
            sequences: (N, 1 + T) as `generate` returns them, start symbol first; N is a multiple of the B sources,
                with the outputs of one source side by side.
            input_ids, attention_mask: (B, S) the sources, as given to `generate`; or
            encoder_outputs: the encoder's output for them.
            eos_token_id: the end symbols that were passed to `generate`, if any.
            source: the encoder's other inputs, such as `token_type_ids`.

        Returns:
            The trace; of a model that does not copy, all copy shares and probabilities are 0.

        Raises:
            ValueError: N is no multiple of B.
        """
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
        is_output = ~self._mask_after_end(words, eos_token_id)
        matches = find_matches(words, encoder_outputs.source_ids, encoder_outputs.source_mask)
        copy_probs = output.copy_probs
        if copy_probs is None:
            copy_probs, matches = output.logits.new_zeros(matches.shape), torch.zeros_like(matches)
        from_positions = copy_probs * matches  # (N, T, S) mass that y_t itself got from each position
        log_probs = output.logits.gather(-1, words[..., None])[..., 0]
        token_probs = log_probs.exp().clamp(max=1.0)  # rounding can take log p above 0
        shares = from_positions.sum(-1) / token_probs.clamp(min=torch.finfo(token_probs.dtype).tiny)
        best = from_positions.argmax(-1).masked_fill(~matches.any(-1) | ~is_output, -1)
        return CopyTrace(
            sequences=words,
            token_probs=token_probs * is_output,
            copied=shares.clamp(max=1.0) * is_output,
            copy_probs=copy_probs,
            source_positions=best,
            cross_attentions=None if output.cross_attentions is None else output.cross_attentions[0][:, 0],
        )


def _list_ends(eos_token_id: int | list[int] | None) -> list[int]:
    """The end symbols of a generation config, which may be one, several or none."""
    return [] if eos_token_id is None else torch.as_tensor(eos_token_id).flatten().tolist()
