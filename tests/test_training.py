"""Training runs: defaults computed from the data, tokenizers and models, and outputs of trained models."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import SIZES, byte_level_tokenizer, write_requests, write_rows
from transformers import Seq2SeqTrainingArguments, TrainerControl, TrainerState

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.arguments import TrainArguments, check_types
from copynet_hf.data import quickstart_pairs
from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.model.prediction import predict
from copynet_hf.model.vocabularies import check_tokenizer
from copynet_hf.saved.loading import load_model
from copynet_hf.training.callbacks import EarlyEnd, SilentProgress, TimeLimit, find_end, is_better
from copynet_hf.training.dataset import choose_max_target_length, encode_pairs
from copynet_hf.training.defaults import build_training_arguments
from copynet_hf.training.model_setup import build_config
from copynet_hf.training.run import TrainingRun, train_from_arguments
from copynet_hf.training.segmenters import guess_segmenter
from copynet_hf.training.tokenizer_setup import train_tokenizer
from copynet_hf.training.trainer import CopyNetTrainer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """And a limit on the outputs, which untrained models write to the end."""
    return write_requests(tmp_path_factory.mktemp("pairs"), train=16, validation=8) | {"max_target_length": 8}


@pytest.fixture(scope="module")
def first(files: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model after one step, with settings of its own."""
    own = {"num_beams": 2, "max_source_length": 7, "output_dir": str(tmp_path_factory.mktemp("first") / "model")}
    train_from_arguments({**files, **SIZES, **own, "max_steps": 1})
    return own["output_dir"]


def tokenizer_for(pairs: Dataset, **arguments: Any) -> CopyNetTokenizer:
    """The one that a run with these arguments trains."""
    return train_tokenizer(pairs, TrainArguments(max_source_length=64, **arguments))


# ---- defaults


@pytest.mark.parametrize(
    ("num_pairs", "epochs"), [(10, 3000), (100, 429), (800, 60), (4000, 32), (10_000, 13), (200_000, 5)]
)
def test_the_number_of_epochs_falls_with_the_number_of_pairs(num_pairs: int, epochs: int) -> None:
    train = Dataset.from_dict({"text": ["a"] * num_pairs})
    assert build_training_arguments({"output_dir": "x"}, train, False).num_train_epochs == epochs


def test_validation_pairs_select_the_checkpoint(pairs: Dataset) -> None:
    training_args = build_training_arguments({"output_dir": "x"}, pairs, True)
    assert training_args.load_best_model_at_end
    assert (training_args.metric_for_best_model, training_args.greater_is_better) == ("mean_accuracy", True)
    generating = build_training_arguments({"output_dir": "x", "predict_with_generate": True}, pairs, True)
    assert (generating.metric_for_best_model, generating.greater_is_better) == ("rougeL", True)
    assert build_training_arguments({"output_dir": "x"}, pairs, False).eval_strategy == "no"


def test_a_pointer_is_not_trained_on_words_that_its_sources_lack(tmp_path: Path) -> None:
    rows = [{"text": "a1 b2 c3", "summary": "b2 a1"}, {"text": "d4 e5", "summary": "e5 a1"}]
    file = write_rows(tmp_path / "pairs.jsonl", rows)
    options = {**SIZES, "copy_mechanism": "pointer", "segmenter": "whitespace", "output_dir": str(tmp_path / "model")}
    with pytest.raises(ValueError, match="1 of 2 training targets have words that are not in their sources"):
        TrainingRun({"train_file": file, **options}).set_up()


def test_the_loss_of_an_evaluation_is_the_mean_over_all_words(tmp_path: Path) -> None:
    fields = {"label_smoothing_factor": 0.1, "copy_mechanism": "pointer_generator"}
    targets = [" ".join(["call", "Ann", "Bob"] * length) for length in (1, 1, 2, 1, 9, 1, 3)]
    file = write_rows(tmp_path / "pairs.jsonl", [{"text": f"{each} at 9", "summary": each} for each in targets])
    run = TrainingRun({"train_file": file, "validation_file": file, **SIZES, **fields, "output_dir": str(tmp_path)})
    run.set_up()
    trainer, total, count = run.trainer, 0.0, 0
    for row in trainer.eval_dataset:
        batch = trainer.data_collator([row])
        with torch.no_grad():
            probs = run.model.eval()(**batch).logits.softmax(-1)[0]
        total -= probs.gather(1, batch["labels"][0][:, None]).log().sum().item()
        count += batch["labels"].numel()
    for size in (1, 3, 64):
        trainer.args.per_device_eval_batch_size = size
        assert trainer.evaluate()["eval_loss"] == pytest.approx(total / count, rel=1e-5)
        assert trainer.predict(trainer.eval_dataset).metrics["test_loss"] == pytest.approx(total / count, rel=1e-5)


@pytest.mark.parametrize("generates", [False, True])
def test_another_evaluation_set_has_no_scores_of_the_runs_own_pairs(generates: bool, tmp_path: Path) -> None:
    rows = [{"text": f"call {name}", "summary": name} for name in ("Ann", "Bob", "Eva", "Max", "Tom", "Zoe", "Lea")]
    files = {name: write_rows(tmp_path / f"{name}.jsonl", rows[:size]) for name, size in (("own", 3), ("other", 7))}
    names = {"train_file": files["other"], "validation_file": files["own"], "output_dir": str(tmp_path / "model")}
    run = TrainingRun({**names, **SIZES, "predict_with_generate": generates})
    run.set_up()
    score = "eval_exact_match" if generates else "eval_unk_rate"
    assert score in run.trainer.evaluate()
    metrics = run.trainer.evaluate(run.trainer.train_dataset)
    assert score not in metrics
    assert metrics["eval_loss"] > 0


@pytest.mark.parametrize("segmenter", ["whitespace", "char"])
def test_words_that_few_sources_have_are_marked_as_rare(segmenter: str, tmp_path: Path) -> None:
    """Of 40 sources, two have `blue`, which is 5 % and thus not few, and one `green` twice. `7` has no letter."""
    colours = ["blue", "blue", "green 7 green"]
    rows = [{"text": f"call Ann {colour}", "summary": "Ann green"} for colour in [*colours, *["red"] * 37]]
    file = write_rows(tmp_path / "pairs.jsonl", rows)
    arguments = {"train_file": file, **SIZES, "segmenter": segmenter, "min_frequency": 1}
    run = TrainingRun({**arguments, "compound_copies": 0.0, "output_dir": str(tmp_path / "model")})
    run.set_up()
    is_rare = run.model.get_encoder().tied_repetitions.is_rare
    vocabulary = run.trainer.processing_class.get_vocab()
    rare = {word for word, index in vocabulary.items() if is_rare[index]}
    assert rare & {"call", "Ann", "red", "blue", "green", "7", "<unk>"} == (
        {"green"} if segmenter != "char" else set()
    )
    assert bool(rare) == (segmenter != "char")


def test_of_errors_the_lowest_is_the_best(pairs: Dataset) -> None:
    def best(metric: str, **arguments: Any) -> bool:
        given = {"output_dir": "x", "metric_for_best_model": metric, **arguments}
        return build_training_arguments(given, pairs, True).greater_is_better

    for metric in ("edit_distance", "eval_character_error_rate", "unk_rate", "eval_loss"):
        assert not best(metric, predict_with_generate=True)
    assert best("eval_exact_match", predict_with_generate=True)
    assert best("token_accuracy")
    assert not best("token_accuracy", greater_is_better=False)
    for metric, generates in (("rougeL", False), ("acuracy", True)):
        with pytest.raises(ValueError, match=f"--metric_for_best_model is {metric}: use one of loss, "):
            best(metric, predict_with_generate=generates)


@pytest.mark.parametrize(
    ("arguments", "warmup"),
    [({}, 100), ({"max_steps": 60}, 30), ({"num_train_epochs": 2.0}, 4), ({"max_steps": 60, "warmup_steps": 50}, 50)],
)
def test_the_learning_rate_falls_also_in_a_short_training(arguments: dict[str, Any], warmup: int) -> None:
    train = Dataset.from_dict({"text": ["a"] * 64})
    assert build_training_arguments({"output_dir": "x", **arguments}, train, False).warmup_steps == warmup


@pytest.mark.parametrize(
    "arguments",
    [
        {"eval_strategy": "steps", "eval_steps": 7},
        {"save_strategy": "steps", "save_steps": 7},
        {"eval_strategy": "no"},
    ],
)
def test_evaluations_and_checkpoints_have_the_same_schedule(pairs: Dataset, arguments: dict[str, Any]) -> None:
    training_args = build_training_arguments({"output_dir": "x"} | arguments, pairs, True)
    assert training_args.eval_strategy == training_args.save_strategy
    assert training_args.load_best_model_at_end == (training_args.eval_strategy == "steps")
    if training_args.load_best_model_at_end:
        assert training_args.eval_steps == training_args.save_steps == 7


@pytest.mark.parametrize("saves", ["steps", "best", "no"])
@pytest.mark.parametrize(
    ("length", "steps"), [({}, 3000 // 40), ({"num_train_epochs": 2}, 1), ({"max_steps": 400}, 400 // 40)], ids=str
)
def test_a_run_is_evaluated_forty_times_whatever_is_kept(
    pairs: Dataset, saves: str, length: dict[str, Any], steps: int
) -> None:
    training_args = build_training_arguments({"output_dir": "x", "save_strategy": saves, **length}, pairs, True)
    assert (training_args.eval_strategy, training_args.save_strategy) == ("steps", saves)
    assert training_args.eval_steps == training_args.save_steps == steps
    assert training_args.load_best_model_at_end == (saves != "no")


@pytest.mark.parametrize("argument", [{"prediction_loss_only": True}, {"eval_do_concat_batches": False}], ids=str)
def test_evaluations_without_accuracy_are_refused(pairs: Dataset, argument: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="leaves nothing to measure the accuracy by"):
        build_training_arguments({"output_dir": "x", **argument}, pairs, True)


def test_the_best_checkpoint_needs_validation_pairs(files: dict[str, Any], tmp_path: Path) -> None:
    arguments = {**files, **SIZES, "output_dir": str(tmp_path / "a"), "validation_file": None}
    with pytest.raises(ValueError, match="--load_best_model_at_end, but there are no validation pairs: pass --valid"):
        train_from_arguments({**arguments, "load_best_model_at_end": True})
    assert not (tmp_path / "a").exists()


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


@pytest.mark.parametrize("processes", [1, 2, 8])
def test_the_number_of_updates_does_not_depend_on_the_number_of_processes(
    monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    monkeypatch.setattr(Seq2SeqTrainingArguments, "world_size", processes)
    train = Dataset.from_dict({"text": ["a"] * 16_000})
    training_args = build_training_arguments({"output_dir": "x"}, train, False)
    assert training_args.num_train_epochs == min(8 * processes, 60)
    assert build_training_arguments({"output_dir": "x", "num_train_epochs": 3}, train, False).num_train_epochs == 3


def test_a_score_that_the_validation_pairs_lack_is_named(files: dict[str, Any], tmp_path: Path) -> None:
    arguments = {**files, **SIZES, "output_dir": str(tmp_path / "a"), "max_steps": 2, "predict_with_generate": True}
    with pytest.raises(ValueError, match=r"'eval_edit_distance', which is not found .*'eval_rougeL'"):
        train_from_arguments(arguments | {"metric_for_best_model": "edit_distance"})


def test_an_earlier_run_stays_where_a_new_one_is_refused(files: dict[str, Any], tmp_path: Path) -> None:
    arguments = {"train_file": files["train_file"], **SIZES, "output_dir": str(tmp_path / "a"), "max_steps": 1}
    arguments |= {"save_strategy": "steps", "save_steps": 1}
    train_from_arguments(arguments)
    earlier = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").rglob("*.*") if path.is_file()}
    with pytest.raises(ValueError, match="pass an `eval_dataset`"):  # the Trainer's own
        train_from_arguments(arguments | {"overwrite_output_dir": True, "eval_strategy": "steps"})
    assert {path: path.stat().st_mtime_ns for path in earlier} == earlier


# ---- tokenizer and model


@pytest.mark.parametrize(
    ("text", "segmenter"),
    [
        ("华为发布P30手机", "char"),
        ("東京でiPhoneを買う", "char"),
        ("ｶﾀｶﾅ", "char"),
        ("ประชุมเวลา 16.45 น.", "char"),
        ("call Ann at 9", "word_punct"),
        ("", "word_punct"),
    ],
)
def test_the_segmenter_follows_the_script(text: str, segmenter: str) -> None:
    assert guess_segmenter([{"text": text, "summary": "a"}] * 2) == segmenter


def test_single_words_are_spelled() -> None:
    pairs = [{"text": text, "summary": "a"} for text in ("uczyć się", "uczyć", "iść")]
    assert guess_segmenter(pairs) == "char"
    assert guess_segmenter(pairs[:2]) == "word_punct"


def draw_words(draw: random.Random, count: int) -> list[str]:
    return ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(4, 9))) for _ in range(count)]


def test_words_that_are_respelled_are_spelled() -> None:
    """A few typos are enough, but not frequent forms and unlike words; too long to be spelled: test_reach."""
    draw = random.Random(0)
    sources = [draw_words(draw, 8) for _ in range(80)]

    def guess(change: Callable[[list[str]], list[str]]) -> str:
        return guess_segmenter([{"text": " ".join(words), "summary": " ".join(change(words))} for words in sources])

    def lose_letter(word: str) -> str:
        return word[: len(word) // 2] + word[len(word) // 2 + 1 :]

    assert guess(lambda words: [f"{word[1:]}{word[0]}ay" for word in words]) == "char"
    assert guess(lambda words: [word.upper() for word in words]) == "word_punct"  # copied, in upper case
    assert guess(lambda words: [lose_letter(words[0]), *words[1:]]) == "char"  # one word of eight
    assert guess(lambda words: [words[0][1:], *words[1:]]) == "word_punct"  # copied without its first letter
    assert guess(lambda words: ["goes", *words[1:]]) == "word_punct"
    assert guess(lambda words: [*draw_words(draw, 1), *words[1:]]) == "word_punct"


@pytest.mark.parametrize(
    ("num_new", "num_copied", "segmenter"),
    [(0, 3, "char"), (2, 3, "char"), (4, 2, "word_punct"), (2, 9, "word_punct")],
)
def test_fewer_respelled_words_are_enough_in_short_texts(num_new: int, num_copied: int, segmenter: str) -> None:
    """A third of the new words, as between close languages; in longer texts (the last case), half of them."""
    draw = random.Random(0)
    pairs = []
    for _ in range(200):
        first, *others = draw_words(draw, 1 + num_new + num_copied)
        target = [
            first[: len(first) // 2] + "é" + first[len(first) // 2 + 1 :],
            *draw_words(draw, num_new),
            *others[num_new:],
        ]
        pairs.append({"text": " ".join([first, *others]), "summary": " ".join(target)})
    assert guess_segmenter(pairs) == segmenter


CYRILLIC = str.maketrans("abvgdeziklmnoprstufx", "абвгдезиклмнопрстуфх")
GREEK = str.maketrans("abgdeziklmnoprstuf", "άβγδέζίκλμνόπρστυφ")
HINDI = str.maketrans("bgdklmnprstaeiou", "बगदकलमनपरसताेिोु")  # vowels are marks


@pytest.mark.parametrize(
    ("script", "form", "names", "every", "segmenter"),
    [
        (CYRILLIC, "{}, паспорт {}", 1, 1, "char"),
        (CYRILLIC, "{}, паспорт {}", 1, 5, "char"),
        (CYRILLIC, "{}, паспорт {}", 1, 10, "word_punct"),
        (CYRILLIC, "{}, паспорт {}", 2, 10, "word_punct"),
        (CYRILLIC, "{}, ID {}, e-mail ru@mail.ru", 1, 1, "char"),
        (GREEK, "{}, διαβατήριο {}", 1, 1, "char"),
        (HINDI, "{}, पासपोर्ट {}", 1, 1, "char"),
        ({}, "{}, passport {}", 1, 1, "word_punct"),
    ],
)
def test_names_that_targets_write_in_another_script_are_spelled(
    script: dict[int, int], form: str, names: int, every: int, segmenter: str
) -> None:
    """One name or two, of every row, of every fifth or of every tenth."""
    draw, syllables = random.Random(0), [a + b for a in "bgdklmnprst" for b in "aeiou"]
    pairs = []
    for number in range(600):
        written = " ".join("".join(draw.choices(syllables, k=3)) for _ in range(names))
        shown = written if number % every == 0 else "none"
        pairs.append(
            {"text": form.format(written.translate(script), number), "summary": f"name = {shown} | id = {number}"}
        )
    assert guess_segmenter(pairs) == segmenter
    if segmenter == "char":  # names of other rows
        others = [pair["summary"] for pair in pairs[1:] + pairs[:1]]
        unlike = [{"text": pair["text"], "summary": other} for pair, other in zip(pairs, others, strict=True)]
        assert guess_segmenter(unlike) != "char"


def test_words_that_targets_cannot_copy_are_in_the_vocabulary_of_few_pairs() -> None:
    rows = [{"text": "a b", "summary": "a"}] * 600
    rows += [{"text": "a Ada", "summary": "Ada"}, {"text": "a", "summary": "once"}]
    rows += [{"text": "a", "summary": "Lima", "facts": [["a", "b", "Lima"]]}]
    pairs = Dataset.from_list([{"facts": [], **row} for row in rows])
    vocabulary = tokenizer_for(pairs, segmenter="whitespace").get_vocab().keys()
    assert {"a", "b", "Ada", "Lima", "once"} & vocabulary == {"a", "b"}
    few = pairs.select(range(500, len(pairs)))
    of_few = tokenizer_for(few, segmenter="whitespace").get_vocab().keys()
    assert {"a", "b", "Ada", "Lima", "once"} & of_few == {"a", "b", "once"}
    given = tokenizer_for(few, segmenter="whitespace", min_frequency=3).get_vocab()
    assert "once" not in given


@pytest.mark.parametrize(("count", "most"), [(499, 1), (500, 2)])
@pytest.mark.parametrize("copied", [True, False])
def test_a_rare_word_is_in_the_vocabulary_of_few_pairs_alone(count: int, most: int, copied: bool) -> None:
    words = ["one", "two", "three", "four"]
    texts = [" ".join(word for times, word in enumerate(words, start=1) if row < times) for row in range(count)]
    pairs = Dataset.from_list([{"text": f"a {text}", "summary": text if copied else "a"} for text in texts])
    vocabulary = tokenizer_for(pairs, segmenter="whitespace").get_vocab()
    assert [word in vocabulary for word in words] == [times > most for times in (1, 2, 3, 4)]
    given = tokenizer_for(pairs, segmenter="whitespace", min_frequency=4).get_vocab()
    assert [word in given for word in words] == [times * (1 + copied) > 3 for times in (1, 2, 3, 4)]


def test_a_source_as_long_as_the_longest_has_slots_for_words_that_are_all_unseen() -> None:
    texts = [" ".join(f"Name{(row + place) % 40}" for place in range(5 + row % 20)) + " a a a" for row in range(400)]
    tokenizer = tokenizer_for(Dataset.from_dict({"text": texts, "summary": texts}))
    assert "Name0" in tokenizer.get_vocab()  # as all others, so that no training source needs a slot
    unseen = " ".join(f"Other{place}" for place in range(24))
    assert len(tokenizer.oov_words(unseen)) == 24
    assert tokenizer.max_source_oov == 25  # "a" once
    assert tokenizer.unk_token_id not in tokenizer(unseen, text_target=unseen)["labels"]


def test_rare_words_are_outside_the_vocabulary(pairs: Dataset, tokenizer: CopyNetTokenizer) -> None:
    words = " ".join([*pairs["text"], *pairs["summary"]]).split()
    seen = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    needed = {word for row in pairs for word in row["summary"].split() if word not in row["text"].split()}
    used = {word for row in pairs for word in row["text"].split() if word.lower() in row["summary"].lower()}
    assert seen == {word for word in words if words.count(word) >= (3 if word in used else 2)} | needed


@pytest.mark.parametrize(("texts", "is_known"), [(["walked", "walks"], True), (["他走了", "她来了"], False)])
def test_rare_letters_are_in_the_vocabulary(texts: list[str], is_known: bool) -> None:
    pairs = Dataset.from_dict({"text": texts, "summary": texts})
    tokenizer = tokenizer_for(pairs)
    assert tokenizer.segmenter == "char"
    assert (texts[0][0] in tokenizer.get_vocab()) == is_known


def test_presets_have_the_papers_sizes_and_segmenters() -> None:
    chinese = Dataset.from_dict({"text": ["华为发布手机"] * 3, "summary": ["华为手机"] * 3})
    for preset, segmenter, slots in (("lcsts_char", "char", 16), ("lcsts_word", "jieba", 40)):
        tokenizer = tokenizer_for(chinese, preset=preset, min_frequency=1)
        assert (tokenizer.segmenter, tokenizer.max_source_oov) == (segmenter, slots)
        config = build_config(tokenizer, preset)
        assert (config.hidden_size, config.embedding_size, config.vocab_size) == (500, 350, len(tokenizer))
    none = tokenizer_for(chinese, preset="lcsts_char", max_source_oov=0)
    assert none.max_source_oov == 0


def test_a_tokenizer_with_other_sizes_than_the_model_is_refused(tokenizer: CopyNetTokenizer) -> None:
    config = build_config(tokenizer, fields=SIZES)
    check_tokenizer(config, tokenizer)
    for field, value in (
        ("vocab_size", len(tokenizer) + 8),
        ("max_source_oov", 3),
        ("eos_token_id", 5),
        ("feature_vocab_size", 6),
    ):
        other = build_config(tokenizer, fields=SIZES)
        setattr(other, field, value)
        with pytest.raises(ValueError, match=str(value)):
            check_tokenizer(other, tokenizer)


# ---- runs


def test_training_continues_from_a_model_in_float32_whatever_it_was_saved_in(
    files: dict[str, Any], first: str, tmp_path: Path
) -> None:
    old, tokenizer = load_model(first)
    for part in (old.to(torch.bfloat16), tokenizer):
        part.save_pretrained(tmp_path / "half")
    start = {**files, "model_name_or_path": str(tmp_path / "half"), "max_steps": 1, "learning_rate": 0.0}
    train_from_arguments({**start, "output_dir": str(tmp_path / "b"), "dropout": 0.4})
    new = CopyNetForConditionalGeneration.from_pretrained(tmp_path / "b")
    assert new.dtype == torch.float32
    assert all(torch.equal(a.float(), b) for a, b in zip(old.parameters(), new.parameters(), strict=True))
    assert new.config.dropout == 0.4
    with pytest.raises(ValueError, match="--hidden_size is 99, but 24 in the model"):
        train_from_arguments({**start, "output_dir": str(tmp_path / "c"), "hidden_size": 99})


@pytest.mark.parametrize(
    ("words", "limit"), [(3, 128), (200, 252), (600, 512)], ids=["as short as most", "longer", "too long"]
)
def test_outputs_may_be_as_long_as_the_training_targets(words: int, limit: int) -> None:
    pairs = Dataset.from_list([{"text": "a b", "summary": "a"}, {"text": "b a", "summary": " ".join("a" * words)}])
    tokenizer = tokenizer_for(pairs, segmenter="whitespace", min_frequency=1)
    assert choose_max_target_length(pairs, tokenizer) == limit  # 1.25 · 201, with the end symbol
    assert choose_max_target_length(pairs, tokenizer, most=100) == 100
    encoded = encode_pairs(pairs, tokenizer, limit)
    assert len(encoded[1]["labels"]) == min(words + 1, limit)


def test_pairs_that_other_code_encoded_are_not_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = Dataset.from_list([{"text": "a b", "summary": "b"}])
    tokenizer = tokenizer_for(pairs, segmenter="whitespace")
    keys = [encode_pairs(pairs, tokenizer)._fingerprint for _ in range(2)]
    monkeypatch.setattr("copynet_hf.training.dataset.CODE", "another version")
    keys.append(encode_pairs(pairs, tokenizer)._fingerprint)
    assert keys[0] == keys[1] != keys[2]


def test_the_limit_of_outputs_is_said_and_saved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write_rows(tmp_path / "train.jsonl", [{"text": "a b", "summary": " ".join("a" * 200)}])
    with caplog.at_level("INFO", logger="copynet_hf"):
        train_from_arguments({"train_file": file, "output_dir": str(tmp_path / "model"), **SIZES, "max_steps": 1})
    assert "outputs: at most 252 words, the end symbol included" in caplog.messages
    assert load_model(str(tmp_path / "model"))[0].generation_config.max_new_tokens == 252


def test_a_continued_model_keeps_what_no_argument_changes(files: dict[str, Any], first: str, tmp_path: Path) -> None:
    start = {**files, "model_name_or_path": first, "output_dir": str(tmp_path / "b"), "max_steps": 1}
    del start["max_target_length"]
    for arguments, message in (
        (
            {"segmenter": "char"},
            "--segmenter is char, but the tokenizer of .* is used as it is: leave --segmenter out",
        ),
        ({"vocab_size": 77}, "--vocab_size is 77, but the tokenizer"),
        ({"max_source_oov": 3}, "--max_source_oov is 3"),
        ({"embedding_file": "v.txt"}, "--embedding_file is v.txt, but --model_name_or_path gives the embeddings"),
    ):
        with pytest.raises(ValueError, match=message):
            train_from_arguments(start | arguments)
    train_from_arguments(start | {"segmenter": "word_punct", "max_target_length": 9})
    model, tokenizer = load_model(str(tmp_path / "b"))
    assert (model.generation_config.num_beams, model.generation_config.max_new_tokens) == (2, 9)
    assert tokenizer.model_max_length == 7
    train_from_arguments({**start, "output_dir": str(tmp_path / "c"), "max_source_length": 30})
    model, tokenizer = load_model(str(tmp_path / "c"))
    assert (tokenizer.model_max_length, model.generation_config.max_new_tokens) == (30, 8)


def test_streams_are_shuffled_unless_sequential_and_resumed_in_the_same_order(
    files: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    step = CopyNetTrainer.training_step
    monkeypatch.setattr(
        CopyNetTrainer,
        "training_step",
        lambda self, model, inputs, *rest: seen.extend(inputs["labels"].tolist()) or step(self, model, inputs, *rest),
    )

    def train(name: str, **arguments: Any) -> list[list[int]]:
        seen.clear()
        schedule = {"streaming": True, "max_steps": 3, "per_device_train_batch_size": 4, "eval_strategy": "no"}
        saves = {"save_strategy": "steps", "save_steps": 2}
        metrics = train_from_arguments(
            {**files, **SIZES, **schedule, **saves, "output_dir": str(tmp_path / name), **arguments}
        )
        assert {"train_loss", "eval_loss"} <= metrics.keys()
        return [[index for index in row if index >= 0] for row in seen]

    in_order = train("sequential", train_sampling_strategy="sequential")
    shuffled = train("random")
    assert len(in_order) == len(shuffled) == 12
    assert sum(row in in_order for row in shuffled) < 12  # some of the last four pairs
    assert shuffled != in_order
    checkpoint = f"{tmp_path}/random/checkpoint-2"
    assert train("resumed", resume_from_checkpoint=checkpoint) == shuffled[8:]
    with pytest.raises(ValueError, match="--train_sampling_strategy group_by_length needs all lengths"):
        train("grouped", train_sampling_strategy="group_by_length")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": "fast"}, "--learning_rate is 'fast': pass a number"),
        ({"num_train_epochs": [1]}, "--num_train_epochs is a list: pass a number"),
        ({"bf16": "yes"}, "--bf16 is 'yes': pass True or False"),
        ({"hidden_size": "8"}, "--hidden_size is '8': pass a whole number"),
        ({"train_file": Dataset.from_list([])}, "--train_file is a Dataset: pass a string"),
        ({"train_file": [Path("train.jsonl")]}, "--train_file is a list: pass a string"),
    ],
)
def test_values_of_another_type_are_named(
    files: dict[str, Any], tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        train_from_arguments({**files, **SIZES, "output_dir": tmp_path / "out", **given})
    assert not (tmp_path / "out").exists()


def test_values_of_the_right_types_are_taken() -> None:
    check_types(Seq2SeqTrainingArguments, vars(Seq2SeqTrainingArguments("out")))
    rows = {"include_for_metrics": ["inputs"], "resume_from_checkpoint": True, "output_dir": Path("out")}
    numbers = {"bf16": np.bool_(True), "seed": np.int64(3), "max_steps": 5.0, "learning_rate": torch.tensor(0.1)}
    check_types(Seq2SeqTrainingArguments, {**rows, **numbers})
    for name, value in {"seed": 1.5, "max_steps": float("nan"), "bf16": 2}.items():
        with pytest.raises(ValueError, match=f"--{name} is {value}: pass"):
            check_types(Seq2SeqTrainingArguments, {name: value})


def test_evaluation_while_training_scores_what_generate_gives(files: dict[str, Any], tmp_path: Path) -> None:
    settings = {"predict_with_generate": True, "num_beams": 1, "num_train_epochs": 1.0, "max_target_length": 12}
    metrics = train_from_arguments({**files, **SIZES, **settings, "output_dir": str(tmp_path / "out")})
    model, tokenizer = load_model(str(tmp_path / "out"))
    scores, _ = evaluate_pairs(model, tokenizer, quickstart_pairs("validation", 8))
    with pytest.raises(ValueError, match="the pairs have no summary: pass a dataset or dicts"):
        evaluate_pairs(model, tokenizer, [{"text": "a"}])
    with pytest.raises(TypeError, match="pairs is a DataFrame of str: pass a Dataset or a list of dicts"):
        evaluate_pairs(model, tokenizer, Dataset.from_list(quickstart_pairs("validation", 8)).to_pandas())
    for name in ("rouge1", "rougeL", "bleu", "exact_match", "copied_fraction"):
        assert metrics[f"eval_{name}"] == pytest.approx(scores[name])


def test_an_ordinary_subword_tokenizer_trains_and_generates(files: dict[str, Any], tmp_path: Path) -> None:
    texts = [pair["text"] for pair in quickstart_pairs("train", 64)]
    tokenizer = byte_level_tokenizer(texts, 400, pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    settings = {"tokenizer_name": str(tmp_path / "tokenizer"), "max_target_length": 16, "num_beams": 2, "max_steps": 2}
    train_from_arguments({**files, **SIZES, **settings, "output_dir": str(tmp_path / "out")})
    model, tokenizer = load_model(str(tmp_path / "out"))
    assert (model.config.max_source_oov, model.config.vocab_size) == (0, len(tokenizer))
    for (output,) in predict(model, tokenizer, texts[:3], num_beams=1, max_new_tokens=9):
        assert len(output.words) == len(output.copied) <= 9
        assert "".join(output.words).strip() == output.text


def test_targets_of_a_tokenizer_without_end_symbols_get_one(pairs: Dataset) -> None:
    fast = byte_level_tokenizer(pairs["text"], 400, pad_token="<pad>", eos_token="</s>")
    fast.model_max_length = 64
    for length in (128, 5):
        for labels in encode_pairs(pairs, fast, length)["labels"]:
            assert labels[-1] == fast.eos_token_id
            assert labels.count(fast.eos_token_id) == 1
            assert len(labels) <= length


def test_checkpoints_of_a_finished_run_stay_where_they_were_asked_for(
    files: dict[str, Any], first: str, tmp_path: Path
) -> None:
    assert not list(Path(first).glob("checkpoint-*"))
    train_from_arguments(files | SIZES | {"max_steps": 3, "save_steps": 1, "output_dir": str(tmp_path / "m")})
    assert len(list((tmp_path / "m").glob("checkpoint-*"))) == 2
    assert (tmp_path / "m" / "model.safetensors").exists()


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
