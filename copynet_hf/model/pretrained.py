"""What all models here share: how they are initialised, saved and pushed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from huggingface_hub import ModelCard, ModelCardData
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers import initialization as init

from .attention import CoverageProjection
from .configuration_copynet import CopyNetConfig
from .pieces import PieceTokenizer
from .text_models import find_max_pieces, load_encoder_config, load_text_encoder


class PublishedModel(PreTrainedModel):
    """A model that is saved with its code and a card, for the Hub: what a model and an ensemble share."""

    auto_classes: ClassVar[dict[str, str]] = {}
    """The Auto classes that load the saved weights, and for each the name of its class in the model's module."""
    write_card: ClassVar[Callable[..., None] | None] = None
    """Writes a model's card into a folder. Set by the package; None in code loaded from a saved model."""
    _card_to_keep: bytes | None = None
    """A folder's card while `save_pretrained` runs, which with `push_to_hub=True` writes over it before it uploads."""

    def save_pretrained(
        self, save_directory: str | PathLike[str], is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """As in the library; the config also names all classes that load the weights, and the pipeline.

        Writes a model card if the folder has none.
        """
        if self.is_remote_code():
            from .pipeline import CUSTOM_PIPELINES  # imported here, so that its file is saved as well

            module = type(self).__module__.rpartition(".")[2]
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                **{auto: f"{module}.{name}" for auto, name in self.auto_classes.items()},
            }
            self.config.custom_pipelines = deepcopy(CUSTOM_PIPELINES)  # the library modifies it
        folder = Path(save_directory)
        card = folder / "README.md"
        self._card_to_keep = card.read_bytes() if card.exists() else None
        try:
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        finally:
            self._card_to_keep = None
        if self.write_card is not None and is_main_process and folder.is_dir() and not card.exists():
            self.write_card(self, folder)

    def _upload_modified_files(self, working_dir: str | PathLike[str], repo_id: str, *args: Any, **kwargs: Any) -> Any:
        """As in the library, but with the folder's own card, or ours, where the library would upload its blank one."""
        path = Path(working_dir) / "README.md"
        card = ModelCard(path.read_text(encoding="utf-8")) if path.exists() else None
        blank = ModelCard.from_template(ModelCardData(), model_description="").text.splitlines()
        # the library fills in one line of its template
        is_blank = card is not None and len(set(card.text.splitlines()) - set(blank)) == 1
        if is_blank and self._card_to_keep is not None:
            path.write_bytes(self._card_to_keep)
        elif self.write_card is not None and card is not None and is_blank:
            self.write_card(self, Path(working_dir), title=repo_id, tags=card.data.get("tags") or ())
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)


class CopyNetPreTrainedModel(PublishedModel):
    """Initialisation and the library's hooks, shared by all models here but ensembles."""

    config_class = CopyNetConfig
    config: CopyNetConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoModel": "CopyNetModel",
        "AutoModelForSeq2SeqLM": "CopyNetForConditionalGeneration",
    }

    _no_split_modules = ["CopyNetEncoderLayer", "CopyNetDecoder", "PointerDecoder", "RetrievalDecoder"]  # noqa: RUF012 - the base class's own type

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """As in the library. The ids of the slots change: the first one is the new number of words.

        Raises:
            ValueError: `pad_to_multiple_of` would put words between the tokenizer's last one and its first slot.
        """
        words = new_num_tokens or self.config.vocab_size
        if pad_to_multiple_of and words % pad_to_multiple_of and self.config.max_source_oov:
            raise ValueError(
                f"pad_to_multiple_of is {pad_to_multiple_of}: leave it out, because the tokenizer's first slot has "
                f"the id len(tokenizer), which would be one of the words added to the {words} of the model."
            )
        return super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)

    @classmethod
    def from_encoder_pretrained(
        cls,
        name: str,
        *,
        tokenizer: PreTrainedTokenizerBase,
        encoder_options: Mapping[str, object] | None = None,
        **fields: object,
    ) -> Self:
        """A new decoder over a Transformers encoder with its weights, in evaluation mode.

        Args:
            name: the encoder's folder or Hub name.
            tokenizer: a `CopyNetTokenizer` with `encoder_tokenizer=name`.
            encoder_options: arguments of the encoder's `from_pretrained`, such as `revision`.
            fields: of the config. By default h_j is as wide as the encoder's states, up to an odd number.

        Raises:
            ValueError: a tokenizer that does not belong to the encoder, or a field that contradicts it.
        """
        options = dict(encoder_options or {})
        encoder = load_encoder_config(name, options)
        fields = {"encoder_hidden_size": -(-encoder.hidden_size // 2)} | fields
        model = cls(CopyNetConfig.for_tokenizer(tokenizer, encoder=encoder, **fields))
        model.load_encoder(name, tokenizer, **options)
        return model.eval()

    def load_encoder(self, name: str, tokenizer: PreTrainedTokenizerBase, **options: object) -> None:
        """Gives the Transformers encoder the weights of a folder or Hub name.

        Args:
            tokenizer: a `CopyNetTokenizer` with `encoder_tokenizer=name`.
            options: arguments of the encoder's `from_pretrained`, such as `revision`.

        Raises:
            ValueError: a tokenizer that does not belong to the encoder, or an encoder of another width.
        """
        text_encoder = load_text_encoder(name, **options)
        _check_piece_tokenizer(text_encoder, getattr(tokenizer, "encoder_tokenizer", None))
        self.get_encoder().set_text_encoder(text_encoder)

    def freeze_encoder(self) -> None:
        """Keeps the Transformers encoder as it is in training: no gradients, no dropout. Not saved with the model.

        Raises:
            ValueError: the model has none.
        """
        if self.config.encoder is None:
            raise ValueError("encoder is None, so there is no Transformers encoder to freeze: leave freezing out.")
        self.get_encoder().freeze()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Embeddings uniform, weights Glorot, recurrent ones orthogonal gate by gate; biases and coverage zero."""
        if isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
        elif isinstance(module, CoverageProjection):
            init.zeros_(module.weight)
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


def _check_piece_tokenizer(encoder: PreTrainedModel, tokenizer: PieceTokenizer | None) -> None:
    """Checks that the pieces of a tokenizer are those of the encoder, and no more than it reads.

    Raises:
        ValueError: they are not.
    """
    name, pieces = encoder.config.name_or_path or encoder.config.model_type, encoder.config.vocab_size
    if tokenizer is None:
        raise ValueError(f"the tokenizer returns no pieces: create it with encoder_tokenizer={name!r}")
    if len(tokenizer) > pieces:
        raise ValueError(
            f"encoder_tokenizer has {len(tokenizer)} pieces, the encoder {name} has {pieces}: pass the tokenizer of "
            "that encoder"
        )
    positions, limit = find_max_pieces(encoder), tokenizer.max_length
    if positions is not None and (limit is None or limit > positions):
        raise ValueError(
            f"the tokenizer returns {'any number of' if limit is None else f'up to {limit}'} pieces, and the encoder "
            f"{name} has {positions} positions: create the tokenizer with encoder_max_length={positions}"
        )


def _gate_by_gate(parameter: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """A float32 tensor like `parameter`, each of a GRU's three gates initialised on its own."""
    gates = [make(torch.empty_like(gate, dtype=torch.float32)) for gate in parameter.chunk(3)]
    return torch.cat(gates).to(parameter.dtype)
