"""Commands from descriptions: what is trained on, how it is split, and that published outputs get known scores."""

from __future__ import annotations

import json

import pytest
from experiments.data.rows import collapse_spaces
from experiments.data.shell_commands import (
    JOINER,
    group_by_description,
    prepare,
    read_command_pairs,
    read_published_outputs,
    read_test_groups,
    restore,
)
from experiments.scores.command_scores import (
    NearestDescriptions,
    find_frequent_commands,
    score_judgements,
    spell_out,
)
from experiments.scores.texts import score_exact_match
from hypothesis import given
from hypothesis import strategies as st

from copynet_hf import CopyNetTokenizer
from copynet_hf.evaluation.metrics import score_outputs


@pytest.fixture(scope="module")
def pairs(data_dir):
    return read_command_pairs(data_dir)


@pytest.fixture(scope="module")
def groups(data_dir):
    return read_test_groups(data_dir)


# ---- data


def test_what_is_held_out_leaves_train_and_pairs_stay_once(tmp_path):
    splits = {
        "test": [("List all files", "ls -a")],
        "validation": [("count lines", "wc -l f")],
        "train": [
            ("list  ALL files", "ls"),
            ("show hidden files", "ls  -a"),
            ("Count  lines", "wc"),
            ("lines of f", "wc -l f"),
            ("first line", "head -n1"),
            ("first line", "head -1"),
            ("First line", "head  -1"),
            ("FIRST LINE", "HEAD -1"),
        ],
    }
    (tmp_path / "nl2bash").mkdir()
    for name, rows in splits.items():
        lines = (json.dumps({"source": source, "target": target}) + "\n" for source, target in rows)
        (tmp_path / "nl2bash" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    found = read_command_pairs(tmp_path)
    assert [row["summary"] for row in found["train"]] == ["head -n1", "head -1", "HEAD -1"]
    assert [row["text"] for row in found["train"]] == ["first line", "first line", "FIRST LINE"]
    assert found["validation"] == [{"text": "count lines", "summary": "wc -l f"}]


def test_the_real_pairs_have_nothing_held_out(pairs, groups):
    assert {name: len(rows) for name, rows in pairs.items()} == {"train": 8_045, "validation": 590}
    assert len(groups) == 547
    assert sum(len(group["answers"]) for group in groups) == 593
    test = [{"text": group["text"], "summary": answer} for group in groups for answer in group["answers"]]
    splits = (pairs["train"], pairs["validation"], test)
    for form in (lambda row: collapse_spaces(row["text"]).casefold(), lambda row: collapse_spaces(row["summary"])):
        train, validation, held_out = ({form(row) for row in rows} for rows in splits)
        assert not train & validation
        assert not (train | validation) & held_out
    for rows, number in ((pairs["validation"], 542), (test, 547)):  # none differ in capitals and spacing alone
        descriptions = {collapse_spaces(row["text"]).casefold() for row in rows}
        assert len(group_by_description(rows)) == len(descriptions) == number


# ---- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("find . -name '*.txt'", f"find . -name ' {JOINER}* {JOINER}.{JOINER} txt {JOINER}'"),
        ("files larger than 100KB.", f"files larger than 100 {JOINER} KB {JOINER}."),
        ("-size +100k", f"-size +{JOINER} 100 {JOINER} k"),
        ("-exec rm -rf {} \\;", "-exec rm -rf {} \\;"),
        ("mv {} {}.bak", f"mv {{}} {{}} {JOINER}.{JOINER} bak"),
        ("xargs -n1 -I{}", f"xargs -n {JOINER} 1 -I {JOINER} {{}}"),
        ("ls --block-size=1 a-b", f"ls --block-size {JOINER}={JOINER} 1 a {JOINER}-{JOINER} b"),
        ("/etc/my_file  ", f"/{JOINER} etc {JOINER}/{JOINER} my {JOINER}_{JOINER} file"),
        ("", ""),
    ],
)
def test_words_and_back(text, words):
    assert prepare(text) == words
    assert restore(words) == collapse_spaces(text)


@given(st.text(st.characters(exclude_characters=JOINER)) | st.text("a1._-{}\\;'\" \t\n$é²"))
def test_any_text_comes_back_but_for_spacing(text):
    assert restore(prepare(text)) == collapse_spaces(text)
    assert prepare(text) == collapse_spaces(prepare(text))


@pytest.mark.parametrize("written", ['"*.txt"', "'*.txt'", ".txt", "*.txt.", "(a.txt)", "txt", "/b/c_txt,"])
def test_a_name_has_the_same_word_however_it_is_written(written):
    assert "txt" in prepare(f"all {written} files").split()


def test_the_real_texts_come_back_and_their_commands_can_mostly_be_said(pairs, groups):
    train, validation = pairs["train"], pairs["validation"]
    texts = [text for row in [*train, *validation] for text in row.values()]
    texts += [text for group in groups for text in (group["text"], *group["answers"])]
    assert all(restore(prepare(text)) == collapse_spaces(text) for text in texts)

    words = (prepare(text) for row in train for text in row.values())
    tokenizer = CopyNetTokenizer.train_from_iterator(words, vocab_size=3_000, segmenter="whitespace")
    sources, targets = ([prepare(row[field]) for row in validation] for field in ("text", "summary"))
    labels = tokenizer(sources, text_target=targets)["labels"]
    said = tokenizer.batch_decode(labels, source=sources, skip_special_tokens=True)
    match = score_exact_match([[restore(text)] for text in said], [[row["summary"]] for row in validation])
    assert match == pytest.approx(89.0, abs=0.05)  # no model gets more
    assert match == pytest.approx(100 * sum(tokenizer.unk_token_id not in row for row in labels) / len(labels))


# ---- scores


def test_exact_match_counts_a_row_once_and_only_its_first_k_outputs():
    answers = [["ls -a", "ls -A"], ["wc"], ["cat f"]]
    ranked = [["ls", "ls  -A", "ls -a"], ["wc "], ["ls -a", "Cat f", "cat 'f'"]]
    assert [score_exact_match(ranked, answers, k) for k in (1, 2, 3)] == pytest.approx([100 / 3, 200 / 3, 200 / 3])
    assert score_exact_match(ranked, answers, 3, lambda text: text.lower()) == pytest.approx(200 / 3)
    assert score_exact_match([["a"], []], [["a"], ["b"]]) == 50
    with pytest.raises(ValueError, match="zip"):
        score_exact_match(ranked, answers[:2])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("find -type f|wc -l", "find . -type f | wc -l"),
        ("find ! -user a", "find . ! -user a"),
        ("find . | xargs -n1 -I{} ls -ld '{}'", "find . | xargs -n 1 -I {} ls -l -d {}"),
        ("rm `which a`", "rm $(which a)"),
        ("cp {} \\{\\}", 'cp "{}" {}'),
    ],
)
def test_spell_out_unifies_what_the_parser_rewrote(one, other):
    assert spell_out(one) == spell_out(other)
    assert spell_out(spell_out(one)) == spell_out(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("find a -name '*.c'", "find a -name *.c"),
        ('echo "$a"', "echo '$a'"),
        ("find a -print", "find a"),
        ("ls -la", "ls -al"),
        ("sudo ls", "ls"),
        ("find / -type f", "find -type f"),
        ("cut -f 1 -d 2", "cut -f 12 -d"),
    ],
)
def test_spell_out_keeps_all_other_differences(one, other):
    assert spell_out(one) != spell_out(other)


@pytest.mark.parametrize(
    ("name", "plain", "same_form", "judged"),
    [
        ("copynet_subtoken", (9.87, 15.54), (11.15, 17.73), (36.56, 44.79)),
        ("tellina", (2.56, 3.11), (3.11, 3.66), (27.42, 31.81)),
    ],
)
def test_published_outputs_get_the_scores_that_are_quoted(data_dir, groups, name, plain, same_form, judged):
    rows = read_published_outputs(data_dir, name)
    assert [row["text"] for row in rows] == [group["text"] for group in groups]
    assert all(len(row["outputs"]) == len(row["correct"]) == 3 for row in rows)
    ranked, answers = [row["outputs"] for row in rows], [group["answers"] for group in groups]
    assert [score_exact_match(ranked, answers, k) for k in (1, 3)] == pytest.approx(plain, abs=0.005)
    assert [score_exact_match(ranked, answers, k, spell_out) for k in (1, 3)] == pytest.approx(same_form, abs=0.005)
    assert [score_judgements(rows, k) for k in (1, 3)] == pytest.approx(judged, abs=0.005)
    scores = score_outputs(ranked, answers, tokenize="word")
    assert (scores["exact_match"], scores["exact_match_top_3"]) == pytest.approx(plain, abs=0.005)


# ---- what needs no learning


def test_the_nearest_description_answers_and_rare_words_count_more():
    rows = [
        {"text": "list all files", "summary": "ls"},
        {"text": "list all files by size", "summary": "ls  -S"},
        {"text": "list all hidden files", "summary": "ls -a"},
        {"text": "list the hidden ones", "summary": "ls -a"},
        {"text": "list all open files", "summary": "lsof"},
    ]
    nearest = NearestDescriptions(rows)
    assert nearest("all files by SIZE")[0] == "ls -S"
    assert nearest("which files are open")[0] == "lsof"
    assert nearest("hidden")[:1] == ["ls -a"]
    assert len(nearest("hidden open size", k=9)) == len(set(nearest("hidden open size", k=9))) == 3
    assert nearest("nothing known") == []
    assert find_frequent_commands(rows, 1) == ["ls -a"]

    texts = ("list all files", "list all folders", "list all files there", "open one")
    nearest = NearestDescriptions([{"text": text, "summary": text} for text in texts])
    assert nearest("list all files to open", 2) == ["open one", "list all files"]
