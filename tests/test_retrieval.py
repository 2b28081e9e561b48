"""CoreQA against the oracle: what is predicted, copied from the question, and retrieved from facts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import (
    FEATURED,
    FEATURES,
    LETTERS,
    REPEATS,
    RESIDUAL,
    SPELLED,
    beside,
    check_gradients,
    padded,
    sources,
    tiny_model,
    until_end,
    write_rows,
)
from oracle import Oracle
from transformers import DataCollatorForSeq2Seq

from copynet_hf import CopyNetTokenizer
from copynet_hf.cli import main
from copynet_hf.evaluation.scoring import evaluate_pairs
from copynet_hf.saved.loading import load_model
from copynet_hf.training.run import train_from_arguments

RETRIEVAL = {"copy_mechanism": "retrieval"}
# Questions and facts; 13 to 16 are unseen words, 13 stands in a question and as an object, 5 is an object twice.
SOURCES = [[5, 13, 6, 4, 7, 5, 4, 8, 13, 13, 7, 5], [9, 14], [13, 7, 14, 4, 8, 15]]
KINDS = [[0, 0, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3], [0, 0], [0, 0, 0, 1, 2, 3]]
TARGETS = [[13, 5, 10, 2], [14, 9, 2], [15, 14, 13, 15, 2]]


def batch(side="right", rows=SOURCES, kinds=KINDS, targets=TARGETS):
    return sources(rows, side) | {"token_type_ids": padded(kinds, 0, side), "labels": padded(targets, -100)}


@pytest.mark.parametrize("changes", [{}, FEATURED | SPELLED | RESIDUAL | REPEATS], ids=["words", "features_letters"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_probabilities_and_loss_equal_the_oracles(side, changes):
    model = tiny_model(**RETRIEVAL, **changes).double()
    oracle, total = Oracle(model), 0.0
    inputs = batch(side)
    if changes:
        inputs |= {name: beside(model.config)[name][:3] for name in ("feature_ids", "letter_ids")}
    output = model(**inputs)
    for row, (source, kinds, target) in enumerate(zip(SOURCES, KINDS, TARGETS, strict=True)):
        if changes:
            oracle.features, oracle.letters = FEATURES[row], LETTERS[row]
        first = 0 if side == "right" else inputs["input_ids"].shape[1] - len(source)
        for t, (probs, places) in enumerate(oracle.retrieve(source, kinds, [1, *target[:-1]])):
            actual = output.logits[row, t].exp()
            for word, probability in probs.items():
                assert actual[word].item() == pytest.approx(probability, rel=1e-9), (row, t, word)
            assert actual.sum().item() == pytest.approx(1.0, abs=1e-9)
            copied = output.copy_probs[row, t].detach().numpy()
            expected = np.zeros_like(copied)
            for j, share in places.items():
                expected[first + j] = share
            np.testing.assert_allclose(copied, expected, 1e-9)
            total -= math.log(probs[target[t]])
    assert output.loss.item() == pytest.approx(total / sum(map(len, TARGETS)), rel=1e-9)


def test_gradients_equal_finite_differences_of_the_oracle():
    model = tiny_model(scale=1.0, **RETRIEVAL).double()
    source, kinds, target = SOURCES[0], KINDS[0], TARGETS[0]
    ids = {"input_ids": torch.tensor([source]), "token_type_ids": torch.tensor([kinds])}
    model(**ids, labels=torch.tensor([target])).loss.backward()
    oracle = Oracle(model)

    def loss():
        steps = oracle.retrieve(source, kinds, [1, *target[:-1]])
        return -sum(math.log(probs[word]) for (probs, _), word in zip(steps, target, strict=True)) / len(target)

    check_gradients(model, oracle, loss)


def test_neither_subjects_nor_properties_are_written_from():
    model = tiny_model(**RETRIEVAL)
    output = model(**batch())
    kinds = batch()["token_type_ids"]
    assert (output.copy_probs.sum(1)[(kinds == 1) | (kinds == 2)] == 0).all()


@pytest.mark.parametrize("num_beams", [1, 3])
def test_searches_know_the_facts_and_rows_do_not_see_each_other(num_beams):
    model = tiny_model(seed=1, **RETRIEVAL)
    inputs = batch()
    del inputs["labels"]
    together = model.generate(**inputs, num_beams=num_beams, max_new_tokens=6)
    assert torch.equal(together, model.generate(**inputs, num_beams=num_beams, max_new_tokens=6, use_cache=False))
    for row, (source, kinds) in enumerate(zip(SOURCES, KINDS, strict=True)):
        alone = {"input_ids": torch.tensor([source]), "token_type_ids": torch.tensor([kinds])}
        words = model.generate(**alone, num_beams=num_beams, max_new_tokens=6)[0].tolist()
        assert together[row].tolist()[: len(words)] == words
    trace = model.trace_copies(together, **inputs)
    for words, copied, source, kinds in zip(trace.sequences.tolist(), trace.copied, SOURCES, KINDS, strict=True):
        can = {word for word, kind in zip(source, kinds, strict=True) if kind in (0, 3)}
        assert (copied > 0).tolist() == [word in can for word in words]
    assert trace.copied.max() > 0


@pytest.mark.parametrize("copies_from", [["question"], ["facts"], []], ids=str)
def test_what_is_not_written_from_is_still_read(copies_from):
    model, whole = tiny_model(**RETRIEVAL, copies_from=copies_from), tiny_model(**RETRIEVAL)
    inputs = batch()
    output, full = model(**inputs), whole(**inputs)
    kinds = inputs["token_type_ids"].masked_fill(inputs["attention_mask"] == 0, -1)
    for memory, kind in (("question", 0), ("facts", 3)):
        written = output.copy_probs.transpose(1, 2)[kinds == kind]
        assert (written > 0).all() if memory in copies_from else (written == 0).all()
    assert output.logits.exp().sum(-1).allclose(torch.ones(output.logits.shape[:2]))
    # The first step reads the same, so that the words' shares are the same but for the normaliser.
    for row in range(3):
        plain = [word for word in range(4, 13) if word not in SOURCES[row]]
        shift = (output.logits - full.logits)[row, 0, plain]
        assert torch.allclose(shift, shift[:1].expand_as(shift), atol=1e-4)


@pytest.mark.parametrize("copies_from", [["facts"], []], ids=str)
def test_a_question_that_nothing_is_copied_from_has_an_answer(copies_from):
    model = tiny_model(seed=1, **RETRIEVAL, copies_from=copies_from)
    asked = {"input_ids": torch.tensor([SOURCES[1]]), "token_type_ids": torch.tensor([KINDS[1]])}
    likeliest = model(**asked, decoder_input_ids=torch.tensor([[1]])).logits[0, 0, 2:].argmax().item() + 2
    assert likeliest != 2
    for options in ({}, {"num_beams": 2}, {"min_new_tokens": 2}):
        assert until_end(model.generate(**asked, **options, max_new_tokens=3)[0].tolist()) != [2]
    assert model.generate(**asked, max_new_tokens=1)[0, 1].item() == likeliest
    nothing = {"input_ids": torch.tensor([[0, 0]]), "attention_mask": torch.zeros(1, 2, dtype=torch.long)}
    assert model.generate(**nothing, max_new_tokens=3)[0].tolist() == [1, 2]


def test_without_facts_it_answers_from_the_question():
    model = tiny_model(**RETRIEVAL)
    source = torch.tensor([[5, 13, 6]])
    plain = model(input_ids=source, decoder_input_ids=torch.tensor([[1, 5]]))
    marked = model(input_ids=source, token_type_ids=torch.zeros_like(source), decoder_input_ids=torch.tensor([[1, 5]]))
    assert torch.equal(plain.logits, marked.logits)
    assert plain.logits.exp().sum(-1).allclose(torch.ones(1, 2))


def test_kinds_of_another_shape_are_refused():
    inputs = batch()
    with pytest.raises(ValueError, match=r"token_type_ids has shape \(1, "):
        tiny_model(copy_mechanism="retrieval")(**inputs | {"token_type_ids": inputs["token_type_ids"][:1]})


# --- facts in the tokenizer -----------------------------------------------------------------------------------------

FACTS = [("Ottilie", "born", "1931"), ("Ottilie", "city", "Ulm")]


@pytest.fixture
def tokenizer():
    words = "when was born city ? in he she 1931"
    return CopyNetTokenizer.train_from_iterator([words], 50, segmenter="whitespace", max_source_oov=5)


def test_a_word_of_question_and_fact_has_one_id_and_facts_are_marked(tokenizer):
    row = tokenizer("when was Ottilie born ?", facts=FACTS, text_target="she born in Ulm 1931 Rome")
    words = tokenizer.convert_ids_to_tokens(row["input_ids"])
    assert words == ["when", "was", "<oov-0>", "born", "?", "<oov-0>", "born", "1931", "<oov-0>", "city", "<oov-1>"]
    assert row["token_type_ids"] == [0] * 5 + [1, 2, 3, 1, 2, 3]
    assert row["labels"][3] == len(tokenizer) + 1
    assert row["labels"][-2] == tokenizer.unk_token_id
    assert tokenizer.oov_words("when was Ottilie born ?", facts=FACTS) == ["Ottilie", "Ulm"]
    text = tokenizer.decode(row["labels"], source="when was Ottilie born ?", facts=FACTS, skip_special_tokens=True)
    assert text == "she born in Ulm 1931"


def test_batches_with_and_without_facts_are_padded_and_collated(tokenizer):
    texts, facts = ["when was Ottilie born ?", "Paul ?"], [FACTS, []]
    both = tokenizer(texts, facts=facts, text_target=["1931", "he"], padding=True, return_tensors="pt")
    assert both["token_type_ids"].shape == both["input_ids"].shape == (2, 11)
    assert both["token_type_ids"][1].sum() == 0
    rows = [tokenizer(t, facts=f, text_target="he") for t, f in zip(texts, facts, strict=True)]
    collated = DataCollatorForSeq2Seq(tokenizer)([dict(row) for row in rows])
    assert torch.equal(collated["token_type_ids"], both["token_type_ids"])
    decoded = tokenizer.batch_decode([[len(tokenizer) + 1], [len(tokenizer)]], source=texts, facts=facts)
    assert decoded == ["Ulm", "Paul"]


def test_a_cut_takes_the_questions_words_and_leaves_the_facts(tokenizer):
    row = tokenizer("when was Ottilie born ?", facts=FACTS, truncation=True, max_length=8)
    assert row["token_type_ids"] == [0, 0, 1, 2, 3, 1, 2, 3]
    assert tokenizer.encode_source("when was Ottilie born ?", FACTS, max_length=8).words[:3] == [
        "when",
        "was",
        "Ottilie",
    ]
    with pytest.raises(ValueError, match="max_length=6 is too small for a source with 6 fact words"):
        tokenizer("when", facts=FACTS, truncation=True, max_length=6)


def test_the_slots_of_facts_do_not_depend_on_where_the_question_was_cut(tokenizer):
    question = "when was Karl and Bert born ?"
    whole, cut = tokenizer(question, facts=FACTS), tokenizer(question, facts=FACTS, truncation=True, max_length=9)
    assert whole["input_ids"][-6:] == cut["input_ids"][-6:]
    answer = [tokenizer.get_vocab()["in"], cut["input_ids"][-1]]
    assert tokenizer.decode(answer, source=question, facts=FACTS) == "in Ulm"


def test_questions_without_words_and_facts_are_read(tokenizer):
    empty = tokenizer(["", ""], facts=[[], []], padding=True, return_tensors="pt")
    model = tiny_model(**RETRIEVAL)
    assert model(**empty, decoder_input_ids=torch.ones(2, 1, dtype=torch.long)).logits.isfinite().all()


def test_what_is_no_triple_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"facts\[0\] contains \('a', 'b'\): pass \(subject, property, object\)"):
        tokenizer("when", facts=[("a", "b")])
    with pytest.raises(ValueError, match="facts has 1 rows, text 2: they must match"):
        tokenizer(["when", "was"], facts=[[]])
    with pytest.raises(ValueError, match="facts has 1 rows, text 2"):
        tokenizer.batch_decode([[60], [60]], source=["when", "was"], facts=[[]])


def test_the_commands_learn_from_a_file_with_facts_and_say_what_was_retrieved(tmp_path, capsys):
    rows = [
        {"text": f"when was N{n} born ?", "summary": f"in {1900 + n}", "facts": [[f"N{n}", "born", str(1900 + n)]]}
        for n in range(12)
    ]
    file = write_rows(tmp_path / "train.jsonl", rows)
    folder = tmp_path / "model"
    sizes = {"embedding_size": 8, "hidden_size": 12, "encoder_hidden_size": 8, "attention_size": 8}
    said = {"train_file": file, "output_dir": str(folder), "copy_mechanism": "retrieval", "use_cpu": True}
    said |= {"validation_file": file, "predict_with_generate": True}
    figures = train_from_arguments(
        said
        | sizes
        | {
            "segmenter": "whitespace",
            "min_frequency": 5,
            "num_train_epochs": 150,
            "seed": 2,
            "learning_rate": 0.01,
            "eval_strategy": "no",
            "save_strategy": "no",
            "disable_tqdm": True,
        }
    )
    model, tokenizer = load_model(str(folder))
    assert "born" in tokenizer.get_vocab()
    assert tokenizer.max_source_oov >= 2
    pairs = Dataset.from_list([{**rows[0], "text": "when was Zoe born ?", "facts": [["Zoe", "born", "2077"]]}])
    scores, (output,) = evaluate_pairs(model, tokenizer, pairs, num_beams=1)
    assert output["prediction"] == "in 2077"
    assert output["copied"] == [False, True]
    assert (scores["exact_match"], scores["copied_fraction"]) == (0, 50)
    assert figures["eval_oov_recall"] == 100
    capsys.readouterr()
    asked = ["generate", "--model", str(folder), "--text", "when was Zoe born ?", "--num_beams", "1", "--show_copies"]
    assert main([*asked, "--facts", "Zoe | born | 2077"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "in [2077]"
    # of one year: a model trained with one fact a question does not learn to choose between two unknown subjects
    assert main([*asked, "--facts", "Zoe | born | 2077", "Ann | born | 2077"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "in [2077]"
