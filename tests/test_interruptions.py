"""Training runs that are interrupted, damaged, or started twice: what they leave behind, and how they go on."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from helpers import Killed, read_files, refused, write_requests
from safetensors.torch import load_file

from copynet_hf.arguments import TrainArguments
from copynet_hf.cli import main
from copynet_hf.data import rows as data_rows
from copynet_hf.training import run as training_run
from copynet_hf.training.callbacks import SigtermCheckpoint
from copynet_hf.training.checkpoints import (
    FINGERPRINT,
    RECORD_FILE,
    SECONDS,
    check_run_record,
    find_damage,
    list_checkpoints,
    make_run_record,
    read_trained_seconds,
)
from copynet_hf.training.run_folder import LOCK_FILE, lock_output_dir
from copynet_hf.training.trainer import CopyNetTrainer

SIZES = {"hidden_size": 12, "encoder_hidden_size": 6, "embedding_size": 8, "attention_size": 8}
SEARCH = {"num_beams": 1, "max_target_length": 8}  # untrained models write outputs to the end
BATCH, NUM_PAIRS = 4, 15  # 4 steps in an epoch
EPOCH = -(-NUM_PAIRS // BATCH)


@pytest.fixture(scope="module")
def train_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_requests(tmp_path_factory.mktemp("data"), train=NUM_PAIRS)["train_file"])


def command(train_file: Path, output_dir: Path, **arguments: Any) -> list[str]:
    defaults = {"max_steps": 3 * EPOCH, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 20}
    files = {"train_file": train_file, "output_dir": output_dir, "per_device_train_batch_size": BATCH, "use_cpu": True}
    settings = files | SIZES | SEARCH | defaults | arguments
    return ["train", *(f"--{name}={value}" for name, value in settings.items() if value is not None)]


def have_same_weights(one: Path, other: Path) -> bool:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first)


def copy_interrupted(full: Path, folder: Path, *steps: int) -> Path:
    """The folder that the run would have left, had it been killed after its checkpoints of these steps."""
    folder.mkdir()
    for step in steps:
        shutil.copytree(full / f"checkpoint-{step}", folder / f"checkpoint-{step}")
    return folder


# ---- order of the pairs


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The input_ids of each pair of each training step, before vocabulary dropout."""
    rows: list[tuple[int, ...]] = []
    training_step = CopyNetTrainer.training_step

    def step(self: CopyNetTrainer, model: Any, inputs: dict[str, torch.Tensor], *args: Any) -> torch.Tensor:
        rows.extend(
            tuple(row[mask.bool()].tolist())
            for row, mask in zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
        )
        return training_step(self, model, inputs, *args)

    monkeypatch.setattr(CopyNetTrainer, "training_step", step)
    return rows


@pytest.mark.parametrize(("strategy", "step"), [("group_by_length", EPOCH + 2), ("random", EPOCH)])
def test_a_run_resumed_in_any_epoch_sees_each_pair_once_per_epoch(
    train_file: Path, tmp_path: Path, seen: list[tuple[int, ...]], strategy: str, step: int
) -> None:
    def train(folder: Path, **arguments: Any) -> list[tuple[int, ...]]:
        seen.clear()
        options = arguments | {"train_sampling_strategy": strategy, "dropout": 0.2, "save_steps": step}
        assert main(command(train_file, folder, **options)) == 0
        return list(seen)

    rows = train(tmp_path / "full")
    epochs = [rows[start : start + NUM_PAIRS] for start in range(0, 3 * NUM_PAIRS, NUM_PAIRS)]
    assert all(Counter(epoch) == Counter(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    folder = copy_interrupted(tmp_path / "full", tmp_path / "resumed", step)
    resumed = train(folder, resume_from_checkpoint="auto")
    assert resumed == rows[step // EPOCH * NUM_PAIRS + step % EPOCH * BATCH :]
    assert have_same_weights(folder, tmp_path / "full")


# ---- --resume_from_checkpoint auto, damaged checkpoints


@pytest.fixture(scope="module")
def full(train_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run: `auto` starts where there is no checkpoint."""
    folder = tmp_path_factory.mktemp("full") / "run"
    assert main(command(train_file, folder, resume_from_checkpoint="auto")) == 0
    return folder


def test_resuming_overwrites_no_model(
    train_file: Path, full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(full, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint-*"))
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    of_another_run = full / "checkpoint-8"
    for checkpoint, reason in (("auto", "is finished, and its"), (of_another_run, "already holds config.json")):
        error = refused(capsys, *command(train_file, tmp_path / "run", resume_from_checkpoint=checkpoint))
        assert reason in error
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_the_minutes_of_the_parts_of_a_run_add_up(train_file: Path, full: Path, tmp_path: Path) -> None:
    folder = copy_interrupted(full, tmp_path / "run", 10)
    path = folder / "checkpoint-10" / RECORD_FILE
    record = json.loads(path.read_text())
    assert 0 < record[SECONDS] < 600
    path.write_text(json.dumps(record | {SECONDS: 7200.0}))  # as if the first part had taken two hours
    assert main(command(train_file, folder, resume_from_checkpoint="auto")) == 0
    assert 7200 < read_trained_seconds(str(list_checkpoints(folder)[-1])) < 7800
    (minutes,) = re.findall(r"([\d.]+) minutes", (folder / "README.md").read_text())
    assert 120 <= float(minutes) < 130


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def test_a_damaged_file_of_a_checkpoint_is_found(full: Path, tmp_path: Path) -> None:
    names = ("trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors")
    for name in (*names, "trained_weights.safetensors"):
        for damage in (cut, empty):
            checkpoint = tmp_path / f"{name} {damage.__name__}"
            shutil.copytree(full / "checkpoint-8", checkpoint)
            assert find_damage(checkpoint) is None
            damage(checkpoint / name)
            assert (find_damage(checkpoint) or "").startswith(f"{name}: ")


def test_the_newest_whole_checkpoint_is_resumed(
    train_file: Path, full: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copy_interrupted(full, tmp_path / "run", 6, 8, 10)
    cut(folder / "checkpoint-8" / "optimizer.pt")
    cut(folder / "checkpoint-10" / "model.safetensors")
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert main(command(train_file, folder, resume_from_checkpoint="auto")) == 0
    assert f"{folder}/checkpoint-10 is damaged (model.safetensors: " in caplog.text
    assert f"resuming from {folder}/checkpoint-6" in caplog.text
    assert have_same_weights(folder, full)


def test_a_damaged_checkpoint_is_named_and_no_run_started_anew(
    train_file: Path, full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_interrupted(full, tmp_path / "run", 4)
    cut(folder / "checkpoint-4" / "optimizer.pt")
    error = refused(capsys, *command(train_file, folder, resume_from_checkpoint=folder / "checkpoint-4"))
    assert "checkpoint-4 is damaged (optimizer.pt: " in error
    error = refused(capsys, *command(train_file, folder, resume_from_checkpoint="auto"))
    assert f"every checkpoint in {folder} is damaged: start again with --overwrite_output_dir" in error


def test_a_checkpoint_without_an_optimizer_is_refused(
    train_file: Path, full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_interrupted(full, tmp_path / "run", 4)
    (folder / "checkpoint-4" / "optimizer.pt").unlink()
    for value in ("auto", folder / "checkpoint-4"):
        error = refused(capsys, *command(train_file, folder, resume_from_checkpoint=value))
        assert "checkpoint-4 holds no optimizer (--save_only_model), so that its run cannot go on" in error


# ---- resuming another run


def test_a_finished_run_is_not_resumed(
    train_file: Path, full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(full, folder)
    before = read_files(folder)
    for value in ("auto", "True", folder / "checkpoint-12"):
        error = refused(capsys, *command(train_file, folder, resume_from_checkpoint=value))
        assert f"the run in {folder} is finished, with 12 of 12 steps: use a larger --max_steps" in error
    assert read_files(folder) == before
    error = refused(
        capsys, *command(train_file, folder, resume_from_checkpoint="auto", max_steps=None, num_train_epochs=2.5)
    )
    assert "is finished, with 3 of 2.5 epochs: use a larger --num_train_epochs" in error
    assert main(command(train_file, folder, resume_from_checkpoint="auto", max_steps=13)) == 0


def kill(*_: object, **__: object) -> None:
    raise Killed


def run_killed_in(place: Any, name: str, argv: list[str]) -> None:
    """Runs a command that is killed where it calls this function of a class or module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, kill)
        with pytest.raises(Killed):
            main(argv)


SCORED = {"max_eval_samples": 4, "eval_strategy": "no", "load_best_model_at_end": False, "max_steps": 4}


@pytest.fixture(scope="module")
def scored(train_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of four steps that scores validation and test pairs after them."""
    folder = tmp_path_factory.mktemp("scored") / "run"
    assert main(command(train_file, folder, validation_file=train_file, test_file=train_file, **SCORED)) == 0
    return folder


@pytest.mark.parametrize(
    ("place", "name"),
    [(CopyNetTrainer, "evaluate"), (training_run, "evaluate_pairs")],
    ids=["validation", "test"],
)
def test_a_run_killed_while_it_scores_pairs_is_completed_without_training(
    train_file: Path,
    scored: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seen: list[tuple[int, ...]],
    place: Any,
    name: str,
) -> None:
    folder = tmp_path / "run"
    options = {"validation_file": train_file, "test_file": train_file, **SCORED}
    run_killed_in(place, name, command(train_file, folder, **options))
    before = json.loads((folder / "train_results.json").read_text())
    seen.clear()
    resume = command(train_file, folder, **options, resume_from_checkpoint="auto")
    assert main(resume) == 0
    assert not seen
    assert json.loads((folder / "train_results.json").read_text()) == before
    assert have_same_weights(folder, scored)
    names = {path.name for path in scored.iterdir()}
    assert {path.name for path in folder.iterdir()} == names >= {"README.md", "all_results.json"}
    for file in ("eval_results.json", "test_results.json"):
        one, other = (json.loads((each / file).read_text()) for each in (folder, scored))
        assert all(one[key] == other[key] for key in other if "second" not in key and "runtime" not in key)
    predictions = [(each / "test_predictions.jsonl").read_text() for each in (folder, scored)]
    assert predictions[0] == predictions[1]
    assert "is finished, with 4 of 4 steps" in refused(capsys, *resume)


def test_a_continued_run_killed_while_it_scores_pairs_leaves_no_results_of_its_first_part(
    train_file: Path, full: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(full, folder)
    options = {"max_steps": 14, "resume_from_checkpoint": "auto", "test_file": train_file, "max_eval_samples": 4}
    run_killed_in(training_run, "evaluate_pairs", command(train_file, folder, **options))
    assert not (folder / "all_results.json").exists()
    assert main(command(train_file, folder, **options)) == 0
    assert "4 of test" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"segmenter": "char"}, "--segmenter is char, but auto in the run of "),
        ({"vocab_size": 50}, "--vocab_size is 50, but None in the run of "),
        ({"min_frequency": 2}, "--min_frequency is 2, but None in the run of "),
        ({"learning_rate": 0.005}, "--learning_rate is 0.005, but 0.002 in the run of "),
        ({"optim": "sgd"}, "--optim is sgd, but adamw_torch_fused in the run of "),
        ({"weight_decay": 0.1}, "--weight_decay is 0.1, but 0.0 in the run of "),
        ({"vocabulary_dropout": 0.2}, "--vocabulary_dropout is 0.2, but 0.1 in the run of "),
        ({"compound_copies": 0.0}, "--compound_copies is 0.0, but 0.3 in the run of "),
        ({"tie_word_embeddings": True}, "--tie_word_embeddings is True, but False in the model "),
        ({"max_train_samples": 10}, "the training pairs are not those of the run of "),
    ],
)
def test_another_tokenizer_or_other_pairs_are_refused(
    train_file: Path,
    full: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    message: str,
) -> None:
    folder = copy_interrupted(full, tmp_path / "run", 4)
    before = sorted(folder.rglob("*"))
    error = refused(capsys, *command(train_file, folder, resume_from_checkpoint="auto", **changes))
    assert f"{message}{folder}/checkpoint-4: " in error
    assert sorted(folder.rglob("*")) == before


def test_a_checkpoint_of_an_earlier_version_knows_fewer_arguments(full: Path, tmp_path: Path) -> None:
    checkpoint = copy_interrupted(full, tmp_path / "run", 8) / "checkpoint-8"
    record = json.loads((checkpoint / RECORD_FILE).read_text(encoding="utf-8"))
    earlier = {name: value for name, value in record.items() if name != "segmenter"}
    (checkpoint / RECORD_FILE).write_text(json.dumps(earlier), encoding="utf-8")
    check_run_record(str(checkpoint), record | {"segmenter": "char"})


def test_the_pairs_are_all_columns_that_are_read_in_their_order() -> None:
    rows = {"text": ["a", "c"], "summary": ["b", "d"]}
    others: list[dict[str, Any]] = [{"features": [["V"], []]}, {"features": [["N"], []]}]
    others += [{"facts": [[["X", "b", "c"]], []]}, {"text": ["c", "a"], "summary": ["d", "b"]}]
    first, same, *different = (
        make_run_record(Dataset.from_dict(rows | more), TrainArguments())[FINGERPRINT]
        for more in ({}, {"id": [1, 2]}, *others)
    )
    assert first == same
    assert len({first, *different}) == 5


# ---- two runs in one folder


def test_a_dry_run_warns_of_a_folder_that_the_run_would_not_take(
    train_file: Path, full: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(command(train_file, full, dry_run=True, max_steps=1)) == 0
    assert f"warning: --output_dir {full} already holds config.json" in caplog.text


def test_a_second_training_into_the_same_folder_is_refused(
    train_file: Path, full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, interrupted = tmp_path / "run", copy_interrupted(full, tmp_path / "interrupted", 4)
    for each in (folder, interrupted):
        with lock_output_dir(each):
            error = refused(capsys, *command(train_file, each))
            assert f"--output_dir {each} is in use by another training, which holds {each / LOCK_FILE}: use" in error
    assert not folder.exists()
    error = refused(capsys, *command(train_file, interrupted))
    assert "holds an unfinished run: continue it with" in error
    assert "--resume_from_checkpoint auto" in error
    folder.mkdir()
    (folder / LOCK_FILE).touch()  # of a killed process
    assert main(command(train_file, folder, max_steps=1)) == 0
    assert not (folder / LOCK_FILE).exists()


# ---- SIGTERM


def test_sigterm_saves_a_checkpoint_from_which_the_run_continues(
    train_file: Path,
    full: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps: list[int] = []
    schedule = {"save_strategy": "no", "save_steps": None}
    on_step_end = SigtermCheckpoint.on_step_end

    def send(self: SigtermCheckpoint, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        steps.append(state.global_step)
        if len(steps) == EPOCH + 2:
            os.kill(os.getpid(), signal.SIGTERM)
        on_step_end(self, args, state, control, **kwargs)

    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(SigtermCheckpoint, "on_step_end", send)
    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as exit_info, caplog.at_level(logging.INFO, "copynet_hf"):
        main(command(train_file, folder, **schedule))
    assert exit_info.value.code == 143
    assert caplog.messages[-1] == "stopped by SIGTERM: continue with --resume_from_checkpoint auto"
    assert signal.getsignal(signal.SIGTERM) == handler
    assert list_checkpoints(folder)[-1].name == f"checkpoint-{EPOCH + 2}"
    assert not (folder / "model.safetensors").exists()
    assert main(command(train_file, folder, **schedule, resume_from_checkpoint="auto")) == 0
    assert have_same_weights(folder, full)


def test_sigterm_after_the_training_ends_the_run_with_143(
    train_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def send(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("went on")

    handler = signal.getsignal(signal.SIGTERM)
    options = {"test_file": train_file, "max_eval_samples": 4, "max_steps": 4}
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "copynet_hf"):
        patch.setattr(training_run, "evaluate_pairs", send)
        signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the signal was not handled"))
        with pytest.raises(SystemExit) as exit_info:
            main(command(train_file, tmp_path / "run", **options))
    signal.signal(signal.SIGTERM, handler)
    assert exit_info.value.code == 143
    assert caplog.messages[-1] == "stopped by SIGTERM: continue with --resume_from_checkpoint auto"


@pytest.mark.parametrize("schedule", [{}, {"save_strategy": "no", "save_steps": None}], ids=["steps", "no"])
def test_sigterm_after_the_last_step_loses_no_training(
    train_file: Path, full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: dict[str, Any]
) -> None:
    on_train_end = SigtermCheckpoint.on_train_end

    def send(self: SigtermCheckpoint, *arguments: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        on_train_end(self, *arguments, **kwargs)

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(SigtermCheckpoint, "on_train_end", send)
        with pytest.raises(SystemExit) as exit_info:
            main(command(train_file, folder, **schedule))
    assert exit_info.value.code == 143
    assert (folder / "model.safetensors").exists() == (not list_checkpoints(folder))
    if not (folder / "model.safetensors").exists():
        assert main(command(train_file, folder, **schedule, resume_from_checkpoint=True)) == 0
        assert (folder / "README.md").exists()
    assert have_same_weights(folder, full)


# ---- full disk


@pytest.fixture
def file_size_limit() -> Iterator[Callable[[int], None]]:
    """Sets the largest size of a file that this process can write, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt"])
def test_a_full_disk_ends_in_one_line_and_keeps_the_old_checkpoint(
    train_file: Path,
    full: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file_size_limit: Callable[[int], None],
    file: str,
) -> None:
    folder = copy_interrupted(full, tmp_path / "run", 4)
    size = (full / "checkpoint-4" / file).stat().st_size
    file_size_limit(size - 1000)
    error = refused(capsys, *command(train_file, folder, resume_from_checkpoint="auto", save_total_limit=1))
    assert f"{folder / 'checkpoint-6'} cannot be saved (" in error
    assert [path.name for path in sorted(folder.iterdir())] == ["checkpoint-4"]
    assert find_damage(folder / "checkpoint-4") is None


# ---- before the training


def test_a_missing_tensorboard_is_an_error_before_the_data_are_read(
    train_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.integrations.integration_utils.is_tensorboard_available", lambda: False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setattr(training_run, "train_tokenizer", lambda *_: pytest.fail("began"))
    error = refused(capsys, *command(train_file, tmp_path / "run", report_to="tensorboard"))
    assert "--report_to tensorboard cannot be used" in error
    assert "pip install tensorboard" in error
    assert not (tmp_path / "run").exists()


def test_max_eval_samples_reads_only_the_start_of_the_files(
    train_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], full: Path
) -> None:
    large = Path(write_requests(tmp_path, train=64)["train_file"])
    large.write_text(large.read_text(encoding="utf-8") * 200, encoding="utf-8")
    lines: list[int] = []
    check_row = data_rows._check_row
    monkeypatch.setattr(data_rows, "_check_row", lambda row: lines.append(1) or check_row(row))
    monkeypatch.setattr(
        "copynet_hf.data.pairs._hash_contents", lambda path: "x" if path == train_file else pytest.fail("read")
    )
    capsys.readouterr()
    assert main(["evaluate", f"--model={full}", f"--test_file={large}", "--max_eval_samples=5", "--num_beams=1"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 5
    assert len(lines) < 2_000
    folder = tmp_path / "run"
    argv = command(train_file, folder, max_steps=1, validation_file=large, test_file=large, max_eval_samples=5)
    assert main(argv) == 0
    assert len((folder / "test_predictions.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    assert len(lines) < 6_000


def test_a_checkpoint_of_several_processes_is_whole_with_the_states_of_all(tmp_path: Path) -> None:
    """A process that is killed while the others save leaves out the state of its random generators."""
    (tmp_path / "trainer_state.json").write_text("{}")
    (tmp_path / "run_record.json").write_text(json.dumps({"train_pairs": "0", "num_processes": 2}))
    for rank, damage in enumerate(["rng_state_0.pth is missing", "rng_state_1.pth is missing"]):
        assert find_damage(tmp_path) == damage
        torch.save({"cpu": torch.get_rng_state()}, tmp_path / f"rng_state_{rank}.pth")
    assert find_damage(tmp_path) is None
