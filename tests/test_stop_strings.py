"""Stop strings of `generate()`: found in words that are copied, joined and changed, in each row's own text."""

from __future__ import annotations

import pytest
import torch
from helpers import sources, tiny_model, tiny_tokenizer

from copynet_hf import CopyNetTokenizer
from copynet_hf.model.generation import StopStrings

EOS = 2


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("stop", ["b", "g e", ["g h", "c f", "c h"]], ids=str)
def test_stop_strings_end_a_row_after_them(stop, num_beams):
    model, tokenizer = tiny_model(seed=9, scale=0.5), tiny_tokenizer()
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "repetition_penalty": 3.0, "num_beams": num_beams}
    stopped = model.generate(**sources(), **options, stop_strings=stop, tokenizer=tokenizer)
    free, strings = model.generate(**sources(), **options), [stop] if isinstance(stop, str) else stop
    ended = 0
    for row, free_row in zip(stopped.tolist(), free.tolist(), strict=True):
        words = [word for word in row[1:] if word not in (0, EOS)]  # both fill up rows that ended
        text, whole = tokenizer.decode(words, source=""), tokenizer.decode(free_row[1:], source="")
        ends = [text.find(each) + len(each) for each in strings if each in text]
        assert min(ends, default=len(text)) == len(text)
        assert ends or len(words) == 12
        ended += bool(ends)
        if num_beams == 1:
            assert whole.startswith(text)
    assert ended


def test_stop_strings_are_found_among_all_words_that_assisted_decoding_adds_at_once():
    criterion = StopStrings(tiny_tokenizer(), "b")
    rows = torch.tensor([[1, 4, 4, 4, 5, 6, 7, 8, 9]])  # a a a b c d e f
    assert [criterion(rows[:, :length], None).item() for length in (2, 3, 9)] == [False, False, True]
    assert not criterion(rows[:, :2], None).item()  # a new search
    assert criterion(rows[:, :7], None).item()


def test_slots_and_special_tokens_spell_no_stop_string():
    criterion = StopStrings(tiny_tokenizer(), ["a", "b c"])  # of 13 words: 13 and 14 are slots
    rows = torch.tensor([[1, 13, 14, 3, 13], [1, 5, 13, 6, 13], [1, 7, 3, 5, 6], [1, 7, 3, 4, 0]])
    assert criterion(rows, None).tolist() == [False, False, True, True]


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("stop", ["Kim", "Lee", ["g Kim", "Lee h"], "ee"], ids=str)
def test_stop_strings_match_copied_words_of_the_rows_own_source(stop, num_beams):
    model, tokenizer = tiny_model(seed=9, scale=0.5), tiny_tokenizer()
    texts = ["Kim b Lee c", "Lee g Kim", "h <unk> e"]  # slot 0 is another word in each
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    options = {"max_new_tokens": 12, "min_new_tokens": 12, "repetition_penalty": 3.0, "num_beams": num_beams}
    criterion, strings = StopStrings(tokenizer, stop, source=texts), [stop] if isinstance(stop, str) else stop
    stopped = model.generate(**inputs, **options, stopping_criteria=[criterion])
    free = model.generate(**inputs, **options)
    decoded = [tokenizer.batch_decode(rows, source=texts, skip_special_tokens=False) for rows in (stopped, free)]
    ended = 0
    for text, whole in zip(*decoded, strict=True):
        words = text.removeprefix("<s> ").replace(" <pad>", "").replace(" </s>", "")
        ends = [words.find(each) + len(each) for each in strings if each in words]
        assert ends or len(words.split()) == 12
        if ends:  # in the last word
            assert " " not in words[min(ends) :]
        if num_beams == 1:
            assert whole.removeprefix("<s> ").startswith(words)
        ended += bool(ends)
    assert ended


@pytest.mark.parametrize(
    ("segmenter", "source", "target", "stop", "is_found"),
    [
        ("word_parts", "id a1b x", "id a1b x", "a1b", True),
        ("word_digits", "room B2b is free", "room B2b is free", "B2b", True),
        ("word_punct", "user for anna berta", "user AB for", "AB", True),
        ("word_punct", "user for anna berta", "user ab for", "er a", True),
        ("word_punct", "anna is a b", "ANNA is a b c d e f", "anna", False),
        ("word_punct", "Johnson is a b", "Joh is a b c d e f g h", "Johnson", False),
    ],
)
def test_a_stop_string_is_found_in_words_that_marks_join_and_change(segmenter, source, target, stop, is_found):
    corpus = ["id is room for free user x a b c d e f g h"]
    marks = ["[initial]", "[first_3]"]
    tokenizer = CopyNetTokenizer.train_from_iterator(corpus, 200, segmenter=segmenter, chains=True, changes=marks)
    row = [tokenizer.bos_token_id, *tokenizer(source, text_target=target)["labels"][:-1]]
    criterion = StopStrings(tokenizer, stop, source=source)
    lengths = range(1, len(row) + 1)
    texts = [tokenizer.decode(row[:length], source=source, skip_special_tokens=True) for length in lengths]
    assert texts[-1] == target
    assert (stop in target) is is_found
    found = [criterion(torch.tensor([row[:length]]), None).item() for length in lengths]
    assert found.index(True) == [stop in text for text in texts].index(True) if is_found else not any(found)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("knows_source", [False, True])
def test_a_stop_string_of_the_prefix_stops_nothing(num_beams, knows_source):
    model, tokenizer, text = tiny_model(seed=9, scale=0.5), tiny_tokenizer(), "a b c"
    prefix = torch.tensor([[1, 4, 5]])  # a b
    inputs = {**tokenizer(text, return_tensors="pt"), "num_beams": num_beams, "min_new_tokens": 6}
    inputs |= {"max_new_tokens": 6, "repetition_penalty": 3.0, "decoder_input_ids": prefix}
    free = model.generate(**inputs)
    assert 4 not in free[0, 3:]
    criterion = StopStrings(tokenizer, "a", source=[text])
    criterion(torch.tensor([[1, 5, 6, 7, 8, 9, 5]]), None)  # of another search, with longer rows
    stops = {"stopping_criteria": [criterion]} if knows_source else {"stop_strings": "a", "tokenizer": tokenizer}
    assert model.generate(**inputs, **stops).tolist() == free.tolist()


@pytest.mark.parametrize("stop", [None, "", ["a", ""], []], ids=str)
def test_a_stop_string_without_a_text_is_refused(stop):
    with pytest.raises(ValueError, match="use one or several texts that are not empty"):
        StopStrings(tiny_tokenizer(), stop)


def test_slots_are_spelled_by_facts_and_truncated_sources():
    tokenizer = tiny_tokenizer()
    rows = torch.tensor([[1, 13], [1, 14]])
    facts = [[("Kim", "a", "Lee")], None]
    criterion = StopStrings(tokenizer, "Lee", tokenizer.encode_sources(["Ann Bob", "Ann Lee"], facts))
    assert criterion(rows, None).tolist() == [False, True]
    assert criterion(rows.flip(0), None).tolist() == [True, False]
    tokenizer.truncation_side = "left"
    criterion = StopStrings(tokenizer, "Lee", [tokenizer.encode_source("Ann Bob Lee", max_length=2)])
    assert criterion(rows, None).tolist() == [False, True]  # one source, two beams
    with pytest.raises(ValueError, match="source has 3 texts for 2 rows"):
        StopStrings(tokenizer, "Lee", ["a", "b", "c"])(rows, None)


@pytest.mark.parametrize("stop", ["X", "a X", "<unk>"])
def test_a_stop_string_that_only_a_slot_could_spell_is_refused_without_sources(stop):
    with pytest.raises(ValueError, match=f"stop_strings holds '{stop}', a word outside the vocabulary"):
        tiny_model().generate(**sources(), stop_strings=["b", stop], tokenizer=tiny_tokenizer(), max_new_tokens=3)
