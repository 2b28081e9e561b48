"""The metrics: published values, their definitions on small cases, and the Trainer's compute_metrics."""

from __future__ import annotations

import importlib.util
import json
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evaluate
import numpy as np
import pytest
from helpers import byte_level_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.tokenizers import DefaultTokenizer
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from copynet_hf.evaluation import metrics
from copynet_hf.evaluation.compute_metrics import make_compute_metrics, split_words
from copynet_hf.evaluation.metrics import CopyMetrics, metric_signature, score_outputs
from copynet_hf.model.tokenization_copynet import CopyNetTokenizer

MODULE = Path(metrics.__file__)


def rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ROUGE and BLEU


@pytest.mark.parametrize(
    ("file", "length", "expected"),
    [
        ("clge_test", 30, (24.3, 13.4, 20.7)),
        ("test", 22, (24.6, 13.6, 21.1)),
    ],
)
def test_rouge_of_the_first_characters_of_lcsts_is_the_published_one(
    data_dir: Path, file: str, length: int, expected: tuple[float, ...]
) -> None:
    pairs = rows(data_dir / "lcsts" / f"{file}.jsonl")
    scores = score_outputs([row["text"][:length] for row in pairs], [row["summary"] for row in pairs])
    assert tuple(round(scores[f"rouge{kind}"], 1) for kind in "12L") == expected
    assert scores["examples"] == len(pairs)


def test_rouge_of_equal_chinese_sentences_is_100_and_ignores_spaces() -> None:
    scores = score_outputs(["可穿戴 技术 十大 原则"], ["可穿戴技术十大原则"])
    # Not 100.00000000000004, which is what sacrebleu finds.
    assert [scores[key] for key in ("rouge1", "rouge2", "rougeL", "exact_match", "bleu")] == [100] * 5


def test_rouge_counts_by_hand() -> None:
    scores = score_outputs(["the cat sat here"], ["The cat, here!"])
    # Unigrams: 3 of 4 and 3 of 3; bigrams: 1 of 3 and 1 of 2; the longest common subsequence is 3 long.
    assert scores["rouge1"] == pytest.approx(100 * 6 / 7)
    assert scores["rouge2"] == pytest.approx(100 * 2 / 5)
    assert scores["rougeL"] == pytest.approx(100 * 6 / 7)


@given(st.text(string.printable))
def test_words_are_those_of_rouge_score_on_ascii(text: str) -> None:
    assert metrics._lowered_words(text) == DefaultTokenizer().tokenize(text)


def test_words_of_other_alphabets_are_not_split() -> None:
    assert metrics._lowered_words("Où est l'école ? हिन्दी") == ["où", "est", "l", "école", "हिन्दी"]


@pytest.mark.parametrize(
    ("reference", "unit", "bleu"),
    [
        ("雅虎宣布剥离阿里巴巴", "char", "tok:zh"),
        ("2007年iPhone和乔布斯", "char", "tok:zh"),
        ("こんにちは、東京", "char", "tok:char"),
        ("ร้านสวนคุณยาย", "char", "tok:char"),
        ("he wrote 北京 on the map", "word", "tok:13a"),
        ("안녕하세요 여러분", "word", "tok:13a"),
        ("12345", "word", "tok:13a"),
    ],
)
def test_the_unit_follows_the_script_of_the_references(reference: str, unit: str, bleu: str) -> None:
    signature = metric_signature([reference])
    assert f"tok:{unit}" in signature["rouge1"]
    assert bleu in signature["bleu"]
    assert "version:" in signature["bleu"]


def test_full_stops_set_apart_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["please call Ann now ."] * 200
    assert score_outputs(texts, texts)["bleu"] == 100
    assert caplog.messages == []


def test_the_unit_can_be_set() -> None:
    assert score_outputs(["ab"], ["ac"], tokenize="char")["rouge1"] == pytest.approx(50)
    assert score_outputs(["ab"], ["ac"], tokenize="word")["rouge1"] == 0
    assert score_outputs(["甲 乙"], ["甲 丙"], tokenize="word")["rouge1"] == pytest.approx(50)


def test_of_several_references_the_best_counts() -> None:
    scores = score_outputs(["a b c d e"], [["x y", "a b c d e"]])
    assert scores["rougeL"] == scores["exact_match"] == pytest.approx(100)
    assert scores["bleu"] == pytest.approx(100)
    assert "nrefs:2" in metric_signature([["x y", "a b c d e"]])["bleu"]


def test_rows_may_have_different_numbers_of_references() -> None:
    scores = score_outputs(["a b c d e", "f g h i"], [["a b c d e"], ["x", "f g h i"]])
    assert scores["exact_match"] == 100
    assert scores["bleu"] == pytest.approx(100)


def test_an_empty_prediction_or_reference_scores_0_and_not_nan() -> None:
    assert set(score_outputs(["", ""], ["a", "b"], ["a", "b"], vocabulary=set()).values()) == {0.0, 2}
    assert score_outputs(["a"], [""])["rouge1"] == 0


# edit distance


def slow_distance(first: str, second: str) -> int:
    """Levenshtein's recursion to the letter."""
    if not first or not second:
        return len(first) + len(second)
    if first[0] == second[0]:
        return slow_distance(first[1:], second[1:])
    rests = ((first[1:], second), (first, second[1:]), (first[1:], second[1:]))
    return 1 + min(slow_distance(*rest) for rest in rests)


@given(st.lists(st.tuples(st.text("ab", max_size=5), st.text("abc", max_size=5)), min_size=1, max_size=4))
def test_the_edit_distance_is_that_of_the_recursion(pairs: list[tuple[str, str]]) -> None:
    scores = score_outputs([pair[0] for pair in pairs], [pair[1] for pair in pairs], edit_distance=True)
    distances = [slow_distance(*pair) for pair in pairs]
    length = sum(len(pair[1]) for pair in pairs)
    assert scores["edit_distance"] == pytest.approx(sum(distances) / len(pairs))
    assert scores["character_error_rate"] == pytest.approx(100 * sum(distances) / length if length else 0)


def test_the_edit_distance_is_to_the_nearest_reference_with_unk_as_one_character() -> None:
    scores = score_outputs(["kitten", "a<unk>c"], [["x", "sitting"], ["abc"]], edit_distance=True)
    assert scores["edit_distance"] == (3 + 1) / 2
    assert scores["character_error_rate"] == 100 * (3 + 1) / (7 + 3)


def test_edit_distances_are_computed_where_words_are_spelled() -> None:
    assert "edit_distance" not in score_outputs(["a"], ["a"])
    for segmenter, text, is_spelled in (
        ("char", "walk", True),
        ("char", "散歩する", False),
        ("whitespace", "a", False),
    ):
        tokenizer = CopyNetTokenizer.train_from_iterator([text], 100, segmenter)
        labels = np.array([tokenizer(text, text_target=text)["labels"]])
        scores = make_compute_metrics(tokenizer, [text], [text])(
            SimpleNamespace(predictions=labels, label_ids=labels, inputs=np.array([tokenizer(text)["input_ids"]]))
        )
        assert ("character_error_rate" in scores) == is_spelled


# Exact match and n-best lists


def test_exact_match_ignores_spacing_but_not_case() -> None:
    assert score_outputs(["a  b ", "A b"], ["a b", "a b"])["exact_match"] == 50


def test_n_best_lists_add_top_k_and_the_first_is_scored() -> None:
    lists = [["wrong here", "right one"], ["right two", "wrong"], ["bad", "worse"]]
    references = ["right one", "right two", "right three"]
    scores = score_outputs(lists, references)
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert scores["exact_match_top_2"] == pytest.approx(200 / 3)
    assert scores["rouge1"] == score_outputs([row[0] for row in lists], references)["rouge1"]


def test_a_plain_list_has_no_top_k() -> None:
    assert not [key for key in score_outputs(["a"], ["a"]) if "top" in key]


# Copying


def test_copying_is_counted_in_words_with_multiplicity() -> None:
    source = "call Zara Quim or Zara at noon"
    reference = "Zara and Quim and Zara know nobody Else"
    scores = score_outputs(
        ["Zara <unk> Else told"],
        [reference],
        [source],
        vocabulary={"call", "or", "at", "and", "know", "nobody"},
    )
    # Out-of-vocabulary words of the reference that are in the source: Zara twice and Quim; one Zara was predicted.
    assert scores["oov_recall"] == pytest.approx(100 / 3)
    assert scores["copied_fraction"] == pytest.approx(25)
    assert scores["unk_rate"] == pytest.approx(25)


def test_a_repeated_prediction_is_counted_no_more_often_than_the_reference_has_it() -> None:
    scores = score_outputs(["Zara Zara Zara"], ["Zara met Quim"], ["Zara Quim"], vocabulary={"met"})
    assert scores["oov_recall"] == pytest.approx(50)


def test_of_several_references_the_one_recalled_best_counts() -> None:
    scores = score_outputs(["Quim"], [["Zara Zara", "Quim", "hello"]], ["Zara Quim"], vocabulary={"hello"})
    assert scores["oov_recall"] == 100


def test_oov_recall_is_left_out_when_there_is_nothing_to_recall() -> None:
    assert "oov_recall" not in score_outputs(["a"], ["a"], ["a"], vocabulary={"a"})
    assert "oov_recall" not in score_outputs(["a"], ["a"], ["a"])
    assert "copied_fraction" not in score_outputs(["a"], ["a"])


def test_unk_is_one_word_whatever_splits_the_text() -> None:
    scores = score_outputs(["北<unk>京"], ["北京"], ["北京"], words=list, vocabulary=set())
    assert scores["unk_rate"] == pytest.approx(100 / 3)
    assert score_outputs(["北<unk>京"], ["北京"])["unk_rate"] == pytest.approx(100 / 3)


def test_neither_a_space_beside_unk_nor_a_joiner_is_a_word() -> None:
    words = partial(split_words, CopyNetTokenizer.train_from_iterator(["a"], 10, "word_parts"))
    text, source = "send <unk> to <unk> FooBar", "send to  Wex"
    scores = score_outputs([text], [text], [source], words=words, vocabulary=set())
    assert scores["unk_rate"] == pytest.approx(100 * 2 / 6)  # send, <unk>, to, <unk>, Foo, Bar
    assert scores["copied_fraction"] == pytest.approx(100 * 2 / 6)
    assert score_outputs(["<unk> <unk>"], ["a"], words=words)["unk_rate"] == 100


# Errors


def test_different_numbers_of_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2 predictions have 1 references"):
        score_outputs(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="1 predictions have 2 sources"):
        score_outputs(["a"], ["a"], ["a", "b"])
    with pytest.raises(ValueError, match="no predictions"):
        score_outputs([], [])
    with pytest.raises(ValueError, match="row 1 has no reference"):
        score_outputs(["a", "b"], [["a"], []])


# As a metric of evaluate


def metric_kinds() -> list[evaluate.Metric]:
    return [CopyMetrics(), evaluate.load(str(MODULE))]


@pytest.mark.parametrize("kind", [0, 1], ids=["made here", "evaluate.load"])
def test_the_metric_gives_the_same_scores_as_the_function(kind: int) -> None:
    metric = metric_kinds()[kind]
    predictions, references, sources = (
        ["Zara met Quim", "no one"],
        ["Zara met Quim", "someone"],
        ["Zara Quim", "x"],
    )
    options = {"vocabulary": {"met"}, "words": str.split}
    scores = metric.compute(predictions=predictions, references=references, sources=sources, **options)
    assert scores == score_outputs(predictions, references, sources, **options)
    lists = [["a", "Zara met Quim"], ["someone", "b"]]
    nested = metric.compute(predictions=lists, references=[[text] for text in references])
    assert nested == score_outputs(lists, references)


def test_the_metric_collects_batches() -> None:
    metric = CopyMetrics()
    metric.add_batch(predictions=["Zara met"], references=["Zara met"])
    metric.add(prediction="Quim", reference="no")
    scores = metric.compute(sources=["Zara", "Quim"], vocabulary={"met"})
    assert scores["oov_recall"] == scores["exact_match"] * 2 == 100


def test_the_module_stands_alone(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.py"
    copy.write_bytes(MODULE.read_bytes())
    spec = importlib.util.spec_from_file_location("elsewhere", copy)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.score_outputs(["a"], ["a"])["exact_match"] == 100


# The Trainer's compute_metrics


# The ids of words outside the vocabulary begin at 6.
VOCABULARY = {"<pad>": 0, "</s>": 1, "<unk>": 2, "met": 3, "hello": 4, "<s>": 5}
WORDS = CopyNetTokenizer(VOCABULARY, segmenter="whitespace", max_source_oov=4)


def prediction(ids: list[list[int]], labels: list[list[int]], inputs: list[list[int]]) -> SimpleNamespace:
    return SimpleNamespace(predictions=np.array(ids), label_ids=np.array(labels), inputs=np.array(inputs))


def test_each_row_is_decoded_with_its_own_source_and_extra_rows_are_left_out() -> None:
    compute = make_compute_metrics(WORDS, ["Zara met Quim", "Tol"])
    ids = [[6, 3, 7, 1, -100], [4, 6, 1, 0, 0], [6, 3, 7, 1, 0]]
    labels = [[6, 3, 7, 1], [4, 6, 1, -100], [3, 3, 3, 3]]
    scores = compute(prediction(ids, labels, [[6, 3, 7], [6, -100, -100], [6, 3, 7]]))
    assert scores["examples"] == 2
    assert scores["exact_match"] == scores["oov_recall"] == 100
    assert scores["copied_fraction"] == pytest.approx(100 * 4 / 5)


def test_an_unknown_word_never_counts_as_right() -> None:
    compute = make_compute_metrics(WORDS, ["Zara"])
    scores = compute(prediction([[6, 3, 2, 1]], [[6, 3, 2, 1]], [[6]]))
    assert scores["exact_match"] == 0
    assert scores["unk_rate"] == pytest.approx(100 / 3)
    assert compute(prediction([[6, 3, 1]], [[6, 3, 2]], [[6]]))["exact_match"] == 0


def test_given_references_replace_the_labels() -> None:
    compute = make_compute_metrics(WORDS, ["Zara"], ["Zara met Bo"])
    scores = compute(prediction([[6, 3, 1]], [[6, 3, 1]], [[6]]))
    assert scores["exact_match"] == 0
    assert scores["rouge1"] == pytest.approx(80)


def test_an_ordinary_tokenizer_decodes_without_sources() -> None:
    tokenizer = subword_tokenizer()
    scores = make_compute_metrics(tokenizer, SOURCES)(evaluated(tokenizer(SOURCES)["input_ids"], [0, 1, 2, 3]))
    assert scores["exact_match"] == scores["copied_fraction"] == 100
    assert "oov_recall" not in scores


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_copynet_tokenizer_gives_its_words_back(side: str) -> None:
    sources = ["call Zara Quim now", "send Tol to Quim or Bo"]
    targets = ["Zara Quim called", "Tol and Bo sent"]
    known = ["call now send to or called and sent"]
    tokenizer = CopyNetTokenizer.train_from_iterator(known, 50, "whitespace", truncation_side=side)
    batch = tokenizer(sources, text_target=targets, padding=True, truncation=True, max_length=5, return_tensors="np")
    wrong = np.where(batch["labels"] == -100, tokenizer.pad_token_id, batch["labels"])
    wrong[1, 0] = tokenizer.unk_token_id
    compute = make_compute_metrics(tokenizer, sources, targets, max_source_length=5)
    scores = compute(SimpleNamespace(predictions=wrong, label_ids=batch["labels"], inputs=batch["input_ids"]))
    # Truncation drops "send" on the left, "Bo" on the right; the label and the prediction of "Bo" are then <unk>.
    assert scores["exact_match"] == 50
    assert scores["oov_recall"] == pytest.approx(100 * (3 if side == "left" else 2) / 4)
    assert scores["unk_rate"] == pytest.approx(100 * (1 if side == "left" else 2) / 7)


def test_objects_of_facts_are_read_and_count_as_copied() -> None:
    sources, facts = ["met Zara", "hello Bo"], [[("Zara", "city", "Bonn")], []]
    targets = ["met Bonn", "hello Bo"]
    batch = WORDS(sources, facts=facts, text_target=targets, padding=True, return_tensors="np")
    outputs = np.where(batch["labels"] == -100, WORDS.pad_token_id, batch["labels"])
    columns = SimpleNamespace(predictions=outputs, label_ids=batch["labels"], inputs=batch["input_ids"])
    scores = make_compute_metrics(WORDS, sources, targets, facts=facts)(columns)
    assert scores["exact_match"] == scores["oov_recall"] == scores["copied_fraction"] == 100
    with pytest.raises(ValueError, match="another order than `sources`"):
        make_compute_metrics(WORDS, sources, targets)(columns)


def test_another_number_of_predictions_than_sources_is_refused() -> None:
    rows = WORDS(["a", "b c", "a"], padding=True)["input_ids"]
    outputs = [[3]] * 3

    def score(count: int, sources: list[str]) -> dict[str, float]:
        return make_compute_metrics(WORDS, sources)(prediction(outputs[:count], outputs[:count], rows[:count]))

    with pytest.raises(ValueError, match="2 sources have 1 predictions"):
        score(1, ["a", "b c"])
    with pytest.raises(ValueError, match="1 sources have 2 predictions"):
        score(2, ["a"])
    with pytest.raises(ValueError, match="2 texts have 3 predictions: set num_return_sequences=1"):
        make_compute_metrics(WORDS, ["a", "b c"])(prediction(outputs, outputs[:2], rows[:2]))
    assert score(3, ["a", "b c"]) == score(2, ["a", "b c"])  # as of several processes, the first row again


def test_a_wrong_number_of_references_is_refused() -> None:
    with pytest.raises(ValueError, match="2 sources have 1 references"):
        make_compute_metrics(WORDS, ["a", "b"], ["a"])


# An evaluation set in another order than the sources

SOURCES = ["call Zara now", "please mail Quim and Tol today", "ask Bo Li", "thank Nils for the long letter"]
KNOWN = "call mail ask thank please now today and for the long letter"


def copying_tokenizer(**options: Any) -> CopyNetTokenizer:
    return CopyNetTokenizer.train_from_iterator([KNOWN], 100, "whitespace", **options)


def subword_tokenizer() -> PreTrainedTokenizerFast:
    """One that ends its texts."""
    tokenizer = byte_level_tokenizer([KNOWN], 280, pad_token="<pad>", eos_token="</s>")
    ending = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.backend_tokenizer.post_processor = ending
    return tokenizer


def evaluated(rows: list[list[int]], order: list[int]) -> SimpleNamespace:
    """What the Trainer passes on when the outputs equal the labels, which equal the inputs."""
    width = max(map(len, rows)) + 1
    padded = np.array([rows[i] + [-100] * (width - len(rows[i])) for i in order])
    return SimpleNamespace(predictions=np.where(padded < 0, 0, padded), label_ids=padded, inputs=padded)


@pytest.mark.parametrize("make_tokenizer", [copying_tokenizer, subword_tokenizer])
def test_another_order_is_refused(make_tokenizer: Callable[[], Any]) -> None:
    tokenizer = make_tokenizer()
    rows = tokenizer(SOURCES)["input_ids"]
    for references in (SOURCES, None):
        compute = make_compute_metrics(tokenizer, SOURCES, references)
        assert compute(evaluated(rows, [0, 1, 2, 3, 0, 1]))["exact_match"] == 100  # two rows fill up the last batch
        for order, row in (([3, 1, 2, 0], 0), ([0, 1, 3, 2], 2)):
            with pytest.raises(ValueError, match=rf"another order than `sources` \(its row {row} .*group_by_length"):
                compute(evaluated(rows, order))


@pytest.mark.parametrize("make_tokenizer", [copying_tokenizer, subword_tokenizer])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_truncated_sources_are_in_order(make_tokenizer: Callable[[], Any], length: int) -> None:
    tokenizer = make_tokenizer()
    rows = tokenizer(SOURCES, truncation=True, max_length=length)["input_ids"]
    for known_length in (length, None):
        make_compute_metrics(tokenizer, SOURCES, max_source_length=known_length)(evaluated(rows, [0, 1, 2, 3]))


def test_sources_that_were_truncated_on_the_left_need_their_length() -> None:
    tokenizer = copying_tokenizer(truncation_side="left")
    rows = tokenizer(SOURCES, truncation=True, max_length=2)["input_ids"]
    make_compute_metrics(tokenizer, SOURCES, max_source_length=2)(evaluated(rows, [0, 1, 2, 3]))
    with pytest.raises(ValueError, match="pass the `sources`, `facts` and `max_source_length`"):
        make_compute_metrics(tokenizer, SOURCES)(evaluated(rows, [0, 1, 2, 3]))


def test_neither_logits_nor_outputs_without_inputs_are_scored() -> None:
    tokenizer = copying_tokenizer()
    outputs = evaluated(tokenizer(SOURCES)["input_ids"], [0, 1, 2, 3])
    for logits in (np.zeros((4, 3, 5)), (np.zeros((4, 3, 5)), None)):
        outputs.predictions = logits
        with pytest.raises(ValueError, match="set predict_with_generate=True in the training arguments"):
            make_compute_metrics(tokenizer, SOURCES)(outputs)
    outputs.inputs = None
    with pytest.raises(ValueError, match=r"set include_for_metrics=\['inputs'\] in the training arguments"):
        make_compute_metrics(tokenizer, SOURCES)(outputs)
