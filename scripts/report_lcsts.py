"""Scores a model on LCSTS, beside the first characters of the text, and writes the page of results.

    python scripts/report_lcsts.py --model runs/lcsts_char --output_file results/lcsts_char.md

Reads clge_test.jsonl and test.jsonl (the 725 pairs of PART III) from --data_dir, and from the model's folder what
`copynet-hf train` left there: minutes and losses. Beside the page it writes the numbers as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch
import transformers
from datasets import Dataset

from copynet_hf.inference import evaluate_pairs, load_model
from copynet_hf.metrics import metric_signature, score_outputs
from copynet_hf.visualization import highlight_copies

SETS = {"clge_test": "CLGE's test pairs", "test": "PART III, human_label ≥ 3"}
ROUGE = ("rouge1", "rouge2", "rougeL")
PUBLISHED = {("clge_test", "CLGE's LSTM, as published"): (13.46, 4.12, 11.20)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path(os.environ.get("COPYNET_DATA", "../shared/data")) / "lcsts"
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--output_file", type=Path, required=True, help="the page, Markdown")
    parser.add_argument("--data_dir", type=Path, default=default, help="folder of the JSONL files (%(default)s)")
    parser.add_argument("--command", default="", help="what trained the model, to be shown")
    parser.add_argument("--num_beams", type=int, default=10)
    parser.add_argument("--examples", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    if not args.data_dir.is_dir():
        parser.error(f"{args.data_dir} is not there: name the folder with --data_dir or COPYNET_DATA.")
    torch.set_num_threads(args.threads)

    model, tokenizer = load_model(str(args.model))
    numbers: dict[str, Any] = {"model": describe_run(args.model, model), "num_beams": args.num_beams, "scores": {}}
    examples: list[dict[str, Any]] = []
    for name in SETS:
        with (args.data_dir / f"{name}.jsonl").open(encoding="utf-8") as lines:
            rows = [{key: row[key] for key in ("text", "summary")} for row in map(json.loads, lines)]
        scores, predictions = evaluate_pairs(
            model, tokenizer, Dataset.from_list(rows), num_beams=args.num_beams, batch_size=32, progress=True
        )
        texts, references = [row["text"] for row in rows], [row["summary"] for row in rows]
        numbers["scores"][name] = {
            f"CopyNet, beam {args.num_beams}": scores,
            **{f"first {n} characters": score_outputs([t[:n] for t in texts], references, texts) for n in (22, 30)},
        }
        numbers["signature"] = metric_signature(references)
        examples = examples or predictions[: args.examples]  # the first ones, as they come
    args.output_file.parent.mkdir(parents=True, exist_ok=True)
    args.output_file.with_suffix(".json").write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    args.output_file.write_text(page(numbers, examples, args.command), encoding="utf-8")
    print(f"written to {args.output_file}")


def describe_run(folder: Path, model: Any) -> dict[str, Any]:
    """Sizes, and how the training went, from what the Trainer wrote."""
    state = json.loads((folder / "trainer_state.json").read_text())
    results = json.loads((folder / "train_results.json").read_text())
    evaluations = [entry for entry in state["log_history"] if "eval_loss" in entry]
    best = min(evaluations, key=lambda entry: entry["eval_loss"])
    return {
        "parameters": model.num_parameters(),
        "config": model.config.to_diff_dict(),
        "minutes": round(results["train_runtime"] / 60, 1),
        "epochs": state["num_train_epochs"],
        "validation_loss": {f"{entry['epoch']:g}": round(entry["eval_loss"], 4) for entry in evaluations},
        "best_epoch": best["epoch"],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def page(numbers: dict[str, Any], examples: list[dict[str, Any]], command: str) -> str:
    run = numbers["model"]
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    losses = ", ".join(f"{epoch}: {loss}" for epoch, loss in run["validation_loss"].items())
    lines = [
        "# LCSTS in characters, CLGE's pairs",
        "",
        f"CopyNet at the paper's sizes for characters (vocabulary {run['config']['vocab_size']:,}, embeddings "
        f"{run['config']['embedding_size']}, hidden {run['config']['hidden_size']}; {run['parameters']:,} "
        "parameters), trained on the pairs that CLGE trains on, without the nine whose texts it also tests on.",
        "",
        f"{run['minutes']} minutes, {versions}, {run['machine']}. Validation loss by epoch: {losses}. Epoch "
        f"{run['best_epoch']:g} was kept.",
        "",
        *(["```bash", *command.strip().splitlines(), "```", ""] if command else []),
        f"ROUGE is F1 on characters ({numbers['signature']['rouge1']}).",
    ]
    for name, title in SETS.items():
        scores = numbers["scores"][name]
        count = next(iter(scores.values()))["examples"]
        lines += ["", f"## {title}: {count:,} pairs", "", "| | R-1 | R-2 | R-L | copied | unseen words recalled |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [score_row(label, values) for label, values in scores.items()]
        for (of, label), values in PUBLISHED.items():
            if of == name:
                lines += [f"| {label} | {' | '.join(f'{value:.2f}' for value in values)} | | |"]
    lines += [
        "",
        "“copied” is the share of the output's characters that stand in the text; “unseen words recalled” the share "
        "of the reference's characters outside the vocabulary, but in the text, that the output has.",
        "",
        f"## The first {len(examples)} of {SETS['clge_test']}",
        "",
        "In [brackets]: characters that the copy mode gave more than half of the probability.",
    ]
    for example in examples:
        marked = highlight_copies(example["words"], example["copied"], "plain", separator="")
        lines += ["", f"- **text** {example['text']}", f"  - reference: {example['reference']}"]
        lines += [f"  - CopyNet: {marked}"]
    return "\n".join(lines) + "\n"


def score_row(label: str, scores: dict[str, Any]) -> str:
    recalled = scores.get("oov_recall")
    cells = [*(f"{scores[name]:.2f}" for name in ROUGE), f"{scores['copied_fraction']:.1f}"]
    return f"| {label} | {' | '.join(cells)} | {'' if recalled is None else f'{recalled:.1f}'} |"


if __name__ == "__main__":
    main()
