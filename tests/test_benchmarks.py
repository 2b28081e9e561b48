"""The code of the benchmarks: growth, ratios, the page, and the plain model that is the baseline."""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import replace
from itertools import product
from multiprocessing import Pipe
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

from copynet_hf.commands import train
from copynet_hf.training.presets import DEFAULT_SIZES

FOLDER = Path(__file__).parents[1] / "benchmarks"
RESULTS = FOLDER.with_name("results")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script; scripts import each other by bare names, as when they are run."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module


@pytest.fixture
def scaling(load: Any) -> ModuleType:
    return load("scaling")


@pytest.fixture
def measure(load: Any) -> ModuleType:
    return load("measure")


# Growth


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_is_the_power_of_the_growth(scaling: ModuleType, power: float) -> None:
    sizes = [25, 50, 100, 200, 400]
    assert scaling.exponent(sizes, [0.3 * size**power for size in sizes]) == pytest.approx(power)


def growth(scaling: ModuleType, power: float, memory: float = 1.0) -> Any:
    """A sweep whose times, above a constant, and mebibytes grow with these powers."""
    sweep = scaling.Sweep(scaling.SYNTHETIC, "batch", 16)
    seconds = {str(size): [64.0 + size**power] * 2 for size in sweep.sizes}
    return scaling.Growth(sweep, seconds, [10.0 * size**memory for size in sweep.sizes])


def test_the_largest_sizes_show_growth_that_a_constant_hides(scaling: ModuleType) -> None:
    linear, steep = growth(scaling, 1.0), growth(scaling, 2.0)
    assert 0 < linear.exponents["time"] < linear.exponents["time at the end"] < 1
    assert 1 < steep.exponents["time"] < 1.95
    assert steep.exponents["time at the end"] == pytest.approx(2, abs=0.01)
    assert steep.exponents["memory at the end"] == pytest.approx(1)


def test_sizes_are_compared_within_a_round(scaling: ModuleType) -> None:
    sweep = scaling.Sweep(scaling.SYNTHETIC, "batch", 16, count=2)
    seconds = {
        "16": [1.0, 1.0, 5.0],
        "32": [2.0, 10.0, 10.0],
    }  # the machine was slow in the last one and a half rounds
    assert scaling.Growth(sweep, seconds, [1.0, 2.0]).exponents["time at the end"] == pytest.approx(1)


def test_the_page_names_what_grows_faster_than_linearly(scaling: ModuleType) -> None:
    fine, slow, large = growth(scaling, 1.0), growth(scaling, 2.0), growth(scaling, 1.0, memory=1.5)
    assert "Nothing grows faster" in scaling.describe_exponents([fine])
    assert scaling.format_row(fine)[-1] == "no"
    assert "training step by batch (time at the end: 2.00)" in scaling.describe_exponents([fine, slow])
    assert scaling.format_row(slow)[-1] == "time, time at the end"
    assert "(memory at the end: 1.50)" in scaling.describe_exponents([fine, large])
    text = scaling.render_section([fine, large], [large], threads=1, rounds=2)
    assert text.count("| training step | batch | 16 to 256 |") == 3
    assert "MALLOC_" not in scaling.render_section([fine], [], threads=1, rounds=2)


def test_each_sweep_changes_one_size_of_the_synthetic_task(scaling: ModuleType) -> None:
    for sweep in scaling.SWEEPS:
        changed = {
            name for task in sweep.tasks for name, value in vars(task).items() if value != vars(sweep.base)[name]
        }
        assert changed == {sweep.field}
        assert [vars(task)[sweep.field] for task in sweep.tasks] == sweep.sizes
        assert vars(sweep.base).items() >= vars(scaling.SYNTHETIC).items()


def test_the_picture_is_small(scaling: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "scaling.png"
    step = growth(scaling, 1.0)
    search = replace(step, sweep=scaling.Sweep(scaling.SEARCH, "beams", 2))
    scaling.plot_growths([step, search], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 300_000


def test_a_search_takes_all_its_steps(scaling: ModuleType) -> None:
    task = scaling.Search("tiny", source=6, target=4, vocab_size=11, embedding=3, hidden=5, batch=2, beams=3)
    assert scaling.build_call(task)().shape == (2, 1 + scaling.STEPS)


# Measuring and writing


def test_ratios_are_taken_round_by_round(measure: ModuleType) -> None:
    seconds = {"ours": [2.0, 30.0, 200.0], "plain": [1.0, 10.0, 200.0]}
    assert measure.median_ratio(seconds, "ours", "plain") == 2.0
    with pytest.raises(ValueError, match="shorter"):
        measure.median_ratio({"ours": [1.0, 2.0], "plain": [1.0]}, "ours", "plain")


def test_calls_take_turns(measure: ModuleType) -> None:
    order: list[str] = []
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    seconds = measure.time_side_by_side(calls, rounds=3, warmup=1)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"  # a warmup, then each is first in turn
    assert {name: len(rounds) for name, rounds in seconds.items()} == {"a": 3, "b": 3}


def test_a_section_replaces_itself_and_nothing_else(
    measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "results" / "benchmarks.md"
    monkeypatch.setattr(measure, "PAGE", page)
    for name in ("Training", "Scaling", "Scaling of rules"):
        measure.write_section(name, f"first text of {name}\n\n### Below it\n\n| \\1 |")
    before = page.read_bytes()
    measure.write_section("Scaling", "first text of Scaling\n\n### Below it\n\n| \\1 |")
    assert page.read_bytes() == before

    measure.write_section("Scaling", "second text")
    start, end = before.index(b"## Scaling\n"), before.index(b"## Scaling of rules\n")
    after = page.read_bytes()
    assert after.startswith(before[:start])
    assert after.endswith(before[end:])
    assert b"second text" in after
    assert b"first text of Scaling\n" not in after
    assert after.startswith(measure.TITLE.encode())


# The models and batches that are measured


@pytest.fixture
def plain(load: Any) -> Any:
    """A plain seq2seq whose greedy search misses the best output, and whose beams change places."""
    torch.manual_seed(12)
    model = load("plain_seq2seq").PlainSeq2Seq(vocab_size=5, embedding=4, hidden=6)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    torch.nn.init.zeros_(model.output.bias)
    return model


SOURCE, LENGTHS = torch.tensor([[4, 2, 3, 1], [3, 3, 0, 0], [1, 2, 2, 0]]), torch.tensor([4, 2, 3])


def test_one_beam_of_the_plain_model_is_its_greedy_search(plain: Any) -> None:
    greedy = plain.greedy(SOURCE, LENGTHS, steps=8, start=1)
    assert greedy.unique().numel() > 2
    assert torch.equal(plain.beam(SOURCE, LENGTHS, 8, 1, beams=1), torch.cat([torch.ones(3, 1).long(), greedy], dim=1))


@torch.no_grad()
def test_enough_beams_of_the_plain_model_find_the_best_output(plain: Any) -> None:
    output = plain.beam(SOURCE, LENGTHS, 3, 1, beams=25)[:, 1:]
    assert not torch.equal(output, plain.greedy(SOURCE, LENGTHS, 3, 1))
    for row in range(len(SOURCE)):
        source = SOURCE[row : row + 1], LENGTHS[row : row + 1]
        labels = torch.tensor([*product(range(5), repeat=3)])
        words = torch.cat([torch.ones(len(labels), 1).long(), labels[:, :-1]], dim=1)
        losses = [float(plain(*source, *pair)) for pair in zip(words.split(1), labels.split(1), strict=True)]
        assert output[row].tolist() == labels[losses.index(min(losses))].tolist()


@pytest.mark.parametrize("real", [False, True])
def test_rows_of_a_batch_have_the_reported_lengths(load: Any, real: bool) -> None:
    task = load("training").Task(
        "tiny", source=30, target=9, vocab_size=20, embedding=3, hidden=5, batch=40, real=real
    )
    batch = load("training").make_batch(task)
    assert torch.equal(batch["attention_mask"].sum(1), batch["lengths"])
    assert torch.equal((batch["input_ids"] != 0).sum(1), batch["lengths"])
    assert torch.equal(batch["attention_mask"], (torch.arange(30) < batch["lengths"][:, None]).long())
    assert batch["lengths"].max() == 30
    assert batch["lengths"].min() >= (10 if real else 30)
    assert (batch["lengths"].unique().numel() > 1) == real
    assert torch.equal(batch["words"][:, 1:], batch["labels"][:, :-1])
    copied = (batch["labels"][:, ::2, None] == batch["input_ids"][:, None]).any(-1)
    assert copied.all()


# The comparison with yoyodyne, which is not installed for the tests


@pytest.fixture
def peers(load: Any) -> ModuleType:
    return load("peers")


def row(lemma: str, form: str) -> dict[str, Any]:
    return {"text": lemma, "summary": form, "features": ["V"]}


def test_a_letter_is_unseen_if_neither_lemmas_nor_forms_of_the_training_set_have_it(peers: ModuleType) -> None:
    train = [row("ab", "abc")]
    rows = [row("ab", "cab"), row("bd", "bda"), row("ad", "a")]
    assert peers.find_unseen(train, rows) == [False, True, False]


def test_outputs_are_compared_in_nfc(peers: ModuleType) -> None:
    rows = [row("e", "\u00e9s"), row("o", "os"), row("u", "us")]
    outputs = ["e\u0301s", "os", "u"]
    assert peers.count_right(rows, outputs, [True, True, True]) == 2
    assert peers.count_right(rows, outputs, [False, True, True]) == 1
    with pytest.raises(ValueError, match="shorter"):
        peers.count_right(rows, outputs[:2], [True] * 3)


def test_both_models_have_the_default_sizes(peers: ModuleType, tmp_path: Path) -> None:
    path = peers.write_config(tmp_path, peers.build_yoyodyne_config(tmp_path, Path("x_small.train"), 16, max_steps=3))
    config = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    model = config["model"]["init_args"]
    encoder = model["source_encoder"]["init_args"]
    assert model["decoder_hidden_size"] == DEFAULT_SIZES["hidden_size"]
    assert encoder["hidden_size"] == DEFAULT_SIZES["encoder_hidden_size"]
    features = model["features_encoder"]["init_args"]
    assert {part["embedding_size"] for part in (model, encoder, features)} == {DEFAULT_SIZES["embedding_size"]}
    assert {model["decoder_dropout"], encoder["dropout"], features["dropout"]} == {DEFAULT_SIZES["dropout"]}
    assert config["data"] | {"model_dir": ""} == {
        "model_dir": "",
        "train": "x_small.train",
        "features_col": 3,
        "batch_size": 16,
    }
    assert config["trainer"]["max_steps"] == 3


def test_the_checkpoint_of_yoyodyne_is_that_of_the_best_accuracy(peers: ModuleType, tmp_path: Path) -> None:
    config = peers.build_yoyodyne_config(tmp_path, Path("x.train"), 32, max_epochs=60)
    config = peers.select_on_accuracy(config, tmp_path, Path("x.dev"))
    assert (config["data"]["train"], config["data"]["val"]) == ("x.train", "x.dev")
    assert (config["checkpoint"]["monitor"], config["checkpoint"]["mode"]) == ("val_accuracy", "max")


def test_the_command_is_the_default_one(peers: ModuleType, tmp_path: Path) -> None:
    arguments = peers.build_copynet_arguments(tmp_path, Path("x.train"), validation_file="x.dev")
    python, *module, command = peers.format_training_command("python", arguments)[:4]
    assert (python, module, command) == ("python", ["-m", "copynet_hf"], "train")
    parsed = train.COMMAND.build_parser("train").parse_given(peers.format_training_command("python", arguments)[4:])
    assert parsed == {
        "train_file": "x.train",
        "validation_file": "x.dev",
        "features_column": "features",
        "output_dir": str(tmp_path),
        "threads": 1,
        "seed": peers.SEED,
        "disable_tqdm": True,
    }


def test_a_trainer_takes_as_many_steps_in_a_turn_as_it_is_told(load: Any) -> None:
    here, there = Pipe()
    turns = load("peer_turns").StepTurns(there, steps=3)
    for _ in range(2):
        here.send("go")
        for _step in range(3):
            turns.begin_step()  # would wait for ever if there were no turn
            assert not here.poll()
            turns.end_step()
        assert here.recv() == "done"
    turns.report(parameters=7)
    report = here.recv()
    assert report["parameters"] == 7
    assert 0 < report["import_mebibytes"] <= report["peak_mebibytes"]


WORKER = """
import sys
from multiprocessing.connection import Connection
parent = Connection(int(sys.argv[1]))
task, options = parent.recv()
if task == "fail":
    raise ValueError("no such task")
parent.send([task, options, parent.recv()])
"""


def test_a_worker_answers_and_its_failure_names_the_log(
    peers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    (tmp_path / "worker.py").write_text(WORKER)
    log = tmp_path / "worker.log"
    with peers.start_worker(sys.executable, "worker.py", "echo", log, batch_size=2) as worker:
        assert peers.ask(worker, "hello") == ["echo", {"batch_size": 2}, "hello"]
    with (
        pytest.raises(RuntimeError, match=rf"worker\.py failed: see {re.escape(str(log))}"),
        peers.start_worker(sys.executable, "worker.py", "fail", log) as worker,
    ):
        peers.ask(worker, "hello")
    assert "no such task" in log.read_text()


def test_the_cost_of_a_training_is_that_of_its_process(peers: ModuleType, tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 1.5: pass"
    costs = [peers.run_training([sys.executable, "-c", code], tmp_path / "log") for code in (busy, "pass")]
    assert costs[0]["cpu_minutes"] >= costs[1]["cpu_minutes"] + 0.01
    with pytest.raises(RuntimeError, match="failed: see"):
        peers.run_training([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log")


@pytest.mark.skipif(not (RESULTS / "peers.json").exists(), reason="the comparison has not been run")
def test_the_page_of_the_comparison_is_what_the_results_give(peers: ModuleType) -> None:
    results = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))
    assert (RESULTS / "peers.md").read_text(encoding="utf-8") == peers.render_page(results)


@pytest.mark.skipif(not (RESULTS / "peers.json").exists(), reason="the comparison has not been run")
def test_the_page_shows_times_per_step_and_words_without_unseen_letters(peers: ModuleType) -> None:
    results = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))
    step = {**results["steps"][0], "steps": 2}
    step["seconds"] = {"copynet_hf": [0.4, 0.2, 0.2], "yoyodyne": [0.8, 0.4, 0.2]}
    score = {"dev": 50.0, "test": 49.5, "unseen_right": 0, "cpu_minutes": 2.0}
    scored = {"set": "got_small", "test_words": 9, "unseen_words": 0}
    systems = {"copynet_hf": score, "yoyodyne": {**score, "test": 40.0}}
    page = peers.render_page({**results, "steps": [step], "accuracy": [{**scored, "systems": systems}]})
    assert "batch 16 | 100 ms | 200 ms | 0.50 |" in page
    assert "| got_small | copynet_hf | 50.0 | 49.5 | no such words | 2.0 |" in page
    systems["copynet_hf"] = {**score, "unseen_right": 3}
    page = peers.render_page({**results, "accuracy": [{**scored, "unseen_words": 4, "systems": systems}]})
    assert "| 3 of 4 |" in page


# Quantisation


def test_the_section_of_int8_reports_losses_of_exact_match(load: Any) -> None:
    quantization = load("quantization")
    seconds = {"float32": [2.0, 4.0, 3.0], "int8": [1.0, 2.0, 2.0]}
    compared = [
        quantization.Compared("greedy", batch, (8.0, 2.0), (50.0, int8), 97.0, seconds)
        for batch, int8 in ((32, 49.8), (1, 49.6))
    ]
    text = quantization.render({"rules": compared}, texts=300, rounds=3, threads=1)
    assert "| rules | greedy | 32 | 8.0 | 2.0 | 50.0 | 49.8 | -0.2 | 97.0 % |" in text
    assert "| rules | greedy | 32 | 100 | 150 | 2.00 |" in text
    assert "Above 0.3 points is the loss of: rules, greedy, batch 1 (-0.4)." in text
    text = quantization.render({"rules": compared[:1]}, texts=300, rounds=3, threads=1)
    assert "No loss is above 0.3 points." in text


# CoreQA


def test_both_models_read_the_same_facts_and_answers_have_words_of_both_parts(load: Any) -> None:
    retrieval = load("retrieval")
    batch = retrieval.make_batch(32)
    lengths = batch["attention_mask"].sum(1)
    assert torch.equal(batch["attention_mask"], (batch["input_ids"] > 0).long())
    assert torch.equal((batch["token_type_ids"] == 3).sum(1), torch.full((32,), retrieval.FACTS))
    questions = (batch["token_type_ids"] == 0) & (batch["attention_mask"] == 1)
    assert (questions.sum(1).min(), questions.sum(1).max()) == retrieval.QUESTION
    for row, labels in enumerate(batch["labels"]):
        answer, source = labels[labels >= 0], batch["input_ids"][row, : lengths[row]]
        assert retrieval.ANSWER[0] <= len(answer) <= retrieval.ANSWER[1]
        assert answer[-2] == source[-1]
        assert (answer[0] == source[questions[row].nonzero()]).any()
    objects = batch["input_ids"][batch["token_type_ids"] == 3].view(32, -1)
    assert (objects[::16, -1] == objects[::16, -2]).all()


def test_the_section_of_coreqa_gives_its_speed_relative_to_rnnsearch(load: Any) -> None:
    retrieval = load("retrieval")
    text = retrieval.render({16: {"CoreQA": [0.03, 0.02, 0.04], "RNNSearch": [0.024, 0.01, 0.04]}}, rounds=3)
    assert "| 16 | 24.0 | 30.0 | 0.80 |" in text
    for mechanism in ("retrieval", "none"):
        retrieval.build_step(mechanism, 2)()
