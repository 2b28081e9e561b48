"""Words cut into the pieces of a Transformers encoder's own tokenizer, and the word that each piece belongs to.

Shapes: B rows, P pieces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from tokenizers import Encoding, Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from .segmentation import space_words
from .source import Pieces, Source

NO_WORD = -1  # word_index of special pieces and of padding
FIELDS = ("encoder_input_ids", "encoder_attention_mask", "word_index")

Join = Callable[[Sequence[str]], str]
Component = dict[str, Any]  # a pre-tokenizer or normalizer of the tokenizers library, as a JSON object


class PieceTokenizer:
    """The tokenizer of a Transformers encoder, for rows of words.

    Each word is cut into pieces on its own, so every piece belongs to one word. A word is passed with the space that
    precedes it in the text: where words are separated by spaces, the pieces are those of the whole text. A special
    token spelled out in a word is ordinary text, unless the tokenizer's model has it as a piece, as Unigram models do.

    Args:
        backend: a tokenizer as `wrap` prepares it, with the encoder's limit as its truncation and the id of padding as
            its padding.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self.pad_id = int((backend.padding or {}).get("pad_id", 0))
        content = json.loads(backend.to_str())
        self._components = {name: content[name] for name in ("pre_tokenizer", "normalizer")}  # as they are saved
        all_parts = [part for component in self._components.values() for part in _parts(component)]
        parts = {part["type"]: part for part in all_parts}
        replaced = [part["pattern"] for part in all_parts if part["type"] == "Replace"]
        self._space, self._starts_with_space = "", False  # how the pieces of a word show the space before it
        if "ByteLevel" in parts:
            self._space, self._starts_with_space = " ", parts["ByteLevel"].get("add_prefix_space", False)
        elif "Metaspace" in parts:
            self._space = parts["Metaspace"]["replacement"]
            self._starts_with_space = parts["Metaspace"]["prepend_scheme"] != "never"
        elif {"String": " "} in replaced:  # by its normalizer, as Gemma's
            self._space, self._starts_with_space = " ", "Prepend" in parts
        # `_spell` marks the spaces
        content |= {name: _without_prefix_space(part) for name, part in self._components.items()}
        self.backend = Tokenizer.from_str(json.dumps(content))
        self.backend.no_padding()

    @classmethod
    def wrap(cls, tokenizer: PreTrainedTokenizerBase | str | PathLike[str], max_length: int | None) -> PieceTokenizer:
        """Prepares a fast tokenizer, given as such or by the folder or Hub name of its encoder.

        Args:
            max_length: the number of pieces that the encoder reads; None: the tokenizer's `model_max_length`, or
                `max_position_embeddings` of the encoder's config.

        Raises:
            ValueError: it is no fast tokenizer.
        """
        name = None
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            name = str(tokenizer)
            tokenizer = AutoTokenizer.from_pretrained(name)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ValueError(
                f"encoder_tokenizer is a {type(tokenizer).__name__}, which does not say which word a piece belongs "
                "to: pass a fast tokenizer, one of the tokenizers library"
            )
        backend = Tokenizer.from_str(backend.to_str())
        backend.enable_padding(pad_id=tokenizer.pad_token_id or 0, pad_token=str(tokenizer.pad_token or ""))
        backend.no_truncation()
        pieces = cls(backend)
        max_length = find_max_length(tokenizer) if max_length is None else max_length
        if max_length is None and name is not None:
            from .text_models import load_max_pieces  # here, because nothing else needs torch

            max_length = load_max_pieces(name)
        if max_length is not None:
            pieces.set_max_length(max_length)
        return pieces

    @property
    def max_length(self) -> int | None:
        """The number of pieces to which a row is truncated, special pieces included; None: no limit."""
        return None if self.backend.truncation is None else int(self.backend.truncation["max_length"])

    def set_max_length(self, max_length: int) -> None:
        """Sets the number of pieces to which rows are truncated, special pieces included.

        Raises:
            ValueError: no word would be left.
        """
        special = self.backend.num_special_tokens_to_add(False)
        if max_length <= special:
            raise ValueError(f"encoder_max_length is {max_length}: use more than the {special} special pieces")
        self.backend.enable_truncation(max_length)

    def __len__(self) -> int:
        """The number of different pieces."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def find_unknown(self) -> int | None:
        """The piece of what the tokenizer has no other for; None: there is none."""
        model = json.loads(self.backend.to_str())["model"]
        if model.get("unk_id") is not None:
            return int(model["unk_id"])
        return self.backend.token_to_id(model.get("unk_token") or "")

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a JSON file of the tokenizers library, from which `Tokenizer.from_file` restores `backend`."""
        backend = Tokenizer.from_str(json.dumps(json.loads(self.backend.to_str()) | self._components))
        backend.enable_padding(pad_id=self.pad_id, pad_token=backend.id_to_token(self.pad_id) or "")
        backend.save(str(path))

    @property
    def fills(self) -> dict[str, int]:
        """The value of padding in each of `FIELDS`."""
        return dict(zip(FIELDS, (self.pad_id, 0, NO_WORD), strict=True))

    def add_pieces(self, sources: Sequence[Source], join: Join, truncation_side: str) -> None:
        """Sets the pieces of sources. A word that the tokenizer drops, or that lies beyond the encoder's limit, has
        none.

        Args:
            join: joins words to a text, as the segmenter does that split them.
            truncation_side: where a source is cut that has more pieces than the encoder reads.
        """
        if self.backend.truncation is not None and self.backend.truncation["direction"] != truncation_side:
            self.backend.enable_truncation(**self.backend.truncation | {"direction": truncation_side})
        texts: list[list[str] | tuple[list[str], list[str]]] = []
        for source in sources:  # the facts are the second text of a pair
            parts = source.words[: source.text_length], source.words[source.text_length :]
            text, facts = (self._spell_row(words, join) for words in parts)
            texts.append((text, facts) if facts else text)
        for source, encoding in zip(sources, self._encode_batch(texts), strict=True):
            source.pieces = Pieces(encoding.ids, _index_words(encoding, source.text_length))
            source.is_truncated |= bool(encoding.overflowing)

    def pieces_of(self, words: Sequence[str]) -> list[list[int]]:
        """The pieces of each word on its own, preceded by a space."""
        texts = [[self._spell(f" {word}", True)] for word in words]
        return [encoding.ids for encoding in self._encode_batch(texts, add_special_tokens=False)]

    def _encode_batch(
        self, texts: Sequence[list[str] | tuple[list[str], list[str]]], **options: bool
    ) -> list[Encoding]:
        self.backend.encode_special_tokens = True  # here, because a pickled backend forgets it
        return self.backend.encode_batch(texts, is_pretokenized=True, **options)

    def find_width(self, rows: Sequence[Sequence[int]], to_limit: bool, multiple: int | None) -> int:
        """The length to which rows are padded: the longest or, `to_limit`, what the encoder reads at most; a multiple
        of `multiple` where the encoder reads so many."""
        longest = max(1, *map(len, rows), (self.max_length or 1) if to_limit else 1)
        width = -(-longest // (multiple or 1)) * (multiple or 1)
        return width if self.max_length is None else max(longest, min(width, self.max_length))

    def _spell_row(self, words: Sequence[str], join: Join) -> list[str]:
        return [self._spell(text, not number) for number, text in enumerate(space_words(words, join))]

    def _spell(self, text: str, is_first: bool) -> str:
        """A word for the backend, after the mark of the space that precedes it."""
        text = text.encode("utf-8", "replace").decode("utf-8")  # the backend refuses lone surrogates
        has_space = text.startswith(" ") and len(text) > 1
        if has_space or (is_first and self._starts_with_space):
            return self._space + (text[1:] if has_space else text)
        return text


def _index_words(encoding: Encoding, num_words: int) -> list[int]:
    """The word of each piece; those of a second text are counted on from `num_words`."""
    parts = zip(encoding.word_ids, encoding.sequence_ids, strict=True)
    return [NO_WORD if word is None else word + num_words * (part or 0) for word, part in parts]


# ---- components, which are pre-tokenizers and normalizers, as JSON objects


def _parts(component: Component | None) -> Iterator[Component]:
    """A pre-tokenizer or normalizer, and those in it; None: there is none."""
    if component is not None:
        yield component
        for part in (*component.get("pretokenizers", ()), *component.get("normalizers", ())):
            yield from _parts(part)


def _without_prefix_space(component: Component | None) -> Component | None:
    """The same pre-tokenizer or normalizer without the space that it puts before a text."""
    if component is None:
        return None
    if component["type"] == "Prepend":
        return {"type": "Sequence", "normalizers": []}
    if "add_prefix_space" in component:  # ByteLevel
        component = component | {"add_prefix_space": False}
    if "prepend_scheme" in component:  # Metaspace
        component = component | {"prepend_scheme": "never"}
    lists = ("pretokenizers", "normalizers")
    return {
        name: [*map(_without_prefix_space, value)] if name in lists else value for name, value in component.items()
    }


def find_max_length(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The number of tokens to which the tokenizer truncates; None: it has no limit."""
    return None if tokenizer.model_max_length >= VERY_LARGE_INTEGER else int(tokenizer.model_max_length)
