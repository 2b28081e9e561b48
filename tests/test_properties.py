"""What must hold for any sources and targets: found by search, not by example."""

from __future__ import annotations

from helpers import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from copynet_hf import CopyNetTokenizer

V, K = 13, 4
MODEL = tiny_model(seed=7)
TOKENIZER = CopyNetTokenizer.train_from_iterator(
    ["to from sent the file name and of is"], V, segmenter="whitespace", max_source_oov=K
)

names = st.text("abcdefghij", min_size=2, max_size=6)
# A sentence is a list of words of the vocabulary (numbers below 9) and of names (the rest).
sentences = st.lists(st.integers(0, 8 + K), min_size=1, max_size=9)

quick = settings(max_examples=40, deadline=None)


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
