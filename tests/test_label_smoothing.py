"""Label smoothing in `copynet-hf train`: over the vocabulary, in training only, by default."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import POINTER, padded, sources, tiny_model, training_arguments, write_rows
from transformers import DefaultDataCollator, Seq2SeqTrainer
from transformers.trainer_pt_utils import LabelSmoother

from copynet_hf import CopyNetConfig
from copynet_hf.training.defaults import choose_label_smoothing
from copynet_hf.training.label_smoothing import VocabularyLabelSmoother
from copynet_hf.training.run import TrainingRun, train_from_arguments

RESTRICTED = {"copy_mechanism": "gated", "gate_loss_weight": 0.0, "aligned_words": 2, "frequent_words": 5}
SIZES = {"embedding_size": 4, "hidden_size": 6, "encoder_hidden_size": 3, "attention_size": 4, "dropout": 0}


@pytest.mark.parametrize("num_items", [None, 10])
def test_the_loss_is_the_sum_over_the_words_of_the_vocabulary(num_items: int | None) -> None:
    torch.manual_seed(0)
    log_probs = torch.randn(2, 3, 9, dtype=torch.float64).log_softmax(-1)  # 6 words and 3 slots
    labels = torch.tensor([[4, 8, -100], [5, -100, -100]])
    total = 0.0
    for row, step, word in ((0, 0, 4), (0, 1, 8), (1, 0, 5)):
        at_step = log_probs[row, step].tolist()
        total += -0.7 * at_step[word] - 0.3 * sum(at_step[:6]) / 6
    loss = VocabularyLabelSmoother(epsilon=0.3, vocab_size=6, unk_token_id=3)(
        {"logits": log_probs}, labels, num_items_in_batch=num_items
    )
    assert loss.item() == pytest.approx(total / (num_items or 3))


@pytest.mark.parametrize("mechanism", ["none", "copynet"])
@torch.no_grad()
def test_a_slot_that_the_row_does_not_own_is_unk_as_in_the_models_loss(mechanism: str) -> None:
    model, inputs = tiny_model(copy_mechanism=mechanism), sources()
    labels = padded([[13, 5, 14, 2], [14, 13, 2], [16, 7, 2], [16, 15, 2]], -100)
    output = model(**inputs, labels=labels)
    smoother = VocabularyLabelSmoother(epsilon=0.0, vocab_size=13, unk_token_id=3)
    assert smoother(output, labels).item() == pytest.approx(output.loss.item(), rel=1e-5)


def list_arguments(folder: Path, text: str, **arguments: Any) -> dict[str, Any]:
    """Of a run of one step, with these of its own."""
    fixed = {
        "train_file": write_rows(folder / "pairs.jsonl", 4 * [{"text": text, "summary": text}]),
        "output_dir": str(folder / "model"),
        "overwrite_output_dir": True,
        "max_steps": 1,
        "save_strategy": "no",
        "max_target_length": 20,
        "use_cpu": True,
    }
    return SIZES | fixed | arguments


def test_labels_are_smoothed_by_default(tmp_path: Path) -> None:
    for given, expected in (({}, 0.1), ({"label_smoothing_factor": 0.2}, 0.2)):
        run = TrainingRun(list_arguments(tmp_path, "please walk home", **given))
        run.set_up()
        assert run.trainer.args.label_smoothing_factor == expected


def test_the_labels_of_a_pretrained_encoder_decoder_are_not_smoothed() -> None:
    assert choose_label_smoothing(None, CopyNetConfig(vocab_size=20)) > 0
    assert choose_label_smoothing(None, CopyNetConfig(vocab_size=20), is_pretrained=True) == 0
    assert choose_label_smoothing(0.2, CopyNetConfig(vocab_size=20), is_pretrained=True) == 0.2


@pytest.mark.parametrize(
    "fields",
    [
        {"copy_mechanism": "gated"},
        {"copy_mechanism": "gated", "gated_loss": "summed"},
        {"use_coverage": True, "coverage_loss_weight": 1.0},
    ],
)
def test_the_librarys_trainer_does_not_drop_another_loss(fields: dict[str, Any], tmp_path: Path) -> None:
    """With label smoothing it takes the labels from the model's inputs."""
    model, targets = tiny_model(**fields), {"labels": [[4, 2]] * 4, "decoder_input_ids": [[1, 4]] * 4}
    columns = sources() | {name: torch.tensor(ids) for name, ids in targets.items()}
    rows = [{name: tensor[row] for name, tensor in columns.items()} for row in range(4)]
    args = training_arguments(tmp_path, max_steps=1, label_smoothing_factor=0.1)
    trainer = Seq2SeqTrainer(model, args, train_dataset=rows, data_collator=DefaultDataCollator())
    with pytest.raises(ValueError, match=r"_loss\w* is \S+, but with label_smoothing_factor"):
        trainer.train()
    model.config.gate_loss_weight = model.config.coverage_loss_weight = 0.0
    model.config.gated_loss = "mixture"
    trainer.train()


@pytest.mark.parametrize("is_smoothed", [True, False])
@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"copy_mechanism": "none"}, 13),
        (RESTRICTED, 8),  # neither frequent, nor aligned with a word of the source, nor in it
        (POINTER, 12),
        (POINTER, 3),
        ({}, 15),  # a slot of other sources
    ],
)
def test_the_librarys_trainer_does_not_learn_words_that_cannot_be_written(
    fields: dict[str, Any], word: int, is_smoothed: bool, tmp_path: Path
) -> None:
    """With label smoothing, or a loss of the user's, it takes the labels away and looks them up in the logits."""
    args = training_arguments(tmp_path, max_steps=1, label_smoothing_factor=0.1 * is_smoothed)
    loss = None if is_smoothed else LabelSmoother(0.0)

    def train_on(target: list[int]) -> None:
        row = {"input_ids": [5, 13, 6], "labels": target, "decoder_input_ids": [1, *target[:-1]]}
        model, collator = tiny_model(**fields), DefaultDataCollator()
        Seq2SeqTrainer(model, args, train_dataset=[row], data_collator=collator, compute_loss_func=loss).train()

    with pytest.raises(ValueError, match=rf"\[0, 2\] is {word}, which this model cannot write"):
        train_on([5, word, 2])
    train_on([5, 6, 2])


def test_the_factor_decays_to_zero_in_the_training_and_with_the_mistakes(tmp_path: Path) -> None:
    losses: dict[tuple[float, int, float], float] = {}
    for factor in (0.0, 0.1, 0.2, 0.4):
        run = TrainingRun(list_arguments(tmp_path, "walk", label_smoothing_factor=factor, guided_attention=0.0))
        run.set_up()
        trainer = run.trainer
        batch = trainer.data_collator([trainer.train_dataset[0]])
        trainer.model.train()
        trainer.state.max_steps = 100
        for step, accuracy in ((0, 0.0), (50, 0.0), (100, 0.0), (50, 50.0), (50, 100.0)):
            trainer.state.global_step = step
            trainer.state.log_history += [{"eval_sequence_accuracy": accuracy, "step": 0}, {"loss": 1.0}]
            losses[factor, step, accuracy] = trainer.compute_loss(trainer.model, dict(batch)).item()
    own = losses[0.0, 0, 0]
    assert losses[0.1, 0, 0] > 1.001 * own
    assert losses[0.4, 50, 0] == pytest.approx(losses[0.2, 0, 0], rel=1e-4)
    assert losses[0.4, 50, 50] == pytest.approx(losses[0.1, 0, 0], rel=1e-4)
    assert losses[0.4, 100, 0] == losses[0.4, 50, 100] == pytest.approx(own, rel=1e-5)


def test_evaluations_are_not_smoothed(tmp_path: Path) -> None:
    fields = {"learning_rate": 0, "validation_file": str(tmp_path / "pairs.jsonl")}
    scores = [
        train_from_arguments(list_arguments(tmp_path, "walk", label_smoothing_factor=factor, **fields))
        for factor in (0.0, 0.5)
    ]
    assert scores[0]["eval_loss"] == pytest.approx(scores[1]["eval_loss"], rel=1e-5)
    assert scores[0]["train_loss"] != pytest.approx(scores[1]["train_loss"], rel=1e-3)


@pytest.mark.parametrize(
    "fields", [{"copy_mechanism": "gated"}, {"use_coverage": True, "coverage_loss_weight": 1.0}, POINTER], ids=str
)
def test_the_default_drops_no_other_loss(fields: dict[str, Any]) -> None:
    config = CopyNetConfig(vocab_size=20, **fields)
    assert choose_label_smoothing(None, config) == 0
    with nullcontext() if fields is POINTER else pytest.raises(ValueError, match=r"ignores \w+_loss_weight"):
        choose_label_smoothing(0.1, config)
