"""Training and scoring, each done once: what a run folder already holds is not computed again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset
from transformers import GenerationConfig, PreTrainedModel

from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.saved.ensembles import join_models
from copynet_hf.saved.loading import load_copynet, load_model
from copynet_hf.training.checkpoints import list_checkpoints, read_trained_seconds
from copynet_hf.training.run import train_from_arguments

from ..data.rows import Row, keep_pair_columns, to_file_name, write_pairs, write_text
from .results_file import ResultsFile
from .settings import Settings

# Config fields of the models that most experiments compare. RNNSearch (Bahdanau et al. 2014) attends, but cannot copy.
RNNSEARCH = {"copy_mechanism": "none"}
RNNSEARCH_AND_COPYNET: dict[str, dict[str, Any]] = {"RNNSearch": RNNSEARCH, "CopyNet": {}}


# ---- training


def train_once(
    folder: Path,
    arguments: Mapping[str, Any],
    settings: Settings,
    decoding: Mapping[str, Any] | None = None,
    train: Callable[[Mapping[str, Any]], dict[str, float]] | None = None,
    command: str | None = None,
    load: Callable[[str], PreTrainedModel] = load_copynet,
) -> dict[str, Any]:
    """Trains the model of `folder` unless it is there, from its last checkpoint if there is one.

    Args:
        arguments: of `copynet-hf train`.
        decoding: fields of the generation config that is saved with the model.
        train, command: the training function and its command line, in place of `copynet-hf train`.
        load: loads the trained model.

    Returns:
        the training record: folder, parameters, minutes, epochs, command, environment.

    Raises:
        ValueError: the folder holds a model of other arguments or other pairs.
    """
    all_arguments = {"bf16": settings.bf16, "seed": settings.seed, "save_total_limit": 1, **arguments}
    if settings.max_minutes is not None:
        all_arguments["max_minutes"] = settings.max_minutes
    fingerprint = compute_fingerprint(*_read_contents(all_arguments), decoding)
    finished, begun = folder / "training.json", folder / "begun.json"
    for path in (finished, begun):
        if path.exists() and json.loads(path.read_text(encoding="utf-8"))["fingerprint"] != fingerprint:
            raise ValueError(
                f"{folder} holds a model of other arguments or pairs: remove it, or name another --output_dir"
            )
    if not finished.exists():
        command = command or _format_command(all_arguments, folder)
        record = {"fingerprint": fingerprint, "command": command, **describe_environment(settings)}
        checkpoint = next(reversed(list_checkpoints(folder)), None)
        write_text(begun, json.dumps(record, indent=1) + "\n")
        train = train or train_from_arguments
        record |= _train(folder, {**all_arguments, "threads": settings.threads}, checkpoint, decoding, train, load)
        write_text(finished, json.dumps(record, indent=1) + "\n")
    return {"folder": str(folder), **json.loads(finished.read_text(encoding="utf-8"))}


def join_once(folder: Path, members: Sequence[Path]) -> dict[str, Any]:
    """Makes an ensemble of trained models in `folder` unless it is there; returns its record, with the members'
    parameters and minutes together."""
    records = [json.loads((member / "training.json").read_text(encoding="utf-8")) for member in members]
    fingerprint = compute_fingerprint([record["fingerprint"] for record in records])
    finished = folder / "training.json"
    if not finished.exists() or json.loads(finished.read_text(encoding="utf-8"))["fingerprint"] != fingerprint:
        model, tokenizer = join_models(list(map(str, members)))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        command = shlex.join(["copynet-hf", "ensemble", "--models", *map(str, members), "--output_dir", str(folder)])
        sums = {name: sum(record[name] for record in records) for name in ("parameters", "minutes")}
        resumed = any(record["resumed"] for record in records)
        record = {**records[0], **sums, "fingerprint": fingerprint, "command": command, "resumed": resumed}
        write_text(finished, json.dumps(record, indent=1) + "\n")
    return {"folder": str(folder), **json.loads(finished.read_text(encoding="utf-8"))}


def _train(
    folder: Path,
    arguments: dict[str, Any],
    checkpoint: Path | None,
    decoding: Mapping[str, Any] | None,
    train: Callable[[Mapping[str, Any]], dict[str, float]],
    load: Callable[[str], PreTrainedModel],
) -> dict[str, Any]:
    arguments |= {"output_dir": str(folder), "disable_tqdm": not sys.stderr.isatty()}
    arguments |= {"overwrite_output_dir": True} if checkpoint is None else {"resume_from_checkpoint": "True"}
    earlier = 0.0 if checkpoint is None else read_trained_seconds(str(checkpoint))
    metrics = train(arguments)
    if decoding:
        config = GenerationConfig.from_pretrained(folder)
        config.update(**decoding)
        config.save_pretrained(folder)
    return {
        "parameters": load(str(folder)).num_parameters(),
        "minutes": round((earlier + metrics["train_runtime"]) / 60, 1),
        "pairs_per_second": round(metrics["train_samples_per_second"], 1),
        "epochs": round(metrics["epoch"], 2),
        "resumed": checkpoint is not None,
        "earlier_seconds": round(earlier, 1),
    }


def _read_contents(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments without names of files and folders, and hashes of what those contain."""
    paths = {name: Path(str(value)) for name, value in arguments.items() if name.endswith(("_file", "_name_or_path"))}
    files = [_find_contents(path) if path.is_dir() else path for path in paths.values()]
    return (
        {name: value for name, value in arguments.items() if name not in paths},
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in files],
    )


def _find_contents(folder: Path) -> Path:
    """The file that stands for a model's folder: the record of its training, or the weights of a published one."""
    return next(file for name in ("training.json", "model.safetensors") if (file := folder / name).is_file())


def _format_command(arguments: Mapping[str, Any], folder: Path) -> str:
    words = ["copynet-hf", "train"]
    for name, value in {**arguments, "output_dir": folder}.items():
        words += [f"--{name}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return shlex.join(words)


def describe_environment(settings: Settings) -> dict[str, Any]:
    """Commit, machine, with its GPU if there is one, threads and versions."""
    describe = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    cpuinfo = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    machine = f"{match.group(1) if match else platform.machine()}, {os.cpu_count()} cores"
    return {
        "commit": git.stdout.strip(),
        "machine": f"{machine}, {torch.cuda.get_device_name()}" if torch.cuda.is_available() else machine,
        "threads": settings.threads,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


# ---- scoring


def evaluate_once(
    folder: Path, name: str, rows: Sequence[Row], settings: Settings, **options: Any
) -> tuple[dict[str, Any], list[Row]]:
    """Scores the folder's model on `rows` unless NAME.json is there; returns scores and outputs.

    Args:
        rows: with `text`, `summary` (a reference or a list of them), and what else the model reads, `facts` or
            `features`.
        options: of `predict_in_batches`.
    """
    pairs = [keep_pair_columns(row) for row in rows]

    def evaluate() -> dict[str, Any]:
        torch.set_num_threads(settings.threads)
        model, tokenizer = load_model(str(folder))
        shown = {"progress": sys.stderr.isatty(), **options}
        scores, outputs = evaluate_pairs(model, tokenizer, Dataset.from_list(pairs), **shown)
        return {"scores": round_scores(scores), "outputs": outputs}

    evaluation = load_or_compute(folder, name, [pairs, options], evaluate)
    return evaluation["scores"], evaluation["outputs"]


def load_or_compute(folder: Path, name: str, inputs: Any, compute: Callable[[], Any]) -> Any:
    """Returns `compute()`, stored as NAME.json in the model's folder and reused for the same model and inputs."""
    file = folder / f"{to_file_name(name)}.json"
    model_fingerprint = json.loads((folder / "training.json").read_text(encoding="utf-8"))["fingerprint"]
    fingerprint = compute_fingerprint(model_fingerprint, inputs)
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if stored.get("fingerprint") != fingerprint:
        stored = {"fingerprint": fingerprint, "made": compute()}
        write_text(file, json.dumps(stored, ensure_ascii=False) + "\n")
    return stored["made"]


def read_kept_scores(folder: Path) -> dict[str, float]:
    """The scores on the validation pairs of the checkpoint that was kept, without `eval_` in their names."""
    scores = json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))
    return {name.removeprefix("eval_"): value for name, value in scores.items()}


def compute_fingerprint(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def round_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds to two decimals; further digits differ between machines."""
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in scores.items()}


# ---- both, for each model of an experiment


def compare_models(
    results: ResultsFile,
    models: Mapping[str, Mapping[str, Any]],
    training_pairs: Mapping[str, Sequence[Row]],
    tests: Mapping[str, Sequence[Row]],
    training: Mapping[str, Any],
    settings: Settings,
    *,
    subfolder: str = "",
    score: Callable[[str, dict[str, Any], list[Row]], dict[str, Any]] = lambda data, scores, outputs: scores,
    stored_outputs: int = 0,
    decoding: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Trains models on the same pairs, scores them, and adds them to the results.

    Args:
        models: arguments of `copynet-hf train` that differ between the models, by model.
        training_pairs: `train`, and `validation` if training evaluates on it.
        tests: test pairs, by data set.
        training: arguments that all models share.
        subfolder: a folder for these models, where models of the same names are trained on other pairs.
        score: computes the stored scores from the data set, the scores of `evaluate_once` and the outputs.
        stored_outputs: how many of the first outputs to store with the results.
        decoding: of `train_once`.
        options: of `evaluate_once`.
    """
    files = write_pairs(settings.seed_folder(subfolder, "data"), training_pairs)
    for model, arguments in models.items():
        if settings.includes(model):
            folder = settings.seed_folder(subfolder, model)
            training_record = train_once(folder, files | {**training, **arguments}, settings, decoding)
            for data, rows in tests.items():
                scores, outputs = evaluate_once(folder, data, rows, settings, **options)
                results.add_run(data, model, score(data, scores, outputs), training_record, outputs[:stored_outputs])
