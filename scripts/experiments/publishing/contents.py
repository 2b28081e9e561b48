"""The files of a published model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from copynet_hf.inference.onnx_export import check_export, export_onnx
from copynet_hf.saved.cards import CARD, write_eval_results
from copynet_hf.saved.loading import load_copynet, load_tokenizer

from ..reports.model_cards import make_leaderboard_entries, render_published_card
from .trained_model import TrainedModel

# The folders of ONNX graphs, and what writes each from a model, a folder and a tokenizer.
EXPORTS: Mapping[str, Callable[..., None]] = {
    "onnx": export_onnx,
    "onnx-int8": partial(export_onnx, quantize="int8"),
}


def write_contents(trained: TrainedModel, repo: str, folder: Path) -> str | None:
    """Writes what a repository holds: weights, configs, tokenizer, the model's code, card, scores and ONNX graphs.

    Model and tokenizer are loaded and saved again, so that nothing else of their folder is published.

    Args:
        repo: the name of the repository.
        folder: an empty folder.

    Returns:
        why there are no ONNX graphs, None if there are.

    Raises:
        ImportError: a package that writes ONNX graphs is missing.
    """
    model = load_copynet(str(trained.folder)).eval()
    tokenizer = None if model.config.num_features else load_tokenizer(str(trained.folder))
    obstacle = _find_obstacle(model)
    exports = [] if obstacle else list(EXPORTS)
    for export in exports:
        EXPORTS[export](model, folder / export, tokenizer)
    of_results = (trained.runs, trained.results)
    card = render_published_card(trained.experiment, trained.card, trained.name, *of_results, repo, exports)
    card.save(folder / CARD)  # before the model, whose own card is written only where there is none
    write_eval_results(folder, make_leaderboard_entries(trained.card, trained.runs))
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return obstacle


def _find_obstacle(model: Any) -> str | None:
    try:
        check_export(model)
    except ValueError as error:
        return str(error)
    return None
