"""The commands, as run from a shell: their files, their output, and their errors."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from helpers import refused, write_rows
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, HfArgumentParser, Seq2SeqTrainingArguments

from copynet_hf import CopyNetPredictor
from copynet_hf.arguments import ArgumentParser, ModelArguments, TokenizerArguments
from copynet_hf.cli import main
from copynet_hf.commands import generate, train
from copynet_hf.data import quickstart_pairs
from copynet_hf.model.configuration_copynet import CopyNetConfig
from copynet_hf.training.defaults import (
    LABEL_SMOOTHING,
    MAX_EPOCHS,
    MIN_EPOCHS,
    SEQ2SEQ_LEARNING_RATE,
    TRAINING_DEFAULTS,
)
from copynet_hf.training.presets import DEFAULT_SIZES
from copynet_hf.training.run import train_from_arguments

SIZES = {"hidden_size": 32, "encoder_hidden_size": 16, "embedding_size": 16, "attention_size": 16}
SEARCH = {"num_beams": 2, "max_target_length": 8}
SMALL = [f"--{name}={value}" for name, value in (SIZES | SEARCH).items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of pairs and a model trained on them by the command."""
    folder = tmp_path_factory.mktemp("cli")
    for split, count in {"train": 24, "validation": 8, "test": 8}.items():
        rows = ({"id": f"n{i}"} | pair for i, pair in enumerate(quickstart_pairs(split, count)))
        write_rows(folder / f"{split}.jsonl", rows)
    files = [f"--{split}_file={folder / split}.jsonl" for split in ("train", "validation", "test")]
    assert main(["train", *files, f"--output_dir={folder / 'model'}", "--max_steps=2", *SMALL]) == 0
    return folder


# ---- train


def test_train_writes_a_model_that_the_auto_classes_load_and_its_metrics(folder: Path) -> None:
    model = AutoModelForSeq2SeqLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert len(tokenizer) == model.config.vocab_size
    assert tokenizer.max_source_oov == model.config.max_source_oov
    assert (model.generation_config.num_beams, model.generation_config.forbid_unk) == (2, True)
    assert tokenizer.segmenter == "word_punct"
    metrics = json.loads((folder / "model" / "all_results.json").read_text())
    assert {"train_loss", "eval_loss", "test_exact_match", "epoch"} <= metrics.keys()
    assert (folder / "model" / "trainer_state.json").exists()
    predictions = (folder / "model" / "test_predictions.jsonl").read_text(encoding="utf-8")
    assert len(predictions.splitlines()) == 8


def test_a_log_has_no_progress_bars_unless_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr("copynet_hf.training.run.train_from_arguments", lambda values: given.append(values) or {})
    for is_terminal in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda is_terminal=is_terminal: is_terminal)
        assert main(["train", "--dry_run"]) == main(["train", "--dry_run", "--disable_tqdm", "False"]) == 0
    assert [values.get("disable_tqdm") for values in given] == [None, False, True, False]


def test_evaluate_and_generate_warn_of_truncated_texts(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = (f"--model={folder}/model", "--max_source_length=2", "--max_target_length=3")
    with caplog.at_level(logging.WARNING, "copynet_hf"):
        assert main(["evaluate", *model, f"--test_file={folder}/test.jsonl", "--max_eval_samples=7"]) == 0
        assert main(["generate", *model, "--text", "call me", "please call me at 10:30"]) == 0
    warnings = [message.split(":")[0] for message in caplog.messages if "truncated" in message]
    assert warnings == ["7 of 7 texts were truncated", "1 of 2 texts were truncated"]
    assert re.search(r"[1-7] of 7 outputs ended before they were complete", caplog.text)


def test_columns_and_delimiter_are_remembered_by_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path, model = tmp_path / "a.csv", tmp_path / "model"
    rows = [(pair["text"], pair["summary"]) for pair in quickstart_pairs("train", 16)]
    path.write_text("".join(f"{'#'.join((text, 'x', summary))}\n" for text, summary in [("nl", "cmd"), *rows]))
    options = ["--delimiter=#", "--text_column=NL", "--summary_column=cmd"]
    assert main(["train", f"--train_file={path}", f"--output_dir={model}", "--max_steps=1", *options, *SMALL]) == 0
    capsys.readouterr()
    scores = []
    evaluate = ["evaluate", f"--model={model}", f"--test_file={path}", "--max_target_length=5"]
    with caplog.at_level(logging.INFO, "copynet_hf"):
        for more in ([], options, ["--summary_column=nl", "--text_column=cmd"]):
            caplog.clear()
            assert main([*evaluate, *more]) == 0
            scores.append(json.loads(capsys.readouterr().out) | {"seconds": None})
            taken = [
                message.split(" is")[0].removeprefix(f"{path}: ") for message in caplog.messages if "as in" in message
            ]
            columns = [] if more else ["text_column", "summary_column"]
            assert taken == ([] if more == options else ["delimiter", *columns])
    assert scores[0] == scores[1] != scores[2]
    plain = tmp_path / "plain.jsonl"  # without these columns
    write_rows(plain, quickstart_pairs("test", 4))
    assert main([*evaluate[:2], f"--test_file={plain}"]) == 0
    header, fields = tmp_path / "header.csv", tmp_path / "fields.csv"
    header.write_text("nl#cmd\n")
    caplog.clear()
    assert main([*evaluate[:2], f"--test_file={header}"]) == 2
    assert "the file holds no row" in capsys.readouterr().err
    assert "no column" not in caplog.text
    fields.write_text("nl,branch\ncall me,north\n")
    with caplog.at_level(logging.INFO, "copynet_hf"):
        assert main([*evaluate[:2], f"--test_file={fields}"]) == 0
    assert "there is no column 'cmd', the summary_column of the training" in caplog.messages


def test_guessed_columns_are_remembered_by_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, new, model = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "model"
    rows = [f"{number};{pair['text']};{pair['summary']}" for number, pair in enumerate(quickstart_pairs("train", 16))]
    path.write_text("\n".join([" ID;Nachricht ;Eintrag", *rows]))
    assert main(["train", f"--train_file={path}", f"--output_dir={model}", "--max_steps=1", *SMALL]) == 0
    new.write_text("Nachricht;Filiale;Notiz\ncall me at 10;north;-\n")
    predict = ["predict", f"--model={model}", f"--input_file={new}", f"--output_file={tmp_path}/out.csv"]
    assert main(predict) == 0
    assert [*CopyNetPredictor(str(model))(pd.read_csv(new, sep=";"))["prediction"]]
    hub = tmp_path / "hub"  # with other columns, and other ones that it calls its own
    hub.mkdir()
    write_rows(hub / "test.jsonl", [{**pair, "lang": "en"} for pair in quickstart_pairs("test", 4)])
    assert main(["evaluate", f"--model={model}", f"--dataset_name={hub}"]) == 0
    (hub / "test.jsonl").rename(hub / "train.jsonl")
    (hub / "README.md").write_text(
        "---\ndataset_info:\n  features:\n  - {name: text, dtype: string}\n  - {name: summary, dtype: string}\n"
        "  - {name: lang, dtype: string}\n  supervised_keys: {input: lang, output: text}\n---\n"
    )
    capsys.readouterr()
    assert main(["train", f"--dataset_name={hub}", f"--output_dir={model}3", "--max_steps=1", *SMALL]) == 0
    assert "file_options" not in json.loads((tmp_path / "model3" / "tokenizer_config.json").read_text())
    plain = tmp_path / "plain.jsonl"
    write_rows(plain, quickstart_pairs("train", 16))
    assert main(["train", f"--train_file={plain}", f"--output_dir={model}2", "--max_steps=1", *SMALL]) == 0
    assert "file_options" not in json.loads((tmp_path / "model2" / "tokenizer_config.json").read_text())


def test_overwriting_starts_again_and_removes_the_results_of_the_earlier_run(folder: Path, tmp_path: Path) -> None:
    run = ["train", f"--train_file={folder}/train.jsonl", f"--output_dir={tmp_path}", *SMALL]
    assert main([*run, f"--test_file={folder}/test.jsonl", "--max_steps=3"]) == 0
    (tmp_path / "checkpoint-best").mkdir()  # no checkpoint of the Trainer
    (tmp_path / "checkpoint-best" / "trainer_state.json").write_text("{}")
    assert main([*run, "--overwrite_output_dir", "--max_steps=1", "--do_train"]) == 0
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-best"}
    assert not (tmp_path / "test_results.json").exists()
    assert "test_exact_match" not in json.loads((tmp_path / "all_results.json").read_text())


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_file_can_hold_the_arguments(tmp_path: Path, suffix: str) -> None:
    settings = {"learning_rate": "2e-3", "max_steps": 1, "readout": ["state", "context"], "hidden_size": 8}
    settings |= {"attention": True, "save_strategy": "no"}
    path = tmp_path / f"run{suffix}"
    lines = [f"{name}: {value}" for name, value in settings.items()]
    path.write_text(json.dumps(settings) if suffix == ".json" else "\n".join(lines))
    parser = train.COMMAND.build_parser("train")
    assert parser.parse([str(path), "--hidden_size=16"]) == settings | {"learning_rate": 2e-3, "hidden_size": 16}


def test_a_value_of_a_file_may_begin_with_a_hyphen(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("copied_only: '-[0-9]'\nlength_penalty: -1.0e-5\ntext: [a, b c]\n")
    parser = generate.COMMAND.build_parser("generate")
    assert parser.parse_given([str(path)]) == {"copied_only": "-[0-9]", "length_penalty": -1e-5, "text": ["a", "b c"]}
    path.write_bytes("run_name: café".encode("latin-1"))
    with pytest.raises(ValueError, match=r"run\.yaml is not valid JSON or YAML \(.*can't decode byte.*: correct it"):
        parser.parse_given([str(path)])


def test_an_argument_that_names_a_file_is_no_file_of_arguments() -> None:
    assert train.COMMAND.build_parser("train").parse_given(["--train_file=a.json"]) == {"train_file": "a.json"}


def test_every_config_field_is_an_argument_or_follows_from_the_tokenizer() -> None:
    arguments = {entry.name for kind in (ModelArguments, TokenizerArguments) for entry in dataclasses.fields(kind)}
    own = {name for name in CopyNetConfig.__annotations__ if not name.endswith("token_id")}
    of_tokenizer, without_texts = {"feature_vocab_size", "letter_vocab_size"}, {"num_features"}
    # read from `encoder_name_or_path`, `decoder` and `seq2seq_name_or_path`
    of_others = {"encoder", "encoder_reads", "seq2seq", "logits_scale", "logits_bias"}
    others = {"calibration", "letter_dropout", "use_cache", "is_encoder_decoder"}
    assert own - arguments == others | of_others | of_tokenizer | without_texts


def test_parsed_arguments_are_those_given_without_defaults() -> None:
    """The model card shows them as the command, which has to train again."""
    words = "--dropout 0.3 --attention False --use-coverage --no_forbid_unk --readout state context"
    arguments = ArgumentParser(ModelArguments).parse_given(words.split())
    given = {"dropout": 0.3, "attention": False, "use_coverage": True, "forbid_unk": False}
    assert arguments == {**given, "readout": ["state", "context"]}
    parser = train.COMMAND.build_parser("train")
    assert parser.parse_given(["--train_file", "a", "--seed", "3"]) == {"train_file": "a", "seed": 3}


def test_the_home_folder_is_found_where_the_shell_leaves_its_sign(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(folder)
    parser = train.COMMAND.build_parser("train")
    given = ["--train_file=~/a", "--tokenizer_name=~/t", "--resume_from_checkpoint=~/c", "--run_name=~"]
    found = {"train_file": "a", "tokenizer_name": "t", "resume_from_checkpoint": "c"}
    assert parser.parse_given(given) == {name: f"{tmp_path}/{path}" for name, path in found.items()} | {
        "run_name": "~"
    }
    arguments = {"train_file": str(folder / "train.jsonl"), "max_steps": 1, "hidden_size": 8, "output_dir": "~/out"}
    train_from_arguments(arguments)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"model.safetensors", "README.md"}
    assert not (folder / "~").exists()
    with pytest.raises(ValueError, match=r"already holds config\.json"):
        train_from_arguments(arguments)


def test_unknown_names_are_refused_in_python_as_well(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="learnign_rate is not an argument: did you mean learning_rate"):
        train_from_arguments({"output_dir": str(tmp_path / "a"), "learnign_rate": 5.0, "max_steps": None})


# ---- evaluate


def test_evaluate_prints_one_json_object_and_nothing_else(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "copynet_hf")
    capsys.readouterr()
    predictions = tmp_path / "deep" / "predictions.jsonl"
    argv = f"--model={folder}/model --test_file={folder}/test.jsonl --num_beams=3 --num_return_sequences=3"
    assert main(["evaluate", *argv.split(), f"--output_file={predictions}", "--batch_size=5"]) == 0
    scores = json.loads(capsys.readouterr().out)
    names = "exact_match exact_match_top_3 rouge1 rouge2 rougeL bleu oov_recall unk_rate copied_fraction"
    assert {*names.split(), "copy_mode_fraction", "seconds", "examples"} <= scores.keys()
    assert scores["examples"] == 8
    rows = [json.loads(line) for line in predictions.read_text(encoding="utf-8").splitlines()]
    assert [(row["id"], row["text"], row["reference"]) for row in rows] == [
        (f"n{i}", pair["text"], pair["summary"]) for i, pair in enumerate(quickstart_pairs("test", 8))
    ]
    for row in rows:
        assert len(row["predictions"]) == 3
        assert row["predictions"][0] == row["prediction"] == "".join(row["words"]).strip()
        assert len(row["copied"]) == len(row["words"])
    lines = [message for message in caplog.messages if "confidence at least" in message]
    assert len(lines) == 5
    assert lines[-1] == "confidence at least 0.98: 0 of 8 outputs, none"  # of a model of three updates


def test_evaluate_overwrites_a_file_only_with_overwrite_output_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_text("mine")
    argv = ["evaluate", f"--test_file={folder}/test.jsonl", f"--output_file={path}", "--max_eval_samples=2"]
    # The model does not exist: the file is checked before anything is loaded.
    assert "--overwrite_output_file" in refused(capsys, *argv, "--model=some/one")
    assert path.read_text() == "mine"
    assert main([*argv, f"--model={folder}/model", "--num_beams=1", "--bf16", "--overwrite_output_file"]) == 0
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2


def test_evaluate_never_overwrites_its_test_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(folder / "test.jsonl")
    before = (folder / "test.jsonl").read_bytes()
    for path in (folder / "test.jsonl", link):
        argv = f"evaluate --model={folder}/model --test_file={folder}/test.jsonl --output_file={path}"
        for overwrite in ([], ["--overwrite_output_file"]):
            assert "is the input file" in refused(capsys, *argv.split(), *overwrite)
    assert (folder / "test.jsonl").read_bytes() == before


# ---- generate


def test_generate_prints_a_line_for_each_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [pair["text"] for pair in quickstart_pairs("test", 3)]
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{texts[0]}\n\n{texts[1]}\n{texts[2]}".encode())))
    assert main(["generate", f"--model={folder}/model", "--batch_size=3"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 5
    assert lines[1] == ""
    assert main(["generate", f"--model={folder}/model", "--text", *texts]) == 0
    assert capsys.readouterr().out.split("\n") == [lines[0], *lines[2:]]


# ---- bad input


TRAIN = "train --train_file {folder}/train.jsonl --output_dir {folder}/x"
BAD_INPUT = {
    "train --output_dir x": "--train_file",
    "train --train_file {folder}/train.jsonl": "--output_dir",
    "train --train_file {folder}/train.jsonl --output_dir {folder}/train.jsonl": "is a file",
    "train --train_file {folder}/none.jsonl --output_dir {folder}/x": "none.jsonl",
    "train --train_file {folder}/empty.jsonl --output_dir {folder}/x": "empty.jsonl",
    "train --train_file {folder}/train.jsonl --output_dir {folder}/noted": "already holds README.md",
    "train --train_file {folder}/train.jsonl --output_dir {folder}/model": "holds config.json: use another folder, or",
    "train --train_file {folder}/train.jsonl --output_dir {folder}/model --resume_from_checkpoint auto": "the run in "
    "{folder}/model is finished, and its checkpoints are removed",
    f"{TRAIN} --seq2seq_name_or_path {{folder}}/model": "{folder}/model is a CopyNet already: load it with",
    f"{TRAIN} --deepspeed x.json": " is not installed: pip install 'deepspeed>=",
    f"{TRAIN} --num_beams 0": "--num_beams is 0",
    f"{TRAIN} --num_train_epochs 0": "--num_train_epochs is 0: use a number above 0",
    f"{TRAIN} --max_steps 0": "--max_steps is 0: use 1 or more",
    f"{TRAIN} --preset huge": "lcsts_char",
    f"{TRAIN} --hidden_size 3000000": "GB, but the machine has",
    f"{TRAIN} --hidden_size {10**14}": "use smaller sizes",
    f"{TRAIN} --max_steps {'9' * 5_000}": "--max_steps",
    "train --train_file {folder}/train.jsonl --output_dir /proc/none/x": "/proc/none/x cannot be written",
    "train {folder} --output_dir {folder}/x": "see copynet-hf train --help",
    f"{TRAIN} --resume_from_checkpoint auto --resume_from_checkpoint {{folder}}": "is not a checkpoint",
    "generate --model {folder}/model --text a --num_beams 10000000000": "the memory is full (",
    f"generate --model {{folder}}/model --text a --batch_size {10**22}": f"--batch_size is {10**22}: use at most",
    "generate --model {folder}/model --text a --length_penalty 1e6": "--length_penalty is 1e+06: use a number",
    f"{TRAIN} --per_device_eval_batch_size 0": "--per_device_eval_batch_size is 0: use 1 or more",
    f"{TRAIN} --early_stopping_patience -2": "--early_stopping_patience is -2: use 0 or more",
    "evaluate --model {folder}/model --test_file {folder}": "is a folder: pass a file",
    f"{TRAIN} --encoder_name_or_path ./bert": "encoder_name_or_path ./bert: no such folder; pass",
    "train --dataset_name {folder}/train.jsonl --output_dir {folder}/x": "is a file: pass pairs as --train_file,",
    f"{TRAIN} --hiden_size 3": "--hiden_size is not an argument; did you mean --hidden_size? (see copynet-hf train",
    f"{TRAIN} --rate 3": "--rate is not an argument; did you mean --learning_rate?",
    f"{TRAIN} --epochs 3": "--epochs is not an argument; did you mean --num_train_epochs?",
    "generate --num-beam=3 --model {folder}/model": "--num_beam is not an argument; did you mean --num_beams?",
    "predict --input a.csv --model some/one": "--input is not an argument; did you mean --input_file?",
    "generate --text a --json --show_copies --model some/one": "--show_copies marks words in text: leave it or --json",
    "generate --model my model --text a": "'model' belongs to no argument; a value with spaces needs quotes (see",
    "generate --xyz": "--xyz is not an argument (see copynet-hf generate --help)",
    f"{TRAIN} --dropout much": "much",
    f"{TRAIN} --streaming": "--max_steps",
    f"{TRAIN} --generation_num_beams 3": "--generation_num_beams is not read: use --num_beams",
    f"{TRAIN} --do_train False": "--do_train is not read: leave it out; copynet-hf evaluate",
    f"{TRAIN} --do_eval False": "--do_eval is not read: leave it out",
    f"{TRAIN} --label_names a": "--label_names is not read: use --summary_column",
    f"{TRAIN} --weight_decay -1": "--weight_decay is -1: use 0 or more",
    f"{TRAIN} --eval_steps 0": "--eval_steps is 0: use more than 0",
    f"{TRAIN} --save_steps -1": "--save_steps is -1: use more than 0",
    f"{TRAIN} --logging_steps 0": "--logging_steps is 0: use more than 0",
    f"{TRAIN} --label_smoothing_factor 1.5": "--label_smoothing_factor is 1.5: use",
    f"{TRAIN} --resume_from_checkpoint True": "no checkpoint",
    f"{TRAIN} --push_to_hub --hub_token hf_abc": "hf auth login",
    "generate --model {folder}/model --text a --facts a|b": "is not a fact",
    "generate --model {folder}/model --text a --device gpu": "--device gpu cannot be used",
    "evaluate --test_file {folder}/test.jsonl": "--model",
    "evaluate --model {folder}/model": "--test_file",
    "evaluate --model {folder} --test_file {folder}/test.jsonl": "holds no model",
    "generate --model {folder}/killed --text a": "holds no model: its training did not end; its last checkpoint is "
    "{folder}/killed/checkpoint-20",
    "evaluate --model some/one --test_file {folder}/test.jsonl --output_file {folder}": "is a folder",
    "evaluate --model some/one --test_file {folder}/test.jsonl --output_file /dev/null": "is a pipe or a device",
    "evaluate --model some/one --test_file {folder}/test.jsonl --output_file {folder}/test.jsonl/x/y": "(Not a",
    "evaluate --model some/one --test_file {folder}/test.jsonl --output_file {folder}/x.csv": "must end in .json",
    "evaluate --model {folder}/model --test_file {folder}/test.jsonl --output_file {folder}/x.jsonl --errors_file "
    "{folder}/x.jsonl": "two are the same file",
    "generate --model {folder}/modle --text a": "no such folder; did you mean {folder}/model?",
    "quickstart --output_dir {folder}/model": "already holds config.json: use another folder, or",
}


@pytest.mark.parametrize(("argv", "thing"), BAD_INPUT.items())
def test_bad_input_ends_in_one_line_that_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: str, thing: str
) -> None:
    (folder / "noted").mkdir(exist_ok=True)
    (folder / "noted" / "README.md").write_text("notes")
    (folder / "empty.jsonl").write_text("")
    for name in ("checkpoint-5", "checkpoint-20"):
        (folder / "killed" / name).mkdir(parents=True, exist_ok=True)
    before = sorted(folder.rglob("*"))
    error = refused(capsys, *argv.format(folder=folder).split())
    assert error.startswith(f"copynet-hf {argv.split()[0]}: ")
    assert thing.format(folder=folder) in error
    assert sorted(folder.rglob("*")) == before


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "trian" in capsys.readouterr().err


def test_the_trainers_arguments_are_imported_where_an_interrupt_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []

    @contextmanager
    def importing() -> Iterator[None]:
        places.append("enter")
        yield
        places.append("leave")

    monkeypatch.setattr(train.TrainArgumentParser, "_add_trainer_arguments", lambda _: places.append("import"))
    monkeypatch.setattr(train, "COMMAND", dataclasses.replace(train.COMMAND, run=lambda _: places.append("run")))
    assert main(["train"], importing) == 0
    assert places == ["enter", "import", "leave", "run"]


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_threads_wait_for_one_another_asleep_unless_told_otherwise(
    given: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch reads the variable when it is imported, which is after the arguments are parsed."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    help_text(capsys, "train", "--help")
    assert os.environ["OMP_WAIT_POLICY"] == (given or "PASSIVE")


# ---- help


def help_text(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main(argv)
    assert exit_info.value.code == 0
    return capsys.readouterr().out


def test_help_all_lists_every_argument_of_the_trainer(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text(capsys, "train", "--help-all")
    assert text == help_text(capsys, "train", "--help_all")
    names = [entry.name for entry in dataclasses.fields(Seq2SeqTrainingArguments) if entry.init]
    assert "adam_beta1" in names
    assert all(f"  --{name} " in text for name in names)
    assert "--adam_beta1" not in help_text(capsys, "train", "--help")


def test_the_defaults_that_train_help_shows_are_those_of_a_run() -> None:
    shown = {entry.name: entry.metadata["shown"] for entry in dataclasses.fields(ModelArguments)}
    config = {entry.name: entry.default for entry in dataclasses.fields(CopyNetConfig)} | DEFAULT_SIZES
    for name in shown.keys() & config.keys() - {
        "selective_read",
        "readout",
        "copies_from",
        "encoder_gru",
        "decoder",
        "copy_layer",
        "copy_head",
    }:
        assert shown[name] == (config[name] or None), name
    ours = {entry.name: entry.metadata["shown"] for entry in dataclasses.fields(train.TrainerArguments)}
    trainer = {entry.name: entry.default for entry in dataclasses.fields(Seq2SeqTrainingArguments)} | TRAINING_DEFAULTS
    for name, default in ours.items():
        assert isinstance(default, str) or (trainer[name] or None) == (default or None), name
    assert ours["learning_rate"] == f"{SEQ2SEQ_LEARNING_RATE:g} to {trainer['learning_rate']:g}"
    assert ours["warmup_steps"] == f"{trainer['warmup_steps']}, at most half"
    assert ours["num_train_epochs"].startswith(f"{MIN_EPOCHS} to {MAX_EPOCHS},")
    assert ours["label_smoothing_factor"].startswith(f"{LABEL_SMOOTHING:g},")


def test_arguments_of_the_trainer_have_its_types() -> None:
    ours = {action.dest: action for action in train.COMMAND.build_parser("train")._actions}
    theirs = HfArgumentParser(Seq2SeqTrainingArguments)._actions
    checked = [action.dest for action in theirs if action.dest in ours and action.dest != "help"]
    for action in theirs:
        if action.dest in ours and isinstance(action.type, type):
            assert ours[action.dest].type is action.type, action.dest
    assert set(checked) == {entry.name for entry in dataclasses.fields(train.TrainerArguments)}
