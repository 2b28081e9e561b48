"""Segmenters: joining restores the text, and a word is the same string in any context."""

import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from copynet_hf.model import segmentation
from copynet_hf.model.segmentation import CHAINED, JOINER, SEGMENTERS, get_segmenter

# Characters that the rules of word_punct treat differently, so that hypothesis often meets them together.
TRICKY = st.text(
    alphabet=f"ab_1 \t\n\u3000\u0085\x1c.-\"'()[]{JOINER}文字é\u0301\ud800😀ि\u200c\u200d\ufe0f", max_size=12
)
ANY_TEXT = st.one_of(st.text(), TRICKY)


def split(text: str) -> list[str]:
    return SEGMENTERS["word_punct"].split(text)


def contains(words: list[str], part: list[str]) -> bool:
    return any(words[start : start + len(part)] == part for start in range(len(words)))


@pytest.mark.parametrize("name", ["char", "jieba", "fugashi", *CHAINED])
@settings(deadline=None, max_examples=100)
@given(text=ANY_TEXT)
@example(text="")
@example(text="5 0e1f2a 9 cafe01_2, DEAD7BEEF0")
@example(text=f"{JOINER}a{JOINER}{JOINER} [{JOINER}] \\{JOINER}")
@example(text="  a\t\tb \r\n\r\n c  ")
@example(text="_\u0345\u03b1 \u0391\u0345_\u0345")
@example(text="他说：“hello world”，3.14%。\u3000然后 走了 ")
@example(text="「東京で\0iPhone15を買う」\ud800\udc00\r\n\u3000１，０００円　？ﾊﾝｶｸ ")
def test_joining_restores_the_text_exactly(name: str, text: str) -> None:
    segmenter = SEGMENTERS[name]
    words = segmenter.split(text)
    assert segmenter.join(words) == text
    assert all(words)  # no empty words


@given(text=ANY_TEXT)
def test_whitespace_round_trip_normalises_spaces_and_nothing_else(text: str) -> None:
    segmenter = SEGMENTERS["whitespace"]
    assert segmenter.join(segmenter.split(text)) == " ".join(text.split())
    assert segmenter.split(segmenter.join(segmenter.split(text))) == segmenter.split(text)


@given(words=st.lists(TRICKY.filter(bool)))
def test_any_sequence_of_words_can_be_joined(words: list[str]) -> None:
    # A model can generate words in any order.
    for segmenter in SEGMENTERS.values():
        assert isinstance(segmenter.join(words), str)


def is_letter(char: str) -> bool:
    return char.isalnum() or char == "_"


def is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M")


def runs(text: str) -> Iterator[str]:
    """The runs of letters, digits and underscores, with the marks and zero-width joiners in them."""
    run = ""
    for char, following in zip(text, text[1:] + " ", strict=False):
        joins = char in "\u200c\u200d" and (is_letter(following) or is_mark(following))
        if is_letter(char) or (run and (joins or is_mark(char))):
            run += char
        elif run:
            yield run
            run = ""
    if run:
        yield run


@given(text=ANY_TEXT)
def test_words_of_word_punct_are_the_runs_of_word_characters(text: str) -> None:
    assert [word for word in split(text) if is_letter(word[0])] == list(runs(text))


def test_every_combining_mark_and_nothing_else_belongs_to_the_word_before_it() -> None:
    text = " ".join(f"a{chr(code)}b" for code in (*range(0x20000), *range(0xE0000, 0xE0200)))
    assert [word for word in split(text) if is_letter(word[0])] == list(runs(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the cat sat", ["the", "cat", "sat"]),
        ("3.14", ["3", "￭.￭", "14"]),
        ("rm -rf /usr/bin", ["rm", "-￭", "rf", "/￭", "usr", "￭/￭", "bin"]),
        ('say "a b".', ["say", '"￭', "a", "b", '￭"', "."]),
        ("foo() - bar", ["foo", "￭(", ")", " ", "-", "bar"]),
        ("a  b\n", ["a", "  ", "b", "\n"]),
        ("x ￭ y", ["x", "[￭]", "y"]),
        ("你好，世界", ["你好", "￭，￭", "世界"]),
        ("नाम हिन्दी।", ["नाम", "हिन्दी", "￭।"]),
        ("cafe\u0301, שָׁלוֹם", ["cafe\u0301", "￭,", "שָׁלוֹם"]),
        ("می\u200cخواهم ශ්\u200dරී", ["می\u200cخواهم", "ශ්\u200dරී"]),
        ("❤\ufe0f !", ["❤", "\ufe0f", " ", "!"]),
    ],
)
def test_the_scheme_of_word_punct_by_example(text: str, words: list[str]) -> None:
    assert split(text) == words


@pytest.mark.parametrize(
    "item", ["-flag", "--long-flag", "file_name.txt", '"quoted string"', "3.14", "/usr/bin", "f(x)"]
)
@pytest.mark.parametrize(
    "around", ["{}", "run {} now", '"{}"', "({}).", "{}, {}", "a\n{}\tb", "[{}]", "  {}", "$ {}:"]
)
def test_an_item_has_the_same_tokens_next_to_spaces_and_punctuation(item: str, around: str) -> None:
    assert contains(split(around.format(item, item)), split(item))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("B48,906", ["B", JOINER, "4", "8", f"{JOINER},{JOINER}", "9", "0", "6"]),
        ("4 56 kg", ["4", " ", "5", "6", "kg"]),
        ("1_2\t3", ["1", f"{JOINER}_{JOINER}", "2", "\t", "3"]),
        ("1 2\u0301", ["1", " ", "2\u0301"]),
    ],
)
def test_the_scheme_of_word_digits_by_example(text: str, words: list[str]) -> None:
    assert SEGMENTERS["word_digits"].split(text) == words


@pytest.mark.parametrize(
    ("text", "parts", "digits"),
    [
        ("at 19bed09 or 19bed0", ["at", "19bed09", "or", "19bed0"], ["at", "19bed09", "or", "19bed0"]),
        ("9 7EADBEEF", ["9", "7EADBEEF"], ["9", " ", "7EADBEEF"]),
        ("12ab3", ["12", JOINER, "ab", JOINER, "3"], ["1", "2", JOINER, "ab", JOINER, "3"]),  # too short
        ("facade", ["facade"], ["facade"]),
        ("12cdefg", ["12", JOINER, "cdefg"], ["1", "2", JOINER, "cdefg"]),  # not hexadecimal
    ],
)
def test_codes_are_whole(text: str, parts: list[str], digits: list[str]) -> None:
    assert SEGMENTERS["code_parts"].split(text) == parts
    assert SEGMENTERS["code_digits"].split(text) == digits


@given(number=st.text("0123456789\u0663", min_size=1), text=st.text("ab_1 \t\n.-\"'()文é", max_size=12))
def test_a_digit_is_the_same_word_in_any_context(number: str, text: str) -> None:
    # Else the digits that follow another mark, or another digit, than in the source could not be copied.
    words = SEGMENTERS["word_digits"].split(f"{text}{number}{text}")
    assert contains(words, list(number))


def test_the_error_for_an_unknown_segmenter_lists_all() -> None:
    with pytest.raises(ValueError, match=r"'chars'.*char, whitespace, jieba, fugashi, word_punct"):
        get_segmenter("chars")


def test_words_added_to_the_global_jieba_are_ignored() -> None:
    import jieba

    text = "方舟子发文直指林志颖旗下爱碧丽推销假保健品"
    before = SEGMENTERS["jieba"].split(text)
    jieba.add_word("子发文直", freq=10**6)
    try:
        assert "子发文直" in jieba.lcut(text)
        assert SEGMENTERS["jieba"].split(text) == before
    finally:
        jieba.del_word("子发文直")


# ---- Japanese words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("今日は暑いです", ["今日", "は", "暑い", "です"]),
        ("お腹が空きました", ["お腹", "が", "空き", "まし", "た"]),
        ("すもももももももものうち", ["すもも", "も", "もも", "も", "もも", "の", "うち"]),
        ("東京でiPhoneを買う！", ["東京", "で", "iPhone", "を", "買う", "！"]),
        (" 猫\u3000 犬\r\n", [" ", "猫", "\u3000", " ", "犬", "\r", "\n"]),
        ("猫\0犬\ud800", ["猫", "\0", "犬", "\ud800"]),
    ],
)
def test_the_words_of_fugashi_by_example(text: str, words: list[str]) -> None:
    assert SEGMENTERS["fugashi"].split(text) == words


@given(texts=st.lists(st.text("今日は暑いですねSF小説が好き12。、アア々 \u3000\n\0", max_size=12), max_size=4))
def test_words_of_fugashi_do_not_depend_on_whitespace(texts: list[str]) -> None:
    split = SEGMENTERS["fugashi"].split
    assert [word for text in texts for word in [*split(text), "\n"]] == split("".join(f"{text}\n" for text in texts))


def test_fugashi_keeps_every_character() -> None:
    text = "".join(map(chr, [*range(0x20000), *range(0x20000, sys.maxunicode + 1, 64)]))
    assert "".join(SEGMENTERS["fugashi"].split(text)) == text


@pytest.mark.parametrize("piece", ["あ", "今日は暑いですね。"])
def test_fugashi_splits_texts_that_are_too_long_for_mecab(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    words = SEGMENTERS["fugashi"].split(text)
    assert "".join(words) == text
    assert max(map(len, words)) < 30


@pytest.fixture
def _mecab_afresh() -> Iterator[None]:
    """Loads MeCab again in the test and after it."""
    segmentation._mecab.cache_clear()
    yield
    segmentation._mecab.cache_clear()


@pytest.mark.usefixtures("_mecab_afresh")
@pytest.mark.parametrize(
    ("name", "missing", "packages"),
    [("jieba", "jieba", "jieba"), *(("fugashi", each, "fugashi unidic-lite") for each in ("fugashi", "unidic_lite"))],
)
def test_without_its_packages_the_error_names_them(
    name: str, missing: str, packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    segmentation._jieba_tokenizer.cache_clear()
    with pytest.raises(ImportError, match=f"pip install {packages}"):
        SEGMENTERS[name].split("文字")
    assert SEGMENTERS[name].join(["文", "字"]) == "文字"  # decoding needs no dictionary


@pytest.mark.usefixtures("_mecab_afresh")
def test_the_users_mecab_settings_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "mecabrc"
    settings.write_text("userdic = nowhere.dic\n", encoding="utf-8")
    monkeypatch.setenv("MECABRC", str(settings))
    assert SEGMENTERS["fugashi"].split("今日は") == ["今日", "は"]
