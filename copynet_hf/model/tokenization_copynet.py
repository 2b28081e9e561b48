"""A word tokenizer that gives every unseen source word an id of its own.

A source word outside the vocabulary gets, for its row alone, the id `len(tokenizer) + k`, where k counts
such words in order of first appearance among the words that survive truncation: the word owns slot k. A
row has `max_source_oov` slots; the unseen words after that are UNK. A target word is its vocabulary id, or
else the slot it owns in the source of its row, or else UNK. Nothing is remembered between calls: decoding
cuts the source text again and finds the same words in the same slots.

Two choices differ from most Transformers tokenizers:

- padding in `labels` is -100, not the padding token, so that `model(**tokenizer(texts, text_target=...,
  padding=True, return_tensors="pt"))` has no loss over padding. Labels are padded and cut on the right
  whatever `padding_side` and `truncation_side` say: a decoder starts at the beginning.
- a special token spelled out in a text, such as `</s>`, is text like any other
  (`split_special_tokens=True`). With `tokenizer.split_special_tokens = False` texts are first cut at added
  and special tokens, which then get their own ids.

A word added by `add_tokens` is recognised where the segmenter gives it as one word. Adding tokens moves
`len(tokenizer)` and with it the first slot: ids from before are then out of date, and the model needs
`resize_token_embeddings(len(tokenizer))`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer
from transformers.tokenization_utils_base import BatchEncoding, TruncationStrategy
from transformers.utils import PaddingStrategy, logging, to_py_obj

from .segmentation import SEGMENTERS, batch_rows, check_row, get_segmenter

logger = logging.get_logger(__name__)

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
IGNORED_LABEL = -100  # the label that torch's cross-entropy leaves out


class CopyNetTokenizer(PreTrainedTokenizer):
    """Words of one segmenter, a vocabulary, and `max_source_oov` slots for the unseen words of a source.

    Args:
        vocab: word -> id, or the path of a JSON file with that mapping. Ids run from 0 without a gap and the
            special tokens are among the words. `from_pretrained` gives the path as `vocab_file`.
        segmenter: one of `SEGMENTERS`: "char", "whitespace", "jieba", "fugashi", "word_punct".
        max_source_oov: the number K of slots, the same as in the model's config.
        split_special_tokens: whether special tokens spelled out in a text are text.

    Raises ValueError for an unknown segmenter, a negative `max_source_oov` and a vocabulary with gaps or
    without the special tokens.
    """

    vocab_files_names = {"vocab_file": "vocab.json"}  # noqa: RUF012 (the name and form the base class reads)
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self,
        vocab: Mapping[str, int] | str | PathLike[str] | None = None,
        segmenter: str = "char",
        max_source_oov: int = 32,
        *,
        vocab_file: str | PathLike[str] | None = None,
        pad_token: Any = SPECIAL_TOKENS["pad_token"],
        bos_token: Any = SPECIAL_TOKENS["bos_token"],
        eos_token: Any = SPECIAL_TOKENS["eos_token"],
        unk_token: Any = SPECIAL_TOKENS["unk_token"],
        split_special_tokens: bool = True,
        **kwargs: Any,
    ) -> None:
        get_segmenter(segmenter)
        if not isinstance(max_source_oov, int) or max_source_oov < 0:
            raise ValueError(f"max_source_oov is a number of slots, 0 or more, not {max_source_oov!r}")
        vocab = vocab_file if vocab is None else vocab
        if vocab is None:
            raise ValueError("a CopyNetTokenizer needs vocab: a mapping from words to ids or its JSON file")
        if not isinstance(vocab, Mapping):
            vocab = json.loads(Path(vocab).read_text(encoding="utf-8"))
        added = {str(token) for token in kwargs.get("added_tokens_decoder", {}).values()}
        self.segmenter = segmenter
        self.max_source_oov = max_source_oov
        self._vocab = _checked_vocab(vocab, [pad_token, bos_token, eos_token, unk_token], added)
        super().__init__(
            pad_token=pad_token,
            bos_token=bos_token,
            eos_token=eos_token,
            unk_token=unk_token,
            split_special_tokens=split_special_tokens,
            segmenter=segmenter,
            max_source_oov=max_source_oov,
            # The base class saves only what it was given, and decoding depends on where sources are cut.
            **{"padding_side": "right", "truncation_side": "right", **kwargs},
        )

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
        more_words: Iterable[str] = (),
        **kwargs: Any,
    ) -> "CopyNetTokenizer":
        """A tokenizer whose vocabulary is the most frequent words of `texts`.

        Args:
            texts: read once, one text at a time; lists of words with `is_split_into_words=True`.
            vocab_size: the size with the four special tokens, which get the ids 0 to 3. With fewer words than
                that the vocabulary is smaller: `len(tokenizer)` tells.
            min_frequency: words seen less often are left out.
            more_words: counted as they are, beside those of the texts, such as the words of facts.
            kwargs: for the tokenizer, such as `model_max_length` or other special tokens.

        Words that are equally frequent are taken in order of their code points, so the order of the texts
        does not matter. Raises ValueError for an empty iterator and for a `vocab_size` without room for the
        special tokens.
        """
        special = [str(kwargs.get(name, token)) for name, token in SPECIAL_TOKENS.items()]
        if vocab_size < len(special):
            raise ValueError(f"vocab_size={vocab_size} has no room for the special tokens {special}")
        if isinstance(texts, str):
            raise TypeError("texts is one text; give an iterable of texts")
        split = get_segmenter(segmenter).split
        counts: Counter[str] = Counter()
        number = -1
        for number, text in enumerate(texts):
            check_row(text, f"texts[{number}]", is_split_into_words)
            counts.update(split(text) if isinstance(text, str) else text)
        if number < 0:
            raise ValueError("no vocabulary without texts: the iterator is empty")
        counts.update(more_words)
        for token in special:
            counts.pop(token, None)
        frequent = sorted((-count, word) for word, count in counts.items() if count >= min_frequency)
        words = special + [word for _, word in frequent[: vocab_size - len(special)]]
        vocab = {word: index for index, word in enumerate(words)}
        return cls(vocab, segmenter=segmenter, max_source_oov=max_source_oov, **kwargs)

    # ---- the vocabulary

    @property
    def vocab_size(self) -> int:
        """The number of words without those added later; the first slot is `len(tokenizer)`."""
        return len(self._vocab)

    def get_vocab(self) -> dict[str, int]:
        """Word -> id, with the words added later."""
        return {**self._vocab, **self._added_tokens_encoder}

    def _update_total_vocab_size(self) -> None:
        # The base class calls this whenever tokens were added: the moment to renew both tables.
        self._ids = self.get_vocab()
        self._words = {index: word for word, index in self._ids.items()}
        self.total_vocab_size = len(self._ids)

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids.get(token, self.unk_token_id)

    def _convert_id_to_token(self, index: int) -> str:
        slot = index - len(self)
        if 0 <= slot < self.max_source_oov:
            return f"<oov-{slot}>"
        return self._words.get(index, self.unk_token)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write vocab.json, the words in the order of their ids."""
        name = self.vocab_files_names["vocab_file"]
        path = Path(save_directory) / (f"{filename_prefix}-{name}" if filename_prefix else name)
        text = json.dumps(self._vocab, ensure_ascii=False, indent=0) + "\n"
        # A lone surrogate cannot be UTF-8; as backslash, u and four digits it is a valid JSON escape.
        path.write_bytes(text.encode("utf-8", errors="backslashreplace"))
        return (str(path),)

    # ---- text to words

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return SEGMENTERS[self.segmenter].split(text)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Words to text, as the segmenter joins them."""
        return SEGMENTERS[self.segmenter].join(tokens)

    def source_words(
        self,
        text: str | Sequence[str],
        max_length: int | None = None,
        *,
        facts: Sequence[Sequence[str]] | None = None,
        is_split_into_words: bool = False,
    ) -> list[str]:
        """The word at each position of the source's `input_ids`, when truncated to `max_length`."""
        check_row(text, "text", is_split_into_words)
        (of_facts,) = _fact_words([facts], 1)
        return self._cut_source(self._row_words(text), max_length, len(of_facts)) + of_facts

    def oov_words(
        self,
        text: str | Sequence[str],
        max_length: int | None = None,
        *,
        facts: Sequence[Sequence[str]] | None = None,
        is_split_into_words: bool = False,
    ) -> list[str]:
        """The words of a source, and of its facts, that own slots: word k has the id `len(tokenizer) + k`."""
        slots: dict[str, int] = {}
        words = self.source_words(text, max_length, facts=facts, is_split_into_words=is_split_into_words)
        first = len(words) - 3 * len(facts or ())
        self._number([*words[first:], *words[:first]], self._typed_tokens(), slots, is_source=True)
        return list(slots)[: self.max_source_oov]

    def _row_words(self, row: str | Sequence[str]) -> list[str]:
        if not isinstance(row, str):
            return list(row)
        return self._tokenize(row) if self.split_special_tokens else self.tokenize(row)

    def _cut_source(self, words: list[str], max_length: int | None, beside: int = 0) -> list[str]:
        """The words that `max_length` leaves of a source beside so many words of its facts."""
        _check_length("max_length", max_length)
        room = len(words) if max_length is None else max_length - beside
        if room < 0 or (room == 0 and words):
            raise ValueError(f"max_length={max_length} has no room beside facts of {beside} words: give more")
        if len(words) <= room:
            return words
        return words[-room:] if self.truncation_side == "left" else words[:room]

    # ---- words to ids

    def _typed_tokens(self) -> frozenset[str]:
        """Words that are in the vocabulary and yet unseen: special tokens, when somebody typed them."""
        return frozenset(self.all_special_tokens if self.split_special_tokens else ())

    def _number(
        self, words: Sequence[str], typed: frozenset[str], slots: dict[str, int], *, is_source: bool
    ) -> list[int]:
        """The ids of `words`. A source writes those of its unseen words into `slots`, a target reads them."""
        ids: list[Any] = list(map(self._ids.get, words))
        if None in ids or not typed.isdisjoint(words):
            first, number, unk = len(self), self.max_source_oov, self.unk_token_id
            for position, word in enumerate(words):
                if ids[position] is None or word in typed:
                    if is_source and word not in slots:
                        slots[word] = first + len(slots) if len(slots) < number else unk
                    ids[position] = slots.get(word, unk)
        return ids

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[Sequence[str]] | None = None,
        text_pair: None = None,
        text_target: str | Sequence[str] | Sequence[Sequence[str]] | None = None,
        *,
        facts: Sequence[Any] | None = None,
        max_target_length: int | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Encode sources, and the targets that belong to them.

        Args:
            text: one source or a batch; with `is_split_into_words=True` lists of words, taken as they are.
            text_target: one target or as many as there are sources. They become `labels`, ending in </s>.
            facts: for each source, triples (subject, property, object), each a word as it stands, for models that
                retrieve (CoreQA). They follow the source's words in `input_ids`, marked 1, 2, 3 in `token_type_ids`,
                and count in `max_length`, which cuts the words before them alone. Their slots come before the words'.
            max_target_length: the longest labels may be with the final </s>, whatever `truncation` says; by
                default they follow `truncation` and `max_length` as the sources do.
            kwargs: `padding`, `truncation`, `max_length`, `is_split_into_words`, `add_special_tokens`,
                `pad_to_multiple_of`, `padding_side`, `return_tensors`, `return_attention_mask`, with the
                meaning they have in every Transformers tokenizer.

        Returns `input_ids` and `attention_mask`, (batch, source length), and with targets `labels`, (batch,
        target length), as lists of lists or tensors; flat lists for one text without `return_tensors`.
        Targets alone are returned as `input_ids`, as Transformers does, with UNK for every unseen word.

        Raises TypeError for a text that is not text, naming the row, and ValueError for text pairs, for
        arguments this tokenizer lacks, for another number of targets or of facts than of sources and for facts that
        are no triples or more than `max_length` holds.
        """
        kwargs["target_length"] = max_target_length  # the base class would swallow the longer name
        if text is not None or text_target is None:
            return super().__call__(text, text_pair, targets=text_target, facts=facts, **kwargs)
        if self.max_source_oov:
            logger.warning_once(
                "text_target without text: words outside the vocabulary become UNK, so nothing can be "
                "learned about copying them. Encode sources and targets in one call."
            )
        return super().__call__(text_target, text_pair, is_target=True, **kwargs)

    def _encode_plus(  # type: ignore[override]  # what this tokenizer lacks stays in kwargs and is refused
        self,
        text: Any,
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
        verbose: bool = True,
        split_special_tokens: bool | None = None,
        targets: Any = None,
        facts: Any = None,
        target_length: int | None = None,
        is_target: bool = False,
        **kwargs: Any,
    ) -> BatchEncoding:
        """What `__call__` and `encode` share. `is_target`: `text` holds targets and there is no source."""
        if text_pair is not None:
            raise ValueError("no text pairs here: join the two texts, or give the second as text_target=")
        if lacking := sorted(name for name, value in kwargs.items() if value):
            raise ValueError(f"CopyNetTokenizer does not have {', '.join(lacking)}")
        if split_special_tokens not in (None, self.split_special_tokens):
            raise ValueError("set tokenizer.split_special_tokens: decoding has to cut sources the same way")
        rows, single = batch_rows(text, "text_target" if is_target else "text", is_split_into_words)
        target_rows: Sequence[Any] = ()
        if targets is not None:
            target_rows, single_target = batch_rows(targets, "text_target", is_split_into_words)
            if len(target_rows) != len(rows) or single_target != single:
                counts = [
                    "one text" if alone else f"{len(batch)} rows"
                    for batch, alone in ((rows, single), (target_rows, single_target))
                ]
                raise ValueError(f"text has {counts[0]}, text_target {counts[1]}: they must match")
        known = None if facts is None else _fact_words([facts] if single else facts, len(rows))
        limit = None if truncation_strategy == TruncationStrategy.DO_NOT_TRUNCATE else max_length
        target_limit = limit if target_length is None else target_length
        _check_length("max_target_length", target_limit)
        target_width = max_length if target_length is None else target_length
        end = [self.eos_token_id] if add_special_tokens else []
        words_end = None if target_limit is None else max(target_limit - len(end), 0)
        typed = self._typed_tokens()

        input_ids, kinds, labels = [], [], []
        for number, row in enumerate(rows):
            slots: dict[str, int] = {}
            words = self._row_words(row)
            if is_target:
                input_ids.append(self._number(words[:words_end], typed, slots, is_source=False) + end)
                continue
            of_facts = [] if known is None else known[number]
            words = self._cut_source(words, limit, len(of_facts))
            # The slots of facts come first: they do not depend on where the words before them are cut.
            fact_ids = self._number(of_facts, typed, slots, is_source=True)
            input_ids.append(self._number(words, typed, slots, is_source=True) + fact_ids)
            kinds.append([0] * len(words) + [1, 2, 3] * (len(of_facts) // 3))
            if targets is not None:
                words = self._row_words(target_rows[number])[:words_end]
                labels.append(self._number(words, typed, slots, is_source=False) + end)

        if return_attention_mask is None:
            return_attention_mask = "attention_mask" in self.model_input_names
        data = dict(
            self.pad(
                {"input_ids": input_ids} | ({} if known is None else {"token_type_ids": kinds}),
                padding=padding_strategy,
                max_length=target_width if is_target else max_length,
                pad_to_multiple_of=pad_to_multiple_of,
                padding_side=padding_side,
                return_attention_mask=return_attention_mask,
            )
        )
        if targets is not None:
            data["labels"] = _padded_labels(labels, padding_strategy, target_width, pad_to_multiple_of)
        if single and return_tensors is None:
            data = {key: value[0] for key, value in data.items()}
        return BatchEncoding(data, tensor_type=return_tensors)

    # ---- ids to text

    def decode(  # type: ignore[override]  # unknown arguments are refused, not ignored
        self,
        token_ids: Any,
        skip_special_tokens: bool = False,
        *,
        source: str | Sequence[str] | Sequence[Sequence[str]] | None = None,
        facts: Sequence[Any] | None = None,
        is_split_into_words: bool = False,
        max_source_length: int | None = None,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str | list[str]:
        """Ids to text; a sequence gives a string, a batch of sequences a list of strings.

        Args:
            token_ids: an id, a list, an array or a tensor, of one or two dimensions. -100 is skipped.
            skip_special_tokens: leave out <pad>, <s>, </s> and <unk>.
            source: the source texts. For a batch their number divides the number of sequences, and each
                source stands for as many sequences in a row: generate's layout of `num_return_sequences`.
            facts: those of the sources, as they were encoded with them.
            is_split_into_words: the sources are lists of words.
            max_source_length: what the sources were truncated to. Needed with `truncation_side="left"`, where
                the cut decides who owns the slots; on the right a cut leaves the first slots as they are.

        A slot's id becomes the word that owns it. Without a source it is `<oov-k>`; an id that nothing owns
        is <unk>. An encoded text, decoded with itself as the source, is the text again as the segmenter joins
        its words, unless it has more than `max_source_oov` unseen words.

        Raises ValueError when the number of sources does not divide that of the sequences, and for left
        truncation without `max_source_length`.
        """
        if not isinstance(skip_special_tokens, bool):
            raise TypeError("skip_special_tokens is True or False; give the texts as source=")
        ids = to_py_obj(token_ids)
        batched = isinstance(ids, list) and bool(ids) and isinstance(ids[0], list)
        rows: list[list[int]] = ids if batched else [ids if isinstance(ids, list) else [ids]]
        owners = self._slot_owners(rows, source, facts, is_split_into_words, max_source_length)
        skipped = frozenset(self.all_special_ids if skip_special_tokens else ())
        if clean_up_tokenization_spaces is None:
            clean_up_tokenization_spaces = self.clean_up_tokenization_spaces
        texts = []
        for row, own in zip(rows, owners, strict=True):
            text = self.convert_tokens_to_string(self._words_of(row, own, skipped))
            texts.append(self.clean_up_tokenization(text) if clean_up_tokenization_spaces else text)
        return texts if batched else texts[0]

    def batch_decode(self, sequences: Any, *args: Any, **kwargs: Any) -> list[str]:
        """`decode`, always with a list of strings; see there for `source`."""
        return super().batch_decode(sequences, *args, **kwargs) if len(sequences) else []

    def _words_of(self, ids: list[int], owners: list[str], skipped: frozenset[int]) -> list[str]:
        first, unk = len(self), self.unk_token_id
        words = []
        for index in ids:
            if first <= index < first + len(owners):
                words.append(owners[index - first])
            elif index != IGNORED_LABEL:
                known = index if index in self._words else unk
                if known not in skipped:
                    words.append(self._words[known])
        return words

    def _slot_owners(
        self,
        rows: list[list[int]],
        source: Any,
        facts: Any,
        is_split_into_words: bool,
        max_source_length: int | None,
    ) -> list[list[str]]:
        """For each row the words that own its slots, or the placeholders without a source."""
        first = len(self)
        if source is None:
            return [[f"<oov-{slot}>" for slot in range(self.max_source_oov)]] * len(rows)
        if self.truncation_side == "left" and max_source_length is None:
            raise ValueError(
                "with truncation_side='left' the slots depend on where the source was cut: "
                "give max_source_length=, the max_length it was encoded with"
            )
        sources, single = batch_rows(source, "source", is_split_into_words)
        known = [None] * len(sources) if facts is None else [facts] if single else facts
        if len(known) != len(sources):
            raise ValueError(f"facts has {len(known)} rows, source {len(sources)}: they must match")
        if not sources or len(rows) % len(sources):
            raise ValueError(f"{len(sources)} sources do not divide {len(rows)} sequences")
        repeats = len(rows) // len(sources)
        owners: list[list[str]] = []
        for number, text in enumerate(sources):
            group = rows[number * repeats : (number + 1) * repeats]
            own: list[str] = []
            if any(index >= first for ids in group for index in ids):  # else cutting the text is wasted
                own = self.oov_words(
                    text, max_source_length, facts=known[number], is_split_into_words=is_split_into_words
                )
            owners += [own] * repeats
        return owners


def _checked_vocab(vocab: Any, special_tokens: list[Any], added: set[str]) -> dict[str, int]:
    """`vocab` in the order of its ids; ValueError for gaps in the ids and for missing special tokens."""
    if not isinstance(vocab, Mapping):
        raise ValueError(f"the vocabulary is a mapping from words to ids, not a {type(vocab).__name__}")
    ordered = dict(sorted(vocab.items(), key=lambda item: item[1]))
    if list(ordered.values()) != list(range(len(ordered))):
        raise ValueError("the vocabulary's ids must be 0, 1, 2, ... without a gap: the slots come next")
    if missing := {str(token) for token in special_tokens} - added - ordered.keys():
        raise ValueError(f"the vocabulary lacks the special tokens {', '.join(sorted(missing))}")
    return ordered


def _fact_words(facts: Sequence[Any], number: int) -> list[list[str]]:
    """For each source the words of its facts, one after the other."""
    if len(facts) != number:
        raise ValueError(f"facts has {len(facts)} rows, text {number}: they must match")
    for row, triples in enumerate(facts):
        for triple in triples or ():
            if isinstance(triple, str) or len(triple) != 3 or not all(isinstance(word, str) for word in triple):
                raise ValueError(
                    f"facts[{row}] holds {triple!r}: a fact is (subject, property, object), three strings"
                )
    return [[word for triple in triples or () for word in triple] for triples in facts]


def _check_length(name: str, length: int | None) -> None:
    if length is not None and length < 1:
        raise ValueError(f"{name} is a number of tokens, 1 or more, not {length}")


def _padded_labels(
    labels: list[list[int]], strategy: PaddingStrategy, max_length: int | None, multiple: int | None
) -> list[list[int]]:
    """Labels of one length, filled with -100 on the right, or as they are if nothing is to be padded."""
    if strategy == PaddingStrategy.DO_NOT_PAD or not labels:
        return labels
    width = max(map(len, labels))
    if strategy == PaddingStrategy.MAX_LENGTH and max_length is not None:
        width = max(width, max_length)
    if multiple is not None:
        width = -(-width // multiple) * multiple
    return [row + [IGNORED_LABEL] * (width - len(row)) for row in labels]
