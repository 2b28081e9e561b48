"""Table 3 and Figure 4 of Gu et al. 2016: headlines for Chinese news, LCSTS (Hu et al. 2015).

The paper trains on the 2.4 million pairs of PART I, which the authors of LCSTS give out on request. With
lcsts/raw/PART_I.txt and PART_III.txt in the data folder the experiment follows the paper's protocol, with CLGE's files
(lcsts/train.jsonl, ...) that of CLUEbenchmark's CLGE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, set_seed

from copynet_hf import load_lcsts
from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.clge import read_clge
from ..data.rows import Row, read_rows, write_pairs, write_text
from ..reports.markdown import TEMPLATES, get_data_facts, read_published, render_tried, score_table
from ..running.results_file import ResultsFile
from ..running.settings import Settings, read_training
from ..running.trained_models import RNNSEARCH, evaluate_once, round_scores, train_once
from ..scores.minimum_bayes_risk import choose_consensus

UNITS = {"characters": "lcsts_char", "words": "lcsts_word"}
MODELS: dict[str, dict[str, Any]] = {
    f"{name}, {unit}": {"preset": preset, **fields}
    for unit, preset in UNITS.items()
    for name, fields in {"RNN context": RNNSEARCH, "CopyNet": {}}.items()
}
SAMPLED = "CopyNet, characters"
CONSENSUS = f"{SAMPLED}, MBR decoding of 32 samples"
PART_I = "PART III after PART I"
PAPER_INPUTS = "the paper's inputs"
TESTS = {"clge_test": "CLGE's test pairs", "test": "PART III, human label 3 or more"}
SCORES = {
    "rouge1": "R-1",
    "rouge2": "R-2",
    "rougeL": "R-L",
    "oov_recall": "unseen recalled",
    "copied_fraction": "copied",
}
BEAMS = 10
SHARED: dict[str, Any] = read_training("table3") | {"num_beams": BEAMS}
# Three epochs are enough for 2.4 million pairs.
PART_I_TRAINING: dict[str, Any] = SHARED | {
    "num_train_epochs": 3,
    "per_device_train_batch_size": 64,
    "save_strategy": "steps",
    "save_steps": 5_000,
    "preprocessing_num_workers": 2,
}
CLGE_TRAINING: dict[str, Any] = SHARED | {"num_train_epochs": 8, "dropout": 0.3, "tie_word_embeddings": True}
# Chosen on the validation set.
DECODING = {"no_repeat_ngram_size": 3}
SAMPLING: dict[str, Any] = {
    "num_beams": 1,
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 0,
    "num_return_sequences": 32,
    "batch_size": 16,
}

MODEL_NAMES = tuple(MODELS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table; writes Figure 4.

    Raises:
        FileNotFoundError: both PART I and CLGE's files are missing.
    """
    results = ResultsFile("table3", settings)
    folder = settings.data_dir / "lcsts"
    raw = {part: folder / "raw" / f"{part}.txt" for part in ("PART_I", "PART_II", "PART_III")}
    if raw["PART_I"].is_file():
        run_paper_protocol(results, raw, settings)
    if folder.joinpath("train.jsonl").is_file() or not raw["PART_I"].is_file():
        run_clge_protocol(results, folder, settings)
    # LCSTS may not be redistributed: the figure has the inputs that the paper prints.
    write_text(settings.results_dir / "table3.html", render_html(results.read()["runs"]))
    return results


def run_paper_protocol(results: ResultsFile, raw: Mapping[str, Path], settings: Settings) -> None:
    """Trains on PART I, with PART II for validation if it is there; tests on the 725 pairs of PART III."""
    held_out = load_lcsts(test=raw["PART_III"])["test"]
    test = settings.limit([{key: row[key] for key in ("text", "summary")} for row in held_out])
    files: dict[str, Any] = {"train_file": str(raw["PART_I"])}
    if raw["PART_II"].is_file():
        files["validation_file"] = str(raw["PART_II"])
    if settings.max_samples is not None:
        files |= {"max_train_samples": settings.max_samples, "max_eval_samples": settings.max_samples}
    tests = {PART_I: test}
    results.add_data_facts(**_describe_data(tests))
    plans = {model: files | PART_I_TRAINING | fields for model, fields in MODELS.items()}
    _train_and_score(results, plans, tests, settings)


def run_clge_protocol(results: ResultsFile, folder: Path, settings: Settings) -> None:
    """Trains on CLGE's training pairs; tests on CLGE's test pairs and on PART III."""
    training_pairs, tests = read_clge(folder, TESTS, settings.max_samples)
    results.add_data_facts(**_describe_data(tests), training_pairs=len(training_pairs["train"]))
    files = write_pairs(settings.seed_folder("data"), training_pairs)
    plans = {model: files | CLGE_TRAINING | fields for model, fields in MODELS.items()}
    _train_and_score(results, plans, tests, settings)


def _train_and_score(
    results: ResultsFile, plans: Mapping[str, dict[str, Any]], tests: dict[str, list[Row]], settings: Settings
) -> None:
    """Trains and scores the models, on the inputs that the paper prints too."""
    file = settings.data_dir / "paper_examples.jsonl"
    printed = [row for row in read_rows(file) if row["task"] == "summarization"] if file.is_file() else []
    paper_inputs: list[Row] = [{"text": row["source"], "summary": row["golden"]} for row in printed]
    inputs = tests | ({PAPER_INPUTS: paper_inputs} if printed else {})
    for model, arguments in plans.items():
        if not settings.includes(model):
            continue
        folder = settings.seed_folder(PART_I if PART_I in tests else "", model)
        record = train_once(folder, arguments, settings, DECODING)
        for data, rows in inputs.items():
            scores, outputs = evaluate_once(folder, data, rows, settings)
            if data == PAPER_INPUTS:
                pairs = zip(outputs, printed, strict=True)
                with_paper = [{**output, "paper": row["copynet"]} for output, row in pairs]
                results.add_run(data, model, scores, record, mark_unseen_words(folder, with_paper))
                continue
            results.add_run(data, model, scores, record)
            if model == SAMPLED:
                results.add_run(data, CONSENSUS, _score_consensus(folder, data, rows, settings), record)


def mark_unseen_words(folder: Path, outputs: Sequence[Row]) -> list[Row]:
    """Adds which words of outputs and sources are out of the vocabulary of the folder's model.

    Returns:
        the outputs with `unseen` (of each word), `text_words` and `text_unseen`.
    """
    if not outputs:
        return []
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocabulary = tokenizer.get_vocab()

    def are_unseen(words: Iterable[str]) -> list[bool]:
        return [word.strip() not in vocabulary for word in words]

    rows: list[Row] = []
    for output in outputs:
        words = tokenizer.tokenize(output["text"])
        source = {"text_words": words, "text_unseen": are_unseen(words)}
        rows.append({**output, "unseen": are_unseen(output["words"]), **source})
    return rows


def render_html(runs: Iterable[Mapping[str, Any]]) -> str:
    """Figure 4 as an HTML page, with the outputs of each model's first run that stored any."""
    models: dict[str, Sequence[Row]] = {}
    for run in runs:
        if run.get("outputs"):
            models.setdefault(f"{run['model']}, {run['data']}", run["outputs"])
    return TEMPLATES.get_template("table3.html.jinja").render(models=models)


def _score_consensus(folder: Path, data: str, rows: list[Row], settings: Settings) -> dict[str, Any]:
    """The scores of MBR decoding over the model's samples."""
    set_seed(settings.seed)
    _, outputs = evaluate_once(folder, f"{data}, samples", rows, settings, **SAMPLING)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    scores = score_outputs(
        [choose_consensus(output["predictions"]) for output in outputs],
        [row["summary"] for row in rows],
        [row["text"] for row in rows],
        words=tokenizer.tokenize,
        vocabulary=tokenizer.get_vocab(),
    )
    return round_scores(scores)


def _describe_data(tests: Mapping[str, list[Row]]) -> dict[str, Any]:
    first = next(iter(tests.values()))
    return {
        "signature": metric_signature([row["summary"] for row in first])["rouge1"],
        "examples": {name: len(rows) for name, rows in tests.items()},
        "baselines": {name: score_baselines(rows) for name, rows in tests.items()},
    }


def score_baselines(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Scores the first characters of the text, about as many as headlines have."""
    references, texts = [row["summary"] for row in rows], [row["text"] for row in rows]
    return {
        f"the text's first {number} characters": round_scores(
            score_outputs([text[:number] for text in texts], references, texts)
        )
        for number in (22, 30)
    }


def collect_figures(results: dict[str, Any]) -> dict[str, Any]:
    """The figures of results/table3.md."""
    facts, quoted = get_data_facts(results), read_published("table3")
    clge = quoted["clge"]
    paper = {f"{name}, in the paper (2.4 million pairs)": scores for name, scores in quoted["paper"].items()}

    def describe_test(test: str, title: str, published: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        models = [*MODELS, CONSENSUS]
        scores = score_table(results, test, models, SCORES, published, published_first=True)
        return {"title": title, "pairs": facts["examples"][test], "scores": scores}

    return {
        "beams": BEAMS,
        "part_i": describe_test(PART_I, "", paper) if PART_I in facts["examples"] else None,
        "clge": [describe_test(test, title, clge if test == "clge_test" else paper) for test, title in TESTS.items()]
        if "training_pairs" in facts
        else None,
        "clge_pairs": quoted["clge_pairs"],
        "dropout": CLGE_TRAINING["dropout"],
        "consensus": CONSENSUS,
        "sampling": SAMPLING,
        "tried": results.get("tried"),
        "tried_scores": render_tried(results, ("R-1", "R-2", "R-L")),
        "has_figure": any(run["data"] == PAPER_INPUTS for run in results["runs"]),
    }
