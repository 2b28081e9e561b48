"""From a saved model to outputs and scores: what `copynet-hf evaluate` and `generate` do, as functions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import (
    AutoTokenizer,
    BatchEncoding,
    PreTrainedTokenizerBase,
)

from .building import check_tokenizer, load_copynet
from .metrics import score_outputs, with_objects
from .modeling_copynet import CopyNetForConditionalGeneration
from .words_copynet import encode_sources, hidden_ids, joined, output_words, source_words, text_pieces


@dataclass
class Output:
    """What the model made of one source.

    texts: the outputs, best first.
    pieces: the words of the best one, with the spaces that belong before them; together they are its text.
    copied: for each piece, whether the copy mode gave more than half of its probability.
    """

    texts: list[str]
    pieces: list[str]
    copied: list[bool]


def checked_name(name: str | None) -> str:
    """A folder with a model, or what may be a name on the Hub.

    Raises:
        ValueError: neither.
    """
    if not name:
        raise ValueError("no --model: give the folder of a trained model")
    if Path(name).exists() and not (Path(name) / "config.json").is_file():
        raise ValueError(f"--model {name} holds no model: give the output_dir of copynet-hf train")
    if not Path(name).exists() and name.count("/") != 1:
        raise ValueError(f"--model {name}: no such folder")
    return name


def load_model(
    name: str | None, device: str | None = None, bf16: bool = False
) -> tuple[CopyNetForConditionalGeneration, PreTrainedTokenizerBase]:
    """Model and tokenizer of a folder or Hub name, which must belong together.

    Raises:
        ValueError: no name, a folder without a model, a model of points, a tokenizer of another model, no such
            device.
    """
    name = checked_name(name)
    model = load_copynet(name, dtype=torch.bfloat16 if bf16 else torch.float32)
    if model.config.num_features:
        raise ValueError(f"--model {name} reads points, not words: load it in Python, and give it input_features")
    tokenizer = AutoTokenizer.from_pretrained(name)
    check_tokenizer(model.config, tokenizer)
    place: Any = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return model.to(place).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:  # torch's, for a name it does not know and for no such device
        raise ValueError(f"--device {place} cannot be used ({error}): give cpu, or leave it out") from None


def read_facts(lines: str) -> list[list[str]]:
    """Triples from lines "subject | property | object"; empty lines are left out.

    Raises:
        ValueError: another line, naming it.
    """
    facts = [[part.strip() for part in line.split("|")] for line in lines.splitlines() if line.strip()]
    for fact in facts:
        if len(fact) != 3 or not all(fact):
            raise ValueError(f"{' | '.join(fact)!r} is no fact: write subject | property | object, one a line.")
    return facts


def generate_outputs(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    *,
    facts: Sequence[Any] | None = None,
    batch_size: int = 32,
    max_source_length: int | None = None,
    progress: bool = False,
    **generation: Any,
) -> list[Output]:
    """The model's outputs, in the order of the sources.

    Args:
        facts: of each source; see `CopyNetTokenizer`.
        max_source_length: words of a source that are read; by default what the tokenizer was saved with.
        progress: show a bar on stderr.
        generation: for `generate()`, such as `num_beams`; what is None is left out.
    """
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))  # little padding in a batch
    options = {name: value for name, value in generation.items() if value is not None}
    outputs: list[Output | None] = [None] * len(sources)
    model.eval()
    with tqdm(total=len(sources), unit="texts", disable=not progress) as bar:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            texts = [sources[row] for row in rows]
            known = None if facts is None else [facts[row] for row in rows]
            made = _generate_batch(model, tokenizer, texts, known, max_source_length, options)
            for row, output in zip(rows, made, strict=True):
                outputs[row] = output
            bar.update(len(rows))
    return [output for output in outputs if output is not None]


def _generate_batch(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    facts: list[Any] | None,
    max_source_length: int | None,
    options: Mapping[str, Any],
) -> Iterator[Output]:
    inputs = encode_sources(tokenizer, texts, facts, max_source_length).to(model.device)
    sequences = _search(model, inputs, options)  # (rows x returned, 1 + T)
    returned = sequences.shape[0] // len(texts)
    copied = copied_flags(model, sequences[::returned], **inputs)
    hidden = hidden_ids(tokenizer)
    for row, text in enumerate(texts):
        own = sequences[row * returned : (row + 1) * returned, 1:].tolist()
        known = None if facts is None else facts[row]
        words = [output_words(tokenizer, ids, text, max_source_length, known) for ids in own]
        shown = [flag for flag, index in zip(copied[row], own[0], strict=True) if index not in hidden]
        yield Output(
            texts=[joined(tokenizer, each).strip() for each in words],
            pieces=text_pieces(tokenizer, words[0]),
            copied=shown,
        )


@torch.inference_mode()
def _search(model: Any, inputs: BatchEncoding, options: Mapping[str, Any]) -> Tensor:
    # Any: the library's types for generate() fit none of its models.
    return model.generate(**inputs, **{**options, "return_dict_in_generate": False})


def copied_flags(model: CopyNetForConditionalGeneration, sequences: Tensor, **source: Tensor) -> list[list[bool]]:
    """For each word after the start symbol: whether more than half of its probability came from the copy mode.

    source: what the encoder was given.
    """
    if not model.config.copies:
        return [[False] * (sequences.shape[1] - 1)] * sequences.shape[0]
    trace: Any = model.trace_copies(sequences, **source)
    return (trace.copied > 0.5).tolist()


def copy_map(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, text: str, **generation: Any
) -> tuple[Tensor, list[str], list[str]]:
    """What `plot_copy_heatmap` wants: where one text's output was copied from, (T, S), and the words of both."""
    inputs = encode_sources(tokenizer, [text]).to(model.device)
    sequences = _search(model, inputs, generation)
    trace: Any = model.trace_copies(sequences[:1], **inputs)
    ids, hidden = sequences[0, 1:].tolist(), hidden_ids(tokenizer)
    shown = torch.tensor([index not in hidden for index in ids], dtype=torch.bool, device=sequences.device)
    source = source_words(tokenizer, inputs["input_ids"][0].tolist(), text)
    target = [piece.strip() for piece in text_pieces(tokenizer, output_words(tokenizer, ids, text))]
    return trace.copy_probs[0][shown].cpu(), source, target


# ---- scores


def evaluate_pairs(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, pairs: Dataset, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """All scores of the pairs' outputs, and one record for each pair; `options` go to `generate_outputs`, and `facts`
    where the pairs have some.

    To those of `score_outputs` comes, for a model that copies, copy_mode_fraction: the share of the words of the best
    outputs that the copy mode gave more than half of the probability. `oov_recall` is None when no reference holds a
    word that is in its source and not in the vocabulary.
    """
    sources, references = list(pairs["text"]), list(pairs["summary"])
    if "facts" in pairs.column_names:
        options = {"facts": list(pairs["facts"]), **options}
    start = time.perf_counter()
    outputs = generate_outputs(model, tokenizer, sources, **options)
    known = options.get("facts") or [None] * len(sources)
    seconds = time.perf_counter() - start
    scores: dict[str, Any] = {"oov_recall": None} | score_outputs(
        [output.texts for output in outputs],
        references,
        [with_objects(*row) for row in zip(sources, known, strict=True)],
        words=tokenizer.tokenize,
        vocabulary=tokenizer.get_vocab(),
    )
    if model.config.copies:
        flags = [flag for output in outputs for flag in output.copied]
        scores["copy_mode_fraction"] = 100 * sum(flags) / len(flags) if flags else 0.0
    ids = list(pairs["id"]) if "id" in pairs.column_names else None
    predictions = [
        ({} if ids is None else {"id": ids[row]})
        | {
            "text": sources[row],
            "reference": references[row],
            "prediction": output.texts[0],
            "words": output.pieces,
            "copied": output.copied,
        }
        | ({"facts": options["facts"][row]} if "facts" in options else {})
        | ({"predictions": output.texts} if len(output.texts) > 1 else {})
        for row, output in enumerate(outputs)
    ]
    return scores | {"seconds": round(seconds, 2)}, predictions


def write_predictions(path: Path, predictions: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for prediction in predictions:
            file.write(json.dumps(prediction, ensure_ascii=False) + "\n")
