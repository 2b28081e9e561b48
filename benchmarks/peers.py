"""Speed, memory and accuracy beside yoyodyne, the package whose purpose is closest: inflection at equal sizes.

    python benchmarks/peers.py [--data_dir ../shared/data] [--work_dir runs/peers] [--quick]

Installs yoyodyne in an environment below --work_dir; PyPI's torch for Linux includes CUDA, set PIP_EXTRA_INDEX_URL for
the CPU build. Timed calls of both packages alternate, in processes with one thread each; trainings that finished are
kept in --work_dir. Writes results/peers.json and results/peers.md. With --quick, which only checks that everything
runs, writes both to --work_dir.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from measure import PAGE, TEMPLATES, describe_machine, parse_arguments, time_side_by_side
from peer_page import OURS, THEIRS, render_page

from copynet_hf import load_pairs
from copynet_hf.training.defaults import MAX_EPOCHS, TRAINING_DEFAULTS
from copynet_hf.training.presets import DEFAULT_SIZES

FOLDER, ROOT = Path(__file__).parent, Path(__file__).parents[1]
VERSION = "0.5.27"
SETS = {"got_small": "got", "hun_small": "hun"}  # the training sets, and the language of their dev and test sets
TIMED_STEPS = [("got_small", 16), ("got_small", 32), ("got_large", 32)]  # training set and batch size
STEPS_PER_ROUND = 22  # an epoch of 700 triples in batches of 32
SEARCHES = {"greedy": 1, "beam 5": 5}
SEARCH_BATCH_SIZE = 32  # the default of both
BATCH_SIZES = {OURS: TRAINING_DEFAULTS["per_device_train_batch_size"], THEIRS: 32}  # the defaults, for the accuracy
SEED = 1


# ---- settings


def build_copynet_arguments(folder: Path, train_file: Path, **changes: Any) -> dict[str, Any]:
    """The default command's arguments, with `changes`."""
    arguments = {"train_file": str(train_file), "features_column": "features", "output_dir": str(folder)}
    return arguments | {"threads": 1, "seed": SEED, "disable_tqdm": True, **changes}


def write_yoyodyne_config(
    folder: Path, train_file: Path, batch_size: int, validation_file: Path | None = None, **trainer: Any
) -> str:
    """Writes config.yaml; returns its path.

    Args:
        validation_file: for the checkpoint with the best accuracy, which is kept as best.ckpt; None: no checkpoint.
        trainer: arguments of Lightning's Trainer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.yaml"
    template = TEMPLATES.get_template("yoyodyne.yaml.jinja")
    files = {"folder": folder, "train_file": train_file, "validation_file": validation_file}
    text = template.render(seed=SEED, sizes=DEFAULT_SIZES, batch_size=batch_size, trainer=trainer, **files)
    path.write_text(text, encoding="utf-8")
    return str(path)


def format_training_command(python: str, arguments: Mapping[str, Any]) -> list[str]:
    words = [python, "-m", "copynet_hf", "train"]
    for name, value in arguments.items():
        words += [f"--{name}", str(value)]
    return words


# ---- processes


def install_yoyodyne(folder: Path) -> str:
    """Makes the environment unless it is there; returns its Python."""
    python = folder / "bin" / "python"
    finished = folder / "installed"
    requirements = FOLDER / "peers_requirements.txt"
    wanted = f"yoyodyne=={VERSION}\n{requirements.read_text(encoding='utf-8')}"
    if not finished.exists() or finished.read_text(encoding="utf-8") != wanted:
        venv.create(folder, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*install, "-c", ROOT / "constraints.txt", "-r", requirements], check=True)
        subprocess.run([*install, "--no-deps", f"yoyodyne=={VERSION}"], check=True)
        finished.write_text(wanted, encoding="utf-8")
    return str(python.absolute())


def single_threaded() -> dict[str, str]:
    """The environment of all processes that are measured."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@contextmanager
def start_worker(python: str, script: str, task: str, log: Path, **options: Any) -> Iterator[Connection]:
    """Starts a worker of this folder on a task; gives the connection to it."""
    here, there = Pipe()
    command = [python, str(FOLDER / script), str(there.fileno())]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, pass_fds=[there.fileno()], env=single_threaded(), stdout=output, stderr=subprocess.STDOUT
        )
    there.close()
    try:
        here.send((task, options))
        yield here
        if process.wait(timeout=60):
            raise RuntimeError(f"{script} failed: see {log}")
    except (EOFError, ConnectionError):
        raise RuntimeError(f"{script} failed: see {log}") from None
    finally:
        process.kill()
        process.wait()
        here.close()


def run_training(command: Sequence[str], log: Path) -> dict[str, float]:
    """Runs a command; returns its CPU minutes, child processes included.

    Raises:
        RuntimeError: it failed.
    """
    with log.open("w") as output:
        process = subprocess.Popen(command, env=single_threaded(), stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(command)} failed: see {log}")
    return {"cpu_minutes": round((usage.ru_utime + usage.ru_stime) / 60, 2)}


# ---- measurements


def ask(connection: Connection, request: Any) -> Any:
    """Sends a request to a worker and waits for its reply."""
    connection.send(request)
    return connection.recv()


def round_seconds(seconds: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [round(value, 3) for value in values] for name, values in seconds.items()}


def measure_steps(
    python: str, data: Path, folder: Path, name: str, batch_size: int, rounds: int, steps: int
) -> dict[str, Any]:
    """Seconds of `steps` training steps in each package's own Trainer, on the same batches, without evaluation."""
    train_file, max_steps = data / f"{name}.train", (1 + rounds) * steps
    folders = {system: folder / "steps" / f"{name}-{batch_size}" / system for system in (OURS, THEIRS)}
    config = write_yoyodyne_config(folders[THEIRS], train_file, batch_size, max_steps=max_steps)
    changes = {"per_device_train_batch_size": batch_size, "max_steps": max_steps, "save_strategy": "no"}
    changes |= {"train_sampling_strategy": "sequential", "overwrite_output_dir": True}
    arguments = build_copynet_arguments(folders[OURS], train_file, **changes)
    folders[OURS].mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        logs = {system: path.with_suffix(".log") for system, path in folders.items()}
        ours = start_worker(
            sys.executable, "peer_copynet.py", "take_steps", logs[OURS], arguments=arguments, steps=steps
        )
        theirs = start_worker(python, "peer_yoyodyne.py", "take_steps", logs[THEIRS], config=config, steps=steps)
        workers = {OURS: stack.enter_context(ours), THEIRS: stack.enter_context(theirs)}
        turns = {system: partial(ask, worker, "go") for system, worker in workers.items()}
        seconds = time_side_by_side(turns, rounds, warmup=1)
        reports = {system: worker.recv() for system, worker in workers.items()}
    facts = {key: {system: report[key] for system, report in reports.items()} for key in reports[OURS]}
    return {
        "set": name,
        "batch_size": batch_size,
        "steps": steps,
        "seconds": round_seconds(seconds),
        **facts,
    }


def train_models(python: str, data: Path, folder: Path, name: str, epochs: int) -> dict[str, dict[str, Any]]:
    """Trains a model of each package on a set, unless it is there; returns what the trainings cost."""
    train_file, validation_file = data / f"{name}.train", data / f"{SETS[name]}.dev"
    folders = {system: folder / f"{name}-{epochs}" / system for system in (OURS, THEIRS)}
    config = write_yoyodyne_config(
        folders[THEIRS], train_file, BATCH_SIZES[THEIRS], validation_file, max_epochs=epochs
    )
    changes = {"validation_file": str(validation_file), "num_train_epochs": epochs, "overwrite_output_dir": True}
    arguments = build_copynet_arguments(folders[OURS], train_file, **changes)
    commands = {
        OURS: format_training_command(sys.executable, arguments),
        THEIRS: [str(Path(python).with_name("yoyodyne")), "fit", "--config", config],
    }
    costs = {}
    for system, command in commands.items():
        finished = folders[system].with_suffix(".json")
        if not finished.exists():
            folders[system].mkdir(parents=True, exist_ok=True)
            (folders[system] / "best.ckpt").unlink(missing_ok=True)  # Lightning would save best-v1.ckpt beside it
            cost = run_training(command, folders[system].with_suffix(".log"))
            finished.write_text(json.dumps(cost) + "\n", encoding="utf-8")
        costs[system] = {"folder": str(folders[system]), **json.loads(finished.read_text(encoding="utf-8"))}
    return costs


@contextmanager
def start_predictors(python: str, models: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Connection]]:
    """A worker of each package with its trained model, which replies to (file, beams) with outputs."""
    ours, theirs = (Path(models[system]["folder"]) for system in (OURS, THEIRS))
    trained = {"config": str(theirs / "config.yaml"), "checkpoint": str(theirs / "best.ckpt")}
    scripts = {
        OURS: (sys.executable, "peer_copynet.py", {"model": str(ours)}),
        THEIRS: (python, "peer_yoyodyne.py", trained),
    }
    with ExitStack() as stack:
        workers = {}
        for system, (interpreter, script, options) in scripts.items():
            log = Path(models[system]["folder"]).with_suffix(".predict.log")
            worker = start_worker(interpreter, script, "predict", log, batch_size=SEARCH_BATCH_SIZE, **options)
            workers[system] = stack.enter_context(worker)
        yield workers
        for worker in workers.values():
            worker.send(None)


def measure_searches(workers: Mapping[str, Connection], file: Path, rounds: int) -> list[dict[str, Any]]:
    """Seconds in which each package predicts the whole file."""
    measured = []
    for search, beams in SEARCHES.items():
        calls = {system: partial(ask, worker, (str(file), beams)) for system, worker in workers.items()}
        seconds = round_seconds(time_side_by_side(calls, rounds, warmup=1))
        measured.append({"search": search, "file": file.name, "words": count_lines(file), "seconds": seconds})
    return measured


def count_lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def find_unseen(train: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Whether the form of each row has a letter that no lemma or form of the training set has."""
    seen = set("".join(row["text"] + row["summary"] for row in train))
    return [not seen.issuperset(row["summary"]) for row in rows]


def count_right(rows: Sequence[Mapping[str, Any]], outputs: Sequence[str], chosen: Sequence[bool]) -> int:
    """How many outputs of the chosen rows are the form, both in NFC.

    Raises:
        ValueError: not as many outputs as rows.
    """
    normalized = partial(unicodedata.normalize, "NFC")
    triples = zip(rows, outputs, chosen, strict=True)
    return sum(normalized(row["summary"]) == normalized(output) for row, output, is_chosen in triples if is_chosen)


def score_models(
    workers: Mapping[str, Connection], models: Mapping[str, Mapping[str, Any]], data: Path, name: str
) -> dict[str, Any]:
    """Accuracy with five beams on the dev and the test set, and on the test words with an unseen letter."""
    files = {"train": f"{name}.train", "dev": f"{SETS[name]}.dev", "test": f"{SETS[name]}.gold"}
    rows = {
        split: list(load_pairs(test_file=str(data / file), features_column="features")["test"])
        for split, file in files.items()
    }
    unseen = find_unseen(rows["train"], rows["test"])
    systems = {}
    for system, worker in workers.items():
        scores = {key: value for key, value in models[system].items() if key != "folder"}
        for split in ("dev", "test"):
            outputs = ask(worker, (str(data / files[split]), SEARCHES["beam 5"]))
            right = count_right(rows[split], outputs, [True] * len(outputs))
            scores[split] = round(100 * right / len(outputs), 1)
            if split == "test":
                scores["unseen_right"] = count_right(rows[split], outputs, unseen)
        systems[system] = scores
    return {"set": name, "test_words": len(unseen), "unseen_words": sum(unseen), "systems": systems}


def describe_versions(python: str) -> str:
    """The versions in yoyodyne's environment."""
    code = "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in ('torch', 'lightning')), sep=', ')"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    data_dir = Path(os.environ.get("COPYNET_DATA", "../shared/data"))
    args = parse_arguments(
        __doc__,
        rounds=5,
        data_dir={"type": Path, "default": data_dir, "help": "with the folder sigmorphon2022"},
        work_dir={"type": Path, "default": ROOT / "runs" / "peers", "help": "environment and models"},
        quick={"action": "store_true", "help": "one epoch, one round, fewer steps"},
    )
    data, folder = (args.data_dir / "sigmorphon2022").absolute(), args.work_dir.absolute()
    python = install_yoyodyne(folder / "environment")
    rounds, steps, epochs = (1, 2, 1) if args.quick else (args.rounds, STEPS_PER_ROUND, MAX_EPOCHS)
    results: dict[str, Any] = {
        "yoyodyne": VERSION,
        "machine": describe_machine(),
        "yoyodyne_versions": describe_versions(python),
        "sizes": DEFAULT_SIZES,
        "epochs": epochs,
        "seed": SEED,
        "batch_sizes": BATCH_SIZES,
        "search_batch_size": SEARCH_BATCH_SIZE,
        "steps": [],
        "searches": [],
        "accuracy": [],
    }
    for name, batch_size in TIMED_STEPS:
        results["steps"].append(measure_steps(python, data, folder, name, batch_size, rounds, steps))
        print(results["steps"][-1], flush=True)
    for name, language in SETS.items():
        models = train_models(python, data, folder, name, epochs)
        with start_predictors(python, models) as workers:
            if not results["searches"]:
                results["searches"] = measure_searches(workers, data / f"{language}.dev", rounds)
            results["accuracy"].append(score_models(workers, models, data, name))
        print(results["accuracy"][-1], flush=True)
    page = (folder if args.quick else PAGE.parent) / "peers.md"
    page.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    page.write_text(render_page(results), encoding="utf-8")
    print(render_page(results))


if __name__ == "__main__":
    main()
