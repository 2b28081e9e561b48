"""Cards of the models of the experiments, model_cards/*.md."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData

from copynet_hf.saved.cards import TAGS, render_card, table

from ..data.licences import find_licence
from ..data.rows import to_file_name, write_text
from .markdown import find_runs, get_data_facts

COPYNET = (
    "It is a [CopyNet](https://arxiv.org/abs/1603.06393) (Gu, Lu, Li, Li, ACL 2016): a recurrent encoder and decoder "
    "that generate words and copy them from the input under one normaliser."
)
BASELINE = (
    "It is a baseline that does not copy, for comparison with "
    "[CopyNet](https://arxiv.org/abs/1603.06393) (Gu, Lu, Li, Li, ACL 2016) of the same sizes."
)
POINTER_NETWORK = (
    "It is a Pointer Network (Vinyals, Fortunato, Jaitly, [2015](https://arxiv.org/abs/1506.03134)) with GRUs: it "
    "writes positions of its input."
)

USE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import copynet_hf  # registers the model

tokenizer = AutoTokenizer.from_pretrained("{folder}")
model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")
source = [{source}]
output = model.generate(**tokenizer(source, return_tensors="pt"))
print(tokenizer.batch_decode(output, source=source, skip_special_tokens=True))
"""
USE_POINTER_NETWORK = """import torch

from copynet_hf import CopyNetForConditionalGeneration

model = CopyNetForConditionalGeneration.from_pretrained("{folder}")
points = {source}
ids = model.generate(input_features=torch.tensor([points]), num_beams=4, max_new_tokens=20)[0].tolist()
print([index - 4 for index in ids if index >= 4])  # 4 is the id of the first point
"""
USE_ONNX = """
# the same model as ONNX graphs, which run without torch
from huggingface_hub import snapshot_download

from copynet_hf import OnnxCopyNet

model = OnnxCopyNet.from_pretrained(snapshot_download("{repo}", allow_patterns="{export}/*") + "/{export}")
"""


@dataclass(frozen=True)
class Card:
    """The contents of an experiment's model cards that are not in its results.

    Attributes:
        file: first part of the cards' file names.
        datasets: the training data, by their names in `LICENCES`.
        data: a text on the training data, their authors and their licence.
        tests: titles of the data sets of the results.
        metrics: for each score of the results, the metric's name on the Hub and a title.
        examples: the data set whose first output is the example; None: `use` needs no example.
        kind: the kind of model; by default CopyNet, or a baseline if the model's name does not begin with CopyNet.
        use: code that loads a model from `{folder}` and runs it on `{source}`, and on `{facts}` for models that read
            facts.
        main_score: the score that leaderboards show; None: the first of `metrics`.
        model: the model's name in the results; None: its own.
    """

    file: str
    title: str
    summary: str
    language: str
    datasets: tuple[str, ...]
    pipeline_tag: str
    data: str
    limits: str
    tests: Mapping[str, str]
    metrics: Mapping[str, tuple[str, str]]
    examples: str | None
    kind: str | None = None
    use: str = USE
    main_score: str | None = None
    model: str | None = None

    @property
    def licence(self) -> str:
        """The licence of the weights, by its identifier on the Hub."""
        return find_licence(self.datasets[0]).identifier

    def path(self, folder: Path, model: str) -> Path:
        return folder / f"{self.file}-{to_file_name(model).lower().replace('_', '-')}.md"


def write_cards(name: str, card: Card, results: Mapping[str, Any], folder: Path) -> None:
    """Writes a card into `folder` for each model, with the scores of its lowest seed.

    Models without an example output have no card: they are another model with another search.
    """
    for model in dict.fromkeys(run["model"] for run in results["runs"] if run["data"] in card.tests):
        if card.examples is None or not find_runs(results, card.examples, model):
            continue
        runs = {data: of_model[0] for data in card.tests if (of_model := find_runs(results, data, model))}
        (run, *_) = runs.values()
        fields = _describe_model(card, model, runs, results, run["folder"]) | {
            "reproduce": format_command(name, model, run["seed"]),
            "about_scores": "Of this model, once. Other models, baselines and seeds:\n"
            f"[results/{name}.md](../results/{name}.md).",
        }
        text = str(render_card(_make_metadata(card, model, runs), **fields))
        write_text(card.path(folder, model), text.rstrip() + "\n")


def render_published_card(
    name: str,
    card: Card,
    model: str,
    runs: Mapping[str, dict[str, Any]],
    results: Mapping[str, Any],
    repo: str,
    exports: Sequence[str],
) -> ModelCard:
    """The card of a model on the Hub: it loads the model from there, and names no folder of this machine.

    Args:
        runs: the model's runs, by data set.
        repo: the name of the repository.
        exports: the folders of ONNX graphs in it.
    """
    (run, *_) = runs.values()
    licence = find_licence(card.datasets[0])
    metadata = _make_metadata(card, model, runs)
    metadata.license_name = licence.name
    fields = _describe_model(card, model, runs, results, repo)
    if exports:
        fields["use"] += "\n" + USE_ONNX.format(repo=repo, export=exports[0]).rstrip()
    if licence.restriction is not None:
        fields["data"] += f"\n\nBefore you use this model: {licence.restriction}."
    reproduce = format_command(name, model, run["seed"])
    fields["command"] = "\n".join(dict.fromkeys([reproduce, _remove_folders(run["command"])]))
    fields["about_scores"] = (
        f"Of this model, once. Other models, baselines and seeds: `results/{name}.md` of copynet_hf."
    )
    return render_card(metadata, **fields)


def make_leaderboard_entries(card: Card, runs: Mapping[str, dict[str, Any]]) -> list[EvalResultEntry]:
    """The main score on each data set, with the others as a note, for .eval_results."""
    main = card.main_score or next(iter(card.metrics))
    return [
        EvalResultEntry(
            dataset_id=card.datasets[0],
            task_id=data,
            value=run["scores"][main],
            notes=", ".join(f"{title} {run['scores'][score]:.2f}" for score, (_, title) in card.metrics.items()),
        )
        for data, run in runs.items()
    ]


def _describe_model(
    card: Card, model: str, runs: Mapping[str, dict[str, Any]], results: Mapping[str, Any], folder: str
) -> dict[str, Any]:
    """The fields of the template that do not depend on where the card is read.

    Args:
        folder: from which `use` loads the model.

    Raises:
        ValueError: the results have no example.
    """
    run = next(iter(runs.values()))
    example: Mapping[str, Any] = {}
    if card.examples is not None:
        of_seed = {each["seed"]: each for each in find_runs(results, card.examples, card.model or model)}
        if run["seed"] not in of_seed:
            raise ValueError(
                f"the results have no output of {model!r} with seed {run['seed']} for {card.examples!r}, the card's "
                "example: run scripts/reproduce.py with these data"
            )
        example = of_seed[run["seed"]]["outputs"][0]
    prediction = example.get("prediction")
    source, facts = (json.dumps(example.get(column), ensure_ascii=False) for column in ("text", "facts"))
    versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
    return {
        "title": f"{card.title}: {model}",
        "summary": card.summary,
        "kind": card.kind or (COPYNET if model.startswith("CopyNet") else BASELINE),
        "data": card.data,
        "limits": card.limits,
        "use": card.use.format(folder=folder, source=source, facts=facts).rstrip(),
        "output": [prediction] if isinstance(prediction, str) else prediction,
        "training": f"{run['parameters']:,} parameters, {run['epochs']:g} epochs, {run['minutes']} minutes "
        f"({run['machine']}, threads: {run['threads']}), seed\n{run['seed']}; {versions}; commit {run['commit']}.",
        "command": run["command"],
        "scores": _score_table(card, runs),
        "signature": _format_signature(get_data_facts(results)["signature"]),
    }


def _make_metadata(card: Card, model: str, runs: Mapping[str, dict[str, Any]]) -> ModelCardData:
    return ModelCardData(
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


def format_command(name: str, model: str, seed: int) -> str:
    """The command that trains and scores a model."""
    return shlex.join(
        ["python", "scripts/reproduce.py", name, "--models", model, *(["--seed", str(seed)] if seed else [])]
    )


def _remove_folders(command: str) -> str:
    """The command with files and folders reduced to their names."""
    words, option = [], ""
    for word in shlex.split(command):
        option = word if word.startswith("--") else option
        is_path = word != option and option.endswith(("_file", "_dir", "_name_or_path"))
        words.append(Path(word).name if is_path else word)
    return shlex.join(words)


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


def _score_table(card: Card, runs: Mapping[str, dict[str, Any]]) -> str:
    titles = [title for _, title in card.metrics.values()]
    return table(
        ["", *titles],
        [[card.tests[data], *(f"{run['scores'][score]:.2f}" for score in card.metrics)] for data, run in runs.items()],
    )


def _format_signature(signature: str | Mapping[str, str]) -> str:
    if isinstance(signature, str):
        return f"Metric: `{signature}`."
    return "\n".join(f"- {metric}: `{value}`" for metric, value in signature.items())
