"""Outputs of named values as records, with the places of the values in the text."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from copynet_hf import CopyNetForConditionalGeneration, CopyNetPredictor
from copynet_hf.cli import main
from copynet_hf.inference import predictor
from copynet_hf.inference.extraction import extract_records
from copynet_hf.inference.predictor import predict_in_batches
from copynet_hf.model.prediction import Prediction

TEXT = "play new york by sinatra and new york by moby"


def make_prediction(*words):
    """A prediction of words, each a text or with the characters that it was copied from."""
    pairs = [word if isinstance(word, tuple) else (word, None) for word in words]
    texts = [text for text, _ in pairs]
    scores = [0.5 if span is None else 0.9 for _, span in pairs]
    return Prediction("".join(texts), words=texts, word_scores=scores, source_spans=[span for _, span in pairs])


def places(prediction, text=TEXT):
    records = extract_records(prediction, text)
    return None if records is None else [(each["value"], each["start"], each["end"]) for each in records]


def test_a_copied_value_is_where_its_words_were_copied_from():
    second = make_prediction("track", " =", (" new", (29, 32)), (" york", (33, 37)), " |", " by", " =", " me")
    assert places(second) == [("new york", 29, 37), ("me", None, None)]
    assert TEXT[29:37] == "new york"
    fields = second.to_dict()
    of_pipeline = {"generated_text": second.text} | {name: fields[name] for name in fields if name != "text"}
    for output in (fields, of_pipeline):
        assert extract_records(output, TEXT) == extract_records(second, TEXT)


def test_words_that_were_copied_from_several_places_have_the_place_that_holds_the_value():
    torn = make_prediction("track", " =", (" new", (5, 8)), (" york", (33, 37)))
    assert places(torn) == [("new york", 5, 13)]
    turned = make_prediction("name", " =", (" york", (9, 13)), (" new", (5, 8)))
    assert places(turned) == [("york new", None, None)]


def test_a_generated_value_is_where_the_text_has_it_and_no_other_value_is():
    twice = make_prediction("a", " =", " new", " york", " |", "b", " =", (" new", (5, 8)), (" york", (9, 13)))
    assert places(twice) == [("new york", 29, 37), ("new york", 5, 13)]
    assert places(make_prediction("a", " =", " Moby")) == [("Moby", 41, 45)]
    assert places(make_prediction("a", " =", " mob")) == [("mob", None, None)]
    assert places(make_prediction("a", " =", "東京"), "在東京都") == [("東京", 1, 3)]
    assert places(make_prediction("a", " =", "พุด"), "ร้านพุดซ้อน") == [("พุด", 4, 7)]
    assert places(make_prediction("a", " =", " 12"), "สำหรับ12คน") == [("12", 6, 8)]
    assert places(make_prediction("a", " =")) == [("", None, None)]


def test_spaces_and_case_may_differ():
    joined = make_prediction("phone", "=", ("+33", (0, 3)), ("275", (4, 7)))
    assert places(joined, "+33 275") == [("+33275", 0, 7)]
    assert places(make_prediction("n", "=", ("ROSSI", (0, 5))), "Rossi") == [("ROSSI", 0, 5)]


def test_accents_and_punctuation_between_copied_words_may_differ():
    text = "mail 16,258.73 EUR to José Müller in Αθήνα"
    name = make_prediction("n", "=", ("jose", (22, 26)), (" mueller", (27, 33)))
    assert places(name, text) == [("jose mueller", 22, 33)]
    assert places(make_prediction("n", "=", ("ΑΘΗΝΑ", (37, 42))), text) == [("ΑΘΗΝΑ", 37, 42)]
    amount = [("16", (5, 7)), ("258", (8, 11)), (".", (11, 12)), ("73", (12, 14))]
    assert places(make_prediction("n", "=", *amount), text) == [("16258.73", 5, 14)]
    torn = make_prediction("n", "=", ("16", (5, 7)), ("73", (12, 14)))
    assert places(torn, text) == [("1673", None, None)]
    assert places(make_prediction("n", "=", ("805", (4, 7)), ".", ("00", (8, 10))), "EUR 805,00") == [
        ("805.00", 4, 10)
    ]
    turned = make_prediction("n", "=", ("2028", (6, 10)), "-", ("06", (3, 5)), "-", ("18", (0, 2)))
    assert places(turned, "18/06/2028") == [("2028-06-18", None, None)]
    assert places(make_prediction("n", "=", "-"), "one - two") == [("-", 4, 5)]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("rate 5% now", [("5", (5, 6)), "%"], ("5%", 5, 7)),
        ("temp -5 C", ["-", ("5", (6, 7))], ("-5", 5, 7)),
        ("temp 5 C", ["-", ("5", (5, 6))], ("-5", None, None)),  # a sign that is made up
        ("C and C++", [("C", (0, 1)), "++"], ("C++", 6, 9)),
        ("(a) b", ["(", ("a", (1, 2)), ")"], ("(a)", 0, 3)),
        ("(a) b", [("(", (0, 1)), ("a", (1, 2)), (")", (2, 3))], ("(a)", 0, 3)),
        ("mit 1, 2 und 1.2", [("1", (4, 5)), ".", ("2", (7, 8))], ("1.2", 13, 16)),
        ("mit 1, 2 und 12", [("1", (4, 5)), ".", ("2", (7, 8))], ("1.2", 4, 8)),
        ("mit 1 und 2", [("1", (4, 5)), ".", ("2", (10, 11))], ("1.2", None, None)),
        ("का ल", [("क", (0, 1)), "ी"], ("की", None, None)),
        ("a c", [("a", (0, 1)), " b", (" c", (2, 3))], ("a b c", None, None)),
    ],
)
def test_generated_marks_count_where_the_text_has_them_or_between_copied_words(text, words, expected):
    assert places(make_prediction("n", "=", *words), text) == [expected]


@pytest.mark.parametrize(
    ("text", "value", "start"),
    [
        ("रामायण के लेखक राम", "राम", 15),
        ("un cafe\u0301s et un cafe", "cafe", 16),
        ("کتاب\u200cها و کتاب", "کتاب", 10),
        ("ปีนี้ ป", "ป", 6),
    ],
)
def test_a_value_is_not_found_within_a_word_of_combining_marks(text, value, start):
    assert places(make_prediction("a", " =", f" {value}"), text) == [(value, start, start + len(value))]


def test_the_confidences_of_the_records_multiply_to_that_of_the_words():
    output = make_prediction("a", " =", (" new", (5, 8)), " |", " b", " =", (" moby", (41, 45)), " sinatra")
    records = extract_records(output, TEXT)
    assert [each["confidence"] for each in records] == pytest.approx([0.5**2 * 0.9, 0.5**3 * 0.9 * 0.5])
    untraced = extract_records(Prediction("a = moby"), TEXT)
    assert untraced == [{"slot": "a", "value": "moby", "start": 41, "end": 45, "confidence": None}]


def test_json_has_records_and_other_outputs_have_none():
    output = make_prediction('{"', "a", '":', ' "', ("moby", (41, 45)), '",', ' "', "n", '":', " 3", "}")
    assert places(output) == [("moby", 41, 45), ("3", None, None)]
    assert extract_records(make_prediction("play", " moby"), TEXT) is None
    assert extract_records(Prediction(""), "") is None


# ---- from training pairs of records to records


@pytest.fixture
def folder(slots_model):
    """A model that writes the record of each request it has seen."""
    return slots_model


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
def test_predict_writes_records_whose_values_are_in_the_text(folder, tmp_path, suffix):
    output = tmp_path / f"out.{suffix}"
    files = [f"--input_file={folder / 'train.jsonl'}", f"--output_file={output}", f"--model={folder / 'model'}"]
    assert main(["predict", *files, "--output_format=records", "--min_confidence=0.5"]) == 0
    if suffix == "csv":
        assert '""start"": 5' in output.read_text(encoding="utf-8")
        return
    lines = output.read_text(encoding="utf-8").splitlines() if suffix == "jsonl" else []
    rows = [json.loads(line) for line in lines] or pq.read_table(output).to_pylist()
    assert len(rows) == 8
    for row in rows:
        records, slots = row["prediction"], row["slots"] if suffix == "jsonl" else json.loads(row["slots"])
        assert {each["slot"]: each["value"] for each in records} == slots
        for each in records[1:]:
            assert row["text"][each["start"] : each["end"]] == each["value"]
            assert 0 < each["confidence"] <= 1
        assert (records[0]["start"], records[0]["end"]) == (None, None)
        assert row["prediction_accepted"] == (row["prediction_confidence"] >= 0.5)


def test_outputs_without_records_are_counted_and_not_accepted(folder, tmp_path, caplog):
    output = tmp_path / "out.jsonl"
    files = [f"--input_file={folder / 'train.jsonl'}", f"--output_file={output}", f"--model={folder / 'model'}"]
    options = ["--output_format=records", "--min_confidence=0", "--max_target_length=1"]  # the output is "intent"
    assert main(["predict", *files, *options]) == 0
    rows = list(map(json.loads, output.read_text(encoding="utf-8").splitlines()))
    assert {(row["prediction"], row["prediction_accepted"]) for row in rows} == {(None, False)}
    assert "8 of 8 outputs hold no records" in caplog.text


def test_the_predictor_gives_a_column_of_records(folder):
    predict = CopyNetPredictor(folder / "model", output_format="records", text_column="request")
    columns = predict({"request": ["play moby on deezer", "", None]})
    assert [each["value"] for each in columns["prediction"][0]] == ["PlayMusic", "moby", "deezer"]
    assert columns["prediction"][1:] == [None, None]
    assert list(columns) == ["request", "prediction", "prediction_is_truncated"]
    with pytest.raises(ValueError, match="output_format is 'xml'"):
        CopyNetPredictor(folder / "model", output_format="xml")


def test_a_column_of_outputs_is_marked_by_their_confidence(folder):
    model = CopyNetForConditionalGeneration.from_pretrained(folder / "model")
    assert model.config.calibration is None  # there are no validation pairs
    texts = ["play moby on deezer", "nas moby", ""]
    scored = CopyNetPredictor(folder / "model", with_origins=True)({"text": texts})
    threshold = sorted(filter(None, scored["prediction_confidence"]))[-1]
    columns = CopyNetPredictor(folder / "model", min_confidence=threshold)({"text": texts})
    added = ["", "_is_truncated", "_confidence", "_accepted"]
    assert list(columns) == ["text", *(f"prediction{name}" for name in added)]
    assert columns["prediction"] == scored["prediction"]
    assert columns["prediction_accepted"] == [True, False, False]


def test_generate_marks_what_is_doubtful(folder, capsys):
    argv = ["generate", f"--model={folder / 'model'}", "--text", "play moby on deezer", "nas moby", ""]
    capsys.readouterr()
    assert main([*argv, "--json"]) == 0
    sure, doubtful, _ = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sure["confidence"] > doubtful["confidence"]
    assert main([*argv, f"--min_confidence={sure['confidence']}"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == [sure["text"], f"{sure['confidence']:.4f}", "accepted"]
    assert rows[1] == [doubtful["text"], f"{doubtful['confidence']:.4f}", "doubtful"]
    assert rows[2] == ["", "", "doubtful"]


def test_a_tab_in_an_output_adds_no_column(folder, capsys, monkeypatch):
    def predict_tab(*args, **options):
        return [[replace(row[0], text="a\tb\nc")] for row in predict_in_batches(*args, **options)]

    monkeypatch.setattr(predictor, "predict_in_batches", predict_tab)
    capsys.readouterr()
    assert main(["generate", f"--model={folder / 'model'}", "--text=play moby on deezer", "--min_confidence=1"]) == 0
    text, _, verdict = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (text, verdict) == ("a b c", "doubtful")
