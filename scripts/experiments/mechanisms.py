"""All copy mechanisms on the same tasks, with the same updates and sizes: scores, parameters and speeds."""

from __future__ import annotations

import statistics
from typing import Any

from copynet_hf.evaluation.metrics import metric_signature

from . import rewriting, table1, table3, table4
from .cards import Card
from .dialogue import dialogue_pairs
from .pages import facts, how_made, means, runs_of, table
from .runs import RNNSEARCH, Results, Row, Settings, compared
from .scores import repeated

POINTER_GENERATOR = {"copy_mechanism": "pointer_generator"}
GATED = {"copy_mechanism": "gated"}
MODELS: dict[str, dict[str, Any]] = {
    "RNNSearch": RNNSEARCH,
    "CopyNet": {},
    "pointer-generator": POINTER_GENERATOR,
    "pointer-generator with coverage": POINTER_GENERATOR | {"use_coverage": True, "coverage_loss_weight": 1.0},
    "CoRe": GATED | {"aligned_words": 10, "frequent_words": 2_000},
    "CoRe, the whole vocabulary": GATED,
    "CoRe, the Chainer article's losses": GATED | {"gated_loss": "summed"},
    "CoreQA without facts": {"copy_mechanism": "retrieval"},
}
UPDATES = 1_000
TESTED = 500  # pairs of each test
BUDGET: dict[str, Any] = {
    "max_steps": UPDATES,
    "per_device_train_batch_size": 32,
    "eval_strategy": "no",
    "load_best_model_at_end": False,
    "save_strategy": "steps",
    "save_steps": UPDATES,
    "num_beams": 5,
}
RULES, DIALOGUE, REWRITING, HEADLINES = "rules", "dialogue", "rewriting", "headlines"
# Half of Table 3's and less, whose 1,000 updates take a quarter of an hour and more.
SMALL = {"embedding_size": 128, "hidden_size": 256, "encoder_hidden_size": 128, "attention_size": 128}
TRAINING: dict[str, dict[str, Any]] = {
    RULES: table1.TRAINING,
    DIALOGUE: table4.TRAINING,
    REWRITING: rewriting.TRAINING,
    HEADLINES: table3.CLGE_TRAINING | {"preset": "lcsts_char"} | SMALL,
}
TITLES = {
    RULES: "Table 1's rules, x and y apart",
    DIALOGUE: "Table 4's dialogue, DS-II",
    REWRITING: "Utterance rewriting",
    HEADLINES: "LCSTS, CLGE's test",
}
SCORES = {RULES: "exact_match", DIALOGUE: "exact_match", REWRITING: "exact_match", HEADLINES: "rouge1"}
SCORE_TITLES = {"exact_match": "EM", "rouge1": "R-1"}

NAMES = tuple(MODELS)
CARD = Card(
    file="mechanisms",
    title="Copy mechanisms compared",
    summary="A model of a comparison, stopped early.",
    language="zh",
    licence="other",
    datasets=("copynet-rules",),
    pipeline_tag="text-generation",
    data="See results/mechanisms.md.",
    limits="Trained for a comparison alone.",
    tests={},  # these models are not for use, so they have no cards
    metrics={},
    examples=RULES,
)


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet."""
    results = Results("mechanisms", settings)
    tasks = {task: (learned, test[:TESTED]) for task, (learned, test) in _tasks(settings).items()}
    references = {task: [row["summary"] for row in test] for task, (_, test) in tasks.items()}
    results.note(
        signature={task: metric_signature(texts)[SCORES[task]] for task, texts in references.items()},
        examples={task: {"train": len(learned), "test": len(test)} for task, (learned, test) in tasks.items()},
        baselines={},
    )
    for task, (learned, test) in tasks.items():
        training = TRAINING[task] | BUDGET
        compared(results, MODELS, {"train": learned}, {task: test}, training, settings, within=task, score=_score)
    return results


def _tasks(settings: Settings) -> dict[str, tuple[list[Row], list[Row]]]:
    """Training and test pairs of each task."""
    rules = table1.made("apart", settings)
    dialogue = {name: settings.first(rows) for name, rows in dialogue_pairs("DS-II", settings.seed).items()}
    rewritten = {name: settings.first(rewriting.dialogues(settings, name)) for name in ("train", "test")}
    headlines, tests = table3.clge_pairs(settings.data_dir / "lcsts", settings)
    return {
        RULES: (rules["train"], _mixed(rules["test"])),
        DIALOGUE: (dialogue["train"], dialogue["test"]),
        REWRITING: (rewritten["train"], rewritten["test"]),
        HEADLINES: (headlines["train"], tests["clge_test"]),
    }


def _score(task: str, scores: dict[str, Any], outputs: list[Row]) -> dict[str, Any]:
    return scores | {"repeated": round(repeated([output["words"] for output in outputs]), 2)}


def _mixed(rows: list[Row]) -> list[Row]:
    """The instances of all rules in turn, so that the first ones have all types."""
    step = max(1, len(rows) // TESTED)
    return [row for first in range(step) for row in rows[first::step]]


def page(results: dict[str, Any]) -> str:
    """What mechanisms.md says."""
    known = facts(results)
    lines = [
        "# Copy mechanisms compared",
        "",
        f"The same sizes, data and {UPDATES:,} updates of 32 pairs for every mechanism: far fewer than a good model "
        "needs, so that what shows is how fast each learns. Sizes and other settings are those of each task's own "
        "page, but that the models for headlines are of half the size. Beam 5, the first "
        f"{TESTED} pairs of each test. Repeated: the share of the outputs' runs of three characters or symbols that "
        "stood before in the same output. Speeds are of one core while the other was at work, bfloat16 in training: "
        "pairs learned and texts answered in a second. Pointer Networks are left out: they cannot write what a source "
        "does not have.",
        "",
        "## In one table",
        "",
        "Scores; repetition in headlines; and speeds by those of RNNSearch on the same task, the median of the tasks.",
        "",
        _in_one_table(results),
    ]
    for task, title in TITLES.items():
        score = SCORE_TITLES[SCORES[task]]
        rows = []
        for model in MODELS:
            if runs := runs_of(results, task, model):
                found = means([run["scores"] for run in runs], (SCORES[task], "repeated"))
                rows.append([model, *found, f"{runs[0]['parameters']:,}", *_speeds(runs)])
        count = known["examples"][task]
        lines += ["", f"## {title}", "", f"{count['train']:,} training pairs. `{known['signature'][task]}`", ""]
        lines += [table(["", score, "repeated", "parameters", "learned", "answered"], rows)]
    return "\n".join([*lines, "", how_made(results)]) + "\n"


def _in_one_table(results: dict[str, Any]) -> str:
    """A row for each mechanism, with its scores on all tasks."""
    rows = []
    for model in MODELS:
        runs = {task: found for task in TITLES if (found := runs_of(results, task, model))}
        scores = [means([run["scores"] for run in runs.get(task, ())], [SCORES[task]])[0] for task in TITLES]
        (repeats,) = means([run["scores"] for run in runs.get(HEADLINES, ())], ["repeated"])
        beside = [
            [mine / theirs for mine, theirs in zip(_speeds(found), _speeds(plain), strict=True)]
            for task, found in runs.items()
            if (plain := runs_of(results, task, "RNNSearch"))
        ]
        speeds = [f"{statistics.median(ratios):.2f}" for ratios in zip(*beside, strict=True)]
        rows.append([model, *scores, repeats, *(speeds or ("", ""))])
    names = [f"{task}, {SCORE_TITLES[SCORES[task]]}" for task in TITLES]
    return table(["", *names, "repeated", "learning", "answering"], rows)


def _speeds(runs: list[dict[str, Any]]) -> list[float]:
    """Pairs learned and texts answered in a second."""
    answered = [run["scores"]["examples"] / run["scores"]["seconds"] for run in runs]
    return [statistics.mean(run["pairs_per_second"] for run in runs), statistics.mean(answered)]
