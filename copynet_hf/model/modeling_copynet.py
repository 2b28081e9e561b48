"""CopyNet (Gu, Lu, Li, Li, ACL 2016) and its baselines as Transformers models.

Letters and shapes: `copy_distribution.py`; widths: `memory.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import can_return_tuple

from .configuration_copynet import CopyNetConfig
from .copy_distribution import (
    MODES,
    Mixture,
    at_least_float32,
    expand_to_rows,
    has_values,
    lowest,
    mixture,
    replace_unreachable_words,
)
from .decoder import CopyNetDecoder, Decoder
from .encoder import CopyNetEncoder, SourceEncoder
from .fast import find_fast_form_obstacles, find_runner
from .generation import CopyNetGenerationMixin
from .layers import AlignedWords, Dropout
from .loss import (
    check_labels,
    check_loss_of_logits,
    check_written_words,
    collect_mode_scores,
    compute_loss,
    mask_left_padding,
    shift_right,
)
from .mechanism_decoders import DECODERS
from .memory import CopyNetCache, DecoderState, Memory, choose_cache, start_cache
from .outputs import (
    CopyNetEncoderOutput,
    CopyNetModelOutput,
    CopyNetSeq2SeqLMOutput,
    SourceInputs,
    check_not_negative,
    check_shape,
    value_or_default,
)
from .pipeline import CUSTOM_PIPELINES
from .pretrained import CopyNetPreTrainedModel, load_seq2seq, make_seq2seq_config, take_weights
from .text_models import CACHE_NAME
from .transformer_decoder import TransformerDecoder
from .transformer_encoder import CopyNetTransformerEncoder, WordEncoder


def build_encoder(config: CopyNetConfig) -> SourceEncoder:
    """A new encoder: the Transformers encoder of the config, over pieces or words, or else GRU layers."""
    if config.encoder is None:
        return CopyNetEncoder(config)
    return (CopyNetTransformerEncoder if config.encoder_reads == "pieces" else WordEncoder)(config)


def build_decoder(config: CopyNetConfig) -> Decoder:
    """A new decoder: the Transformers decoder of the config, or else the mechanism's."""
    if config.decoder is not None:
        return TransformerDecoder(config)
    return DECODERS.get(config.copy_mechanism, CopyNetDecoder)(config)


class CopyNetModel(CopyNetPreTrainedModel):
    """Encoder and decoder without the output distribution: returns readouts r_t and copy scores ψ_c."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.encoder: SourceEncoder = build_encoder(config)
        self.decoder: Decoder = build_decoder(config)
        self.dropout = Dropout(config.dropout)
        self.main_input_name = self.encoder.main_input_name
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: CopyNetEncoderOutput | tuple | None = None,
        past_key_values: CopyNetCache | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        cache: CopyNetCache | None = None,
        **source: Tensor | None,
    ) -> CopyNetModelOutput:
        """Encodes the source, unless `encoder_outputs` is given, and decodes the target words.

        Args:
            input_ids, attention_mask, source: the fields of `SourceInputs`, see `SourceEncoder.forward`.
            decoder_input_ids: (B, T) extended ids of y_0 … y_{T-1}, the start symbol first; with a cache, only the new
                ones.
            decoder_attention_mask: (B, T), or longer with a cache; 0 on padding, where the state passes on unchanged.
            decoder_inputs_embeds: (B, T, E) replaces the embeddings of `decoder_input_ids`. Without these ids,
                where y_{t-1} is in the source is unknown: nothing is read selectively, ζ(y_{t-1}) = 0.
            encoder_outputs: what `get_encoder()` returned for the N sources of these rows, B / N rows side by side
                from each.
            cache: what an earlier call with `use_cache=True` returned. Pass `encoder_outputs` with it: without, the
                source is encoded again.
            past_key_values: the same, by its name before Transformers 5.24.

        Raises:
            TypeError: an argument that there is not.
            ValueError: no target words, target ids below 0 (not checked on an accelerator once a cache holds steps),
                embeddings of another shape, or encoder outputs or a cache of another kind.
        """
        for name in set(source).difference(SourceInputs._fields):
            raise TypeError(f"CopyNetModel.forward() got an unexpected keyword argument {name!r}")
        config = self.config
        output_hidden_states = value_or_default(output_hidden_states, config, "output_hidden_states")
        targets = decoder_inputs_embeds if decoder_input_ids is None else decoder_input_ids
        if targets is None:
            raise ValueError(
                "decoder_input_ids is missing: pass it, decoder_inputs_embeds, or labels to "
                "CopyNetForConditionalGeneration."
            )
        if targets.shape[1] == 0:
            raise ValueError("decoder_input_ids has no words: pass at least the start symbol.")
        if encoder_outputs is None:
            options = {"output_hidden_states": output_hidden_states, "return_dict": True}
            encoder_outputs = self.encoder(input_ids, attention_mask, **source, **options)
        encoder_outputs = self._check_encoder_outputs(encoder_outputs)
        starts_cache = value_or_default(use_cache, config, "use_cache") and not self.training
        cache = start_cache(choose_cache(cache, past_key_values), starts_cache)
        is_start = cache is None or not cache.get_seq_length()
        if decoder_input_ids is not None and (is_start or decoder_input_ids.is_cpu):
            # an accelerator would have to be waited for at each step of a search
            check_not_negative("decoder_input_ids", decoder_input_ids)
        rows = targets.shape[0]
        memory, state = self._start_decoding(encoder_outputs, cache, rows)
        embeddings, matches = self._embed_targets(decoder_input_ids, decoder_inputs_embeds, memory)
        keep = None if decoder_attention_mask is None else decoder_attention_mask[:, -targets.shape[1] :].bool()
        if keep is not None and has_values(keep) and bool(keep.all()):
            keep = None  # the fast form has no mask
        runner = find_runner(self.decoder, memory, rows, state, keep, cache)
        steps = self.decoder(embeddings, matches, memory, state, keep, runner)
        if cache is not None:
            cache.layer.record(steps.states, memory, runner)

        attention = steps.attention if value_or_default(output_attentions, config, "output_attentions") else None
        return CopyNetModelOutput(
            last_hidden_state=steps.readout,
            **{CACHE_NAME: cache},  # type: ignore[arg-type]
            decoder_hidden_states=(embeddings, steps.states.hidden) if output_hidden_states else None,
            # No layer attends to the decoder's own past; the library iterates over them if attentions are requested.
            decoder_attentions=None if attention is None else (),
            cross_attentions=None if attention is None else (attention[:, None],),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            copy_scores=steps.states.copy_scores,
            switch=steps.switch,
            end_scores=steps.end_scores,
            source_ids=memory.ids,
            source_mask=memory.mask.long(),
        )

    def _embed_targets(
        self, decoder_input_ids: Tensor | None, decoder_inputs_embeds: Tensor | None, memory: Memory
    ) -> tuple[Tensor, Tensor]:
        """e(y_{t-1}) (B, T, E), after dropout, and where x_j = y_{t-1} (B, T, S) bool: nowhere without ids."""
        if decoder_input_ids is None:
            assert decoder_inputs_embeds is not None
            shape = (*decoder_inputs_embeds.shape[:2], memory.mask.shape[1])
            return self.dropout(decoder_inputs_embeds), memory.mask.new_zeros(shape)
        if decoder_inputs_embeds is not None:
            shape = (*decoder_input_ids.shape, self.config.embedding_size)
            check_shape("decoder_inputs_embeds", decoder_inputs_embeds, shape)
        is_known, unk = decoder_input_ids < self.config.vocab_size, self.config.unk_token_id
        words, matches = replace_unreachable_words(decoder_input_ids, memory.ids, memory.mask, is_known, unk)
        embeddings = decoder_inputs_embeds
        if embeddings is None:
            embeddings = self.encoder.embed(words, memory.slot_embeddings)
        return self.dropout(embeddings), matches

    def _check_encoder_outputs(self, encoder_outputs: CopyNetEncoderOutput | tuple) -> CopyNetEncoderOutput:
        """The encoder's output, also if it is a plain tuple."""
        if isinstance(encoder_outputs, CopyNetEncoderOutput):
            return encoder_outputs
        if not isinstance(encoder_outputs, tuple) or len(encoder_outputs) < 4:  # without `source_mask`
            size = f" of {len(encoder_outputs)}" if isinstance(encoder_outputs, tuple) else ""
            raise ValueError(
                f"encoder_outputs is a {type(encoder_outputs).__name__}{size}, which does not say which words to "
                "copy: pass what get_encoder() returns."
            )
        config = self.config
        has_more = config.num_features or config.feature_vocab_size or config.letter_vocab_size
        if has_more or config.mechanism.retrieves:
            raise ValueError(
                "encoder_outputs is a tuple, which cannot hold facts, features or letters: pass what get_encoder() "
                "returns with return_dict=True."
            )
        return CopyNetEncoderOutput(*encoder_outputs)

    def _start_decoding(
        self, encoder_outputs: CopyNetEncoderOutput, cache: CopyNetCache | None, rows: int
    ) -> tuple[Memory, DecoderState | None]:
        """The memory and the state to continue from, those of the cache if it has them; without a cache no state."""
        if cache is not None and cache.layer.memory is not None:
            state = cache.layer.last()
            if state is not None and state.hidden.shape[0] != rows:
                raise ValueError(
                    f"{rows} rows of target words continue {state.hidden.shape[0]} in the cache: pass as many."
                )
            if state is not None:
                return cache.layer.memory, state
        if not rows or rows % encoder_outputs.source_ids.shape[0]:
            raise ValueError(
                f"{rows} rows of target words do not match {encoder_outputs.source_ids.shape[0]} sources: pass as "
                "many, or a multiple, with those of one source side by side."
            )
        memory = self.decoder.build_memory(encoder_outputs)
        return memory, None if cache is None else self.decoder.initial_state(memory, rows)


class CopyNetForConditionalGeneration(CopyNetPreTrainedModel, CopyNetGenerationMixin):
    """Encoder, decoder and the output distribution of `config.copy_mechanism`, which generates and copies."""

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012
    custom_pipelines: ClassVar[dict[str, Any]] = CUSTOM_PIPELINES
    accepts_loss_kwargs = True

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.model = CopyNetModel(config)
        tied = config.tie_word_embeddings and not config.seq2seq  # whose states are as wide as its embeddings
        self.lm_head_proj = nn.Linear(config.hidden_size, config.embedding_size, bias=False) if tied else None
        self.lm_head = None
        if config.mechanism.generates:
            width = config.embedding_size if tied else config.hidden_size
            has_bias = config.logits_bias if config.seq2seq else not config.mechanism.tanh_readout
            self.lm_head = nn.Linear(width, config.vocab_size, bias=has_bias)
        if config.seq2seq:
            self._tied_weights_keys = {
                "lm_head.weight": f"model.encoder.{self.model.encoder.name_embeddings()}.weight"
            }
        self.alignments = AlignedWords(config) if config.aligned_words else None
        self.main_input_name = self.model.main_input_name
        self.post_init()
        self.init_generation_config()

    @classmethod
    def from_seq2seq_pretrained(
        cls,
        name: str,
        *,
        tokenizer: PreTrainedTokenizerBase,
        seq2seq_options: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> CopyNetForConditionalGeneration:
        """A pretrained encoder-decoder such as T5, BART or Marian with a copy head, in evaluation mode.

        Its weights, tokenizer and generation config are its own, pieces are the words. Untrained, it copies with a
        probability below 0.01, and so generates what the encoder-decoder generates.

        Args:
            name: its folder or Hub name.
            tokenizer: its own tokenizer.
            seq2seq_options: arguments of its `from_pretrained`, such as `revision`.
            fields: of the config, such as `copy_mechanism`.

        Raises:
            ValueError: it is no encoder-decoder that a copy head can be added to, or the tokenizer is another model's.
        """
        own = load_seq2seq(name, **seq2seq_options or {})
        model: CopyNetForConditionalGeneration = cls._from_config(
            make_seq2seq_config(own, tokenizer, **fields), dtype=own.dtype
        )
        take_weights(model, own)
        return model.eval()

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Labels (B, T) shifted right by one, the start symbol at each row's first label; collators call it.

        Raises:
            ValueError: labels of a tokenizer with more words or slots than the model has.
        """
        check_labels(labels)
        if labels.numel() and int(labels.max()) >= self.config.extended_vocab_size:
            raise ValueError(
                f"labels hold {int(labels.max())}, but the model ends at vocab_size={self.config.vocab_size} + "
                f"max_source_oov={self.config.max_source_oov}: use the tokenizer's values of both "
                "(CopyNetConfig.for_tokenizer)."
            )
        return shift_right(labels, self.config)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: CopyNetEncoderOutput | tuple | None = None,
        past_key_values: CopyNetCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        input_features: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        feature_ids: Tensor | None = None,
        letter_ids: Tensor | None = None,
        encoder_input_ids: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        word_index: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        skip_logits: bool | None = None,
        cache: CopyNetCache | None = None,
    ) -> CopyNetSeq2SeqLMOutput:
        """log p(y_t | y_{<t}, x) over the extended vocabulary for each target step, and the loss, Eq. 10.

        Args:
            labels: (B, T) extended ids, −100 where there is no target. A word that is neither in the vocabulary nor in
                the row's own source is UNK, as a target and as decoder input. (With label smoothing the Trainer
                computes the loss, and the tokenizer has to replace such words, as ours does.) `decoder_input_ids`
                default to the shifted labels, unless there are `decoder_inputs_embeds`.
            decoder_attention_mask: None: 0 on padding before the start symbol, else 1.
            num_items_in_batch: what the summed loss is divided by; None: the number of targets. The Trainer passes
                their number over all accumulated batches.
            skip_logits: whether to leave out `logits`, `copy_probs` and `copy_mass`, which the loss does not need, and
                let the backward overwrite the scores, so that backward can run only once. None: in training with
                `num_items_in_batch`, which the Trainer passes, because it needs the loss alone. Without labels, False
                skips the check for words that cannot be written, which the caller counts as UNK. Where `logits` are
                returned, the loss is their cross-entropy (plus the coverage and gate losses, which are functions of
                attention and gate; `gated_loss="summed"` has no term that is a function of the logits).
            The others: see `CopyNetModel.forward`.
        """
        if labels is not None:
            check_labels(labels, decoder_input_ids, decoder_inputs_embeds)
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = shift_right(labels, self.config)
            use_cache = False
        elif num_items_in_batch is not None:
            check_loss_of_logits(self.config)
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                raise ValueError(
                    "decoder_input_ids is missing, and with label_smoothing_factor or compute_loss_func the Trainer "
                    "takes the labels away: use DataCollatorForSeq2Seq(tokenizer, model=model)."
                )
        cache = choose_cache(cache, past_key_values)
        starts = not isinstance(cache, CopyNetCache) or not cache.get_seq_length()
        if decoder_attention_mask is None and decoder_input_ids is not None and starts:
            decoder_attention_mask = mask_left_padding(decoder_input_ids, self.config)
        returns_attention = value_or_default(output_attentions, self.config, "output_attentions")
        # probabilities or loss may be functions of the attention
        needs_attention = self.config.mechanism.copies_by_attention or self.config.coverage_loss_weight > 0
        output = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids=decoder_input_ids,
            decoder_attention_mask=decoder_attention_mask,
            encoder_outputs=encoder_outputs,
            cache=cache,
            decoder_inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_attentions=returns_attention or needs_attention,
            output_hidden_states=output_hidden_states,
            return_dict=True,
            inputs_embeds=inputs_embeds,
            input_features=input_features,
            token_type_ids=token_type_ids,
            feature_ids=feature_ids,
            letter_ids=letter_ids,
            encoder_input_ids=encoder_input_ids,
            encoder_attention_mask=encoder_attention_mask,
            word_index=word_index,
        )
        generate_scores, allowed = self.compute_generate_scores(output), self.find_allowed_words(output)
        if allowed is not None:
            allowed = expand_to_rows(allowed, output.last_hidden_state.shape[0])
        if labels is None and num_items_in_batch is not None and skip_logits is None and decoder_input_ids is not None:
            check_written_words(self.config, decoder_input_ids, output, allowed)
        if allowed is not None and generate_scores is not None:
            generate_scores = generate_scores.masked_fill(~allowed[:, None, :], lowest(generate_scores.dtype))
        if skip_logits is None:
            skip_logits = self.training and labels is not None and num_items_in_batch is not None
        log_probs, copy_probs = (None, None) if skip_logits else self.compute_mixture(generate_scores, output, allowed)
        loss = None
        if labels is not None:
            keep = None if decoder_attention_mask is None else decoder_attention_mask[:, -labels.shape[1] :].bool()
            # Where the readable form has to run, a hook may keep a reference to the scores.
            reuse_scores = skip_logits and not find_fast_form_obstacles(
                self.config, {"lm_head": self.lm_head}, labels.device
            )
            scores = (generate_scores, log_probs, output)
            loss = compute_loss(
                self.config, *scores, labels, num_items_in_batch, allowed, keep, reuse_scores=reuse_scores
            )
        return CopyNetSeq2SeqLMOutput(
            loss=loss,
            logits=log_probs,
            **{CACHE_NAME: output.get(CACHE_NAME)},
            decoder_hidden_states=output.decoder_hidden_states,
            decoder_attentions=output.decoder_attentions if returns_attention else None,
            cross_attentions=output.cross_attentions if returns_attention else None,
            encoder_last_hidden_state=output.encoder_last_hidden_state,
            encoder_hidden_states=output.encoder_hidden_states,
            copy_probs=copy_probs,
            copy_mass=None if copy_probs is None else copy_probs.sum(-1),
        )

    def compute_generate_scores(self, output: CopyNetModelOutput) -> Tensor | None:
        """ψ_g = W_o r_t, Eq. 7: (B, T, V); None where only an end symbol is generated."""
        readout = output.last_hidden_state
        if self.lm_head is None or readout is None:
            return None
        if self.config.seq2seq:
            readout = readout * self.config.logits_scale
        scores: Tensor = self.lm_head(readout if self.lm_head_proj is None else self.lm_head_proj(readout))
        return scores

    def find_allowed_words(self, output: CopyNetModelOutput | CopyNetEncoderOutput) -> Tensor | None:
        """(N, V) bool: the words that may be generated from each source. None: all.

        CoRe (Cao et al. 2016): those aligned with a word of the source, and the frequent ones. Pointer Networks: the
        end symbol.
        """
        config, ids = self.config, output.source_ids
        if self.alignments is not None:
            allowed = self.alignments(ids, output.source_mask.bool())
            allowed[:, : config.frequent_words] = True
            allowed[:, config.end_token_ids] = True
            return allowed
        if config.mechanism.generates:
            return None
        allowed = torch.zeros(ids.shape[0], config.vocab_size, dtype=torch.bool, device=ids.device)
        allowed[:, config.end_token_ids[:1]] = True
        return allowed

    def compute_mixture(
        self, generate_scores: Tensor | None, output: CopyNetModelOutput, allowed: Tensor | None = None
    ) -> Mixture:
        """p(y_t | ·) by `config.copy_mechanism`."""
        config = self.config
        if generate_scores is None:
            end_scores = output.end_scores
            assert end_scores is not None
            generate_scores = end_scores.new_full((*end_scores.shape, config.vocab_size), lowest(end_scores.dtype))
            generate_scores[..., config.end_token_ids[0]] = end_scores
        log_sum = torch.logsumexp(at_least_float32(generate_scores), dim=-1)
        modes = MODES[config.copy_mechanism](collect_mode_scores(config, log_sum, output))
        source = (output.source_ids, output.source_mask.bool(), config.max_source_oov)
        return mixture(generate_scores, modes, *source, allowed)


__all__ = ["CopyNetForConditionalGeneration", "CopyNetModel", "CopyNetPreTrainedModel"]
