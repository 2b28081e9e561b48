"""Table 3 and Figure 4 of Gu et al. 2016: headlines for Chinese news, LCSTS (Hu et al. 2015).

The paper trains on the 2.4 million pairs of PART I, which the authors of LCSTS give out on request. With
lcsts/raw/PART_I.txt and PART_III.txt in the data folder the experiment follows the paper's protocol, with CLGE's files
(lcsts/train.jsonl, ...) that of CLUEbenchmark's CLGE.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, set_seed

from copynet_hf import load_lcsts
from copynet_hf.evaluation.metrics import metric_signature, score_outputs

from ..data.clge import read_clge
from ..data.rows import Row, read_rows, write_pairs, write_text
from ..reports.figure4 import mark_unseen_words, render_html, render_text
from ..reports.markdown import assemble_page, get_data_facts, score_table, table
from ..reports.model_cards import Card
from ..running.results_file import ResultsFile
from ..running.settings import Settings
from ..running.trained_models import RNNSEARCH, evaluate_once, round_scores, train_once
from ..scores.minimum_bayes_risk import choose_consensus

UNITS = {"characters": "lcsts_char", "words": "lcsts_word"}
MODELS: dict[str, dict[str, Any]] = {
    f"{name}, {unit}": {"preset": preset, **fields}
    for unit, preset in UNITS.items()
    for name, fields in {"RNN context": RNNSEARCH, "CopyNet": {}}.items()
}
SAMPLED = "CopyNet, characters"
CONSENSUS = f"{SAMPLED}, of 32 samples the most alike"
PAPER = {
    "RNN, characters": (21.5, 8.9, 18.6),
    "RNN, words": (17.7, 8.5, 15.8),
    "RNN context, characters": (29.9, 17.4, 27.2),
    "RNN context, words": (26.8, 16.1, 24.1),
    "CopyNet, characters": (34.4, 21.6, 31.3),
    "CopyNet, words": (35.0, 22.3, 32.0),
}
CLGE_LSTM = (13.46, 4.12, 11.20)
CLGE_PAIRS = 8_666
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
SHARED: dict[str, Any] = {"max_source_length": 140, "max_target_length": 40, "num_beams": BEAMS, "min_frequency": 1}
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
# R-L of the sampled model on the first 300 validation pairs.
TRIED = {
    "beam 10": (23.2, 13.4, 20.6),
    "beam 10, at least 14 characters": (23.5, 13.6, 20.9),
    "of 10 beams the most alike": (24.2, 14.3, 21.5),
    "of 10 beams of at least 14 characters the most alike": (24.4, 14.4, 21.7),
    "of 32 samples at temperature 0.5 the most alike": (27.0, 15.1, 23.6),
    "of 32 samples at temperature 0.7 the most alike": (28.2, 15.7, 24.6),
}

CARD = Card(
    file="lcsts",
    title="Headlines for short Chinese news",
    summary="Writes headlines for short Chinese news.",
    language="zh",
    datasets=("lcsts",),
    pipeline_tag="summarization",
    data="LCSTS (Hu et al. 2015), for research only, to be asked for from its authors: of its PART II those training "
    "pairs of CLUEbenchmark's CLGE whose texts are not tested on, or the whole of PART I, as the command says.",
    limits="A few thousand pairs teach it mostly to choose and join clauses of the text; it may join what does not "
    "belong together, and get wrong who did what. Not for use without a reader.",
    tests=TESTS | {PART_I: "PART III, human label 3 or more, trained on PART I"},
    metrics={name: ("rouge", SCORES[name]) for name in ("rouge1", "rouge2", "rougeL")},
    examples=PAPER_INPUTS,
)
MODEL_NAMES = tuple(MODELS)


def run(settings: Settings) -> ResultsFile:
    """Trains and scores the models of the table; writes Figure 4 and prints it.

    Raises:
        FileNotFoundError: both PART I and CLGE's files are missing.
    """
    results = ResultsFile("table3", settings)
    folder = settings.data_dir / "lcsts"
    raw = {part: folder / "raw" / f"{part}.txt" for part in ("PART_I", "PART_II", "PART_III")}
    outputs = run_paper_protocol(results, raw, settings) if raw["PART_I"].is_file() else []
    if folder.joinpath("train.jsonl").is_file() or not raw["PART_I"].is_file():
        outputs += run_clge_protocol(results, folder, settings)
    # LCSTS may not be redistributed: outputs for its texts stay in output_dir.
    write_text(settings.output_dir / "figure4.html", render_html(outputs))
    write_text(settings.results_dir / "table3.html", render_html(results.read()["runs"]))
    print(render_text(outputs, "ansi" if sys.stdout.isatty() else "plain"))
    return results


def run_paper_protocol(results: ResultsFile, raw: Mapping[str, Path], settings: Settings) -> list[Row]:
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
    return _train_and_score(results, plans, tests, settings)


def run_clge_protocol(results: ResultsFile, folder: Path, settings: Settings) -> list[Row]:
    """Trains on CLGE's training pairs; tests on CLGE's test pairs and on PART III."""
    training_pairs, tests = read_clge(folder, TESTS, settings.max_samples)
    results.add_data_facts(**_describe_data(tests), training_pairs=len(training_pairs["train"]))
    files = write_pairs(settings.seed_folder("data"), training_pairs)
    plans = {model: files | CLGE_TRAINING | fields for model, fields in MODELS.items()}
    return _train_and_score(results, plans, tests, settings)


def _train_and_score(
    results: ResultsFile, plans: Mapping[str, dict[str, Any]], tests: dict[str, list[Row]], settings: Settings
) -> list[Row]:
    """Trains and scores the models; returns ten outputs of each for the first test set, for `render_html`."""
    file = settings.data_dir / "paper_examples.jsonl"
    printed = [row for row in read_rows(file) if row["task"] == "summarization"] if file.is_file() else []
    paper_inputs: list[Row] = [{"text": row["source"], "summary": row["golden"]} for row in printed]
    inputs = tests | ({PAPER_INPUTS: paper_inputs} if printed else {})
    figure_runs: list[Row] = []
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
            if data == next(iter(tests)):
                marked = mark_unseen_words(folder, outputs[:10])
                figure_runs.append({"model": model, "data": data, "outputs": marked})
    return figure_runs


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


# ---- the page


def render_page(results: dict[str, Any]) -> str:
    """The text of results/table3.md."""
    facts = get_data_facts(results)
    lines = [
        "# Table 3: LCSTS, headlines for short news",
        "",
        "Chinese news of about 110 characters, headlines of 18 (Hu et al. 2015). ROUGE is F1 on characters without "
        f"spaces: `{facts['signature']}`. Beam {BEAMS}, no three words twice in an output; the paper's sizes "
        "(embeddings 350, hidden 500, vocabulary 3,000 characters or 10,000 words of jieba) unless said.",
    ]
    paper = [[f"{name}, in the paper (2.4 million pairs)", *cells] for name, cells in PAPER.items()]
    if PART_I in facts["examples"]:
        lines += ["", f"## The paper's protocol: PART I, {facts['examples'][PART_I]:,} test pairs of PART III", ""]
        lines += [_score_table(results, PART_I, paper)]
    if "training_pairs" in facts:
        lines += [
            "",
            f"## CLGE's protocol: {facts['training_pairs']:,} training pairs of PART II",
            "",
            f"CLUEbenchmark's CLGE trains on {CLGE_PAIRS:,} pairs; these are those at hand whose texts are not "
            "tested on. Here the embeddings are tied and dropout is 0.3. The paper's own figures, of 2.4 million "
            "pairs, stand for comparison only.",
        ]
        for name, title in TESTS.items():
            published = [["CLGE's LSTM, as published", *CLGE_LSTM]] if name == "clge_test" else paper
            lines += ["", f"### {title}: {facts['examples'][name]:,} pairs", ""]
            lines += [_score_table(results, name, published)]
        lines += [
            "",
            f"“{CONSENSUS}”: the same model, asked {SAMPLING['num_return_sequences']} times at temperature "
            f"{SAMPLING['temperature']}; the answer that has most characters, and pairs of them, in common with the "
            "others (minimum Bayes risk). How it was chosen, on the first 300 validation pairs:",
            "",
            table(["", "R-1", "R-2", "R-L"], [[name, *scores] for name, scores in TRIED.items()]),
        ]
    lines += [
        "",
        "“Unseen recalled”: of the reference's words that the vocabulary lacks and the text has, the share that the "
        "output has too. “Copied”: the share of the output's words that the text has.",
    ]
    if any(run["data"] == PAPER_INPUTS for run in results["runs"]):
        lines += [
            "",
            "Figure 4, for the inputs that the paper prints, copied words coloured: [table3.html](table3.html).",
        ]
    return assemble_page(results, lines)


def _score_table(results: dict[str, Any], data: str, published: list[list[Any]]) -> str:
    return score_table(results, data, [*MODELS, CONSENSUS], SCORES, published, published_first=True)
