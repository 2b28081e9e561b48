"""What a user does with scripts/publish.py, for a process of its own: the client reads where the Hub is when it is
imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from elsewhere import answers
from huggingface_hub import ModelCard, snapshot_download
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
REPO = "me/commands"


def publish_repeatedly(runs: str, results: str, texts: Sequence[str]) -> dict[str, Any]:
    """Publishes the model of a runs folder and loads it; publishes it with other weights and without graphs, again,
    elsewhere, and where that is refused.

    Returns the outputs of the commands, and what the first commit's models answer.
    """
    from experiments.publishing import contents

    contents.EXPORTS = {"onnx": contents.EXPORTS["onnx"]}  # each export takes seconds; a slow test writes all
    arguments = ["nl2bash", "--output_dir", runs, "--results_dir", results]

    def publish(*more: str) -> str:
        return run_script(*arguments, *(more if "--repo" in more else ("--repo", REPO, *more)))

    said = {"published": publish()}
    loaded = {**answers(REPO, texts), "onnx": run_onnx(texts)}
    ModelCard.load(REPO).validate()
    change_model(Path(runs, "seed_0", "CopyNet"))
    said["dry run"] = publish("--dry_run", "--repo", "me/nothing")
    said["changed"] = publish()
    said["unchanged"] = publish()
    said["public"] = publish("--private")
    said["branch"] = publish("--revision", "next", "--repo", "me/private", "--private")
    said["somebody else's"] = publish("--repo", "you/commands")
    os.environ["HF_TOKEN"] = "hf_of_somebody"
    said["wrong token"] = publish()
    del os.environ["HF_TOKEN"]
    said["no token"] = publish()
    return {"said": said, "loaded": loaded}


def run_script(*arguments: str) -> str:
    """What the script prints."""
    import publish

    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        publish.main(arguments)
    return said.getvalue()


def run_onnx(texts: Sequence[str]) -> list[list[int]]:
    """The ids that the published graphs generate."""
    from copynet_hf import OnnxCopyNet

    folder = Path(snapshot_download(REPO, allow_patterns="onnx/*"), "onnx")
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="np")
    return OnnxCopyNet.from_pretrained(folder).generate(**inputs).tolist()


def change_model(folder: Path) -> None:
    """Gives the model other weights, and a search that the loop over ONNX graphs cannot do."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    for parameter in model.parameters():
        parameter.data *= 2
    model.save_pretrained(folder)
    generation_config = GenerationConfig.from_pretrained(folder)
    generation_config.no_repeat_ngram_size = 3
    generation_config.save_pretrained(folder)
