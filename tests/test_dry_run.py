"""`copynet-hf train --dry_run` says what would be trained, measures some updates and writes nothing."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import write_rows
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

from copynet_hf.arguments import TrainArguments
from copynet_hf.training import callbacks
from copynet_hf.training.callbacks import LogTable, TimeEstimate, _format_duration
from copynet_hf.training.dataset import read_training_pairs
from copynet_hf.training.run import train_from_arguments
from copynet_hf.training.trainer import CopyNetTrainer

SMALL = {"embedding_size": 4, "hidden_size": 6, "encoder_hidden_size": 3, "attention_size": 4, "report_to": "none"}


@pytest.fixture
def arguments(tmp_path: Path) -> dict:
    files = {}
    for split, numbers in {"train": range(200), "validation": range(190, 210)}.items():
        rows = [{"number": n, "text": f"please call the man name{n} now", "summary": f"call name{n}"} for n in numbers]
        files[f"{split}_file"] = write_rows(tmp_path / f"{split}.jsonl", rows)
    return SMALL | files


def test_a_dry_run_describes_the_run_and_writes_nothing(
    arguments: dict, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="copynet_hf")
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert train_from_arguments({**arguments, "dry_run": True, "output_dir": "model"}) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    text = caplog.text
    assert "segmenter is word_punct, as guessed" in text
    assert "validation pairs: of 40 words of the targets, 50.0 % known, 50.0 % copied\n" in text
    assert re.search(r"model: copynet, [\d,]+ parameters, a vocabulary of \d+ words \(segmenter word_punct\)", text)
    assert re.search(r"training: 200 pairs, [\d,]+ updates of \d+ pairs, [\d.]+ epochs", text)
    assert "train_loss" not in text
    assert re.search(r"ms an update: about \d+ (seconds|minutes) for [\d,]+ updates, .*; nothing was written", text)
    assert "warning: 10 of 20 validation texts are training texts too" in text


def test_a_dry_run_reports_to_no_one(arguments: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "init_hf_repo", lambda *_, **__: pytest.fail("a repository was created"))
    made: list[Trainer] = []
    monkeypatch.setattr(CopyNetTrainer, "train", lambda trainer: made.append(trainer))
    outside = {"push_to_hub": True, "hub_model_id": "user/model", "report_to": "all"}
    assert train_from_arguments({**arguments, **outside, "dry_run": True, "output_dir": "model"}) == {}
    assert made[0].args.report_to == []


def test_a_training_says_the_same(arguments: dict, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="copynet_hf")
    train_from_arguments(
        {**arguments, "output_dir": str(tmp_path / "model"), "max_steps": 30, "eval_steps": 15, "logging_steps": 20}
    )
    assert re.search(r"training: 200 pairs, 30 updates of \d+ pairs, [\d.]+ epochs", caplog.text)
    assert "; the checkpoint that is best on the validation pairs, by mean_accuracy, is kept" in caplog.text
    assert re.search(r"for the other 8 updates, \d+ seconds for 1 evaluation\n", caplog.text)  # after 2 + 20 of 30
    (header,) = (message for message in caplog.messages if "eval_loss" in message)
    names = "step loss eval_loss mean_accuracy sequence_accuracy token_accuracy copy_mode_fraction unk_rate"
    assert " ".join(header.split()) == names
    rows = [message for message in caplog.messages if re.fullmatch(r"( *[\d.e+-]+){8}", message)]
    assert [row.split()[0] for row in rows] == ["15", "30"]
    assert {len(row) for row in rows} == {len(header)}
    # the highest accuracy, and of several such, without augmented pairs, the lowest loss
    best = max(map(str.split, rows), key=lambda row: (float(row[3]), -float(row[2])))
    assert caplog.messages[-1] == f"the checkpoint of step {best[0]} is kept"


def test_an_evaluation_without_a_training_loss_before_it_shows_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="copynet_hf")
    table, args, state = LogTable(), TrainingArguments(eval_strategy="steps", eval_steps=1), TrainerState()
    for logs in ({"loss": 0.5}, {"eval_loss": 0.4}, {"eval_loss": 0.3}):
        table.on_log(args, state, TrainerControl(), logs=logs)
    assert [message.split() for message in caplog.messages[1:]] == [["0", "0.5", "0.4"], ["0", "-", "0.3"]]


def test_a_score_that_an_evaluation_lacks_is_a_blank_in_the_table(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="copynet_hf")
    table, args, state = LogTable(), TrainingArguments(eval_strategy="steps", eval_steps=1), TrainerState()
    for logs in (
        {"eval_loss": 0.4},
        {"eval_loss": 0.3, "eval_x": 5.0},
        {"eval_loss": 0.2},
        {"eval_loss": 0.1, "eval_x": 6.0},
    ):
        table.on_log(args, state, TrainerControl(), logs=logs)
    rows = [["step", "loss", "eval_loss"], ["0", "-", "0.4"], ["step", "loss", "eval_loss", "x"]]
    rows += [["0", "-", "0.3", "5"], ["0", "-", "0.2"], ["0", "-", "0.1", "6"]]
    assert [message.split() for message in caplog.messages] == rows


@pytest.mark.parametrize("limit", [None, 1])
def test_the_columns_of_all_files_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int | None
) -> None:
    files = {f"{split}_file": str(tmp_path / f"{split}.csv") for split in ("train", "validation", "test")}
    for path in files.values():
        Path(path).write_text("Body ,Reply\na,b\nc,d\n")
    caplog.set_level(logging.INFO, logger="copynet_hf")
    options: dict[str, Any] = {"text_column": "body", "summary_column": "reply", "max_eval_samples": limit}
    pairs = read_training_pairs(TrainArguments(**files, **options))
    assert [len(pairs[split]) for split in ("train", "validation", "test")] == [2, limit or 2, limit or 2]
    assert len(caplog.messages) == (1 if limit is None else 2)  # those that are streamed have one of their own
    assert caplog.messages[-1].endswith("test.csv: text is column 'Body ', summary is column 'Reply'")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 seconds"), (89, "89 seconds"), (90, "2 minutes"), (5399, "90 minutes"), (9000, "2.5 hours")]
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert _format_duration(seconds) == text


def test_estimates_tell_evaluations_from_updates_and_leave_out_checkpoints(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Updates of 10 ms, every third followed by an evaluation of a second and a checkpoint of half a second."""
    caplog.set_level(logging.INFO, logger="copynet_hf")
    clock, estimate, args = [0.0], TimeEstimate(), TrainingArguments("x", eval_strategy="steps", eval_steps=3)
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: clock[0])
    state, control = TrainerState(max_steps=9022), TrainerControl()
    estimate.on_train_begin(args, state, control)
    for step in range(1, 23):
        clock[0], state.global_step = clock[0] + 0.01, step
        estimate.on_step_end(args, state, control)
        if step % 3 == 0:
            clock[0] += 1.0
            estimate.on_evaluate(args, state, control)
            clock[0] += 0.5
            estimate.on_save(args, state, control)
    expected = "10 ms an update: about 90 seconds for the other 9,000 updates, 50 minutes for 3,001 evaluations"
    assert expected in caplog.messages  # one of them at the last update


@pytest.mark.parametrize(("strategy", "first"), [("epoch", 3), ("steps", 0)])
def test_estimates_leave_out_evaluations_of_epochs_and_one_before_the_first_update(
    strategy: str, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="copynet_hf")
    args = TrainingArguments("x", eval_strategy=strategy, eval_steps=3, eval_on_start=not first)
    state, control, estimate = TrainerState(max_steps=9022), TrainerControl(), TimeEstimate()
    for state.global_step in range(23):
        if state.global_step:
            estimate.on_step_end(args, state, control)
        if state.global_step == first:
            estimate.on_evaluate(args, state, control)
    assert "for the other 9,000 updates, evaluations not included" in caplog.text
