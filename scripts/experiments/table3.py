"""Table 3 and Figure 4 of Gu et al. 2016: headlines for Chinese news, LCSTS (Hu et al. 2015).

The paper trains on the 2.4 million pairs of PART I, which the authors of LCSTS give out on request: whoever holds
lcsts/raw/PART_I.txt and PART_III.txt gets the paper's protocol. With lcsts/train.jsonl and its like, of PART II, it is
that of CLUEbenchmark's CLGE.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from copynet_hf import load_lcsts
from copynet_hf.metrics import metric_signature, score_outputs

from .cards import Card
from .figure4 import figure4, paper_inputs, terminal, with_unseen
from .headlines import lessons
from .pages import how_made, model_rows, table
from .runs import RNNSEARCH, Results, Row, Settings, evaluated, read_rows, rounded, trained, write_pairs

UNITS = {"characters": "lcsts_char", "words": "lcsts_word"}
MODELS: dict[str, dict[str, Any]] = {
    f"{name}, {unit}": {"preset": preset, **fields}
    for unit, preset in UNITS.items()
    for name, fields in {"RNN context": RNNSEARCH, "CopyNet": {}}.items()
}
BEST = "CopyNet, characters, lessons first"
PAPER = {
    "RNN, characters": (21.5, 8.9, 18.6),
    "RNN, words": (17.7, 8.5, 15.8),
    "RNN context, characters": (29.9, 17.4, 27.2),
    "RNN context, words": (26.8, 16.1, 24.1),
    "CopyNet, characters": (34.4, 21.6, 31.3),
    "CopyNet, words": (35.0, 22.3, 32.0),
}
CLGE_LSTM = (13.46, 4.12, 11.20)
PART_I = "PART III after PART I"
TESTS = {"clge_test": "CLGE's test pairs", "test": "PART III, human label 3 or more"}
SCORES = ("rouge1", "rouge2", "rougeL", "oov_recall", "copied_fraction")
BEAMS = 10
EITHER: dict[str, Any] = {"max_source_length": 140, "max_target_length": 40, "num_beams": BEAMS, "min_frequency": 1}
# 2.4 million pairs: three epochs, as few as that many pairs need.
PART_I_TRAINING: dict[str, Any] = EITHER | {
    "num_train_epochs": 3,
    "per_device_train_batch_size": 64,
    "eval_strategy": "steps",
    "eval_steps": 5_000,
    "save_steps": 5_000,
    "preprocessing_num_workers": 2,
}
CLGE_TRAINING: dict[str, Any] = EITHER | {"num_train_epochs": 8, "dropout": 0.3, "tie_word_embeddings": True}
# A smaller model, first taught to find the clauses that matter, then headlines; tuned on validation.
LESSONS_OF_EACH = 3
LESSONS_TRAINING: dict[str, Any] = EITHER | {
    "segmenter": "char",
    "vocab_size": 4_000,
    "min_frequency": 2,
    "embedding_size": 256,
    "hidden_size": 320,
    "encoder_hidden_size": 256,
    "attention_size": 192,
    "tie_word_embeddings": True,
    "dropout": 0.2,
    "num_train_epochs": 1,
}
BEST_TRAINING: dict[str, Any] = EITHER | {"num_train_epochs": 8, "dropout": 0.5, "learning_rate": 5e-4}
LESSONS = (
    "embeddings 256, hidden 320, first trained for an epoch to say the clauses that the rest of the text speaks of "
    "(three lessons for each training text, made from the texts alone; the clause itself mostly stays in the text), "
    "then on the pairs, with more dropout."
)
DECODING = {"no_repeat_ngram_size": 3}  # chosen on validation

CARDS = [
    Card(
        file=f"copynet-lcsts-{file}",
        model=model,
        title=f"CopyNet for headlines, {title}",
        summary="Writes headlines for short Chinese news.",
        language="zh",
        licence="other",
        datasets=("lcsts",),
        pipeline_tag="summarization",
        data="The 8,666 training pairs that CLUEbenchmark's CLGE takes from PART II of LCSTS (Hu et al. 2015), "
        "without those whose texts are tested on or validated with. LCSTS is for research only and has to be asked "
        "for from its authors.",
        limits="So few pairs teach it mostly to choose and join clauses of the text; it may join what does not belong "
        "together, and get wrong who did what. Not for use without a reader.",
        tests=TESTS,
        metrics={name: ("rouge", title) for name, title in zip(SCORES, ("R-1", "R-2", "R-L"), strict=False)},
    )
    for file, model, title in (
        ("char", "CopyNet, characters", "in characters, the paper's sizes"),
        ("word", "CopyNet, words", "in words, the paper's sizes"),
        ("lessons", BEST, "in characters, after lessons on texts alone"),
    )
]


def run(settings: Settings) -> Results:
    """Trains and scores what has not been yet; writes table3.html and prints the same outputs, Figure 4."""
    results = Results("table3", settings)
    folder = settings.data_dir / "lcsts"
    raw = {part: folder / "raw" / f"{part}.txt" for part in ("PART_I", "PART_II", "PART_III")}
    if raw["PART_I"].is_file():
        part_one(results, raw, settings)
    if folder.joinpath("train.jsonl").is_file() or not raw["PART_I"].is_file():
        clge(results, folder, settings)
    runs = results.read()["runs"]
    settings.results_dir.joinpath("table3.html").write_text(figure4(runs), encoding="utf-8")
    print(terminal(runs, "ansi" if sys.stdout.isatty() else "plain"))
    return results


def part_one(results: Results, raw: Mapping[str, Path], settings: Settings) -> None:
    """The paper's protocol: 2.4 million pairs; PART II, where it is held, says when to stop; the 725 of PART III."""
    held_out = load_lcsts(test=raw["PART_III"])["test"]
    test = settings.first([{key: row[key] for key in ("text", "summary")} for row in held_out])
    files: dict[str, Any] = {"train_file": str(raw["PART_I"])}
    if raw["PART_II"].is_file():
        files["validation_file"] = str(raw["PART_II"])
    if settings.max_samples is not None:
        files |= {"max_train_samples": settings.max_samples, "max_eval_samples": settings.max_samples}
    _note(results, {PART_I: test})
    for model, fields in MODELS.items():
        if settings.wants(model):
            folder = settings.folder(PART_I, model)
            how = trained(folder, files | PART_I_TRAINING | fields, settings)
            results.add(PART_I, model, evaluated(folder, "test", test, settings)[0], how)


def clge(results: Results, folder: Path, settings: Settings) -> None:
    """CLGE's protocol: its training pairs, two tests."""
    tests = {name: settings.first(read_rows(folder / f"{name}.jsonl")) for name in TESTS}
    validation = read_rows(folder / "validation.jsonl")
    marked_train = [row for row in read_rows(folder / "train.jsonl") if row["clge_split"] == "train"]
    # CLGE itself tests on nine texts that it trains on.
    held_out = {row["text"] for rows in (validation, *tests.values()) for row in rows}
    train = settings.first([row for row in marked_train if row["text"] not in held_out])
    _note(results, tests, training_pairs=len(train), left_out=len(marked_train) - len(train))
    files = write_pairs(settings.folder("data"), {"train": train, "validation": settings.first(validation)})
    plans = {model: files | CLGE_TRAINING | fields for model, fields in MODELS.items()}
    if settings.wants(BEST):
        plans[BEST] = files | BEST_TRAINING | {"model_name_or_path": str(_after_lessons(train, settings))}
    for model, arguments in plans.items():
        if settings.wants(model):
            path = settings.folder(model)
            how = trained(path, arguments, settings, DECODING)
            for name, rows in tests.items():
                scores, outputs = evaluated(path, name, rows, settings)
                results.add(name, model, scores, how, _shown(path, outputs, settings) if name == "clge_test" else ())


def _shown(folder: Path, outputs: list[Row], settings: Settings) -> list[Row]:
    """Ten outputs, and where the paper's printed inputs are at hand those for them, as Figure 4 wants them."""
    file = settings.data_dir / "paper_examples.jsonl"
    printed = [row for row in read_rows(file) if row["task"] == "summarization"] if file.is_file() else []
    return with_unseen(folder, outputs[:10] + paper_inputs(folder, printed))


def _after_lessons(train: list[Row], settings: Settings) -> Path:
    """The model that has had its lessons, on the texts of the training pairs."""
    folder = settings.folder("lessons")
    pairs = lessons([row["text"] for row in train], LESSONS_OF_EACH, settings.seed)
    trained(folder, write_pairs(folder / "data", {"train": pairs}) | LESSONS_TRAINING, settings)
    return folder


def _note(results: Results, tests: Mapping[str, list[Row]], **facts: Any) -> None:
    first = next(iter(tests.values()))
    known = results.read()
    results.note(
        signature=metric_signature([row["summary"] for row in first])["rouge1"],
        examples=known.get("examples", {}) | {name: len(rows) for name, rows in tests.items()},
        baselines=known.get("baselines", {}) | {name: baselines(rows) for name, rows in tests.items()},
        **facts,
    )


def baselines(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """The first characters of the text, as many as headlines have or some more."""
    references, texts = [row["summary"] for row in rows], [row["text"] for row in rows]
    return {
        f"the text's first {number} characters": rounded(score_outputs([t[:number] for t in texts], references, texts))
        for number in (22, 30)
    }


# ---- the page


def page(results: dict[str, Any]) -> str:
    """What table3.md says."""
    lines = [
        "# Table 3: LCSTS, headlines for short news",
        "",
        "Chinese news of about 110 characters, headlines of 18 (Hu et al. 2015). ROUGE is F1 on characters without "
        f"spaces: `{results['signature']}`. Beam {BEAMS}; the paper's sizes (embeddings 350, hidden 500, vocabulary "
        "3,000 characters or 10,000 words of jieba) unless said.",
    ]
    names = ["R-1", "R-2", "R-L", "unseen recalled", "copied", "seeds", "minutes"]
    if PART_I in results["examples"]:
        lines += ["", f"## The paper's protocol: PART I, {results['examples'][PART_I]:,} test pairs of PART III", ""]
        lines += [table(["", *names], [*_paper_rows(), *_rows(results, PART_I)])]
    if "training_pairs" in results:
        lines += [
            "",
            f"## CLGE's protocol: {results['training_pairs']:,} training pairs of PART II",
            "",
            "The 8,666 pairs of CLUEbenchmark's CLGE, without those whose texts are also tested on or validated with "
            f"({results['left_out']}). The paper's own figures, from 2.4 million pairs, stand for comparison only.",
        ]
        for name, title in TESTS.items():
            published = [["CLGE's LSTM, as published", *CLGE_LSTM, None, None, "", ""]] if name == "clge_test" else []
            far = [] if name == "clge_test" else _paper_rows()
            lines += ["", f"### {title}: {results['examples'][name]:,} pairs", ""]
            lines += [table(["", *names], [*published, *far, *_rows(results, name)])]
        lines += ["", f"“{BEST}”: {LESSONS}"]
    lines += [
        "",
        "“Unseen recalled”: of the reference's words that the vocabulary lacks and the text has, the share that the "
        "output has too. “Copied”: the share of the output's words that the text has. Figure 4, outputs with copied "
        "words coloured: [table3.html](table3.html).",
        "",
        how_made(results),
    ]
    return "\n".join(lines) + "\n"


def _paper_rows() -> list[list[Any]]:
    return [
        [f"{model}, in the paper (2.4 million pairs)", *cells, None, None, "", ""] for model, cells in PAPER.items()
    ]


def _rows(results: dict[str, Any], data: str) -> list[list[Any]]:
    trivial = [
        [name, *(scores[key] for key in SCORES[:3]), None, scores["copied_fraction"], "", ""]
        for name, scores in results["baselines"][data].items()
    ]
    return [*trivial, *model_rows(results, data, [*MODELS, BEST], SCORES)]
