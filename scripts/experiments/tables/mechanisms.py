"""All copy mechanisms on the same tasks, with the same number of updates and the same sizes."""

from __future__ import annotations

import statistics
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature

from ..data.clge import read_clge
from ..data.dialogue import make_dialogue_pairs
from ..data.rows import Row
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import average_scores, find_runs, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH, compare_models
from ..scores.texts import score_repetition
from . import rewriting, table1, table3, table4

POINTER_GENERATOR = {"copy_mechanism": "pointer_generator"}
GATED = {"copy_mechanism": "gated"}
MODELS: dict[str, dict[str, Any]] = {
    "RNNSearch": RNNSEARCH,
    "CopyNet": {},
    "pointer-generator": POINTER_GENERATOR,
    "pointer-generator with coverage": POINTER_GENERATOR | {"use_coverage": True, "coverage_loss_weight": 1.0},
    "CoRe": GATED | {"aligned_words": 10, "frequent_words": 2_000},
    "CoRe, the whole vocabulary": GATED,
    "CoRe, the Chainer article's losses": GATED | {"gated_loss": "summed"},
    "CoreQA without facts": {"copy_mechanism": "retrieval"},
}
TEST_PAIRS = 500  # of each task
BUDGET = read_training("mechanisms")
UPDATES = BUDGET["max_steps"]
RULES, DIALOGUE, REWRITING, HEADLINES = "rules", "dialogue", "rewriting", "headlines"
# At Table 3's sizes 1,000 updates take a quarter of an hour and more.
SMALL = {"embedding_size": 128, "hidden_size": 256, "encoder_hidden_size": 128, "attention_size": 128}
TRAINING: dict[str, dict[str, Any]] = {
    RULES: table1.TRAINING,
    DIALOGUE: table4.TRAINING,
    REWRITING: rewriting.TRAINING,
    HEADLINES: table3.CLGE_TRAINING | {"preset": "lcsts_char"} | SMALL,
}
TITLES = {
    RULES: "Table 1's rules, x and y apart",
    DIALOGUE: "Table 4's dialogue, DS-II",
    REWRITING: "Utterance rewriting",
    HEADLINES: "LCSTS, CLGE's test",
}
SCORES = {RULES: "exact_match", DIALOGUE: "exact_match", REWRITING: "exact_match", HEADLINES: "rouge1"}
SCORE_TITLES = {"exact_match": "EM", "rouge1": "R-1"}

MODEL_NAMES = tuple(MODELS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("mechanisms", settings)
    tasks = {task: (train, test[:TEST_PAIRS]) for task, (train, test) in read_tasks(settings).items()}
    references = {task: [row["summary"] for row in test] for task, (_, test) in tasks.items()}
    results.add_data_facts(
        signature={task: metric_signature(texts)[SCORES[task]] for task, texts in references.items()},
        examples={task: {"train": len(train), "test": len(test)} for task, (train, test) in tasks.items()},
        baselines={},
    )
    for task, (train, test) in tasks.items():
        training = TRAINING[task] | BUDGET
        compare_models(
            results, MODELS, {"train": train}, {task: test}, training, settings, subfolder=task, score=_score
        )
    return results


def read_tasks(settings: Settings) -> dict[str, tuple[list[Row], list[Row]]]:
    """Makes or reads the training and test pairs of each task."""
    rules = table1.make_splits("apart", settings)
    dialogue = settings.limit_splits(make_dialogue_pairs("DS-II", settings.seed))
    rewritten = settings.limit_splits(read_dialogues(settings.data_dir))
    headlines, tests = read_clge(settings.data_dir / "lcsts", table3.TESTS, settings.max_samples)
    return {
        RULES: (rules["train"], _interleave_rules(rules["test"])),
        DIALOGUE: (dialogue["train"], dialogue["test"]),
        REWRITING: (rewritten["train"], rewritten["test"]),
        HEADLINES: (headlines["train"], tests["clge_test"]),
    }


def _score(task: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, Any]:
    return scores | {"repeated": round(score_repetition([output["words"] for output in outputs]), 2)}


def _interleave_rules(rows: list[Row]) -> list[Row]:
    """The instances of all rules in turn, so that the first `TEST_PAIRS` have all types."""
    step = max(1, len(rows) // TEST_PAIRS)
    return [row for first in range(step) for row in rows[first::step]]


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/mechanisms.md."""
    return {
        "updates": UPDATES,
        "batch_size": BUDGET["per_device_train_batch_size"],
        "beams": BUDGET["num_beams"],
        "test_pairs": TEST_PAIRS,
        "titles": TITLES,
        "summary": _summarize(results),
        "tables": {task: _compare_on_task(results, task) for task in TITLES},
    }


def _compare_on_task(results: dict[str, Any], task: str) -> str:
    rows = []
    for model in MODELS:
        if runs := find_runs(results, task, model):
            scores = average_scores([run["scores"] for run in runs], (SCORES[task], "repeated"))
            rows.append([model, *scores, f"{runs[0]['parameters']:,}", *_measure_speeds(runs)])
    speeds = ["pairs/s, training", "texts/s, beam search"]
    return table(["", SCORE_TITLES[SCORES[task]], "repeated", "parameters", *speeds], rows)


def _summarize(results: dict[str, Any]) -> str:
    """A row per mechanism: its score on each task, repetition in headlines, speeds relative to RNNSearch's."""
    rows = []
    for model in MODELS:
        by_task = {task: runs for task in TITLES if (runs := find_runs(results, task, model))}
        scores = {task: [run["scores"] for run in runs] for task, runs in by_task.items()}
        means = [average_scores(scores.get(task, ()), [SCORES[task]])[0] for task in TITLES]
        (repetition,) = average_scores(scores.get(HEADLINES, ()), ["repeated"])
        ratios = [
            [speed / baseline for speed, baseline in zip(_measure_speeds(runs), _measure_speeds(plain), strict=True)]
            for task, runs in by_task.items()
            if (plain := find_runs(results, task, "RNNSearch"))
        ]
        speeds = [f"{statistics.median(of_tasks):.2f}" for of_tasks in zip(*ratios, strict=True)]
        rows.append([model, *means, repetition, *(speeds or ("", ""))])
    names = [f"{task}, {SCORE_TITLES[SCORES[task]]}" for task in TITLES]
    return table(["", *names, "repeated", "training", "inference"], rows)


def _measure_speeds(runs: list[dict[str, Any]]) -> list[float]:
    """Pairs per second of training and texts per second of inference."""
    texts_per_second = [run["scores"]["examples"] / run["scores"]["seconds"] for run in runs]
    return [statistics.mean(run["pairs_per_second"] for run in runs), statistics.mean(texts_per_second)]
