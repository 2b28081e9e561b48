"""Word embeddings to start from: those of a Transformers encoder's pieces, or a file of word vectors."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..arguments import EncoderArguments
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.text_models import build_text_encoder, load_encoder_config
from ..model.tokenization_copynet import CopyNetTokenizer

logger = logging.getLogger(__name__)


def find_embedding_size(args: EncoderArguments) -> int | None:
    """The width of the embeddings to start from; None: of random ones."""
    if not args.embeddings_from_encoder:
        return None if args.embedding_file is None else _find_width(args.embedding_file)
    if args.embedding_file is not None:
        raise ValueError("--embeddings_from_encoder and --embedding_file both give word embeddings: leave one out")
    if args.encoder_name_or_path is None:
        raise ValueError("--embeddings_from_encoder needs an encoder: pass --encoder_name_or_path")
    with torch.device("meta"):
        encoder = build_text_encoder(load_encoder_config(args.encoder_name_or_path, {}))
    return int(cast(nn.Embedding, encoder.get_input_embeddings()).embedding_dim)


def initialize_embeddings(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, args: EncoderArguments
) -> None:
    """Initialises the embeddings of words by a file or the model's Transformers encoder, and logs how many were found.

    Words are looked up as the segmenter joins them to a text, without its marks. A word that is not found, and a
    special token, keeps its random embedding.
    """
    if not isinstance(tokenizer, CopyNetTokenizer):
        raise ValueError(
            f"the tokenizer is a {type(tokenizer).__name__}, and the given embeddings are of words: leave out "
            "--embedding_file and --embeddings_from_encoder"
        )
    words = {word: index for word, index in tokenizer.get_vocab().items() if word not in tokenizer.all_special_tokens}
    texts = {index: tokenizer.convert_tokens_to_string([word]) for word, index in words.items()}
    if args.embedding_file is not None:
        vectors = read_word_vectors(args.embedding_file, set(texts.values()))
    else:
        vectors = average_piece_embeddings(model, tokenizer, sorted(set(texts.values())))
    found = [index for index, text in texts.items() if text in vectors]
    if args.embedding_file is not None and not found:
        raise ValueError(
            f"{args.embedding_file} holds none of the {len(words):,} words of the vocabulary: pass vectors in the "
            "format of word2vec or GloVe"
        )
    embeddings = cast(nn.Embedding, model.get_input_embeddings())
    with torch.no_grad():
        for index in found:
            embeddings.weight[index] = vectors[texts[index]]
    source = args.embedding_file or args.encoder_name_or_path
    counts = (f"{number:,}" for number in (len(found), len(words), len(words) - len(found)))
    logger.info("%s: %s of %s words found, %s missing", source, *counts)


def average_piece_embeddings(
    model: CopyNetForConditionalGeneration, tokenizer: CopyNetTokenizer, words: Sequence[str]
) -> dict[str, Tensor]:
    """For each word the mean of its pieces' input embeddings in the model's Transformers encoder; words that its
    tokenizer drops, or has no other piece for than that of unknown words, are left out."""
    assert tokenizer.encoder_tokenizer is not None
    table = model.get_encoder().text_encoder.get_input_embeddings().weight.detach()
    pieces, unknown = tokenizer.encoder_tokenizer.pieces_of(words), tokenizer.encoder_tokenizer.find_unknown()
    return {word: table[own].mean(0) for word, own in zip(words, pieces, strict=True) if {*own} - {unknown}}


def read_word_vectors(path: str | Path, words: Collection[str]) -> dict[str, Tensor]:
    """The vectors (float32) of those words that a file in the text format of word2vec or GloVe has: a word and its
    numbers in each line, separated by single spaces; the first line may hold two counts. Of a word that occurs twice,
    the first vector counts."""
    width, vectors = _find_width(path), {}
    with Path(path).open(encoding="utf-8", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            word, *numbers = line.rstrip().rsplit(" ", width)
            if (number == 1 and len(numbers) < width) or word not in words or word in vectors:
                continue
            try:
                vector = torch.tensor([float(each) for each in numbers])
            except ValueError:
                vector = torch.empty(0)
            if len(vector) != width or not vector.isfinite().all():
                raise ValueError(
                    f"{path}, line {number} does not hold {width} numbers after its word: correct or remove it"
                )
            vectors[word] = vector
    return vectors


def _find_width(path: str | Path) -> int:
    """The number of numbers in a line of a file of vectors: in its second one, as the first may hold two counts."""
    if not Path(path).is_file():
        raise ValueError(f"--embedding_file {path}: no such file")
    with Path(path).open(encoding="utf-8", errors="replace", newline="\n") as lines:
        first, second = (line.rstrip().split(" ") for line in (next(lines, ""), next(lines, "")))
    fields = first if len(second) < 2 else second
    if len(fields) < 3:
        raise ValueError(f"{path} holds no word vectors: pass a text file with a word and its numbers in each line")
    return len(fields) - 1
