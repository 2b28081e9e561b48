"""Cards of the models of the experiments, model_cards/*.md; scripts/templates/cards.yaml has their words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData

from copynet_hf.saved.cards import TAGS, render_card

from ..data.rows import to_file_name, write_text
from ..running.settings import format_command
from .markdown import ROOT, TEMPLATES, find_runs, get_data_facts

WORDS: dict[str, Any] = yaml.safe_load((ROOT / "scripts" / "templates" / "cards.yaml").read_text(encoding="utf-8"))
CARDS: dict[str, dict[str, Any]] = WORDS["cards"]
DEFAULTS = {"kind": "copynet", "pipeline_tag": "text-generation", "licence_name": None, "restriction": None}


def render_text(text: str, **context: Any) -> str:
    return TEMPLATES.from_string(text).render(context)


@dataclass(frozen=True)
class Card:
    """The card of one model: the words of its experiment, and the model's runs in the results, by data set.

    Raises:
        KeyError: the models of the experiment have no cards.
    """

    experiment: str
    model: str
    seed: int
    results: Mapping[str, Any]

    @property
    def words(self) -> dict[str, Any]:
        return {**DEFAULTS, **CARDS[self.experiment]}

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The model's runs with this seed; those of one training, where models of the same name had other pairs."""
        model = self.words.get("results_model", self.model)
        found = {
            data: run
            for data in self.tests
            for run in find_runs(self.results, data, model)
            if run["seed"] == self.seed
        }
        fingerprints = {run.get("fingerprint") for run in list(found.values())[:1]}
        return {data: run for data, run in found.items() if run.get("fingerprint") in fingerprints}

    @property
    def tests(self) -> dict[str, str]:
        return {render_text(data, model=self.model): title for data, title in self.words["tests"].items()}

    @property
    def command(self) -> str:
        """The command that trains and scores the model."""
        return format_command(self.experiment, self.model, self.seed)

    @property
    def file_name(self) -> str:
        return f"{self.words['file']}-{to_file_name(self.model).lower().replace('_', '-')}.md"

    def render(self, repo: str | None = None, exports: Sequence[str] = ()) -> ModelCard:
        """The card, as model_cards/ has it, or as it is published.

        Args:
            repo: the name of the repository on the Hub; None: the weights are not there.
            exports: the folders of ONNX graphs in it.

        Raises:
            ValueError: the results have no example.
        """
        words, run = self.words, next(iter(self.runs.values()))
        example = self._find_example()
        kind, folder = WORDS["kinds"][words["kind"]], repo or run["folder"]
        source, triples = (json.dumps(example.get(column), ensure_ascii=False) for column in ("text", "facts"))
        use = render_text(kind["use"], folder=folder, source=source, triples=triples, search=words.get("search"))
        if exports:
            use += "\n" + render_text(WORDS["use_onnx"], folder=repo, export=exports[0])
        facts = get_data_facts(self.results)
        known = {"facts": facts, "model": self.model, "scores": run["scores"]}
        texts = {name: render_text(words[name], **known) for name in ("data", "limits")}
        if repo and words["restriction"]:
            texts["data"] += f"\n\nBefore you use this model: {words['restriction']}."
        description = kind if words["kind"] != "copynet" or "CopyNet" in self.model else WORDS["kinds"]["baseline"]
        page = f"results/{self.experiment}.md"
        prediction = example.get("prediction")
        scores = [
            f"- {self.tests[data]}: {words['title_of_score']} {self._score(each):.2f}"
            for data, each in self.runs.items()
        ]
        return render_card(
            self._describe_on_hub(),
            **texts,
            title=f"{words['title']}: {self.model}",
            summary=words["summary"],
            kind=description["description"],
            reproduce=None if repo else self.command,
            use=use.rstrip(),
            output=[prediction] if isinstance(prediction, str) else prediction,
            training=f"{run['parameters']:,} parameters, commit {run['commit']} of copynet_hf." if repo else None,
            command=self.command if repo else None,
            about_scores="Of this model, once. Other scores, models and seeds, and the training command: "
            + (f"`{page}` of copynet_hf." if repo else f"[{page}](../{page})."),
            scores="\n".join(scores),
        )

    def make_leaderboard_entries(self) -> list[EvalResultEntry]:
        """The score on each data set, for .eval_results."""
        dataset = self.words["dataset"]
        return [
            EvalResultEntry(dataset_id=dataset, task_id=data, value=self._score(run))
            for data, run in self.runs.items()
        ]

    def _score(self, run: Mapping[str, Any]) -> float:
        return float(run["scores"][self.words["score"]])

    def _find_example(self) -> Mapping[str, Any]:
        if "example" not in self.words:
            return {}
        for run in find_runs(self.results, self.words["example"], self.model):
            if run["seed"] == self.seed:
                outputs: list[dict[str, Any]] = run["outputs"]
                return outputs[0]
        raise ValueError(
            f"the results have no output of {self.model!r} with seed {self.seed} for {self.words['example']!r}, the "
            "card's example: run scripts/reproduce.py with these data"
        )

    def _describe_on_hub(self) -> ModelCardData:
        words = self.words
        return ModelCardData(
            model_name=Path(self.file_name).stem,
            library_name="transformers",
            language=render_text(words["language"], model=self.model),
            license=words["licence"],
            license_name=words["licence_name"],
            datasets=[words["dataset"]],
            metrics=[words["metric"]],
            pipeline_tag=words["pipeline_tag"],
            tags=list(TAGS),
            eval_results=[
                EvalResult(
                    task_type=words["pipeline_tag"],
                    dataset_type=words["dataset"],
                    dataset_name=self.tests[data],
                    dataset_split=data,
                    metric_type=words["metric"],
                    metric_name=words["title_of_score"],
                    metric_value=self._score(run),
                )
                for data, run in self.runs.items()
            ],
        )


def write_cards(experiment: str, results: Mapping[str, Any], folder: Path) -> None:
    """Writes the card of each model that has one and was run, with the scores of its lowest seed."""
    for model in CARDS[experiment]["models"] if experiment in CARDS else ():
        seeds = [run["seed"] for run in results["runs"] if run["model"] == model]
        if seeds and (card := Card(experiment, model, min(seeds), results)).runs:
            write_text(folder / card.file_name, str(card.render()).rstrip() + "\n")
