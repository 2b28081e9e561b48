"""CopyNet (Gu, Lu, Li, Li, ACL 2016) and its baselines as Transformers models.

Letters in comments are the paper's: M = {h_j} the encoder's states, s_t the decoder's, c_t the attentive read,
ζ(y_{t-1}) the selective read with weights ρ, e(y) the embedding. Shapes: B rows, S source positions, T target steps,
E embedding_size, H hidden_size, D = 2 · encoder_hidden_size, A attention_size, V words, K slots.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init

from .configuration_copynet import CopyNetConfig
from .copy_distribution import (
    MODES,
    Mixture,
    ModeScores,
    at_least_float32,
    coverage_loss,
    fold_ids,
    gate_loss,
    log_likelihood,
    lowest,
    mixture,
    own_targets,
    summed_likelihood,
    target_matches,
    vocabulary_terms,
)
from .fused_copynet import FusedVocabularyTerms
from .generation_copynet import CopyNetCache, CopyNetGenerationMixin
from .layers_copynet import CopyNetAttention, CopyNetDecoder, CopyNetEncoderLayer
from .memory_copynet import DecoderState, DecoderSteps, Memory
from .outputs_copynet import CopyNetEncoderOutput, CopyNetModelOutput, CopyNetSeq2SeqLMOutput


class CopyNetPreTrainedModel(PreTrainedModel):
    """Initialisation and the library's hooks, shared by all models here."""

    config_class = CopyNetConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["CopyNetEncoderLayer", "CopyNetDecoder"]  # noqa: RUF012 - the base class's own type

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As in the library, which names the saved class alone in the config: both are named, for `AutoModel` and
        `AutoModelForSeq2SeqLM` load the same weights."""
        if self.is_remote_code():
            module = __name__.rpartition(".")[2]
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                "AutoModel": f"{module}.CopyNetModel",
                "AutoModelForSeq2SeqLM": f"{module}.CopyNetForConditionalGeneration",
            }
        super().save_pretrained(*args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Embeddings uniform, other weights Glorot, recurrent ones orthogonal gate by gate; biases zero, coverage too."""
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.GRU | nn.GRUCell):
            for name, parameter in module.named_parameters(recurse=False):
                if name.startswith("bias"):
                    init.zeros_(parameter)
                else:
                    make = nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_
                    init.copy_(parameter, _gate_by_gate(parameter, make))
        elif isinstance(module, CopyNetAttention) and module.coverage_proj is not None:
            # A model that is given coverage later begins where it ended without.
            init.zeros_(module.coverage_proj.weight)


class CopyNetEncoder(CopyNetPreTrainedModel):
    """Embeddings and bidirectional GRU layers: the source becomes M = {h_j}, section 3.1."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        widths = [config.embedding_size] + [config.memory_size] * (config.num_hidden_layers - 1)
        self.layers = nn.ModuleList(
            CopyNetEncoderLayer(width, config.encoder_hidden_size, config.use_fused) for width in widths
        )
        self.dropout = nn.Dropout(config.dropout)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embed_tokens = value  # type: ignore[assignment]

    def embed(self, ids: Tensor) -> Tensor:
        """e(y) (…, E) of extended ids: a word outside the vocabulary has the embedding of UNK."""
        return self.embed_tokens(fold_ids(ids, self.config.vocab_size, self.config.unk_token_id))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> CopyNetEncoderOutput | tuple:
        """Encodes the source.

        Args:
            input_ids: (B, S) extended ids.
            attention_mask: (B, S) 1 on words, 0 on padding, anywhere in the row. None: 0 where `pad_token_id` stands.
            inputs_embeds: (B, S, E) in place of the embeddings of `input_ids`, which must be given all the same where
                the model copies.
            output_attentions: accepted for the library's sake; an RNN has none.

        Raises:
            ValueError: no ids, ids below 0, or a mask of another shape.
        """
        config = self.config
        input_ids, mask = self._checked_source(input_ids, attention_mask, inputs_embeds)
        input_ids = fold_ids(input_ids, config.extended_vocab_size, config.unk_token_id)
        states = self.dropout(self.embed(input_ids) if inputs_embeds is None else inputs_embeds)
        hidden_states: tuple[Tensor, ...] = (states,)
        final_state = states
        for layer in self.layers:
            states, final_state = layer(states, mask)
            states = self.dropout(states)
            hidden_states += (states,)
        output = CopyNetEncoderOutput(
            last_hidden_state=states,
            final_state=self.dropout(final_state),
            source_ids=input_ids,
            source_mask=mask,
            hidden_states=hidden_states if _asked(output_hidden_states, config.output_hidden_states) else None,
        )
        return output if _asked(return_dict, config.return_dict) else output.to_tuple()

    def _checked_source(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if input_ids is None:
            if inputs_embeds is None:
                raise ValueError("The source is missing: pass input_ids.")
            if self.config.copies:
                raise ValueError(
                    "inputs_embeds alone does not say which word to copy: pass input_ids beside it, or use a model "
                    "with copy_mechanism='none'."
                )
            input_ids = inputs_embeds.new_full(inputs_embeds.shape[:2], self.config.unk_token_id, dtype=torch.long)
        check_not_negative("input_ids", input_ids)
        mask = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask.bool()
        if input_ids.shape[1] == 0:  # sources without a word: one position of padding
            input_ids = input_ids.new_full((input_ids.shape[0], 1), self.config.pad_token_id)
            mask = torch.zeros_like(input_ids, dtype=torch.bool)
        if mask.shape != input_ids.shape:
            raise ValueError(
                f"attention_mask has shape {tuple(mask.shape)}, input_ids {tuple(input_ids.shape)}: they must agree."
            )
        return input_ids, mask


class CopyNetModel(CopyNetPreTrainedModel):
    """Encoder and decoder without the output distribution: states in, readouts r_t and copy scores ψ_c out."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.encoder = CopyNetEncoder(config)
        self.decoder = CopyNetDecoder(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.embed_tokens = value  # type: ignore[assignment]

    def get_encoder(self, *args: Any, **kwargs: Any) -> CopyNetEncoder:
        return self.encoder

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: CopyNetEncoderOutput | tuple | None = None,
        past_key_values: CopyNetCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> CopyNetModelOutput | tuple:
        """Encodes the source, unless `encoder_outputs` or `past_key_values` hold it, and reads the given target words.

        Args:
            input_ids, attention_mask, inputs_embeds: see `CopyNetEncoder.forward`.
            decoder_input_ids: (B, T) extended ids of y_0 … y_{T-1}, the start symbol first; after a cache, only the
                new ones.
            decoder_attention_mask: (B, T), or longer after a cache; 0 where a word is padding, to be passed over.
            encoder_outputs: what `get_encoder()` returned for these rows.
            past_key_values: the state so far, as an earlier call returned it with `use_cache=True`.

        Raises:
            ValueError: no target words, target ids below 0, or a cache of another kind.
        """
        config = self.config
        output_hidden_states = _asked(output_hidden_states, config.output_hidden_states)
        if decoder_input_ids is None:
            raise ValueError("decoder_input_ids are missing: pass them, or labels to CopyNetForConditionalGeneration.")
        check_not_negative("decoder_input_ids", decoder_input_ids)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids,
                attention_mask,
                inputs_embeds,
                output_hidden_states=output_hidden_states,
                return_dict=True,
            )
        if not isinstance(encoder_outputs, CopyNetEncoderOutput):
            encoder_outputs = CopyNetEncoderOutput(*encoder_outputs)

        cache = self._checked_cache(past_key_values, _asked(use_cache, config.use_cache) and not self.training)
        memory, state = self._start(encoder_outputs, cache, decoder_input_ids.shape[0])
        words = own_targets(decoder_input_ids, memory.ids, memory.mask, config.vocab_size, config.unk_token_id)
        known = fold_ids(words, config.vocab_size, config.unk_token_id)
        embeddings = self.dropout(self.encoder.embed_tokens(known))
        keep = None if decoder_attention_mask is None else decoder_attention_mask[:, -words.shape[1] :].bool()
        matches = target_matches(words, memory.ids, memory.mask)
        steps = DecoderSteps(
            *self.decoder(embeddings, matches, memory, state, keep, None if self.dropout.training else known)
        )
        if cache is not None:
            cache.layer.record(steps.states, memory)

        attention = steps.attention if _asked(output_attentions, config.output_attentions) else None
        output = CopyNetModelOutput(
            last_hidden_state=steps.readout,
            past_key_values=cache,  # type: ignore[arg-type]
            decoder_hidden_states=(embeddings, steps.hidden) if output_hidden_states else None,
            # No layer attends to the decoder's own past; the library goes through them where attentions are asked for.
            decoder_attentions=None if attention is None else (),
            cross_attentions=None if attention is None else (attention[:, None],),
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            copy_scores=steps.copy_scores,
            switch=steps.switch,
            encoder_final_state=encoder_outputs.final_state,
            source_ids=memory.ids,
            source_mask=memory.mask,
            source_leaders=memory.leaders,
        )
        return output if _asked(return_dict, config.return_dict) else output.to_tuple()

    def _checked_cache(self, cache: Any, use_cache: bool) -> CopyNetCache | None:
        if cache is None:
            return CopyNetCache() if use_cache else None
        if not isinstance(cache, CopyNetCache):
            raise ValueError(f"past_key_values is a {type(cache).__name__}: pass the CopyNetCache of an earlier call.")
        return cache

    def _start(
        self, encoder_outputs: CopyNetEncoderOutput, cache: CopyNetCache | None, rows: int
    ) -> tuple[Memory, DecoderState | None]:
        """The memory, and the state to go on from: None at the start, unless a cache is to record all of it."""
        state = None if cache is None else cache.layer.last()
        if cache is not None and cache.layer.memory is not None and state is not None:
            return cache.layer.memory, state
        if rows % encoder_outputs.source_ids.shape[0]:
            raise ValueError(
                f"{rows} rows of target words cannot belong to {encoder_outputs.source_ids.shape[0]} sources: pass as "
                "many, or a multiple, those of one source side by side."
            )
        memory = self.decoder.remember(
            encoder_outputs.last_hidden_state,
            encoder_outputs.final_state,
            encoder_outputs.source_mask,
            encoder_outputs.source_ids,
            rows,
        )
        if cache is None:
            return memory, None
        return self.decoder.prepared(memory, self.encoder.embed_tokens), self.decoder.initial_state(memory)


class CopyNetForConditionalGeneration(CopyNetPreTrainedModel, CopyNetGenerationMixin):
    """Encoder, decoder and the output distribution of `config.copy_mechanism`: what is generated, what is copied."""

    alignments: Tensor
    """(V, aligned_words) ids that may be generated where a word stands in the source; else UNK."""

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012
    accepts_loss_kwargs = True

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.model = CopyNetModel(config)
        tied = config.tie_word_embeddings
        self.lm_head_proj = nn.Linear(config.hidden_size, config.embedding_size, bias=False) if tied else None
        width = config.embedding_size if tied else config.hidden_size
        self.lm_head = nn.Linear(width, config.vocab_size, bias=not config.mechanism.tanh_readout)
        if config.aligned_words:
            unaligned = torch.full((config.vocab_size, config.aligned_words), config.unk_token_id)
            self.register_buffer("alignments", unaligned)
        self.post_init()
        # Our own field of the generation config; only one that is not derived from the model's config is saved.
        self.generation_config.forbid_unk = False  # type: ignore[attr-defined]
        self.generation_config._from_model_config = False

    def get_encoder(self, *args: Any, **kwargs: Any) -> CopyNetEncoder:
        return self.model.encoder

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Labels moved right by one behind the start symbol, −100 made padding; what collators call.

        Raises:
            ValueError: labels from a tokenizer with more words or slots than the model has.
        """
        check_not_negative("labels", labels.masked_fill(labels == -100, 0))
        if labels.numel() and int(labels.max()) >= self.config.extended_vocab_size:
            raise ValueError(
                f"labels hold {int(labels.max())}, but the model ends at vocab_size={self.config.vocab_size} + "
                f"max_source_oov={self.config.max_source_oov}: give model and tokenizer the same of both "
                "(CopyNetConfig.for_tokenizer)."
            )
        return self._shifted_right(labels)

    def _shifted_right(self, labels: Tensor) -> Tensor:
        start = labels.new_full((labels.shape[0], 1), self.config.decoder_start_token_id)
        shifted = torch.cat([start, labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == -100, self.config.pad_token_id)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: CopyNetEncoderOutput | tuple | None = None,
        past_key_values: CopyNetCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        skip_logits: bool | None = None,
    ) -> CopyNetSeq2SeqLMOutput | tuple:
        """log p(y_t | y_{<t}, x) over the extended vocabulary for each target step, and the loss, Eq. 10.

        Args:
            labels: (B, T) extended ids, −100 where there is no target. A word that neither the vocabulary nor the
                row's own source has counts as UNK, here and as decoder input; where the Trainer smooths labels it
                computes the loss itself, and the tokenizer must have made such words UNK (ours does).
                `decoder_input_ids` follow from the labels when left out.
            num_items_in_batch: what the summed loss is divided by; None: the number of targets. The Trainer passes
                the number over all accumulated batches.
            skip_logits: leaves out `logits`, `copy_probs` and `copy_mass`, which the loss does not need, and lets the
                backward write over the scores, so that there can be only one. None: in training where
                `num_items_in_batch` is given, as by the Trainer, which wants the loss alone.
            The others: see `CopyNetModel.forward`.
        """
        if labels is not None:
            check_not_negative("labels", labels.masked_fill(labels == -100, 0))
            if decoder_input_ids is None:
                decoder_input_ids = self._shifted_right(labels)
            use_cache = False
        shows_attention = _asked(output_attentions, self.config.output_attentions)
        output = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            past_key_values,
            inputs_embeds,
            use_cache=use_cache,
            output_attentions=shows_attention or self._reads_attention,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        generate_scores, allowed = self.generate_scores(output.last_hidden_state), self.allowed_words(output)
        if allowed is not None:
            generate_scores = generate_scores.masked_fill(~allowed[:, None, :], lowest(generate_scores.dtype))
        if skip_logits is None:
            skip_logits = self.training and labels is not None and num_items_in_batch is not None
        log_probs, copy_probs = (None, None) if skip_logits else self.mixture(generate_scores, output, allowed)
        loss = None
        if labels is not None:
            unseen = skip_logits and not self.lm_head._forward_hooks  # which might hold the scores
            loss = self.loss(generate_scores, output, labels, num_items_in_batch, allowed, reuse_scores=unseen)
        result = CopyNetSeq2SeqLMOutput(
            loss=loss,
            logits=log_probs,
            past_key_values=output.past_key_values,
            decoder_hidden_states=output.decoder_hidden_states,
            decoder_attentions=output.decoder_attentions,
            cross_attentions=output.cross_attentions if shows_attention else None,
            encoder_last_hidden_state=output.encoder_last_hidden_state,
            encoder_hidden_states=output.encoder_hidden_states,
            copy_probs=copy_probs,
            copy_mass=None if copy_probs is None else copy_probs.sum(-1),
        )
        return result if _asked(return_dict, self.config.return_dict) else result.to_tuple()

    def generate_scores(self, readout: Tensor) -> Tensor:
        """ψ_g = W_o r_t, Eq. 7: (B, T, V)."""
        return self.lm_head(readout if self.lm_head_proj is None else self.lm_head_proj(readout))

    def allowed_words(self, output: CopyNetModelOutput) -> Tensor | None:
        """(B, V) bool: those aligned with a word of the source, and the frequent ones. None: all.

        CoRe (Cao et al. 2016): the vocabulary is that of the source.
        """
        config = self.config
        if not config.aligned_words:
            return None
        words = fold_ids(output.source_ids, len(self.alignments), config.unk_token_id)
        aligned = self.alignments[words].masked_fill(~output.source_mask[..., None], config.unk_token_id)
        allowed = torch.zeros(len(words), config.vocab_size, dtype=torch.bool, device=words.device)
        allowed.scatter_(1, aligned.flatten(1), True)
        allowed[:, : config.frequent_words] = True
        ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        allowed[:, [config.unk_token_id, *(end for end in ends if end is not None)]] = True
        return allowed

    @property
    def _reads_attention(self) -> bool:
        """Whether probabilities or loss are made of the attention."""
        return bool(self.config.mechanism.switch or self.config.coverage_loss_weight)

    def _mode_scores(self, generate_log_sum: Tensor, output: CopyNetModelOutput) -> ModeScores:
        attention = output.cross_attentions[0][:, 0] if output.cross_attentions else None
        return ModeScores(generate_log_sum, output.source_mask, output.copy_scores, attention, output.switch)

    def mixture(self, generate_scores: Tensor, output: CopyNetModelOutput, allowed: Tensor | None = None) -> Mixture:
        """p(y_t | ·) by `config.copy_mechanism`."""
        log_sum = torch.logsumexp(at_least_float32(generate_scores), dim=-1)
        modes = MODES[self.config.copy_mechanism](self._mode_scores(log_sum, output))
        source = (output.source_ids, output.source_mask, self.config.max_source_oov, output.source_leaders)
        return mixture(generate_scores, modes, *source, allowed)

    def loss(
        self,
        generate_scores: Tensor,
        output: CopyNetModelOutput,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
        allowed: Tensor | None = None,
        reuse_scores: bool = False,
    ) -> Tensor:
        """−log p(y_t), Eq. 10, and what the mechanism adds, summed over the targets and divided by their number.

        With `reuse_scores` the backward may write over `generate_scores`.
        """
        config, is_target = self.config, labels != -100
        targets = labels.masked_fill(~is_target, config.pad_token_id)
        targets, generates, matches = self._targets(targets, output, allowed)
        words = torch.where(generates, targets, 0)
        if config.use_fused and not torch.compiler.is_compiling():
            chosen, log_sum = FusedVocabularyTerms.apply(generate_scores, words, reuse_scores)
        else:
            chosen, log_sum = vocabulary_terms(generate_scores, words)
        scores = self._mode_scores(log_sum, output)
        if config.gated_loss == "summed":
            losses = -summed_likelihood(chosen, scores, generates, matches)
        else:
            losses = -log_likelihood(chosen, MODES[config.copy_mechanism](scores), generates, matches)
        if config.coverage_loss_weight and scores.attention is not None:
            losses = losses + config.coverage_loss_weight * coverage_loss(scores.attention)
        if config.copy_mechanism == "gated" and scores.switch is not None:
            losses = losses + config.gate_loss_weight * gate_loss(scores.switch, matches.any(-1))
        total = (losses * is_target).sum()
        return total / (is_target.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)

    def _targets(
        self, targets: Tensor, output: CopyNetModelOutput, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Targets as the model can write them, whether each can be generated, and where it stands in the source."""
        config, source = self.config, (output.source_ids, output.source_mask)
        if config.copies:
            targets = own_targets(targets, *source, config.vocab_size, config.unk_token_id)
        else:
            targets = fold_ids(targets, config.vocab_size, config.unk_token_id)
        generates, matches = targets < config.vocab_size, target_matches(targets, *source)
        if allowed is None:
            return targets, generates, matches
        generates = generates & allowed.gather(1, torch.where(generates, targets, 0))
        targets = torch.where(generates | matches.any(-1), targets, config.unk_token_id)
        return targets, generates | (targets == config.unk_token_id), target_matches(targets, *source)


def check_not_negative(name: str, ids: Tensor) -> None:
    """Raises ValueError for an id below 0, which an embedding would only answer with a crash in its kernel."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or ids.is_meta:
        return
    if ids.numel() and int(ids.min()) < 0:
        raise ValueError(
            f"{name} holds {int(ids.min())}: ids start at 0. Only labels may hold -100, and only where nothing is to "
            "be learned; pad the others with pad_token_id."
        )


def _gate_by_gate(parameter: Tensor, make: Any) -> Tensor:
    """A float32 tensor like `parameter`, each of a GRU's three gates made on its own."""
    gates = [make(torch.empty_like(gate, dtype=torch.float32)) for gate in parameter.chunk(3)]
    return torch.cat(gates).to(parameter.dtype)


def _asked(value: bool | None, default: bool | None) -> bool:
    return bool(default if value is None else value)


__all__ = ["CopyNetForConditionalGeneration", "CopyNetModel", "CopyNetPreTrainedModel"]
