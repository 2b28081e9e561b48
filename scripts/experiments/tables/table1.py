"""Table 1 and Figure 3 of Gu et al. 2016: exact match on the synthetic rules, by type of rule."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model
from copynet_hf.visualization.heatmap import plot_copy_heatmap

from ..data.rows import Row
from ..data.rules import TYPES, make_rule_pairs
from ..reports.markdown import find_runs, model_rows, read_published, score_table, table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH, RNNSEARCH_AND_COPYNET, compare_models
from ..scores.texts import score_exact_match

IN_PAPER: dict[str, dict[str, Any]] = {"Enc-Dec": RNNSEARCH | {"attention": False}, **RNNSEARCH_AND_COPYNET}
# Trained with seed 0 only, on rules with a constant between x and y.
ABLATIONS: dict[str, dict[str, Any]] = {
    "RNNSearch, scores from the state alone": RNNSEARCH | {"readout": ["state"]},
    "CopyNet without selective read": {"selective_read": False},
    "CopyNet, scores from the state alone": {"readout": ["state"]},
    "CopyNet without selective read, scores from the state alone": {"selective_read": False, "readout": ["state"]},
    "CopyNet with coverage": {"use_coverage": True},
}
DATA = {"apart": 0, "side by side": 11}  # number of rules of each type in which x and y are adjacent
RULES, INSTANCES = 200, 100
SCORES = {name: name for name in [*TYPES, "mean"]}
TRAINING = read_training("table1")
BEAMS = TRAINING["num_beams"]

MODEL_NAMES = (*IN_PAPER, *ABLATIONS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("table1", settings)
    pairs = {data: make_splits(data, settings) for data in DATA}
    results.add_data_facts(
        signature=metric_signature([row["summary"] for row in pairs["apart"]["test"]])["exact_match"],
        examples={data: {name: len(rows) for name, rows in splits.items()} for data, splits in pairs.items()},
        baselines={data: score_baselines(splits["test"]) for data, splits in pairs.items()},
    )
    for data, splits in pairs.items():
        models = IN_PAPER | ABLATIONS if (data, settings.seed) == ("apart", 0) else IN_PAPER
        compare_models(
            results,
            models,
            {"train": splits["train"]},
            {data: splits["test"]},
            TRAINING,
            settings,
            subfolder=data,
            score=partial(_score, splits["test"]),
            stored_outputs=3,
            batch_size=64,
        )
    plot_figure3(settings, pairs["apart"]["test"])
    return results


def _score(test: Sequence[Row], data: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, float]:
    return score_by_type([output["prediction"] for output in outputs], test)


def plot_figure3(settings: Settings, test: Sequence[Row]) -> None:
    """Plots a heatmap of the first output with two variables that fits a page."""
    folder, picture = settings.seed_folder("apart", "CopyNet"), settings.results_dir / "table1.png"
    if folder.joinpath("training.json").exists() and (settings.seed == 0 or not picture.exists()):
        fitting = (row for row in test if row["type"] == "xy → xy" and 12 <= len(row["summary"].split()) <= 20)
        model, tokenizer = load_model(str(folder))
        # At least one word: a model whose training was cut short may generate none.
        text = next(fitting, test[-1])["text"]
        output = predict(model, tokenizer, [text], return_copy_probs=True, min_new_tokens=1)[0][0]
        plot_copy_heatmap(output.copy_probs, output.source_words, output.words, picture)


def make_splits(data: str, settings: Settings) -> dict[str, list[Row]]:
    """Makes the pairs of a seed, which also draws the rules; a limit on samples leaves one rule of each type."""
    rules, instances = RULES, INSTANCES
    if settings.max_samples is not None:
        rules = len(TYPES)
        instances = max(1, settings.max_samples // rules)
    return {name: [*rows] for name, rows in make_rule_pairs(rules, instances, settings.seed, DATA[data]).items()}


def score_by_type(predictions: Sequence[str], rows: Sequence[Row]) -> dict[str, float]:
    """Exact match in percent for each type of rule, and the mean over the types."""
    scores: dict[str, float] = {}
    for type_ in dict.fromkeys(row["type"] for row in rows):
        pairs = [pair for pair in zip(predictions, rows, strict=True) if pair[1]["type"] == type_]
        outputs, answers = [[output] for output, _ in pairs], [[row["summary"]] for _, row in pairs]
        scores[type_] = round(score_exact_match(outputs, answers), 2)
    return scores | {"mean": round(sum(scores.values()) / len(scores), 2)}


def score_baselines(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    return {"the input itself": score_by_type([row["text"] for row in rows], rows)}


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/table1.md."""
    published = {
        f"{model}, in the paper": [*scores, sum(scores) / len(scores)]
        for model, scores in read_published("table1").items()
    }
    return {
        "beams": BEAMS,
        "rules": RULES,
        "instances": INSTANCES,
        "touching": 2 * DATA["side by side"],  # of the two types that have both variables
        "with_both": RULES * sum("y" in source for source, _ in TYPES.values()) // len(TYPES),
        "tables": {data: score_table(results, data, IN_PAPER, SCORES, published) for data in DATA},
        "ablations": _compare_ablations(results),
        "has_figure": bool(find_runs(results, "apart", "CopyNet")),
    }


def _compare_ablations(results: dict[str, Any]) -> dict[str, Any] | None:
    """A table of all models of the seed whose ablations were run; None if none were."""
    seeds = [run["seed"] for run in results["runs"] if run["model"] in ABLATIONS]
    if not seeds:
        return None
    of_seed = {**results, "runs": [run for run in results["runs"] if run["seed"] == seeds[0]]}
    rows = model_rows(of_seed, "apart", IN_PAPER | ABLATIONS, SCORES)
    return {"seed": seeds[0], "scores": table(["", *SCORES.values(), "seeds", "minutes (median)"], rows)}
