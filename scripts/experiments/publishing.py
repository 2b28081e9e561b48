"""A trained model of an experiment on the Hub: its files, and their upload as one commit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

from copynet_hf.inference.onnx_export import check_export, export_onnx
from copynet_hf.saved.cards import CARD, write_eval_results
from copynet_hf.saved.loading import load_copynet, load_tokenizer

from .reports.model_cards import CARDS, Card
from .running.settings import format_command

# The folders of ONNX graphs, and the precision of each.
EXPORTS: Mapping[str, str | None] = {"onnx": None, "onnx-int8": "int8"}
# Weights and graphs of an earlier model, which are removed.
REPLACED = re.compile(r"onnx(-\w+)?/.+|model[^/]*\.safetensors(\.index\.json)?")


def find_trained_model(
    experiment: str, model: str, seed: int, output_dir: Path, results_dir: Path
) -> tuple[Card, Path]:
    """The card of a model that `scripts/reproduce.py` has trained and scored, and the model's folder.

    Args:
        output_dir: folder of the experiment's models, which may have been moved since the model was scored.
        results_dir: folder of the results file.

    Raises:
        ValueError: the models have no cards, or the model is not trained, or is another one than the results are of.
    """
    if experiment not in CARDS:
        raise ValueError(f"the models of {experiment} were trained for a comparison and have no cards")
    file, command = results_dir / f"{experiment}.json", format_command(experiment, model, seed)
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"runs": []}
    card = Card(experiment, model, seed, results)
    if not card.runs:
        raise ValueError(f"{file} has no scores of {model!r} with seed {seed}: run {command}")
    run = next(iter(card.runs.values()))
    parts = Path(run["folder"]).parts
    folder = output_dir.joinpath(*parts[parts.index(f"seed_{seed}") :])
    finished = folder / "training.json"
    if not finished.exists():
        raise ValueError(f"{folder} holds no trained model: run {command}, or name its --output_dir")
    if json.loads(finished.read_text(encoding="utf-8"))["fingerprint"] != run["fingerprint"]:
        raise ValueError(f"{folder} holds another model than the one that {file} has the scores of: run {command}")
    return card, folder


def check_consent(experiment: str, is_accepted: bool) -> None:
    """Raises ValueError if the licence of the training data restricts the model, unless the user accepts that."""
    card = CARDS.get(experiment, {})
    if (restriction := card.get("restriction")) and not is_accepted:
        raise ValueError(
            f"{restriction}: pass --accept_data_licence if you may publish a model trained on them; its card will "
            f"have license {card['licence']}, license_name {card['licence_name']}, and repeat this restriction"
        )


def write_contents(card: Card, trained: Path, repo: str, folder: Path) -> str | None:
    """Writes what a repository holds: weights, configs, tokenizer, the model's code, card, scores and ONNX graphs.

    Model and tokenizer are loaded and saved again, so that nothing else of their folder is published.

    Args:
        trained: the model's folder.
        repo: the name of the repository.
        folder: an empty folder.

    Returns:
        why there are no ONNX graphs, None if there are.
    """
    model = load_copynet(str(trained)).eval()
    tokenizer = None if model.config.num_features else load_tokenizer(str(trained))
    obstacle = None
    try:
        check_export(model)
    except ValueError as error:
        obstacle = str(error)
    exports = {} if obstacle else EXPORTS
    for name, precision in exports.items():
        export_onnx(model, folder / name, tokenizer, quantize=precision)
    card.render(repo, list(exports)).save(folder / CARD)  # before the model, which would write a card of its own
    write_eval_results(folder, card.make_leaderboard_entries())
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return obstacle


def list_files(folder: Path) -> dict[str, Path]:
    """The files of a folder and of those in it, by their paths in the repository."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return dict(sorted((path.relative_to(folder).as_posix(), path) for path in files))


def upload(files: Mapping[str, Path], repo: str, message: str, *, is_private: bool, revision: str | None) -> str:
    """Commits the files to a repository, together with the removal of the files of an earlier model.

    Args:
        files: by their paths in the repository.
        repo: user/name, created if there is none.
        is_private: whether a new repository is private.
        revision: the branch, which is created from main if there is none; None: main.

    Returns:
        the address of the commit, the last one if nothing has changed.

    Raises:
        ValueError: the repository is public and was to be private.
        OSError: the Hub refuses.
    """
    api = HfApi()
    api.create_repo(repo, private=is_private or None, exist_ok=True)
    if is_private and not api.model_info(repo).private:
        raise ValueError(f"--repo {repo} is public: leave --private out, or make it private on its settings page")
    if revision is not None:
        api.create_branch(repo, branch=revision, exist_ok=True)
    there = api.list_repo_files(repo, revision=revision)
    stale = [path for path in there if path not in files and REPLACED.fullmatch(path)]
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        *(CommitOperationAdd(path, file) for path, file in files.items()),
        *(CommitOperationDelete(path) for path in stale),
    ]
    # `upload_folder` may take several commits, between which others would load half of a model
    return api.create_commit(repo, operations, commit_message=message, revision=revision).commit_url
