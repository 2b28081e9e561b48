"""A word tokenizer that gives every out-of-vocabulary source word an id of its own.

Nothing is stored between calls: decoding splits the source text again and finds the same words in the same slots
(source.py).

Two choices differ from most Transformers tokenizers:

- Padding in `labels` is -100, not the padding token, so that `model(**tokenizer(texts, text_target=..., padding=True,
  return_tensors="pt"))` has no loss over padding. Labels are padded and truncated on the right whatever `padding_side`
  and `truncation_side` are, since a decoder starts at the beginning.
- A special token spelled out in a text, such as `</s>`, is ordinary text (`split_special_tokens=True`). With
  `tokenizer.split_special_tokens = False`, texts are first split at added and special tokens, which then get their own
  ids.

A word added by `add_tokens` is recognised where the segmenter returns it as one word. Adding tokens moves
`len(tokenizer)` and with it the first slot: earlier ids become invalid, and the model needs
`resize_token_embeddings(len(tokenizer))`.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer
from transformers import AddedToken, PreTrainedTokenizer, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import BatchEncoding, TruncationStrategy
from transformers.utils import PaddingStrategy, logging, to_py_obj

from .chains import list_marks
from .pieces import FIELDS, PieceTokenizer
from .segmentation import OPTIONAL, SEGMENTERS, get_segmenter
from .source import (
    ExtendedVocabulary,
    Fact,
    Source,
    batch_rows,
    batch_targets,
    check_length,
    pad_rows,
    stack_sources,
)
from .vocabularies import (
    BOUNDARY,
    IGNORED_LABEL,
    NO_FEATURE,
    Text,
    check_vocab,
    count_words,
    find_case_variants,
    list_letters,
    number_entries,
    sort_by_frequency,
)

logger = logging.get_logger(__name__)

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
NO_SPAN = (0, 0)  # as fast tokenizers have it for special tokens and padding


class CopyNetTokenizer(ExtendedVocabulary, PreTrainedTokenizer):
    """A segmenter, a vocabulary of words, and `max_source_oov` slots for the out-of-vocabulary words of a source.

    Args:
        vocab: maps words to ids, or is the path of a JSON file with that mapping. Ids are consecutive from 0, and the
            words include the special tokens. `from_pretrained` passes the path as `vocab_file`.
        segmenter: a name in `SEGMENTERS`.
        max_source_oov: K, the number of slots; the same as in the model's config.
        feature_vocab: the features that sources may have, such as "PST"; another one is the unknown feature. They are
            no words: a feature and a word of the same letters have nothing in common. None: sources have no features.
        letter_vocab: the letters by which words outside the vocabulary are embedded; others are one unknown letter.
            None: such words have no letters.
        case_variants: whether such a word is read with the embedding of the same word in another case, if the
            vocabulary has that (`SALT` as `salt`), in addition to its letters.
        fold_whitespace: whether line breaks, tabs and other whitespace that the vocabulary does not have are read as a
            space, and left out at both ends of a source; else they are words that can be copied.
        split_special_tokens: whether special tokens spelled out in a text are ordinary text.
        encoder_tokenizer: the fast tokenizer of a Transformers encoder (`CopyNetConfig.encoder`), or the folder or Hub
            name of the encoder. The words of a source are then also returned as its pieces. `from_pretrained` passes
            the path of its file as `encoder_tokenizer_file`.
        encoder_max_length: the number of pieces that the encoder reads; None: what its tokenizer or its config says.
            Words beyond it cannot be copied.

    Attributes:
        encoder_tokenizer: a `PieceTokenizer`, or None.

    Raises:
        ValueError: the segmenter is unknown, `max_source_oov` is negative, the vocabulary has gaps or lacks special
            tokens, or the encoder's tokenizer is not a fast one.
    """

    vocab_files_names = {  # noqa: RUF012 (the name and form the base class reads)
        "vocab_file": "vocab.json",
        "encoder_tokenizer_file": "encoder_tokenizer.json",
    }
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        vocab: Mapping[str, int] | str | PathLike[str] | None = None,
        segmenter: str = "char",
        max_source_oov: int = 32,
        *,
        feature_vocab: Iterable[str] | None = None,
        letter_vocab: Iterable[str] | None = None,
        case_variants: bool = False,
        fold_whitespace: bool = False,
        vocab_file: str | PathLike[str] | None = None,
        encoder_tokenizer: PreTrainedTokenizerBase | str | PathLike[str] | None = None,
        encoder_tokenizer_file: str | PathLike[str] | None = None,
        encoder_max_length: int | None = None,
        pad_token: str | AddedToken = SPECIAL_TOKENS["pad_token"],
        bos_token: str | AddedToken = SPECIAL_TOKENS["bos_token"],
        eos_token: str | AddedToken = SPECIAL_TOKENS["eos_token"],
        unk_token: str | AddedToken = SPECIAL_TOKENS["unk_token"],
        split_special_tokens: bool = True,
        **kwargs: Any,
    ) -> None:
        get_segmenter(segmenter)
        if not isinstance(max_source_oov, int) or max_source_oov < 0:
            raise ValueError(f"max_source_oov is {max_source_oov!r}: use a number of slots, 0 or more")
        vocab = vocab_file if vocab is None else vocab
        if vocab is None:
            raise ValueError("vocab is missing: pass a mapping from words to ids, or its JSON file")
        if not isinstance(vocab, Mapping):
            vocab = json.loads(Path(vocab).read_text(encoding="utf-8"))
        added = {str(token) for token in kwargs.get("added_tokens_decoder", {}).values()}
        self.segmenter = segmenter
        self.max_source_oov = max_source_oov
        self.feature_vocab = number_entries("feature", feature_vocab or ())
        self.letter_vocab = number_entries("letter", letter_vocab or ())
        self.case_variants, self.fold_whitespace = case_variants, fold_whitespace
        saved: dict[str, Any] = {"feature_vocab": [*self.feature_vocab], "letter_vocab": [*self.letter_vocab]}
        saved |= {"case_variants": case_variants, "fold_whitespace": fold_whitespace}
        kwargs |= {name: value for name, value in saved.items() if value}  # others are saved without the field
        self._vocab = check_vocab(vocab, [pad_token, bos_token, eos_token, unk_token], added)
        self.encoder_tokenizer: PieceTokenizer | None = None
        if encoder_tokenizer is not None:
            self.encoder_tokenizer = PieceTokenizer.wrap(encoder_tokenizer, encoder_max_length)
        elif encoder_tokenizer_file is not None:
            self.encoder_tokenizer = PieceTokenizer(Tokenizer.from_file(str(encoder_tokenizer_file)))
            if encoder_max_length is not None:
                self.encoder_tokenizer.set_max_length(encoder_max_length)
        super().__init__(
            pad_token=pad_token,
            bos_token=bos_token,
            eos_token=eos_token,
            unk_token=unk_token,
            split_special_tokens=split_special_tokens,
            segmenter=segmenter,
            max_source_oov=max_source_oov,
            # The base class saves only the arguments it gets, and decoding depends on how sources are truncated.
            **{"padding_side": "right", "truncation_side": "right", **kwargs},
        )
        if self.encoder_tokenizer is not None:
            self.model_input_names = [*self.model_input_names, *FIELDS]

    @classmethod
    def train_from_iterator(
        cls,
        texts: Iterable[str] | Iterable[Sequence[str]],
        vocab_size: int,
        segmenter: str = "char",
        min_frequency: int = 1,
        max_source_oov: int = 32,
        *,
        is_split_into_words: bool = False,
        features: Iterable[Sequence[str] | None] = (),
        chains: bool = False,
        changes: Collection[str] = (),
        letters: bool = False,
        **kwargs: Any,
    ) -> "CopyNetTokenizer":
        """Builds a tokenizer whose vocabulary is the most frequent words of `texts`.

        Equally frequent words are ordered by code points, so the order of the texts does not matter.

        Args:
            texts: an iterable of texts, or with `is_split_into_words=True` of lists of words; it is read once.
            vocab_size: the maximum size, including the four special tokens, which get the ids 0 to 3.
            min_frequency: the minimum number of occurrences of a word.
            features: the features of each source, all of which are kept.
            chains: whether the vocabulary has the marks and letters of `Chains`, with a segmenter of `CHAINED`.
            changes: how chains change copies beside their case: "[initial]" for targets with initials, user names or
                keys, "[second]" if names have two initials in one word, "[first_3]" to "[first_12]" for as many
                letters, "[plain]" or "[digraphs]" for words without their accents (`Muller` or `Mueller` of `Müller`),
                "[lower_tr]", "[upper_tr]" and "[title_tr]" for the case of Turkish, "[lower_plain]" or
                "[lower_digraphs]" if all words in lower case are such, "[drop_first]" and "[drop_last]" for words that
                are inflected in the source.
            letters: whether the letters of the words become the `letter_vocab`, with `case_variants` by default.
            kwargs: arguments of the tokenizer, such as `model_max_length` and special tokens.

        Raises:
            TypeError: `texts` is a single text, or one of the texts is not a string.
            ValueError: there are no texts, `vocab_size` is less than the number of special tokens, or `changes` has
                something else.
        """
        if unknown := [each for each in changes if each not in OPTIONAL]:
            raise ValueError(f"changes contains {unknown[0]!r}: use some of {', '.join(OPTIONAL)}")
        special = [str(kwargs.get(name, token)) for name, token in SPECIAL_TOKENS.items()]
        if vocab_size < len(special):
            raise ValueError(
                f"vocab_size={vocab_size} is too small for the special tokens {special}: use a larger one"
            )
        counts = count_words(texts, get_segmenter(segmenter).split, special, is_split_into_words)
        marks = list_marks(counts, vocab_size - len(special), min_frequency, changes) if chains else []
        words = dict.fromkeys([*special, *marks, *sort_by_frequency(counts, min_frequency)])
        vocab = {word: index for index, word in enumerate(list(words)[:vocab_size])}
        if feature_vocab := {feature for row in features for feature in row or ()}:
            kwargs["feature_vocab"] = sorted(feature_vocab)
        if letters:
            kwargs = {"case_variants": True, **kwargs, "letter_vocab": list_letters(counts)}
        return cls(vocab, segmenter=segmenter, max_source_oov=max_source_oov, **kwargs)

    def set_letter_vocab(self, letters: Iterable[str], case_variants: bool) -> None:
        """Encodes sources with these letters from now on; see the class."""
        self.letter_vocab, self.case_variants = number_entries("letter", letters), case_variants
        self.init_kwargs |= {"letter_vocab": list(self.letter_vocab), "case_variants": case_variants}  # what is saved
        self._update_total_vocab_size()

    @property
    def vocab_size(self) -> int:
        """The number of words without those of `add_tokens`; the first slot is `len(tokenizer)`."""
        return len(self._vocab)

    def get_vocab(self) -> dict[str, int]:
        """The mapping from words to ids, with those of `add_tokens`."""
        return {**self._vocab, **self._added_tokens_encoder}

    def _update_total_vocab_size(self) -> None:
        # The base class calls this after adding tokens.
        self._ids = self.get_vocab()
        self._words = {index: word for word, index in self._ids.items()}
        self._case_variants = find_case_variants(self._ids, self.all_special_tokens) if self.case_variants else {}
        self.total_vocab_size = len(self._ids)

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids.get(token, self.unk_token_id)

    def _convert_id_to_token(self, index: int) -> str:
        word = self._words.get(index)
        if word is None:
            return f"<oov-{slot}>" if 0 <= (slot := index - len(self)) < self.max_source_oov else self.unk_token
        return word

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Writes vocab.json, with the words in the order of their ids, and encoder_tokenizer.json, if there is one."""
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        path, encoder_path = (Path(save_directory) / f"{prefix}{name}" for name in self.vocab_files_names.values())
        text = json.dumps(self._vocab, ensure_ascii=False, indent=0) + "\n"
        # UTF-8 cannot encode a lone surrogate; backslashreplace writes it as a valid JSON escape.
        path.write_bytes(text.encode("utf-8", errors="backslashreplace"))
        if self.encoder_tokenizer is None:
            encoder_path.unlink(missing_ok=True)  # of the tokenizer that is overwritten
            return (str(path),)
        self.encoder_tokenizer.save(encoder_path)
        return str(path), str(encoder_path)

    def _tokenize(self, text: str, **_: object) -> list[str]:
        return SEGMENTERS[self.segmenter].split(text)

    def _split(self, text: Text) -> list[str]:
        if isinstance(text, str) and not self.split_special_tokens:
            return self.tokenize(text)
        return super()._split(text)

    def encode_sources(self, texts: Sequence[Text], *args: Any, **kwargs: Any) -> list[Source]:
        """As in `ExtendedVocabulary`, with the pieces of the encoder's tokenizer, if there is one."""
        sources = super().encode_sources(texts, *args, **kwargs)
        if self.encoder_tokenizer is not None:
            self.encoder_tokenizer.add_pieces(sources, SEGMENTERS[self.segmenter].join, self.truncation_side)
        return sources

    def __call__(
        self,
        text: Text | Sequence[Text] | None = None,
        text_pair: None = None,
        text_target: Text | Sequence[Text] | None = None,
        *,
        facts: Sequence[Sequence[Fact] | None] | None = None,
        features: Sequence[Sequence[str] | None] | None = None,
        max_target_length: int | None = None,
        **kwargs: object,
    ) -> BatchEncoding:
        """Encodes sources, and targets together with their sources.

        Args:
            text: one source or a batch; with `is_split_into_words=True` lists of words.
            text_target: one target, or as many as there are sources. They become `labels`, ending in </s>.
            facts: for each source its triples (subject, property, object), each a single word, for models with
                retrieval (CoreQA); or None. They follow the words of the source in `input_ids`, with `token_type_ids`
                1, 2, 3, and count towards `max_length`, which truncates the words of the source only. Their slots come
                before those of the words.
            features: for each source a list of its features, which are read and never copied; or None. Their order
                does not matter.
            max_target_length: the maximum length of labels with the final </s>, whatever `truncation` is; by default
                they are truncated like the sources.
            kwargs: `padding`, `truncation`, `max_length`, `is_split_into_words`, `add_special_tokens`,
                `pad_to_multiple_of`, `padding_side`, `return_tensors`, `return_attention_mask`,
                `return_offsets_mapping`, as in other Transformers tokenizers.

        Returns:
            `input_ids` and `attention_mask`, (batch, source length), with facts `token_type_ids`, with features
            `feature_ids`, (batch, features), with a `letter_vocab` `letter_ids`, (batch, letters), with
            `return_offsets_mapping` `offset_mapping`, (batch, source length, 2), the `Source.offsets` of the words and
            (0, 0) for what has no place in the text, and with targets `labels`, (batch, target length), as lists of
            lists or tensors; flat lists for one text without `return_tensors`. Targets without sources are returned as
            `input_ids`, as in Transformers, with UNK for every out-of-vocabulary word.

        Raises:
            TypeError: a text is not a string or list of words.
            ValueError: there are text pairs, an argument is not supported, the number of targets, facts or features
                differs from that of the sources, facts are not triples or exceed `max_length`, or there are features
                and the tokenizer has none.
        """
        kwargs["target_length"] = max_target_length  # the base class has an argument of the longer name
        if text is not None or text_target is None:
            return super().__call__(text, text_pair, targets=text_target, facts=facts, features=features, **kwargs)
        if self.max_source_oov:
            logger.warning_once(
                "text_target is given without text, so out-of-vocabulary words become UNK and copying them cannot be "
                "learned: encode sources and targets in one call."
            )
        return super().__call__(text_target, text_pair, is_target=True, **kwargs)

    def _encode_plus(  # type: ignore[override]  # unsupported arguments stay in kwargs
        self,
        text: Text | Sequence[Text],
        text_pair: None = None,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_attention_mask: bool | None = None,
        return_offsets_mapping: bool = False,
        verbose: bool = True,
        split_special_tokens: bool | None = None,
        targets: Text | Sequence[Text] | None = None,
        facts: Sequence[Sequence[Fact] | None] | None = None,
        features: Sequence[Sequence[str] | None] | None = None,
        target_length: int | None = None,
        is_target: bool = False,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Implements `__call__` and `encode`. With `is_target`, `text` holds targets without sources."""
        if text_pair is not None:
            raise ValueError("text_pair is not supported: join the two texts, or pass the second as text_target")
        if is_target and return_offsets_mapping:
            raise ValueError("return_offsets_mapping is for sources: pass the texts as text")
        if unsupported := sorted(name for name, value in kwargs.items() if value):
            raise ValueError(f"CopyNetTokenizer does not support {', '.join(unsupported)}: leave it out")
        if split_special_tokens not in (None, self.split_special_tokens):
            raise ValueError(
                f"split_special_tokens is {split_special_tokens} in this call only: set "
                "tokenizer.split_special_tokens, which decoding reads too"
            )
        rows, single = batch_rows(text, "text_target" if is_target else "text", is_split_into_words)
        target_rows = [] if targets is None else batch_targets(targets, rows, single, is_split_into_words)
        limit = None if truncation_strategy == TruncationStrategy.DO_NOT_TRUNCATE else max_length
        target_limit = limit if target_length is None else target_length
        check_length("max_length" if target_length is None else "max_target_length", target_limit)
        target_width = max_length if target_length is None else target_length
        end = [self.eos_token_id] if add_special_tokens else []
        words_end = None if target_limit is None else max(target_limit - len(end), 0)
        sources: list[Source] = []
        if is_target:
            fields = {"input_ids": [self.encode_target(row, None, words_end) + end for row in rows]}
        else:
            columns = ([column] if single and column is not None else column for column in (facts, features))
            sources = self.encode_sources(rows, *columns, limit, is_split_into_words)
            fields = stack_sources(sources)
        targeted = zip(target_rows, sources, strict=False)
        labels = [self.encode_target(row, source, words_end) + end for row, source in targeted]
        if return_attention_mask is None:
            return_attention_mask = "attention_mask" in self.model_input_names
        data = dict(
            self.pad(
                fields,
                padding_strategy,
                target_width if is_target else max_length,
                pad_to_multiple_of,
                padding_side=padding_side,
                return_attention_mask=return_attention_mask,
            )
        )
        if return_offsets_mapping:
            side = padding_side or self.padding_side
            data["offset_mapping"] = [
                pad_rows([[span or NO_SPAN for span in source.offsets]], NO_SPAN, len(row), side)[0]
                for source, row in zip(sources, data["input_ids"], strict=True)
            ]
        if targets is not None:
            padded = super().pad({"input_ids": labels}, padding_strategy, target_width, pad_to_multiple_of)
            pairs = zip(labels, padded["input_ids"], strict=True)
            data["labels"] = [row + [IGNORED_LABEL] * (len(to) - len(row)) for row, to in pairs]
        if single and return_tensors is None:
            data = {key: value[0] for key, value in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    def pad(  # type: ignore[override]  # the library's other arguments are passed on
        self,
        encoded_inputs: Any,
        padding: bool | str = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """As in the library; also pads features and letters, to the longest row of the batch, and pieces, to one
        length that the encoder reads, all on the right."""
        if padding not in (False, PaddingStrategy.DO_NOT_PAD):
            if isinstance(encoded_inputs, list | tuple) and encoded_inputs and isinstance(encoded_inputs[0], Mapping):
                encoded_inputs = {name: [row[name] for row in encoded_inputs] for name in encoded_inputs[0]}
            to_limit = padding == PaddingStrategy.MAX_LENGTH
            fills = {"feature_ids": NO_FEATURE, "letter_ids": BOUNDARY}
            if self.encoder_tokenizer is not None:
                fills |= self.encoder_tokenizer.fills
            for name in fills.keys() & encoded_inputs.keys():
                values = to_py_obj(encoded_inputs[name])
                is_row = bool(values) and not isinstance(values[0], list)
                rows, width = [values] if is_row else values, 1
                if self.encoder_tokenizer is not None and name in FIELDS:
                    width = self.encoder_tokenizer.find_width(rows, to_limit, pad_to_multiple_of)
                padded = pad_rows(rows, fills[name], width)
                encoded_inputs = {**encoded_inputs, name: padded[0] if is_row else padded}
        return super().pad(encoded_inputs, padding, max_length, pad_to_multiple_of, **kwargs)

    def decode(  # type: ignore[override]  # no **kwargs: an unknown argument is an error
        self,
        token_ids: object,
        skip_special_tokens: bool = False,
        *,
        source: Text | Sequence[Text] | None = None,
        facts: Sequence[Sequence[Fact] | None] | None = None,
        is_split_into_words: bool = False,
        max_source_length: int | None = None,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str | list[str]:
        """Decodes ids to text, with the source texts to which extended ids refer.

        An extended id becomes the word that owns its slot: without a source `<oov-k>`, and `<unk>` if no word owns it.
        A text that is encoded and decoded with itself as the source is restored, as the segmenter joins its words,
        unless it has more than `max_source_oov` out-of-vocabulary words.

        Args:
            token_ids: an id, or a list, array or tensor of one or two dimensions. -100 is skipped.
            skip_special_tokens: whether to leave out <pad>, <s>, </s> and <unk>.
            source: the source texts. Their number divides the number of sequences, and each source belongs to as many
                consecutive sequences, as `generate()` returns them with `num_return_sequences`.
            facts: the facts with which the sources were encoded.
            is_split_into_words: whether the sources are lists of words.
            max_source_length: the length to which the sources were truncated. Required with
                `truncation_side="left"`, since the slots then depend on it.

        Returns:
            A string for a sequence, a list of strings for a batch of sequences.

        Raises:
            TypeError: `skip_special_tokens` is not a bool, a source is not a text, or the ids are something else.
            ValueError: the number of sources does not divide that of the sequences, or `max_source_length` is missing
                with left truncation.
        """
        if not isinstance(skip_special_tokens, bool):
            raise TypeError(
                f"skip_special_tokens is {type(skip_special_tokens).__name__}: pass a bool, and the texts as source="
            )
        ids = to_py_obj(token_ids)
        batched = isinstance(ids, list) and bool(ids) and isinstance(ids[0], list)
        rows: list[list[int]] = ids if batched else [ids if isinstance(ids, list) else [ids]]
        if not all(isinstance(index, int) for row in rows for index in row[:1]):
            kind = type(token_ids).__name__
            raise TypeError(
                f"token_ids is a {kind} that does not hold ids: pass output.sequences, or logits.argmax(-1)"
            )
        sources = [
            Source(self, "", [], [], {f"<oov-{slot}>": len(self) + slot for slot in range(self.max_source_oov)})
        ]
        if source is not None:
            if self.truncation_side == "left" and max_source_length is None:
                raise ValueError(
                    "max_source_length is missing, on which the slots depend with truncation_side='left': pass the "
                    "max_length with which the source was encoded"
                )
            texts, single = batch_rows(source, "source", is_split_into_words)
            if not texts or len(rows) % len(texts):
                raise ValueError(
                    f"{len(texts)} sources do not divide {len(rows)} sequences: pass those of the sequences"
                    + ("" if is_split_into_words else ", or words with is_split_into_words=True")
                )
            first, repeats = len(self), len(rows) // len(texts)
            texts = [  # a text is split only where there is a slot to look up
                text if max(map(max, filter(None, rows[start : start + repeats])), default=0) >= first else text[:0]
                for start, text in zip(range(0, len(rows), repeats), texts, strict=True)
            ]
            facts = cast("list[Sequence[Fact] | None]", [facts]) if single and facts is not None else facts
            sources = super().encode_sources(texts, facts, None, max_source_length, is_split_into_words)
        skipped = frozenset(self.all_special_ids if skip_special_tokens else ())
        if clean_up_tokenization_spaces is None:
            clean_up_tokenization_spaces = self.clean_up_tokenization_spaces
        decoded = []
        for number, row in enumerate(rows):
            own = sources[number * len(sources) // len(rows)]
            end = len(self) + len(own.slots)  # what is not below is UNK
            ids = [i for i in row if i != IGNORED_LABEL and (not skip_special_tokens or 0 <= i < end)]
            words = own.spell(ids, skipped)
            text = self.convert_tokens_to_string(words)
            decoded.append(self.clean_up_tokenization(text) if clean_up_tokenization_spaces else text)
        return decoded if batched else decoded[0]

    def batch_decode(self, sequences: Any, *args: Any, **kwargs: Any) -> list[str]:
        """`decode`, which documents the arguments, always returning a list of strings."""
        return super().batch_decode(sequences, *args, **kwargs) if len(sequences) else []
