"""What all models here share: how they are initialised, saved and pushed; new models over pretrained parts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from huggingface_hub import ModelCard, ModelCardData
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers import initialization as init

from .configuration_copynet import CopyNetConfig
from .layers import AddedEmbedding, AddedProjection, AlignedWords, TiedRepetitions
from .pieces import PieceTokenizer
from .text_models import find_max_positions, load_encoder_config, load_text_encoder

_TOLERANCE = 1e-3  # of logits, relative to the largest


class PublishedModel(PreTrainedModel):
    """A model that is saved with its code and a card, for the Hub: what a model and an ensemble share."""

    _keys_to_ignore_on_load_missing = [  # noqa: RUF012 - zeros in models saved without them
        r"ending_proj\.weight$",
        r"tied_repetitions\.(first_embedding|first_proj|neighbour_proj)\.weight$",
        r"tied_repetitions\.is_rare$",
    ]

    auto_classes: ClassVar[dict[str, str]] = {}
    """The Auto classes that load the saved weights, and for each the name of its class in the model's module."""
    custom_pipelines: ClassVar[dict[str, Any]] = {}
    """The pipelines that run the model, as a saved config names them."""
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
            module = type(self).__module__.rpartition(".")[2]
            self.config.auto_map = {
                **(getattr(self.config, "auto_map", None) or {}),
                **{auto: f"{module}.{name}" for auto, name in self.auto_classes.items()},
            }
            if self.custom_pipelines:
                self.config.custom_pipelines = deepcopy(self.custom_pipelines)  # the library modifies it
        folder = Path(save_directory)
        card = folder / "README.md"
        self._card_to_keep = card.read_bytes() if card.exists() else None
        try:
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        finally:
            self._card_to_keep = None
        if is_main_process and folder.is_dir():
            _share_weights(folder)
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


def _share_weights(folder: Path) -> None:
    """Gives saved weights the mode of the config: safetensors 0.8 lets only their owner read them."""
    config = next(folder.glob("*config.json"), None)
    if config is None:
        return
    for weights in folder.glob("*.safetensors"):
        with suppress(OSError):  # files of another owner
            shutil.copymode(config, weights)


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
        """As in the library. The ids of the slots change: the first one is the new number of words. Added words are
        tied as rare ones (`TiedRepetitions.is_rare`).

        Raises:
            ValueError: `pad_to_multiple_of` would put words between the tokenizer's last one and its first slot.
        """
        words = new_num_tokens or self.config.vocab_size
        if pad_to_multiple_of and words % pad_to_multiple_of and self.config.max_source_oov:
            raise ValueError(
                f"pad_to_multiple_of is {pad_to_multiple_of}: leave it out, because the tokenizer's first slot has "
                f"the id len(tokenizer), which would be one of the words added to the {words} of the model."
            )
        embeddings = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        for module in self.modules():
            if isinstance(module, AlignedWords | TiedRepetitions):
                module.resize(self.config.vocab_size)
        if self.config.seq2seq:  # the embeddings are the encoder's, which a saved model is built with
            parts: tuple[Any, Any] = (self.config.encoder, self.config.decoder)
            for part in parts:
                part.vocab_size = self.config.vocab_size
        return embeddings

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
        """Keeps the Transformers encoder as it is in training: no gradients, no dropout. Of a pretrained
        encoder-decoder also the embeddings, which decoder and output layer share. Not saved with the model.

        Raises:
            ValueError: the model has none.
        """
        if self.config.encoder is None:
            raise ValueError("encoder is None, so there is no Transformers encoder to freeze: leave freezing out.")
        self.get_encoder().freeze()

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable[..., Any] = checkpoint,
        every_n_layers: int = 1,
    ) -> None:
        """As in the library, but never reentrant: that passes no gradient to tensors inside other tuples."""
        checkpoint_func = partial(gradient_checkpointing_func, use_reentrant=False)
        super()._set_gradient_checkpointing(enable, checkpoint_func, every_n_layers)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Embeddings uniform, weights Glorot, recurrent ones orthogonal gate by gate; biases and added ones zero."""
        if isinstance(module, AddedEmbedding | AddedProjection):
            init.zeros_(module.weight)
        elif isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -self.config.initializer_range, self.config.initializer_range)
        elif isinstance(module, TiedRepetitions):
            init.zeros_(module.is_rare)
        elif isinstance(module, AlignedWords):
            init.constant_(module.table, module.unk_token_id)
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
    """Raises ValueError unless the pieces of a tokenizer are those of the encoder, and no more than it reads."""
    name, pieces = encoder.config.name_or_path or encoder.config.model_type, encoder.config.vocab_size
    if tokenizer is None:
        raise ValueError(f"the tokenizer returns no pieces: create it with encoder_tokenizer={name!r}")
    if len(tokenizer) > pieces:
        raise ValueError(
            f"encoder_tokenizer has {len(tokenizer)} pieces, the encoder {name} has {pieces}: pass the tokenizer of "
            "that encoder"
        )
    positions, limit = find_max_positions(encoder), tokenizer.max_length
    if positions is not None and (limit is None or limit > positions):
        raise ValueError(
            f"the tokenizer returns {'any number of' if limit is None else f'up to {limit}'} pieces, and the encoder "
            f"{name} has {positions} positions: create the tokenizer with encoder_max_length={positions}"
        )


def _gate_by_gate(parameter: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """A float32 tensor like `parameter`, each of a GRU's three gates initialised on its own."""
    gates = [make(torch.empty_like(gate, dtype=torch.float32)) for gate in parameter.chunk(3)]
    return torch.cat(gates).to(parameter.dtype)


# ---- a pretrained encoder-decoder with a copy head, whose tokenizer's pieces are the words
#
# Nothing is outside the vocabulary, K = 0. Its encoder gives h_j, its decoder s_t, its output layer ψ_g; new are W_c
# of ψ_c, or a switch, initialised so that next to nothing is copied (`TransformerDecoder.reset_copy_mode`).


def load_seq2seq(name: str, **options: Any) -> PreTrainedModel:
    """The encoder-decoder of a folder or Hub name, in float32 unless `options` has another dtype, for evaluation.

    Raises:
        ValueError: it is no encoder-decoder that a copy head can be added to.
    """
    config = load_encoder_config(name, options)
    if config.model_type.startswith(CopyNetConfig.model_type):  # or an ensemble
        raise ValueError(
            f"{name} is a CopyNet already: load it with from_pretrained, or continue its training with "
            f"--model_name_or_path {name}"
        )
    if not config.is_encoder_decoder:
        raise ValueError(
            f"{name} is a {config.model_type}, which is no encoder-decoder: use --encoder_name_or_path, or "
            "from_encoder_pretrained"
        )
    model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(name, **{"dtype": torch.float32, **options}).eval()
    parts = (model.get_input_embeddings(), model.get_encoder(), model.get_decoder(), model.get_output_embeddings())
    if not isinstance(parts[-1], nn.Linear) or any(part is None or part is model for part in parts):
        raise ValueError(f"{name} is a {type(model).__name__}: use an encoder-decoder such as T5, BART or Marian")
    if parts[1].get_input_embeddings().weight is not parts[2].get_input_embeddings().weight:
        raise ValueError(
            f"{name} has other embeddings in its encoder than in its decoder: use a model that shares them"
        )
    return model


def make_seq2seq_config(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **fields: Any) -> CopyNetConfig:
    """The config of a CopyNet whose encoder, decoder and output layer are the model's."""
    own: Any = model.config
    head: Any = model.get_output_embeddings()
    if len(tokenizer) > head.out_features or hasattr(tokenizer, "oov_words"):
        raise ValueError(
            f"the tokenizer is a {type(tokenizer).__name__} of {len(tokenizer)} words, the model has "
            f"{head.out_features}: pass the model's own; resize_token_embeddings adds words afterwards."
        )
    bos, unk = tokenizer.bos_token_id, tokenizer.unk_token_id
    start: Any = model.generation_config.decoder_start_token_id  # 0 in T5
    if start is None:
        start = getattr(own, "decoder_start_token_id", None)
    return CopyNetConfig(
        seq2seq=True,
        encoder=own,
        encoder_reads="words",
        decoder=own,
        vocab_size=head.out_features,
        embedding_size=own.hidden_size,
        encoder_hidden_size=own.hidden_size // 2,
        max_source_oov=0,
        tie_word_embeddings=head.weight is model.get_input_embeddings().weight,
        logits_scale=_find_scale(model),
        logits_bias=_find_bias(model) is not None,
        pad_token_id=own.pad_token_id,
        bos_token_id=getattr(own, "bos_token_id", None) if bos is None else bos,
        eos_token_id=own.eos_token_id,
        unk_token_id=own.pad_token_id if unk is None else unk,
        decoder_start_token_id=start,
        **{"dropout": 0.0, **fields},  # its layers have dropout of their own
    )


@torch.no_grad()
def take_weights(model: Any, own: PreTrainedModel) -> None:
    """Gives a model of a config by `make_seq2seq_config` the weights and the generation config of the encoder-decoder.

    Args:
        model: a `CopyNetForConditionalGeneration`, whose module is above this one.
    """
    encoder: Any = model.get_encoder().text_encoder
    stack = own.get_encoder()
    _load(encoder if type(encoder) is type(stack) else encoder.get_encoder(), stack)  # T5's is inside another
    encoder.get_input_embeddings().weight.copy_(own.get_input_embeddings().weight)
    decoder: Any = model.model.decoder
    _load(decoder.text_decoder, own.get_decoder())
    decoder.reset_copy_mode()
    head: Any = own.get_output_embeddings()
    model.lm_head.weight.copy_(head.weight)
    if (bias := _find_bias(own)) is not None:
        model.lm_head.bias.copy_(bias)
    model.generation_config = deepcopy(own.generation_config)
    model.init_generation_config()


def _load(part: nn.Module, weights: nn.Module) -> None:
    """Copies weights by their names; embeddings of words, which one of both may lack, are left out."""
    found = part.load_state_dict(weights.state_dict(), strict=False)
    others = [name for name in (*found.missing_keys, *found.unexpected_keys) if "embed_tokens" not in name]
    assert not others, others


def _find_bias(model: PreTrainedModel) -> Tensor | None:
    """What is added to the logits (V): a buffer of BART and its kind, or the output layer's own; None: nothing."""
    bias = getattr(model, "final_logits_bias", None)
    head: Any = model.get_output_embeddings()
    return head.bias if bias is None else bias[0]


@torch.no_grad()
def _find_scale(model: PreTrainedModel) -> float:
    """What s_t is multiplied by before the output layer: d^−½ in T5, else 1.

    Raises:
        ValueError: neither gives the model's own logits.
    """
    config, head, bias = model.config, model.get_output_embeddings(), _find_bias(model)
    words = torch.arange(config.vocab_size, device=model.device)[None, -4:]
    output: Any = model(input_ids=words, decoder_input_ids=words, use_cache=False, output_hidden_states=True)
    own, state = output.logits, output.decoder_hidden_states[-1]
    for scale in (1.0, config.hidden_size**-0.5):
        logits = head(state * scale) + (0.0 if bias is None else bias)
        if torch.allclose(logits, own, rtol=0, atol=_TOLERANCE * float(own.abs().max())):
            return float(scale)
    raise ValueError(
        f"the output layer of {type(model).__name__} does more than a product: use a model such as T5, BART or Marian"
    )
