"""Cards of the models that the experiments train: model_cards/FILE.md."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from copynet_hf.evaluation.cards import TAGS, render_card, table

from .pages import facts, runs_of
from .runs import Settings, file_name, write

COPYNET = (
    "It is a [CopyNet](https://arxiv.org/abs/1603.06393) (Gu, Lu, Li, Li, ACL 2016): a recurrent encoder and decoder "
    "that generate words and copy them from the input under one normaliser."
)
BASELINE = (
    "It is a baseline that does not copy, for comparison with "
    "[CopyNet](https://arxiv.org/abs/1603.06393) (Gu, Lu, Li, Li, ACL 2016) of the same sizes."
)


USE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import copynet_hf  # registers the model

tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
source = [{source}]
output = model.generate(**tokenizer(source, return_tensors="pt"))
print(tokenizer.batch_decode(output, source=source, skip_special_tokens=True))
"""


@dataclass(frozen=True)
class Card:
    """What no results file says of the models of an experiment.

    Attributes:
        file: how the names of the cards begin.
        licence: of the weights, on the Hub's list; what the data allow.
        data: what they were trained on, from whom, under which licence.
        tests: the data sets of the results, and what they are called.
        metrics: the scores of the results, with the metric's name on the Hub and a title.
        examples: the data set whose first output the card shows.
        kind: what the models are; by default CopyNet, or its baseline where the name says so.
        use: code that loads a model from `{folder}` and gives it `{source}`, and `{facts}` where there are some.
    """

    file: str
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
    examples: str
    kind: str | None = None
    use: str = USE

    def path(self, folder: Path, model: str) -> Path:
        return folder / f"{self.file}-{file_name(model).lower().replace('_', '-')}.md"


def write_cards(name: str, card: Card, results: Mapping[str, Any], settings: Settings) -> None:
    """Writes the card of every model that was run, of the lowest seed each; not of another search by the same model,
    which has no example of its own."""
    for model in dict.fromkeys(run["model"] for run in results["runs"] if run["data"] in card.tests):
        if not runs_of(results, card.examples, model):
            continue
        runs = {data: known[0] for data in card.tests if (known := runs_of(results, data, model))}
        text = str(_card(name, card, model, runs, results))
        write(card.path(settings.cards_dir, model), text.rstrip() + "\n")


def _card(
    name: str, card: Card, model: str, runs: Mapping[str, dict[str, Any]], results: Mapping[str, Any]
) -> ModelCard:
    run = next(iter(runs.values()))
    seed = ["--seed", str(run["seed"])] if run["seed"] else []
    outputs = {each["seed"]: each["outputs"] for each in runs_of(results, card.examples, model)}
    example = outputs[run["seed"]][0]
    source, known_facts = (json.dumps(example.get(key), ensure_ascii=False) for key in ("text", "facts"))
    data = ModelCardData(
        model_name=card.path(Path(), model).stem,
        library_name="transformers",
        language=card.language,
        license=card.licence,
        datasets=list(card.datasets),
        metrics=list(dict.fromkeys(metric for metric, _ in card.metrics.values())),
        pipeline_tag=card.pipeline_tag,
        tags=list(TAGS),
        eval_results=_eval_results(card, runs),
    )
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    return render_card(
        data,
        title=f"{card.title}: {model}",
        summary=card.summary,
        kind=card.kind or (COPYNET if model.startswith("CopyNet") else BASELINE),
        data=card.data,
        limits=card.limits,
        use=card.use.format(folder=run["folder"], source=source, facts=known_facts).rstrip(),
        output=[said] if isinstance(said := example["prediction"], str) else said,
        reproduce=shlex.join(["python", "scripts/reproduce.py", name, "--models", model, *seed]),
        training=f"{run['parameters']:,} parameters, {run['epochs']:g} epochs, {run['minutes']} minutes "
        f"({run['machine']}, threads: {run['threads']}), seed\n{run['seed']}; {versions}; commit {run['commit']}.",
        command=run["command"],
        about_scores="Of this model, once. Other models, baselines and seeds:\n"
        f"[results/{name}.md](../results/{name}.md).",
        scores=_scores(card, runs),
        signature=_signature(facts(results)["signature"]),
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
