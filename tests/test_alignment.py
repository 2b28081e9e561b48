"""IBM Model 1 on pairs with known translations, and CoRe models restricted to its words."""

from __future__ import annotations

import random

import pytest
import torch
from helpers import SOURCES, padded, sources, tiny_model
from transformers.trainer_pt_utils import LabelSmoother

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.training.alignment import align_vocabulary

SPECIAL = [0, 1, 2, 3]


def translated_pairs(number=200, words=10):
    """Word 4 + i translates to 24 + i, in another order; 20 is a function word that is sometimes added."""
    rng = random.Random(0)
    pairs = []
    for _ in range(number):
        source = rng.sample(range(4, 4 + words), 4)
        target = [word + 20 for word in source] + ([20] if rng.random() < 0.5 else [])
        rng.shuffle(target)
        pairs.append((source, [*target, 2]))
    return pairs


def test_translations_are_found():
    table = align_vocabulary(translated_pairs(), 40, 2, SPECIAL)
    assert table.shape == (40, 2)
    assert table[4:14, 0].tolist() == list(range(24, 34))
    assert (table[14:] == 3).all()  # words that occur in no source
    assert not torch.isin(table[:, 0], torch.tensor([0, 1, 2])).any()


def translations(pairs, iterations):
    """t(y | x) of IBM Model 1, one pair of words at a time."""
    cooccurring = {(x, y) for source, target in pairs for x in source for y in target}
    t = dict.fromkeys(cooccurring, 1.0)
    for _ in range(iterations):
        counts = dict.fromkeys(cooccurring, 0.0)
        for source, target in pairs:
            for y in target:
                for x in source:
                    counts[x, y] += t[x, y] / sum(t[other, y] for other in source)
        totals = {x: sum(count for (other, _), count in counts.items() if other == x) for x, _ in cooccurring}
        t = {(x, y): count / totals[x] for (x, y), count in counts.items()}
    return t


def test_the_ranking_is_that_of_model_1_after_five_iterations():
    rng = random.Random(1)
    pairs = [(rng.sample(range(4, 10), 3), rng.choices(range(10, 20), k=3)) for _ in range(12)]

    def ranked(iterations):
        t = translations(pairs, iterations)
        return [
            sorted((y for x, y in t if x == word), key=lambda y: (-round(t[word, y], 12), y)) for word in range(4, 10)
        ]

    table = align_vocabulary(pairs, 20, 3, SPECIAL)[4:10].tolist()
    assert table == [words[:3] for words in ranked(5)]
    assert table != [words[:3] for words in ranked(1)]


def test_special_and_out_of_vocabulary_ids_are_ignored():
    table = align_vocabulary([([4, 50, 1], [5, 51, 2, -100]), ([0, 3], [3])], 10, 3, SPECIAL)
    assert table[4].tolist() == [5, 3, 3]
    assert (table[[0, 1, 2, 3]] == 3).all()
    assert (align_vocabulary([], 10, 3, SPECIAL) == 3).all()


RESTRICTED = {"copy_mechanism": "gated", "aligned_words": 2, "frequent_words": 5}


def restricted_model():
    model = tiny_model(**RESTRICTED)
    model.alignments.table[5] = torch.tensor([7, 3])
    model.alignments.table[6] = torch.tensor([9, 11])
    return model


def test_words_neither_aligned_nor_frequent_nor_in_the_source_have_no_probability():
    model = restricted_model()
    source = torch.tensor([[5, 13, 6, 0]])
    log_probs = model(input_ids=source, decoder_input_ids=torch.tensor([[1, 5]])).logits
    allowed = [0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13]  # frequent, in the source, aligned with 5 or 6
    assert (log_probs[..., allowed] > -50).all()
    assert (log_probs[..., [8, 10, 12, 14, 15, 16]] == -60).all()
    assert log_probs.exp().sum(-1).allclose(torch.ones(1, 2))
    unrestricted = tiny_model(copy_mechanism="gated")
    assert (unrestricted(input_ids=source, decoder_input_ids=torch.tensor([[1, 5]])).logits[..., :13] > -50).all()


@pytest.mark.parametrize("gated_loss", ["mixture", "summed"])
def test_a_target_that_cannot_be_generated_counts_as_unk(gated_loss):
    model = restricted_model()
    model.config.gated_loss = gated_loss
    source, unreachable, unk = torch.tensor([[5, 13, 6]]), torch.tensor([[8, 2]]), torch.tensor([[3, 2]])
    words = torch.tensor([[1, 8]])
    losses = [model(input_ids=source, decoder_input_ids=words, labels=labels).loss for labels in (unreachable, unk)]
    assert torch.equal(*losses)
    assert losses[0] < 50
    if gated_loss == "mixture":
        output = model(input_ids=source, decoder_input_ids=words, labels=unreachable)
        expected = -output.logits[0, [0, 1], [3, 2]].mean()
        switch = model.model(input_ids=source, decoder_input_ids=words).switch
        gate = torch.nn.functional.softplus(switch).mean()  # neither word is in the source
        assert output.loss.item() == pytest.approx((expected + gate).item(), rel=1e-5)


def test_alignments_are_saved_with_the_model_and_label_smoothing_stays_finite(tmp_path):
    model = restricted_model()
    model.save_pretrained(tmp_path)
    again = CopyNetForConditionalGeneration.from_pretrained(tmp_path)
    assert torch.equal(again.alignments.table, model.alignments.table)
    source = padded(SOURCES, 0)
    inputs = {"input_ids": source, "decoder_input_ids": torch.ones(4, 2, dtype=torch.long)}
    output = again(**inputs)
    assert torch.equal(output.logits, model(**inputs).logits)
    smoothed = LabelSmoother(0.1)(output, torch.full((4, 2), 4))
    assert 0 < smoothed < 100


def test_beam_search_generates_only_allowed_words():
    model = restricted_model()
    output = model.generate(**sources(), num_beams=3, num_return_sequences=3, max_new_tokens=8, min_new_tokens=6)
    for row, own in zip(output.view(4, 3, -1), SOURCES, strict=True):
        allowed = {0, 1, 2, 3, 4, *own}
        allowed |= {7} if 5 in own else set()
        allowed |= {9, 11} if 6 in own else set()
        assert set(row.flatten().tolist()) <= allowed


def test_the_table_is_resized_with_the_vocabulary_and_is_unk_where_a_checkpoint_lacks_it(tmp_path):
    model = restricted_model()
    for size in (20, 8):
        model.resize_token_embeddings(size)
        assert model.alignments.table.shape == (size, 2)
        source = torch.tensor([[5, 6, 7]])
        log_probs = model(input_ids=source, decoder_input_ids=torch.tensor([[1]])).logits
        assert log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
        model.save_pretrained(tmp_path / str(size))
        again = CopyNetForConditionalGeneration.from_pretrained(tmp_path / str(size))
        assert torch.equal(again.alignments.table, model.alignments.table)
    assert model.alignments.table[6].tolist() == [3, 3]  # 9 and 11 are no longer in the vocabulary
    tiny_model(copy_mechanism="gated").save_pretrained(tmp_path / "plain")
    extended = CopyNetForConditionalGeneration.from_pretrained(tmp_path / "plain", aligned_words=4)
    assert (extended.alignments.table == 3).all()


def test_chunks_do_not_change_the_alignments(monkeypatch):
    whole = align_vocabulary(translated_pairs(), 40, 2, SPECIAL)
    monkeypatch.setattr("copynet_hf.training.alignment.CHUNK_SIZE", 7)
    assert torch.equal(align_vocabulary(translated_pairs(), 40, 2, SPECIAL), whole)
