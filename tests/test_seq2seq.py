"""Pretrained encoder-decoders with a copy head: untrained, each family writes what it wrote; trained, it copies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from datasets import Dataset
from helpers import check_same_outputs, padded, save_parts, tiny_tokenizer, write_rows
from tiny_encoders import CORPUS, SUMMARIES, TEXTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import AutoConfig, AutoModelForSeq2SeqLM, BertConfig, PreTrainedTokenizerFast

from copynet_hf import CopyNetForConditionalGeneration, export_onnx
from copynet_hf.arguments import TrainArguments, build_arguments
from copynet_hf.cli import main
from copynet_hf.inference.backends import load_backend
from copynet_hf.model.prediction import predict
from copynet_hf.saved.loading import load_model
from copynet_hf.serving.process import load_predict
from copynet_hf.training.defaults import complete_arguments
from copynet_hf.training.model_setup import build_model

BART = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
LED = {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": 4}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "t5": T5,
    "t5 v1.1": T5 | GATED | {"model_type": "t5"},
    "mt5": T5 | GATED,
    "umt5": T5 | GATED,
    "longt5": T5,
    **dict.fromkeys(("bart", "blenderbot-small", "blenderbot"), BART),
    **dict.fromkeys(("mbart", "pegasus", "marian", "m2m_100", "plbart"), BART | {"scale_embedding": True}),
    "led": BART | LED,
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


def make_tokenizer(vocab_size: int = 120, letters: Iterable[str] = ()) -> PreTrainedTokenizerFast:
    """Of Marian's and M2M100's kind."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    options = {"special_tokens": special, "initial_alphabet": list(letters)}
    backend.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab_size, **options))
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "bos_token": "<s>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def save_seq2seq(folder: Path, family: str, size: int, **changes: Any) -> str:
    """Saves a random encoder-decoder, with weights large enough for sharp distributions; returns the folder."""
    fields = {"model_type": family, "vocab_size": size, "pad_token_id": 0, "eos_token_id": 2} | FAMILIES[family]
    torch.manual_seed(0)
    kind = fields.pop("model_type")
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **fields | changes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "embed_positions" not in name:
                parameter.mul_(4.0 if "t5" not in kind else 1.5)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    model.generation_config.decoder_start_token_id = model.config.decoder_start_token_id
    model.save_pretrained(folder)
    return str(folder)


def add_head(
    folder: Path, family: str, tokenizer: Any, mechanism: str = "copynet", **changes: Any
) -> CopyNetForConditionalGeneration:
    """The encoder-decoder that `save_seq2seq` saves, with a copy head that is not trained."""
    name = save_seq2seq(folder, family, len(tokenizer), **changes)
    load = CopyNetForConditionalGeneration.from_seq2seq_pretrained
    return load(name, tokenizer=tokenizer, copy_mechanism=mechanism)


def make_copying(
    folder: Path, family: str, tokenizer: Any, mechanism: str = "copynet", bias: float = 0.0, **changes: Any
) -> CopyNetForConditionalGeneration:
    """A random model with a copy head that copies about as often as it generates, or with a bias more often."""
    model = add_head(folder, family, tokenizer, mechanism, **changes)
    head: Any = model.model.decoder
    switch = head.switch_proj and head.switch_proj.bias
    for part, own_bias in ((head.copy_proj, head.copy_bias), (head.switch_proj, switch)):
        if part is not None:
            torch.nn.init.normal_(part.weight)
            torch.nn.init.constant_(own_bias, bias)
    return model


def sources(tokenizer: PreTrainedTokenizerFast) -> dict[str, Tensor]:
    rows = tokenizer([*TEXTS, "hello"], padding=True, return_tensors="pt")
    return {name: rows[name] for name in ("input_ids", "attention_mask")}


class Pretrained(NamedTuple):
    """An encoder-decoder, and the same with a copy head."""

    own: Any
    model: CopyNetForConditionalGeneration


def make_pretrained(folder: Path, family: str, tokenizer: Any, mechanism: str = "copynet") -> Pretrained:
    model = add_head(folder, family, tokenizer, mechanism)
    return Pretrained(AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), model)


@pytest.fixture(scope="module", params=FAMILIES)
def pretrained(
    request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Pretrained:
    return make_pretrained(tmp_path_factory.mktemp("own"), request.param, tokenizer)


def check_same_model(pretrained: Pretrained, tokenizer: PreTrainedTokenizerFast) -> Any:
    """Compares probabilities and searches; returns the output of the model with the head."""
    own, model = pretrained
    inputs = sources(tokenizer)
    words = torch.randint(4, len(tokenizer), (len(inputs["input_ids"]), 7))
    words[:, 0] = own.config.decoder_start_token_id
    expected = own(**inputs, decoder_input_ids=words).logits.softmax(-1)
    output = model(**inputs, decoder_input_ids=words)
    assert (output.logits.exp() - expected).abs().max() < 0.01
    for beams in (1, 4):
        options = {"num_beams": beams, "max_new_tokens": 8}
        assert torch.equal(model.generate(**inputs, **options), own.generate(**inputs, **options))
    return output


def test_the_tokenizer_of_another_model_is_refused(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    name = save_seq2seq(tmp_path, "t5", len(tokenizer) - 1)
    for other in (tokenizer, tiny_tokenizer()):
        with pytest.raises(ValueError, match=f"words, the model has {len(tokenizer) - 1}: pass the model's own"):
            CopyNetForConditionalGeneration.from_seq2seq_pretrained(name, tokenizer=other)


def test_untrained_it_writes_what_the_encoder_decoder_writes(
    pretrained: Pretrained, tokenizer: PreTrainedTokenizerFast
) -> None:
    assert 0 < check_same_model(pretrained, tokenizer).copy_mass.max() < 0.01


@pytest.mark.parametrize("mechanism", ["pointer_generator", "gated", "none"])
def test_so_it_does_by_other_mechanisms(mechanism: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    output = check_same_model(make_pretrained(tmp_path, "bart", tokenizer, mechanism), tokenizer)
    assert mechanism == "none" or 0 < output.copy_mass.max() < 0.01


def test_it_is_saved_with_the_weights_it_shares(
    pretrained: Pretrained, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    own, model = pretrained
    is_tied = own.get_output_embeddings().weight is own.get_input_embeddings().weight
    assert (model.lm_head.weight is model.get_input_embeddings().weight) == is_tied
    added = model.model.decoder.copy_proj.weight.numel() + 1
    bias = model.lm_head.weight.shape[0] if hasattr(own, "final_logits_bias") else 0
    assert model.num_parameters() == own.num_parameters() + added + bias
    save_parts(tmp_path, model, tokenizer)
    loaded, _ = load_model(str(tmp_path), "cpu")
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) == is_tied
    inputs = sources(tokenizer) | {"labels": padded([[5, 6, 2]] * 5, -100)}
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


@pytest.mark.slow  # exports
@pytest.mark.parametrize(
    ("family", "mechanism"), [("t5", "copynet"), ("bart", "pointer_generator"), ("marian", "gated")]
)
def test_its_graphs_write_and_trace_what_it_does(
    family: str, mechanism: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = make_copying(tmp_path / "own", family, tokenizer, mechanism)
    export_onnx(model, tmp_path / "graphs", tokenizer)
    onnx, own = load_backend(str(tmp_path / "graphs"), "onnx")
    for search in ({"num_beams": 1}, {"num_beams": 3, "num_return_sequences": 2}):
        texts, options = [*TEXTS, "hello"], {"max_new_tokens": 12, **search}
        check_same_outputs((model, tokenizer), (onnx, own), texts, **options)
        assert any(any(row[0].copied) for row in predict(onnx, own, texts, **options))
    predict_batch, _ = load_predict(str(tmp_path / "graphs"), threads=1)
    served = predict_batch([{"text": text} for text in texts], options, lambda: None)
    assert [each.text for row in served for each in row] == [
        each.text for row in predict(onnx, own, texts, **options) for each in row
    ]


def test_it_learns_to_copy_pieces(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = add_head(tmp_path, "t5", tokenizer, d_model=32, dropout_rate=0.0)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    labels = tokenizer([f"{summary}</s>" for summary in SUMMARIES], padding=True, return_tensors="pt").input_ids
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")} | {
        "labels": labels.masked_fill(labels == 0, -100)
    }
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    for _ in range(40):
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    outputs = predict(model.eval(), tokenizer, TEXTS, max_new_tokens=40)
    assert [row[0].text for row in outputs] == SUMMARIES
    assert model(**inputs).copy_mass.max() > 0.1


@pytest.mark.parametrize("family", ["t5", "t5 v1.1", "marian"])
def test_a_vocabulary_is_resized_with_the_output_layer(
    family: str, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model, inputs = add_head(tmp_path / "own", family, tokenizer), sources(tokenizer)
    is_tied = model.lm_head.weight is model.get_input_embeddings().weight
    for size in (len(tokenizer) + 3, len(tokenizer) - 2):
        model.resize_token_embeddings(size)
        assert (model.lm_head.weight is model.get_input_embeddings().weight) == is_tied
        model.save_pretrained(tmp_path / "saved")
        loaded = CopyNetForConditionalGeneration.from_pretrained(tmp_path / "saved").eval()
        inputs["input_ids"] = inputs["input_ids"].clamp(max=size - 1)
        labels = padded([[size - 1, 2]] * 5, -100)
        expected, found = (each(**inputs, labels=labels).logits for each in (model, loaded))
        assert expected.shape[-1] == size
        assert torch.equal(found, expected)


def test_what_no_copy_head_can_be_added_to_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    own = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": len(tokenizer)}
    with pytest.raises(ValueError, match="has other embeddings in its encoder than in its decoder"):
        add_head(tmp_path, "marian", tokenizer, **own)
    BertConfig().save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="bert is a bert, which is no encoder-decoder: use --encoder_name_or_path"):
        CopyNetForConditionalGeneration.from_seq2seq_pretrained(str(tmp_path / "bert"), tokenizer=tokenizer)


def test_what_a_new_model_alone_can_have_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    for name, value in (("preset", "lcsts_char"), ("embeddings_from_encoder", True)):
        args = build_arguments(TrainArguments, {"seq2seq_name_or_path": "t5-small", name: value})
        with pytest.raises(ValueError, match=f"--{name} is for a new model, and t5-small has all but the copy head"):
            build_model(tokenizer, args)


def test_the_start_symbol_may_be_in_the_generation_config_alone(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    name = save_seq2seq(tmp_path, "t5", len(tokenizer))
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["decoder_start_token_id"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    model = CopyNetForConditionalGeneration.from_seq2seq_pretrained(name, tokenizer=tokenizer)
    assert model.config.decoder_start_token_id == 0


def test_a_resumed_training_has_the_learning_rates_of_a_whole_one(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = add_head(tmp_path, "bart", tokenizer)
    values = {"seq2seq_name_or_path": str(tmp_path), "max_steps": 1000, "output_dir": "x"}
    pairs = {"train": Dataset.from_dict({"text": TEXTS, "summary": SUMMARIES})}
    args = build_arguments(TrainArguments, values)
    new, resumed = (complete_arguments(args, values, pairs, tokenizer, own)[1] for own in (None, model))
    assert (new.warmup_steps, new.learning_rate) == (resumed.warmup_steps, resumed.learning_rate) == (100, 1e-4)


def test_the_command_trains_and_evaluates_it(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    name = save_seq2seq(tmp_path / "own", "bart", len(tokenizer))
    tokenizer.save_pretrained(name)
    file = write_rows(
        tmp_path / "pairs.jsonl",
        [{"text": text, "summary": summary} for text, summary in zip(TEXTS, SUMMARIES, strict=True)],
    )
    train = ["train", f"--train_file={file}", f"--seq2seq_name_or_path={name}", "--max_steps=2", "--use_cpu"]
    head = ["--copy_mechanism=pointer_generator", "--copy_layer=1", "--copy_head=0"]
    assert main([*train, f"--output_dir={tmp_path / 'out'}", *head]) == 0
    model, _ = load_model(str(tmp_path / "out"))
    config = model.config
    assert config.seq2seq
    assert (config.copy_mechanism, config.copy_layer, config.copy_head) == ("pointer_generator", 1, 0)
    evaluate = ["evaluate", f"--model={tmp_path / 'out'}", f"--test_file={file}", "--max_target_length=8"]
    assert main([*evaluate, "--device=cpu"]) == 0
    assert main([*train, f"--output_dir={tmp_path / 'no'}", "--hidden_size=8"]) != 0
