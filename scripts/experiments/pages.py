"""The pages and tables that the experiments write."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from copynet_hf.evaluation.cards import table
from copynet_hf.inference.highlighting import MARKS, highlight_copies

Results = Mapping[str, Any]  # what the JSON file holds
Row = Mapping[str, Any]


# ---- what was measured


def facts(results: Results) -> dict[str, Any]:
    """What the lowest seed noted of its data."""
    return dict(results["data"][min(results["data"], key=int)])


def runs_of(results: Results, data: str, model: str) -> list[dict[str, Any]]:
    """The runs of a model on one data set, by seed."""
    return [run for run in results["runs"] if (run["data"], run["model"]) == (data, model)]


def model_rows(results: Results, data: str, models: Iterable[str], names: Sequence[str]) -> list[list[Any]]:
    """A row for each model that was run: its mean scores, the number of seeds, minutes of a training (the median)."""
    rows: list[list[Any]] = []
    for model in models:
        if runs := runs_of(results, data, model):
            minutes = statistics.median(run["minutes"] for run in runs)
            rows.append([model, *means([run["scores"] for run in runs], names), len(runs), round(minutes)])
    return rows


def baseline_rows(results: Results, data: str, names: Sequence[str]) -> list[list[Any]]:
    """A row for each trivial baseline: scores averaged over those seeds that models were run with."""
    seeds = {str(run["seed"]) for run in results["runs"] if run["data"] == data}
    noted = [known["baselines"][data] for seed, known in results["data"].items() if seed in seeds]
    return [[name, *means([each[name] for each in noted], names), "", ""] for name in (noted[0] if noted else ())]


def with_digits(rows: Iterable[Sequence[Any]], *digits: int) -> list[list[Any]]:
    """The rows with so many decimals in their first scores, where a table's one does not tell near from reached."""
    return [
        [name, *(f"{score:.{count}f}" for score, count in zip(cells, digits, strict=False)), *cells[len(digits) :]]
        for name, *cells in rows
    ]


def means(scores: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[float | None]:
    """Each score's mean; None where there is none."""
    columns = ([one[name] for one in scores if one.get(name) is not None] for name in names)
    return [float(statistics.mean(column)) if column else None for column in columns]


def how_made(results: Results) -> str:
    """Seeds, commits, versions, machines, and the command of each model's first seed."""
    runs = results["runs"]

    def all_of(values: Iterable[Any]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    versions = all_of(f"{name} {number}" for run in runs for name, number in run["versions"].items())
    limited = sum("--max_minutes" in run["command"] for run in runs)
    resumed = sum(run["resumed"] for run in runs)
    lines = [
        "## How it was made",
        "",
        f"Seeds {all_of(run['seed'] for run in runs)}; {versions}; {all_of(run['machine'] for run in runs)}, "
        f"threads: {all_of(run['threads'] for run in runs)}; commits {all_of(run['commit'] for run in runs)}.",
        *([f"{limited} trainings had a limit, --max_minutes."] if limited else []),
        *([f"{resumed} trainings were interrupted; their minutes are the last stretch's."] if resumed else []),
    ]
    commands: dict[str, dict[str, Any]] = {}
    for run in runs:
        commands.setdefault(run["command"], run)
    for command, run in commands.items():
        if run["seed"] == runs[0]["seed"]:
            lines += ["", f"{run['model']}, {run['parameters']:,} parameters:", "", "```bash", command, "```"]
    return "\n".join(lines)


# ---- what was said


def side_by_side(
    results: Results,
    data: str,
    models: Iterable[str],
    pieces: Callable[[Row], list[str]] = lambda row: row["words"],
    plain: Callable[[str], str] = str,
) -> str:
    """What the models made of the same texts, with the lowest seed that all of them have; copied words are bold.

    Args:
        pieces: makes the text that is shown of an output, piece by piece, of the words that the model said.
        plain: makes that of a source or a reference.
    """
    known = {model: {run["seed"]: run for run in runs_of(results, data, model)} for model in models}
    known = {model: runs for model, runs in known.items() if runs}
    common = set.intersection(*(set(runs) for runs in known.values()))
    if not common:
        return "No seed has all models."
    outputs = [runs[min(common)]["outputs"] for runs in known.values()]
    rows = [
        [
            *(escaped(plain(of_models[0][name])) for name in ("text", "reference")),
            *(bold(one, pieces) for one in of_models),
        ]
        for of_models in zip(*outputs, strict=True)
    ]
    return table(["source", "reference", *known], rows)


def bold(output: Row, pieces: Callable[[Row], list[str]] = lambda row: row["words"]) -> str:
    """The output, its copied words bold."""
    marked = highlight_copies([escaped(piece) for piece in pieces(output)], output["copied"], "ansi", separator="")
    for mark, tag in zip(MARKS["ansi"], ("<b>", "</b>"), strict=True):
        marked = marked.replace(mark, tag)
    return marked


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a cell of a table as well."""
    return re.sub(r"([\\`*_\[\]<>&|~$#])", r"\\\1", text).replace("\n", "<br>")
