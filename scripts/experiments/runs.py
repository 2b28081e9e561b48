"""Training and scoring that the experiments share: what is finished is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset
from filelock import FileLock
from transformers import GenerationConfig

from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.inference.loading import load_copynet, load_model
from copynet_hf.training.run import train_from_arguments
from copynet_hf.training.run_folder import checkpoints_of

Row = Mapping[str, Any]

# What most experiments compare. RNNSearch (Bahdanau et al. 2014): attention, and words that are generated alone.
RNNSEARCH = {"copy_mechanism": "none"}
MODELS: dict[str, dict[str, Any]] = {"RNNSearch": RNNSEARCH, "CopyNet": {}}


@dataclass(frozen=True)
class Settings:
    """What the command line of `scripts/reproduce.py` says.

    Attributes:
        output_dir: where models, outputs and scores are kept, and looked for when the script goes on.
        results_dir: where NAME.json, NAME.md and the pictures go.
        cards_dir: where the cards of the models go.
        data_dir: where data that cannot be made is read from, a folder for each set.
        max_minutes: of each training; None: as long as it takes.
        max_samples: of each split, to try a command; None: all.
        models: names of models to train and score; empty: all of the experiment's.
    """

    output_dir: Path
    results_dir: Path
    cards_dir: Path
    data_dir: Path
    seed: int = 0
    max_minutes: float | None = None
    max_samples: int | None = None
    models: tuple[str, ...] = ()
    bf16: bool = True
    threads: int = 2

    def first(self, rows: Sequence[Row]) -> list[Row]:
        """As many rows as are wanted."""
        return list(rows[: self.max_samples])

    def wants(self, model: str) -> bool:
        return not self.models or model in self.models

    def folder(self, *names: str) -> Path:
        """Where one model of this seed is kept."""
        return self.output_dir.joinpath(f"seed_{self.seed}", *map(file_name, names))


def file_name(name: str) -> str:
    """The name with nothing that a file's name should not have."""
    return re.sub(r"\W+", "_", name).strip("_")


# ---- data


def read_rows(path: Path) -> list[Row]:
    """The objects of a JSONL file.

    Raises:
        FileNotFoundError: saying how to name the folder of the data.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is not there: name the folder of the data with --data_dir or COPYNET_DATA (docs/data.md)"
        )
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_pairs(folder: Path, splits: Mapping[str, Iterable[Row]]) -> dict[str, str]:
    """Writes each split's `text`, `summary` and `facts`; returns what tells `copynet-hf train` where they are."""
    for name, rows in splits.items():
        pairs = ({key: row[key] for key in ("text", "summary", "facts") if key in row} for row in rows)
        lines = (json.dumps(pair, ensure_ascii=False) for pair in pairs)
        write(folder / f"{name}.jsonl", "".join(f"{line}\n" for line in lines))
    return {f"{name}_file": str(folder / f"{name}.jsonl") for name in splits}


def write(path: Path, text: str) -> None:
    """Writes a file at once, so that nobody ever reads half of it; one that says the same already stays."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def fingerprint(*parts: Any) -> str:
    """Tells whether what a file was made of is still the same."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


# ---- models


def trained(
    folder: Path,
    arguments: Mapping[str, Any],
    settings: Settings,
    decoding: Mapping[str, Any] | None = None,
    train: Callable[[Mapping[str, Any]], dict[str, float]] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """Trains the model of `folder` if it is not there, from its last checkpoint where there is one.

    Args:
        arguments: of `copynet-hf train`.
        decoding: how the model searches from then on, saved with it, beside what `arguments` say.
        train, command: what trains it, and how to call that, in place of `copynet-hf train`.

    Returns:
        how it was trained: folder, parameters, minutes, epochs, the command, the circumstances.

    Raises:
        ValueError: the folder's model was trained by other arguments or on other pairs.
    """
    said = {"bf16": settings.bf16, "seed": settings.seed, "save_total_limit": 1, **arguments}
    if settings.max_minutes is not None:
        said["max_minutes"] = settings.max_minutes
    made_of = fingerprint(*_contents(said), decoding)
    record, begun = folder / "training.json", folder / "begun.json"
    for path in (record, begun):
        if path.exists() and json.loads(path.read_text(encoding="utf-8"))["fingerprint"] != made_of:
            raise ValueError(
                f"{folder} holds a model of other arguments or pairs: remove it, or name another --output_dir"
            )
    if not record.exists():
        how = {"fingerprint": made_of, "command": command or _command(said, folder), **circumstances(settings)}
        resumed = bool(checkpoints_of(folder))
        write(begun, json.dumps(how, indent=1) + "\n")
        how |= _train(folder, {**said, "threads": settings.threads}, resumed, decoding, train or train_from_arguments)
        write(record, json.dumps(how, indent=1) + "\n")
    return {"folder": str(folder), **json.loads(record.read_text(encoding="utf-8"))}


def _train(
    folder: Path,
    said: dict[str, Any],
    resumed: bool,
    decoding: Mapping[str, Any] | None,
    train: Callable[[Mapping[str, Any]], dict[str, float]],
) -> dict[str, Any]:
    more = {"output_dir": str(folder), "disable_tqdm": not sys.stderr.isatty()}
    more |= {"resume_from_checkpoint": "True"} if resumed else {"overwrite_output_dir": True}
    figures = train(said | more)
    if decoding:
        config = GenerationConfig.from_pretrained(folder)
        config.update(**decoding)
        config.save_pretrained(folder)
    return {
        "parameters": load_copynet(str(folder)).num_parameters(),
        "minutes": round(figures["train_runtime"] / 60, 1),
        "pairs_per_second": round(figures["train_samples_per_second"], 1),
        "epochs": round(figures["epoch"], 2),
        "resumed": resumed,
    }


def _contents(said: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments but for names of files and folders, and what stands in those."""
    named = {name: Path(str(value)) for name, value in said.items() if name.endswith(("_file", "_name_or_path"))}
    files = [path / "training.json" if path.is_dir() else path for path in named.values()]
    return (
        {name: value for name, value in said.items() if name not in named},
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in files],
    )


def _command(said: Mapping[str, Any], folder: Path) -> str:
    words = ["copynet-hf", "train"]
    for name, value in {**said, "output_dir": folder}.items():
        words += [f"--{name}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return shlex.join(words)


def evaluated(
    folder: Path, name: str, rows: Sequence[Row], settings: Settings, **options: Any
) -> tuple[dict[str, Any], list[Row]]:
    """Scores and outputs of the folder's model on `rows`, kept there.

    Args:
        rows: with `text` and `summary`, one reference or a list of them, and `facts` where there are some.
        options: of `predict_in_batches`.
    """
    pairs = [{key: row[key] for key in ("text", "summary", "facts") if key in row} for row in rows]

    def evaluate() -> dict[str, Any]:
        torch.set_num_threads(settings.threads)
        model, tokenizer = load_model(str(folder))
        shown = {"progress": sys.stderr.isatty(), **options}
        scores, outputs = evaluate_pairs(model, tokenizer, Dataset.from_list(pairs), **shown)
        return {"scores": rounded(scores), "outputs": outputs}

    known = kept(folder, name, [pairs, options], evaluate)
    return known["scores"], known["outputs"]


def kept(folder: Path, name: str, made_of: Any, make: Callable[[], Any]) -> Any:
    """What `make` returns, in the model's folder as NAME.json; not made again of the same model and the same parts."""
    file = folder / f"{file_name(name)}.json"
    of_model = json.loads((folder / "training.json").read_text(encoding="utf-8"))["fingerprint"]
    now = fingerprint(of_model, made_of)
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if known.get("fingerprint") != now:
        known = {"fingerprint": now, "made": make()}
        write(file, json.dumps(known, ensure_ascii=False) + "\n")
    return known["made"]


def rounded(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Percentages with two decimals: more would not be the same on another machine."""
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in scores.items()}


def circumstances(settings: Settings) -> dict[str, Any]:
    """Where and with what a run was made."""
    describe = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    return {
        "commit": git.stdout.strip(),
        "machine": f"{found.group(1) if found else platform.machine()}, {os.cpu_count()} cores",
        "threads": settings.threads,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def compared(
    results: Results,
    models: Mapping[str, Mapping[str, Any]],
    learned: Mapping[str, Sequence[Row]],
    tests: Mapping[str, Sequence[Row]],
    training: Mapping[str, Any],
    settings: Settings,
    *,
    within: str = "",
    score: Callable[[str, dict[str, Any], list[Row]], dict[str, Any]] = lambda data, scores, outputs: scores,
    shown: int = 0,
    decoding: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Trains models on the same pairs, scores them, and adds them to the results.

    Args:
        models: config fields and other arguments of `copynet-hf train` for each.
        learned: train, and validation where the training looks at it.
        tests: the test pairs of each data set.
        training: arguments that all of them have.
        within: a folder for these models, where models of the same names are trained on other pairs.
        score: makes what goes to the results from all scores of `evaluated` and the outputs, for each data set.
        shown: so many outputs, the first ones, go to the results.
        decoding: of `trained`.
        options: of `evaluated`.
    """
    files = write_pairs(settings.folder(within, "data"), learned)
    for model, fields in models.items():
        if settings.wants(model):
            folder = settings.folder(within, model)
            how = trained(folder, files | {**training, **fields}, settings, decoding)
            for data, rows in tests.items():
                scores, outputs = evaluated(folder, data, rows, settings, **options)
                results.add(data, model, score(data, scores, outputs), how, outputs[:shown])


# ---- results


class Results:
    """NAME.json: the runs of all seeds, and what belongs to the data; several processes may add to it."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.path = settings.results_dir / f"{name}.json"
        self.seed = settings.seed
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(self.path.with_name(f".{name}.lock"))

    def read(self) -> dict[str, Any]:
        known = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        return {"data": {}, "runs": [], **known}

    def add(
        self, data: str, model: str, scores: Mapping[str, Any], how: Mapping[str, Any], outputs: Sequence[Row] = ()
    ) -> None:
        """Puts in one run, in place of the same model's of the same seed."""
        key = {"data": data, "model": model, "seed": self.seed}
        run = key | {"scores": dict(scores), **how} | ({"outputs": list(outputs)} if outputs else {})
        with self.lock:
            results = self.read()
            others = [old for old in results["runs"] if {name: old[name] for name in key} != key]
            results["runs"] = sorted([*others, run], key=lambda each: each["seed"])
            self._write(results)

    def note(self, **facts: Any) -> None:
        """Puts in what belongs to this seed's data, such as `signature`, `examples` and `baselines`."""
        with self.lock:
            results = self.read()
            known = results["data"].get(str(self.seed), {})
            results["data"] |= {str(self.seed): known | facts}
            self._write(results)

    def _write(self, results: Mapping[str, Any]) -> None:
        write(self.path, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
