"""Ensembles: the mean of several models' p(y), against the oracle's means and a search over them by hand."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import (
    SOURCES,
    TARGETS,
    find_blocks,
    padded,
    refused,
    save_parts,
    save_tiny_model,
    sources,
    tiny_model,
    tiny_tokenizer,
    until_end,
    write_rows,
)
from huggingface_hub import ModelCard
from oracle import Oracle
from tiny_encoders import TEXTS as ENCODER_TEXTS
from tiny_encoders import batch_of, copynet_over, save_encoder, word_tokenizer
from transformers import AutoConfig, AutoModelForSeq2SeqLM, pipeline

from copynet_hf import CopyNetEnsemble, CopyNetEnsembleConfig, CopyNetTokenizer, calibrate_model
from copynet_hf.cli import main
from copynet_hf.data.remembered import remember_options
from copynet_hf.evaluation.calibration import MIN_PAIRS, fit_calibration
from copynet_hf.model.confidence import calibrate
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.saved.ensembles import join_models
from copynet_hf.saved.loading import load_model

PAD, START, EOS, UNK, V = 0, 1, 2, 3, 13
TEXTS = ["a X b Y X", "Z c", "a b c d e f g h i"]
# Of different mechanisms, sizes and numbers of layers.
MEMBERS: list[dict[str, Any]] = [
    {"seed": 9},
    {"seed": 109, "hidden_size": 9, "embedding_size": 6, "num_hidden_layers": 2, "tie_word_embeddings": True},
    {"seed": 29, "copy_mechanism": "pointer_generator", "use_coverage": True},
]
MIXTURES: dict[str, list[dict[str, Any]]] = {
    "seeds": [{"seed": 1}, {"seed": 2}],
    "sizes and mechanisms": MEMBERS,
    "one that does not copy": [{"seed": 1}, {"seed": 2, "copy_mechanism": "none"}],
    "gated": [{"seed": 1, "copy_mechanism": "gated"}, {"seed": 2, "readout": ["state"]}],
}
mixtures = pytest.mark.parametrize("members", MIXTURES.values(), ids=MIXTURES)


def make_ensemble(members: list[dict[str, Any]] = MEMBERS, **changes: Any) -> CopyNetEnsemble:
    return CopyNetEnsemble.from_models([tiny_model(**changes | member) for member in members])


class MeanOracle:
    """The mean of the oracles' probabilities."""

    def __init__(self, ensemble: CopyNetEnsemble) -> None:
        self.oracles = [Oracle(member) for member in ensemble.members]

    def run(self, source: list[int], words: list[int]) -> tuple[list[dict[int, float]], list[list[float]]]:
        """p(y) after each word, and the probability of copying from each position."""
        traces = [oracle.run(source, words) for oracle in self.oracles]
        size = len(traces)
        steps = [
            {
                # a model that does not copy has no slots
                word: sum(trace.probs[t].get(word, 0.0) for trace in traces) / size
                for word in {word: None for trace in traces for word in trace.probs[t]}
            }
            for t in range(len(words))
        ]
        copied = [
            [
                sum(trace.copy_probs[t][j] for trace in traces if len(trace.copy_probs[t])) / size
                for j in range(len(source))
            ]
            for t in range(len(words))
        ]
        return steps, copied

    def next_probs(self, source: list[int], words: list[int]) -> dict[int, float]:
        """p(y) of what `generate` may write after these words."""
        return {
            word: prob
            for word, prob in self.run(source, [START, *words])[0][-1].items()
            if word not in (PAD, START) and (word < V or word in source)
        }


def search_by_hand(oracle: MeanOracle, source: list[int], num_beams: int, steps: int) -> list[int]:
    """The best output of a beam search that scores an output by its mean log-probability."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for _ in range(steps):
        longer = [
            (score + math.log(prob), [*words, word])
            for score, words in live
            for word, prob in oracle.next_probs(source, words).items()
        ]
        longer.sort(key=lambda each: -each[0])
        finished += [(score / len(words), words) for score, words in longer[:num_beams] if words[-1] == EOS]
        live = [each for each in longer[: 2 * num_beams] if each[1][-1] != EOS][:num_beams]
    finished += [(score / len(words), words) for score, words in live]
    return max(finished, key=lambda each: each[0])[1]


def near(output: Prediction) -> dict[str, Any]:
    """The fields of a prediction up to rounding."""
    rounded = ("copy_shares", "score", "confidence", "word_scores")
    return vars(output) | {name: pytest.approx(getattr(output, name), abs=1e-5) for name in rounded}


# ---- p(y)


@pytest.mark.parametrize(
    ("members", "side"),
    [(MEMBERS, "left"), *((members, "right") for members in MIXTURES.values())],
    ids=["left", *MIXTURES],
)
def test_probabilities_are_the_mean_of_the_oracles(members: list[dict[str, Any]], side: str) -> None:
    ensemble = make_ensemble(members).double()
    words = padded([[START, *row[:-1]] for row in TARGETS], PAD)
    output = ensemble(**sources(side=side), decoder_input_ids=words)
    assert output.logits.exp().sum(-1).sub(1).abs().max() < 1e-9
    oracle, width = MeanOracle(ensemble), max(map(len, SOURCES))
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        steps, copied = oracle.run(source, [START, *target[:-1]])
        start = 0 if side == "right" else width - len(source)
        for t, probs in enumerate(steps):
            found = output.logits[row, t].exp()
            assert found[list(probs)].tolist() == pytest.approx(list(probs.values()), abs=1e-9)
            others = [word for word in range(len(found)) if word not in probs]
            assert found[others].sum() < 1e-20  # slots that the row's source does not own
            positions = output.copy_probs[row, t]
            assert positions[start : start + len(source)].tolist() == pytest.approx(copied[t], abs=1e-9)
            assert positions.sum().item() == pytest.approx(sum(copied[t]), abs=1e-9)
            assert output.copy_mass[row, t].item() == pytest.approx(sum(copied[t]), abs=1e-9)


@mixtures
def test_the_loss_is_minus_the_logarithm_of_the_mean(members: list[dict[str, Any]]) -> None:
    ensemble = make_ensemble(members).double()
    labels = padded(TARGETS, -100)
    oracle, losses = MeanOracle(ensemble), []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        for word, probs in zip(target, oracle.run(source, [START, *target[:-1]])[0], strict=True):
            losses.append(-math.log(probs.get(word, probs[UNK])))
    assert ensemble(**sources(), labels=labels).loss.item() == pytest.approx(sum(losses) / len(losses), abs=1e-9)
    summed = ensemble(**sources(), labels=labels, num_items_in_batch=torch.tensor(7)).loss
    assert summed.item() == pytest.approx(sum(losses) / 7, abs=1e-9)


def test_a_target_that_the_source_lacks_is_unk() -> None:
    for members in ([{"seed": 1}, {"seed": 2}], [{"seed": 1, "copy_mechanism": "none"}] * 2):
        ensemble, inputs = make_ensemble(members), sources([[5, 6], [7, 8]])
        losses = [
            ensemble(**inputs, labels=torch.tensor([[5, word, EOS], [word, 4, EOS]])).loss.item() for word in (UNK, 14)
        ]
        assert losses[0] == losses[1] < 30


# ---- search


@mixtures
@pytest.mark.parametrize(("num_beams", "side"), [(1, "right"), (3, "left")])
def test_searches_give_what_a_search_by_hand_gives(members: list[dict[str, Any]], num_beams: int, side: str) -> None:
    ensemble = make_ensemble(members)
    oracle = MeanOracle(ensemble)
    expected = [search_by_hand(oracle, source, num_beams, 5) for source in SOURCES]
    found = ensemble.generate(
        **sources(side=side), num_beams=num_beams, max_new_tokens=5, early_stopping="never" if num_beams > 1 else None
    )
    assert [until_end(row) for row in found.tolist()] == expected


def test_the_mean_finds_other_outputs_than_each_model() -> None:
    """Or the tests of the search would show little."""
    ensemble = make_ensemble()
    outputs = [each.generate(**sources(), num_beams=3, max_new_tokens=6) for each in (ensemble, *ensemble.members)]
    assert len({str(output.tolist()) for output in outputs}) == 4
    assert (outputs[0] >= V).any()  # unseen words are copied
    assert len({len(until_end(row)) for row in outputs[0].tolist()}) > 2  # rows end at different steps


def test_a_model_with_fewer_words_for_each_source_allows_what_another_one_does() -> None:
    restricted = {"copy_mechanism": "gated", "aligned_words": 1, "frequent_words": 5}
    members = [{"seed": 1} | restricted, {"seed": 2} | restricted]
    ensemble = make_ensemble(members)
    for member, word in zip(ensemble.members, (7, 9), strict=True):
        member.alignments.table.data[:] = word
    encoded = ensemble.get_encoder()(**sources())
    allowed = ensemble.find_allowed_words(encoded)
    assert allowed[0].nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 7, 9]
    mixed = make_ensemble([*members, {"seed": 3}])
    assert mixed.find_allowed_words(mixed.get_encoder()(**sources())) is None


# ---- traces


@mixtures
def test_a_trace_has_the_mean_copy_probabilities_and_their_share_of_the_mean(members: list[dict[str, Any]]) -> None:
    ensemble = make_ensemble(members)
    sequences = ensemble.generate(**sources(), max_new_tokens=5, num_beams=2, num_return_sequences=2)
    trace, oracle = ensemble.trace_copies(sequences, **sources()), MeanOracle(ensemble)
    for row, words in enumerate(map(until_end, sequences.tolist())):
        source = SOURCES[row // 2]
        steps, copied = oracle.run(source, [START, *words[:-1]])
        for t, word in enumerate(words):
            here = [j for j, other in enumerate(source) if other == word]
            from_here = sum(copied[t][j] for j in here)
            assert trace.token_probs[row, t].item() == pytest.approx(steps[t][word], abs=1e-5)
            assert trace.copied[row, t].item() == pytest.approx(from_here / steps[t][word], abs=1e-4)
            assert trace.copy_probs[row, t, : len(source)].tolist() == pytest.approx(copied[t], abs=1e-5)
            best = max(here, key=lambda j: copied[t][j], default=-1)
            assert trace.source_positions[row, t] == best


def test_attention_is_the_mean_where_all_members_attend() -> None:
    ensemble = make_ensemble()
    words = torch.full((len(SOURCES), 2), START)
    options = {**sources(), "decoder_input_ids": words, "output_attentions": True}
    attentions = [member(**options).cross_attentions[0] for member in ensemble.members]
    found = ensemble(**options).cross_attentions[0]
    assert torch.allclose(found, torch.stack(attentions).mean(0), atol=1e-6)
    mixed = make_ensemble([{"seed": 1}, {"seed": 2, "attention": False}])
    assert mixed(**options).cross_attentions is None
    assert mixed.trace_copies(words, **sources()).cross_attentions is None


def test_of_models_that_do_not_copy_the_probabilities_are_traced() -> None:
    ensemble = make_ensemble([{"seed": 1, "copy_mechanism": "none"}, {"seed": 2, "copy_mechanism": "none"}])
    assert not ensemble.config.copies
    words = torch.tensor([[START, 5, EOS]])
    trace = ensemble.trace_copies(words, input_ids=torch.tensor([[5]]))
    parts = [member.trace_copies(words, input_ids=torch.tensor([[5]])) for member in ensemble.members]
    assert torch.allclose(trace.token_probs, sum(part.token_probs for part in parts) / 2)
    assert not trace.copied.any()
    (outputs,) = predict(ensemble, tiny_tokenizer(), TEXTS[:1], max_new_tokens=4)
    assert not any(outputs[0].copied)


# ---- other inputs


def test_members_over_a_transformers_encoder_and_over_words(tmp_path: Path) -> None:
    name = save_encoder(tmp_path / "bert")
    tokenizer = word_tokenizer(name)
    over = copynet_over(name, tokenizer)
    changes = {name: getattr(over.config, name) for name in ("vocab_size", "max_source_oov")}
    plain = tiny_model(**changes)
    ensemble = CopyNetEnsemble.from_models([over, plain])
    batch = batch_of(tokenizer)
    labels = batch.pop("labels")
    words = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = [over(**batch, labels=labels).logits, plain(**words, labels=labels).logits]
    found = ensemble(**batch, labels=labels).logits.exp()
    assert torch.allclose(found, torch.stack(expected).exp().mean(0), atol=1e-6)
    options = {"num_beams": 2, "max_new_tokens": 5}
    together = predict(ensemble, tokenizer, ENCODER_TEXTS, **options)
    for outputs, text in zip(together, ENCODER_TEXTS, strict=True):
        (alone,) = predict(ensemble, tokenizer, [text], **options)
        assert [vars(output) for output in outputs] == [near(output) for output in alone]
    save_parts(tmp_path / "saved", ensemble, tokenizer)
    assert predict(*load_model(str(tmp_path / "saved"), "cpu"), ENCODER_TEXTS, **options) == together


def test_members_that_retrieve_facts_beside_one_that_reads_them_as_text() -> None:
    """Of a fact, CoreQA writes from its object alone; the other model copies any word of it."""
    ensemble = make_ensemble([{"seed": 1, "copy_mechanism": "retrieval"}, {"seed": 2}])
    tokenizer, facts = tiny_tokenizer(), [[("Otto", "b", "Lima")], None]
    texts = ["a X b", "c Y"]
    inputs = tokenizer(texts, facts=facts, padding=True, return_tensors="pt")
    words = torch.full((2, 1), START)
    expected = [member(**inputs, decoder_input_ids=words).logits.exp() for member in ensemble.members]
    found = ensemble(**inputs, decoder_input_ids=words).logits.exp()
    assert torch.allclose(found, torch.stack(expected).mean(0), atol=1e-6)
    encoded = ensemble.get_encoder()(**inputs)
    assert encoded.source_mask[0].tolist() == [True] * 6
    together = predict(ensemble, tokenizer, texts, facts=facts, num_beams=2, max_new_tokens=4)
    for outputs, text, row_facts in zip(together, texts, facts, strict=True):
        (alone,) = predict(ensemble, tokenizer, [text], facts=[row_facts], num_beams=2, max_new_tokens=4)
        assert [vars(output) for output in outputs] == [near(output) for output in alone]


# ---- saved and loaded


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble and its tokenizer, saved."""
    folder = tmp_path_factory.mktemp("saved") / "my-ensemble"
    ensemble = make_ensemble()
    ensemble.generation_config.update(num_beams=2, forbid_unk=True, max_new_tokens=6)
    return save_parts(folder, ensemble, tiny_tokenizer())


def test_a_saved_ensemble_loads_by_the_auto_classes_and_is_saved_again_byte_for_byte(
    saved: Path, tmp_path: Path
) -> None:
    loaded = AutoModelForSeq2SeqLM.from_pretrained(saved)
    assert type(loaded) is CopyNetEnsemble
    assert [member.config.copy_mechanism for member in loaded.members] == ["copynet", "copynet", "pointer_generator"]
    assert not loaded.training
    ensemble = make_ensemble()
    options = {"num_beams": 2, "forbid_unk": True, "max_new_tokens": 6}
    assert torch.equal(loaded.generate(**sources()), ensemble.generate(**sources(), **options))
    tied = loaded.members[1]
    assert tied.lm_head.weight is tied.get_input_embeddings().weight
    save_parts(tmp_path / "my-ensemble", loaded, tiny_tokenizer())
    for path in saved.iterdir():
        assert (tmp_path / "my-ensemble" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_config_holds_those_of_the_members_once(saved: Path) -> None:
    config = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["vocab_size"], len(config["members"])) == ("copynet_ensemble", V, 3)
    assert config["members"][1]["hidden_size"] == 9
    assert not {"auto_map", "custom_pipelines", "architectures", "transformers_version"} & config["members"][0].keys()
    loaded = AutoConfig.from_pretrained(saved)
    assert type(loaded) is CopyNetEnsembleConfig
    assert CopyNetEnsembleConfig.from_dict(loaded.to_dict()).to_dict() == loaded.to_dict()


def test_a_new_ensemble_leaves_its_models_as_they_were() -> None:
    models = [tiny_model(seed=1), tiny_model(seed=2)]
    models[0].generation_config.update(num_beams=4, forbid_unk=True, max_new_tokens=6)
    weights = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
    configs = [model.config.to_dict() for model in models]
    ensemble = CopyNetEnsemble.from_models(models)
    assert ensemble.members[0] is models[0]  # the weights are shared
    assert (ensemble.generation_config.num_beams, ensemble.generation_config.forbid_unk) == (4, True)
    ensemble.generation_config.num_beams = 1
    assert models[0].generation_config.num_beams == 4
    for model, config, values in zip(models, configs, weights, strict=True):
        assert model.config.to_dict() == config
        assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())


def test_the_card_lists_the_members(saved: Path) -> None:
    card = ModelCard.load(saved / "README.md")
    assert {"copynet", "ensemble", "pointer_generator"} <= set(card.data.tags)
    assert "an ensemble of 3 models" in card.text
    assert "| `copy_mechanism` | copynet | copynet | pointer_generator |" in card.text
    assert "| `hidden_size` | 7 | 9 | 7 |" in card.text
    assert "pipeline(" in card.text
    assert "{{" not in card.text
    assert "None" not in card.text


# ---- the commands


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of one tokenizer, saved."""
    parent = tmp_path_factory.mktemp("members")
    search = {"num_beams": 3, "forbid_unk": True, "max_new_tokens": 5}
    return [save_tiny_model(parent / name, seed, search) for name, seed in (("a", 1), ("b", 2))]


def run_ensemble(models: list[Path], output: Path, *more: str) -> int:
    return main(["ensemble", "--models", *map(str, models), "--output_dir", str(output), *more])


def test_the_command_writes_a_folder_that_the_others_read(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "my-ensemble"
    assert run_ensemble(folders, output) == 0
    assert f"saved in {output}" in capsys.readouterr().out
    model, tokenizer = load_model(str(output), "cpu")
    assert (model.generation_config.num_beams, model.generation_config.max_new_tokens) == (3, 5)
    expected = [outputs[0].text for outputs in predict(model, tokenizer, TEXTS)]
    pipe = pipeline("copy-text2text", model=str(output))
    assert [row[0]["generated_text"] for row in pipe(TEXTS)] == expected
    assert main(["generate", "--model", str(output), "--text", *TEXTS]) == 0
    assert capsys.readouterr().out.splitlines() == expected
    pairs = [{"text": text, "summary": summary} for text, summary in zip(TEXTS, expected, strict=True)]
    file = write_rows(tmp_path / "pairs.jsonl", pairs)
    assert main(["evaluate", "--model", str(output), "--test_file", file]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["exact_match"] == 100
    assert "copy_mode_fraction" in scores


@pytest.mark.parametrize("count", [MIN_PAIRS - 1, 24])
def test_the_command_calibrates_on_validation_pairs(folders: list[Path], tmp_path: Path, count: int) -> None:
    """Every second output is right. The column is the one that the first model remembers."""
    output, first = tmp_path / "my-ensemble", tmp_path / "first"
    shutil.copytree(folders[0], first)
    tokenizer = CopyNetTokenizer.from_pretrained(first)
    remember_options(tokenizer, {"text_column": "question"})
    tokenizer.save_pretrained(first)
    texts = [f"a {'b ' * (number % 5)}w{number} c" for number in range(count)]
    models = [load_model(str(folder), "cpu")[0] for folder in folders]
    best = [outputs[0] for outputs in predict(CopyNetEnsemble.from_models(models), tokenizer, texts)]
    targets = [each.text if number % 2 else "other" for number, each in enumerate(best)]
    rows = [{"id": "7", "question": text, "answer": target} for text, target in zip(texts, targets, strict=True)]
    file = write_rows(tmp_path / "validation.jsonl", rows)
    assert run_ensemble([first, folders[1]], output, f"--validation_file={file}", "--summary_column=answer") == 0
    calibration = CopyNetEnsembleConfig.from_pretrained(output).calibration
    if count < MIN_PAIRS:
        assert calibration is None
        return
    right = [number % 2 == 1 for number in range(count)]
    expected = fit_calibration([each.score for each in best], right)  # type: ignore[misc]
    assert calibration == pytest.approx(list(expected), rel=1e-4)  # type: ignore[arg-type]
    pairs = [{"text": row["question"], "summary": row["answer"]} for row in rows]
    assert calibrate_model(CopyNetEnsemble.from_models(models), tokenizer, pairs) == pytest.approx(calibration)
    (outputs,) = predict(*load_model(str(output), "cpu"), texts[:1])
    assert outputs[0].confidence == pytest.approx(calibrate(best[0].score, expected))  # type: ignore[arg-type]


def test_the_guides_commands_and_code_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[1] / "docs" / "choosing.md").read_text(encoding="utf-8")
    section = guide.split("\n## Ensembles\n")[1].split("\n## ")[0]
    commands = re.findall(r"^copynet-hf (.*)$", section, re.MULTILINE)
    (code,) = (text for language, text in find_blocks(section) if language == "python")
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3):
        save_tiny_model(tmp_path / f"model-{seed}", seed)
    for name in ("validation", "test"):
        Path(f"{name}.jsonl").write_text('{"text": "a X", "summary": "X"}\n', encoding="utf-8")
    assert [command.split()[0] for command in commands] == ["ensemble", "evaluate"]
    assert [main(command.split()) for command in commands] == [0, 0]
    weights = Path("my-ensemble", "model.safetensors").read_bytes()
    exec(compile(code, "docs/choosing.md", "exec"), {})
    assert Path("my-ensemble", "model.safetensors").read_bytes() == weights


def change_tokenizer(folder: Path, target: Path, change: str) -> Path:
    """A copy of a model whose tokenizer differs."""
    shutil.copytree(folder, target)
    tokenizer: Any = CopyNetTokenizer.from_pretrained(folder)
    if change == "word":
        vocab = json.loads((target / "vocab.json").read_text(encoding="utf-8"))
        words = ["other" if word == "d" else word for word in vocab]
        (target / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}), encoding="utf-8")
    elif change == "order":
        vocab = json.loads((target / "vocab.json").read_text(encoding="utf-8"))
        swapped = {"a": vocab["b"], "b": vocab["a"]}
        (target / "vocab.json").write_text(json.dumps(vocab | swapped), encoding="utf-8")
    elif change == "segmenter":
        CopyNetTokenizer(tokenizer.get_vocab(), segmenter="char", max_source_oov=4).save_pretrained(target)
    else:
        name, _, value = change.partition("=")
        setattr(tokenizer, name, {"False": False, "True": True}.get(value, value))
        tokenizer.init_kwargs[name] = getattr(tokenizer, name)
        tokenizer.save_pretrained(target)
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("word", "other has the word 'other' where .*a has 'd'"),
        ("order", "other has the word 'b' where .*a has 'a'"),
        ("segmenter", "other has the segmenter 'char' where .*a has 'whitespace'"),
        ("truncation_side=left", "other has the truncation_side 'left' where .*a has 'right'"),
        ("fold_whitespace=True", "other has the fold_whitespace 'True' where .*a has 'False'"),
        ("split_special_tokens=False", "other has the split_special_tokens 'False' where .*a has 'True'"),
    ],
)
def test_models_of_different_tokenizers_are_refused(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    other = change_tokenizer(folders[1], tmp_path / "other", change)
    argv = ("ensemble", "--models", folders[0], other, "--output_dir", tmp_path / "out")
    line = refused(capsys, *argv)
    assert re.search(message, line), line
    assert f"train the models with one tokenizer, by --tokenizer_name {folders[0]}" in line
    assert not (tmp_path / "out").exists()


def test_pieces_are_those_of_every_member(tmp_path: Path) -> None:
    name = save_encoder(tmp_path / "bert")
    folders = [str(tmp_path / str(limit)) for limit in (24, 16)]
    for folder, limit in zip(folders, (24, 16), strict=True):
        tokenizer = word_tokenizer(name, encoder_max_length=limit)
        save_parts(folder, copynet_over(name, tokenizer), tokenizer)
    _, tokenizer = join_models(folders)
    assert tokenizer.encoder_tokenizer.max_length == 16
    path = Path(folders[1]) / "encoder_tokenizer.json"
    other = json.loads(path.read_text(encoding="utf-8"))
    other["normalizer"]["lowercase"] = True
    path.write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(ValueError, match=r'has the normalizer .*"lowercase": true.* where '):
        join_models(folders)


def test_the_command_checks_its_arguments(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--models" in refused(capsys, "ensemble", "--output_dir", tmp_path / "out")
    assert "pass two or more" in refused(capsys, "ensemble", "--models", folders[0], "--output_dir", tmp_path / "out")
    assert "no --output_dir" in refused(capsys, "ensemble", "--models", *folders)
    line = refused(capsys, "ensemble", "--models", *folders, "--output_dir", folders[0])
    assert "already holds config.json" in line
    assert "no such folder" in refused(
        capsys, "ensemble", "--models", folders[0], tmp_path / "none", "--output_dir", tmp_path / "out"
    )


def test_an_ensemble_is_neither_exported_nor_trained_nor_joined(
    saved: Path, folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    line = refused(capsys, "export", "--model", saved, "--output_dir", tmp_path / "onnx")
    assert "an ensemble cannot be exported: export one of its members" in line
    line = refused(capsys, "generate", "--model", saved, "--backend", "onnx", "--text", "a X")
    assert "is an ensemble, which has no graphs: export one of its members" in line
    line = refused(capsys, "serve", "--model", saved)
    assert f"{saved} is an ensemble, which has no graphs: export one of its members" in line
    pairs = tmp_path / "train.jsonl"
    pairs.write_text('{"text": "a X", "summary": "X"}\n' * 8, encoding="utf-8")
    argv = ("--train_file", pairs, "--model_name_or_path", saved, "--output_dir", tmp_path / "trained")
    line = refused(capsys, "train", *argv)
    assert "is an ensemble: train each model by itself, and join them with copynet-hf ensemble" in line
    line = refused(capsys, "ensemble", "--models", folders[0], saved, "--output_dir", tmp_path / "out")
    assert "models[1] is a CopyNetEnsemble: pass CopyNetForConditionalGeneration models" in line


# ---- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 15}, r"vocab_size is 13 in members\[0\] and 15 in members\[1\]"),
        ({"max_source_oov": 5}, r"max_source_oov is 4 in members\[0\] and 5 in members\[1\]"),
        ({"unk_token_id": 8}, r"unk_token_id is 3 in members\[0\] and 8 in members\[1\]"),
        ({"eos_token_id": 4}, r"eos_token_id is 2 in members\[0\] and 4 in members\[1\]"),
        ({"feature_vocab_size": 6}, r"feature_vocab_size is 0 in members\[0\] and 6 in members\[1\]"),
    ],
)
def test_members_with_another_vocabulary_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}: train the members with one tokenizer"):
        make_ensemble([{}, changes])


def test_what_is_no_ensemble_is_refused() -> None:
    with pytest.raises(ValueError, match="members is empty: pass one or more"):
        CopyNetEnsemble.from_models([])
    with pytest.raises(ValueError, match="members is empty: pass one or more"):
        CopyNetEnsembleConfig()
    with pytest.raises(ValueError, match=r"models\[0\] is a CopyNetModel: pass CopyNetForConditionalGeneration"):
        CopyNetEnsemble.from_models([tiny_model().model])
    model = tiny_model()
    with pytest.raises(ValueError, match=r"models\[2\] is models\[0\]: pass each model once"):
        CopyNetEnsemble.from_models([model, tiny_model(seed=1), model])
    with pytest.raises(ValueError, match="members is 'x': pass a list"):
        CopyNetEnsembleConfig(members="x")
    with pytest.raises(ValueError, match=r"members\[0\] is 'x': pass a CopyNetConfig or its dict"):
        CopyNetEnsembleConfig(members=["x"])
    with pytest.raises(ValueError, match="vocab_size is 14, but 13 in the members: leave vocab_size out"):
        CopyNetEnsembleConfig(members=[tiny_model().config], vocab_size=14)
    with pytest.raises(ValueError, match=r"members\[1\] has copy_mechanism='pointer', which has no vocabulary"):
        make_ensemble([{}, {"copy_mechanism": "pointer"}])


def test_the_state_of_other_models_is_refused() -> None:
    ensemble, words = make_ensemble(), torch.full((len(SOURCES), 1), START)
    cache = ensemble.members[0](**sources(), decoder_input_ids=words, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="the cache has 1 layers, not 3: pass the CopyNetCache of an earlier"):
        ensemble(**sources(), decoder_input_ids=words, past_key_values=cache)
    cache = ensemble(**sources(), decoder_input_ids=words, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="the cache has 3 layers, not 1: pass the CopyNetCache of an earlier"):
        ensemble.members[0](**sources(), decoder_input_ids=words, past_key_values=cache)
    encoded = ensemble.members[0].get_encoder()(**sources())
    with pytest.raises(ValueError, match="encoder_outputs is a CopyNetEncoderOutput: pass what the ensemble"):
        ensemble(encoder_outputs=encoded, decoder_input_ids=words)


def test_the_vocabulary_of_an_ensemble_is_not_resized() -> None:
    with pytest.raises(ValueError, match="an ensemble's vocabulary cannot be resized: resize each model"):
        make_ensemble().resize_token_embeddings(20)


@pytest.mark.parametrize(
    ("members", "message"), [(None, "members is empty"), ([{"hidden_size": -1}], "hidden_size=-1 must be")]
)
def test_a_damaged_config_is_refused_in_one_line(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], members: Any, message: str
) -> None:
    folder = shutil.copytree(saved, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"members": members}), encoding="utf-8")
    line = refused(capsys, "generate", "--model", folder, "--text", "a")
    assert line.startswith(f"copynet-hf generate: {folder}")
    assert message in line
