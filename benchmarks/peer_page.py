"""The page of peers.py: results/peers.md from results/peers.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from measure import TEMPLATES, format_table, median_milliseconds, median_ratio

OURS, THEIRS = "copynet_hf", "yoyodyne"
SOURCE = "https://github.com/CUNY-CL/yoyodyne/blob/master"


def render_page(results: Mapping[str, Any]) -> str:
    """The text of results/peers.md."""
    sizes, batch_sizes = results["sizes"], results["batch_sizes"]
    search = results["searches"][0]
    return TEMPLATES.get_template("peers.md.jinja").render(
        version=results["yoyodyne"],
        source=SOURCE,
        speed=render_speed(results),
        memory=render_memory(results),
        accuracy=render_accuracy(results),
        rounds=len(search["seconds"][OURS]),
        words=f"{search['words']:,}",
        searched=f"`{search['file']}`",
        search_set=results["accuracy"][0]["set"],
        our_batch_size=batch_sizes[OURS],
        their_batch_size=batch_sizes[THEIRS],
        **{name: results[name] for name in ("seed", "epochs", "search_batch_size", "machine", "yoyodyne_versions")},
        **sizes,
    )


def render_speed(results: Mapping[str, Any]) -> str:
    rows = []
    for measured in results["steps"]:
        steps = {
            system: [each / measured["steps"] for each in measured["seconds"][system]] for system in (OURS, THEIRS)
        }
        times = [f"{median_milliseconds(steps[system]):.0f} ms" for system in (OURS, THEIRS)]
        name = f"training step, {measured['set']}, batch {measured['batch_size']}"
        rows.append([name, *times, f"{median_ratio(steps, OURS, THEIRS):.2f}"])
    for measured in results["searches"]:
        seconds = measured["seconds"]
        times = [f"{median_milliseconds(seconds[system]) / 1000:.1f} s" for system in (OURS, THEIRS)]
        ratio = f"{median_ratio(seconds, OURS, THEIRS):.2f}"
        rows.append([f"{measured['search']}, {measured['words']:,} words", *times, ratio])
    return format_table(["", OURS, THEIRS, "ratio"], rows)


def render_memory(results: Mapping[str, Any]) -> str:
    header = ["training", *(f"{system}, {unit}" for unit in ("MiB", "parameters") for system in (OURS, THEIRS))]
    rows = []
    for measured in results["steps"]:
        peaks = [
            f"{measured['peak_mebibytes'][system]:,} ({measured['import_mebibytes'][system]:,})"
            for system in (OURS, THEIRS)
        ]
        parameters = [f"{measured['parameters'][system]:,}" for system in (OURS, THEIRS)]
        rows.append([f"{measured['set']}, batch {measured['batch_size']}", *peaks, *parameters])
    return format_table(header, rows)


def render_accuracy(results: Mapping[str, Any]) -> str:
    rows = []
    for scored in results["accuracy"]:
        num_unseen = scored["unseen_words"]
        for system in (OURS, THEIRS):
            scores = scored["systems"][system]
            unseen = f"{scores['unseen_right']} of {num_unseen}" if num_unseen else "no such words"
            minutes = f"{scores['cpu_minutes']:.1f}"
            rows.append([scored["set"], system, scores["dev"], scores["test"], unseen, minutes])
    header = ["training set", "package", "dev", "test", "test, unseen letter", "CPU minutes"]
    return format_table(header, rows)
