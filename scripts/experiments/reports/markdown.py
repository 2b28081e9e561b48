"""Pages of results: scripts/templates/ holds the words, results/NAME.json the figures."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from copynet_hf.saved.cards import table
from copynet_hf.visualization.highlighting import COPY_MARKS, highlight_copies

Results = Mapping[str, Any]
ROOT = Path(__file__).parents[3]
FILES_AND_SEED = re.compile(r"--(?:(?:train|validation|test)_file|output_dir|seed) (?:'[^']*'|\S+)")


# ---- results


def get_data_facts(results: Results) -> dict[str, Any]:
    """The facts about the data of the lowest seed."""
    return dict(results["data"][min(results["data"], key=int)])


def find_runs(results: Results, data: str, model: str) -> list[dict[str, Any]]:
    """The runs of a model on a data set, in the order of seeds."""
    return [run for run in results["runs"] if (run["data"], run["model"]) == (data, model)]


def average_scores(scores: Sequence[Mapping[str, Any]], names: Iterable[str]) -> list[float | None]:
    """The mean of each score over those that have it; None if none has."""
    columns = ([each[name] for each in scores if each.get(name) is not None] for name in names)
    return [float(statistics.mean(column)) if column else None for column in columns]


# ---- tables


def score_table(
    results: Results,
    data: str,
    models: Iterable[str],
    titles: Mapping[str, str],
    published: Mapping[str, Sequence[Any]] | None = None,
    *,
    published_first: bool = False,
    decimals: Sequence[int] = (),
) -> str:
    """A table with a column per score: baselines, published results, then the models that were run.

    Args:
        titles: the titles of the columns, by score.
        published: the scores of each row, by name; those that are missing at the end are left empty.
        published_first: puts them above the baselines.
        decimals: decimals of the first scores of baselines and models, where one decimal is too few.
    """
    baselines = format_scores(baseline_rows(results, data, titles), decimals)
    padded = [
        [name, *scores, *[None] * (len(titles) - len(scores)), "", ""] for name, scores in (published or {}).items()
    ]
    above = [*padded, *baselines] if published_first else [*baselines, *padded]
    ours = format_scores(model_rows(results, data, models, titles), decimals)
    return table(["", *titles.values(), "seeds", "minutes (median)"], [*above, *ours])


def model_rows(results: Results, data: str, models: Iterable[str], names: Iterable[str]) -> list[list[Any]]:
    """A row per model that was run: mean scores, number of seeds, median minutes of a training."""
    rows: list[list[Any]] = []
    for model in models:
        if runs := find_runs(results, data, model):
            minutes = statistics.median(run["minutes"] for run in runs)
            minutes = round(minutes, 1) if minutes < 1 else round(minutes)
            rows.append([model, *average_scores([run["scores"] for run in runs], names), len(runs), minutes])
    return rows


def baseline_rows(results: Results, data: str, names: Iterable[str]) -> list[list[Any]]:
    """A row per baseline: mean scores over the seeds that models were run with."""
    seeds = {str(run["seed"]) for run in results["runs"] if run["data"] == data}
    baselines = [facts["baselines"][data] for seed, facts in results["data"].items() if seed in seeds]
    return [
        [name, *average_scores([of_seed[name] for of_seed in baselines], names), "", ""]
        for name in (baselines[0] if baselines else ())
    ]


def format_scores(rows: Iterable[Sequence[Any]], decimals: Sequence[int]) -> list[list[Any]]:
    """Formats the first scores of each row, with these numbers of decimals."""
    return [
        [name, *(f"{score:.{count}f}" for score, count in zip(cells, decimals, strict=False)), *cells[len(decimals) :]]
        for name, *cells in rows
    ]


# ---- pages


def render_page(name: str, results: Results, figures: Mapping[str, Any]) -> str:
    """The text of results/NAME.md, from scripts/templates/NAME.md.jinja.

    Args:
        figures: what the template needs besides `facts`, about the data, and `made`, from `summarize_runs`.
    """
    context = {"facts": get_data_facts(results), "made": summarize_runs(results), **figures}
    return TEMPLATES.get_template(f"{name}.md.jinja").render(context)


def summarize_runs(results: Results, num_commands: int | None = None) -> dict[str, Any]:
    """Seeds, versions, machines, commits, and the commands: one for all runs with the same options but other files.

    Args:
        num_commands: the most commands; None: all.
    """
    runs = results["runs"]

    def join(values: Iterable[Any]) -> str:
        return ", ".join(dict.fromkeys(str(value) for value in values))

    models: dict[str, str] = {}
    alike: dict[tuple[str, str], list[Any]] = {}
    for run in runs:  # a training that is scored in two ways counts as its first model
        model = models.setdefault(run["command"], run["model"])
        alike.setdefault((model, FILES_AND_SEED.sub("", run["command"])), []).append(run)
    return {
        "versions": join(f"{name} {number}" for run in runs for name, number in run["versions"].items()),
        "limited": sum("--max_minutes" in run["command"] for run in runs),
        "resumed": sum(run["resumed"] and not run.get("earlier_seconds") for run in runs),
        "commands": [_summarize_command(of_options) for of_options in list(alike.values())[:num_commands]],
        **{f"{name}s": join(run[name] for run in runs) for name in ("seed", "machine", "commit")},
        "threads": join(run["threads"] for run in runs),
    }


def _summarize_command(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first run, what else its options were used on, and how many parameters the models have."""
    data = list(dict.fromkeys(run["data"] for run in runs))
    parameters = [run["parameters"] for run in runs]
    return {**runs[0], "others": data[1:], "fewest": min(parameters), "most": max(parameters)}


def read_stored(name: str) -> dict[str, Any]:
    """results/NAME.json of this repository."""
    stored: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return stored


def read_published(experiment: str) -> dict[str, Any]:
    """The scores that papers report, from results/published.json."""
    published: dict[str, Any] = read_stored("published")[experiment]
    return published


def render_tried(results: Results, titles: Sequence[str]) -> str:
    """A table of the settings that were compared on the validation set; empty if the results have none."""
    tried = results.get("tried", {"scores": {}})["scores"]
    return table(["", *titles], [[name, *scores] for name, scores in tried.items()]) if tried else ""


# ---- outputs


def compare_outputs(
    results: Results,
    data: str,
    models: Iterable[str],
    restore_pieces: Callable[[Sequence[str]], Sequence[str]] = lambda words: words,
    restore: Callable[[str], str] = str,
) -> str:
    """A table of the models' outputs for the same sources, copied words in bold, of the lowest seed that all have.

    Args:
        restore_pieces: turns the words of an output into what each contributes to the text.
        restore: turns a source or a reference into the text.
    """
    by_model = {model: {run["seed"]: run for run in find_runs(results, data, model)} for model in models}
    by_model = {model: runs for model, runs in by_model.items() if runs}
    common_seeds = set.intersection(*(set(runs) for runs in by_model.values()))
    if not common_seeds:
        return "No seed has all models."
    outputs = [runs[min(common_seeds)]["outputs"] for runs in by_model.values()]
    rows = [
        [
            *(escape_markdown(restore(of_source[0][column])) for column in ("text", "reference")),
            *(embolden_copies(restore_pieces(output["words"]), output["copied"]) for output in of_source),
        ]
        for of_source in zip(*outputs, strict=True)
    ]
    return table(["source", "reference", *by_model], rows)


def embolden_copies(pieces: Iterable[str], copied: Sequence[bool]) -> str:
    """The pieces of an output, the copied ones in bold."""
    marked = highlight_copies([escape_markdown(piece) for piece in pieces], copied, "ansi", separator="")
    for mark, tag in zip(COPY_MARKS["ansi"], ("<b>", "</b>"), strict=True):
        marked = marked.replace(mark, tag)
    return marked


def escape_markdown(text: str) -> str:
    """Escapes what Markdown would interpret, in a table cell too."""
    return re.sub(r"([\\`*_\[\]<>&|~$#])", r"\\\1", text).replace("\n", "<br>")


def annotate_reply(output: Mapping[str, Any]) -> str:
    """The words of an output with "copy" or "gen" over each."""
    words = zip(output["words"], output["copied"], strict=True)
    return " ".join(
        f"<ruby>{escape_markdown(word)}<rt>{'copy' if copied else 'gen'}</rt></ruby>" for word, copied in words
    )


def mark_source(output: Mapping[str, Any]) -> str:
    """The source as HTML, out-of-vocabulary words underlined."""
    words = output["text_words"]
    return highlight_copies(words, [False] * len(words), "html", separator="", oov=output["text_unseen"])


def mark_output(output: Mapping[str, Any]) -> str:
    """The output as HTML, copied words coloured, out-of-vocabulary words underlined."""
    return highlight_copies(output["words"], output["copied"], "html", separator="", oov=output["unseen"])


TEMPLATES = Environment(
    loader=FileSystemLoader(ROOT / "scripts" / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters |= {
    "count": "{:,}".format,
    "escape_markdown": escape_markdown,
    "annotate": annotate_reply,
    "mark_source": mark_source,
    "mark_output": mark_output,
}
