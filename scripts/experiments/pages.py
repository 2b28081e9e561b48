"""The pages and tables that the experiments write."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from copynet_hf.visualization import highlight_copies

Results = Mapping[str, Any]


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; numbers with one digit behind the point, None as an empty cell."""
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def runs_of(results: Results, data: str, model: str) -> list[dict[str, Any]]:
    """The runs of a model on one data set, a seed each."""
    return [run for run in results["runs"] if (run["data"], run["model"]) == (data, model)]


def mean_scores(results: Results, data: str, model: str, names: Iterable[str]) -> list[float | None]:
    """Scores averaged over the seeds; None for a model that was not run, or has no such score."""
    runs = runs_of(results, data, model)
    return [mean([run["scores"].get(name) for run in runs]) for name in names]


def mean(values: Sequence[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return statistics.mean(known) if known else None


def model_rows(results: Results, data: str, models: Iterable[str], names: Sequence[str]) -> list[list[Any]]:
    """A row for each model that was run: its scores, the number of seeds, minutes of a training (the median)."""
    rows: list[list[Any]] = []
    for model in models:
        if runs := runs_of(results, data, model):
            minutes = statistics.median(run["minutes"] for run in runs)
            rows.append([model, *mean_scores(results, data, model, names), len(runs), round(minutes)])
    return rows


def how_made(results: Results) -> str:
    """Who made the runs: seeds, commits, versions, machines, and the commands of the first seed."""
    runs = results["runs"]

    def all_of(values: Iterable[Any]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    versions = all_of(f"{name} {number}" for run in runs for name, number in run["versions"].items())
    shortened = [run for run in runs if "--max_minutes" in run["command"]]
    lines = [
        "## How it was made",
        "",
        f"Seeds {all_of(sorted(run['seed'] for run in runs))}; {versions}; {all_of(r['machine'] for r in runs)}, "
        f"threads {all_of(run['threads'] for run in runs)}; commits {all_of(run['commit'] for run in runs)}.",
        *([f"{len(shortened)} trainings had a limit, --max_minutes."] if shortened else []),
        "",
        "| data | model | parameters | trained by |",
        "|---|---|---|---|",
    ]
    for run in {(run["data"], run["model"]): run for run in reversed(runs)}.values():
        lines.append(f"| {run['data']} | {run['model']} | {run['parameters']:,} | `{run['command']}` |")
    return "\n".join(lines)


def side_by_side(
    results: Results, data: str, models: Iterable[str], shown: Callable[[str], str] = lambda text: text
) -> str:
    """What the models of the first seed made of the same texts, copied words in [brackets].

    Args:
        shown: makes a text for readers of the text that the models see.
    """
    runs = {model: known[0] for model in models if (known := runs_of(results, data, model))}
    rows = [
        [outputs[0]["text"], outputs[0]["reference"], *map(_marked, outputs)]
        for outputs in zip(*(run.get("outputs", []) for run in runs.values()), strict=True)
    ]
    return table(["source", "reference", *runs], [[escaped(shown(text)) for text in row] for row in rows])


def escaped(text: str) -> str:
    """Text that a cell of a table shows as it is."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*").replace("\n", "<br>")


def _marked(output: Mapping[str, Any]) -> str:
    return highlight_copies(output["words"], output["copied"], "plain", separator="")
