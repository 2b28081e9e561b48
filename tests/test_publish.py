"""A trained model of an experiment, published on the Hub by one command and loaded from there."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import publish
import pytest
import reproduce
import yaml
from elsewhere import OPTIONAL, answers, run_elsewhere
from experiments.data.licences import LICENCES, check_consent
from experiments.publishing import contents, upload
from experiments.publishing.upload import list_files
from experiments.reports.model_cards import render_published_card
from helpers import POINTER, save_tiny_model, tiny_model, tiny_tokenizer
from hub_client import load
from hub_server import Hub, front_matter
from publish_client import REPO, publish_repeatedly

TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]
EXPORTED = {"onnx/encoder.onnx", "onnx/decoder.onnx"}


def make_runs(work: Path, name: str = "nl2bash") -> tuple[Path, Path]:
    """The runs and results folders of an experiment whose CopyNet is a tiny model, trained in an absolute folder."""
    runs = work / "runs" / name
    text = (reproduce.ROOT / "results" / f"{name}.json").read_text(encoding="utf-8")
    results = work / "results" / f"{name}.json"
    results.parent.mkdir(parents=True)
    results.write_text(text.replace(f"runs/{name}/", f"{runs}/"), encoding="utf-8")
    record = next(run for run in json.loads(text)["runs"] if run["model"] == "CopyNet")
    folder = save_tiny_model(runs / "seed_0" / "CopyNet")
    (folder / "training.json").write_text(json.dumps({"fingerprint": record["fingerprint"]}), encoding="utf-8")
    for left in ("training_args.bin", "begun.json", "checkpoint-1/optimizer.pt", "checkpoint-1/model.safetensors"):
        (folder / left).parent.mkdir(exist_ok=True)
        (folder / left).write_text(str(work), encoding="utf-8")
    return runs, results.parent


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    """The one line that the script prints when it fails."""
    capsys.readouterr()
    assert publish.main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


# ---- on the Hub


@dataclass
class Published:
    """The server when all has been published, what the model's folder gave before, and what the commands printed."""

    hub: Hub
    expected: dict[str, Any]
    said: dict[str, str]
    loaded: dict[str, Any]
    work: Path

    @property
    def commits(self) -> list[Any]:
        return [*self.hub.repositories[REPO].commits.values()]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    work = tmp_path_factory.mktemp("publish")
    runs, results = make_runs(work)
    model = tiny_model(seed=6)
    model.generation_config.update(num_beams=2, max_new_tokens=6, forbid_unk=True)
    model.save_pretrained(runs / "seed_0" / "CopyNet")
    expected = answers(runs / "seed_0" / "CopyNet", TEXTS)
    with Hub() as hub:
        found = run_elsewhere(publish_repeatedly, work / "writer", runs, results, TEXTS, **hub.client)
        yield Published(hub, expected, found["said"], found["loaded"], work)


def test_everything_comes_in_one_commit(published: Published) -> None:
    created, first, second = published.commits
    assert created.changed == [".gitattributes"]
    assert first.title == "CopyNet of nl2bash, seed 0"
    assert EXPORTED | {"model.safetensors", "vocab.json", "README.md", "modeling_copynet.py"} <= set(first.changed)
    assert ".eval_results/copynet-hf.yaml" in first.changed
    assert "model.safetensors" in second.changed
    assert f"published: {published.hub.url}/{REPO}/commit/" in published.said["published"]
    assert published.hub.unknown == []


def test_what_is_unchanged_makes_no_commit(published: Published) -> None:
    _, first, second = published.hub.repositories[REPO].commits
    assert first in published.said["published"]
    assert second in published.said["changed"]
    assert second in published.said["unchanged"]


def test_the_graphs_of_the_model_before_are_removed(published: Published) -> None:
    _, first, second = published.commits
    gone = first.files.keys() - second.files.keys()
    assert gone == {path for path in first.files if path.startswith("onnx")}
    assert "without ONNX graphs: the generation config has no_repeat_ngram_size=3" in published.said["changed"]
    assert b"OnnxCopyNet" in first.files["README.md"].content
    assert b"OnnxCopyNet" not in second.files["README.md"].content


def test_nothing_else_of_the_runs_folder_is_published(published: Published) -> None:
    for repository in published.hub.repositories.values():
        for commit in repository.commits.values():
            assert not {"training_args.bin", "training.json", "begun.json"} & commit.files.keys()
            assert not any(path.startswith("checkpoint") or path.endswith(".pt") for path in commit.files)
            contents = {path: file.content for path, file in commit.files.items()}
            where = [str(published.work).encode(), b"hf_of_the_tests", b"publish-"]
            assert [path for path, content in contents.items() if any(each in content for each in where)] == []


def test_the_card_has_scores_licence_and_commands(published: Published) -> None:
    _, first, _ = published.commits
    text = first.files["README.md"].content.decode()
    card = front_matter(text)
    assert card["license"] == "mit"
    assert "license_name" not in card
    (result,) = card["model-index"][0]["results"]
    scores = {metric["name"]: metric["value"] for metric in result["metrics"]}
    stored = json.loads((reproduce.ROOT / "results" / "nl2bash.json").read_text(encoding="utf-8"))
    run = next(run for run in stored["runs"] if run["model"] == "CopyNet")
    assert scores.items() <= run["scores"].items()
    (entry,) = yaml.safe_load(first.files[".eval_results/copynet-hf.yaml"].content)
    assert entry["dataset"] == {"id": "nl2bash", "task_id": "descriptions"}
    assert entry["value"] == next(iter(scores.values()))
    assert f'from_pretrained("{REPO}")' in text
    assert "python scripts/reproduce.py nl2bash --models CopyNet" in text
    assert "--train_file train.jsonl" in text
    assert "The weights are not on the Hub" not in text


def test_with_the_package_name_and_graphs_give_the_same_ids(published: Published) -> None:
    onnx = published.loaded.pop("onnx")
    assert onnx == published.loaded["sequences"] == published.expected["sequences"]
    assert published.loaded["texts"] == published.expected["texts"]
    assert any("X" in text for text in published.expected["texts"])


def test_without_the_package_the_published_code_gives_the_same(published: Published) -> None:
    _, first, _ = published.hub.repositories[REPO].commits
    name = f"{REPO}@{first}"
    found = run_elsewhere(
        load, published.work / "reader", [name], TEXTS, without=OPTIONAL, **published.hub.client | {"HF_TOKEN": ""}
    )[name]
    assert found["sequences"] == published.expected["sequences"]
    assert found["modules"] == ["transformers_modules"]


@pytest.mark.slow
def test_graphs_of_both_precisions_are_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, results = make_runs(tmp_path)
    tiny_model(seed=6, embedding_size=64, hidden_size=64).save_pretrained(runs / "seed_0" / "CopyNet")
    arguments = ["nl2bash", "--repo", "me/x", "--output_dir", str(runs), "--results_dir", str(results), "--dry_run"]
    assert publish.main(arguments) == 0
    found = re.findall(r"^ +([\d,]+)  (\S+)$", capsys.readouterr().out, re.MULTILINE)
    sizes = {path: int(size.replace(",", "")) for size, path in found}
    assert 0 < sizes["onnx-int8/decoder.onnx"] < sizes["onnx/decoder.onnx"]
    assert sizes["onnx-int8/config.json"] == sizes["onnx/config.json"]


def test_a_dry_run_lists_sizes_and_uploads_nothing(published: Published) -> None:
    assert "me/nothing" not in published.hub.repositories
    sizes = {path: size for size, path in re.findall(r"^ +([\d,]+)  (\S+)$", published.said["dry run"], re.MULTILINE)}
    _, _, second = published.commits
    assert sizes.keys() == second.files.keys() - {".gitattributes"}
    assert sizes["model.safetensors"] == f"{len(second.files['model.safetensors'].content):,}"
    assert "files for me/nothing; nothing was uploaded\n" in published.said["dry run"]


def test_a_private_repository_and_a_branch(published: Published) -> None:
    repository = published.hub.repositories["me/private"]
    assert repository.private
    assert repository.files("main").keys() == {".gitattributes"}
    assert "model.safetensors" in repository.files("next")


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("public", f"--repo {REPO} is public: leave --private out"),
        ("somebody else's", "--repo is you/commands, where your token may not write: give a repository of yours"),
        ("wrong token", "the Hub does not accept your token: run hf auth login"),
        ("no token", "you are not logged in to the Hub: run hf auth login"),
    ],
)
def test_what_the_hub_refuses_is_one_line(published: Published, case: str, message: str) -> None:
    line = published.said[case].splitlines()[-1]
    assert line.startswith(f"publish.py: {message}")


# ---- refused before anything is uploaded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("table7 --repo me/x", "NAME is 'table7': choose one of table1, table3"),
        ("nl2bash --repo x", "--repo is 'x': give user/name"),
        ("nl2bash --repo me/x/y", "--repo is 'me/x/y': give user/name"),
        ("nl2bash --repo me/x--y", "--repo is 'me/x--y': give user/name"),
        ("nl2bash --repo me/x --model Copynet", "--model is 'Copynet': choose one of the models of nl2bash, 'RNN"),
        ("table3 --repo me/x", "--model is missing: choose one of the models of table3, 'RNN context, characters'"),
        ("mechanisms --repo me/x --model CopyNet", "the models of mechanisms were trained for a comparison"),
        ("nl2bash --repo me/x --seed 7", "no scores of 'CopyNet' with seed 7: run python scripts/reproduce.py"),
        ("nl2bash --repo me/x --output_dir none", "none/seed_0/CopyNet holds no trained model: run python scripts/"),
    ],
)
def test_what_cannot_be_published_says_why_in_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in run(capsys, *arguments.split())


def test_a_model_without_its_scores_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, results = make_runs(tmp_path)
    (runs / "seed_0" / "CopyNet" / "training.json").write_text('{"fingerprint": "another"}', encoding="utf-8")
    line = run(capsys, "nl2bash", "--repo", "me/x", "--output_dir", runs, "--results_dir", results)
    assert "CopyNet holds another model than the one that" in line


def test_data_that_restrict_their_use_need_consent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, results = make_runs(tmp_path, "rewriting")
    arguments = ["rewriting", "--repo", "me/x", "--output_dir", runs, "--results_dir", results]
    line = run(capsys, *arguments)
    assert "come without a licence, so that they may be used for evaluation only: give --accept_data_licence" in line
    assert "its card will have license other, license_name no-licence-stated" in line


# ---- cards and licences


def published_card(name: str, model: str) -> str:
    """The card of a model whose scores are in results/."""
    experiment = importlib.import_module(f"experiments.tables.{name}")
    results = json.loads((reproduce.ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    runs = {run["data"]: run for run in results["runs"] if (run["model"], run["seed"]) == (model, 0)}
    runs = {data: runs[data] for data in experiment.CARD.tests if data in runs}
    return str(render_published_card(name, experiment.CARD, model, runs, results, "me/x", ["onnx"]))


def test_the_card_repeats_what_the_data_do_not_allow() -> None:
    text = published_card("table3", "CopyNet, words")
    card = front_matter(text)
    assert (card["license"], card["license_name"]) == ("other", "lcsts-research-only")
    assert "Before you use this model: the pairs of LCSTS (Hu et al. 2015) are for research only" in text


@pytest.mark.parametrize("name", reproduce.EXPERIMENTS)
def test_the_data_of_every_card_have_a_known_licence(name: str) -> None:
    experiment = importlib.import_module(f"experiments.tables.{name}")
    cards = [*getattr(experiment, "CARDS", {}).values(), *([experiment.CARD] if experiment.CARD else [])]
    for card in cards:
        (dataset,) = card.datasets
        assert card.licence == LICENCES[dataset].identifier
        assert (card.main_score or next(iter(card.metrics))) in card.metrics


def test_unknown_data_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("the licence of news is unknown: add it to")):
        check_consent("news", True)


# ---- models without a tokenizer, and with features


def write_run(work: Path, name: str, model: str, data: str, scores: dict[str, float], source: Any) -> Path:
    """Writes the results of one run; returns the folder of its model, with a training record."""
    folder = work / "runs" / name / "seed_0" / "model"
    folder.mkdir(parents=True)
    (folder / "training.json").write_text('{"fingerprint": "same"}', encoding="utf-8")
    of_training = {"parameters": 10, "epochs": 1.0, "minutes": 0.1, "machine": "one", "threads": 1, "commit": "abc"}
    run = {"data": data, "model": model, "seed": 0, "scores": scores, "fingerprint": "same", "folder": str(folder)}
    run |= of_training | {"versions": {"torch": "2"}, "command": f"copynet-hf train --train_file {work}/train.jsonl"}
    results = {"data": {"0": {"signature": "all"}}, "runs": [run | {"outputs": [{"text": source, "prediction": [0]}]}]}
    (work / f"{name}.json").write_text(json.dumps(results), encoding="utf-8")
    return folder


def list_published(work: Path, name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], str]:
    """What a dry run would publish, without graphs: the paths, and the card."""
    found: dict[str, Any] = {}

    def read(folder: Path) -> dict[str, Path]:
        found["card"] = (folder / "README.md").read_text(encoding="utf-8")
        found["files"] = list_files(folder)
        return found["files"]

    monkeypatch.setattr(contents, "EXPORTS", {})
    monkeypatch.setattr(upload, "list_files", read)
    folders = ["--output_dir", str(work / "runs" / name), "--results_dir", str(work)]
    assert publish.main([name, "--repo", "me/x", "--model", model, "--dry_run", *folders]) == 0
    return set(found["files"]), found["card"]


def test_a_pointer_network_is_published_without_a_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = "Ptr-Net, 5 points"
    scores = {"exact": 90.0, "area": 99.0, "simple": 98.0}
    folder = write_run(tmp_path, "convex_hull", model, "5 points, the paper's file", scores, [[0.0, 1.0]])
    tiny_model(**POINTER, num_features=2).save_pretrained(folder)
    paths, text = list_published(tmp_path, "convex_hull", model, monkeypatch)
    assert "vocab.json" not in paths
    assert {"model.safetensors", ".eval_results/copynet-hf.yaml", "README.md"} <= paths
    assert front_matter(text)["license"] == "apache-2.0"
    assert "10 points" not in text


def test_a_model_of_inflection_is_under_the_licence_of_unimorph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path, "inflection", "CopyNet", "hun_small", {"exact_match": 75.0}, "ház")
    tiny_model(feature_vocab_size=6).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    _, text = list_published(tmp_path, "inflection", "hun_small", monkeypatch)
    card = front_matter(text)
    assert (card["license"], card["language"]) == ("cc", "hun")
    assert "python scripts/reproduce.py inflection --models hun_small\n" in text
    assert "features=features" in text
    assert str(tmp_path) not in text
