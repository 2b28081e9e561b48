"""Training over a Transformers encoder: frozen, at its own learning rate, with cached states and given embeddings."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import find_blocks, save_parts
from tiny_encoders import (
    SUMMARIES,
    TEXTS,
    batch_of,
    copynet_over,
    save_encoder,
    word_tokenizer,
)
from transformers import AutoModel

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.arguments import TrainArguments, build_arguments
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model
from copynet_hf.training.defaults import complete_arguments
from copynet_hf.training.encoder_training import cached_encoder_states
from copynet_hf.training.run import train_from_arguments
from copynet_hf.training.word_vectors import average_piece_embeddings, read_word_vectors

SIZES = {"hidden_size": 14, "attention_size": 10, "dropout": 0.0}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def arguments(bert, tmp_path):
    """Of a run of four steps over four pairs."""
    rows = [json.dumps({"text": text, "summary": summary}) for text, summary in zip(TEXTS, SUMMARIES, strict=True)]
    for split in ("train", "validation"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return {
        "train_file": str(tmp_path / "train.jsonl"),
        "output_dir": str(tmp_path / "model"),
        "encoder_name_or_path": bert,
        "segmenter": "whitespace",
        "min_frequency": 1,
        "max_steps": 4,
        "warmup_steps": 0,
        "learning_rate": 1e-2,
        "report_to": "none",
        "save_strategy": "no",
        "max_target_length": 8,
        **SIZES,
    }


def trained(arguments):
    train_from_arguments(arguments)
    return load_model(arguments["output_dir"], device="cpu")


def encoder_weights(model):
    return dict(model.get_encoder().text_encoder.state_dict())


def test_a_run_trains_decoder_and_encoder_and_saves_both(arguments, bert):
    model, tokenizer = trained(arguments)
    before = AutoModel.from_pretrained(bert, add_pooling_layer=False).state_dict()
    after = encoder_weights(model)
    changes = [(after[name] - weight).abs().max().item() for name, weight in before.items()]
    # four steps of Adam, of at most the decaying learning rate each
    assert 1e-5 < max(changes) < 4 * 5e-5
    assert model.config.memory_size == model.config.encoder.hidden_size == 16
    (outputs,) = predict(model, tokenizer, TEXTS[:1], num_beams=2, max_new_tokens=4)
    assert outputs[0].source_words == TEXTS[0].split()
    card = (Path(arguments["output_dir"]) / "README.md").read_text(encoding="utf-8")
    assert f"recurrent decoder over the encoder {Path(bert).name} (bert) from texts" in card
    assert "| `encoder_pooling` | mean |" in card
    assert "| `encoder_gru` | True |" in card
    assert "no knowledge beyond them and its encoder's" in card
    assert str(Path(bert).parent) not in card


def test_groups_keep_their_weight_decay_and_all_weights(arguments):
    from copynet_hf.training.encoder_training import split_parameter_groups

    model = copynet_over(arguments["encoder_name_or_path"], word_tokenizer(arguments["encoder_name_or_path"]))
    names = {id(weight): name for name, weight in model.named_parameters()}
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.5)
    split_parameter_groups(optimizer, names, 0.25)
    seen = []
    for group in optimizer.param_groups:
        for weight in group["params"]:
            assert group["weight_decay"] == (0.1 if weight.ndim > 1 else 0.0)
            assert group["lr"] == (0.25 if "text_encoder" in names[id(weight)] else 0.5)
            seen.append(id(weight))
    assert sorted(seen) == sorted(names)


def test_a_frozen_encoder_stays_as_it_was_and_cached_states_train_the_same_model(arguments, bert, tmp_path):
    """Up to the rounding of batches of other sizes."""
    arguments |= {"freeze_encoder": True, "num_train_epochs": 2, "max_steps": -1, "per_device_train_batch_size": 2}
    arguments |= {"validation_file": arguments["train_file"], "eval_steps": 2}
    plain, _ = trained(arguments)
    cached, _ = trained(arguments | {"cache_encoder_states": True, "output_dir": str(tmp_path / "cached")})
    before = AutoModel.from_pretrained(bert, add_pooling_layer=False).state_dict()
    for model in (plain, cached):
        after = encoder_weights(model)
        assert all(torch.equal(after[name], weight) for name, weight in before.items())
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(cached.state_dict()[name], weight, rtol=1e-3, atol=1e-4)


def test_the_encoder_runs_once_for_each_text(bert, tmp_path):
    tokenizer = word_tokenizer(bert)
    model = copynet_over(bert, tokenizer)
    model.freeze_encoder()
    encoder = model.get_encoder()
    batches = [batch_of(tokenizer), batch_of(tokenizer, padding_side="left", pad_to_multiple_of=16)]
    batches.append({name: tensor[[2, 0, 2]] for name, tensor in batches[0].items()})
    expected = [model(**batch).logits for batch in batches]
    rows = []
    encoder.text_encoder.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    with cached_encoder_states(model, tmp_path):
        for batch, logits in zip(batches, expected, strict=True):
            torch.testing.assert_close(model(**batch).logits, logits, rtol=1e-4, atol=1e-4)
            with torch.autocast("cpu", torch.bfloat16):
                model.train()(**batch).loss.backward()
            model.eval()
        other = tokenizer(["", "call nine"], padding=True, return_tensors="pt")
        generated = model.generate(**other, max_new_tokens=3)
    assert rows == [4, 2]
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(model.generate(**other, max_new_tokens=3), generated)
    assert rows == [4, 2, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cache_encoder_states": True}, "--cache_encoder_states keeps states.*: pass --freeze_encoder"),
        ({"freeze_encoder": True, "encoder_learning_rate": 0.1}, "--encoder_learning_rate is 0.1: --freeze_encoder"),
        ({"encoder_learning_rate": 0.0}, "--encoder_learning_rate is 0: use more than 0"),
        ({"encoder_learning_rate": float("nan")}, "--encoder_learning_rate is nan: use more than 0"),
        ({"embeddings_from_encoder": True, "embedding_file": "x"}, "both give word embeddings: leave one out"),
        ({"embedding_file": "none.txt"}, "--embedding_file none.txt: no such file"),
        ({"embedding_file": __file__}, r"\.py holds none of the \d+ words of the vocabulary: pass vectors"),
        ({"embeddings_from_encoder": True, "embedding_size": 5}, "--embedding_size is 5, but .* have 16 numbers"),
        ({"model_name_or_path": "BERT"}, "--encoder_name_or_path is .*, but --model_name_or_path gives the whole"),
        ({"max_source_length": 0}, "--max_source_length is 0"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments, changes, message, bert, tmp_path):
    if "model_name_or_path" in changes:
        tokenizer = word_tokenizer(bert)
        save_parts(tmp_path / "saved", copynet_over(bert, tokenizer), tokenizer)
        changes = {"model_name_or_path": str(tmp_path / "saved"), "min_frequency": None}
    with pytest.raises(ValueError, match=message):
        train_from_arguments(arguments | changes)
    assert not Path(arguments["output_dir"]).exists() or not list(Path(arguments["output_dir"]).glob("*.safetensors"))


@pytest.mark.parametrize("name", ["freeze_encoder", "cache_encoder_states", "embeddings_from_encoder"])
def test_arguments_of_an_encoder_need_one(arguments, name):
    del arguments["encoder_name_or_path"]
    with pytest.raises(ValueError, match=rf"--{name} .*pass --encoder_name_or_path"):
        train_from_arguments(arguments | {name: True})
    with pytest.raises(ValueError, match=r"--encoder_pooling is for a Transformers encoder: pass"):
        train_from_arguments(arguments | {"encoder_pooling": "last"})


@pytest.mark.parametrize(
    ("changes", "rate", "encoder_rate"),
    [({}, 0.01, 5e-5), ({"encoder_learning_rate": 0.5}, 0.01, 0.5), ({"freeze_encoder": True}, 0.01, None)],
)
def test_learning_rates_over_an_encoder(arguments, changes, rate, encoder_rate):
    pairs = {"train": Dataset.from_dict({"text": TEXTS, "summary": SUMMARIES})}
    given = build_arguments(TrainArguments, arguments | changes)
    args, training_args = complete_arguments(given, arguments | changes, pairs)
    assert (training_args.learning_rate, args.encoder_learning_rate) == (rate, encoder_rate)
    del arguments["learning_rate"]
    assert complete_arguments(given, arguments | changes, pairs)[1].learning_rate == 2e-3
    alone = replace(given, encoder_gru=False)
    assert complete_arguments(alone, arguments | changes, pairs)[1].learning_rate == 1e-3


def test_a_run_resumes_where_it_stopped(arguments, tmp_path):
    options = {"save_strategy": "steps", "save_steps": 2, "logging_steps": 1, "encoder_learning_rate": 1e-3}
    whole, _ = trained(arguments | options)
    checkpoint = str(Path(arguments["output_dir"]) / "checkpoint-2")
    resumed, _ = trained(
        arguments | options | {"output_dir": str(tmp_path / "resumed"), "resume_from_checkpoint": checkpoint}
    )
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], weight)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_resumed_run_trains_the_encoder_as_before_or_not_at_all(arguments, is_frozen):
    saves = {"save_strategy": "steps", "save_steps": 2}
    train_from_arguments(arguments | saves | {"max_steps": 2, "freeze_encoder": is_frozen})
    changed = arguments | saves | {"resume_from_checkpoint": "auto", "freeze_encoder": not is_frozen}
    with pytest.raises(ValueError, match=f"--freeze_encoder is {not is_frozen}, but {is_frozen} in the run of "):
        train_from_arguments(changed)


def test_training_continues_from_a_saved_model(arguments, tmp_path):
    first, _ = trained(arguments)
    again = arguments | {"model_name_or_path": arguments["output_dir"], "output_dir": str(tmp_path / "again")}
    del again["encoder_name_or_path"], again["min_frequency"]
    model, tokenizer = trained(again | {"freeze_encoder": True})
    assert tokenizer.encoder_tokenizer is not None
    assert all(torch.equal(weight, encoder_weights(first)[name]) for name, weight in encoder_weights(model).items())


def test_mixed_precision_trains_every_weight(bert):
    tokenizer = word_tokenizer(bert)
    model = copynet_over(bert, tokenizer).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**batch_of(tokenizer)).loss
    loss.backward()
    assert loss.isfinite()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


def test_adapters_at_the_encoder_alone_are_trained_and_merged(bert):
    peft = pytest.importorskip("peft")
    tokenizer = word_tokenizer(bert)
    config = peft.LoraConfig(target_modules=r".*text_encoder.*\.(query|value)", r=2, modules_to_save=["decoder"])
    model = peft.get_peft_model(copynet_over(bert, tokenizer), config).double()
    batch = batch_of(tokenizer)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.3)
    model.train()(**batch).loss.backward()
    trained_names = [name for name, weight in model.named_parameters() if weight.grad is not None]
    assert all("lora_" in name or "modules_to_save" in name for name in trained_names)
    assert sum("lora_A" in name for name in trained_names) == 4  # query and value of two layers
    assert not model.base_model.model.get_encoder().is_frozen  # its dropout stays on
    model.eval()
    logits = model(**batch).logits
    torch.testing.assert_close(model.merge_and_unload()(**batch).logits, logits)


# --- embeddings -----------------------------------------------------------------------------------------------------


def test_embeddings_start_from_the_encoders_pieces(arguments, bert, caplog):
    caplog.set_level(logging.INFO)
    arguments |= {"embeddings_from_encoder": True, "learning_rate": 1e-12, "encoder_learning_rate": 1e-12}
    model, tokenizer = trained(arguments)
    table = AutoModel.from_pretrained(bert).get_input_embeddings().weight
    encode = tokenizer.encoder_tokenizer.backend.encode
    vocabulary = {word: index for word, index in tokenizer.get_vocab().items() if index > 3}
    for word, index in vocabulary.items():
        pieces = encode([word], is_pretokenized=True, add_special_tokens=False).ids
        expected = sum(table[piece] for piece in pieces) / len(pieces)
        torch.testing.assert_close(model.get_input_embeddings().weight[index], expected)
    assert f"{bert}: {len(vocabulary)} of {len(vocabulary)} words found, 0 missing" in caplog.text


def test_words_that_the_encoder_does_not_know_get_no_embedding_from_it(bert):
    tokenizer = word_tokenizer(bert)
    model = CopyNetForConditionalGeneration.from_encoder_pretrained(bert, tokenizer=tokenizer)
    found = average_piece_embeddings(model, tokenizer, ["nine", "\N{SNOWMAN}"])
    assert list(found) == ["nine"]


HEADERS = {"word2vec": "3 5\n", "GloVe": ""}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_embeddings_start_from_a_file_of_vectors(arguments, tmp_path, caplog, header):
    caplog.set_level(logging.INFO)
    lines = "nine 1 2 3 4 5\nunseen 9 9 9 9 9\nOttilie -1.5 0 2e-1 0 1\nOttilie 7 7 7 7 7\n"
    (tmp_path / "vectors.txt").write_text(header + lines, encoding="utf-8")
    arguments |= {"embedding_file": str(tmp_path / "vectors.txt"), "learning_rate": 1e-12}
    del arguments["encoder_name_or_path"]
    model, tokenizer = trained(arguments)
    rows = model.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(["nine", "Ottilie"])]
    torch.testing.assert_close(rows, torch.tensor([[1, 2, 3, 4, 5], [-1.5, 0, 0.2, 0, 1]]))
    words = len(tokenizer) - 4
    assert f"vectors.txt: 2 of {words} words found, {words - 2} missing" in caplog.text
    assert model.get_input_embeddings().weight.abs().median() < 0.1  # the others are random


def test_words_of_vectors_may_hold_spaces_and_odd_characters(tmp_path):
    (tmp_path / "v").write_text("New York 1 2 3\n京 4 5 6\n\u00a0 7 8 9\n", encoding="utf-8")
    vectors = read_word_vectors(tmp_path / "v", {"京", "New York", "missing"})
    assert {word: vector.tolist() for word, vector in vectors.items()} == {"New York": [1, 2, 3], "京": [4, 5, 6]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no word vectors: pass a text file"),
        ("a b", "holds no word vectors"),
        ("a 1 2\nb 1 x\n", "line 2 does not hold 2 numbers after its word: correct or remove it"),
        ("a 1 2\nb 1 nan\n", "line 2 does not hold 2 numbers"),
        ("a 1 2\nc 1 2\nb 1\n", "line 3 does not hold 2 numbers"),
    ],
)
def test_a_damaged_file_of_vectors_is_refused(tmp_path, content, message):
    (tmp_path / "v").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_word_vectors(tmp_path / "v", {"a", "b"})


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_pages_python_runs(tmp_path, monkeypatch):
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    name = save_encoder(tmp_path / "encoder", "modernbert")
    rows = [json.dumps({"text": text, "summary": summary}) for text, summary in zip(TEXTS, SUMMARIES, strict=True)]
    Path("train.jsonl").write_text("\n".join(rows), encoding="utf-8")
    page = (Path(__file__).parents[1] / "docs" / "encoders.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in (text for language, text in find_blocks(page) if language == "python"):
        block = block.replace("answerdotai/ModernBERT-base", name)
        exec(compile(block.replace('"my-model", num', '"my-model", use_cpu=True, num'), "the page", "exec"), names)
    model, tokenizer = load_model("my-model", device="cpu")
    (outputs,) = predict(model, tokenizer, ["call Ottilie"], max_new_tokens=3)
    assert outputs[0].source_words == ["call", "Ottilie"]
    assert sum("lora_A" in weight for weight, _ in names["adapted"].named_parameters()) == 6
