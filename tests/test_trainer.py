"""Training with unmodified `Seq2SeqTrainer` and `DataCollatorForSeq2Seq` works on extended ids."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    EvalPrediction,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.evaluation.compute_metrics import make_compute_metrics
from copynet_hf.evaluation.metrics import score_outputs

VERBS = ["call", "mail", "ask", "thank"]
TAILS = ["", "today", "as soon as you can", "because the other one has not answered since last week"]
SourcesAndTargets = list[tuple[str, str]]


def toy_pairs(count: int, names: str, seed: int = 0) -> SourcesAndTargets:
    """Sources of very different lengths, each with a unique name; the target is verb and name."""
    rng = random.Random(seed)
    rows = [(rng.choice(VERBS), f"{names}{i}", rng.choice(TAILS)) for i in range(count)]
    return [(f"please {verb} {name} {tail}".strip(), f"{verb} {name}") for verb, name, tail in rows]


def encoded(tokenizer: Any, pairs: SourcesAndTargets) -> Dataset:
    sources, targets = zip(*pairs, strict=True)
    return Dataset.from_dict(dict(tokenizer(list(sources), text_target=list(targets))))


TRAIN, UNSEEN = toy_pairs(64, "train"), toy_pairs(16, "unseen", seed=1)


@pytest.fixture(scope="module")
def tokenizer() -> CopyNetTokenizer:
    """Its vocabulary has the verbs and tails; every name is out-of-vocabulary, in training too."""
    return CopyNetTokenizer.train_from_iterator(
        [source for source, _ in TRAIN], 100, "whitespace", min_frequency=2, max_source_oov=2
    )


def new_model(tokenizer: Any, **changes: Any) -> CopyNetForConditionalGeneration:
    set_seed(0)
    sizes = {"embedding_size": 12, "hidden_size": 24, "encoder_hidden_size": 12, "attention_size": 12}
    defaults = {"vocab_size": len(tokenizer), "max_source_oov": 2, "dropout": 0.0}
    return CopyNetForConditionalGeneration(CopyNetConfig(**{**sizes, **defaults, **changes}))


def make_trainer(
    tokenizer: Any,
    folder: Path,
    model: CopyNetForConditionalGeneration | None = None,
    train: SourcesAndTargets = TRAIN,
    evaluation: SourcesAndTargets = UNSEEN,
    compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
    **arguments: Any,
) -> Seq2SeqTrainer:
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 3,
        "learning_rate": 1e-2,
        "max_steps": 3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "generation_max_length": 6,
        "include_for_metrics": ["inputs"],
    }
    model = new_model(tokenizer) if model is None else model
    return Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(output_dir=str(folder), **{**defaults, **arguments}),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        train_dataset=encoded(tokenizer, train),
        eval_dataset=encoded(tokenizer, evaluation),
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )


def losses(trainer: Seq2SeqTrainer) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def same_weights(one: torch.nn.Module, other: torch.nn.Module, **tolerance: float) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.allclose(a, b, **tolerance) for a, b in pairs)


# --- learning to copy -----------------------------------------------------------------------------------------------


def test_the_loss_falls_and_unseen_words_are_copied(tokenizer: CopyNetTokenizer, tmp_path: Path) -> None:
    trainer = make_trainer(tokenizer, tmp_path, max_steps=150, per_device_train_batch_size=16, logging_steps=10)
    trainer.train()
    assert losses(trainer)[-1] < 0.1 * losses(trainer)[0]
    source = "please thank Gu-2016_never_seen.txt as soon as you can"
    inputs = tokenizer([source], return_tensors="pt")
    output = trainer.model.generate(**inputs, max_new_tokens=5)
    texts = tokenizer.batch_decode(output, source=[source], skip_special_tokens=True)
    assert texts == ["thank Gu-2016_never_seen.txt"]


def test_metrics_of_the_trainer_equal_those_of_decoded_outputs(tokenizer: CopyNetTokenizer, tmp_path: Path) -> None:
    sources, references = map(list, zip(*UNSEEN, strict=True))
    compute_metrics = make_compute_metrics(tokenizer, sources)
    trainer = make_trainer(tokenizer, tmp_path, predict_with_generate=True, compute_metrics=compute_metrics)
    trainer.train()  # only three steps: some outputs are wrong
    inputs = tokenizer(sources, padding=True, return_tensors="pt").to(trainer.model.device)
    output = trainer.model.generate(**inputs, max_length=6)
    texts = tokenizer.batch_decode(output[:, 1:], source=sources)
    texts = [text.split("</s>")[0].replace("<pad>", "").strip() for text in texts]
    expected = score_outputs(texts, references, sources, words=tokenizer.tokenize, vocabulary=tokenizer.get_vocab())
    scores = trainer.evaluate()
    assert {name: scores[f"eval_{name}"] for name in expected} == pytest.approx(expected)


# --- evaluation -----------------------------------------------------------------------------------------------------


def test_logits_of_batches_of_different_lengths_are_gathered(tokenizer: CopyNetTokenizer, tmp_path: Path) -> None:
    gathered: dict[str, np.ndarray] = {}

    def keep(prediction: EvalPrediction) -> dict[str, float]:
        logits = prediction.predictions
        gathered["logits"] = logits[0] if isinstance(logits, tuple) else logits
        gathered["labels"] = prediction.label_ids
        return {}

    pairs = [("call A", "call A"), ("please " * 9 + "ask B today", "ask B today ask B"), ("C", "C"), ("mail D", "D")]
    trainer = make_trainer(tokenizer, tmp_path, evaluation=pairs, compute_metrics=keep, per_device_eval_batch_size=1)
    scores = trainer.evaluate()
    assert gathered["logits"].shape == (4, 6, trainer.model.config.extended_vocab_size)
    row = tokenizer(pairs[1][0], text_target=pairs[1][1], return_tensors="pt").to(trainer.model.device)
    with torch.no_grad():
        expected = trainer.model(**row)
    np.testing.assert_allclose(gathered["logits"][1], expected.logits[0].numpy(), atol=1e-5)
    assert gathered["labels"][1].tolist() == row["labels"][0].tolist()
    assert np.isfinite(scores["eval_loss"])


# --- training -------------------------------------------------------------------------------------------------------


def test_accumulated_gradients_equal_those_of_one_large_batch(tokenizer: CopyNetTokenizer, tmp_path: Path) -> None:
    # Targets of very different lengths: the mean over small batches of their mean losses would be another loss.
    targets = [" ".join(["call"] * (1 + 7 * (i % 4 == 0))) for i in range(16)]
    pairs = [(source, target) for (source, _), target in zip(TRAIN, targets, strict=False)]
    trainers = [
        make_trainer(
            tokenizer,
            tmp_path / str(size),
            train=pairs,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=8 // size,
            max_steps=2,
            optim="sgd",
            max_grad_norm=0.0,
            learning_rate=1.0,
        )
        for size in (8, 2)
    ]
    for trainer in trainers:
        trainer.train()
    assert losses(trainers[0]) == pytest.approx(losses(trainers[1]), rel=1e-4)
    assert same_weights(trainers[0].model, trainers[1].model, atol=1e-6)
    assert not same_weights(trainers[0].model, new_model(tokenizer), atol=1e-2)


def test_bf16_trains_float32_weights(tokenizer: CopyNetTokenizer, tmp_path: Path) -> None:
    plain = make_trainer(tokenizer, tmp_path / "plain")
    half = make_trainer(tokenizer, tmp_path / "half", bf16=True)
    plain.train()
    half.train()
    assert {parameter.dtype for parameter in half.model.parameters()} == {torch.float32}
    assert losses(half) == pytest.approx(losses(plain), rel=2e-2)
    assert losses(half) != losses(plain)
    assert np.isfinite(half.evaluate()["eval_loss"])


def test_an_evaluation_reordered_by_length_is_refused(tokenizer: CopyNetTokenizer, tmp_path: Path) -> None:
    sources, references = map(list, zip(*UNSEEN, strict=True))
    compute_metrics = make_compute_metrics(tokenizer, sources, references)
    with_outputs = {"predict_with_generate": True, "compute_metrics": compute_metrics}
    assert make_trainer(tokenizer, tmp_path, **with_outputs).evaluate()["eval_examples"] == len(UNSEEN)
    trainer = make_trainer(tokenizer, tmp_path, train_sampling_strategy="group_by_length", **with_outputs)
    with pytest.raises(ValueError, match="leave out train_sampling_strategy='group_by_length'"):
        trainer.evaluate()
