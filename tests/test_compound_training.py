"""Training with compound copies: versions of a pair, the share of each epoch, the evaluation of augmented pairs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from helpers import SIZES, trained, training_arguments
from test_compound_copies import calls, train
from transformers import TrainerCallback

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.arguments import TrainArguments
from copynet_hf.model.prediction import predict
from copynet_hf.training import compound_copies
from copynet_hf.training.compound_copies import add_compounds, count_versions, take_compounds
from copynet_hf.training.dataset import encode_pairs
from copynet_hf.training.trainer import CopyNetTrainer, EpochSampler


def make_trainer(
    folder: Path, splits: dict[str, Dataset], share: float, *, mechanism: str = "copynet", **more: Any
) -> CopyNetTrainer:
    """A trainer of a new model, which draws this share of augmented pairs, with more arguments of the library's."""
    tokenizer = train(splits["train"])
    config = CopyNetConfig.for_tokenizer(tokenizer, copy_mechanism=mechanism, **SIZES)
    args = training_arguments(folder, **more)
    model = CopyNetForConditionalGeneration(config)
    return CopyNetTrainer(model, tokenizer, splits, args, TrainArguments(compound_copies=share))


@pytest.mark.parametrize("mechanism", ["copynet", "pointer_generator", "none"])
def test_the_training_pairs_alone_change_and_only_where_the_model_copies(mechanism: str, tmp_path: Path) -> None:
    pairs = calls(50)
    trainer = make_trainer(tmp_path, {"train": pairs, "validation": pairs}, 0.9, mechanism=mechanism)
    same = encode_pairs(pairs, trainer.processing_class)["labels"]
    assert list(trainer.eval_dataset["labels"]) == list(same)
    loader = trainer.get_train_dataloader()
    rows = [row for batch in loader.batch_sampler for row in batch]
    of_pair = [row if row < len(pairs) else (row - len(pairs)) // 4 for row in rows]  # four versions of each
    assert sorted(of_pair) == [*range(len(pairs))]
    assert list(trainer.train_dataset["labels"]) == list(same)
    number = sum(loader.dataset[row]["labels"] != same[pair] for row, pair in zip(rows, of_pair, strict=True))
    assert number == 0 if mechanism == "none" else number > 30


def test_more_training_pairs_have_fewer_versions_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compound_copies, "MAX_AUGMENTED", 60)
    trainer = make_trainer(tmp_path, {"train": calls(30)}, 0.3)
    assert trainer.compounds is not None
    assert len(trainer.compounds) == 60
    assert max(row for batch in trainer.get_train_dataloader().batch_sampler for row in batch) < 90


def test_an_evaluation_tells_callbacks_of_its_own_pairs_and_builds_one_loader_for_augmented_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(tmp_path, dict.fromkeys(("train", "validation"), calls(30)), 0.3)
    monkeypatch.setattr("copynet_hf.training.trainer.measure_accuracy", lambda *_: {"sequence_accuracy": 100.0})
    seen: list[int] = []

    class Evaluations(TrainerCallback):
        def on_evaluate(self, *_: Any, eval_dataloader: Any, **__: Any) -> None:
            seen.append(len(eval_dataloader.dataset))

    trainer.add_callback(Evaluations())
    trainer.evaluate()
    number = len(trainer.accelerator._dataloaders)
    assert "eval_compound_accuracy" in trainer.evaluate()
    assert seen == [30, 30]
    assert len(trainer.accelerator._dataloaders) == number + 1  # that of the evaluation


def test_validation_compounds_are_pairs_that_change() -> None:
    pairs = Dataset.from_list([*calls(40), {"text": "Call at", "summary": "from"}])
    tokenizer = train(pairs)
    compounds = take_compounds(pairs, tokenizer, 9, None)
    assert compounds is not None
    assert len(compounds) == 9
    assert {row["text"] for row in compounds}.isdisjoint(pairs["text"])
    assert take_compounds(pairs.select([40]), tokenizer, 9, None) is None
    few = take_compounds(pairs.select([0, 1, 2, 40]), tokenizer, 20, None)  # of few pairs, several versions
    assert few is not None
    assert len({row["text"] for row in few}) == len(few) > 9
    assert take_compounds(pairs, train(pairs, segmenter="whitespace"), 9, None) is None
    assert take_compounds(pairs.add_column("features", [["a"]] * 41), tokenizer, 9, None) is None


@pytest.mark.parametrize("is_stream", [False, True])
def test_other_columns_are_left_out_of_augmented_pairs(is_stream: bool) -> None:
    pairs = calls(20)
    tokenizer = train(pairs)
    numbered = pairs.add_column("id", list(range(20)))
    changed = add_compounds(numbered.to_iterable_dataset() if is_stream else numbered, tokenizer, 1.0, num_versions=3)
    assert list(changed) == list(add_compounds(pairs, tokenizer, 1.0, num_versions=3))
    assert list(take_compounds(numbered, tokenizer, 30) or ()) == list(take_compounds(pairs, tokenizer, 30) or ())


def test_versions_of_a_pair_follow_each_other_and_are_the_same_in_each_run() -> None:
    pairs = calls(20)
    tokenizer = train(pairs)
    changed = add_compounds(pairs, tokenizer, 1.0, num_versions=3)
    assert len(changed) == 60
    assert list(changed) == list(add_compounds(pairs, tokenizer, 1.0, num_versions=3))
    assert list(changed)[::3] == list(add_compounds(pairs, tokenizer, 1.0))
    for row, pair in enumerate(pairs):
        versions = [changed[3 * row + version]["text"] for version in range(3)]
        assert len({*versions}) > 1
        assert all(text.split()[0] == pair["text"].split()[0] for text in versions)


@pytest.mark.parametrize(
    ("num_pairs", "expected"), [(0, 4), (100, 4), (700, 4), (800, 3), (1000, 2), (1600, 2), (1700, 1), (10_000, 1)]
)
def test_few_pairs_have_more_versions(num_pairs: int, expected: int) -> None:
    assert count_versions(num_pairs) == expected


def test_an_evaluation_says_how_many_augmented_pairs_are_right_once_half_of_the_targets_are(
    tmp_path: Path,
) -> None:
    """Of a model that has learned to copy names of one word, with and without the augmentation."""
    pairs = Dataset.from_list([{"text": row["text"], "summary": row["text"].split()[1]} for row in calls(200)])
    wrong = {"text": "Call Nobody from Ulm", "summary": "Ulm"}  # all other targets are the second word of their text
    splits = {"train": pairs, "validation": Dataset.from_list([*pairs.select(range(29)), wrong])}
    schedule = {"learning_rate": 0.02, "num_train_epochs": 8, "seed": 1}
    shares = []
    for share in (0.0, 0.3):
        trainer = make_trainer(tmp_path / str(share), splits, share, **schedule)
        trainer.train()
        metrics = trainer.evaluate()
        assert metrics["eval_sequence_accuracy"] == pytest.approx(100 * 29 / 30)
        shares.append(metrics.get("eval_compound_accuracy"))
    assert shares[0] is None
    assert shares[1] > 50

    model, tokenizer = trainer.copynet, trainer.processing_class

    def evaluate(*validation: dict[str, str]) -> dict[str, float]:
        splits = {"train": pairs, "validation": Dataset.from_list([*validation])}
        again = CopyNetTrainer(model, tokenizer, splits, trainer.args, TrainArguments(compound_copies=share))
        return again.evaluate()

    metrics = evaluate(*pairs.select(range(29)))
    assert metrics["eval_sequence_accuracy"] == 100.0
    compounds = take_compounds(pairs.select(range(29)), tokenizer, 512, None)
    assert compounds is not None
    assert len(compounds) > 64
    outputs = predict(model, tokenizer, list(compounds["text"]), num_beams=1)
    right = sum(output.text == target for (output, *_), target in zip(outputs, compounds["summary"], strict=True))
    assert metrics["eval_compound_accuracy"] == pytest.approx(100 * right / len(compounds))
    assert 50 < metrics["eval_compound_accuracy"] < 100
    assert "eval_compound_accuracy" not in evaluate(*pairs.select(range(14)), *[wrong] * 16)  # fewer than half right


@pytest.mark.parametrize("lengths", [[1] * 400, [*range(1, 201), *range(201, 401)]])
def test_each_epoch_draws_its_share_of_second_versions(lengths: list[int]) -> None:
    epochs = iter((0, 0, 1))
    sampler = EpochSampler(8, lengths, 0, lambda: next(epochs), 0.3, 1)
    assert len(sampler) == 200
    orders = []
    for _ in range(3):
        rows = [*sampler]
        assert sorted(row % 200 for row in rows) == [*range(200)]
        assert 40 < sum(row >= 200 for row in rows) < 80
        orders.append(rows)
    assert orders[0] == orders[1]
    assert {row for row in orders[0] if row >= 200} != {row for row in orders[2] if row >= 200}
    if lengths[0] != lengths[1]:  # the longest version comes first, in its batch of about the same length
        assert lengths[orders[0][0]] == max(lengths[row] for row in orders[0])
    assert [*EpochSampler(8, lengths[:200], 0, lambda: 0)] == [*EpochSampler(8, lengths[:200], 0, lambda: 0, 0.3)]


def test_each_of_several_versions_of_a_pair_is_drawn() -> None:
    epochs = iter(range(200))
    # ten pairs, and four versions of each
    sampler = EpochSampler(4, [1] * 50, 0, lambda: next(epochs), 0.3, 4)
    assert len(sampler) == 10
    drawn: set[int] = set()
    for _ in range(200):
        rows = [*sampler]
        assert sorted(row if row < 10 else (row - 10) // 4 for row in rows) == [*range(10)]
        drawn.update(rows)
    assert drawn == {*range(50)}


def test_a_model_copies_shapes_that_no_pair_has() -> None:
    generator = random.Random(0)

    def word() -> str:
        return "".join(generator.choices("abcdefghijklm", k=6))

    def request(person: str) -> tuple[str, str]:
        hour = generator.choice(["noon", "midnight", "sunset"])
        return f"please call {person} at {hour}", f"called {person} at {hour}"

    pairs = [request(word()) for _ in range(1600)]
    model, tokenizer = trained(pairs, "word_punct")
    rows = Dataset.from_list([{"text": text, "summary": target} for text, target in pairs])
    compounds = [(row["text"], row["summary"]) for row in add_compounds(rows, tokenizer, 0.5)]
    shapes = ["{}", "{}-{}", "o’{}", "{} {}", "{}·{}", "{}*{}"]  # the last two marks are in no compound
    tests = {shape: [request(shape.format(word(), word())) for _ in range(20)] for shape in shapes}

    def count_right(model: CopyNetForConditionalGeneration) -> list[int]:
        outputs = [predict(model, tokenizer, [text for text, _ in each], max_new_tokens=20) for each in tests.values()]
        targets = [[target for _, target in each] for each in tests.values()]
        return [
            sum(output[0].text == target for output, target in zip(*each, strict=True))
            for each in zip(outputs, targets, strict=True)
        ]

    of_words, *of_shapes = count_right(model)
    assert of_words >= 18
    assert max(of_shapes) <= 2
    assert min(count_right(trained(compounds, "word_punct")[0])) >= 18
