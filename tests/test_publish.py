"""A trained model of an experiment: what scripts/publish.py uploads, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import publish
import pytest
import reproduce
import yaml
from experiments import publishing
from helpers import POINTER, save_tiny_model, tiny_model
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, ModelCard

MODELS = {"nl2bash": "CopyNet", "rewriting": "CopyNet", "convex_hull": "Ptr-Net, 5 points", "inflection": "hun_small"}


def make_runs(work: Path, name: str) -> tuple[Path, list[str]]:
    """The folder of a trained model, scored as in results/, and the arguments that name it."""
    stored = json.loads((reproduce.ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    folder = work / "runs" / name / "seed_0" / "model"
    names = {"data" if name == "inflection" else "model": MODELS[name], "seed": 0}
    runs = [run for run in stored["runs"] if names.items() <= run.items()]
    fingerprint = runs[0]["fingerprint"]
    runs = [run | {"folder": str(folder)} for run in runs if run["fingerprint"] == fingerprint]
    (work / f"{name}.json").write_text(json.dumps(stored | {"runs": runs}), encoding="utf-8")
    save_tiny_model(folder)
    (folder / "training.json").write_text(json.dumps({"fingerprint": fingerprint}), encoding="utf-8")
    for left in ("training_args.bin", "begun.json", "checkpoint-1/optimizer.pt", "checkpoint-1/model.safetensors"):
        (folder / left).parent.mkdir(exist_ok=True)
        (folder / left).write_text(str(work), encoding="utf-8")
    folders = ["--output_dir", str(work / "runs" / name), "--results_dir", str(work)]
    return folder, [name, "--repo", "me/x", "--model", MODELS[name], *folders]


class Hub:
    """Keeps what `HfApi` is asked to commit, in a folder."""

    def __init__(self, folder: Path, there: list[str]) -> None:
        self.folder, self.there, self.calls = folder, there, []

    def create_repo(self, repo: str, **options: Any) -> None:
        self.calls.append(("create_repo", repo, options["private"]))

    def create_branch(self, repo: str, branch: str, exist_ok: bool) -> None:
        self.calls.append(("create_branch", repo, branch))

    def model_info(self, repo: str) -> Any:
        return SimpleNamespace(private=False)

    def list_repo_files(self, repo: str, revision: str | None) -> list[str]:
        return self.there

    def create_commit(self, repo: str, operations: list[Any], commit_message: str, revision: str | None) -> Any:
        self.calls.append(("create_commit", commit_message, revision))
        self.deleted = [each.path_in_repo for each in operations if isinstance(each, CommitOperationDelete)]
        for each in operations:
            if isinstance(each, CommitOperationAdd):
                target = self.folder / each.path_in_repo
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(Path(each.path_or_fileobj).read_bytes())
        return SimpleNamespace(commit_url="https://hub/me/x/commit/1")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "uploaded", ["README.md", "onnx-int8/encoder.onnx", "model-00001.safetensors", "notes.txt"])
    monkeypatch.setattr(publishing, "HfApi", lambda: hub)
    monkeypatch.setattr(publishing, "EXPORTS", {})  # each takes 20 seconds: a slow test writes them
    return hub


def test_a_model_is_uploaded_as_one_commit_and_nothing_else_of_its_folder(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_graph(model: Any, target: Path, tokenizer: Any, quantize: str | None) -> None:
        target.mkdir()
        (target / "encoder.onnx").write_text("a graph")

    monkeypatch.setattr(publishing, "EXPORTS", {"onnx": None})
    monkeypatch.setattr(publishing, "export_onnx", write_graph)
    folder, arguments = make_runs(tmp_path, "nl2bash")
    model = tiny_model(seed=6)
    model.generation_config.update(num_beams=2, max_new_tokens=6, forbid_unk=True)
    model.save_pretrained(folder)
    assert publish.main([*arguments, "--revision", "next"]) == 0
    assert capsys.readouterr().out == "published: https://hub/me/x/commit/1\n"
    assert hub.calls == [
        ("create_repo", "me/x", None),
        ("create_branch", "me/x", "next"),
        ("create_commit", "CopyNet of nl2bash, seed 0", "next"),
    ]
    assert hub.deleted == ["onnx-int8/encoder.onnx", "model-00001.safetensors"]
    files = {path.relative_to(hub.folder).as_posix(): path for path in hub.folder.rglob("*") if path.is_file()}
    assert {"model.safetensors", "vocab.json", "modeling_copynet.py", "onnx/encoder.onnx"} <= files.keys()
    assert not {"training_args.bin", "training.json", "begun.json"} & files.keys()
    assert not any(path.startswith("checkpoint") for path in files)
    assert [name for name, path in files.items() if str(tmp_path).encode() in path.read_bytes()] == []
    for path in (
        *folder.glob("*.py"),
        *(folder / name for name in ("config.json", "vocab.json", "model.safetensors")),
    ):
        assert files[path.name].read_bytes() == path.read_bytes(), path.name

    card = ModelCard.load(hub.folder / "README.md")
    assert card.data.license == "mit"
    (run,) = json.loads((tmp_path / "nl2bash.json").read_text(encoding="utf-8"))["runs"]
    assert [each.metric_value for each in card.data.eval_results] == [run["scores"]["top-1"]]
    (entry,) = yaml.safe_load(files[".eval_results/copynet-hf.yaml"].read_text(encoding="utf-8"))
    assert entry["dataset"] == {"id": "nl2bash", "task_id": "descriptions"}
    assert entry["value"] == run["scores"]["top-1"]
    for text in ('from_pretrained("me/x")', "python scripts/reproduce.py nl2bash --models CopyNet", "OnnxCopyNet"):
        assert text in card.text
    assert "The weights are not on the Hub" not in card.text


def test_a_search_that_graphs_cannot_do_is_published_without_them(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, arguments = make_runs(tmp_path, "nl2bash")
    model = tiny_model()
    model.generation_config.no_repeat_ngram_size = 3
    model.save_pretrained(folder)
    assert publish.main([*arguments, "--dry_run"]) == 0
    output = capsys.readouterr().out
    assert "without ONNX graphs: the generation config has no_repeat_ngram_size=3" in output
    assert "files for me/x; nothing was uploaded\n" in output
    assert hub.calls == []


@pytest.mark.slow
def test_graphs_of_both_precisions_are_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, arguments = make_runs(tmp_path, "nl2bash")
    tiny_model(seed=6, embedding_size=64, hidden_size=64).save_pretrained(folder)
    assert publish.main([*arguments, "--dry_run"]) == 0
    found = re.findall(r"^ +([\d,]+)  (\S+)$", capsys.readouterr().out, re.MULTILINE)
    sizes = {path: int(size.replace(",", "")) for size, path in found}
    assert 0 < sizes["onnx-int8/decoder.onnx"] < sizes["onnx/decoder.onnx"]


def test_data_that_restrict_their_use_need_consent_and_the_card_says_so(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    _, arguments = make_runs(tmp_path, "rewriting")
    assert publish.main(arguments) == 2
    message = "come without a licence, so that they may be used for evaluation only: pass --accept_data_licence"
    assert message in capsys.readouterr().err
    assert publish.main([*arguments, "--accept_data_licence"]) == 0
    card = ModelCard.load(hub.folder / "README.md")
    assert (card.data.license, card.data.license_name) == ("other", "no-licence-stated")
    assert "Before you use this model: the dialogues of Su et al. 2019 come without a licence" in card.text


def test_a_pointer_network_is_published_without_a_tokenizer(tmp_path: Path, hub: Hub) -> None:
    folder, arguments = make_runs(tmp_path, "convex_hull")
    tiny_model(**POINTER, num_features=2).save_pretrained(folder)
    assert publish.main(arguments) == 0
    assert not (hub.folder / "vocab.json").exists()
    assert "points = [[" in (hub.folder / "README.md").read_text(encoding="utf-8")


def test_a_model_of_inflection_has_the_language_and_licence_of_its_set(tmp_path: Path, hub: Hub) -> None:
    folder, arguments = make_runs(tmp_path, "inflection")
    save_tiny_model(folder, feature_vocab_size=6)
    assert publish.main(arguments) == 0
    card = ModelCard.load(hub.folder / "README.md")
    assert (card.data.license, card.data.language) == ("cc", "hun")
    assert "python scripts/reproduce.py inflection --models hun_small\n" in card.text
    assert "features=features" in card.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nl2bash --repo x", "--repo is 'x': use user/name"),
        ("mechanisms --repo me/x", "the models of mechanisms were trained for a comparison"),
        ("nl2bash --repo me/x --seed 7", "no scores of 'CopyNet' with seed 7: run python scripts/reproduce.py"),
        ("nl2bash --repo me/x --output_dir none", "none/seed_0/CopyNet holds no trained model: run python scripts/"),
    ],
)
def test_what_cannot_be_published_says_why_in_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish.main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_another_model_than_the_scored_one_and_a_public_repository_are_refused(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, arguments = make_runs(tmp_path, "nl2bash")
    assert publish.main([*arguments, "--private"]) == 2
    assert "--repo me/x is public: leave --private out" in capsys.readouterr().err
    (folder / "training.json").write_text('{"fingerprint": "another"}', encoding="utf-8")
    assert publish.main(arguments) == 2
    assert "holds another model than the one that" in capsys.readouterr().err
