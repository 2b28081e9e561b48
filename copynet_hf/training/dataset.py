"""The pairs of a training run: reading them, and encoding them for `DataCollatorForSeq2Seq`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from datasets import Dataset, Features, IterableDataset, List, Value
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

from ..arguments import MAX_TARGET_LENGTH, MIN_TARGET_LENGTH, DataArguments, PairsArguments, select_fields
from ..data.columns import ROLES
from ..data.pairs import Pairs, load_pairs, load_splits
from ..data.remembered import NAMES, read_options, recall_file_options, recall_options
from ..model import tokenization_copynet
from ..model.tokenization_copynet import CopyNetTokenizer

_Item = TypeVar("_Item")
LENGTH_SAMPLE_SIZE = 5000  # pairs from which the length of outputs is chosen
# A hash of the code that encodes pairs, as it was imported. As part of the key by which `datasets` finds cached pairs,
# it keeps those of another version from being used.
CODE = Hasher.hash_bytes(
    [file.read_bytes() for file in sorted(Path(tokenization_copynet.__file__).parent.glob("*.py"))]
)


def read_training_pairs(data_args: DataArguments) -> dict[str, Pairs]:
    """The splits `train` and, where given, `validation` and `test`."""
    if data_args.train_file is None and data_args.dataset_name is None:
        raise ValueError("no --train_file: pass a file of pairs, or --dataset_name")
    files = {"train": data_args.train_file, "validation": data_args.validation_file, "test": data_args.test_file}
    pairs = read_pairs(data_args, files, "train", data_args.streaming)
    pairs["train"] = _limit_rows(pairs["train"], data_args.max_train_samples)
    return pairs


def read_split(data_args: PairsArguments, split: str, file: str | None, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """The pairs of one split for a trained model: those of the file, or of the arguments' dataset on the Hub. Columns
    and delimiter are those of the training, unless the arguments name others."""
    options = {name: getattr(data_args, name) for name in NAMES}
    if file is not None:
        options = recall_file_options(tokenizer, options, file, data_args.column_names)
    else:
        options = recall_options(tokenizer, options, _list_columns(data_args) if read_options(tokenizer) else None)
    if getattr(tokenizer, "feature_vocab_size", 0) and options["features_column"] is None:
        raise ValueError(f"{tokenizer.name_or_path} reads features: name their column with --features_column")
    return read_pairs(replace(data_args, **options), {split: file}, split)[split]


def _list_columns(data_args: PairsArguments) -> list[str]:
    """The columns of the arguments' dataset on the Hub; those of its first split."""
    parts = load_splits(str(data_args.dataset_name), data_args.dataset_config_name, streaming=True)
    part = next(iter(parts.values()))
    return list(part.column_names or next(iter(part)))


def read_pairs(
    data_args: PairsArguments, files: Mapping[str, str | None], needed_split: str, streaming: bool = False
) -> dict[str, Pairs]:
    """The pairs of the files, or those of the arguments' dataset on the Hub.

    At most `max_eval_samples` validation and test pairs are read, and no more of their files than that takes.

    Args:
        files: by split; None: no file.
        streaming: read training pairs during iteration; scoring needs the texts of the others in memory.
    """
    options = {
        name: value for name, value in select_fields(PairsArguments, vars(data_args)).items() if value is not None
    }
    limit = options.pop("max_eval_samples", None)
    names: dict[str, Any]
    splits: dict[str, Pairs] = {}
    if data_args.dataset_name is not None:
        names = {f"{split}_file": path for split, path in files.items()}
        splits = dict(load_pairs(**names, **options, streaming=streaming))
    else:
        streamed = {split: streaming or (split != "train" and limit is not None) for split in files}
        for is_stream in (False, True):
            names = {f"{split}_file": path for split, path in files.items() if path and streamed[split] == is_stream}
            if names:
                splits |= load_pairs(**names, **options, streaming=is_stream)
    if needed_split not in splits:
        raise ValueError(f"{data_args.dataset_name} has the splits {', '.join(splits)}: {needed_split!r} is needed")
    for split in ("validation", "test"):
        if split in splits:
            part = _limit_rows(splits[split], limit)
            if isinstance(part, IterableDataset):  # `id` names the outputs of an evaluation
                columns = (*ROLES, "id")
                rows = [{name: row[name] for name in columns if name in row} for row in part]
                if len({type(row.get("id")) for row in rows}) > 1:
                    rows = [row | {"id": str(row.get("id"))} for row in rows]
                part = Dataset.from_list(rows)
            splits[split] = part
    return splits


def _limit_rows(pairs: Pairs, limit: int | None) -> Pairs:
    """The first `limit` rows, or all of them when `limit` is None."""
    if limit is None:
        return pairs
    return pairs.take(limit) if isinstance(pairs, IterableDataset) else pairs.select(range(min(limit, len(pairs))))


def spread(pairs: Pairs, size: int) -> Pairs:
    """At most this number of pairs, which show what the others are like: evenly spaced ones of a data set, as it may
    be sorted, and the first ones of a stream."""
    if isinstance(pairs, IterableDataset):
        return pairs.take(size)
    return pairs.select(take_spread(range(len(pairs)), size))


def count_sources(encoded: Pairs, size: int) -> tuple[Counter[int], int]:
    """How many sources have each id, of `spread` pairs that are encoded, and the number of these."""
    sample = spread(encoded, size)
    sources = sample["input_ids"] if isinstance(sample, Dataset) else [row["input_ids"] for row in sample]
    return Counter(index for ids in sources for index in {*ids}), len(sources)


def take_spread(items: Sequence[_Item], size: int) -> list[_Item]:
    """At most this number of items, evenly spaced."""
    num_items = min(size, len(items))
    return [items[place * len(items) // num_items] for place in range(num_items)]


def choose_max_target_length(pairs: Pairs, tokenizer: PreTrainedTokenizerBase, most: int | None = None) -> int:
    """A quarter more tokens than any target of a sample needs, because later ones may need more; at least
    `MIN_TARGET_LENGTH`.

    Args:
        most: that a Transformers decoder can write, if that is less than `MAX_TARGET_LENGTH`.
    """
    sample = encode_pairs(spread(pairs, LENGTH_SAMPLE_SIZE), tokenizer, MAX_TARGET_LENGTH)
    longest = max(len(row["labels"]) for row in sample)
    return min(max(MIN_TARGET_LENGTH, math.ceil(1.25 * longest)), MAX_TARGET_LENGTH, most or MAX_TARGET_LENGTH)


def encode_pairs(
    pairs: Pairs, tokenizer: PreTrainedTokenizerBase, max_target_length: int | None = None, num_proc: int | None = None
) -> Pairs:
    """Encodes each pair as `input_ids`, `attention_mask` and `labels`; with a column `facts` (lists of triples), also
    `token_type_ids`, and with a column `features` (lists of strings) `feature_ids`. Sources are truncated to the
    tokenizer's `model_max_length`.

    Args:
        max_target_length: targets are truncated to this number of tokens, the end symbol included.
        num_proc: number of processes; ignored for an `IterableDataset`.

    Raises:
        ValueError: features or facts for a tokenizer that has none.
    """
    columns = list(pairs.column_names or next(iter(pairs)))
    is_ours = isinstance(tokenizer, CopyNetTokenizer)
    for name in () if is_ours else ("features", "facts"):
        if name in columns:
            raise ValueError(
                f"the pairs have {name}, which a {type(tokenizer).__name__} cannot encode: leave the column out, or "
                "use a CopyNetTokenizer"
            )

    def encode(rows: dict[str, list[str]], code: str) -> dict[str, list[list[int]]]:
        if is_ours:
            return dict(
                tokenizer(
                    rows["text"],
                    text_target=rows["summary"],
                    facts=rows.get("facts"),
                    features=rows.get("features"),
                    truncation=True,
                    max_target_length=max_target_length,
                )
            )
        sources = tokenizer(rows["text"], truncation=True)
        targets = tokenizer(text_target=rows["summary"], truncation=True, max_length=max_target_length)
        return {
            "input_ids": sources["input_ids"],
            "attention_mask": sources["attention_mask"],
            "labels": [_end_with_eos(ids, tokenizer.eos_token_id, max_target_length) for ids in targets["input_ids"]],
        }

    options: dict[str, Any] = {}
    if not isinstance(pairs, IterableDataset):
        options = {"num_proc": num_proc, "desc": "Tokenizing"}
        if len(pairs):  # else the types are those of the first rows, none for the letters of words that these lack
            options["features"] = Features({name: List(Value("int64")) for name in encode(pairs[:1], CODE)})
    return pairs.map(encode, batched=True, remove_columns=columns, fn_kwargs={"code": CODE}, **options)


def _end_with_eos(ids: list[int], eos_token_id: int, max_length: int | None) -> list[int]:
    """The ids with the end symbol last, whether or not the tokenizer adds one."""
    words = ids[:-1] if ids and ids[-1] == eos_token_id else ids
    return [*words[: None if max_length is None else max_length - 1], eos_token_id]
