"""What a training run says about its data before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset
from transformers import TrainingArguments

from copynet_hf import CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.training.data_report import check_pointed_at, describe_training, describe_words, find_warnings
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
    encoded = {split: encode_pairs(rows, tokenizer, args.max_target_length) for split, rows in pairs.items()}
    return list(find_warnings(pairs, encoded, args))


def test_words_are_counted_by_how_they_are_reached() -> None:
    texts = ["call now a b c d e f g h o s z . , file"] * 3
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 500, "word_punct", min_frequency=3, chains=True)
    rows = [
        {"text": "please call Zoe now", "summary": "call Zoe, ZOE"},  # known, copied, joined to it, in another case
        {"text": "16,258 now", "summary": "16258 files facade bad Kim"},  # joined, joined, spelled, spelled, unknown
    ]
    text = describe_words(Dataset.from_list(rows), tokenizer)
    assert text.startswith(
        "of 9 words of the targets, 11.1 % known, 11.1 % copied, 44.4 % joined, 22.2 % spelled, 11.1 % unknown; "
        "spelled, at least in part, or unknown are 'facade', 'bad', 'Kim': "
    )
    assert describe_words(Dataset.from_list(rows[:1]), tokenizer).endswith(
        "25.0 % known, 25.0 % copied, 50.0 % joined"
    )


def test_what_helps_where_numbers_are_made_up_is_said() -> None:
    tokenizer = CopyNetTokenizer.train_from_iterator([["after"]] * 3, 500, "word_punct", is_split_into_words=True)
    rows = [{"text": f"after {number}", "summary": f"after {number + 1}"} for number in range(1000, 1100)]
    assert "--segmenter word_digits" in describe_words(Dataset.from_list(rows), tokenizer)


def test_unknown_characters_are_not_advised_to_be_letters() -> None:
    tokenizer = CopyNetTokenizer.train_from_iterator(["索引"], 500, "char")
    assert describe_words(Dataset.from_list([{"text": "索引", "summary": "學學"}]), tokenizer) == (
        "of 2 words of the targets, 100.0 % unknown; spelled, at least in part, or unknown are '學': more pairs with "
        "such characters, a larger --vocab_size or a lower --min_frequency make them known"
    )


@pytest.mark.parametrize(
    ("epochs", "shown"), [(1, "2 updates of 8 pairs, 1 epochs"), (1500, "3,000 updates of 8 pairs, 1,500 epochs")]
)
def test_a_plan_counts_epochs_in_digits(tmp_path: Path, epochs: int, shown: str) -> None:
    args = TrainingArguments(str(tmp_path), per_device_train_batch_size=8, num_train_epochs=epochs, use_cpu=True)
    assert describe_training(16, args, has_validation=False) == (
        f"16 pairs, {shown}; without validation pairs, the last model is kept, whose confidence is not calibrated"
    )
    for minutes, limit in ((2.5, "2.5 minutes"), (1.0, "1 minute")):
        assert f"{shown}, but at most {limit}; without" in describe_training(16, args, False, max_minutes=minutes)


def test_good_pairs_have_no_warnings(tokenizer: CopyNetTokenizer) -> None:
    assert warnings(tokenizer, PAIRS[:15], PAIRS[15:]) == []


def test_validation_texts_of_the_training_file_are_reported(tokenizer: CopyNetTokenizer) -> None:
    (warning,) = warnings(tokenizer, PAIRS, [*PAIRS[:3], {"text": "other", "summary": "call"}])
    assert warning.startswith("3 of 4 validation texts are training texts too")


@pytest.mark.parametrize(
    ("column", "cells"), [("features", ["V", "N"]), ("facts", [["a", "b", "1"], ["a", "b", "2"]])]
)
def test_a_text_with_other_facts_or_features_is_another_text(column: str, cells: list[object]) -> None:
    rows = [{"text": "call me at 10 now", "summary": "ring", column: [cell]} for cell in cells]
    tokenizer = CopyNetTokenizer.train_from_iterator(["call me at 10 now ring"], 20, features=["V", "N"])
    assert warnings(tokenizer, rows[:1], rows[1:]) == []
    plain = {name: rows[0][name] for name in ("text", "summary")}
    for train, validation in (
        (rows, rows[1:]),
        ([plain | {column: []}], [plain | {column: None}]),
        ([plain], [plain | {column: []}]),
    ):
        (warning,) = warnings(tokenizer, train, validation)
        assert warning.startswith("1 of 1 validation texts are training texts too")


@pytest.mark.parametrize("streams", [False, True])
def test_validation_texts_are_looked_for_in_all_training_texts(tokenizer: CopyNetTokenizer, streams: bool) -> None:
    rows = [{"text": f"call {number} now", "summary": f"call {number}"} for number in range(12_000)]
    train, validation = Dataset.from_list(rows), Dataset.from_list(rows[:6000:6])
    pairs = {"train": train.to_iterable_dataset() if streams else train, "validation": validation}
    encoded = {split: encode_pairs(validation.select(range(9)), tokenizer) for split in pairs}
    args = TrainArguments(max_source_length=9, max_target_length=9)
    (found,) = (each for each in find_warnings(pairs, encoded, args) if "texts too" in each)
    if streams:
        assert found.startswith("834 of 1,000 validation texts are of the first 5,000 training texts too")
    else:
        assert found.startswith("1,000 of 1,000 validation texts are training texts too")


def test_targets_that_a_pointer_cannot_write_are_named() -> None:
    rows = [{"text": "a1 b2 c3", "summary": "b2 a1"}, {"text": "d4 e5", "summary": "e5 a1"}, PAIRS[0]]
    texts = (text for row in rows for text in (row["text"], row["summary"]))
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 100, segmenter="whitespace")
    pairs = Dataset.from_list(rows)
    encoded = encode_pairs(pairs, tokenizer)
    check_pointed_at(pairs.select([0, 2]), encoded.select([0, 2]), "train", tokenizer)
    expected = (
        "1 of 3 validation targets have words that are not in their sources, as these are read, and copy_mechanism="
    )
    with pytest.raises(
        ValueError, match=f"{expected}'pointer' writes no others; the first is 'e5 a1', for the text 'd4 e5'"
    ):
        check_pointed_at(pairs, encoded, "validation", tokenizer)


def test_of_many_targets_a_sample_is_described(tokenizer: CopyNetTokenizer) -> None:
    pairs = Dataset.from_list([PAIRS[0]] * 6000)
    assert describe_words(pairs, tokenizer).startswith("of 10,000 words of 5,000 targets, ")
    assert describe_words(pairs.select([0]), tokenizer).startswith("of 2 words of the targets, ")


@pytest.mark.parametrize("facts", [[], [["Otto", "born", "1931"]]], ids=["none", "some"])
def test_retrieval_without_facts_is_reported(facts: list[list[str]]) -> None:
    pairs = {"train": Dataset.from_list([pair | {"facts": facts} for pair in PAIRS])}
    found = list(find_warnings(pairs, {}, TrainArguments(), retrieves=True))
    expected = "copy_mechanism is 'retrieval', and no training pair that was looked at has facts: "
    assert [each[: len(expected)] for each in found] == [expected] * (not facts)
    pairs["validation"] = Dataset.from_list([{**PAIRS[0], "summary": "another", "facts": []}])
    *_, last = [each for each in find_warnings(pairs, {}, TrainArguments(), retrieves=True) if "facts" in each]
    assert last.startswith("copy_mechanism is 'retrieval', and no validation pair that was looked at has facts: ")


def test_truncated_targets_are_reported(tokenizer: CopyNetTokenizer) -> None:
    first, second = warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_target_length=3)  # two words and the end symbol
    assert first.startswith("15 of 15 training targets have 3 words or more")
    assert second.startswith("5 of 5 validation targets have 3 words or more")
    assert warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_target_length=4) == []


def test_truncated_sources_are_reported(tokenizer: CopyNetTokenizer) -> None:
    warning, _ = warnings(tokenizer, PAIRS[:15], PAIRS[15:], max_source_length=6)  # all of them
    assert warning.startswith(
        "15 of 15 training sources have 6 words or more, and what is beyond is neither read nor "
    )
    one = {"text": "one of them is long " * 3, "summary": "call"}
    (warning,) = warnings(tokenizer, [*PAIRS[:15], one], PAIRS[15:], max_source_length=7)
    assert warning.startswith("1 of 16 training sources have 7 words or more")
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


def test_words_of_another_form_than_in_their_source_are_reported(tokenizer: CopyNetTokenizer) -> None:
    names = ("Kova\u0301cs", "Kov\u00e1cs")
    pairs = [{"text": f"{n} {name}", "summary": f"to {name}"} for n, name in enumerate(names * 10)]
    assert warnings(tokenizer, pairs, PAIRS[:1]) == []
    turned = [{**pair, "summary": f"to {other}"} for pair, other in zip(pairs, names[::-1] * 5, strict=False)]
    (warning,) = warnings(tokenizer, turned + pairs[10:], PAIRS[:1])
    fields = [{**pair, "summary": f"{{name={pair['summary'][3:]};}}"} for pair in turned]
    assert warnings(tokenizer, fields + pairs[10:], PAIRS[:1]) == [warning]
    assert warning.startswith(
        "10 of 20 targets have letters that look like those of their source, but are composed of"
    )
    inflected = [{"text": f"{n} {name}nak", "summary": f"{name}tól"} for n, name in enumerate(names * 10)]
    assert warnings(tokenizer, inflected, PAIRS[:1]) == []
    turned = [{**pair, "summary": f"{name}tól"} for pair, name in zip(inflected, names[::-1] * 10, strict=True)]
    (warning,) = warnings(tokenizer, turned, PAIRS[:1])
    assert warning.startswith("20 of 20 targets have letters")
    nukta = [{"text": f"\u095e\u093f\u0932\u094d\u092e {n}", "summary": f"\u092b\u0932 {n}"} for n in range(20)]
    assert warnings(tokenizer, nukta, PAIRS[:1]) == []  # NFC writes U+095E as two characters
    longer = [{"text": f"{n} Kova\u0301cs", "summary": f"{n} items"} for n in range(20)]  # one side has more accents
    assert warnings(tokenizer, longer, PAIRS[:1]) == []
