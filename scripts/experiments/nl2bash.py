"""NL2Bash (Lin et al. 2018): a shell command for an English description, beside the published CopyNet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from . import commands
from .cards import Card
from .commands import Nearest, judged_correct, most_frequent, prepare, restore, spelled_out
from .pages import baseline_rows, facts, how_made, model_rows, side_by_side, table
from .runs import MODELS, Results, Row, Settings, compared
from .scores import exact_match

DATA = "descriptions"
SCORES = ("top-1", "top-3", "top-1, spelled out", "top-3, spelled out")
BEAMS = 10
TRAINING: dict[str, Any] = {
    "segmenter": "whitespace",
    "vocab_size": 3_000,
    "min_frequency": 1,
    "max_source_oov": 32,
    "embedding_size": 256,
    "hidden_size": 384,
    "encoder_hidden_size": 256,
    "attention_size": 256,
    "dropout": 0.4,
    "max_source_length": 64,
    "max_target_length": 64,
    "num_train_epochs": 24,
    "load_best_model_at_end": False,  # exact match still rises when the loss does
    "num_beams": BEAMS,
}

DECODING = {"length_penalty": 0.0}  # chosen on validation
# Top-1 and top-3 of CopyNet on validation, 542 descriptions.
TRIED = {
    "these settings": (9.0, 15.1),
    "length penalty 0.5": (8.7, 14.6),
    "length penalty 1": (8.5, 14.2),
    "vocabulary 1,500, dropout 0.5, labels smoothed by 0.1": (7.8, 14.4),
    "the commands of the two most similar descriptions behind the description": (7.6, 14.0),
}

NAMES = tuple(MODELS)
CARD = Card(
    file="nl2bash",
    title="Shell commands for descriptions",
    summary="Proposes a shell command for an English description, with its file names, numbers and strings.",
    language="en",
    licence="mit",
    datasets=("nl2bash",),
    pipeline_tag="text-generation",
    data="8,045 of NL2Bash's training pairs (Lin et al. 2018, github.com/TellinaTool/nl2bash, MIT), in the words "
    "of `prepare` in scripts/experiments/commands.py; `restore` makes commands of its outputs.",
    limits="Most of its commands are wrong in some detail: never run one unread. Two thirds of the training "
    "commands are `find`.",
    tests={DATA: "test"},
    metrics={score: ("exact_match", score) for score in SCORES},
    examples=DATA,
)


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("nl2bash", settings)
    pairs = {name: settings.first(rows) for name, rows in commands.command_pairs(settings.data_dir).items()}
    groups = settings.first(commands.test_groups(settings.data_dir))
    results.note(
        signature="any-ref|case:mixed|spaces:collapsed",
        examples={"test": len(groups), **{name: len(rows) for name, rows in pairs.items()}},
        baselines={DATA: baselines(pairs["train"], groups)},
        published=published(settings, groups),
    )
    learned = {name: [_prepared(row) for row in rows] for name, rows in pairs.items()}
    # One of a description's commands stands for it here; all of them count in the score.
    tests = {DATA: [_prepared({"text": group["text"], "summary": group["answers"][0]}) for group in groups]}
    score = partial(_score, groups)
    compared(
        results,
        MODELS,
        learned,
        tests,
        TRAINING,
        settings,
        score=score,
        shown=15,
        decoding=DECODING,
        num_return_sequences=BEAMS,
    )
    return results


def _prepared(row: Row) -> dict[str, str]:
    return {name: prepare(row[name]) for name in ("text", "summary")}


def _score(groups: Sequence[Row], data: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, Any]:
    return matches([[restore(said) for said in output["predictions"]] for output in outputs], groups)


def matches(ranked: Sequence[Sequence[str]], groups: Sequence[Row]) -> dict[str, float]:
    """Exact match with any of a description's commands, as they stand and spelled out."""
    answers = [group["answers"] for group in groups]
    plain = {f"top-{k}": exact_match(ranked, answers, k) for k in (1, 3)}
    alike = {f"top-{k}, spelled out": exact_match(ranked, answers, k, spelled_out) for k in (1, 3)}
    return {name: round(value, 2) for name, value in (plain | alike).items()}


def baselines(train: list[Row], groups: list[Row]) -> dict[str, dict[str, float]]:
    """The description itself, the most frequent command, the commands of the most similar description."""
    nearest = Nearest(train)
    return {
        "the description itself": matches([[group["text"]] for group in groups], groups),
        "the most frequent commands": matches([most_frequent(train)] * len(groups), groups),
        "commands of the nearest description": matches([nearest(group["text"]) for group in groups], groups),
    }


def published(settings: Settings, groups: list[Row]) -> dict[str, dict[str, float]]:
    """The outputs that Lin et al. give out, scored here, and what their judges say of them."""
    scores = {}
    for title, name in commands.PUBLISHED.items():
        rows = commands.published_outputs(settings.data_dir, name)[: len(groups)]
        judged = {f"judged {k}": round(judged_correct(rows, k), 1) for k in (1, 3)}
        scores[f"{title}, Lin et al.'s outputs"] = matches([row["outputs"] for row in rows], groups) | judged
    return scores


def page(results: dict[str, Any]) -> str:
    """What nl2bash.md says."""
    known = facts(results)
    count, others = known["examples"], known["published"]
    judged = next(iter(others.values()))
    rows = [
        *baseline_rows(results, DATA, SCORES),
        *([name, *map(scores.get, SCORES), "", ""] for name, scores in others.items()),
        *model_rows(results, DATA, MODELS, SCORES),
    ]
    lines = [
        "# NL2Bash: shell commands",
        "",
        f"{count['train']:,} pairs of an English description and a shell command (Lin et al. 2018), "
        f"{count['validation']:,} for validation, on which the settings were chosen, {count['test']:,} different "
        "descriptions for this test, which was scored once for each seed. An output counts if it is one of the "
        f"description's commands: `{known['signature']}`. Beam {BEAMS}.",
        "",
        table(["", *SCORES, "seeds", "minutes"], rows),
        "",
        "The published CopyNet learned commands that its authors' parser had rewritten; “spelled out” compares both "
        f"sides in a form that undoes most of this. Their judges found {judged['judged 1']} % of its first outputs "
        f"correct, and one of the first three for {judged['judged 3']} %: few of the commands that would do are "
        "known. Words are runs of letters, runs of digits, options and single marks, so that file names and numbers "
        "can be copied piece by piece.",
        "",
        "## What was tried",
        "",
        "Top-1 and top-3 of CopyNet on validation, 542 descriptions, seed 0. With copied words left aside 9.2 % of "
        "its first outputs were right: what fails is knowing the command, not copying.",
        "",
        table(["", "top-1", "top-3"], [[name, *scores] for name, scores in TRIED.items()]),
        "",
        "## The first descriptions",
        "",
        "Bold: what the copy mode gave more than half of the probability.",
        "",
        side_by_side(results, DATA, MODELS, lambda output: commands.pieces(output["words"]), restore),
        "",
        how_made(results),
    ]
    return "\n".join(lines) + "\n"
