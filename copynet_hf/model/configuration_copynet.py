"""Configuration of CopyNet (Gu, Lu, Li, Li, ACL 2016, arXiv 1603.06393) and its baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from transformers import PreTrainedConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

READOUT_PARTS = ("state", "context", "embedding", "selective_read")


class Mechanism(NamedTuple):
    """What a copy mechanism takes of the network; its equation is in `copy_distribution.MODES`.

    copies: whether there is anything to copy with.
    scores_positions: whether it has copy scores of its own, ψ_c of Eq. 8, which a selective read needs.
    copies_by_attention: whether its equation takes the attention.
    attends_after: whether the attention asks with s_t, which has read y_{t-1}, and c_{t-1} is an input of s_t; else it
        asks with s_{t-1} (Eq. 3), and c_t is that input.
    switch: what its switch sees, p_gen or λ; nothing: it has none.
    readout: what the generate scores are made of by default.
    own_readout: whether they are made of that alone.
    tanh_readout: whether the readout goes through a tanh.
    retrieves: whether facts can be read and written beside the source.
    generates: whether words of the vocabulary can be written that are not in the source; if not, the end symbol alone.
    """

    copies: bool = True
    scores_positions: bool = False
    copies_by_attention: bool = False
    attends_after: bool = False
    switch: tuple[str, ...] = ()
    readout: tuple[str, ...] = READOUT_PARTS
    own_readout: bool = False
    tanh_readout: bool = True
    generates: bool = True
    retrieves: bool = False


COPY_MECHANISMS = {
    "copynet": Mechanism(scores_positions=True),
    "none": Mechanism(copies=False),
    # See et al. 2017, Eq. 1, 4 and 8: attention by s_t; P_vocab = softmax(V'(V[s_t; h*_t] + b) + b'), two linear maps
    "pointer_generator": Mechanism(
        copies_by_attention=True,
        attends_after=True,
        switch=("context", "state", "embedding"),
        readout=("state", "context"),
        tanh_readout=False,
    ),
    "gated": Mechanism(copies_by_attention=True, switch=("state",)),
    "pointer": Mechanism(readout=("state",), own_readout=True, generates=False),
    # CoreQA (He et al. 2017): selective reads of its own, from the question and from the facts
    "retrieval": Mechanism(readout=("state", "context"), own_readout=True, retrieves=True),
}
GATED_LOSSES = ("mixture", "summed")
MEMORIES = ("question", "facts")


class CopyNetConfig(PreTrainedConfig):
    """What a CopyNet is made of. Every field has a default; `CopyNetConfig()` has the paper's LCSTS sizes.

    Args:
        vocab_size: words the model can generate, special ones included. Ids from `vocab_size` on are slots for
            the unseen words of one row's source, so this must equal `len(tokenizer)`.
        embedding_size: width of e(y), one table for source and target.
        hidden_size: width of the decoder state s_t.
        encoder_hidden_size: width of the encoder state, per direction; h_j is twice as wide.
        num_hidden_layers: bidirectional GRU layers of the encoder.
        attention_size: width of the attention's hidden layer, Eq. 3.
        max_source_oov: K, the number of slots for unseen source words; logits are `vocab_size + K` wide.
        dropout: on embeddings, encoder states and the readout, in training.
        copy_mechanism: "copynet"; "pointer_generator" (See et al. 2017) or "gated" (CoRe, Cao et al. 2016), which copy
            by the attention; "pointer" (Pointer Networks, Vinyals et al. 2015), which does nothing but copy;
            "retrieval" (CoreQA, He et al. 2017), which copies from a question and from facts; or "none" for the
            attentive RNN alone (RNNSearch, Bahdanau et al. 2014).
        copies_from: with "retrieval", what is written from, out of "question" and "facts"; both are attended to
            whatever it says.
        num_features: with "pointer", how many real numbers each source position has in place of a word
            (`input_features`); 0: the source is words.
        attention: whether c_t is the attentive read; if not, c is the encoder's last state, Eq. 1 (Enc-Dec).
        selective_read: whether s_t is fed with ζ(y_{t-1}), Eq. 9. None: with "copynet".
        readout: what feeds the scores of both modes, out of "state" s_t, "context" c_t, "embedding"
            e(y_{t-1}) and "selective_read" ζ(y_{t-1}). `("state",)` is Eq. 7 and 8 to the letter; more is
            the authors' code. None: everything the model has; with "pointer_generator" state and context, as there.
        use_coverage: whether the attention sees where it has been (Σ of past attention; the authors' code adds
            it after the tanh of Eq. 3, here it goes inside, as in See et al. 2017, Eq. 11).
        coverage_loss_weight: λ of the coverage loss, λ Σ_j min(a_tj, cov_tj) (See et al. 2017, Eq. 13, where it is 1).
        gate_loss_weight: of −log λ_t or −log(1 − λ_t), whether y_t is copied or not, with "gated".
        gated_loss: with "gated", "mixture" for −log p(y_t), or "summed" for the Chainer article's losses, which weigh
            two logarithms.
        aligned_words: with "gated", how many words may be generated for each source word, those of
            `model.alignments.table`, which `copynet-hf train` fills by `align_vocabulary`. 0: the whole vocabulary.
        frequent_words: with `aligned_words`, so many words of the vocabulary, its first ones, may always be generated.
        use_fused: whether the recurrences of encoder and decoder run with their gradients written by hand, which is
            faster; the readable forms give the same numbers.
        initializer_range: embeddings start uniform in ±this (the authors' 0.1); other weights follow
            Glorot, recurrent ones are orthogonal.
        tie_word_embeddings: generate scores use the embedding table, through a projection to its width.
        pad_token_id, bos_token_id, eos_token_id, unk_token_id, decoder_start_token_id: special ids, all inside
            the vocabulary.

    Raises:
        ValueError: a value or a combination that makes no sense, saying what to change.
    """

    model_type = "copynet"
    # Source-wide outputs have another width in every batch, which the Trainer cannot put together.
    keys_to_ignore_at_inference = ["past_key_values", "cross_attentions", "copy_probs"]  # noqa: RUF012 - the base class's own type

    vocab_size: int = 10_000
    embedding_size: int = 350
    hidden_size: int = 500
    encoder_hidden_size: int = 500
    num_hidden_layers: int = 1
    attention_size: int = 500
    max_source_oov: int = 32
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
    is_encoder_decoder: bool = True
    pad_token_id: int = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    unk_token_id: int = 3
    decoder_start_token_id: int = 1

    def __post_init__(self, **kwargs: Any) -> None:
        self._check_sizes()
        if self.copy_mechanism not in COPY_MECHANISMS:
            raise ValueError(
                f"copy_mechanism={self.copy_mechanism!r} is unknown: use one of {', '.join(COPY_MECHANISMS)}."
            )
        self._check_mechanism()
        self.readout = self._checked_readout()
        super().__post_init__(**kwargs)
        self._check_special_ids()

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in the library, but fields among `kwargs` are checked with the others."""
        if not cls.__module__.startswith("transformers_modules."):
            # The library runs a pipeline that a config names from the saved code alone, which has to be trusted; the
            # package's own is registered.
            config_dict = {name: value for name, value in config_dict.items() if name != "custom_pipelines"}
        fields = {name: kwargs.pop(name) for name in list(kwargs) if name in cls.__annotations__}
        return super().from_dict({**config_dict, **fields}, **kwargs)

    @classmethod
    def for_tokenizer(cls, tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> CopyNetConfig:
        """A config whose vocabulary, slots and special ids are the tokenizer's; `kwargs` are the other fields.

        The first slot is `len(tokenizer)` to the tokenizer and `vocab_size` to the model: where they differ, slots
        are taken for words without any error, so this is the way to make a config.

        Raises:
            ValueError: a field of `kwargs` that the tokenizer has otherwise.
        """
        fields = cls.tokenizer_fields(tokenizer)
        for name in fields.keys() & kwargs.keys():
            if kwargs[name] != fields[name]:
                raise ValueError(f"{name}={kwargs[name]!r}, but the tokenizer has {fields[name]!r}: leave {name} out.")
        return cls(**kwargs | fields)

    @staticmethod
    def tokenizer_fields(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """The fields that the tokenizer decides, for `CopyNetConfig.lcsts_char(**fields)` and the like.

        An ordinary subword tokenizer has no unseen words, hence no slots; padding stands in for the special tokens
        that it lacks.
        """
        pad = tokenizer.pad_token_id
        start = pad if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return {
            "vocab_size": len(tokenizer),
            "max_source_oov": getattr(tokenizer, "max_source_oov", 0),
            "pad_token_id": pad,
            "bos_token_id": start,
            "decoder_start_token_id": start,
            "eos_token_id": tokenizer.eos_token_id,
            "unk_token_id": pad if tokenizer.unk_token_id is None else tokenizer.unk_token_id,
        }

    @classmethod
    def synthetic(cls, **kwargs: Any) -> CopyNetConfig:
        """The paper's sizes for the synthetic rules (section 5.1): 1,000 symbols, GRU 300, embeddings 150."""
        sizes = {"vocab_size": 1_004, "embedding_size": 150, "max_source_oov": 0}
        return cls(**{**sizes, **_hidden(300), **kwargs})

    @classmethod
    def lcsts_char(cls, **kwargs: Any) -> CopyNetConfig:
        """The paper's sizes for LCSTS in characters (section 5.2): vocabulary 3,000, GRU 500, embeddings 350."""
        sizes = {"vocab_size": 3_000, "embedding_size": 350, "max_source_oov": 16}
        return cls(**{**sizes, **_hidden(500), **kwargs})

    @classmethod
    def lcsts_word(cls, **kwargs: Any) -> CopyNetConfig:
        """The paper's sizes for LCSTS in jieba words (section 5.2): as in characters, vocabulary 10,000."""
        sizes = {"vocab_size": 10_000, "embedding_size": 350, "max_source_oov": 40}
        return cls(**{**sizes, **_hidden(500), **kwargs})

    @property
    def copies(self) -> bool:
        """Whether the output distribution has a copy mode."""
        return self.mechanism.copies

    @property
    def mechanism(self) -> Mechanism:
        """What the copy mechanism takes of the network."""
        return COPY_MECHANISMS[self.copy_mechanism]

    @property
    def end_token_ids(self) -> list[int]:
        """The end symbols: `eos_token_id` may be one, several or none."""
        ends = self.eos_token_id if isinstance(self.eos_token_id, list) else [self.eos_token_id]
        return [end for end in ends if end is not None]

    @property
    def memory_size(self) -> int:
        """Width of h_j: both directions of the encoder."""
        return 2 * self.encoder_hidden_size

    @property
    def extended_vocab_size(self) -> int:
        """Width of the logits: the vocabulary and the slots for unseen source words."""
        return self.vocab_size + self.max_source_oov

    def _check_sizes(self) -> None:
        names = "vocab_size embedding_size hidden_size encoder_hidden_size num_hidden_layers attention_size"
        may_be_zero = ("max_source_oov", "num_features", "aligned_words", "frequent_words")
        for name in [*names.split(), *may_be_zero]:
            value, least = getattr(self, name), 0 if name in may_be_zero else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")
        if not isinstance(self.dropout, int | float) or not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout={self.dropout!r} must be a number of at least 0 and below 1.")
        for name in ("initializer_range", "coverage_loss_weight", "gate_loss_weight"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value < 0:
                raise ValueError(f"{name}={value!r} must be a number of at least 0.")

    def _check_mechanism(self) -> None:
        """Refuses what the mechanism has no use for: it would be without effect."""
        if self.selective_read is None:
            self.selective_read = self.mechanism.scores_positions
        if self.selective_read and not self.mechanism.scores_positions:
            raise ValueError(
                f"selective_read=True reads by copy scores, which copy_mechanism={self.copy_mechanism!r} does not "
                "have: leave selective_read out or set copy_mechanism='copynet'."
            )
        if self.use_coverage and not self.attention:
            raise ValueError("use_coverage=True records the attention: set attention=True or leave it out.")
        if self.mechanism.copies_by_attention and not self.attention:
            raise ValueError(f"copy_mechanism={self.copy_mechanism!r} copies by the attention: set attention=True.")
        if self.copy_mechanism == "retrieval" and (self.use_coverage or not self.attention):
            raise ValueError(
                "copy_mechanism='retrieval' has an attention and its history of its own: leave use_coverage and "
                "attention out."
            )
        if isinstance(self.copies_from, str):
            self.copies_from = [self.copies_from]
        if not set(self.copies_from) <= set(MEMORIES):
            raise ValueError(f"copies_from={list(self.copies_from)} may hold {' and '.join(map(repr, MEMORIES))}.")
        if self.copy_mechanism != "retrieval" and set(self.copies_from) != set(MEMORIES):
            raise ValueError(
                f"copies_from={list(self.copies_from)} is for copy_mechanism='retrieval': set that or leave it out."
            )
        self.copies_from = [memory for memory in MEMORIES if memory in self.copies_from]
        if self.copy_mechanism == "pointer" and (self.use_coverage or not self.attention or self.tie_word_embeddings):
            raise ValueError(
                "copy_mechanism='pointer' points with its attention and generates nothing: leave use_coverage, "
                "attention and tie_word_embeddings out."
            )
        if self.copy_mechanism == "pointer" and not self.end_token_ids:
            raise ValueError("eos_token_id=None: copy_mechanism='pointer' points at the end symbol, give it one.")
        if self.num_features and self.copy_mechanism != "pointer":
            raise ValueError(f"num_features={self.num_features!r} is for copy_mechanism='pointer': set that too.")
        if self.coverage_loss_weight and not self.use_coverage:
            raise ValueError(
                f"coverage_loss_weight={self.coverage_loss_weight!r} is for an attention that sees its past: set "
                "use_coverage=True or leave it out."
            )
        if self.gated_loss not in GATED_LOSSES:
            raise ValueError(f"gated_loss={self.gated_loss!r} is unknown: use one of {', '.join(GATED_LOSSES)}.")
        if self.copy_mechanism != "gated" and (self.aligned_words or self.gated_loss != "mixture"):
            raise ValueError(
                f"aligned_words={self.aligned_words!r} and gated_loss={self.gated_loss!r} are for "
                "copy_mechanism='gated': set that or leave them out."
            )

    def _checked_readout(self) -> list[str]:
        available = [part for part in READOUT_PARTS if part != "selective_read" or self.selective_read]
        if self.readout is None:
            return [part for part in available if part in self.mechanism.readout]
        if self.mechanism.own_readout and list(self.readout) != list(self.mechanism.readout):
            raise ValueError(f"copy_mechanism={self.copy_mechanism!r} has a readout of its own: leave readout out.")
        parts = [self.readout] if isinstance(self.readout, str) else list(self.readout)
        unknown = [part for part in parts if part not in available]
        if unknown or "state" not in parts or len(set(parts)) < len(parts):
            raise ValueError(
                f"readout={parts} must hold 'state' and may hold, once each, others out of {available} "
                "('selective_read' only where selective_read is on)."
            )
        return [part for part in READOUT_PARTS if part in parts]

    def _check_special_ids(self) -> None:
        ids: dict[str, list[int | None]] = {
            "pad_token_id": [self.pad_token_id],
            "bos_token_id": [self.bos_token_id],
            "eos_token_id": [*self.end_token_ids],
            "unk_token_id": [self.unk_token_id],
            "decoder_start_token_id": [self.decoder_start_token_id],
        }
        for name, values in ids.items():
            for value in values:
                if value is not None and not 0 <= value < self.vocab_size:
                    raise ValueError(
                        f"{name}={value} lies outside the vocabulary of {self.vocab_size}: "
                        "give it an id below vocab_size."
                    )
        if self.decoder_start_token_id is None or self.pad_token_id is None:
            raise ValueError(
                "decoder_start_token_id and pad_token_id must be given: decoding starts and rows end on them."
            )


def _hidden(size: int) -> dict[str, int]:
    """One width for decoder, encoder and attention, as the paper has it."""
    return {"hidden_size": size, "encoder_hidden_size": size, "attention_size": size}


__all__ = ["CopyNetConfig"]
