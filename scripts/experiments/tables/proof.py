"""Outputs with their confidence and the places of their words: how right the surest are, and slots as records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copynet_hf.data.fields import format_record
from copynet_hf.evaluation.reliability import measure_coverage
from copynet_hf.inference.extraction import extract_records
from copynet_hf.model.prediction import Prediction
from copynet_hf.visualization.curves import plot_coverage

from ..data.mixed_tasks import make_mixed_pairs
from ..data.rows import Row, write_pairs
from ..data.slots import read_requests
from ..data.utterance_rewriting import read_dialogues
from ..reports.markdown import find_runs, read_published, score_table, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import evaluate_once, round_scores, train_once
from ..scores.calibrations import FEW_PAIRS, compare_calibrations
from ..scores.slots import score_slots

Splits = Mapping[str, Sequence[Row]]
COPYNET = "CopyNet"
TRAINING: dict[str, Any] = {}  # the defaults
NUM_BILLS = 200
CURVE_POINTS = 100


@dataclass(frozen=True)
class Task:
    """A task: its splits, and whether its outputs are slots."""

    read: Callable[[Settings], Splits]
    has_slots: bool = False


def _read_bills(settings: Settings) -> Splits:
    splits = make_mixed_pairs("bills", settings.seed)
    return {**splits, "train": splits["train"][:NUM_BILLS]}


TASKS = {
    "SNIPS": Task(lambda settings: read_requests(settings.data_dir, "snips"), has_slots=True),
    "ATIS": Task(lambda settings: read_requests(settings.data_dir, "atis"), has_slots=True),
    "utterance rewriting": Task(lambda settings: read_dialogues(settings.data_dir)),
    f"{NUM_BILLS} bills": Task(_read_bills),
}
MODEL_NAMES = tuple(TASKS)
SLOT_SCORES = {name: name for name in ("exact match", "slot F1", "intent")}
PLACES = {"values": "values", "placed": "with a place", "invented": "not in the text"}
SUREST = {f"exact_match_surest_{share}": f"surest {share} %" for share in (50, 70, 90)}
RELIABILITY = SUREST | {
    "exact_match": "all",
    "auroc": "AUROC",
    "calibration_error_of_score": "ECE of the score",
    "calibration_error": "ECE of the confidence",
}


def run(settings: Settings) -> ResultsFile:
    """Trains a model for each task, and scores it on its test set."""
    results = ResultsFile("proof", settings)
    results.add_data_facts(signature="exact match", baselines={name: {} for name in TASKS})
    for name, task in TASKS.items():
        if not settings.includes(name):
            continue
        splits = settings.limit_splits(task.read(settings))
        files = write_pairs(settings.seed_folder(name, "data"), splits)
        folder = settings.seed_folder(name, "model")
        record = train_once(folder, files | TRAINING, settings)
        scores, outputs = evaluate_once(folder, "test", format_targets(splits["test"]), settings)
        _, of_validation = evaluate_once(folder, "validation", format_targets(splits["validation"]), settings)
        confidences = [output["confidence"] or 0.0 for output in outputs]
        curve = measure_coverage(confidences, [output["right"] for output in outputs])
        more: dict[str, Any] = {
            "curve": [round(100 * curve[len(curve) * point // CURVE_POINTS], 2) for point in range(CURVE_POINTS)],
            "calibrations": compare_calibrations(
                [output["score"] or 0.0 for output in of_validation],
                [len(output["words"]) + 1 for output in of_validation],
                [output["right"] for output in of_validation],
            ),
        }
        if task.has_slots:
            records = [_extract(output) for output in outputs]
            texts = [row["text"] for row in splits["test"]]
            more |= round_scores(score_slots(records, [row["summary"] for row in splits["test"]], texts))
        results.add_run(name, COPYNET, scores | more, record)
    curves = {run["data"]: run["scores"]["curve"] for run in results.read()["runs"] if run["seed"] == settings.seed}
    if curves:
        plot_coverage(curves, settings.results_dir / "proof.png")
    return results


def format_targets(rows: Sequence[Row]) -> list[Row]:
    """The rows with texts for records, as `load_pairs` reads them."""
    return [
        row if isinstance(row["summary"], str) else {**row, "summary": format_record(row["summary"])} for row in rows
    ]


def _extract(output: Row) -> list[Any] | None:
    """The records of a stored output."""
    fields = {name: output[name] for name in ("words", "word_scores", "copied")}
    spans = [None if span is None else (span[0], span[1]) for span in output["source_spans"]]
    prediction = Prediction(output["prediction"], source_spans=spans, **fields)
    records = extract_records(prediction, output["text"])
    return None if records is None else list(records)


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/proof.md."""
    published = read_published("proof")
    of_tasks = {name: find_runs(results, name, COPYNET) for name in TASKS}
    first = {name: runs[0]["scores"] for name, runs in of_tasks.items() if runs}
    slots = [name for name in first if TASKS[name].has_slots]
    of_slots = [run for name in slots for run in of_tasks[name]]
    reliability = [[name, *(scores[key] for key in RELIABILITY)] for name, scores in first.items()]
    compared = {name: scores["calibrations"] for name, scores in first.items() if scores["calibrations"]}
    return {
        "slot_tables": {name: score_table(results, name, [COPYNET], SLOT_SCORES, published[name]) for name in slots},
        "places": table(["", *PLACES.values()], [[name, *(first[name][key] for key in PLACES)] for name in slots]),
        "values": sum(run["scores"]["values"] for run in of_slots),
        "invented": sum(run["scores"]["invented"] for run in of_slots),
        "reliability": table(["", *RELIABILITY.values()], reliability),
        "calibrations": table(
            ["", "calibration", "ECE", "log loss", f"ECE, {FEW_PAIRS} pairs", f"log loss, {FEW_PAIRS} pairs"],
            [
                [name, key, error, f"{loss:.3f}", error_of_few, f"{loss_of_few:.3f}"]
                for name, of_task in compared.items()
                for key, (error, loss, error_of_few, loss_of_few) in of_task.items()
            ],
        )
        if compared
        else "",
        "few": FEW_PAIRS,
    }
