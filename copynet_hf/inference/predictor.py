"""Predictions for many texts, in batches: of a loaded model, or by an object that can be sent to other processes."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from tqdm.auto import tqdm  # type: ignore[import-untyped]
from transformers import GenerationConfig, GenerationMixin, PreTrainedTokenizerBase

from ..data.columns import find_column, match_column
from ..data.features import (
    NO_FACTS,
    UNKNOWN_FEATURES,
    are_unknown,
    explain_unusable,
    read_facts,
    resemble_facts,
    split_features,
)
from ..data.files import warn_once
from ..data.remembered import find_separator, read_options
from ..model.prediction import CopyModel, Prediction, check_min_confidence, predict, reads_facts, reads_features
from ..model.source import Fact
from .backends import load_backend
from .extraction import extract_records

OUTPUT_FORMATS = ("text", "records")
ORIGINS = tuple(field.name for field in fields(Prediction) if field.name not in ("text", "accepted", "copy_probs"))


class CopyNetPredictor:
    """Predicts texts, or a column of texts, in batches of similar length.

    The model is loaded by the first call. A predictor that is pickled loads it again where it is used, with one thread
    in a worker process, so it can be given to `datasets.map(..., batched=True, num_proc=...)` and to Ray's
    `map_batches`.

    Args:
        name: the model's folder, or its name on the Hub.
        backend: "torch", or "onnx" for a folder that `copynet-hf export` wrote.
        device, bf16, trust_remote_code, threads: see `load_backend`.
        text_column: the column of the sources in a call with columns; None: that of the training, if there is one
            of this name, else "text".
        facts_column: the column of the facts; None: "facts", if it is there and holds facts.
        features_column: the column of the features, read where the model reads features: lists of strings, or strings;
            None: as for the sources, else "features".
        features_separator: what separates the features in a string; None: as in the training.
        prediction_column: the column that a call with columns adds, and before `_is_truncated`, the column that says
            whether a text has more words than were read.
        output_format: "text", or "records": the column holds the records of `extract_records`, None for an output that
            has no fields.
        min_confidence: outputs that are less surely right, or cut, are marked; a call with columns adds
            `prediction_confidence` and `prediction_accepted`.
        with_origins: whether it also adds the score of the prediction, its words and where they were copied from.
        decoding: arguments of `predict_in_batches`, `predict` and `generate()`, such as `batch_size`, `num_beams`
            and `max_new_tokens`.

    Raises:
        TypeError: an argument is misspelled.
        ValueError: `output_format`, `prediction_column`, `min_confidence` or `num_return_sequences` has a value that
            cannot be used.
    """

    def __init__(
        self,
        name: str | os.PathLike[str],
        backend: str = "torch",
        *,
        device: str | None = None,
        bf16: bool = False,
        trust_remote_code: bool = False,
        threads: int | None = None,
        text_column: str | None = None,
        facts_column: str | None = None,
        features_column: str | None = None,
        features_separator: str | None = None,
        prediction_column: str = "prediction",
        output_format: str = "text",
        min_confidence: float | None = None,
        with_origins: bool = False,
        **decoding: Any,
    ) -> None:
        if not isinstance(name, str | os.PathLike):
            raise TypeError(f"name is a {type(name).__name__}: pass the folder or Hub name of a model")
        self.name = os.fspath(name)
        self.loading: dict[str, Any] = {
            "backend": backend,
            "device": device,
            "bf16": bf16,
            "trust_remote_code": trust_remote_code,
            "threads": threads,
        }
        self.text_column, self.facts_column, self.features_column = text_column, facts_column, features_column
        self.features_separator, self.prediction_column = features_separator, prediction_column
        if output_format not in OUTPUT_FORMATS:
            raise ValueError(f"output_format is {output_format!r}: use {' or '.join(OUTPUT_FORMATS)}")
        if not prediction_column:
            raise ValueError("prediction_column is empty: pass the name of the column of outputs")
        check_min_confidence(min_confidence)
        _refuse_misspelled(decoding)
        if (decoding.get("num_return_sequences") or 1) != 1:
            raise ValueError("num_return_sequences: there is one output for each text; a pipeline returns several")
        self.output_format, self.min_confidence = output_format, min_confidence
        self.with_origins, self.decoding = with_origins, decoding
        self._loaded: tuple[int, CopyModel, PreTrainedTokenizerBase] | None = None

    def __getstate__(self) -> dict[str, object]:
        # The files' times are for `datasets`, which reuses the results of a function whose pickle is the same.
        return vars(self) | {"_loaded": None, "_files": stamp_files(self.name)}

    def load(self) -> tuple[CopyModel, PreTrainedTokenizerBase]:
        """The model and its tokenizer, loaded once in each process.

        Raises:
            ImportError, ValueError: see `load_backend`.
        """
        if self._loaded is None or self._loaded[0] != os.getpid():  # threads do not survive a fork
            self._loaded = (os.getpid(), *load_backend(self.name, **self.loading))
        return self._loaded[1:]

    @overload
    def __call__(self, inputs: Mapping[str, Any]) -> MutableMapping[str, Any]: ...  # type: ignore[overload-overlap]  # also an Iterable

    @overload
    def __call__(self, inputs: Iterable[str]) -> list[Prediction]: ...

    @overload
    def __call__(self, inputs: Iterable[str | None]) -> list[Prediction | None]: ...

    def __call__(self, inputs: Iterable[str | None] | Mapping[str, Any]) -> list[Any] | MutableMapping[str, Any]:
        """Predicts a list of texts, or the text column of a batch of columns.

        Args:
            inputs: texts; or the columns: a DataFrame of pandas, or a dict from their names to lists, arrays (of NumPy
                or Arrow) or Series of one length, whatever their index.

        Returns:
            For texts the best output of each, with its trace. For columns a copy of them with `prediction`, the best
            output of each text, and `prediction_is_truncated`; with `with_origins` also the other fields of
            `Prediction`, but for `copy_probs`, as `prediction_score` and so on. The output of an empty text is "",
            that of a missing one None.

        Raises:
            ImportError, ValueError: see `load_backend`.
            ValueError: the inputs are a single text, a column is missing or holds something else, or there is one of
                the new columns' names.
        """
        if isinstance(inputs, Mapping) or hasattr(inputs, "columns"):  # the latter is a DataFrame
            return self._predict_columns(inputs)
        if isinstance(inputs, str):
            raise ValueError(f"the input is the text {inputs!r:.80}: pass a list of texts")
        texts = _list_values(inputs)
        if texts and reads_features(self.load()[0]):
            reason = "the model reads features, and the texts have none"
            raise ValueError(f"{reason}: pass columns, {{'text': …, 'features': …}}")
        return self._predict_texts(texts, "the texts")

    def try_settings(self) -> None:
        """Predicts a text of one word; raises what the model or the settings do."""
        more: dict[str, Any] = {"features": [[]]} if reads_features(self.load()[0]) else {}
        self._predict_texts(["a"], "the texts", **more)

    def _predict_columns(self, columns: Any) -> MutableMapping[str, Any]:
        if not isinstance(columns, Mapping) and not hasattr(columns, "iloc"):
            raise ValueError(
                f"the input is a {type(columns).__name__}: pass a DataFrame of pandas, or a dict of its columns"
            )
        self.refuse_columns(columns)
        predictions = self.predict_rows(columns)
        result = copy.copy(columns)  # a dict, or the lazy columns of `datasets`, in which only new ones are set
        texts = _list_values(columns[self.find_column("text", columns)])
        rows = [
            {} if each is None else self.fill_columns(each, str(text))
            for each, text in zip(predictions, texts, strict=True)
        ]
        for name in self.new_columns():
            values = [row.get(name) for row in rows]
            result[name] = values
            if hasattr(columns, "iloc") and {*map(type, values)} == {bool, type(None)}:
                result[name] = result[name].astype("boolean")  # which selects rows, as objects do not
        return result

    def new_columns(self) -> dict[str, str]:
        """The columns that a call with columns adds, each with its field of `Prediction`, or "records"."""
        fields = dict.fromkeys(ORIGINS if self.with_origins else ("is_truncated",))
        if self.min_confidence is not None:
            fields |= dict.fromkeys(("confidence", "accepted"))
        column = self.prediction_column
        return {column: self.output_format} | {f"{column}_{field}": field for field in fields}

    def refuse_columns(self, columns: Iterable[str]) -> None:
        """Raises a ValueError if the columns have one of those that a call adds, which it would replace."""
        if taken := self.new_columns().keys() & set(columns):
            advice = "use another prediction_column (--prediction_column), or drop it"
            raise ValueError(f"the input has a column {min(taken)!r}: {advice}")

    def fill_columns(self, prediction: Prediction, text: str) -> dict[str, Any]:
        """The values of the new columns for a text. An output without the records that were asked for is not accepted,
        whatever its confidence."""
        has_records = self.output_format == "records"
        records = extract_records(prediction, text) if has_records else None
        values = {
            name: records if field == "records" else getattr(prediction, field)
            for name, field in self.new_columns().items()
        }
        if has_records and records is None and self.min_confidence is not None:
            values[f"{self.prediction_column}_accepted"] = False
        return values

    def predict_rows(self, columns: Mapping[str, Any]) -> list[Prediction | None]:
        """The best output of each row of the columns, "" for an empty text and None for a missing one.

        Raises:
            ImportError, ValueError: as for a call.
        """
        model, tokenizer = self.load()
        text_column = self.find_column("text", columns)
        if isinstance(columns[text_column], str):
            raise ValueError(f"the column {text_column!r} holds one text: pass lists (map with batched=True)")
        if not hasattr(columns[text_column], "__len__"):
            raise ValueError(f"the column {text_column!r} is a {type(columns[text_column]).__name__}: pass a list")
        texts = _list_values(columns[text_column])
        options: dict[str, Any] = {}
        names = [name for name in columns if isinstance(name, str)]  # pandas has others
        given = self.facts_column
        facts_column = match_column("facts", names) or "facts" if given is None else find_column(given, names)
        facts = [read_facts(_to_lists(each)) for each in _list_values(columns.get(facts_column, ()))]
        if given is not None or any(map(resemble_facts, facts)):
            _check_cells(texts, facts, "facts", facts_column)
            options["facts"] = facts
        elif reads_facts(model) and texts and (any(facts) or facts_column not in columns):
            warn_once(NO_FACTS.format(self.name) + ", or name it with facts_column (--facts_column)")
        if reads_features(model):
            separator = find_separator(tokenizer, self.features_separator)
            features_column = self.find_column("features", columns)
            features = [_to_lists(each) for each in _list_values(columns[features_column])]
            _check_cells(texts, features, "features", features_column)
            options["features"] = [split_features(each, separator) for each in features]
            if are_unknown(options["features"], tokenizer):
                warn_once(UNKNOWN_FEATURES.format(self.name))
        trace = self.with_origins or self.output_format == "records"
        return self._predict_texts(texts, f"the column {text_column!r}", trace=trace, **options)

    def _predict_texts(
        self, texts: Sequence[object], where: str, trace: bool = True, **columns: Sequence[Any]
    ) -> list[Prediction | None]:
        """`predict_rows` for texts with their `facts` and `features`; `where` names in errors what holds the texts."""
        rows = [row for row, text in enumerate(texts) if text is not None]
        for row in rows:
            if not isinstance(texts[row], str):
                raise ValueError(f"row {row} of {where} is a {type(texts[row]).__name__}: pass texts")
        sources = [str(texts[row]) for row in rows]
        options: dict[str, Any] = {name: [column[row] for row in rows] for name, column in columns.items()}
        options |= {"trace": trace, "min_confidence": self.min_confidence, **self.decoding}
        predictions: list[Prediction | None] = [None] * len(texts)
        for row, (best, *_) in zip(rows, predict_in_batches(*self.load(), sources, **options), strict=True):
            predictions[row] = best
        return predictions

    def find_column(self, role: Literal["text", "features"], columns: Collection[str]) -> str:
        """The column of the sources, or of the features; raises ValueError if it is missing."""
        given = name = getattr(self, f"{role}_column")
        if given is None:
            saved = read_options(self.load()[1]).get(f"{role}_column", role)
            name = next((each for each in (saved, role) if match_column(each, list(columns))), saved)
        try:
            column = find_column(name, list(columns))
        except ValueError as error:
            needs = (
                f"{self.name} reads features: name their column with features_column; " if role == "features" else ""
            )
            fix = "" if needs or given is not None else f"; {role}_column names another"
            raise ValueError(f"{needs}{error}{fix}") from None
        if list(columns).count(column) > 1:
            raise ValueError(f"there are two columns {column!r}: rename one")
        return column


def _refuse_misspelled(decoding: Collection[str]) -> None:
    """Raises a TypeError for a name that is nearly that of an argument. Any other may be one of the model's."""
    callables = (CopyNetPredictor, predict_in_batches, predict, GenerationMixin.generate)
    known = {*vars(GenerationConfig()), *(name for each in callables for name in signature(each).parameters)}
    own = {"self", "name", "model", "tokenizer", "texts", "inputs", "options", "generation", "kwargs", "decoding"}
    for name in set(decoding) - known:
        for nearest in get_close_matches(name, known - own, 1, 0.85):
            raise TypeError(f"{name} is not an argument; did you mean {nearest}?")


def _list_values(column: Any) -> list[object]:
    """The values of a column by position, not by its index; missing ones, NaN among them, are None."""
    if hasattr(column, "to_pylist"):  # Arrow's
        return list(column.to_pylist())
    if hasattr(column, "notna"):
        column = column.astype(object).where(column.notna(), None)
    return [None if isinstance(value, float) and np.isnan(value) else value for value in column]


def _check_cells(texts: Iterable[object], cells: Iterable[object], role: str, column: str) -> None:
    """Raises a ValueError for the first row with a text whose facts or features cannot be used."""
    for row, (text, value) in enumerate(zip(texts, cells, strict=True)):
        if text is not None and (reason := explain_unusable(value, role, column)):
            raise ValueError(f"row {row}: {reason}")


def _to_lists(value: Any) -> Any:
    """Arrays within a cell as lists, whatever their depth."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_to_lists(each) for each in value]
    return value


def stamp_files(folder: str) -> list[tuple[str, int, int]]:
    """Name, size in bytes and time of change in nanoseconds of the files of a model's folder."""
    files = sorted(path for path in Path(folder).glob("*") if path.is_file())
    return [(path.name, (status := path.stat()).st_size, status.st_mtime_ns) for path in files]


def parse_facts(lines: Iterable[str]) -> list[list[str]]:
    """Triples from lines of the form "subject | property | object"; empty lines are skipped.

    Raises:
        ValueError: a line has another form.
    """
    facts = [[part.strip() for part in line.split("|")] for line in lines if line.strip()]
    for fact in facts:
        if len(fact) != 3 or not all(fact):
            raise ValueError(
                f"{' | '.join(fact)!r} is not a fact: write subject | property | object, one on each line"
            )
    return facts


def predict_in_batches(
    model: CopyModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    facts: Sequence[Sequence[Fact] | None] | None = None,
    features: Sequence[Sequence[str] | None] | None = None,
    batch_size: int = 32,
    progress: bool = False,
    **options: Any,
) -> list[list[Prediction]]:
    """`predict` in batches of texts of similar length.

    Args:
        facts, features, options: see `predict`; options that are None are left out.
        progress: whether to show a progress bar on stderr.

    Returns:
        For each text, in the order of `texts`, its outputs, best first.

    Raises:
        ValueError: `batch_size` is below 1, or as `predict`.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: use 1 or more")
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    options = {name: value for name, value in options.items() if value is not None}
    predictions: list[list[Prediction]] = [[]] * len(texts)
    with tqdm(total=len(texts), unit="texts", disable=not progress) as bar:
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch_texts = [texts[row] for row in rows]
            batch_facts = None if facts is None else [facts[row] for row in rows]
            batch_features = None if features is None else [features[row] for row in rows]
            batch = predict(model, tokenizer, batch_texts, facts=batch_facts, features=batch_features, **options)
            for row, outputs in zip(rows, batch, strict=True):
                predictions[row] = outputs
            bar.update(len(rows))
    return predictions
