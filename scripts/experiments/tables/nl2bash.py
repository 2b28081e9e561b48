"""NL2Bash (Lin et al. 2018): a shell command for an English description, compared with the published CopyNet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..data.rows import Row
from ..data.shell_commands import (
    PUBLISHED,
    prepare,
    read_command_pairs,
    read_published_outputs,
    read_test_groups,
    restore,
    restore_pieces,
)
from ..reports.markdown import compare_outputs, get_data_facts, render_tried, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH_AND_COPYNET, compare_models
from ..scores.command_scores import (
    NearestDescriptions,
    find_frequent_commands,
    remove_quotes,
    score_judgements,
    spell_out,
)
from ..scores.texts import score_exact_match

DATA = "descriptions"
SCORES = {name: name for name in ("top-1", "top-3", "top-1, spelled out", "top-3, spelled out")}
TRAINING = read_training("nl2bash")
UNQUOTED = "top-1, spelled out, without quotes around plain words"
BEAMS = TRAINING["num_beams"]

DECODING = {"length_penalty": 0.0}  # chosen on the validation set

MODEL_NAMES = tuple(RNNSEARCH_AND_COPYNET)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table."""
    results = ResultsFile("nl2bash", settings)
    pairs = settings.limit_splits(read_command_pairs(settings.data_dir))
    groups = settings.limit(read_test_groups(settings.data_dir))
    results.add_data_facts(
        signature="any-ref|case:mixed|spaces:collapsed",
        examples={"test": len(groups), **{name: len(rows) for name, rows in pairs.items()}},
        baselines={DATA: score_baselines(pairs["train"], groups)},
        published=score_published(settings, groups),
    )
    training_pairs = {name: [_prepare_pair(row) for row in rows] for name, rows in pairs.items()}
    # A test pair has the first of a description's commands; `_score` compares with all of them.
    tests = {DATA: [_prepare_pair({"text": group["text"], "summary": group["answers"][0]}) for group in groups]}
    compare_models(
        results,
        RNNSEARCH_AND_COPYNET,
        training_pairs,
        tests,
        TRAINING,
        settings,
        score=partial(_score, groups),
        stored_outputs=15,
        decoding=DECODING,
        num_return_sequences=BEAMS,
    )
    return results


def _prepare_pair(row: Row) -> dict[str, str]:
    return {name: prepare(row[name]) for name in ("text", "summary")}


def _score(groups: Sequence[Row], data: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, Any]:
    return score_matches([[restore(words) for words in output["predictions"]] for output in outputs], groups)


def score_matches(ranked: Sequence[Sequence[str]], groups: Sequence[Row]) -> dict[str, float]:
    """Exact match with any of a description's commands, as written and spelled out."""
    answers = [group["answers"] for group in groups]
    as_written = {f"top-{k}": score_exact_match(ranked, answers, k) for k in (1, 3)}
    spelled_out = {f"top-{k}, spelled out": score_exact_match(ranked, answers, k, spell_out) for k in (1, 3)}
    return {name: round(value, 2) for name, value in (as_written | spelled_out).items()}


def score_baselines(train: list[Row], groups: list[Row]) -> dict[str, dict[str, float]]:
    """Scores the description itself, the most frequent commands, and the commands of the most similar description."""
    nearest = NearestDescriptions(train)
    outputs_of = {
        "the description itself": [[group["text"]] for group in groups],
        "the most frequent commands": [find_frequent_commands(train)] * len(groups),
        "commands of the nearest description": [nearest(group["text"]) for group in groups],
    }
    return {name: score_matches(outputs, groups) for name, outputs in outputs_of.items()}


def _spell_out_without_quotes(command: str) -> str:
    return remove_quotes(spell_out(command))


def score_published(settings: Settings, groups: list[Row]) -> dict[str, dict[str, float]]:
    """Scores the outputs that Lin et al. publish, and adds the verdicts of their judges."""
    scores = {}
    answers = [group["answers"] for group in groups]
    for title, name in PUBLISHED.items():
        rows = read_published_outputs(settings.data_dir, name)[: len(groups)]
        judged = {f"judged {k}": round(score_judgements(rows, k), 1) for k in (1, 3)}
        outputs = [row["outputs"] for row in rows]
        unquoted = {UNQUOTED: round(score_exact_match(outputs, answers, normalize=_spell_out_without_quotes), 2)}
        scores[f"{title}, Lin et al.'s outputs"] = score_matches(outputs, groups) | unquoted | judged
    return scores


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/nl2bash.md."""
    of_published = get_data_facts(results)["published"]
    subtokens, tellina = of_published.values()
    published = {name: [*map(scores.get, SCORES)] for name, scores in of_published.items()}
    return {
        "beams": BEAMS,
        "scores": score_table(results, DATA, RNNSEARCH_AND_COPYNET, SCORES, published),
        "subtokens": subtokens,
        "tellina": tellina,
        "unquoted": UNQUOTED,
        "tried": results.get("tried"),
        "tried_scores": render_tried(results, ("top-1", "top-3")),
        "outputs": compare_outputs(results, DATA, RNNSEARCH_AND_COPYNET, restore_pieces, restore),
    }
