"""An ensemble of CopyNets: the mean of their probabilities, as one Transformers model.

Shapes: B rows, S source positions, T target steps, V words, K slots, M members.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.utils import can_return_tuple

from .configuration_ensemble import CopyNetEnsembleConfig
from .copy_distribution import average_log_probs, expand_to_rows
from .generation import CopyNetGenerationMixin
from .loss import average_losses, check_labels, replace_unreachable_targets, shift_right
from .memory import CopyNetCache, choose_cache, start_cache
from .modeling_copynet import CopyNetForConditionalGeneration
from .outputs import CopyNetEnsembleEncoderOutput, CopyNetSeq2SeqLMOutput, value_or_default
from .pipeline import CUSTOM_PIPELINES
from .pretrained import PublishedModel
from .text_models import CACHE_NAME
from .vocabularies import IGNORED_LABEL


class CopyNetEnsembleEncoder(nn.Module):
    """The encoders of all members."""

    main_input_name = "input_ids"

    def __init__(self, encoders: Sequence[nn.Module]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)

    def forward(self, **kwargs: Tensor | bool | None) -> CopyNetEnsembleEncoderOutput:
        """See `SourceEncoder.forward`; each encoder ignores what only others read."""
        outputs = [encoder(**{**kwargs, "return_dict": True}) for encoder in self.encoders]
        return CopyNetEnsembleEncoderOutput(
            last_hidden_state=torch.cat([output.last_hidden_state for output in outputs], dim=-1),
            source_ids=outputs[0].source_ids,
            source_mask=torch.stack([output.source_mask for output in outputs]).any(0),
            members=tuple(outputs),
            hidden_states=_join([output.hidden_states for output in outputs]),
        )


class CopyNetEnsemble(PublishedModel, CopyNetGenerationMixin):
    """Several CopyNets with one vocabulary, whose probabilities are averaged: p(y_t) = (1/M) Σ_m p_m(y_t).

    `generate()` and its searches, `trace_copies`, `predict` and the pipeline work as with one model; each step takes
    as long as the members' steps together. `from_models` makes one of loaded models, `copynet-hf ensemble` of saved
    ones. Its members are trained one by one, before.
    """

    config_class = CopyNetEnsembleConfig
    config: CopyNetEnsembleConfig
    auto_classes: ClassVar[dict[str, str]] = {"AutoModelForSeq2SeqLM": "CopyNetEnsemble"}
    custom_pipelines: ClassVar[dict[str, Any]] = CUSTOM_PIPELINES
    accepts_loss_kwargs = True

    def __init__(self, config: CopyNetEnsembleConfig) -> None:
        super().__init__(config)
        self._set_members([CopyNetForConditionalGeneration(member) for member in config.members])
        self.post_init()
        self.init_generation_config()

    @classmethod
    def from_models(cls, models: Sequence[CopyNetForConditionalGeneration]) -> CopyNetEnsemble:
        """An ensemble of these models, which shares their weights, in evaluation mode.

        The generation config is a copy of the first model's.

        Raises:
            ValueError: a model that is no CopyNet with an output distribution, a model given twice, or models that
                differ in what `CopyNetEnsembleConfig` says they share.
        """
        for number, model in enumerate(models):
            if not isinstance(model, CopyNetForConditionalGeneration):
                raise ValueError(
                    f"models[{number}] is a {type(model).__name__}: pass CopyNetForConditionalGeneration models."
                )
            first = next(other for other, known in enumerate(models) if known is model)
            if first != number:
                raise ValueError(f"models[{number}] is models[{first}]: pass each model once.")
        config = CopyNetEnsembleConfig(members=[model.config for model in models])
        with torch.device("meta"):
            ensemble = cls(config)
        ensemble._set_members(models)
        ensemble.generation_config = deepcopy(models[0].generation_config)
        return ensemble.eval()

    def _set_members(self, models: Sequence[nn.Module]) -> None:
        # Not in a ModuleList, in which the library would not find tied weights.
        for number, model in enumerate(models):
            self.add_module(f"member_{number}", model)
        self.num_caches = len(models)

    @property
    def members(self) -> list[CopyNetForConditionalGeneration]:
        """The M models."""
        return [getattr(self, f"member_{number}") for number in range(len(self.config.members))]

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        """The encoders of all members as one."""
        return CopyNetEnsembleEncoder([member.get_encoder() for member in self.members])

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Raises ValueError: the models are resized one by one."""
        raise ValueError(
            "an ensemble's vocabulary cannot be resized: resize each model, train it further, and make an ensemble of "
            "them."
        )

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: CopyNetEnsembleEncoderOutput | None = None,
        past_key_values: CopyNetCache | None = None,
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
        cache: CopyNetCache | None = None,
    ) -> CopyNetSeq2SeqLMOutput:
        """log p(y_t | y_{<t}, x) over the extended vocabulary for each target step, and the loss −log p(y_t).

        The loss has no terms of coverage or gates. Hidden states are those of all members, one member after another;
        `copy_probs` and attentions are means, attentions only where all members attend.

        Args:
            encoder_outputs, cache, past_key_values: as in `CopyNetModel.forward`, of this ensemble.
            The others: see `CopyNetForConditionalGeneration.forward`.

        Raises:
            ValueError: encoder outputs or a cache of another model, or what a member raises.
        """
        if labels is not None:
            check_labels(labels, decoder_input_ids)
            if decoder_input_ids is None:
                decoder_input_ids = shift_right(labels, self.config)
            use_cache = False
        if encoder_outputs is None:
            encoder_outputs = self.get_encoder()(
                input_ids=input_ids,
                attention_mask=attention_mask,
                token_type_ids=token_type_ids,
                feature_ids=feature_ids,
                letter_ids=letter_ids,
                encoder_input_ids=encoder_input_ids,
                encoder_attention_mask=encoder_attention_mask,
                word_index=word_index,
                output_hidden_states=output_hidden_states,
            )
        if not isinstance(encoder_outputs, CopyNetEnsembleEncoderOutput):
            kind = type(encoder_outputs).__name__
            raise ValueError(f"encoder_outputs is a {kind}: pass what the ensemble's get_encoder() returns.")
        starts_cache = value_or_default(use_cache, self.config, "use_cache") and not self.training
        cache = start_cache(choose_cache(cache, past_key_values), starts_cache, self.num_caches)
        caches = [None] * self.num_caches if cache is None else cache.split()
        outputs = [
            member(
                encoder_outputs=encoded,
                decoder_input_ids=decoder_input_ids,
                decoder_attention_mask=decoder_attention_mask,
                cache=member_cache,
                use_cache=member_cache is not None,
                output_attentions=value_or_default(output_attentions, self.config, "output_attentions"),
                output_hidden_states=value_or_default(output_hidden_states, self.config, "output_hidden_states"),
                return_dict=True,
            )
            for member, encoded, member_cache in zip(self.members, encoder_outputs.members, caches, strict=True)
        ]
        log_probs = average_log_probs([output.logits for output in outputs])
        # a member that does not copy adds nothing
        copies = [output.copy_probs for output in outputs if output.copy_probs is not None]
        copy_probs = torch.stack(copies).sum(0) / len(outputs) if copies else None
        attentions = [output.cross_attentions[0] for output in outputs if output.cross_attentions]
        has_attention = len(attentions) == len(outputs)
        loss = None if labels is None else self._compute_loss(log_probs, encoder_outputs, labels, num_items_in_batch)
        return CopyNetSeq2SeqLMOutput(
            loss=loss,
            logits=log_probs,
            **{CACHE_NAME: cache},  # type: ignore[arg-type]
            decoder_hidden_states=_join([output.decoder_hidden_states for output in outputs]),
            decoder_attentions=() if has_attention else None,
            cross_attentions=(torch.stack(attentions).mean(0),) if has_attention else None,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            copy_probs=copy_probs,
            copy_mass=None if copy_probs is None else copy_probs.sum(-1),
        )

    def find_allowed_words(self, output: CopyNetEnsembleEncoderOutput) -> Tensor | None:
        """(N, V) bool: the words that a member may generate from each source. None: all."""
        allowed = [
            member.find_allowed_words(encoded) for member, encoded in zip(self.members, output.members, strict=True)
        ]
        known = [words for words in allowed if words is not None]
        return torch.stack(known).any(0) if len(known) == len(allowed) else None

    def _compute_loss(
        self,
        log_probs: Tensor,
        encoded: CopyNetEnsembleEncoderOutput,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
    ) -> Tensor:
        """The mean of −log p(y_t), from log p(y) (B, T, V + K); see `loss.compute_loss`."""
        is_target = labels != IGNORED_LABEL
        allowed = self.find_allowed_words(encoded)
        if allowed is not None:
            allowed = expand_to_rows(allowed, len(labels))
        source = (encoded.source_ids, encoded.source_mask)
        targets, _ = replace_unreachable_targets(self.config, labels.clamp(min=0), *source, allowed)
        losses = -log_probs.gather(-1, targets[..., None])[..., 0]
        return average_losses(losses, is_target, num_items_in_batch)


def _join(states: Sequence[tuple[Tensor, ...] | None]) -> tuple[Tensor, ...] | None:
    """All members' states in one tuple; None where they were not requested."""
    return tuple(state for each in states for state in each or ()) or None


__all__ = ["CopyNetEnsemble"]
