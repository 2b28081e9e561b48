"""Decoders compared: the GRU and a Transformer from scratch, with a copy mode and without, by the default command.

And a T5, pre-trained only on the texts of its task, fine-tuned with a copy head and without.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoModelForSeq2SeqLM

from copynet_hf.training.defaults import TRAINING_DEFAULTS, TRANSFORMER_LEARNING_RATE, TRANSFORMER_WARMUP_FACTOR
from copynet_hf.training.presets import TRANSFORMER_INITIALIZER_RANGE, TRANSFORMER_SIZES

from ..data import inflection
from ..data.clge import read_clge
from ..data.mixed_tasks import make_mixed_pairs
from ..data.rows import Row, write_pairs
from ..data.rules import make_rule_pairs
from ..data.slots import read_requests
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import average_scores, find_runs, table
from ..running.pretraining import MASKED, pretrain_seq2seq
from ..running.results_file import ResultsFile
from ..running.settings import Settings, format_command, name_model, read_training
from ..running.trained_models import RNNSEARCH, evaluate_once, read_kept_scores, train_once
from .proof import format_targets

SHORT = read_training("decoders")
UPDATES = SHORT["max_steps"]
TRANSFORMER: dict[str, Any] = {"decoder": "transformer"}
NO_READ = TRANSFORMER | {"selective_read": False}
MODELS: dict[str, dict[str, Any]] = {
    "GRU": {},
    "Transformer": TRANSFORMER,
    "GRU without selective read": {"selective_read": False},
    "Transformer without selective read": NO_READ,
    "GRU without copying": RNNSEARCH,
    "Transformer without copying": TRANSFORMER | RNNSEARCH,
}
# In place of what `--decoder transformer` sets, compared on the validation pairs, after few updates.
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "default": TRANSFORMER,
    "no selective read": NO_READ,
    "no selective read, embeddings initialised in ±0.1": NO_READ | {"initializer_range": 0.1},
    "no selective read, learning rate 5e-4": NO_READ | {"learning_rate": 5e-4},
}
PRETRAINED = "pre-trained T5"
PRETRAINING, FINE_TUNING = read_training("seq2seq_pretraining"), read_training("seq2seq")
FINE_TUNED: dict[str, dict[str, Any]] = {"T5": RNNSEARCH, "T5 with a copy head": {}}
REQUESTS = "SNIPS"
TEST_PAIRS = 300
RULES, INSTANCES = 40, 60
SET_MODELS = ("GRU", "Transformer")
SCORES = {"exact_match": "EM", "rouge1": "R-1"}
# The first five that have sets of both sizes, so that no score has chosen them.
LANGUAGES = [language for language in inflection.SMALL if language in inflection.LARGE][:5]
SETS = {f"{language}, {size}": (language, size) for size in inflection.SIZES for language in LANGUAGES}


@dataclass(frozen=True)
class Task:
    """A task of another table.

    Attributes:
        read: the arguments that name its training and validation pairs, and its test pairs.
        page: the page of results that describes it.
        models: the names of its models, of `MODELS` and `ALTERNATIVES`.
        score: the score of its table, of `SCORES`.
    """

    read: Callable[[Settings, Path], tuple[dict[str, Any], Sequence[Row]]]
    page: str
    models: Sequence[str] = (*MODELS, *ALTERNATIVES)
    score: str = "exact_match"


def _read_people(settings: Settings, folder: Path) -> tuple[dict[str, Any], Sequence[Row]]:
    splits = settings.limit_splits(make_mixed_pairs("people", settings.seed))
    return dict(write_pairs(folder, splits)), splits["test"]


def _read_rules(settings: Settings, folder: Path) -> tuple[dict[str, Any], Sequence[Row]]:
    """Of the other instances of all rules every third one is for validation."""
    splits = make_rule_pairs(RULES, INSTANCES, settings.seed, 0)
    train, others = (settings.limit(list(splits[name])) for name in ("train", "test"))
    files = write_pairs(folder, {"train": train, "validation": others[::3]})
    return {**files, "segmenter": "whitespace"}, [row for number, row in enumerate(others) if number % 3]


def _read_rewriting(settings: Settings, folder: Path) -> tuple[dict[str, Any], Sequence[Row]]:
    splits = settings.limit_splits(read_dialogues(settings.data_dir))
    test = splits.pop("test")
    return dict(write_pairs(folder, splits)), test


def _read_headlines(settings: Settings, folder: Path) -> tuple[dict[str, Any], Sequence[Row]]:
    splits, tests = read_clge(settings.data_dir / "lcsts", ["clge_test"], settings.max_samples)
    return dict(write_pairs(folder, splits)), tests["clge_test"]


def _read_inflections(
    settings: Settings, folder: Path, *, language: str, size: str
) -> tuple[dict[str, Any], Sequence[Row]]:
    files = inflection.list_files(settings.data_dir, language, size)
    return files | inflection.COLUMNS, inflection.read_test_rows(settings.data_dir, language)


TASKS = {
    "people": Task(_read_people, "reach"),
    "Hungarian, small": Task(partial(_read_inflections, language="hun", size="small"), "inflection"),
    "rules": Task(_read_rules, "table1"),
    "rewriting": Task(_read_rewriting, "rewriting", tuple(MODELS)),
    "LCSTS": Task(_read_headlines, "table3", tuple(MODELS), score="rouge1"),
    **{
        name: Task(partial(_read_inflections, language=language, size=size), "inflection", SET_MODELS)
        for name, (language, size) in SETS.items()
    },
}


def _shorten(alternative: str) -> str:
    """The name of an alternative's run, which ends early."""
    return f"{alternative}, {UPDATES:,} updates"


def _list_models(task: Task) -> dict[str, dict[str, Any]]:
    """The models of a task, with their arguments."""
    models = {model: arguments for model, arguments in MODELS.items() if model in task.models}
    short = {_shorten(each): SHORT | arguments for each, arguments in ALTERNATIVES.items() if each in task.models}
    return models | short


MODEL_NAMES = (
    *(name_model(model, name) for name, task in TASKS.items() for model in _list_models(task)),
    *(name_model(model, REQUESTS) for model in (PRETRAINED, *FINE_TUNED)),
)


def run(settings: Settings) -> ResultsFile:
    """Trains the models of each task and scores them: `MODELS` on test pairs, `ALTERNATIVES` on validation pairs."""
    results = ResultsFile("decoders", settings)
    results.add_data_facts(signature="exact match", baselines={})
    for name, task in TASKS.items():
        models = _list_models(task)
        chosen = {model: models[model] for model in models if settings.includes(name_model(model, name))}
        if not chosen:
            continue
        files, test = task.read(settings, settings.seed_folder(name, "data"))
        for model, arguments in chosen.items():
            folder = settings.seed_folder(name, model)
            record = train_once(folder, {**files, **arguments}, settings)
            if model in MODELS:
                scores = evaluate_once(folder, "test", _spread(test), settings)[0]
            else:
                scores = _read_validation(folder)
            results.add_run(name, model, scores, record)
    _run_pretrained(results, settings)
    return results


def _run_pretrained(results: ResultsFile, settings: Settings) -> None:
    """Pre-trains the T5, fine-tunes it, and scores the fine-tuned models on all test pairs."""
    models = [model for model in (PRETRAINED, *FINE_TUNED) if settings.includes(name_model(model, REQUESTS))]
    if not models:
        return
    rows = settings.limit_splits(read_requests(settings.data_dir, "snips"))
    splits = {split: format_targets(of_split) for split, of_split in rows.items()}
    test = splits.pop("test")
    files = write_pairs(settings.seed_folder(REQUESTS, "data"), splits)
    record = train_once(
        settings.seed_folder(REQUESTS, PRETRAINED),
        {**files, **PRETRAINING},
        settings,
        train=pretrain_seq2seq,
        command=format_command("decoders", name_model(PRETRAINED, REQUESTS), settings.seed),
        load=AutoModelForSeq2SeqLM.from_pretrained,
    )
    scores = {"restored": round(read_kept_scores(Path(record["folder"]))["accuracy"], 2)}
    results.add_run(REQUESTS, PRETRAINED, scores, record)
    for model in models:
        if model in FINE_TUNED:
            arguments = {**files, "seq2seq_name_or_path": record["folder"], **FINE_TUNING, **FINE_TUNED[model]}
            folder = settings.seed_folder(REQUESTS, model)
            fine_tuned = train_once(folder, arguments, settings)
            scores = _read_validation(folder) | evaluate_once(folder, "test", test, settings)[0]
            results.add_run(REQUESTS, model, scores, fine_tuned)


def _spread(rows: Sequence[Row]) -> list[Row]:
    """`TEST_PAIRS` rows from all parts of a test set."""
    return list(rows[:: max(1, len(rows) // TEST_PAIRS)][:TEST_PAIRS])


def _read_validation(folder: Path) -> dict[str, float]:
    """The sequence accuracy, in percent, and the loss on the validation pairs, of the checkpoint that was kept."""
    scores = read_kept_scores(folder)
    return {"validation": round(scores["sequence_accuracy"], 2), "loss": round(scores["loss"], 3)}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/decoders.md."""
    tasks = [task for task in TASKS if task not in SETS and any(run["data"] == task for run in results["runs"])]
    return {
        "updates": UPDATES,
        "sizes": TRANSFORMER_SIZES,
        "embeddings": f"±{TRANSFORMER_INITIALIZER_RANGE:g}",
        "learning_rate": f"{TRANSFORMER_LEARNING_RATE:g}",
        "warmup": TRAINING_DEFAULTS["warmup_steps"] * TRANSFORMER_WARMUP_FACTOR,
        "test_pairs": TEST_PAIRS,
        "pages": {task: TASKS[task].page for task in tasks},
        "rules": (RULES, INSTANCES),
        "tables": {task: _compare(results, task, MODELS, TASKS[task].score) for task in tasks},
        "sets": _compare_sets(results),
        "pretraining": PRETRAINING,
        "masked": f"{MASKED:.0%}",
        "fine_tuning": FINE_TUNING,
        "pretrained": _describe_pretraining(results),
        "fine_tuned": _compare(results, REQUESTS, FINE_TUNED),
        "recipe": _compare_recipes(results, [task for task in tasks if set(ALTERNATIVES) <= set(TASKS[task].models)]),
    }


def _compare(results: dict[str, Any], task: str, models: Iterable[str], score: str = "exact_match") -> str:
    rows = []
    for model in models:
        if runs := find_runs(results, task, model):
            (mean,) = average_scores([run["scores"] for run in runs], [score])
            (epochs,) = average_scores(runs, ["epochs"])
            rows.append([model, mean, len(runs), f"{runs[0]['parameters']:,}", epochs])
    return table(["", SCORES[score], "seeds", "parameters", "epochs"], rows)


def _compare_sets(results: dict[str, Any]) -> str:
    """The exact match of `SET_MODELS` on the sets of inflection that all of them have, and the means."""
    runs = {name: [find_runs(results, name, model) for model in SET_MODELS] for name in SETS}
    rows = [
        [name, *(statistics.mean(run["scores"]["exact_match"] for run in of_model) for of_model in of_set)]
        for name, of_set in runs.items()
        if all(of_set)
    ]
    means = [statistics.mean(column) for column in list(zip(*rows, strict=True))[1:]]
    return table(["", *SET_MODELS], [*rows, ["mean", *means]]) if rows else ""


def _describe_pretraining(results: dict[str, Any]) -> str:
    rows = [
        [PRETRAINED, run["scores"]["restored"], f"{run['parameters']:,}", run["minutes"]]
        for run in find_runs(results, REQUESTS, PRETRAINED)
    ]
    return table(["", "restored, %", "parameters", "minutes"], rows) if rows else ""


def _compare_recipes(results: dict[str, Any], tasks: Sequence[str]) -> str:
    """The validation accuracy of `ALTERNATIVES` on each task, and the loss."""
    rows = []
    for model in ALTERNATIVES:
        runs = [find_runs(results, task, _shorten(model)) for task in tasks]
        if any(runs):
            means = [average_scores([run["scores"] for run in of_task], ["validation", "loss"]) for of_task in runs]
            rows.append([model, *("" if loss is None else f"{right:.1f} ({loss:.2f})" for right, loss in means)])
    return table(["", *tasks], rows) if len(rows) > 1 else ""
