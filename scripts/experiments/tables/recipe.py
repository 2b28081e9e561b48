"""How to train by default: alternatives to the defaults, compared on the validation sets of many tasks."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from copynet_hf.training.callbacks import CopyStatistics
from copynet_hf.training.run import train_from_arguments
from copynet_hf.training.trainer import CopyNetTrainer

from ..data import inflection
from ..data.clge import read_clge
from ..data.dialogue import make_dialogue_pairs
from ..data.japanese_pairs import read_japanese_pairs
from ..data.rows import Row, write_pairs
from ..data.rules import make_rule_pairs
from ..data.shell_commands import read_command_pairs
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import assemble_page, find_runs, get_data_facts, table
from ..running.alternatives import CopiedWordAugmentation, DecayAtPlateau, drop_source_words
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import train_once

CARD = None
# The scores choose defaults, they are not results. Evaluated more rarely than by default, which takes less time.
TRAINING: dict[str, Any] = {"max_eval_samples": 500, "eval_steps": 0.05, "save_steps": 0.05}
RULE_SEED = 1_000  # added to the seed: other rules than Table 1's


@dataclass(frozen=True)
class Alternative:
    """A way to train.

    Attributes:
        arguments: of `copynet-hf train`, in place of `BASE`.
        change_trainer: what the arguments cannot express.
    """

    arguments: Mapping[str, Any] = field(default_factory=dict)
    change_trainer: Callable[[CopyNetTrainer], None] | None = None


def _exchange_words(trainer: CopyNetTrainer, probability: float) -> None:
    model: Any = trainer.model
    rows: Any = trainer.train_dataset
    trainer.data_collator = CopiedWordAugmentation(trainer.data_collator, model, rows, probability)


def _drop_words(trainer: CopyNetTrainer, probability: float) -> None:
    model: Any = trainer.model
    drop_source_words(model, probability)


# What every alternative changes, written out: results do not change their meaning when a default changes.
BASE: dict[str, Any] = {
    "learning_rate": 2e-3,
    "lr_scheduler_type": "linear",
    "per_device_train_batch_size": 16,
    "train_sampling_strategy": "group_by_length",
    "metric_for_best_model": "accuracy",
    "dropout": 0.3,
    "vocabulary_dropout": 0.1,
    "ema_decay": 0.0,
    "label_smoothing_factor": 0.0,
}
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
ALTERNATIVES: dict[str, Alternative] = {
    "base": Alternative(),
    "earlier defaults": Alternative(EARLIER),
    "cosine": Alternative({"lr_scheduler_type": "cosine"}),
    "cosine, 3 cycles": Alternative(
        {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 3}}
    ),
    "decay at a plateau": Alternative(
        {"lr_scheduler_type": "constant"}, lambda trainer: trainer.add_callback(DecayAtPlateau(5, 0.3))
    ),
    "averaged weights": Alternative(AVERAGED),
    "learning rate 1e-3": Alternative({"learning_rate": 1e-3}),
    "learning rate 1e-3, averaged weights": Alternative({"learning_rate": 1e-3, **AVERAGED}),
    "learning rate 1.5e-3, averaged weights": Alternative({"learning_rate": 1.5e-3, **AVERAGED}),
    "learning rate 3e-3": Alternative({"learning_rate": 3e-3}),
    "dropout 0.1": Alternative({"dropout": 0.1}),
    "dropout 0.2": Alternative({"dropout": 0.2}),
    "dropout 0.4": Alternative({"dropout": 0.4}),
    "dropout 0.5": Alternative({"dropout": 0.5}),
    "batch 32": Alternative({"per_device_train_batch_size": 32}),
    "batch 32, averaged weights": Alternative({"per_device_train_batch_size": 32, **AVERAGED}),
    "batch 64": Alternative({"per_device_train_batch_size": 64}),
    "twice the sizes": Alternative(TWICE),
    "twice the sizes, averaged weights": Alternative({**TWICE, **AVERAGED}),
    "no vocabulary dropout, averaged weights": Alternative({"vocabulary_dropout": 0.0, **AVERAGED}),
    "tied embeddings, averaged weights": Alternative({"tie_word_embeddings": True, **AVERAGED}),
    "twice the sizes, 4,000 batches of 32, averaged weights": Alternative(
        {**TWICE, "per_device_train_batch_size": 32, "max_steps": 4_000, **AVERAGED}
    ),
    "120 epochs, averaged weights": Alternative({"num_train_epochs": 120, **AVERAGED}),
    "random order": Alternative({"train_sampling_strategy": "random"}),
    "min_frequency 1": Alternative({"min_frequency": 1}),
    "min_frequency 5": Alternative({"min_frequency": 5}),
    "label smoothing 0.1": Alternative({"label_smoothing_factor": 0.1}),
    "label smoothing 0.1, averaged weights": Alternative({"label_smoothing_factor": 0.1, **AVERAGED}),
    "no vocabulary dropout": Alternative({"vocabulary_dropout": 0.0}),
    "vocabulary dropout 0.2": Alternative({"vocabulary_dropout": 0.2}),
    "source words dropped, 0.1": Alternative(change_trainer=partial(_drop_words, probability=0.1)),
    "copied words exchanged, 0.2": Alternative(change_trainer=partial(_exchange_words, probability=0.2)),
}

# What the tables say whose settings have no alternative above: their scores are facts of the results file.
FEATURE_ENCODINGS = (
    "Sequence accuracy as above, averaged weights, seed 0. e(x_j) is a letter's embedding, h_j its encoder state, and "
    "c_t the decoder's attentive read. The models of the tables above read features as in the first row, but that of "
    "Turkish as in the second; the code of what is not a default was not kept."
)
SEEDS = "The second and the third row over the seeds 0, 1 and 2, mean ± standard deviation:"
VOCABULARIES = (
    "Sequence accuracy of the default command on 300 validation pairs, one seed, with another number of occurrences "
    "from which a word is in the vocabulary (by default 5, below 500 pairs 3), or other words (by default letters, "
    "where targets respell words). “Requests” are those of `copynet-hf quickstart`. “Pig Latin” and “typos” are 2,000 "
    "pairs of two to seven words of random syllables; half of the words in “pig Latin”, and four fifths in “typos”, "
    "are out of 300. In “typos” three of ten words have two letters exchanged. 24 epochs, 12 for typos in letters. "
    "“Words that cannot be copied” are in a target and not in its source. By default they are taken below 500 pairs: "
    "on 100 requests they raise the mean of three seeds from 76.6 ± 1.0 to 88.2 ± 1.3. From all of NL2Bash they are "
    "not: with them the accuracy on 500 validation pairs is 8.0, without them 8.8."
)

Splits = Mapping[str, Sequence[Row]]


def _read_rules(settings: Settings, pairs: int) -> Splits:
    made = make_rule_pairs(200, max(3, pairs // 200), RULE_SEED + settings.seed)
    return {"train": made["train"], "validation": _shuffle(made["test"])}


def _read_rewriting(settings: Settings, pairs: int) -> Splits:
    splits = {name: read_dialogues(settings.data_dir, name) for name in ("train", "validation")}
    return splits | {"train": _shuffle(splits["train"])[:pairs]}


def _read_headlines(settings: Settings) -> Splits:
    return read_clge(settings.data_dir / "lcsts", ["clge_test", "test"])[0]


def _shuffle(rows: Sequence[Row]) -> list[Row]:
    return random.Random(0).sample(rows, len(rows))


# The tasks whose validation sets chose the defaults, then those that were held back to confirm the choice.
TASKS: dict[str, Callable[[Settings], Splits]] = {
    "rules, 2,000": partial(_read_rules, pairs=2_000),
    "rules, 20,000": partial(_read_rules, pairs=20_000),
    "dialogue": lambda settings: make_dialogue_pairs("DS-I", settings.seed),
    "rewriting, 1,000": partial(_read_rewriting, pairs=1_000),
    "rewriting, 17,000": partial(_read_rewriting, pairs=17_000),
    "NL2Bash": lambda settings: read_command_pairs(settings.data_dir),
    "Japanese": lambda settings: read_japanese_pairs(settings.data_dir, settings.seed),
    "LCSTS": _read_headlines,
}
INFLECTION = {
    "Hungarian, small": ("hun", "small"),
    "Old English, small": ("ang", "small"),
    "Gothic, small": ("got", "small"),
    "Georgian, small": ("kat", "small"),
    "Arabic, small": ("ara", "small"),
    "Hebrew, small": ("heb", "small"),
    "Korean, small": ("kor", "small"),
    "Polish, small": ("pol", "small"),
    "Veps, small": ("vep", "small"),
    "Armenian, small": ("hye", "small"),
    "Low German, small": ("nds", "small"),
    "Mongolian, small": ("khk", "small"),
    "Hungarian, large": ("hun", "large"),
    "Turkish, small": ("tur", "small"),
}
HELD_BACK = ("rewriting, 5,000", "Turkish, small")
TASKS["rewriting, 5,000"] = partial(_read_rewriting, pairs=5_000)


def _name_model(alternative: str, task: str) -> str:
    return f"{alternative} on {task}"


MODEL_NAMES = tuple(_name_model(name, task) for task in (*TASKS, *INFLECTION) for name in ALTERNATIVES)


def run(settings: Settings) -> ResultsFile:
    """Trains every alternative on every task and stores its validation scores."""
    results = ResultsFile("recipe", settings)
    results.add_data_facts(signature="teacher forcing, argmax", baselines={})
    for task in (*TASKS, *INFLECTION):
        chosen = {name: each for name, each in ALTERNATIVES.items() if settings.includes(_name_model(name, task))}
        files = _write_files(settings, task) if chosen else {}
        for name, alternative in chosen.items():
            folder = settings.seed_folder(task, name)
            train = partial(train_from_arguments, change_trainer=partial(_change_trainer, alternative))
            arguments = {**files, **TRAINING, **BASE, **alternative.arguments}
            record = train_once(folder, arguments, settings, train=train)
            results.add_run(task, name, _read_scores(folder), record)
    return results


def _change_trainer(alternative: Alternative, trainer: CopyNetTrainer) -> None:
    trainer.remove_callback(CopyStatistics)
    if alternative.change_trainer is not None:
        alternative.change_trainer(trainer)


def _write_files(settings: Settings, task: str) -> dict[str, Any]:
    """The files of a task, and the arguments to read them."""
    if task in INFLECTION:
        return inflection.list_files(settings.data_dir, *INFLECTION[task]) | inflection.COLUMNS
    splits = {name: settings.limit(TASKS[task](settings)[name]) for name in ("train", "validation")}
    return dict(write_pairs(settings.seed_folder(task, "data"), splits))


def _read_scores(folder: Path) -> dict[str, float]:
    """Of the checkpoint that was kept, and how late it was, from the log of the training."""
    log = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    kept = json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))
    evaluations = [entry for entry in log if "eval_sequence_accuracy" in entry]
    by_loss = min(evaluations, key=lambda entry: entry["eval_loss"])
    scores = {name: kept[f"eval_{name}"] for name in ("sequence_accuracy", "token_accuracy", "loss")}
    scores["sequence_accuracy_at_lowest_loss"] = by_loss["eval_sequence_accuracy"]
    return {name: round(value, 4) for name, value in scores.items()}


def render_page(results: dict[str, Any]) -> str:
    """The text of results/recipe.md."""
    tasks = [task for task in (*TASKS, *INFLECTION) if any(run["data"] == task for run in results["runs"])]
    groups = {
        "Words and characters": [task for task in tasks if task in TASKS and task not in HELD_BACK],
        "Inflection, letters": [task for task in tasks if task in INFLECTION and task not in HELD_BACK],
        "Held back: tasks that no default was chosen on": [task for task in tasks if task in HELD_BACK],
    }
    lines = [
        "# The recipe: what the defaults were chosen from",
        "",
        "Sequence accuracy in percent on validation pairs, the first "
        f"{TRAINING['max_eval_samples']} of each task: the share of the targets that are right to the last word, "
        "which is the exact match of greedy search. “Base” is a learning rate of 0.002 that falls linearly to 0 after "
        "100 updates, 16 pairs a batch, dropout 0.3, vocabulary dropout 0.1, and the checkpoint with the highest "
        "accuracy; every other row changes what it names, and nothing else. “Earlier defaults” are a learning rate of "
        "0.001, 32 pairs a batch, dropout 0.2, no vocabulary dropout, and the checkpoint with the lowest loss, with a "
        "patience of 5 epochs. Means over the seeds that were run, ± "
        "their standard deviation; test sets had no part in this. "
        f"The defaults are those of “{CHOSEN}”, with label smoothing 0.1 where words are spelled; “beside them” is "
        "the mean difference from that row over the tasks and seeds that both have, ± its standard error, in brackets "
        "their number.",
    ]
    for title, of_group in groups.items():
        if of_group:
            lines += ["", f"## {title}", "", _score_table(results, of_group)]
    if encodings := get_data_facts(results).get("feature_encodings"):
        lines += [
            "",
            "## Features and label smoothing, letters",
            "",
            FEATURE_ENCODINGS,
            "",
            _settings_table(encodings),
        ]
    if seeds := get_data_facts(results).get("label_smoothing"):
        lines += ["", SEEDS, "", _seeds_table(seeds)]
    if vocabularies := get_data_facts(results).get("vocabularies"):
        lines += ["", "## Which words are known, and what a word is", "", VOCABULARIES, ""]
        lines += [_settings_table(vocabularies)]
    lines += ["", "## Minutes of a training", "", "Beside other processes, so these are upper bounds.", ""]
    lines += [_minutes_table(results, tasks)]
    described = {**results, "runs": sorted(results["runs"], key=lambda run: run["model"] != "base")}
    return assemble_page(described, lines, num_commands=1)


def _score_table(results: dict[str, Any], tasks: list[str]) -> str:
    read = partial(_read_score, score="sequence_accuracy")
    rows = [
        [name, *_format_means(results, name, tasks, read), _format_difference(results, name, tasks)]
        for name in ALTERNATIVES
    ]
    by_loss = partial(_read_score, score="sequence_accuracy_at_lowest_loss")
    rows.insert(1, ["base, checkpoint with the lowest loss", *_format_means(results, "base", tasks, by_loss), ""])
    return table(["", *tasks, "beside them"], [row for row in rows if any(row[1:])])


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


def _minutes_table(results: dict[str, Any], tasks: list[str]) -> str:
    rows = [[name, *_format_means(results, name, tasks, _read_minutes)] for name in ALTERNATIVES]
    return table(["", *tasks], [row for row in rows if any(row[1:])])


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


def _read_minutes(run: Mapping[str, Any]) -> float:
    return float(run["minutes"])


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
