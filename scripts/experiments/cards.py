"""Cards of the models that the experiments train: model_cards/FILE.md, from model_cards/template.md."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .pages import table
from .runs import Settings

TEMPLATE = Path(__file__).parents[2] / "model_cards" / "template.md"
WEIGHTS = "The weights are not on the Hub. `{command}` makes them."


@dataclass(frozen=True)
class Card:
    """What no results file says of a model.

    Attributes:
        file: name of the card, without its ending.
        model: its name in the results.
        tests: its data sets there, and what they are called.
        metrics: its scores there, with the metric's name on the Hub and a title.
        licence: of the weights, on the Hub's list; what the data allow.
        data: what it was trained on, from whom, under which licence.
    """

    file: str
    model: str
    title: str
    summary: str
    language: str
    licence: str
    datasets: tuple[str, ...]
    pipeline_tag: str
    data: str
    limits: str
    tests: Mapping[str, str]
    metrics: Mapping[str, tuple[str, str]]


def write_cards(name: str, cards: Iterable[Card], results: Mapping[str, Any], settings: Settings) -> None:
    """Writes the cards of those models that were run, from the lowest seed each."""
    for card in cards:
        runs = {
            data: min(found, key=lambda run: int(run["seed"]))
            for data in card.tests
            if (found := [run for run in results["runs"] if (run["data"], run["model"]) == (data, card.model)])
        }
        if runs:
            text = str(_card(name, card, runs, results, settings))
            settings.cards_dir.mkdir(parents=True, exist_ok=True)
            settings.cards_dir.joinpath(f"{card.file}.md").write_text(text.rstrip() + "\n", encoding="utf-8")


def _card(
    name: str, card: Card, runs: Mapping[str, dict[str, Any]], results: Mapping[str, Any], settings: Settings
) -> ModelCard:
    run = next(iter(runs.values()))
    reproduce = shlex.join(["python", "scripts/reproduce.py", name, "--models", card.model])
    example = next((each["outputs"][0] for each in runs.values() if each.get("outputs")), None)
    if example is None:
        raise ValueError(f"{card.model} has no outputs in the results of {name}: let `compared` show some")
    data = ModelCardData(
        model_name=card.file,
        library_name="transformers",
        language=card.language,
        license=card.licence,
        datasets=list(card.datasets),
        metrics=list(dict.fromkeys(metric for metric, _ in card.metrics.values())),
        pipeline_tag=card.pipeline_tag,
        tags=["copynet", "copy-mechanism", "seq2seq"],
        eval_results=_eval_results(card, runs),
    )
    return ModelCard.from_template(
        data,
        template_path=str(TEMPLATE),
        title=card.title,
        summary=card.summary,
        data=card.data,
        limits=card.limits,
        name=name,
        folder=run["folder"],
        weights=WEIGHTS.format(command=reproduce),
        source=json.dumps(example["text"], ensure_ascii=False),
        output=[example["prediction"]],
        reproduce=reproduce,
        parameters=f"{run['parameters']:,}",
        epochs=run["epochs"],
        minutes=run["minutes"],
        machine=run["machine"],
        threads=run["threads"],
        seed=run["seed"],
        versions=", ".join(f"{package} {version}" for package, version in run["versions"].items()),
        commit=run["commit"],
        command=run["command"],
        scores=_scores(card, runs),
        signature=_signature(results["signature"]),
    )


def _eval_results(card: Card, runs: Mapping[str, dict[str, Any]]) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=card.pipeline_tag,
            dataset_type=card.datasets[0],
            dataset_name=card.tests[data],
            dataset_split=data,
            metric_type=metric,
            metric_name=title,
            metric_value=run["scores"][score],
        )
        for data, run in runs.items()
        for score, (metric, title) in card.metrics.items()
    ]


def _scores(card: Card, runs: Mapping[str, dict[str, Any]]) -> str:
    titles = [title for _, title in card.metrics.values()]
    return table(
        ["", *titles],
        [[card.tests[data], *(f"{run['scores'][score]:.2f}" for score in card.metrics)] for data, run in runs.items()],
    )


def _signature(said: str | Mapping[str, str]) -> str:
    if isinstance(said, str):
        return f"Metric: `{said}`."
    return "\n".join(f"- {metric}: `{value}`" for metric, value in said.items())
