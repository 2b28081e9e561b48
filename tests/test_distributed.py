"""Two processes that share the batch of each step train the weights that one process trains on the whole batch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import write_rows
from safetensors.torch import load_file
from tiny_encoders import save_encoder

from copynet_hf.cli import main

BATCH, STEPS = 4, 10
SIZES = {"embedding_size": 8, "hidden_size": 12, "encoder_hidden_size": 6, "attention_size": 8, "dropout": 0}
ARGUMENTS = {
    **SIZES,
    "segmenter": "whitespace",
    "min_frequency": 3,
    "max_steps": STEPS,
    "train_sampling_strategy": "sequential",
    # Adam normalises gradients and would hide one that is half as large as it should be.
    "optim": "sgd",
    "learning_rate": 1,
    "warmup_steps": 0,
    "save_strategy": "no",
    "use_cpu": True,
    "threads": 1,
    "vocabulary_dropout": 0,  # random in each process
}


# The command in two processes with the variables that torchrun sets, forked after what both import. They exit without
# shutting down the interpreter: gloo's threads sometimes abort during the shutdown (pytorch/pytorch#179291).
PROCESSES = """
import os, signal, socket, sys
import copynet_hf.training.run
from copynet_hf.cli import main
with socket.create_server(("127.0.0.1", 0)) as probe:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": "2"}
pids = {}
for rank in ("0", "1"):
    if pid := os.fork():
        pids[pid] = rank
        continue
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank}
    code = main(sys.argv[1:])
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)
while pids:
    pid, status = os.wait()
    del pids[pid]
    if status:
        for other in pids:  # it would wait forever
            os.kill(other, signal.SIGKILL)
        sys.exit(1)
"""


@pytest.fixture
def train_file(tmp_path: Path) -> Path:
    """Short and long rows in alternate batches, so that each process has only one kind; some words are unseen."""
    rows = []
    for row in range(2 * BATCH * STEPS):
        length = 1 + row % 3 if row // BATCH % 2 else 9 + row % 7
        words = [f"new{row}" if place % 4 == 3 else f"w{(7 * row + place) % 20}" for place in range(length)]
        facts = [[words[0], "next", words[-1]]] if row % 3 else []
        rows.append({"text": " ".join(words), "facts": facts, "summary": " ".join(words[: 1 + 2 * length // 3])})
    return Path(write_rows(tmp_path / "train.jsonl", rows))


COVERAGE = {"copy_mechanism": "pointer_generator", "use_coverage": True, "coverage_loss_weight": 1}
MECHANISMS = [
    pytest.param({"train_sampling_strategy": "group_by_length"}, id="copynet"),  # the default
    # The other mechanisms share this code. Each process reads the whole stream, in the same order.
    pytest.param(
        COVERAGE | {"streaming": True, "train_sampling_strategy": "random", "data_seed": 1},
        id="stream",
        marks=pytest.mark.slow,
    ),
    pytest.param({"copy_mechanism": "gated", "aligned_words": 2}, id="gate loss", marks=pytest.mark.slow),
    pytest.param({"copy_mechanism": "pointer"}, id="pointer", marks=pytest.mark.slow),
    pytest.param({"copy_mechanism": "retrieval"}, id="retrieval", marks=pytest.mark.slow),
]


def command(train_file: Path, folder: Path, batch: int, fields: dict[str, Any]) -> list[str]:
    files = {"train_file": train_file, "output_dir": folder}
    arguments = files | {"per_device_train_batch_size": batch} | ARGUMENTS | fields
    return ["train", *(f"--{name}={value}" for name, value in arguments.items())]


def load_trained(folder: Path) -> tuple[dict[str, torch.Tensor], float]:
    """The weights and buffers, and the number of epochs."""
    metrics = json.loads((folder / "all_results.json").read_text())
    weights = load_file(folder / "model.safetensors")
    return {name: value.float() for name, value in weights.items()}, metrics["epoch"]


def run_in_two_processes(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROCESSES, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("saved in") == done.stderr.count("parameters, a vocabulary of") == 1  # the first one logs


NEEDS_GLOO = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch without gloo"
)


@NEEDS_GLOO
@pytest.mark.parametrize("fields", MECHANISMS)
def test_two_processes_train_the_weights_of_one_with_twice_the_batch(
    fields: dict[str, Any], train_file: Path, tmp_path: Path
) -> None:
    run_in_two_processes(command(train_file, tmp_path / "two", BATCH, fields))
    for name, batch in (("one", 2 * BATCH), ("half", BATCH)):
        assert main(command(train_file, tmp_path / name, batch, fields)) == 0
    two, epochs = load_trained(tmp_path / "two")
    one, _ = load_trained(tmp_path / "one")
    half, _ = load_trained(tmp_path / "half")
    assert epochs == 1.0  # one process with the same batch sees half of the pairs
    torch.testing.assert_close(two, one, rtol=0, atol=1e-5)
    assert max((half[name] - one[name]).abs().max() for name in one) > 1e-2


@NEEDS_GLOO
@pytest.mark.slow
def test_two_processes_train_a_transformers_encoder_as_one_does(train_file: Path, tmp_path: Path) -> None:
    """BERT has a pooler, whose weights would get no gradients and which is left out."""
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = save_encoder(tmp_path / "encoder", **no_dropout, max_position_embeddings=256)
    fields = {"encoder_name_or_path": encoder, "encoder_learning_rate": 0.3, "ddp_find_unused_parameters": False}
    fields["learning_rate"] = 0.3  # larger steps would amplify the rounding of the sums over processes
    run_in_two_processes(command(train_file, tmp_path / "two", BATCH, fields))
    assert main(command(train_file, tmp_path / "one", 2 * BATCH, fields)) == 0
    two, _ = load_trained(tmp_path / "two")
    one, _ = load_trained(tmp_path / "one")
    torch.testing.assert_close(two, one, rtol=0, atol=1e-4)
    before, prefix = load_file(Path(encoder) / "model.safetensors"), "model.encoder.text_encoder."
    changes = [one[name] - before[name.removeprefix(prefix)] for name in one if name.startswith(prefix)]
    assert max(change.abs().max() for change in changes) > 1e-2


@NEEDS_GLOO
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["group_by_length", "random"])
def test_two_processes_resumed_in_a_later_epoch_train_the_weights_of_an_uninterrupted_run(
    strategy: str, train_file: Path, tmp_path: Path
) -> None:
    schedule = {
        "max_steps": 3 * STEPS,
        "save_strategy": "steps",
        "save_steps": STEPS + 4,
        "save_total_limit": 5,
        "dropout": 0.2,
    }
    fields = schedule | {"train_sampling_strategy": strategy, "resume_from_checkpoint": "auto"}
    run_in_two_processes(command(train_file, tmp_path / "full", BATCH, fields))
    checkpoint = f"checkpoint-{STEPS + 4}"
    shutil.copytree(tmp_path / "full" / checkpoint, tmp_path / "resumed" / checkpoint)
    run_in_two_processes(command(train_file, tmp_path / "resumed", BATCH, fields))
    full, resumed = (load_trained(tmp_path / name)[0] for name in ("full", "resumed"))
    assert all(torch.equal(full[name], resumed[name]) for name in full)
