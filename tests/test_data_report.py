"""What a training run says about its data before it begins."""

from __future__ import annotations

import pytest
from datasets import Dataset

from copynet_hf import CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.training.data_report import describe_words, find_warnings
from copynet_hf.training.dataset import encode_pairs

PAIRS = [{"text": f"please call the man name{n} now", "summary": f"call name{n}"} for n in range(20)]


@pytest.fixture(scope="module")
def tokenizer() -> CopyNetTokenizer:
    texts = [text for pair in PAIRS for text in pair.values()]
    return CopyNetTokenizer.train_from_iterator(texts, 50, segmenter="whitespace", min_frequency=3, max_source_oov=4)


def warnings(tokenizer: CopyNetTokenizer, train: list[dict], validation: list[dict], **limits: int) -> list[str]:
    args = TrainArguments(**{"max_source_length": 512, "max_target_length": 128, **limits})
    pairs = {"train": Dataset.from_list(train), "validation": Dataset.from_list(validation)}
    tokenizer.model_max_length = args.max_source_length
    encoded = encode_pairs(pairs["train"], tokenizer, args.max_target_length)
    return list(find_warnings(pairs, encoded, args))


def test_words_are_counted(tokenizer: CopyNetTokenizer) -> None:
    rows = [
        {"text": "please call zoe or kim now", "summary": "call zoe"},  # zoe, or and kim are unseen
        {"text": "call now", "summary": "call bob"},  # bob cannot be written
    ]
    text = describe_words(encode_pairs(Dataset.from_list(rows), tokenizer), len(tokenizer), 3)
    assert text.startswith("3 words of the sources (37.5 %) are not in the vocabulary; the targets have 1 such words")
    assert ", and 1 that are not in their source either" in text


def test_good_pairs_have_no_warnings(tokenizer: CopyNetTokenizer) -> None:
    assert warnings(tokenizer, PAIRS[:15], PAIRS[15:]) == []


def test_validation_texts_of_the_training_file_are_reported(tokenizer: CopyNetTokenizer) -> None:
    (warning,) = warnings(tokenizer, PAIRS, [*PAIRS[:3], {"text": "other", "summary": "call"}])
    assert warning.startswith("3 of 4 validation texts are training texts too")


def test_truncated_targets_are_reported(tokenizer: CopyNetTokenizer) -> None:
    (warning,) = warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_target_length=3)  # two words and the end symbol
    assert warning.startswith("15 of 15 targets have 3 words or more")
    assert warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_target_length=4) == []


def test_truncated_sources_are_reported(tokenizer: CopyNetTokenizer) -> None:
    (warning,) = warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_source_length=6)  # all of them
    assert warning.startswith("15 of 15 sources have 6 words or more, and what is beyond is neither read nor copied")
    assert warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_source_length=7) == []


def test_swapped_columns_are_reported(tokenizer: CopyNetTokenizer) -> None:
    swapped = [{"text": f"name{n}", "summary": f"please call somebody else, {n}, and be quick"} for n in range(10)]
    (warning,) = warnings(tokenizer, swapped, PAIRS[15:])
    assert "--text_column and --summary_column are not swapped" in warning


@pytest.mark.parametrize(("outer", "inner"), [("text", "summary"), ("summary", "text")])
def test_pairs_that_contain_each_other_are_reported(tokenizer: CopyNetTokenizer, outer: str, inner: str) -> None:
    names = {"text": "source", "summary": "target"}
    train = [{outer: f"a {n} b", inner: f"{n} b"} for n in range(10)]
    (warning,) = warnings(tokenizer, train, PAIRS)
    assert warning == f"100 % of the pairs have the {names[inner]} inside the {names[outer]}"
