"""Small models and batches that the tests share."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerFast

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.cli import main
from copynet_hf.data import quickstart_pairs
from copynet_hf.model.prediction import predict

if TYPE_CHECKING:
    from transformers import Seq2SeqTrainingArguments

# Odd, different sizes: a swapped dimension cannot go unnoticed.
TINY = {
    "vocab_size": 13,
    "embedding_size": 5,
    "hidden_size": 7,
    "encoder_hidden_size": 3,
    "attention_size": 4,
    "max_source_oov": 4,
    "dropout": 0.0,
}

# Small enough to train in a test.
SIZES = {"hidden_size": 24, "encoder_hidden_size": 12, "embedding_size": 16, "attention_size": 16}

BART: dict[str, Any] = {
    "model_type": "bart",
    "vocab_size": 13,
    "d_model": 6,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 5,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 9,
    "max_position_embeddings": 40,
    "dropout": 0.0,
}

RESIDUAL = {"encoder_residual": True}
REPEATS = {"tie_repetitions": True}
PLAIN: dict[str, dict[str, Any]] = {
    "defaults": {},
    "paper": {"readout": ["state"]},
    "state_and_selective_read": {"readout": ["state", "selective_read"]},
    "no_selective_read": {"selective_read": False},
    "coverage": {"use_coverage": True},
    "two_layers": {"num_hidden_layers": 2},
    "residual": RESIDUAL,
    "repeats": REPEATS,
    "tied": {"tie_word_embeddings": True},
    "unk_elsewhere": {"unk_token_id": 8},
    "no_slots": {"max_source_oov": 0},
    "no_attention": {"attention": False},
    "coverage_loss": {"use_coverage": True, "coverage_loss_weight": 0.7},
    "pointer_generator": {"copy_mechanism": "pointer_generator"},
    "pointer_generator_coverage": {
        "copy_mechanism": "pointer_generator",
        "use_coverage": True,
        "coverage_loss_weight": 1.0,
        "tie_word_embeddings": True,
    },
    "pointer_generator_state": {"copy_mechanism": "pointer_generator", "readout": ["state"]},
    "gated": {"copy_mechanism": "gated"},
    "gated_summed": {"copy_mechanism": "gated", "gated_loss": "summed", "gate_loss_weight": 0.5},
    "rnnsearch": {"copy_mechanism": "none"},
    "rnnsearch_coverage": {"copy_mechanism": "none", "use_coverage": True, "coverage_loss_weight": 1.0},
    "enc_dec": {"copy_mechanism": "none", "attention": False},
    "transformer": {"decoder": BART},
    "transformer_tied": {"decoder": BART, "tie_word_embeddings": True, "unk_token_id": 8},
    "transformer_pointer_generator": {"decoder": BART, "copy_mechanism": "pointer_generator"},
    "transformer_gated": {"decoder": BART | {"d_model": 8}, "copy_mechanism": "gated", "embedding_size": 8},
    "transformer_alone": {"decoder": BART, "copy_mechanism": "none"},
}
FEATURED, SPELLED = {"feature_vocab_size": 5}, {"letter_vocab_size": 7}
READERS: dict[str, dict[str, Any]] = {
    "features": FEATURED,
    "features_coverage": FEATURED | {"use_coverage": True, "coverage_loss_weight": 1.0},
    "features_readout": FEATURED | {"readout": ["state", "context"]},
    "features_pointer_generator_coverage": FEATURED | {"copy_mechanism": "pointer_generator", "use_coverage": True},
    "transformer_features": FEATURED | {"decoder": BART},
    "transformer_gated_features": FEATURED | {"decoder": BART, "copy_mechanism": "gated"},
    "letters": SPELLED,
    "letters_tied": SPELLED | {"tie_word_embeddings": True},
    "both_two_layers": FEATURED | SPELLED | RESIDUAL | REPEATS | {"num_hidden_layers": 2},
    "both_pointer_generator": FEATURED | SPELLED | {"copy_mechanism": "pointer_generator"},
    "both_gated": FEATURED | SPELLED | {"copy_mechanism": "gated"},
    "both_rnnsearch": FEATURED | SPELLED | {"copy_mechanism": "none"},
}
# The latter read features or letters beside the words, which `beside` has for them.
VARIANTS = PLAIN | READERS
# Those with the GRU: what is not for Transformers decoders is tested with these.
RECURRENT = {name: changes for name, changes in PLAIN.items() if "decoder" not in changes}

# One of each kind of loss, weights, memory and cache; the others share their code.
KINDS_OF_MODELS = ("defaults", "coverage_loss", "two_layers", "tied", "pointer_generator_coverage", "gated_summed")
DISTINCT = {name: PLAIN[name] for name in (*KINDS_OF_MODELS, "enc_dec", "transformer_gated")}

# Searches whose every option matters to their outputs.
SEARCHES: dict[str, dict[str, Any]] = {
    "beams, not short": {"num_beams": 3, "min_new_tokens": 4, "max_new_tokens": 9, "forbid_unk": True},
    "the first beams that end": {"num_beams": 4, "num_return_sequences": 2, "early_stopping": True},
    "long beams": {"num_beams": 4, "length_penalty": 2.0, "max_new_tokens": 7},
    "beams to the end": {"num_beams": 2, "early_stopping": "never", "length_penalty": 0.0, "max_new_tokens": 12},
    "two ends": {"num_beams": 3, "num_return_sequences": 3, "eos_token_id": [2, 8]},
    "UNK is the end": {"num_beams": 4, "num_return_sequences": 4, "eos_token_id": 3, "forbid_unk": True},
    "no end": {"num_beams": 2, "eos_token_id": None, "max_new_tokens": 5},
}

# The model whose graphs several files share: most of what graphs can read; its features and letters matter.
LETTERED: dict[str, Any] = {
    "copy_mechanism": "pointer_generator",
    "use_coverage": True,
    "feature_vocab_size": 5,
    "letter_vocab_size": 7,
    "embedding_size": 16,
    "seed": 35,
}

POINTER = {"copy_mechanism": "pointer", "max_source_oov": 8}  # writes what its source has, not all of TARGETS
MECHANISMS: dict[str, dict[str, Any]] = {
    "copynet": {"use_coverage": True},
    "pointer_generator": {"copy_mechanism": "pointer_generator", "use_coverage": True, "coverage_loss_weight": 1.0},
    "gated": {"copy_mechanism": "gated", "use_coverage": True},
    "none": {"copy_mechanism": "none", "use_coverage": True},
    "no_attention": {"copy_mechanism": "none", "attention": False},
    "pointer": POINTER,
    "retrieval": {"copy_mechanism": "retrieval"},
}


def train_slots(folder: Path) -> None:
    """Trains a model, in `model`, that writes the record of each of its eight requests, in train.jsonl beside it."""
    from copynet_hf.training.run import train_from_arguments

    rows = [
        {"text": f"play {name} on {place}", "slots": {"intent": "PlayMusic", "artist": name, "service": place}}
        for name in ("westbam", "bjork", "moby", "nas")
        for place in ("deezer", "napster")
    ]
    folder.mkdir()
    train = write_rows(folder / "train.jsonl", rows)
    arguments: dict[str, Any] = {"train_file": train, "output_dir": str(folder / "model"), **SIZES}
    arguments |= {"summary_column": "slots", "num_train_epochs": 100, "learning_rate": 0.02, "min_frequency": 1}
    arguments |= {"per_device_train_batch_size": 8, "vocabulary_dropout": 0.0, "dropout": 0.0, "ema_decay": 0.0}
    train_from_arguments(arguments | {"num_beams": 2, "save_strategy": "no"})


def tiny_model(seed: int = 0, scale: float = 2.0, **changes) -> CopyNetForConditionalGeneration:
    """A random model in evaluation mode; `scale` makes its weights large enough for sharp distributions.

    It is a copy, which takes a third of the time, of one that is built once; torch's generator is left as if it had
    been built anew.
    """
    key = repr((seed, scale, sorted(changes.items())))
    if key not in BUILT:
        BUILT[key] = _build_tiny_model(seed, scale, changes), torch.get_rng_state()
    model, state = BUILT[key]
    torch.set_rng_state(state)
    return deepcopy(model)


BUILT: dict[str, tuple[CopyNetForConditionalGeneration, torch.Tensor]] = {}


def _build_tiny_model(seed: int, scale: float, changes: Mapping[str, Any]) -> CopyNetForConditionalGeneration:
    torch.manual_seed(seed)
    model = CopyNetForConditionalGeneration(CopyNetConfig(**{**TINY, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * scale / max(parameter.shape[-1], 1) ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("is_rare"):
                buffer[4::2] = True
    return model


def tiny_tokenizer(**options: Any) -> CopyNetTokenizer:
    """The tokenizer of `tiny_model`, with other options where they are given: it knows the letters a to i."""
    words = ["<pad>", "<s>", "</s>", "<unk>", *"abcdefghi"]
    vocab = {word: index for index, word in enumerate(words)}
    defaults = {"segmenter": "whitespace", "max_source_oov": TINY["max_source_oov"]}
    return CopyNetTokenizer(vocab, **defaults | options)


def byte_level_tokenizer(texts: Iterable[str], vocab_size: int, **special: str) -> PreTrainedTokenizerFast:
    """A BPE tokenizer of bytes, as GPT-2's and BART's, which adds no special tokens.

    Args:
        vocab_size: of so few merges that most accented letters and emoji are several tokens.
        special: the special tokens by their names, in the order of their ids.
    """
    bpe = Tokenizer(models.BPE(unk_token=special.get("unk_token")))
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    options = {"special_tokens": list(special.values()), "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, **options))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **special)


def save_parts(folder: Path, *parts: Any) -> Path:
    """Saves a model, its tokenizer, or whatever has `save_pretrained`, to one folder; returns it."""
    for part in parts:
        part.save_pretrained(folder)
    return folder


def save_tiny_model(folder: Path, seed: int = 0, search: Mapping[str, Any] | None = None, **fields: Any) -> Path:
    """Saves `tiny_model`, with these settings of its search, and `tiny_tokenizer`; returns the folder."""
    model = tiny_model(seed, **fields)
    model.generation_config.update(**search or {})
    return save_parts(folder, model, tiny_tokenizer())


# Rows of different lengths; 13 and 14 are words outside the vocabulary, 13 stands twice in the first row.
SOURCES = [[5, 13, 6, 14, 13, 5], [13], [7, 8, 9, 10], [4, 13, 13, 12, 14, 15, 16, 11]]
TARGETS = [[13, 5, 14, 2], [13, 13, 2], [7, 3, 11, 6, 2], [16, 15, 2]]
POINTED = [[5, 13, 2], [13, 2], [9, 7, 2], [16, 11, 2]]  # words of each row's source
KINDS = [[0] * 6, [0], [0] * 4, [0, 0, 1, 2, 3, 1, 2, 3]]  # the last source ends with two facts
FEATURES = [[2, 3], [1], [], [4, 2, 3]]  # of each source; 1 is the unknown one
# Of the words 13, 14, … of each source; 1 is the unknown letter, and one word has none. 12 and 9 are no letters: these
# are words 5 and 2 in another case.
LETTERS = [[[2, 3, 4], [5]], [[12, 4, 3, 2]], [], [[2], [9, 2, 1, 3, 5], [], [6, 6, 6, 6, 5]]]


def refused(capsys: pytest.CaptureFixture[str], *argv: Any) -> str:
    """The last line on stderr of a command that ends with 2."""
    capsys.readouterr()
    assert main([str(each) for each in argv]) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error.strip().splitlines()[-1]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Writes JSON lines, and makes the folder if there is none; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_files(folder: Path) -> dict[str, bytes]:
    """The contents of all files of a folder, by their paths in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes JSON lines, .csv, .tsv or .parquet, which may be compressed, as the name ends; returns the path."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w", newline="", encoding="utf-8") as file:
        if ".jsonl" in path.name:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if ".csv" in path.name else "\t")
            writer.writeheader()
            writer.writerows(rows)
    return path


def write_requests(folder: Path, **sizes: int) -> dict[str, str]:
    """Writes the quickstart's pairs, so many of each split; returns the arguments that name the files."""
    files = {split: write_rows(folder / f"{split}.jsonl", quickstart_pairs(split, n)) for split, n in sizes.items()}
    return {f"{split}_file": path for split, path in files.items()}


def training_arguments(folder: Path, **more: Any) -> Seq2SeqTrainingArguments:
    """The arguments of a Trainer on the CPU that reports to no tracker."""
    from transformers import Seq2SeqTrainingArguments

    return Seq2SeqTrainingArguments(str(folder), use_cpu=True, report_to="none", **more)


def loop_over_generate(folder: Path, texts: list[str], facts: list[Any] | None = None, **options: Any) -> list[str]:
    """The outputs of the texts, one at a time, by the library's own classes."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    outputs = []
    for row, text in enumerate(texts):
        more: dict[str, Any] = {} if facts is None else {"facts": [facts[row]]}
        inputs = tokenizer([text], return_tensors="pt", **more)
        ids = model.generate(**inputs, **options)
        outputs += tokenizer.batch_decode(ids, source=[text], skip_special_tokens=True, **more)
    return outputs


def padded(rows: list[list[int]], value: int, side: str = "right") -> torch.Tensor:
    width = max(len(row) for row in rows)
    fill = [[value] * (width - len(row)) for row in rows]
    pairs = zip(rows, fill, strict=True)
    return torch.tensor([row + extra if side == "right" else extra + row for row, extra in pairs])


def sources(rows: list[list[int]] = SOURCES, side: str = "right") -> dict[str, torch.Tensor]:
    """A batch of sources."""
    ids = padded(rows, 0, side)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def flat(words: list[list[int]]) -> list[int]:
    """The letters of words as the model reads them."""
    return [letter for word in words for letter in (0, *word)]


def beside(config: CopyNetConfig, rows: slice = slice(None), side: str = "right") -> dict[str, torch.Tensor]:
    """Facts, features and letters of SOURCES, where a model of this config reads them."""
    inputs = {}
    if getattr(config, "retrieves", False):
        inputs["token_type_ids"] = padded(KINDS[rows], 0, side)
    if config.feature_vocab_size:
        inputs["feature_ids"] = padded([row or [0] for row in FEATURES[rows]], 0)
    if config.letter_vocab_size:
        inputs["letter_ids"] = padded([flat(words) or [0] for words in LETTERS[rows]], 0)
    return inputs


def batch(
    side: str = "right", rows: slice = slice(None), config: CopyNetConfig | None = None
) -> dict[str, torch.Tensor]:
    """SOURCES with targets that a model of the config can write, and what it reads beside the words."""
    more = {} if config is None else beside(config, rows, side)
    targets = POINTED if config is not None and config.copy_mechanism == "pointer" else TARGETS
    return sources(SOURCES[rows], side) | {"labels": padded(targets[rows], -100)} | more


def until_end(row: list[int]) -> list[int]:
    """The words of an output up to its end symbol."""
    row = row[1:]
    return row[: row.index(2) + 1] if 2 in row else row


def check_gradients(
    model: CopyNetForConditionalGeneration, oracle: Any, loss: Callable[[], float], entries: int = 2
) -> None:
    """The model's gradients, as they stand, against finite differences of `loss`, which reads `oracle.w`.

    Args:
        entries: how many of each weight are compared.
    """
    generator, epsilon = np.random.default_rng(0), 1e-6
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        weight = oracle.w[name]
        for _ in range(entries):
            index = tuple(generator.integers(size) for size in weight.shape)
            before, losses = weight[index], []
            for step in (epsilon, -epsilon):
                weight[index] = before + step
                losses.append(loss())
            weight[index] = before
            expected = (losses[0] - losses[1]) / (2 * epsilon)
            found = parameter.grad[index].item()
            assert math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-8), (name, index, found, expected)


def check_same_outputs(known: tuple[Any, Any], other: tuple[Any, Any], texts: list[str], **options: Any) -> None:
    """Two models with their tokenizers write the same outputs, of the same origins and with the same probabilities."""
    expected, found = (predict(*each, texts, return_copy_probs=True, **options) for each in (known, other))
    for row, others in zip(expected, found, strict=True):
        for mine, theirs in zip(row, others, strict=True):
            assert (theirs.text, theirs.source_positions) == (mine.text, mine.source_positions)
            assert theirs.word_scores == pytest.approx(mine.word_scores, abs=1e-4)
            np.testing.assert_allclose(theirs.copy_probs, mine.copy_probs, atol=1e-4)


def request_pair(generator: random.Random) -> tuple[str, str]:
    """A request with two words to copy, in quotation marks or not."""
    name, hour = ("".join(generator.choices("abcdefghijklm", k=6)) for _ in range(2))
    quote = generator.choice(["", '"'])
    return f"please call {quote}{name}{quote} at {hour}.", f"called {quote}{name}{quote} at {hour}."


def trained(
    pairs: list[tuple[str, str]], segmenter: str, **fields: Any
) -> tuple[CopyNetForConditionalGeneration, CopyNetTokenizer]:
    """A model trained for two seconds to copy out-of-vocabulary words."""
    torch.manual_seed(0)
    texts = (text for pair in pairs for text in pair)
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 40, segmenter=segmenter, min_frequency=len(pairs))
    sizes = {"embedding_size": 16, "hidden_size": 32, "encoder_hidden_size": 16, "attention_size": 16, "dropout": 0.0}
    model = CopyNetForConditionalGeneration(CopyNetConfig.for_tokenizer(tokenizer, **sizes | fields))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for start in range(0, len(pairs), 16):
        sources, targets = zip(*pairs[start : start + 16], strict=True)
        model(**tokenizer(list(sources), text_target=list(targets), padding=True, return_tensors="pt")).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.generation_config.num_beams = 3
    return model.eval(), tokenizer


class Killed(BaseException):
    """An exception that no code of a run handles, like SIGKILL."""


@contextmanager
def serve_app(app: Any, **options: Any) -> Iterator[str]:
    """Serves an ASGI application by a thread, with options of uvicorn's; yields its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, **{"port": 0, "log_config": None, "log_level": "error"} | options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def serve_folder(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields the address, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    server.shutdown()
    server.server_close()


def ask_app(app: Any, **fields: Any) -> tuple[int, Any]:
    """Status and JSON of the application's answer to POST /predict."""
    with serve_app(app) as address:
        try:
            with urlopen(f"{address}predict", json.dumps(fields).encode(), timeout=60) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)


@contextmanager
def watch_tab(browser: Any, **device: Any) -> Iterator[tuple[Any, list[str]]]:
    """A tab, and what is wrong: requests that leave this machine, errors and warnings that the page reports."""
    wrong: list[str] = []
    context = browser.new_context(accept_downloads=False, **device)
    tab = context.new_page()
    tab.on("request", lambda request: request.url.startswith("http://127.0.0.1:") or wrong.append(request.url))
    tab.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    yield tab, wrong
    context.close()


def find_blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of code of a page, with their languages."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
