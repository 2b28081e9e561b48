"""What a training run is about to do, in a few lines, and what looks wrong with its data."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from unicodedata import normalize

from datasets import IterableDataset
from transformers import TrainingArguments

from ..arguments import DataArguments
from ..model.segmentation import get_segmenter
from ..model.tokenization_copynet import CopyNetTokenizer
from .dataset import Pairs, spread
from .reach import KINDS, measure_reach

SAMPLE_SIZE = 5000  # pairs of each split that are looked at
# From these shares of the pairs on, what is found is reported.
MIN_LONGER, MIN_CONTAINED, MIN_DIFFERING = 0.9, 0.9, 0.01
# Words that are spelled or unknown, and numbers with digits that are made up, are named if they are more than this
# share, the most frequent ones.
MIN_HARD, NUM_SHOWN = 0.005, 20


def describe_words(pairs: Pairs, tokenizer: CopyNetTokenizer) -> str:
    """How the words of the targets are reached, and which ones are hard to."""
    sample = list(spread(pairs, SAMPLE_SIZE))
    reach = measure_reach(tokenizer, sample)
    shares = [f"{100 * reach.words[kind] / reach.num_words:.1f} % {kind}" for kind in KINDS if reach.words[kind]]
    targets = f"{len(sample):,} targets" if len(sample) == SAMPLE_SIZE else "the targets"
    text = f"of {_count(reach.num_words, 'word')} of {targets}, {', '.join(shares)}"
    hard = reach.hard + reach.numbers
    if len(hard) <= MIN_HARD * reach.num_words:
        return text
    counts = Counter(word for word, _ in hard)
    frequent = ", ".join(repr(word) for word, _ in counts.most_common(NUM_SHOWN))
    if 2 * sum(word.isdecimal() for word, _ in hard) > len(hard):
        mend = "--segmenter word_digits copies and writes numbers digit by digit"
    else:
        mend = (
            "more pairs with such words, or a lower --min_frequency, make them known; --segmenter char learns to "
            "change letters"
        )
    return f"{text}; spelled, at least in part, or unknown are {frequent}: {mend}"


def find_warnings(pairs: Mapping[str, Pairs], encoded: Mapping[str, Pairs], args: DataArguments) -> Iterator[str]:
    """Sentences about pairs that are probably not what was meant, each with what to do.

    Args:
        encoded: the pairs of the splits, as the model reads them.
    """
    train = _sample(pairs["train"])
    if "validation" in pairs:
        yield from _find_overlap(pairs["train"], _sample(pairs["validation"]))
    for split, rows in encoded.items():
        yield from _find_truncated(rows, "training" if split == "train" else split, args)
    yield from _compare_sides(train)
    yield from _compare_forms(train)


def _find_truncated(encoded: Pairs, split: str, args: DataArguments) -> Iterator[str]:
    losses = {
        "source": ("input_ids", "and what is beyond is neither read nor copied", "if it matters"),
        "target": ("labels", "the end symbol included, and what is beyond is cut off", "if outputs should be as long"),
    }
    rows = list(spread(encoded.select_columns(["input_ids", "labels"]), SAMPLE_SIZE))
    for side, (column, loss, where) in losses.items():
        limit = getattr(args, f"max_{side}_length")
        truncated = sum(len(row[column]) >= limit for row in rows)
        if truncated:
            yield (
                f"{truncated:,} of {len(rows):,} {split} {side}s have {limit} words or more, {loss}: raise "
                f"--max_{side}_length {where}"
            )


def _sample(pairs: Pairs) -> list[dict[str, str]]:
    return list(spread(pairs.select_columns(["text", "summary"]), SAMPLE_SIZE))


def _find_overlap(train: Pairs, validation: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Validation texts among all training texts; of a stream, among the first."""
    is_stream = isinstance(train, IterableDataset)
    texts = {row["text"] for row in validation}
    batches = (spread(train, SAMPLE_SIZE) if is_stream else train).select_columns(["text"]).iter(1000)
    known = {text for batch in batches for text in batch["text"] if text in texts}
    repeated = sum(row["text"] in known for row in validation)
    if repeated:
        these = f"of the first {SAMPLE_SIZE:,} training texts" if is_stream else "training texts"
        yield (
            f"{repeated:,} of {len(validation):,} validation texts are {these} too: the scores say less about new "
            "texts"
        )


def _compare_sides(train: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Targets that are much longer than their sources, and texts that contain their counterpart: perhaps the columns
    are swapped, or the task is copying alone."""
    if not train:
        return
    longer = sum(len(row["summary"]) > len(row["text"]) for row in train) / len(train)
    sources_inside = sum(row["text"] in row["summary"] for row in train) / len(train)
    targets_inside = sum(row["summary"] in row["text"] for row in train) / len(train)
    ratio = statistics.median(len(row["summary"]) / max(len(row["text"]), 1) for row in train)
    if longer > MIN_LONGER and ratio > 3:
        yield (
            f"targets are {ratio:.1f} times as long as their sources: check that --text_column and --summary_column "
            "are not swapped"
        )
    if max(sources_inside, targets_inside) > MIN_CONTAINED:
        inner, outer = ("target", "source") if targets_inside >= sources_inside else ("source", "target")
        yield f"{100 * max(sources_inside, targets_inside):.0f} % of the pairs have the {inner} inside the {outer}"


def _compare_forms(train: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Words of targets that look like one in their source, but have another form of Unicode: NFD, as in file names of
    macOS, or NFC."""
    differing = sum(_differs_in_form(row["text"], row["summary"]) for row in train)
    if differing > MIN_DIFFERING * len(train):
        yield (
            f"{differing:,} of {len(train):,} targets have words that look like one in their source, but are composed "
            "of other characters, such as é of one or of two: bring both sides, and later inputs, to Unicode NFC"
        )


def _differs_in_form(source: str, target: str) -> bool:
    composed = normalize("NFC", source)
    words = get_segmenter("word_punct").split(target)
    return any(word not in source and normalize("NFC", word) in composed for word in words)


def describe_training(num_pairs: int | None, args: TrainingArguments, has_validation: bool) -> str:
    """Pairs, updates and evaluations of a run; `num_pairs` is None for a stream."""
    batch_size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    if num_pairs is None:
        plan = f"{_count(args.max_steps, 'update')} of {_count(batch_size, 'pair')}"
    else:
        updates, per_epoch = count_updates(num_pairs, args)
        epochs = updates / per_epoch
        shown = f"{epochs:,.0f}" if epochs >= 100 else f"{epochs:.3g}"
        plan = (
            f"{_count(num_pairs, 'pair')}, {_count(updates, 'update')} of {_count(batch_size, 'pair')}, {shown} epochs"
        )
    if has_validation and args.load_best_model_at_end:
        plan += f"; the checkpoint with the best {args.metric_for_best_model} on the validation pairs is kept"
    return plan


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def count_updates(num_pairs: int, args: TrainingArguments) -> tuple[int, int]:
    """The updates of a run, and those of one epoch."""
    batches, rest = divmod(num_pairs, args.train_batch_size * args.world_size)
    batches += rest > 0 and not args.dataloader_drop_last
    per_epoch = math.ceil(max(batches, 1) / args.gradient_accumulation_steps)
    return args.max_steps if args.max_steps > 0 else math.ceil(per_epoch * args.num_train_epochs), per_epoch
