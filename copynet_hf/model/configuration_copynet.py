"""Configuration of CopyNet (Gu, Lu, Li, Li, ACL 2016, arXiv 1603.06393) and its baselines."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .confidence import read_calibration

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Fields that most mechanisms use.
COMMON_OPTIONS = ("use_coverage", "coverage_loss_weight", "readout", "tie_word_embeddings", "feature_vocab_size")
# Fields that say which attention of a Transformers decoder is copied by.
COPY_HEAD_OPTIONS = ("copy_layer", "copy_head")
READOUT_PARTS = ("state", "context", "embedding", "selective_read")


class Mechanism(NamedTuple):
    """What a copy mechanism needs of the network; its equation is in `copy_distribution.MODES`.

    copies: whether the output distribution has a copy mode.
    has_copy_projection: whether it has copy scores, ψ_c of Eq. 8, which the selective read needs.
    copies_by_attention: whether its equation contains the attention.
    attends_after: whether s_t is the query of the attention, and c_{t-1} an input of s_t; else s_{t-1} is the query
        (Eq. 3) and c_t that input.
    switch: what p_gen or λ is computed from; empty: it has none.
    readout: what the generate scores are computed from by default.
    tanh_readout: whether the readout is a tanh layer; else it is linear.
    generates: whether words that are not in the source can be written; else only the end symbol.
    retrieves: whether facts can be read and copied from.
    options: of the fields that only some mechanisms use, those that have an effect; others must have their default.
    """

    copies: bool = True
    has_copy_projection: bool = False
    copies_by_attention: bool = False
    attends_after: bool = False
    switch: tuple[str, ...] = ()
    readout: tuple[str, ...] = READOUT_PARTS
    tanh_readout: bool = True
    generates: bool = True
    retrieves: bool = False
    options: tuple[str, ...] = COMMON_OPTIONS


SOURCE_PARTS = ("question", "facts")
ENCODER_FIELDS = ("encoder", "encoder_reads", "encoder_pooling", "encoder_gru", "initial_state")
# With a Transformers decoder, each of these fields must have one of these values; and why.
RECURRENT_OPTIONS: dict[str, tuple[tuple[object, ...], str]] = {
    "use_coverage": ((False,), "the attention of each step is an input of the next"),
    "attention": ((True,), "its layers attend to the source"),
    "readout": (
        (None, ["state"], ("state",), "state"),
        "its layers have read context and embedding, so that scores are computed from the state alone",
    ),
}
# Fields that only models with another field use: in the others, they must have their default.
DEPENDENT_FIELDS = {
    "encoder_reads": "encoder",
    "encoder_pooling": "encoder",
    "encoder_gru": "encoder",
    "initial_state": "encoder",
    "logits_scale": "seq2seq",
    "logits_bias": "seq2seq",
    "copy_layer": "decoder",
    "copy_head": "decoder",
    "use_coverage": "attention",
    "coverage_loss_weight": "use_coverage",
}
COPY_MECHANISMS = {
    "copynet": Mechanism(has_copy_projection=True, options=("attention", "selective_read", *COMMON_OPTIONS)),
    "none": Mechanism(copies=False, options=("attention", *COMMON_OPTIONS)),
    # See et al. 2017, Eq. 1, 4 and 8: attention by s_t; P_vocab = softmax(V'(V[s_t; h*_t] + b) + b'), two linear maps
    "pointer_generator": Mechanism(
        copies_by_attention=True,
        attends_after=True,
        switch=("context", "state", "embedding"),
        readout=("state", "context"),
        tanh_readout=False,
        options=(*COMMON_OPTIONS, *COPY_HEAD_OPTIONS),
    ),
    "gated": Mechanism(
        copies_by_attention=True,
        switch=("state",),
        options=(
            *COMMON_OPTIONS,
            "aligned_words",
            "frequent_words",
            "gated_loss",
            "gate_loss_weight",
            *COPY_HEAD_OPTIONS,
        ),
    ),
    "pointer": Mechanism(readout=("state",), generates=False, options=("num_features",)),
    # CoreQA (He et al. 2017): selective reads of the question and of the facts, an attention with coverage for each
    "retrieval": Mechanism(
        readout=("state", "context"),
        retrieves=True,
        options=("copies_from", "tie_word_embeddings", "feature_vocab_size"),
    ),
}
# Fields that name one of several ways.
CHOICES: dict[str, Collection[str]] = {
    "copy_mechanism": COPY_MECHANISMS,
    "gated_loss": ("mixture", "summed"),
    "encoder_reads": ("pieces", "words"),
    "encoder_pooling": ("mean", "first", "last"),
    "initial_state": ("mean", "first", "last"),
}


class CopyNetBaseConfig(PreTrainedConfig):
    """What the configs of a model and of an ensemble share."""

    # Their width follows the batch, so the Trainer could not concatenate them.
    keys_to_ignore_at_inference = ["cache", "past_key_values", "cross_attentions", "copy_probs"]  # noqa: RUF012 - the base class's own type

    if TYPE_CHECKING:
        vocab_size: int
        max_source_oov: int
        pad_token_id: int
        eos_token_id: int | list[int] | None
        unk_token_id: int
        decoder_start_token_id: int

        @property
        def copies(self) -> bool: ...

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Self:
        """As in the library; fields among `kwargs` are checked together with the others."""
        if not cls.__module__.startswith("transformers_modules."):
            # The library would load a pipeline named in the config from the saved code, which has to be trusted; the
            # package's own is registered.
            config_dict = {name: value for name, value in config_dict.items() if name != "custom_pipelines"}
        fields = {name: kwargs.pop(name) for name in list(kwargs) if name in cls.__annotations__}
        return super().from_dict({**config_dict, **fields}, **kwargs)

    @property
    def end_token_ids(self) -> list[int]:
        """The end symbols; `eos_token_id` may be one, several or none."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [end for end in ends if end is not None]

    @property
    def unknown_word_id(self) -> int | None:
        """UNK as a word of outputs; None where it ends them, as in GPT-2's vocabulary."""
        return None if self.unk_token_id in self.end_token_ids else self.unk_token_id

    @property
    def extended_vocab_size(self) -> int:
        """Width of the logits: the vocabulary and the slots for unseen source words."""
        return self.vocab_size + self.max_source_oov


class CopyNetConfig(CopyNetBaseConfig):
    """Configuration of a CopyNet. `CopyNetConfig()` has the paper's LCSTS sizes.

    Args:
        vocab_size: words the model can generate, special ones included. Ids from `vocab_size` on are slots for the
            unseen words of one row's source, so this must equal `len(tokenizer)`.
        embedding_size: width of e(y), one table for source and target.
        hidden_size: width of the decoder state s_t.
        encoder_hidden_size: width of the encoder state, per direction; h_j is twice as wide, with `encoder` too.
        num_hidden_layers: bidirectional GRU layers of the encoder.
        encoder_residual: without `encoder`, whether W_x e(x_j) is added to h_j, a residual connection around the GRU
            layers: attention and scores then read the word itself, and what a rare word means is learned in fewer
            updates. Not in the paper.
        tie_repetitions: without `encoder`, whether the mentions of a rare word are tied to each other: of one outside
            the vocabulary, or marked in `TiedRepetitions.is_rare`, which `copynet-hf train` fills. Not in the paper.
        attention_size: width of the attention's hidden layer, Eq. 3.
        max_source_oov: K, the number of slots for unseen source words; logits are `vocab_size + K` wide.
        feature_vocab_size: how many feature ids there are, with those of padding and the unknown feature; 0: sources
            have no features. Must equal `tokenizer.feature_vocab_size`, and needs `attention`.
        letter_vocab_size: how many letter ids there are, with those of boundaries and the unknown letter, for the
            embeddings of words outside the vocabulary (`LetterEncoder`); 0: all have that of UNK. Must equal
            `tokenizer.letter_vocab_size`.
        letter_dropout: the probability with which, in training, the encoder reads such a word with each of its letters
            hidden with probability 1/2.
        dropout: of embeddings, encoder states and the readout, in training.
        copy_mechanism: "copynet"; "pointer_generator" (See et al. 2017) or "gated" (CoRe, Cao et al. 2016), which copy
            by the attention; "pointer" (Pointer Networks, Vinyals et al. 2015), which only copies; "retrieval"
            (CoreQA, He et al. 2017), which copies from a question and from facts; or "none", the attentive RNN
            (RNNSearch, Bahdanau et al. 2014).
        copies_from: with "retrieval", what can be copied from, out of "question" and "facts"; both are attended to in
            any case.
        num_features: with "pointer", how many real numbers each source position has instead of a word
            (`input_features`); 0: the source is words.
        attention: whether c_t is the attentive read; if not, c is the encoder's last state, Eq. 1 (Enc-Dec).
        selective_read: whether ζ(y_{t-1}) is an input of s_t, Eq. 9. None: with "copynet", unless `seq2seq`.
        readout: what the scores of both modes are computed from, out of "state" s_t, "context" c_t, "embedding"
            e(y_{t-1}) and "selective_read" ζ(y_{t-1}). `("state",)` is Eq. 7 and 8 to the letter; more is after the
            authors' code, whose generate scores are linear in them. None: all parts the model has; with
            "pointer_generator" state and context, as in its paper.
        use_coverage: whether the attention sees the sum of past attention (the authors' code adds it after the tanh of
            Eq. 3, here it is inside, as in See et al. 2017, Eq. 11).
        coverage_loss_weight: λ of the coverage loss, λ Σ_j min(a_tj, cov_tj) (See et al. 2017, Eq. 13, where it is 1).
        gate_loss_weight: with "gated", the weight of −log λ_t or −log(1 − λ_t), for targets that are copied or not.
        gated_loss: with "gated", "mixture" for −log p(y_t), or "summed" for the Chainer article's losses, a weighted
            sum of two logarithms.
        aligned_words: with "gated", how many words may be generated for each source word, those of
            `model.alignments.table`, which `copynet-hf train` fills by `align_vocabulary`. 0: the whole vocabulary.
        frequent_words: with `aligned_words`, how many words of the vocabulary, its first ones, may always be
            generated.
        use_fused: whether the recurrences may run in their fast form, with gradients by hand; `fast.py` lists what
            prevents it. The readable form gives the same numbers.
        initializer_range: embeddings are initialised uniformly in ±this (0.1 in the authors' code), other weights by
            Glorot, recurrent ones orthogonally.
        tie_word_embeddings: whether generate scores use the embedding table, after a projection to its width.
        encoder: the config of a Transformers encoder, as an object or a dict, which takes the place of the GRU layers;
            `encoder_reads` says what it reads. None: GRU layers.
        encoder_reads: with `encoder`, "pieces" of words, with a tokenizer of its own (`CopyNetTransformerEncoder`), or
            "words", whose embeddings are the decoder's (`WordEncoder`).
        encoder_pooling: with `encoder` and pieces, the state of a word: the "mean" of its pieces' states, the "first"
            or the "last".
        encoder_gru: with `encoder` and pieces, whether GRU layers read the sums of the words' states and e(x_j).
        decoder: the config of a Transformers decoder, as an object or a dict, which takes the place of the GRU and
            computes all steps of training at once (`TransformerDecoder`): that of an encoder-decoder such as BART or
            T5, or of a model such as BERT, which is given cross-attention. Then `hidden_size` is its own, the readout
            is the state, the selective read is the mean of a word's h_j, and there is no coverage. None: the GRU.
        copy_layer: with `decoder`, the layer whose attention to the source is copied by, from 0, or −1 for the last.
        copy_head: with `decoder`, the head of that layer; None: the average of all heads.
        seq2seq: whether encoder, decoder and output layer are those of a pretrained encoder-decoder, as
            `CopyNetForConditionalGeneration.from_seq2seq_pretrained` makes them. Then `logits_scale` multiplies s_t
            before the output layer, and `logits_bias` says whether that has a bias.
        initial_state: with `encoder` and no `encoder_gru`, what s_0 is computed from: the state of the "first" piece
            ([CLS] in BERT), the "last", or the "mean" of all.
        calibration: a and b of `confidence.calibrate`, which `copynet-hf train` fits on the validation pairs. None:
            the confidence of an output is its score.
        pad_token_id, bos_token_id, eos_token_id, unk_token_id, decoder_start_token_id: special ids, all inside the
            vocabulary.

    Raises:
        ValueError: an invalid value or a contradictory combination.
    """

    model_type = "copynet"
    sub_configs_defaults = {  # noqa: RUF012 - the base class's own type
        "encoder": SubConfigSpec(AutoConfig, model_type="bert", optional=True),
        "decoder": SubConfigSpec(AutoConfig, model_type="bart", optional=True),
    }

    vocab_size: int = 10_000
    embedding_size: int = 350
    hidden_size: int = 500
    encoder_hidden_size: int = 500
    num_hidden_layers: int = 1
    encoder_residual: bool = False
    tie_repetitions: bool = False
    attention_size: int = 500
    max_source_oov: int = 32
    feature_vocab_size: int = 0
    letter_vocab_size: int = 0
    letter_dropout: float = 0.5
    dropout: float = 0.1
    copy_mechanism: str = "copynet"
    attention: bool = True
    selective_read: bool | None = None
    readout: list[str] | tuple[str, ...] | None = None
    copies_from: list[str] | tuple[str, ...] = ("question", "facts")
    num_features: int = 0
    use_coverage: bool = False
    coverage_loss_weight: float = 0.0
    gate_loss_weight: float = 1.0
    gated_loss: str = "mixture"
    aligned_words: int = 0
    frequent_words: int = 2_000
    use_fused: bool = True
    initializer_range: float = 0.1
    use_cache: bool = True
    tie_word_embeddings: bool = False
    encoder: PreTrainedConfig | dict[str, object] | None = None
    encoder_reads: str = "pieces"
    encoder_pooling: str = "mean"
    encoder_gru: bool = False
    initial_state: str = "first"
    decoder: PreTrainedConfig | dict[str, object] | None = None
    copy_layer: int = -1
    copy_head: int | None = None
    seq2seq: bool = False
    logits_scale: float = 1.0
    logits_bias: bool = False
    calibration: list[float] | tuple[float, float] | None = None
    is_encoder_decoder: bool = True
    pad_token_id: int = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    unk_token_id: int = 3
    decoder_start_token_id: int = 1

    def __post_init__(self, **kwargs: Any) -> None:
        self._check_sizes()
        for name, values in CHOICES.items():
            if (value := getattr(self, name)) not in values:
                raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(values)}.")
        for name in ("encoder", "decoder"):
            if isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name}={value!r} is a name: pass a config of Transformers, such as BertConfig().")
        self._check_decoder()
        self._check_options()
        self._check_encoder()
        read_calibration(self)
        super().__post_init__(**kwargs)
        self._check_special_ids()
        if self.decoder is not None:
            decoder = deepcopy(self.decoder)
            assert isinstance(decoder, PreTrainedConfig)
            if not decoder.is_encoder_decoder:
                decoder.is_decoder = decoder.add_cross_attention = True
            self.decoder, self.hidden_size = decoder, getattr(decoder, "hidden_size", self.hidden_size)

    def get_text_config(self, *args: object, **kwargs: object) -> CopyNetConfig:
        """This config; the library would take `decoder` for it."""
        return self

    @classmethod
    def for_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> CopyNetConfig:
        """A config with the tokenizer's vocabulary, slots and special ids; `kwargs` are the other fields.

        The first slot is `len(tokenizer)` for the tokenizer and `vocab_size` for the model. Where the two differ,
        slots are silently taken for words.

        Raises:
            ValueError: a field of `kwargs` that contradicts the tokenizer.
        """
        fields = cls.tokenizer_fields(tokenizer)
        for name in fields.keys() & kwargs.keys():
            if kwargs[name] != fields[name]:
                raise ValueError(f"{name}={kwargs[name]!r}, but the tokenizer has {fields[name]!r}: leave {name} out.")
        return cls(**kwargs | fields)

    @staticmethod
    def tokenizer_fields(tokenizer: PreTrainedTokenizerBase) -> dict[str, int | None]:
        """The fields that follow from the tokenizer, e.g. for `CopyNetConfig.lcsts_char(**fields)`.

        An ordinary subword tokenizer has no unseen words, hence no slots; padding replaces the special tokens that it
        lacks.
        """
        pad = tokenizer.pad_token_id
        start = pad if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return {
            "vocab_size": len(tokenizer),
            "max_source_oov": getattr(tokenizer, "max_source_oov", 0),
            "feature_vocab_size": getattr(tokenizer, "feature_vocab_size", 0),
            "letter_vocab_size": getattr(tokenizer, "letter_vocab_size", 0),
            "pad_token_id": pad,
            "bos_token_id": start,
            "decoder_start_token_id": start,
            "eos_token_id": tokenizer.eos_token_id,
            "unk_token_id": pad if tokenizer.unk_token_id is None else tokenizer.unk_token_id,
        }

    @classmethod
    def synthetic(cls, **kwargs: Any) -> CopyNetConfig:
        """The paper's sizes for the synthetic rules (section 5.1): 1,000 symbols, GRU 300, embeddings 150."""
        return cls(**_make_sizes(hidden=300, vocab_size=1_004, embedding_size=150, max_source_oov=0) | kwargs)

    @classmethod
    def lcsts_char(cls, **kwargs: Any) -> CopyNetConfig:
        """The paper's sizes for LCSTS in characters (section 5.2): vocabulary 3,000, GRU 500, embeddings 350."""
        return cls(**_make_sizes(hidden=500, vocab_size=3_000, embedding_size=350, max_source_oov=16) | kwargs)

    @classmethod
    def lcsts_word(cls, **kwargs: Any) -> CopyNetConfig:
        """The paper's sizes for LCSTS in jieba words (section 5.2): vocabulary 10,000, GRU 500, embeddings 350."""
        return cls(**_make_sizes(hidden=500, vocab_size=10_000, embedding_size=350, max_source_oov=40) | kwargs)

    @property
    def copies(self) -> bool:
        """Whether the output distribution has a copy mode."""
        return self.mechanism.copies

    @property
    def retrieves(self) -> bool:
        """Whether facts can be read and copied from."""
        return self.mechanism.retrieves

    @property
    def mechanism(self) -> Mechanism:
        """What the copy mechanism needs of the network."""
        return COPY_MECHANISMS[self.copy_mechanism]

    @property
    def piece_encoder(self) -> PreTrainedConfig | None:
        """The config of the encoder that reads pieces of words, with a tokenizer of its own. None: words are read."""
        return self.encoder if self.encoder_reads == "pieces" else None  # type: ignore[return-value]

    @property
    def memory_size(self) -> int:
        """Width of h_j: both directions of the encoder, or what a Transformers encoder is projected to."""
        return 2 * self.encoder_hidden_size

    def _check_sizes(self) -> None:
        names = "vocab_size embedding_size hidden_size encoder_hidden_size num_hidden_layers attention_size"
        may_be_zero = ["max_source_oov", "feature_vocab_size", "letter_vocab_size", "num_features"]
        may_be_zero += ["aligned_words", "frequent_words"]
        for name in [*names.split(), *may_be_zero]:
            value, least = getattr(self, name), 0 if name in may_be_zero else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
        for name, highest in (("dropout", "below 1"), ("letter_dropout", "at most 1")):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0.0 <= value <= 1.0 or (value == 1.0 and name == "dropout"):
                raise ValueError(f"{name}={value!r} must be a number of at least 0 and {highest}.")
        for name in ("initializer_range", "coverage_loss_weight", "gate_loss_weight"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value < 0:
                raise ValueError(f"{name}={value!r} must be a number of at least 0.")

    def _check_options(self) -> None:
        """Refuses options that the mechanism has no use for, and those that need another one."""
        if self.selective_read is None:
            self.selective_read = "selective_read" in self.mechanism.options and not self.seq2seq
        memories = [self.copies_from] if isinstance(self.copies_from, str) else self.copies_from
        if not set(memories) <= set(SOURCE_PARTS):
            raise ValueError(f"copies_from={list(memories)} may hold {' and '.join(map(repr, SOURCE_PARTS))}.")
        self.copies_from = [memory for memory in SOURCE_PARTS if memory in memories]
        self.readout = self._check_readout()
        defaults = {field.name: field.default for field in fields(CopyNetConfig)}
        # as filled in above for mechanisms without them
        defaults |= {"selective_read": False, "copies_from": [*SOURCE_PARTS], "readout": [*self.mechanism.readout]}
        for name in dict.fromkeys(name for each in COPY_MECHANISMS.values() for name in each.options):
            value = getattr(self, name)
            if name not in self.mechanism.options and value != defaults[name]:
                others = ", ".join(repr(key) for key, other in COPY_MECHANISMS.items() if name in other.options)
                raise ValueError(
                    f"{name}={value!r} has no effect with copy_mechanism={self.copy_mechanism!r}: leave {name} out "
                    f"(it is for {others})."
                )
        for name, other in DEPENDENT_FIELDS.items():
            if (value := getattr(self, name)) != defaults[name] and getattr(self, other) in (None, False):
                raise ValueError(f"{name}={value!r} has no effect without {other}: set {other}, or leave {name} out.")
        if self.feature_vocab_size and not self.attention:
            raise ValueError(
                f"feature_vocab_size={self.feature_vocab_size} needs the attention, which reads the features: set "
                "attention=True, or put the features into the text."
            )
        if self.letter_vocab_size and self.num_features:
            raise ValueError(
                f"letter_vocab_size={self.letter_vocab_size} is for words, but num_features={self.num_features} gives "
                "numbers in place of words: leave one out."
            )

    def _check_decoder(self) -> None:
        """Refuses what a Transformers decoder cannot have."""
        if self.seq2seq and (self.encoder is None or self.decoder is None):
            raise ValueError(
                "seq2seq=True is an encoder-decoder of other models: set encoder and decoder, or leave it out."
            )
        if self.decoder is None:
            return
        if self.mechanism.retrieves or not self.mechanism.generates:
            raise ValueError(
                f"copy_mechanism={self.copy_mechanism!r} has a decoder of its own: leave decoder out, or use another "
                "mechanism."
            )
        for name, (values, reason) in RECURRENT_OPTIONS.items():
            if (value := getattr(self, name)) not in values:
                raise ValueError(
                    f"{name}={value!r} is not for a Transformers decoder, which computes all steps at once: {reason}. "
                    f"Leave {name} out, or decoder."
                )
        if self.seq2seq and self.selective_read:
            raise ValueError("selective_read=True is not for a pretrained encoder-decoder: leave it out.")
        self.readout = ["state"]

    def _check_encoder(self) -> None:
        for name, absent in {"encoder_gru": False, "encoder_pooling": "mean"}.items():
            if (value := getattr(self, name)) != absent and self.encoder_reads == "words":
                raise ValueError(f"{name}={value!r} is for a Transformers encoder that reads pieces: leave it out.")
        if self.encoder_gru and self.initial_state != "first":
            raise ValueError(
                f"initial_state={self.initial_state!r} has no effect with encoder_gru, whose last states make s_0: "
                "leave one out."
            )
        for name in ("encoder_residual", "tie_repetitions"):
            if self.encoder is not None and getattr(self, name):
                raise ValueError(f"{name}=True is for GRU layers: leave it out, or encoder.")
        if self.encoder is not None and self.num_features:
            raise ValueError(
                f"encoder is set, but num_features={self.num_features} gives numbers in place of words: leave one out."
            )

    def _check_readout(self) -> list[str]:
        """The parts of the readout, in the order of `READOUT_PARTS`."""
        available = [part for part in READOUT_PARTS if part != "selective_read" or self.selective_read]
        if self.readout is None:
            return [part for part in available if part in self.mechanism.readout]
        parts = [self.readout] if isinstance(self.readout, str) else list(self.readout)
        unknown = [part for part in parts if part not in available]
        if unknown or "state" not in parts or len(set(parts)) < len(parts):
            raise ValueError(
                f"readout={parts} must hold 'state' and may hold, once each, others out of {available} "
                "('selective_read' only where selective_read is on)."
            )
        return [part for part in READOUT_PARTS if part in parts]

    def _check_special_ids(self) -> None:
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "unk_token_id", "decoder_start_token_id"):
            value = getattr(self, name)
            for each in value if isinstance(value, list) else [value]:
                if each is None and name in ("pad_token_id", "unk_token_id", "decoder_start_token_id"):
                    raise ValueError(f"{name}=None must be set: use an id below vocab_size.")
                if each is not None and not 0 <= each < self.vocab_size:
                    raise ValueError(
                        f"{name}={each} lies outside the vocabulary of {self.vocab_size}: use an id below vocab_size."
                    )
        if not self.mechanism.generates and not self.end_token_ids:
            raise ValueError(
                f"eos_token_id=None, but copy_mechanism={self.copy_mechanism!r} points at the end symbol: set it."
            )


def _make_sizes(hidden: int, vocab_size: int, embedding_size: int, max_source_oov: int) -> dict[str, int]:
    """Fields of a config, with one width for decoder, encoder and attention, as in the paper."""
    widths = dict.fromkeys(("hidden_size", "encoder_hidden_size", "attention_size"), hidden)
    return {"vocab_size": vocab_size, "embedding_size": embedding_size, "max_source_oov": max_source_oov, **widths}


__all__ = ["CopyNetConfig"]
