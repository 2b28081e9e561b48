"""Encoders compared: the GRU, a Transformer from scratch, and the same pre-trained on the training texts alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoModelForMaskedLM

from copynet_hf.evaluation.metrics import metric_signature, score_outputs
from copynet_hf.training.defaults import TRAINING_DEFAULTS

from ..data.clge import read_clge
from ..data.rows import Row, write_pairs
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import average_scores, baseline_rows, find_runs, get_data_facts, render_tried, table
from ..running.pretraining import MASKED, pretrain_encoder, save_new_encoder
from ..running.results_file import ResultsFile
from ..running.settings import Settings, format_command, name_model, read_training
from ..running.trained_models import evaluate_once, read_kept_scores, round_scores, train_once
from ..scores.texts import estimate_standard_error
from . import table3

# ---- the models

PRETRAINING = read_training("pretraining")
PRETRAINED, NEW = "pre-trained encoder", "new encoder"
MAKE_ENCODER: dict[str, Callable[[Mapping[str, Any]], dict[str, float]]] = {
    PRETRAINED: pretrain_encoder,
    NEW: save_new_encoder,
}


@dataclass(frozen=True)
class Model:
    """A model of the comparison.

    Attributes:
        encoder: its Transformers encoder; None for a GRU.
        arguments: of `copynet-hf train`, in addition to `TRAINING` and those of the task.
    """

    encoder: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


GRU, SCRATCH = "bi-GRU", "Transformer from scratch"
FINE_TUNED, FROZEN = "pre-trained, fine-tuned", "pre-trained, frozen"
LEARNING_RATE = 5e-4  # above a Transformer encoder; the default when these models were trained
MODELS = {
    GRU: Model(),
    SCRATCH: Model(NEW, {"learning_rate": LEARNING_RATE, "encoder_learning_rate": 5e-4}),
    FINE_TUNED: Model(PRETRAINED, {"learning_rate": LEARNING_RATE, "encoder_learning_rate": 2e-4}),
    FROZEN: Model(PRETRAINED, {"learning_rate": LEARNING_RATE, "freeze_encoder": True, "cache_encoder_states": True}),
}
EPOCHS = 8
# Evaluated more rarely than by default, which takes less time.
TRAINING: dict[str, Any] = {
    "num_train_epochs": EPOCHS,
    "max_eval_samples": 500,
    "eval_steps": 0.05,
    "save_steps": 0.05,
}

# ---- the tasks

Splits = dict[str, list[Row]]


@dataclass(frozen=True)
class Task:
    """A data set, and how models are trained and tested on it.

    Attributes:
        read: reads the splits `train` and `validation`, and the test sets.
        score_baselines: the scores of baselines on the rows of a test set.
        pretraining_epochs: of the pre-training, half an hour on two cores.
        training: arguments of `copynet-hf train`.
        decoding: fields of the generation config.
        tests: titles of the test sets.
        scores: titles of the scores; the first one is compared.
    """

    title: str
    read: Callable[[Settings], tuple[Splits, Splits]]
    score_baselines: Callable[[Sequence[Row]], dict[str, Any]]
    pretraining_epochs: int
    training: Mapping[str, Any]
    decoding: Mapping[str, Any]
    tests: Mapping[str, str]
    scores: Mapping[str, str]


def _read_rewriting(settings: Settings) -> tuple[Splits, Splits]:
    rows = settings.limit_splits(read_dialogues(settings.data_dir))
    return rows, {"rewriting_test": rows.pop("test")}


def _read_headlines(settings: Settings) -> tuple[Splits, Splits]:
    return read_clge(settings.data_dir / "lcsts", table3.TESTS, settings.max_samples)


def _score_utterances(rows: Sequence[Row]) -> dict[str, Any]:
    utterances = [row["text"].rpartition("\n")[2] for row in rows]
    return {"the utterance as it is": round_scores(score_outputs(utterances, [row["summary"] for row in rows]))}


REWRITING = Task(
    title="Utterance rewriting",
    read=_read_rewriting,
    score_baselines=_score_utterances,
    pretraining_epochs=16,
    training={"vocab_size": 5_000, "max_source_length": 100, "max_target_length": 50, "num_beams": 5},
    decoding={},
    tests={"rewriting_test": "the test set"},
    scores={"exact_match": "EM", "bleu": "BLEU-4", "rouge1": "R-1"},
)
HEADLINES = Task(
    title="Headlines for news, LCSTS",
    read=_read_headlines,
    score_baselines=table3.score_baselines,
    pretraining_epochs=10,
    training=table3.SHARED,
    decoding=table3.DECODING,
    tests=table3.TESTS,
    scores={"rouge1": "R-1", "rouge2": "R-2", "rougeL": "R-L"},
)
TASKS = {"rewriting": REWRITING, "headlines": HEADLINES}


MODEL_NAMES = tuple(name_model(model, task) for task in TASKS for model in (PRETRAINED, *MODELS))


# ---- training and scoring


def run(settings: Settings) -> ResultsFile:
    """Pre-trains the encoders, trains and scores the models of the table."""
    results = ResultsFile("encoders", settings)
    data = {name: task.read(settings) for name, task in TASKS.items()}
    facts: dict[str, dict[str, Any]] = {"signature": {}, "examples": {}, "baselines": {}}
    for name, (splits, tests) in data.items():
        facts["examples"] |= {name: {split: len(rows) for split, rows in splits.items()}}
        for test, rows in tests.items():
            (score, *_) = TASKS[name].scores
            facts["signature"][test] = metric_signature([row["summary"] for row in rows])[score]
            facts["examples"][test] = len(rows)
            facts["baselines"][test] = TASKS[name].score_baselines(rows)
    results.add_data_facts(**facts)
    for name, (splits, tests) in data.items():
        _run_task(results, name, splits, tests, settings)
    return results


def _run_task(results: ResultsFile, name: str, splits: Splits, tests: Splits, settings: Settings) -> None:
    """Makes the encoders that the chosen models need, then trains and scores these models."""
    task = TASKS[name]
    chosen = {model: plan for model, plan in MODELS.items() if settings.includes(name_model(model, name))}
    encoders = {plan.encoder for plan in chosen.values() if plan.encoder is not None}
    if settings.includes(name_model(PRETRAINED, name)):
        encoders.add(PRETRAINED)
    files = write_pairs(settings.seed_folder(name, "data"), splits)
    made = {encoder: _make_encoder_once(encoder, name, files, settings) for encoder in sorted(encoders)}
    if PRETRAINED in made:
        results.add_run(name, PRETRAINED, _read_pretraining_scores(made[PRETRAINED]), made[PRETRAINED])
    for model, plan in chosen.items():
        arguments = {**files, "segmenter": "char", **task.training, **TRAINING, **plan.arguments}
        if plan.encoder is not None:
            arguments["encoder_name_or_path"] = made[plan.encoder]["folder"]
            arguments["encoder_gru"] = False  # as when the models of the page were trained
        folder = settings.seed_folder(name, model)
        record = train_once(folder, arguments, settings, task.decoding)
        for test, rows in tests.items():
            scores, outputs = evaluate_once(folder, test, rows, settings)
            results.add_run(test, model, scores | _estimate_error(task, outputs), record)


def _make_encoder_once(encoder: str, task: str, files: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """The training record of an encoder; the new one's says that no time was spent."""
    arguments = {**files, "num_train_epochs": TASKS[task].pretraining_epochs, **PRETRAINING}
    command = format_command("encoders", name_model(encoder, task), settings.seed)
    load = AutoModelForMaskedLM.from_pretrained
    folder = settings.seed_folder(task, encoder)
    return train_once(folder, arguments, settings, train=MAKE_ENCODER[encoder], command=command, load=load)


def _read_pretraining_scores(record: Mapping[str, Any]) -> dict[str, float]:
    scores = read_kept_scores(Path(record["folder"]))
    return round_scores({name: scores[name] for name in ("loss", "accuracy")})


def _estimate_error(task: Task, outputs: Sequence[Row]) -> dict[str, float]:
    (score, *_) = task.scores
    predictions, references = ([row[column] for row in outputs] for column in ("prediction", "reference"))
    return {"standard_error": round(estimate_standard_error(predictions, references, score, "char"), 3)}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/encoders.md."""
    rates = {
        "scratch": MODELS[SCRATCH].arguments["encoder_learning_rate"],
        "fine_tuned": MODELS[FINE_TUNED].arguments["encoder_learning_rate"],
        "decoder": LEARNING_RATE,
    }
    return {
        "sizes": PRETRAINING,
        "epochs": EPOCHS,
        "batch_size": TRAINING_DEFAULTS["per_device_train_batch_size"],
        "learning_rates": {name: f"{rate:g}" for name, rate in rates.items()},
        "masked": f"{MASKED:.0%}",
        "tasks": [_compare_on_task(results, name, task) for name, task in TASKS.items() if _was_run(results, task)],
        "pretraining": _describe_pretraining(results),
        "tried": results.get("tried"),
        "tried_scores": render_tried(results, ("fine-tuned", "frozen", "from random weights")),
    }


def _was_run(results: dict[str, Any], task: Task) -> bool:
    return any(run["data"] in task.tests for run in results["runs"])


def _compare_on_task(results: dict[str, Any], name: str, task: Task) -> dict[str, Any]:
    """For each test set a table, and what helped."""
    facts = get_data_facts(results)
    pretraining = statistics.mean([run["minutes"] for run in find_runs(results, name, PRETRAINED)] or [0.0])
    header = ["", *task.scores.values(), "seeds", "parameters", "minutes", "with pre-training"]
    tests = []
    for test, title in task.tests.items():
        rows = [[*row, ""] for row in baseline_rows(results, test, task.scores)]
        for model, plan in MODELS.items():
            if runs := find_runs(results, test, model):
                scores = average_scores([run["scores"] for run in runs], task.scores)
                minutes = statistics.mean(run["minutes"] for run in runs)
                total = minutes + (pretraining if plan.encoder == PRETRAINED else 0.0)
                parameters = f"{runs[0]['parameters']:,}"
                rows.append([model, *scores, len(runs), parameters, f"{minutes:.1f}", f"{total:.1f}"])
        if rows:
            score, title_of_score = next(iter(task.scores.items()))
            tests.append(
                {
                    "title": title,
                    "pairs": facts["examples"][test],
                    "signature": facts["signature"][test],
                    "scores": table(header, rows),
                    "score": title_of_score,
                    "changes": _compare_changes(results, test, score),
                }
            )
    return {"title": task.title, "pairs": facts["examples"][name]["train"], "tests": tests}


# What each comparison changes: the model with the change, and the one without.
CHANGES = {
    "Pre-training the Transformer": (FINE_TUNED, SCRATCH),
    "Fine-tuning the pre-trained Transformer instead of freezing it": (FINE_TUNED, FROZEN),
    "A Transformer from scratch instead of the bi-GRU": (SCRATCH, GRU),
    "A pre-trained, fine-tuned Transformer instead of the bi-GRU": (FINE_TUNED, GRU),
    "A pre-trained, frozen Transformer instead of the bi-GRU": (FROZEN, GRU),
}


def _compare_changes(results: dict[str, Any], test: str, score: str) -> list[dict[str, Any]]:
    """Whether each change whose two models were run helped: by more than 1.96 standard errors over the test set."""
    compared = []
    for change, models in CHANGES.items():
        runs = [find_runs(results, test, model) for model in models]
        if not all(runs):
            continue
        (after, error), (before, other_error) = (
            [statistics.mean(run["scores"][each] for run in of_model) for each in (score, "standard_error")]
            for of_model in runs
        )
        margin = 1.96 * (error**2 + other_error**2) ** 0.5
        verdict = "makes no clear difference to"
        if abs(after - before) > margin:
            verdict = "raises" if after > before else "lowers"
        compared.append({"name": change, "verdict": verdict, "before": before, "after": after, "margin": margin})
    return compared


def _describe_pretraining(results: dict[str, Any]) -> str:
    rows = []
    for name, task in TASKS.items():
        if runs := find_runs(results, name, PRETRAINED):
            loss, accuracy = average_scores([run["scores"] for run in runs], ("loss", "accuracy"))
            epochs, minutes = (statistics.mean(run[each] for run in runs) for each in ("epochs", "minutes"))
            parameters = f"{runs[0]['parameters']:,}"
            cells = [f"{loss:.2f}", accuracy, parameters, round(epochs, 1), f"{minutes:.1f}"]
            rows.append([PRETRAINED, task.title, *cells])
    return table(["", "task", "loss", "restored, %", "parameters", "epochs", "minutes"], rows)
