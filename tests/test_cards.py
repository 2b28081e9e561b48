"""Model cards, and the copy statistics logged during training."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import DISTINCT, POINTER, SIZES, tiny_model, write_requests
from huggingface_hub import ModelCard

from copynet_hf import write_model_card
from copynet_hf.saved.cards import command_line
from copynet_hf.training.run import train_from_arguments

SCORES = {"rouge1": 30.123, "rougeL": 27.456, "exact_match": 5.0, "unk_rate": 1.5, "examples": 1000}
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a run of the command writes."""
    folder = tmp_path_factory.mktemp("trained")
    said: dict[str, Any] = {**SIZES, "output_dir": str(folder / "model"), "num_train_epochs": 2, "language": "en"}
    said |= write_requests(folder, train=40, validation=70, test=9)
    pytest.importorskip("tensorboard")
    train_from_arguments(said | {"report_to": ["tensorboard"], "max_target_length": 8})
    return folder / "model"


KINDS: dict[str, dict[str, Any]] = {
    **DISTINCT,
    "retrieval": {"copy_mechanism": "retrieval"},
    "pointer": POINTER,
    "points": POINTER | {"num_features": 2},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_saved_model_has_a_card_with_its_equation_and_sizes(name: str, tmp_path: Path) -> None:
    model = tiny_model(**KINDS[name])
    model.save_pretrained(tmp_path / "mine")
    card = ModelCard.load(tmp_path / "mine" / "README.md")
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-generation"
    assert {"copynet", model.config.copy_mechanism} <= set(card.data.tags)
    assert card.data.license is None
    assert card.data.eval_results is None
    assert "# mine\n" in card.text
    assert f"| parameters | {model.num_parameters():,} |" in card.text
    assert f"| `copy_mechanism` | {model.config.copy_mechanism} |" in card.text
    assert ("copies words of its input" in card.text) == (model.config.copies and model.config.mechanism.generates)
    assert ("pipeline(" in card.text) == (name != "points")
    assert ("words of its vocabulary" in card.text) == model.config.mechanism.generates
    assert "\n> " in card.text
    assert "{{" not in card.text
    assert "None" not in card.text


def test_an_existing_card_is_kept(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    tiny_model().save_pretrained(tmp_path)
    tiny_model().model.save_pretrained(save_directory=tmp_path / "base")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"
    assert "AutoModel.from_pretrained" in (tmp_path / "base" / "README.md").read_text(encoding="utf-8")
    tiny_model().save_pretrained(tmp_path / "second", False)  # another process writes it
    assert not (tmp_path / "second" / "README.md").exists()


def test_scores_are_in_the_table_the_metadata_and_the_eval_results(tmp_path: Path) -> None:
    card = write_model_card(
        tmp_path,
        tiny_model(),
        title="headlines",
        language="zh",
        license="cc-by-4.0",
        datasets=["someone/headlines-zh"],
        scores={"test": SCORES, "validation": {"loss": 2.0}},
        signature={"rougeL": "F1|best-ref"},
    )
    assert card.data.model_name == "headlines"
    assert (card.data.language, card.data.license, card.data.datasets) == ("zh", "cc-by-4.0", ["someone/headlines-zh"])
    written = ModelCard.load(tmp_path / "README.md")
    found = {result.metric_name: (result.metric_value, result.dataset_split) for result in written.data.eval_results}
    assert found == {"exact match": (5.0, "test"), "ROUGE-1": (30.12, "test"), "ROUGE-L": (27.46, "test")}
    assert "| test, 1,000 pairs | 5.0 | 30.1 | 27.5 |" in written.text
    assert "| test, 1,000 pairs | 1.5 |" in written.text
    assert "- rougeL: `F1|best-ref`" in written.text
    (entry,) = yaml.safe_load((tmp_path / ".eval_results" / "copynet-hf.yaml").read_text(encoding="utf-8"))
    assert entry["dataset"] == {"id": "someone/headlines-zh", "task_id": "test"}
    assert entry["value"] == 27.46
    assert "ROUGE-1 30.12" in entry["notes"]
    assert "| test | 3.0 |" in write_model_card(tmp_path, tiny_model(), scores={"test": {"bleu": 3.0}}).text


def test_the_card_of_the_command_has_data_command_and_scores_but_no_paths(trained: Path) -> None:
    card = ModelCard.load(trained / "README.md")
    scores = json.loads((trained / "test_results.json").read_text(encoding="utf-8"))
    found = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert found["ROUGE-L"] == round(scores["test_rougeL"], 2)
    assert found["exact match"] == round(scores["test_exact_match"], 2)
    assert f"{scores['test_copy_mode_fraction']:.1f}" in card.text
    assert "from train.jsonl, validation.jsonl, test.jsonl: 40 of train, 70 of validation, 9 of test." in card.text
    assert "and of words joined from these or their parts." in card.text
    assert "copynet-hf train " in card.text
    assert "--train_file train.jsonl" in card.text
    assert card.data.language == "en"
    assert str(trained.parent) not in str(card)


def test_a_command_line_has_the_last_component_of_paths(tmp_path: Path) -> None:
    (tmp_path / "a b.jsonl").touch()
    said = {
        "output_dir": f"{tmp_path}/out",
        "disable_tqdm": True,
        "resume_from_checkpoint": "auto",
        "train_file": f"{tmp_path}/a b.jsonl",
        "test_file": "~/none.jsonl",
        "readout": ["state", "context"],
        "text_column": "-x",
        "lr_scheduler_kwargs": {"power": 2},
        "hub_model_id": "me/mine",
    }
    expected = (
        "copynet-hf train --train_file 'a b.jsonl' --test_file none.jsonl --readout state context --text_column=-x "
        """--lr_scheduler_kwargs '{"power": 2}' --hub_model_id me/mine --output_dir out"""
    )
    assert command_line(said) == expected


def test_copy_statistics_are_logged_at_each_evaluation(trained: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    state = json.loads((trained / "trainer_state.json").read_text(encoding="utf-8"))
    logged = [entry for entry in state["log_history"] if "eval_copy_mode_fraction" in entry]
    assert len(logged) == sum("eval_loss" in entry for entry in state["log_history"]) > 1
    assert all(0 <= entry["eval_copy_mode_fraction"] <= 100 and entry["eval_unk_rate"] >= 0 for entry in logged)
    (folder,) = (trained / "runs").iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    for name in ("copy_mode_fraction", "unk_rate"):
        curve = [event.value for event in events.Scalars(f"eval/{name}")]
        assert len(curve) == len(logged) + 1  # and the final evaluation of the best model
        assert curve[:-1] == pytest.approx([entry[f"eval_{name}"] for entry in logged])


def test_copy_statistics_are_those_of_greedy_search_on_the_first_texts(trained: Path) -> None:
    from copynet_hf import load_pairs
    from copynet_hf.evaluation.scoring import evaluate_pairs
    from copynet_hf.saved.loading import load_model

    pairs = load_pairs(test_file=str(trained.parent / "validation.jsonl"))["test"].select(range(64))
    scores, _ = evaluate_pairs(*load_model(str(trained)), pairs, num_beams=1, forbid_unk=False)
    found = json.loads((trained / "eval_results.json").read_text(encoding="utf-8"))
    assert found["eval_copy_mode_fraction"] == pytest.approx(scores["copy_mode_fraction"])
    assert found["eval_unk_rate"] == pytest.approx(scores["unk_rate"])


def test_the_wheel_has_the_template() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    files = wheel["wheel"]["force-include"]
    assert all((ROOT / source).exists() for source in files)
    assert files["model_cards/template.md"] == "copynet_hf/saved/model_card_template.md"
