"""How to train by default: alternatives to the defaults, compared on the validation sets of many tasks."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from copynet_hf.training.defaults import LABEL_SMOOTHING
from copynet_hf.training.run import train_from_arguments
from copynet_hf.training.trainer import CopyNetTrainer

from ..data import inflection
from ..data.dialogue import make_dialogue_pairs
from ..data.rows import Row, write_pairs
from ..data.shell_commands import read_command_pairs
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import find_runs, get_data_facts, summarize_runs, table
from ..running.alternatives import CopiedWordAugmentation
from ..running.results_file import ResultsFile
from ..running.settings import Settings, name_model, read_training
from ..running.trained_models import read_kept_scores, train_once

# The scores choose defaults, they are not results. Evaluated more rarely than by default, which takes less time.
TRAINING: dict[str, Any] = {"max_eval_samples": 500, "eval_steps": 0.05, "save_steps": 0.05}


BASE = read_training("recipe")
EXCHANGED = "copied words exchanged, 0.2"  # by `CopiedWordAugmentation`, which no argument sets
CHOSEN = "averaged weights"  # the alternative that the defaults are
# The defaults before these experiments; the checkpoint with the lowest loss, patience 5.
EARLIER = {
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 32,
    "dropout": 0.2,
    "vocabulary_dropout": 0.0,
    "min_frequency": 5,
    "eval_strategy": "epoch",
    "metric_for_best_model": "loss",
    "early_stopping_patience": 5,
}
AVERAGED = {"ema_decay": 0.998}
TWICE = {"embedding_size": 256, "hidden_size": 512, "encoder_hidden_size": 256, "attention_size": 256}
# Arguments of `copynet-hf train` in place of `BASE`.
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "base": {},
    "earlier defaults": EARLIER,
    CHOSEN: AVERAGED,
    "learning rate 1e-3": {"learning_rate": 1e-3},
    "learning rate 1e-3, averaged weights": {"learning_rate": 1e-3, **AVERAGED},
    "learning rate 1.5e-3, averaged weights": {"learning_rate": 1.5e-3, **AVERAGED},
    "learning rate 3e-3": {"learning_rate": 3e-3},
    "batch 32, averaged weights": {"per_device_train_batch_size": 32, **AVERAGED},
    "twice the sizes, averaged weights": {**TWICE, **AVERAGED},
    "no vocabulary dropout, averaged weights": {"vocabulary_dropout": 0.0, **AVERAGED},
    "tied embeddings, averaged weights": {"tie_word_embeddings": True, **AVERAGED},
    "twice the sizes, 4,000 batches of 32, averaged weights": {
        **TWICE,
        **AVERAGED,
        "per_device_train_batch_size": 32,
        "max_steps": 4_000,
    },
    "120 epochs, averaged weights": {"num_train_epochs": 120, **AVERAGED},
    "label smoothing 0.1, averaged weights": {"label_smoothing_factor": 0.1, **AVERAGED},
    EXCHANGED: {},
}

Splits = Mapping[str, Sequence[Row]]


def _read_rewriting(settings: Settings, pairs: int) -> Splits:
    splits = read_dialogues(settings.data_dir)
    return splits | {"train": random.Random(0).sample(splits["train"], len(splits["train"]))[:pairs]}


TASKS: dict[str, Callable[[Settings], Splits]] = {
    "dialogue": lambda settings: make_dialogue_pairs("DS-I", settings.seed),
    "rewriting, 1,000": partial(_read_rewriting, pairs=1_000),
    "rewriting, 17,000": partial(_read_rewriting, pairs=17_000),
    "NL2Bash": lambda settings: read_command_pairs(settings.data_dir),
    "rewriting, 5,000": partial(_read_rewriting, pairs=5_000),
}
INFLECTION = {
    "Hungarian, small": ("hun", "small"),
    "Gothic, small": ("got", "small"),
    "Georgian, small": ("kat", "small"),
    "Arabic, small": ("ara", "small"),
    "Hebrew, small": ("heb", "small"),
    "Korean, small": ("kor", "small"),
    "Polish, small": ("pol", "small"),
    "Veps, small": ("vep", "small"),
    "Armenian, small": ("hye", "small"),
    "Hungarian, large": ("hun", "large"),
    "Turkish, small": ("tur", "small"),
}
# Tables of other settings, each with a score for some data sets; measured on their own.
SETTINGS = (
    "feature_encodings",
    "vocabularies",
    "letters",
    "endings",
    "hidden_letters",
    "case_variants",
    "rare_words",
    "residual",
    "guided_attention",
    "guide_lengths",
    "smoothed_words",
    "marks",
)
# Looked at after the choice of the defaults, which they confirm. The rewriting tasks share their validation pairs.
LATER = ("rewriting, 5,000", "Turkish, small")
LATER_TITLE = "Looked at after the choice"


MODEL_NAMES = tuple(name_model(name, task) for task in (*TASKS, *INFLECTION) for name in ALTERNATIVES)


def run(settings: Settings) -> ResultsFile:
    """Trains every alternative on every task and stores its validation scores."""
    results = ResultsFile("recipe", settings)
    results.add_data_facts(signature="teacher forcing, argmax", baselines={})
    for task in (*TASKS, *INFLECTION):
        chosen = {name: each for name, each in ALTERNATIVES.items() if settings.includes(name_model(name, task))}
        files = _write_files(settings, task) if chosen else {}
        for name, alternative in chosen.items():
            folder = settings.seed_folder(task, name)
            train = partial(train_from_arguments, change_trainer=partial(_change_trainer, name))
            arguments = {**files, **TRAINING, **BASE, **alternative}
            record = train_once(folder, arguments, settings, train=train)
            results.add_run(task, name, _read_scores(folder), record)
    return results


def _change_trainer(alternative: str, trainer: CopyNetTrainer) -> None:
    trainer.scored_pairs = None
    if alternative == EXCHANGED:
        model: Any = trainer.model
        rows: Any = trainer.train_dataset
        trainer.data_collator = CopiedWordAugmentation(trainer.data_collator, model, rows, probability=0.2)


def _write_files(settings: Settings, task: str) -> dict[str, Any]:
    """The files of a task, and the arguments to read them."""
    if task in INFLECTION:
        return inflection.list_files(settings.data_dir, *INFLECTION[task]) | inflection.COLUMNS
    splits = settings.limit_splits(TASKS[task](settings))
    return dict(write_pairs(settings.seed_folder(task, "data"), splits))


def _read_scores(folder: Path) -> dict[str, float]:
    """Of the checkpoint that was kept, and how late it was, from the log of the training."""
    log = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    kept, evaluations = read_kept_scores(folder), [entry for entry in log if "eval_sequence_accuracy" in entry]
    by_loss = min(evaluations, key=lambda entry: entry["eval_loss"])
    scores = {name: kept[name] for name in ("sequence_accuracy", "token_accuracy", "loss")}
    scores["sequence_accuracy_at_lowest_loss"] = by_loss["eval_sequence_accuracy"]
    return {name: round(value, 4) for name, value in scores.items()}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/recipe.md."""
    facts = get_data_facts(results)
    tasks = [task for task in (*TASKS, *INFLECTION) if any(run["data"] == task for run in results["runs"])]
    groups = {
        "Words and characters": [task for task in tasks if task in TASKS and task not in LATER],
        "Inflection, letters": [task for task in tasks if task in INFLECTION and task not in LATER],
        LATER_TITLE: [task for task in tasks if task in LATER],
    }
    base_first = {**results, "runs": sorted(results["runs"], key=lambda run: run["model"] != "base")}
    tables = {name: _settings_table(facts[name]) if name in facts else "" for name in SETTINGS}
    minutes = [
        [name, *_format_means(results, name, tasks, lambda run: float(run["minutes"]))] for name in ALTERNATIVES
    ]
    return {
        "made": summarize_runs(base_first, 1),
        "max_eval_samples": TRAINING["max_eval_samples"],
        "base": BASE,
        "earlier": EARLIER,
        "chosen": CHOSEN,
        "smoothing": LABEL_SMOOTHING,
        "groups": {title: _score_table(results, of_group) for title, of_group in groups.items() if of_group},
        "later": LATER_TITLE,
        "label_smoothing": _seeds_table(facts["label_smoothing"]) if "label_smoothing" in facts else "",
        "minutes": table(["", *tasks], [row for row in minutes if any(row[1:])]),
        "ends": _ends_table(facts["ends"]) if "ends" in facts else "",
        **tables,
    }


def _ends_table(tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """For each task where a training ends by each rule, from the log of one that went on."""
    titles = ("updates", "minutes", "all right", "minutes then", "no rise")
    return table(["", *titles], [[task, *map(of_task.get, titles)] for task, of_task in tasks.items()])


def _score_table(results: dict[str, Any], tasks: list[str]) -> str:
    read = partial(_read_score, score="sequence_accuracy")
    rows = [
        [name, *_format_means(results, name, tasks, read), _format_difference(results, name, tasks)]
        for name in ALTERNATIVES
    ]
    by_loss = partial(_read_score, score="sequence_accuracy_at_lowest_loss")
    rows.insert(1, ["base, checkpoint with the lowest loss", *_format_means(results, "base", tasks, by_loss), ""])
    return table(["", *tasks, "relative to them"], [row for row in rows if any(row[1:])])


def _settings_table(settings: Mapping[str, Mapping[str, float]]) -> str:
    """The scores of each setting, by data set; the first setting has all data sets."""
    sets = list(next(iter(settings.values())))
    rows = [
        [name, *(f"{scores[each]:.1f}" if each in scores else "" for each in sets)]
        for name, scores in settings.items()
    ]
    return table(["", *sets], rows)


def _seeds_table(settings: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """The mean of the seeds' scores for each setting, by data set."""
    rows = [
        [name, *(f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}" for scores in of_sets.values())]
        for name, of_sets in settings.items()
    ]
    return table(["", *next(iter(settings.values()))], rows)


def _format_difference(results: dict[str, Any], name: str, tasks: list[str]) -> str:
    """The mean difference from the chosen alternative, over the runs of the same task and seed."""
    differences = []
    for task in tasks:
        chosen = {run["seed"]: run for run in find_runs(results, task, CHOSEN)}
        for run in find_runs(results, task, name):
            if name != CHOSEN and run["seed"] in chosen:
                scores = (each["scores"]["sequence_accuracy"] for each in (run, chosen[run["seed"]]))
                differences.append(next(scores) - next(scores))
    if not differences:
        return ""
    error = f" ± {statistics.stdev(differences) / len(differences) ** 0.5:.1f}" if len(differences) > 1 else ""
    return f"{statistics.mean(differences):+.1f}{error} ({len(differences)})"


def _read_score(run: Mapping[str, Any], score: str) -> float:
    return float(run["scores"][score])


def _format_means(
    results: dict[str, Any], name: str, tasks: list[str], read: Callable[[Mapping[str, Any]], float]
) -> list[str]:
    """Of each task the mean over the seeds, with the standard deviation where there are several."""
    cells = []
    for task in tasks:
        values = [read(run) for run in find_runs(results, task, name)]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.1f}{spread}" if values else "")
    return cells
