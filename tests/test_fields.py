"""Records as one line of text, and back, with the places of the values."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copynet_hf.data.fields import format_record, parse_fields

RECORD = {"intent": "PlayMusic", "artist": ["westbam", "bjork"], "year": 1999, "album": "a = b, c | d", "sort": None}
TEXT = "intent = PlayMusic | artist = westbam | artist = bjork | year = 1999 | album = a = b, c | d"


WRITTEN = 'ab1é. =|;,:({}\n"\\'


def pairs(text):
    fields = parse_fields(text)
    if fields is None:
        return None
    for field in fields:
        if "\\" not in text:
            assert text[field.start : field.end] == field.value
    return [(field.name, field.value) for field in fields]


def test_an_object_and_a_list_of_records_have_one_text():
    slots = [("intent", "PlayMusic"), ("artist", "westbam"), ("artist", "bjork"), ("year", "1999")]
    slots.append(("album", "a = b, c | d"))
    assert format_record(RECORD) == TEXT
    assert format_record([{"slot": name, "value": value, "start": None} for name, value in slots]) == TEXT
    assert pairs(TEXT) == slots


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vendor=Lorsen & Co; total=745.60;due=1", [("vendor", "Lorsen & Co"), ("total", "745.60"), ("due", "1")]),
        ("vendor=Lorsen; total=745.60;", [("vendor", "Lorsen"), ("total", "745.60")]),
        ("a=1 b=2,", [("a", "1"), ("b", "2,")]),
        ("a = 1 | b = |", [("a", "1"), ("b", "|")]),
        ("a = 1; b = 2;", [("a", "1"), ("b", "2")]),
        ("a=1;", [("a", "1")]),
        ("a = 1;", [("a", "1;")]),
        ("a=1 | b=2 3 | c=", [("a", "1"), ("b", "2 3"), ("c", "")]),
        ("a =東京 | b =", [("a", "東京"), ("b", "")]),
        ("a = 1, b.c = x\nd = 2", [("a", "1"), ("b.c", "x"), ("d", "2")]),
        ('{"a": "b \\"c", "d": [1, 2.5], "e": {"f": null}, "g": []}',
         [("a", 'b "c'), ("d", "1"), ("d", "2.5"), ("e.f", "null")]),
        (' {"a":"b"} ', [("a", "b")]),
        ("{}", []),
        ('{"a": "b"', None),
        ('{"a": "b"} c', None),
        ('{"a" "b"}', None),
        ("SELECT a FROM b WHERE c = 3", None),
        ("sent a to b", None),
        ("a == b", None),
        ("", None),
    ],
)  # fmt: skip
def test_fields_are_read_with_their_places(text, expected):
    assert pairs(text) == expected


def test_objects_inside_a_record_are_named_by_both():
    record = {"vendor": {"name": "Lorsen", "city": None}, "items": [{"name": "nail", "no": 3}, {"name": "saw"}]}
    named = [("vendor.name", "Lorsen"), ("items.name", "nail"), ("items.no", "3"), ("items.name", "saw")]
    assert pairs(format_record(record)) == named
    assert pairs(json.dumps(record))[:1] == named[:1]


@given(st.dictionaries(st.text(WRITTEN, max_size=5), st.lists(st.text(WRITTEN, max_size=9)), max_size=4))
def test_what_is_not_refused_is_read_again(record):
    fields = [("_".join(name.split()), " ".join(each.split())) for name, values in record.items() for each in values]
    try:
        text = format_record(record)
    except ValueError:
        is_twice = len({"_".join(name.split()) for name in record}) < len(record)
        is_unreadable = [re.search("[=|;,{}]", name) or not name or " =" in f" {value}" for name, value in fields]
        assert is_twice or any(is_unreadable)
    else:
        assert (pairs(text) or []) == [(name, value) for name, value in fields if value]


def test_what_is_written_is_read():
    for name in ("a", "to.city", "first name", "Total (EUR)", "€", "#", "@id", "from:", "$ref", "a[0]", "'x'"):
        for value in ("x", "x | y", "a = b", "x; y=2", "1,5"):
            text = format_record({name: value, "z": "1"})
            assert pairs(text) == [(name.replace(" ", "_"), value), ("z", "1")]
    for name in ("नाम", "ชื่อ", "e\u0301t", "نام\u200cها"):
        assert pairs(format_record({name: "x", "a": "y"})) == [(name, "x"), ("a", "y")]
    assert format_record({}) == format_record({"a": None, "b": [], "c": float("nan")}) == ""


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"a": [["b"]]}, "'a' holds a list"),
        ({"z": "1", "a": "x | b = 2"}, r"the value 'x \| b = 2' of 'a' would be read as several"),
        ({"z": "1", "a": "x, (b) = 2"}, "of 'a' would be read as several"),
        ({"a b": "1", "a_b": "2"}, "two names are both written as 'a_b': rename one"),
        ({"a.b": 1, "a": {"b": [2]}}, "two names are both written as 'a.b': rename one"),
        ({"a=b": "1"}, "the name 'a=b' is empty or holds one of =|;,{}: rename it".replace("|", r"\|")),
        ([{"name": "a"}], "'slot' and 'value'"),
        (json.dumps(RECORD), "neither"),
    ],
)
def test_what_cannot_be_read_again_is_refused(record, reason):
    with pytest.raises(ValueError, match=reason):
        format_record(record)


@pytest.mark.parametrize("space", ["\n", " ", " \n", "|", "&"])
@pytest.mark.parametrize("equals", [" = ", "="])
def test_long_runs_of_spaces_are_read_in_time(space, equals):
    started = time.process_time()
    fields = parse_fields(f"a{equals}1{space * 50_000}x")
    assert fields is not None
    assert [(field.name, field.value[:1]) for field in fields] == [("a", "1")]
    assert time.process_time() - started < 1
