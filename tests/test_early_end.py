"""When a training ends and which checkpoint it keeps: accuracy, patience, time limit; its progress bars."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import SIZES, write_requests, write_rows
from transformers import Seq2SeqTrainingArguments, TrainerControl, TrainerState

from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model
from copynet_hf.training.callbacks import EarlyEnd, SilentProgress, TimeLimit, find_end, is_better
from copynet_hf.training.run import train_from_arguments


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """And a limit on the outputs, which untrained models write to the end."""
    return write_requests(tmp_path_factory.mktemp("pairs"), train=16, validation=8) | {"max_target_length": 8}


def test_early_stopping_needs_a_best_checkpoint(files: dict[str, Any], tmp_path: Path) -> None:
    arguments = {**files, **SIZES, "output_dir": str(tmp_path / "a"), "early_stopping_patience": 3}
    for given, reason in (
        ({"validation_file": None}, "there are no validation pairs: pass --validation_file"),
        ({"eval_strategy": "no"}, "no best checkpoint is kept: leave out --eval_strategy, "),
        ({"save_strategy": "no"}, "no best checkpoint is kept: leave out --eval_strategy, "),
    ):
        with pytest.raises(ValueError, match=f"--early_stopping_patience is 3, but {reason}"):
            train_from_arguments(arguments | given)
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").glob("checkpoint-*"))


def test_early_stopping_counts_the_evaluations_before_a_resumed_run(files: dict[str, Any], tmp_path: Path) -> None:
    arguments = {**files, **SIZES, "output_dir": str(tmp_path / "a"), "eval_steps": 1, "learning_rate": 1e-12}
    arguments |= {"save_total_limit": 2}
    train_from_arguments({**arguments, "max_steps": 2})
    more = {"resume_from_checkpoint": "auto", "max_steps": 20, "early_stopping_patience": 3}
    train_from_arguments(arguments | more)
    assert read_state(tmp_path / "a")["global_step"] == 4  # the first evaluation is the best one, three others follow


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run that soon has all validation targets right."""
    folder = tmp_path_factory.mktemp("easy")
    rows = [{"text": text, "summary": "yes"} for text in ("is it on", "are we in", "do you so", "am i up")]
    files = {f"{split}_file": write_rows(folder / f"{split}.jsonl", rows) for split in ("train", "validation")}
    every_75th = {"eval_steps": 1 / 4, "save_steps": 1 / 4}
    schedule = {"max_steps": 300, "save_total_limit": 9, "learning_rate": 0.05, **every_75th}
    return {**files, **SIZES, **schedule, "segmenter": "whitespace", "max_target_length": 4}


@pytest.fixture(scope="module")
def ended(task: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of this run, which ended early."""
    folder = tmp_path_factory.mktemp("ended") / "model"
    train_from_arguments(task | {"output_dir": str(folder)})
    return folder


@pytest.fixture
def easy(task: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The arguments of this run, with a folder of its own."""
    return task | {"output_dir": str(tmp_path / "model")}


def read_state(folder: str | Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(Path(folder, "trainer_state.json").read_text("utf-8"))
    return state


def find_full_accuracy(state: dict[str, Any]) -> list[int]:
    """The steps of the evaluations in which all targets were right."""
    return [logs["step"] for logs in state["log_history"] if logs.get("eval_sequence_accuracy") == 100]


def test_a_training_ends_when_all_targets_were_right_three_times(ended: Path) -> None:
    state = read_state(ended)
    full = find_full_accuracy(state)
    assert len(full) == 3
    assert full[-1] == state["global_step"] < 300
    assert state["best_global_step"] == full[-1]  # with the lowest loss of the three
    model, tokenizer = load_model(str(ended))
    assert predict(model, tokenizer, ["is it on"])[0][0].text == "yes"


@pytest.mark.parametrize(
    ("metric", "accuracy", "compounds", "loss", "expected"),
    [
        ("mean_accuracy", 99.5, 80.0, 0.1, True),
        ("mean_accuracy", 99.5, 80.0, 0.2, False),
        ("mean_accuracy", 99.5, 80.0, 0.3, False),
        ("mean_accuracy", 99.5, 81.0, 0.3, True),
        ("mean_accuracy", 99.5, 79.0, 0.1, False),
        ("mean_accuracy", 99.0, 82.0, 0.3, True),  # 0.3 · 2 is more than 0.7 · 0.5
        ("mean_accuracy", 99.0, 81.0, 0.1, False),
        ("mean_accuracy", 99.5, None, 0.1, False),
        ("loss", 99.0, None, 0.1, True),
        ("loss", 99.9, 99.0, 0.3, False),
    ],
)
def test_the_best_checkpoint_has_the_best_mean_of_accuracies_and_then_the_lowest_loss(
    metric: str, accuracy: float, compounds: float | None, loss: float, expected: bool
) -> None:
    args = selecting_by(metric)
    scores = {"eval_mean_accuracy": 99.5, "eval_compound_accuracy": 80.0, "eval_loss": 0.2}
    state = TrainerState(log_history=[{"step": 10, "eval_mean_accuracy": 99.9, "eval_loss": 0.1}])
    state.log_history += [{**scores, "step": 20}, {"step": 20, "loss": 0.1}]
    state.best_global_step = 20
    scores = {"eval_mean_accuracy": accuracy, "eval_loss": loss}
    scores |= {} if compounds is None else {"eval_compound_accuracy": compounds}
    assert is_better(args, state, scores) is expected
    assert is_better(args, TrainerState(), scores)  # the first one


@pytest.mark.parametrize(("accuracy", "loss", "expected"), [(99.6, 0.3, True), (99.5, 0.1, True), (99.5, 0.3, False)])
def test_without_augmented_pairs_the_accuracy_selects_the_checkpoint(
    accuracy: float, loss: float, expected: bool
) -> None:
    state = TrainerState(log_history=[{"step": 20, "eval_mean_accuracy": 99.5, "eval_loss": 0.2}])
    state.best_global_step = 20
    scores = {"eval_mean_accuracy": accuracy, "eval_loss": loss}
    assert is_better(selecting_by("mean_accuracy"), state, scores) is expected


def test_only_a_checkpoint_that_was_saved_is_kept(easy: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="copynet_hf"):
        train_from_arguments(easy | {"eval_steps": 4, "save_steps": 8})
    state = read_state(easy["output_dir"])
    kept = int(state["best_model_checkpoint"].removeprefix("checkpoint-"))
    assert f"the checkpoint of step {kept} is kept" in caplog.messages
    assert kept % 8 == 0
    assert kept in find_full_accuracy(state)
    losses = {logs["step"]: logs["eval_loss"] for logs in state["log_history"] if "eval_loss" in logs}
    assert losses[kept] == min(loss for step, loss in losses.items() if step % 8 == 0)


def test_a_resumed_training_counts_on_until_all_targets_were_right_three_times(
    easy: dict[str, Any], ended: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, _, third = find_full_accuracy(read_state(ended))
    shutil.copytree(ended / f"checkpoint-{first}", Path(easy["output_dir"]) / f"checkpoint-{first}")
    train_from_arguments(easy | {"resume_from_checkpoint": "auto"})
    assert find_full_accuracy(read_state(easy["output_dir"])) == [first, first + 75, third]
    assert "do not match" not in caplog.text  # the Trainer's warning of another schedule


def test_a_training_that_ended_early_is_finished(easy: dict[str, Any], ended: Path) -> None:
    folder = shutil.copytree(ended, Path(easy["output_dir"]))
    before, step = (folder / "model.safetensors").read_bytes(), read_state(folder)["global_step"]
    again = easy | {"resume_from_checkpoint": "auto"}
    with pytest.raises(ValueError, match=f"is finished, with {step} of 300 steps: use a larger --max_steps"):
        train_from_arguments(again)
    for name in ("model.safetensors", "trainer_state.json", "all_results.json"):
        (folder / name).unlink()  # killed while it scored the pairs
    train_from_arguments(again)
    assert ((folder / "model.safetensors").read_bytes(), read_state(folder)["global_step"]) == (before, step)


def selecting_by(metric: str) -> Seq2SeqTrainingArguments:
    """Arguments of a training that keeps the checkpoint that is best by this metric."""
    args = Seq2SeqTrainingArguments("x", metric_for_best_model=metric, eval_strategy="steps")
    args.load_best_model_at_end = True
    return args


@pytest.mark.parametrize(
    ("metric", "keeps_best", "ends"),
    [("mean_accuracy", True, True), ("mean_accuracy", False, False), ("loss", True, False)],
)
def test_a_training_goes_to_its_end_where_accuracy_does_not_select(metric: str, keeps_best: bool, ends: bool) -> None:
    args, state = selecting_by(metric), TrainerState(max_steps=400, global_step=181)
    args.load_best_model_at_end = keeps_best
    state.log_history = [{"eval_mean_accuracy": 100.0, "eval_loss": 0.1, "step": 30 + step} for step in (1, 76, 151)]
    assert (find_end(args, state, patience=None) is not None) is ends


def find_ends(evaluations: dict[int, dict[str, float]], max_steps: int = 3000, **options: Any) -> dict[int, str]:
    """Why a training that selects by accuracy, or `metric`, would end after an evaluation, by step."""
    args, state, found = selecting_by(options.pop("metric", "mean_accuracy")), TrainerState(max_steps=max_steps), {}
    for state.global_step, scores in evaluations.items():
        logs = {f"eval_{name}": score for name, score in scores.items()}
        state.log_history.append(logs | {"step": state.global_step})
        found[state.global_step] = find_end(args, state, **{"patience": None} | options)
    return {step: reason for step, reason in found.items() if reason}


def test_a_short_training_with_many_evaluations_does_not_end_after_three() -> None:
    scores = {step: {"mean_accuracy": 100.0, "loss": 1 / step} for step in range(84, 241, 12)}
    assert find_ends(scores, 456) == {240: "all validation targets were right in 14 evaluations"}


@pytest.mark.parametrize(("last", "ends"), [(96.6, False), (96.4, True)])  # 1.6 points in four evaluations
def test_a_training_goes_on_while_more_of_the_augmented_pairs_are_learned(last: float, ends: bool) -> None:
    shares = enumerate((80.0, 90.0, 90.0, 95.0, 96.0, 96.4, 95.0, last), 1)
    found = find_ends({75 * number: {"mean_accuracy": 100.0, "compound_accuracy": share} for number, share in shares})
    assert found == ({600: "all validation targets were right in 8 evaluations"} if ends else {})


def test_a_training_does_not_end_at_an_evaluation_with_a_mistake() -> None:
    scores = enumerate((100.0, 100.0, 100.0, 99.0, 100.0), 1)
    assert [*find_ends({100 * number: {"mean_accuracy": score} for number, score in scores})] == [300, 500]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ((99.5, 70.0), "the mean of mean_accuracy and compound_accuracy has not been better since step 100"),
        ((97.9, 84.0), None),
        ((97.5, 84.0), "the mean of mean_accuracy and compound_accuracy has not been better since step 100"),
    ],
)
def test_accuracy_and_augmented_pairs_are_weighed_against_each_other(
    last: tuple[float, float], reason: str | None
) -> None:
    scores = {
        step: {"mean_accuracy": accuracy, "compound_accuracy": compounds}
        for step, (accuracy, compounds) in ((100, (99.4, 80.3)), (200, last))
    }
    assert find_ends(scores, patience=1).get(200) == reason


FLAT = [50.0] * 20


@pytest.mark.parametrize(
    ("scores", "losses", "end"),
    [
        (FLAT, None, 10),
        ([*range(8), *[7.0] * 12], None, 13),  # flat for a quarter: five of twenty
        ([*range(16), *[15.0] * 4], None, None),
        ([9.0, 8.0, 7.0, 6.0, 9.1, 5.0, 4.0, 3.0, 2.0, 9.1, *[9.0] * 10], None, 10),  # as high again is no rise
        (FLAT[:4], None, None),  # too few evaluations to tell
        (FLAT, [1.0] * 20, 10),
        (FLAT, [1.0 - 0.01 * step for step in range(20)], None),  # it learns, if not yet to the last word
        (FLAT, [1.0 - 0.01 * min(step, 9) for step in range(20)], 15),  # flat for a quarter: five of twenty
        (FLAT, [0.1, *[1.0 - 0.01 * step for step in range(19)]], 10),  # falls, but was lower before
    ],
)
def test_neither_accuracy_has_risen_nor_the_loss_fallen_for_a_quarter_of_the_training(
    scores: list[float], losses: list[float] | None, end: int | None
) -> None:
    args = selecting_by("mean_accuracy")
    state, stop, found = TrainerState(max_steps=len(scores)), TrainerControl(), None
    for state.global_step, score in enumerate(scores, 1):
        loss = {} if losses is None else {"eval_loss": losses[state.global_step - 1]}
        state.log_history.append({"eval_mean_accuracy": score, **loss, "step": state.global_step})
        EarlyEnd(patience=None).on_evaluate(args, state, stop)
        if stop.should_training_stop and found is None:
            found = state.global_step
            best = 1 + max(scores.index(max(scores[:found])), losses.index(min(losses)) if losses else 0)
            reason = f"neither mean_accuracy nor the loss has been better since step {best}"
            assert find_end(args, state, patience=None) == reason
    assert found == end


def test_augmented_pairs_of_less_accurate_checkpoints_do_not_end_a_training() -> None:
    scores = enumerate(((95.0, 60.0), (100.0, 40.0), (100.0, 48.0), (100.0, 56.0)), 1)
    assert not find_ends(
        {100 * n: {"mean_accuracy": score, "compound_accuracy": share} for n, (score, share) in scores}
    )


def test_a_flat_training_goes_on_while_more_of_the_augmented_pairs_are_learned() -> None:
    scores = {step: {"mean_accuracy": 90.0, "loss": 0.1, "compound_accuracy": min(step, 12)} for step in range(1, 21)}
    step, reason = next(iter(find_ends(scores, 20).items()))
    assert step == 17  # flat for a quarter: five of twenty
    assert (
        reason == "neither the mean of mean_accuracy and compound_accuracy nor the loss has been better since step 12"
    )


def test_augmented_pairs_have_a_progress_bar_of_their_own() -> None:
    args, state, control, shown = selecting_by("loss"), TrainerState(), TrainerControl(), []
    progress = SilentProgress()
    for dataloader in ([1, 2, 3], [1, 2]):
        for _ in dataloader:
            progress.on_prediction_step(args, state, control, eval_dataloader=dataloader)
            shown.append((progress.prediction_bar.n, progress.prediction_bar.total))
    assert shown == [(1, 3), (2, 3), (3, 3), (1, 2), (2, 2)]
    progress.on_evaluate(args, state, control)
    assert progress.prediction_bar is None


def test_no_training_ends_between_two_evaluations() -> None:
    """The Trainer asks at the start of each epoch, too, for one that is resumed at its end."""
    args = selecting_by("mean_accuracy")
    state = TrainerState(max_steps=3008)
    for step in range(76, 1901, 76):
        state.log_history.append({"eval_mean_accuracy": min(step, 1216.0) / 20, "step": step})
    state.global_step = 1968  # a quarter after the best evaluation
    assert find_end(args, state, patience=None) is None
    state.log_history.append({"eval_mean_accuracy": 1.0, "step": 1976})
    state.global_step = 1984
    assert find_end(args, state, patience=None) == "neither mean_accuracy nor the loss has been better since step 1216"


def test_patience_counts_the_evaluations_since_the_lowest_loss() -> None:
    losses = {step: {"loss": loss} for step, loss in enumerate((1.0, 0.5, 0.9, 0.4, 0.4, 0.6), 1)}
    reasons = {6: "loss has not been better since step 4"}
    for patience, expected in ((2, reasons), (0, {}), (None, {})):
        assert find_ends(losses, 20, metric="eval_loss", patience=patience) == expected


def test_the_evaluation_after_a_training_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    args = selecting_by("mean_accuracy")
    state, ended = TrainerState(max_steps=20, global_step=10), TrainerControl(should_training_stop=True)
    state.log_history = [{"eval_mean_accuracy": 50.0, "step": step} for step in (*range(1, 11), 10)]
    with caplog.at_level("INFO"):
        EarlyEnd(patience=None).on_evaluate(args, state, ended)
    assert not caplog.messages


@pytest.mark.parametrize("strategy", ["steps", "epoch", "no"])
@pytest.mark.parametrize("minutes", [0.0, 1.0])
def test_a_time_limit_evaluates_and_saves_unless_epochs_do(strategy: str, minutes: float) -> None:
    args = Seq2SeqTrainingArguments("x", eval_strategy=strategy, save_strategy=strategy)
    limit, control = TimeLimit(minutes), TrainerControl()
    limit.on_train_begin()
    limit.on_step_end(args, TrainerState(), control)
    assert control.should_training_stop == (minutes == 0)
    assert control.should_evaluate == control.should_save == (minutes == 0 and strategy == "steps")


def test_a_training_with_a_time_limit_ends_evaluated_and_saved(
    files: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "copynet_hf")
    limits = {"num_train_epochs": 500, "max_minutes": 0.01, "output_dir": str(tmp_path / "m"), "save_total_limit": 2}
    arguments = files | SIZES | limits
    metrics = train_from_arguments(arguments)
    assert 0 < metrics["epoch"] < 500
    assert "the 0.01 minutes of --max_minutes are over: the training ends" in caplog.messages
    assert ", but at most 0.01 minutes" in caplog.text
    state = json.loads((tmp_path / "m" / "trainer_state.json").read_text())
    steps = [entry["step"] for entry in state["log_history"] if "eval_loss" in entry]
    assert state["global_step"] in steps
    assert (tmp_path / "m" / f"checkpoint-{state['global_step']}").is_dir()
    assert len(steps[:-1]) == len(set(steps[:-1]))  # the last evaluation is of the best checkpoint
    with pytest.raises(ValueError, match="--max_minutes is 0: use more than 0"):
        train_from_arguments(arguments | {"max_minutes": 0.0, "output_dir": str(tmp_path / "other")})
