"""The pairs of a training run: reading them, and encoding them for `DataCollatorForSeq2Seq`."""

from __future__ import annotations

from typing import TypeAlias

from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict
from transformers import PreTrainedTokenizerBase

from ..arguments import DataArguments
from ..data import load_pairs
from ..data.records import AnyDataset
from ..model.tokenization_copynet import CopyNetTokenizer

Pairs: TypeAlias = AnyDataset  # with the columns `text` and `summary`


def read_training_pairs(data_args: DataArguments) -> dict[str, Pairs]:
    """The splits `train` and, where given, `validation` and `test`.

    Raises:
        ValueError: no training pairs.
    """
    if data_args.train_file is None and data_args.dataset_name is None:
        raise ValueError("no --train_file: give a file of pairs, or --dataset_name")
    files = {name: getattr(data_args, name) for name in ("train_file", "validation_file", "test_file")}
    splits: DatasetDict | IterableDatasetDict = load_pairs(
        **files, **data_args.dataset_options(), streaming=data_args.streaming
    )
    if "train" not in splits:
        raise ValueError(f"{data_args.dataset_name} has the splits {', '.join(splits)}: 'train' is needed")
    limits = {
        "validation": data_args.max_eval_samples,
        "test": data_args.max_eval_samples,
        "train": data_args.max_train_samples,
    }
    pairs = {split: limit_rows(splits[split], limit) for split, limit in limits.items() if split in splits}
    for split in ("validation", "test"):  # scoring needs their texts in memory
        if isinstance(pairs.get(split), IterableDataset):
            pairs[split] = Dataset.from_list(list(pairs[split]))
    return pairs


def limit_rows(pairs: Pairs, limit: int | None) -> Pairs:
    """The first `limit` rows, or all of them when `limit` is None."""
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
    """Encodes each pair as `input_ids`, `attention_mask` and `labels`; with a column `facts` (lists of triples), also
    `token_type_ids`.

    Args:
        max_source_length: sources are truncated to this number of tokens.
        max_target_length: targets are truncated to this number of tokens, the end symbol included.
        num_proc: number of processes; ignored for an `IterableDataset`.
    """

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
        sources = tokenizer(rows["text"], truncation=True, max_length=max_source_length)
        targets = tokenizer(text_target=rows["summary"], truncation=True, max_length=max_target_length)
        return {
            "input_ids": sources["input_ids"],
            "attention_mask": sources["attention_mask"],
            "labels": [_end_with_eos(ids, tokenizer.eos_token_id, max_target_length) for ids in targets["input_ids"]],
        }

    columns = list(pairs.column_names or next(iter(pairs)))
    options = {} if isinstance(pairs, IterableDataset) else {"num_proc": num_proc, "desc": "Tokenizing"}
    return pairs.map(encode, batched=True, remove_columns=columns, **options)


def _end_with_eos(ids: list[int], eos_token_id: int, max_length: int) -> list[int]:
    """The ids with the end symbol last, whether or not the tokenizer adds one."""
    return [*(ids[:-1] if ids and ids[-1] == eos_token_id else ids)[: max_length - 1], eos_token_id]
