"""Accuracy under teacher forcing is the exact match of greedy search, and the token accuracy of a slow loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from helpers import training_arguments
from transformers.trainer_utils import EvalPrediction

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.data import quickstart_pairs
from copynet_hf.evaluation.teacher_forcing import make_compute_accuracy
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.saved.loading import load_model
from copynet_hf.training.trainer import CopyNetTrainer

# Its target has a word that is neither in the vocabulary nor in the source: no output can be right.
UNREACHABLE = {"text": "remind bob", "summary": "zzyzx zzyzx"}


def count_right_words(
    model: CopyNetForConditionalGeneration, tokenizer: CopyNetTokenizer, pair: dict[str, str]
) -> int:
    """How many words of the target have the highest probability, one forward a word, on the prefix alone."""
    row = tokenizer([pair["text"]], text_target=[pair["summary"]], return_tensors="pt")
    labels = row["labels"][0].tolist()
    count = 0
    for step, label in enumerate(labels):
        prefix = torch.tensor([[model.config.decoder_start_token_id, *labels[:step]]])
        with torch.no_grad():
            logits = model(input_ids=row["input_ids"], decoder_input_ids=prefix).logits[0, -1]
        logits[model.config.unk_token_id] = -float("inf")
        count += int(logits.argmax()) == label
    return count


@pytest.fixture(scope="module")
def trained(quickstart: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[CopyNetTrainer, list[dict[str, str]]]:
    """A model that gets some of its validation pairs right."""
    model, tokenizer = load_model(str(quickstart / "model"), "cpu")
    validation = [*quickstart_pairs("validation", 11), UNREACHABLE]
    arguments = training_arguments(
        tmp_path_factory.mktemp("trained"),
        per_device_eval_batch_size=5,
        train_sampling_strategy="group_by_length",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    pairs = dict.fromkeys(("train", "validation"), Dataset.from_list(validation))
    return CopyNetTrainer(model, tokenizer, pairs, arguments, TrainArguments()), validation


def test_sequence_accuracy_is_the_exact_match_of_greedy_search(trained: Any) -> None:
    trainer, validation = trained
    metrics = trainer.evaluate()
    model, tokenizer = trainer.model.eval(), trainer.processing_class
    outputs = predict_in_batches(model, tokenizer, [pair["text"] for pair in validation])
    hits = sum(output[0].text == pair["summary"] for output, pair in zip(outputs, validation, strict=True))
    assert 0 < hits < len(validation)  # else the test says little
    assert metrics["eval_sequence_accuracy"] == pytest.approx(100 * hits / len(validation))


@pytest.mark.parametrize(("num_changed", "is_accepted"), [(2, True), (12, False)])
def test_targets_that_outputs_write_in_other_tokens_are_right(
    trained: Any, num_changed: int, is_accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = trained
    before = trainer.evaluate()["eval_sequence_accuracy"]

    def change(row: dict[str, Any], index: int) -> dict[str, Any]:
        """The first word of the target becomes one that no output has there."""
        first, *others = row["labels"]
        return {"labels": [4 if first != 4 else 5, *others] if index < num_changed else row["labels"]}

    changed = trainer.eval_dataset.map(change, with_indices=True)
    for other in (changed, changed.select(range(9))):  # pairs that are not those of the run
        assert trainer.evaluate(other)["eval_sequence_accuracy"] < before
    monkeypatch.setattr(trainer, "eval_dataset", changed)
    assert before > 66  # so that at most half are wrong after two more
    assert trainer.evaluate()["eval_sequence_accuracy"] == (before if is_accepted else 0)


def test_token_accuracy_agrees_with_one_forward_a_word(trained: Any) -> None:
    trainer, validation = trained
    model, tokenizer = trainer.model.eval(), trainer.processing_class
    right = [count_right_words(model, tokenizer, pair) for pair in validation]
    total = sum(len(tokenizer(text_target=[pair["summary"]])["input_ids"][0]) for pair in validation)
    assert 0 < sum(right) < total
    assert trainer.evaluate()["eval_token_accuracy"] == pytest.approx(100 * sum(right) / total)


def test_unk_in_a_target_is_wrong_and_rows_without_targets_do_not_count() -> None:
    predictions = torch.tensor([[5, 3, 2], [5, 6, 2], [5, 9, 9], [7, 7, 7]]).numpy()
    labels = torch.tensor([[5, 3, 2], [5, 6, 2], [5, 2, -100], [-100, -100, -100]]).numpy()
    scores = make_compute_accuracy(unk_token_id=3)(EvalPrediction(predictions=predictions, label_ids=labels))
    expected = {"mean_accuracy": (100 / 3 + 75) / 2, "sequence_accuracy": 100 / 3, "token_accuracy": 75}
    assert scores == pytest.approx(expected)


def test_no_rows_have_accuracy_zero() -> None:
    empty = torch.zeros(0, 3, dtype=torch.long).numpy()
    scores = make_compute_accuracy(unk_token_id=None)(EvalPrediction(predictions=empty, label_ids=empty))
    assert scores == {"mean_accuracy": 0.0, "sequence_accuracy": 0.0, "token_accuracy": 0.0}
