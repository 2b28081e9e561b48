"""The pairs of a training run, and their ids."""

from __future__ import annotations

from typing import TypeAlias

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from transformers import PreTrainedTokenizerBase

from ..arguments import DataArguments
from ..data import load_pairs
from ..model.tokenization_copynet import CopyNetTokenizer

Pairs: TypeAlias = Dataset | IterableDataset


def read_training_pairs(data: DataArguments) -> dict[str, Pairs]:
    """The splits `train`, and where given `validation` and `test`, with the columns `text` and `summary`.

    Raises:
        ValueError: no training pairs.
    """
    if data.train_file is None and data.dataset_name is None:
        raise ValueError("no training data: give --train_file (jsonl, csv, parquet, txt) or --dataset_name")
    given = {name: getattr(data, name) for name in ("train_file", "validation_file", "test_file")}
    loaded: DatasetDict | IterableDatasetDict = load_pairs(**given, **data.source(), streaming=data.streaming)
    if "train" not in loaded:
        raise ValueError(f"{data.dataset_name} has no split 'train', only {', '.join(loaded)}")
    limits = dict.fromkeys(("validation", "test"), data.max_eval_samples) | {"train": data.max_train_samples}
    pairs = {name: first_rows(loaded[name], limit) for name, limit in limits.items() if name in loaded}
    for name in ("validation", "test"):  # scored against their texts, which must therefore be at hand
        if isinstance(pairs.get(name), IterableDataset):
            pairs[name] = Dataset.from_list(list(pairs[name]))
    return pairs


def first_rows(pairs: Pairs, limit: int | None) -> Pairs:
    """At most `limit` rows; all of them for None."""
    if limit is None:
        return pairs
    return pairs.take(limit) if isinstance(pairs, IterableDataset) else pairs.select(range(min(limit, len(pairs))))


def encode_pairs(
    pairs: Pairs,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int,
    max_target_length: int,
    num_proc: int | None = None,
) -> Pairs:
    """`input_ids`, `attention_mask` and `labels` of each pair, for `DataCollatorForSeq2Seq`; with a column `facts`,
    whose rows are lists of triples, `token_type_ids` too."""

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        if isinstance(tokenizer, CopyNetTokenizer):
            return dict(
                tokenizer(
                    rows["text"],
                    text_target=rows["summary"],
                    facts=rows.get("facts"),
                    truncation=True,
                    max_length=max_source_length,
                    max_target_length=max_target_length,
                )
            )
        encoded = tokenizer(rows["text"], truncation=True, max_length=max_source_length)
        targets = tokenizer(text_target=rows["summary"], truncation=True, max_length=max_target_length)
        labels = [_ended(ids, tokenizer.eos_token_id, max_target_length) for ids in targets["input_ids"]]
        return {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": labels,
        }

    columns = list(pairs.column_names or next(iter(pairs)))
    options = {} if isinstance(pairs, IterableDataset) else {"num_proc": num_proc, "desc": "Tokenizing"}
    return pairs.map(encode, batched=True, remove_columns=columns, **options)


def _ended(ids: list[int], end: int, length: int) -> list[int]:
    """A target that stops: the end symbol last, whether or not the tokenizer puts it there."""
    return [*(ids[:-1] if ids and ids[-1] == end else ids)[: length - 1], end]
