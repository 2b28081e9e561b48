"""What must hold for any sources and targets: found by search, not by example."""

from __future__ import annotations

import torch
from helpers import padded, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from copynet_hf import CopyNetTokenizer

V, K = 13, 4
MODEL = tiny_model(seed=7)
TOKENIZER = CopyNetTokenizer.train_from_iterator(
    ["to from sent the file name and of is"], V, segmenter="whitespace", max_source_oov=K
)

sources = st.lists(st.integers(2, V + K - 1), min_size=1, max_size=9)
targets = st.lists(st.integers(2, V + K - 1), min_size=1, max_size=5)
names = st.text("abcdefghij", min_size=2, max_size=6)
# A sentence is a list of words of the vocabulary (numbers below 9) and of names (the rest).
sentences = st.lists(st.integers(0, 8 + K), min_size=1, max_size=9)

quick = settings(max_examples=40, deadline=None)


def log_probs(source_rows, target_rows):
    source = padded(source_rows, 0)
    words = padded([[1, *row] for row in target_rows], 0)
    with torch.no_grad():
        return MODEL(input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=words).logits


@quick
@given(st.lists(st.tuples(sources, targets), min_size=2, max_size=5))
def test_a_batch_gives_what_its_rows_give_alone(rows):
    together = log_probs([source for source, _ in rows], [target for _, target in rows])
    for row, (source, target) in enumerate(rows):
        alone = log_probs([source], [target])
        assert torch.allclose(together[row, : len(target) + 1], alone[0], atol=1e-4)


@quick
@given(sources, targets, st.permutations(range(V, V + K)))
def test_permuting_the_unseen_words_permutes_their_probabilities(source, target, order):
    renamed = {**{word: word for word in range(V)}, **dict(zip(range(V, V + K), order, strict=True))}
    before = log_probs([source], [target])[0]
    after = log_probs([[renamed[w] for w in source]], [[renamed[w] for w in target]])[0]
    assert torch.allclose(before, after[:, [renamed[word] for word in range(V + K)]], atol=1e-4)


@quick
@given(
    sentences,
    st.lists(names, min_size=K, max_size=K, unique=True),
    st.lists(names, min_size=K, max_size=K, unique=True),
)
def test_other_names_in_the_source_are_other_names_in_the_output(sentence, first, second):
    known = [word for word in TOKENIZER.get_vocab() if not word.startswith("<")]
    outputs = []
    for own in (first, second):
        text = " ".join(known[word] if word < 9 else own[word - 9] for word in sentence)
        batch = TOKENIZER([text], return_tensors="pt")
        words = MODEL.generate(**batch, max_new_tokens=6, num_beams=2)
        decoded = TOKENIZER.batch_decode(words, source=[text], skip_special_tokens=True)[0]
        outputs.append([own.index(word) + 9 if word in own else word for word in decoded.split()])
    assert outputs[0] == outputs[1]


@quick
@given(sources, targets)
def test_every_step_is_a_distribution_over_what_the_row_owns(source, target):
    probs = log_probs([source], [target])[0].exp()
    assert torch.allclose(probs.sum(-1), torch.ones(len(target) + 1), atol=1e-4)
    unowned = [word for word in range(V, V + K) if word not in source]
    assert (probs[:, unowned] < 1e-20).all()
