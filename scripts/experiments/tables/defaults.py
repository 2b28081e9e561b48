"""The default command on tasks whose other results have settings of their own: what users get without tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.clge import read_clge
from ..data.dialogue import make_dialogue_pairs
from ..data.rows import Row, write_pairs
from ..data.shell_commands import read_command_pairs, read_test_groups
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import average_scores, find_runs, get_data_facts, read_stored, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, train_once
from .nl2bash import score_matches

TRAINING: dict[str, Any] = {}  # the defaults
NUM_COMMANDS = 3  # outputs for each description of NL2Bash: top-3 is scored


Splits = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Task:
    """A task of another table.

    Attributes:
        read: the splits `train` and `validation`, and the test sets by name.
        table, model: the results file with the tuned model, and its name there.
        measures: the titles of the scores, by score.
        tests: the tuned model's name of each test set.
    """

    read: Callable[[Settings], Splits]
    table: str
    model: str
    measures: Mapping[str, str]
    tests: Mapping[str, str]


def _read_commands(settings: Settings) -> Splits:
    groups = read_test_groups(settings.data_dir)
    test = [{"text": group["text"], "summary": group["answers"]} for group in groups]
    return {**read_command_pairs(settings.data_dir), "test": test}


def _read_dialogue(settings: Settings) -> Splits:
    tests = {data: make_dialogue_pairs(data, settings.seed)["test"] for data in ("DS-I", "DS-II")}
    return {**make_dialogue_pairs("DS-I", settings.seed), **tests}


def _read_headlines(settings: Settings) -> Splits:
    training, tests = read_clge(settings.data_dir / "lcsts", ["clge_test", "test"])
    return {**training, "test": tests["clge_test"]}


TASKS = {
    "utterance rewriting": Task(
        lambda settings: read_dialogues(settings.data_dir),
        "rewriting",
        "CopyNet",
        {"exact_match": "EM"},
        {"test": "test"},
    ),
    "NL2Bash": Task(
        _read_commands, "nl2bash", "CopyNet", {"top-1": "top-1", "top-3": "top-3"}, {"test": "descriptions"}
    ),
    "dialogue": Task(
        _read_dialogue, "table4", "CopyNet", {"exact_match": "top-1"}, {"DS-I": "DS-I", "DS-II": "DS-II"}
    ),
    "LCSTS": Task(_read_headlines, "table3", "CopyNet, characters", {"rouge1": "R-1"}, {"test": "clge_test"}),
}
MODEL_NAMES = tuple(TASKS)


def run(settings: Settings) -> ResultsFile:
    """Trains a model for each task and scores it on the task's test sets."""
    results = ResultsFile("defaults", settings)
    results.add_data_facts(
        signature="as on the other pages",
        baselines={},
        tuned={name: _read_tuned_scores(task) for name, task in TASKS.items()},
    )
    for name, task in TASKS.items():
        if not settings.includes(name):
            continue
        splits = settings.limit_splits(task.read(settings))
        files = write_pairs(settings.seed_folder(name, "data"), splits)
        folder = settings.seed_folder(name, "model")
        record = train_once(folder, files | TRAINING, settings)
        for test in task.tests:
            scores = score(name, folder, test, splits[test], settings)
            results.add_run(test, name, scores, record)
    return results


def score(name: str, folder: Path, test: str, rows: Sequence[Row], settings: Settings) -> dict[str, Any]:
    if name != "NL2Bash":
        return evaluate_once(folder, test, rows, settings)[0]
    _, outputs = evaluate_once(folder, test, rows, settings, num_return_sequences=NUM_COMMANDS)
    groups = [{"text": row["text"], "answers": row["summary"]} for row in rows]
    return score_matches([output["predictions"] for output in outputs], groups)


def _read_tuned_scores(task: Task) -> dict[str, dict[str, Any]]:
    """The scores and minutes of the tuned model, by test set, from the results that are stored; of the first seed,
    since in dialogue a seed has test pairs of its own."""
    stored, tuned = read_stored(task.table), {}
    for test, data in task.tests.items():
        run = find_runs(stored, data, task.model)[0]
        tuned[test] = {name: run["scores"][name] for name in task.measures} | {"minutes": run["minutes"]}
    return tuned


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/defaults.md."""
    tuned = get_data_facts(results)["tuned"]
    rows = []
    for name, task in TASKS.items():
        for test in task.tests:
            runs = find_runs(results, test, name)
            means = average_scores([run["scores"] for run in runs], task.measures)
            for score, mean in zip(task.measures, means, strict=True) if runs else ():
                of_tuned, page = tuned[name][test], f"[{task.table}.md]({task.table}.md)"
                minutes = [runs[0]["minutes"], of_tuned["minutes"]]
                rows.append([name, test, task.measures[score], mean, of_tuned[score], *minutes, page])
    return {
        "scores": table(["", "test set", "score", "default", "tuned", "minutes", "tuned, minutes", "tuned on"], rows)
    }
