"""Words as chains of others: every target is restored, by the shortest chain, with the most copies among those."""

from __future__ import annotations

import time
from functools import cache
from itertools import combinations, pairwise, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from copynet_hf import CopyNetTokenizer
from copynet_hf.model.chains import MAX_LEFT_OUT, Chains, find_acronym, fits, list_marks, list_parts
from copynet_hf.model.segmentation import (
    CASES,
    CHAINED,
    INITIAL,
    JOINER,
    MARKS,
    OPTIONAL,
    SEGMENTERS,
    TURKISH,
)

SOURCE = "Pay 16,258.73 to Anna Miller (WexError)"
ALPHABET = "abAB_12 .,-()\n\té\u0301ßİ文字か😀ि\u200c"
TEXTS = st.text(ALPHABET, max_size=14)


@cache
def make_tokenizer(
    segmenter: str = "word_punct", texts: tuple[str, ...] = (ALPHABET,), changes: tuple[str, ...] = ()
) -> CopyNetTokenizer:
    return CopyNetTokenizer.train_from_iterator(texts, 500, segmenter, 3, chains=True, changes=changes)


def read_target(tokenizer: CopyNetTokenizer, target: str, source: str = SOURCE) -> list[str]:
    labels = tokenizer(source, text_target=target)["labels"][:-1]
    own = tokenizer.encode_source(source)
    return own.spell(labels)


@pytest.mark.parametrize("segmenter", CHAINED)
@settings(deadline=None, max_examples=150)
@given(source=TEXTS, target=TEXTS, changes=st.sampled_from([(), OPTIONAL]))
@example(source="", target="1 1\u0301", changes=())
@example(source="aaBé文字か", target="aaBßa", changes=OPTIONAL)
@example(source="\u0301", target="1\u0301 .", changes=OPTIONAL)
def test_every_target_of_known_letters_is_restored(
    segmenter: str, source: str, target: str, changes: tuple[str, ...]
) -> None:
    tokenizer = make_tokenizer(segmenter, changes=changes)
    labels = tokenizer(source, text_target=target)["labels"]
    assert tokenizer.decode(labels[:-1], source=source) == target
    assert labels == tokenizer(source, text_target=target)["labels"]


@pytest.mark.parametrize(
    ("target", "tokens"),
    [
        ("16258", ["16", JOINER, "258"]),
        ("amiller", ["a", JOINER, "[lower]", "Miller"]),
        ("MILLER", ["[upper]", "Miller"]),
        ("Miller16", ["Miller", JOINER, "16"]),
        ("Pays", ["Pay", f"{JOINER}s"]),
        ("(16)", [f"({JOINER}", "16", f"{JOINER})"]),
    ],
)
def test_a_chain_has_whole_words_first(target: str, tokens: list[str]) -> None:
    tokenizer = make_tokenizer(texts=("s a (b) (b) (b)",))
    assert read_target(tokenizer, target) == tokens


def test_a_word_of_thousands_of_letters_takes_no_cubic_time() -> None:
    target = "ab12" * 5000 + "16Miller"
    tokens = read_target(make_tokenizer(), target)
    assert tokens[-3:] == ["16", JOINER, "Miller"]
    assert SEGMENTERS["word_punct"].join(tokens) == target


def test_initials_are_copied_where_the_vocabulary_has_their_mark() -> None:
    texts = ["a M A s m b ."]
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 500, "word_punct", 3, chains=True, changes=[INITIAL])
    assert read_target(tokenizer, "amiller A.") == [
        *("[lower]", "[initial]", "Anna", JOINER, "[lower]", "Miller"),
        *("[initial]", "Anna", JOINER, "."),
    ]
    assert read_target(tokenizer, "b") == ["b"]
    labels = tokenizer(SOURCE, text_target="aM am A ab")["labels"][:-1]
    assert tokenizer.decode(labels, source=SOURCE) == "aM am A ab"


NAMES, WEEKS = "New names: Nora Miller, N7, Nice", "3 mg, referral to Dr Mur written. See Wim again in 5 weeks."
ONE, CUT, ACCENTS = (INITIAL,), (INITIAL, "[first_3]"), ("[plain]", "[lower_plain]", "[initial]")


@pytest.mark.parametrize(
    ("letters", "marks", "source", "target", "tokens"),
    [
        # words with and without accents are written alike in lower case
        ("akomilerd", ACCENTS, "Anna Miller", "amiller", "[initial] [lower_plain] Anna ￭ [lower_plain] Miller"),
        ("akomilerd", ACCENTS, "Özlem Müller", "omuller", "[initial] [lower_plain] Özlem ￭ [lower_plain] Müller"),
        ("akomilerd", ACCENTS, "Kim miller", "kmiller", "[initial] [lower_plain] Kim ￭ miller"),
        *(("akomilerd", ACCENTS, *[name] * 3) for name in ("Anna Miller", "Özlem Müller", "Kim miller")),
        ("akomilerd", ACCENTS, "Müller", "Muller", "[plain] Müller"),
        # a letter farther than the name is no initial
        ("aimtlersh", ONE, "I am Ian Smith", "ismith", "[lower] [initial] Ian ￭ [lower] Smith"),
        ("aimtlersh", ONE, "Grade A: Anna Lee Miller", "amiller", "[lower] [initial] Anna ￭ [lower] Miller"),
        ("aimtlersh", ONE, "Tom Miller lives in building T", "tmiller", "[lower] [initial] Tom ￭ [lower] Miller"),
        ("aimtlersh", ONE, "I'm Mike Miller", "mmiller", "[lower] [initial] Mike ￭ [lower] Miller"),
        ("aimtlersh", ONE, "a user Anna Miller", "amiller", "[lower] [initial] Anna ￭ [lower] Miller"),
        # the second part of a double name has an initial
        ("JP. -P", ONE, "of Jean-Paul Sartre", "J.-P. Sartre", "[initial] Jean ￭ . - ￭ [initial] Paul ￭ . Sartre"),
        ("JP. -P", ONE, "of Jean-Paul Sartre", "ls -P Sartre", "<unk> - ￭ P Sartre"),
        # a letter near a name is no initial of the next one
        (
            *("andETJ.,", ONE, "by Eva T. Sand, Tim J. Berg", "Sand, E. T. and Berg, T. J."),
            "Sand ￭, [initial] Eva ￭. T ￭. a ￭n ￭d Berg ￭, [initial] Tim ￭. J ￭.",
        ),
        (
            *("andETJ.,", ONE, "Sand, Eva T.; Nora Tim J. Berg and others", "Sand, E. T. and Berg, T. J."),
            "Sand ￭, [initial] Eva ￭. T ￭. and Berg ￭, [initial] Tim ￭. J ￭.",
        ),
        # a capital beside words in lower case is an initial
        ("T.atforincallask", ONE, "meeting for Tim in 2012", "for T. in 2012", "for [initial] Tim ￭ . in 2012"),
        ("T.atforincallask", ONE, "call Tim at 5 today", "call T. at 5", "call [initial] Tim ￭ . at 5"),
        ("T.atforincallask", ONE, "ask Tom for 12 eggs", "ask T. for 12", "ask [initial] Tom ￭ . for 12"),
        # of several words with an initial the neighbour of a copy is meant
        ("nilmEUL", ONE, NAMES, "nmiller N7", "[lower] [initial] Nora ￭ [lower] Miller N7"),
        ("nilmEUL", ONE, NAMES, "N7: Miller, N", "N7 ￭: Miller ￭, [initial] Nora"),
        ("nilmEUL", ONE, f"{NAMES}, not N nor O or n", "N7: Miller, N", "N7 ￭: Miller ￭, [initial] Nora"),
        ("nilmEUL", ONE, "New: Nora N Miller", "Miller N", "Miller N"),
        ("nilmEUL", ONE, "Lili N 7 Ned", "n7 Lili", "[lower] N ￭ 7 Lili"),
        ("nilmEUL", ONE, f"{NAMES} -v", "-n Nora", "-￭ n Nora"),
        ("nilmEUL", ONE, "for Max Miller", "MILLER, M", "[upper] Miller <unk> [initial] Max"),
        ("nilmEUL", ONE, WEEKS, "Mur 5w", "Mur 5 ￭ [initial] weeks"),
        ("nilmEUL", ONE, WEEKS, "Mur 5 w", "Mur 5 [initial] weeks"),
        ("nilmEUL", CUT, "write to Max Miller", "mmil", "[lower] [initial] Max ￭ [lower] [first_3] Miller"),
        ("nilmEUL", ONE, "for Nora Müller of Nice, Nürnberg", "MUELLER, N", "<unk> ￭, [initial] Nora"),
        ("nilmEUL", ONE, "a letter to Nora Millers of Nice", "Miller, N", "<unk> <unk> [initial] Nora"),
    ],
)
def test_an_initial_is_that_of_a_word_beside_it(
    letters: str, marks: tuple[str, ...], source: str, target: str, tokens: str
) -> None:
    tokenizer = make_tokenizer(texts=(letters,), changes=marks)
    assert read_target(tokenizer, target, source) == tokens.split()


@pytest.mark.parametrize("changes", [(), ("[initial]",)])
def test_a_number_with_a_leading_zero_is_that_of_the_source(changes: tuple[str, ...]) -> None:
    """Also where the number is a known word, unless the source's number is of something else."""
    tokenizer = make_tokenizer(texts=("0 05 07 00 1-1-1-1 " * 3,), changes=changes)
    padded = ["0", JOINER, "5"]
    assert read_target(tokenizer, "2026-07-05", "born on 5 July 2026")[2:] == ["07", f"{JOINER}-{JOINER}", *padded]
    assert read_target(tokenizer, "2026-07-05", "on 5/7/2026")[2:] == ["0", JOINER, "7", f"{JOINER}-{JOINER}", *padded]
    assert read_target(tokenizer, "05/2026", "05/2026 (5)")[0] == "05"
    assert read_target(tokenizer, "07/2026", "7 of all the pages since July the 9th, 2026")[0] == "07"
    assert read_target(tokenizer, "00:05", "0:05")[0] == "00"
    assert read_target(tokenizer, "05", "5 of them") == ["05"]


@pytest.mark.parametrize("source", ["for Joe O'Becker", "for O'Becker, Joe"])
def test_letters_of_a_name_are_copied_behind_its_initial(source: str) -> None:
    """Also where they make a known word, such as go."""
    tokenizer = make_tokenizer(texts=("gjobecker", "go jo " * 3), changes=("[initial]",))
    copied = [JOINER, "[lower]", "O", JOINER, "[lower]", "Becker"]
    assert read_target(tokenizer, "jobecker", source) == ["[lower]", "[initial]", "Joe", *copied]
    assert read_target(tokenizer, "gobecker", source.replace("Joe", "Gus"))[:3] == ["[lower]", "[initial]", "Gus"]
    assert read_target(tokenizer, "gobecker", source.replace("Joe", "Max"))[0] == "go"
    assert read_target(tokenizer, "jobecker", "jet offer for Becker")[0] == "jo"
    assert read_target(tokenizer, "jobecker", "Jan Otto will see Becker")[0] == "jo"
    assert read_target(tokenizer, "gobecker", "go to Gus O'Becker")[0] == "go"
    assert read_target(tokenizer, "aobecker", "a note for Otto Becker")[:2] == ["a", f"{JOINER}o"]


@pytest.mark.parametrize(
    ("source", "target", "segmenter", "copied"),
    [
        ("wait 11 weeks", "11w", "word_punct", "weeks"),
        ("Mur, see Wim 5 weeks.", "5w", "word_punct", "weeks"),
        ("Mur, see Wim 5 weeks.", "x5w", "word_punct", "weeks"),
        ("wait 11-week", "11 w", "word_punct", "week"),
        (
            "for 5 \u0938\u092a\u094d\u0924\u093e\u0939",
            "5 \u0938",
            "word_punct",
            "\u0938\u092a\u094d\u0924\u093e\u0939",
        ),
        ("Wim 5 or", "5w", "word_punct", None),
        ("am 04, Pat, 11:00", "04P11:00", "word_punct", None),
        ("Jan Vogel, 48", "jv48", "word_punct", "Jan"),
        ("18 wards, 48 weeks", "48w", "word_digits", "weeks"),
        ("Dr Mur, 12 v, VERDE", "12V", "word_parts", None),
        ("1. Jane Miller 2. Tom Guilbert", "1. J. Miller", "word_punct", "Jane"),
        ("Jane Miller has 12 apples", "12 J Miller", "word_punct", "Jane"),
        ("ZA 614 11 wide, 12 weeks", "11 w", "word_punct", "wide"),
        ("from 18 to 25 P, 14 V", "18P25V", "word_parts", None),
        ("a Page, 12", "P, y, y 12", "word_punct", None),
        ("Yvonne, 44 days", "44y", "word_parts", None),
        ("44 days, 4 years", "44y", "word_digits", None),
        ("3 orders of Jan Oost", "jo3 Oost", "word_punct", "Jan"),
    ],
)
def test_a_letter_after_a_number_is_the_initial_of_its_unit_alone(
    source: str, target: str, segmenter: str, copied: str | None
) -> None:
    tokenizer = make_tokenizer(segmenter, ("vwxyjoJPVY\u09381234580 .,-",), ("[initial]",))
    tokens = read_target(tokenizer, target, source)
    assert "<unk>" not in tokens
    initials = [name for mark, name in pairwise(tokens) if mark == INITIAL]
    assert initials[:1] == ([copied] if copied else [])


@pytest.mark.parametrize(
    ("source", "target", "second"),
    [
        ("Lozano TR, Baggio S. 2012", "Lozano, T. R. and Baggio, S.", "TR"),
        ("van Rosengren VS, Sienwelson R.", "van Rosengren, V. S. and Sienwelson, R.", "VS"),
        ("Lozano TRB. 2012", "Lozano, T. R.", "TRB"),
        ("Lozano TR, Baggio S. Sand and lime. 2012", "Lozano, T. R. and Baggio, S.", "TR"),
        ("Lozano \u0416\u041a", "Lozano, \u0416. \u041a.", "\u0416\u041a"),
        ("Lozano Tr. 2012", "Lozano, T. R.", None),  # no capitals
        ("Lozano TRAIN. 2012", "Lozano, T. R.", None),  # a word
        ("Lozano TR Sand RB", "Lozano, T. R. and Sand, R. B.", "TR RB"),
        ("Sand RB Lozano BR", "Lozano, B. R.", "BR"),
        ("Sand in UK, Kim", "Sand, K.", None),  # K is no second letter where no U is before it
        ("I. Sand, born in the city of York TR", "Sand, R.", None),
    ],
)
def test_the_second_of_two_initials_in_one_word_is_copied(source: str, target: str, second: str | None) -> None:
    tokenizer = make_tokenizer(texts=("andTRSVBK\u0416\u041a5.,",), changes=("[initial]", "[second]"))
    tokens = read_target(tokenizer, target, source)
    copied = [word for mark, word in pairwise(tokens) if mark == "[second]"]
    assert copied == (second.split() if second else [])
    assert tokenizer.decode(tokenizer(source, text_target=target)["labels"][:-1], source=source) == target


@pytest.mark.parametrize(
    ("source", "target", "copied"),
    [
        ("Lozano, Tom Boris; born 2014", "LOZANO\tT.B.\t2014", ["Tom", "Boris"]),
        ("Lozano, Tom Boris Rosa; born 2014", "LOZANO, T. B. R. (2014)", ["Tom", "Boris", "Rosa"]),
        ("T. B. Lozano; born 2014", "LOZANO\tT.B.\t2014", []),  # letters of the source
        ("Lozano, Tom Boris; born 2014, at the Rosa S.T.", "LOZANO\tT.B.\t2014", ["Tom", "Boris"]),
        ("Lozano, Tom; 5 Bands, 2014", "LOZANO\tT B\t2014", ["Tom"]),  # not behind a full stop
        ("Lozano, Tom; 5 Bands, 2014", "LOZANO 5.B.\t2014", []),
    ],
)
def test_initials_in_a_row_are_of_the_same_name(source: str, target: str, copied: list[str]) -> None:
    """Also where a number is nearer to the last one than the name is."""
    tokenizer = make_tokenizer("word_digits", ("andTRSBO\t LOZANO 5 2 0 1 4 .,()",), ("[initial]",))
    tokens = read_target(tokenizer, target, source)
    assert [word for mark, word in pairwise(tokens) if mark == INITIAL] == copied


def test_many_initials_take_little_time() -> None:
    """A quarter of a second; seconds, if each is compared with all words of the target."""
    tokenizer = make_tokenizer(texts=("andTRS.,;",), changes=("[initial]", "[second]"))
    names = [f"Sand{'xyz'[place % 3]}{'abc'[place // 3 % 3]}o" for place in range(300)]
    source = tokenizer.encode_source(", ".join(f"{name} TR" for name in names))
    start = time.process_time()
    tokenizer.encode_target("; ".join(f"{name}, T. R." for name in names), source)
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        ("для Журавлева", "Журавлев", ["[drop_last]", "Журавлева"]),
        ("для Анны Берг", "Анна Берг", ["[drop_last]", "Анны", f"{JOINER}а", "Берг"]),
        ("Kowalskiego", "kowalski", ["[lower]", *["[drop_last]"] * 3, "Kowalskiego"]),
        ("वह लड़के", "लड़का", ["[drop_last]", "लड़के", f"{JOINER}ा"]),
        ("מדאציננ", "דאציננ", ["[drop_first]", "מדאציננ"]),
        ("Anny", "An", ["A", f"{JOINER}n"]),  # the stem is too short
        ("X77 77X", "77Y", ["7", f"{JOINER}7", f"{JOINER}Y"]),  # numbers have no stems
        ("Pay Pays", "Pay", ["Pay"]),
        ("Kowalskiego Kowalski", "kowalski", ["[lower]", "Kowalski"]),  # the fewest tokens, in any order
        ("bowlsn Kowalski", "kowls", ["k", *(f"{JOINER}{letter}" for letter in "owls")]),  # only the own end
        ("lowans", "low", ["l", f"{JOINER}o", f"{JOINER}w"]),  # as few tokens as a stem would take
        ("서울은 크다", "서울", ["[drop_last]", "서울은"]),
        ("서울에서는", "서울이", [*["[drop_last]"] * 3, "서울에서는", f"{JOINER}이"]),
        ("서울", "서이", ["서", f"{JOINER}이"]),  # one syllable is no stem
        ("بخارست\u200cها را", "بخارست", [*["[drop_last]"] * 3, "بخارست\u200cها"]),
    ],
)
def test_words_that_are_inflected_in_the_source_are_copied_without_their_endings(
    source: str, target: str, tokens: list[str]
) -> None:
    letters = ("Анабжурвле", "Anbkowls7Y", "लड़केा", "אבדצינ", "서울이", "بخارست")
    tokenizer = make_tokenizer(texts=letters, changes=("[drop_first]", "[drop_last]"))
    assert read_target(tokenizer, target, source) == tokens
    assert "[drop_last]" not in read_target(make_tokenizer(texts=letters), target, source)


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        ("José Núñez", "jose", ["[lower]", "[plain]", "José"]),
        ("José Núñez", "NUNEZ", ["[upper]", "[plain]", "Núñez"]),
        ("José Núñez", "josenunez", ["[lower]", "[plain]", "José", JOINER, "[lower]", "[plain]", "Núñez"]),
        ("Jose\u0301 Núñez", "Jose", ["[plain]", "Jose\u0301"]),
        ("Élodie", "e9", ["[lower]", "[initial]", "[plain]", "Élodie", f"{JOINER}9"]),
        ("Ανδρέα", "ΑΝΔΡΕΑΣ", ["[upper]", "[plain]", "Ανδρέα", f"{JOINER}Σ"]),
        ("Anna", "anna", ["[lower]", "Anna"]),
        ("Zełbo Øsz", "zelbo OSZ", ["[lower]", "[plain]", "Zełbo", "[upper]", "[plain]", "Øsz"]),
        ("Weiß", "weiss", ["[lower]", "[plain]", "Weiß"]),
    ],
)
def test_words_are_copied_without_their_accents(source: str, target: str, tokens: list[str]) -> None:
    texts = ("abdeiloszunwNUEZJSOWI9 ΑΝΔΡΕΣ",)
    assert read_target(make_tokenizer(texts=texts, changes=("[plain]", "[initial]")), target, source) == tokens
    assert "[plain]" not in read_target(make_tokenizer(texts=texts), target, source)


@settings(deadline=None, max_examples=40)
@given(word=st.text("aBcéüßØı\u0301खािे가ᄂ", min_size=3, max_size=9))
def test_every_part_of_a_source_word_is_copied(word: str) -> None:
    """No letters are known, so that nothing can be spelled."""
    chains = Chains({JOINER, *CASES, *OPTIONAL})
    for part, marks in list_parts(word, OPTIONAL):
        if part[:1].isalpha() and fits(part, marks, part.casefold()):
            assert chains.find(part, ["X", word]) is not None


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        ("Jürgen Weiß", "juergen weiss", ["[lower]", "[digraphs]", "Jürgen", "[lower]", "[digraphs]", "Weiß"]),
        ("Jürgen Weiß", "WEISS", ["[upper]", "Weiß"]),
        ("Jürgen Weiß", "JUERGEN", ["[upper]", "[digraphs]", "Jürgen"]),
        ("Århus Sørensen", "Aarhus", ["[digraphs]", "Århus"]),
        ("Sørensén", "Soerensen", ["[digraphs]", "Sørensén"]),
        ("Ju\u0308rgen", "Juergen", ["[digraphs]", "Ju\u0308rgen"]),
    ],
)
def test_umlauts_are_copied_as_two_letters(source: str, target: str, tokens: list[str]) -> None:
    texts = ("abcdefghijlnmorsuwAEIJSW",)
    assert read_target(make_tokenizer(texts=texts, changes=("[digraphs]",)), target, source) == tokens


@pytest.mark.parametrize(
    ("source", "target", "mark"),
    [
        ("ISPARTA", "Isparta", "[title_tr]"),
        ("İZMİR", "İzmir", "[title_tr]"),
        ("ADIYAMAN", "Adıyaman", "[title_tr]"),
        ("ığdır", "Iğdır", "[title_tr]"),
        ("iğdır", "Iğdır", "[title]"),  # in Turkish, its title is İğdır
        ("INFO", "info", "[lower]"),
        ("MICHAEL", "Michael", "[title]"),
        ("Diyarbakır", "DİYARBAKIR", "[upper_tr]"),
        ("Iğdır", "ığdır", "[lower_tr]"),
        ("ŞIRNAK", "şırnak", "[lower_tr]"),
        ("I\u0307STANBULI", "istanbulı", "[lower_tr]"),  # İ as two characters
    ],
)
def test_turkish_words_are_copied_in_another_case(source: str, target: str, mark: str) -> None:
    tokenizer = make_tokenizer(texts=("abc",), changes=(*TURKISH,))
    assert read_target(tokenizer, target, source) == [mark, source]


def test_first_letters_in_turkish_case_are_written_alike_for_shorter_words() -> None:
    tokenizer = make_tokenizer(texts=("at",), changes=(*TURKISH, "[first_7]"))
    for word, written in (("ISPARTALI", "ısparta"), ("IŞIK", "ışık")):
        assert read_target(tokenizer, f"t{written}", word) == ["t", JOINER, "[lower_tr]", "[first_7]", word]


@pytest.mark.parametrize(
    ("source", "target", "tokens"),
    [
        ("Tom Guilbert", "GUIL", ["[upper]", "[first_4]", "Guilbert"]),
        ("Tom Guilbert", "guilt", ["[lower]", "[first_4]", "Guilbert", f"{JOINER}t"]),
        ("Tom Guilbert", "tguil", ["t", JOINER, "[lower]", "[first_4]", "Guilbert"]),
        ("Tina Mill", "tmill", ["t", JOINER, "[lower]", "[first_4]", "Mill"]),  # as if there were more letters
        ("Tina Mill", "Mill", ["Mill"]),
        ("Gülmi", "guel", ["[lower]", "[first_4]", "[digraphs]", "Gülmi"]),
        ("Tina Gül", "tguel", ["t", JOINER, "[lower]", "[first_4]", "[digraphs]", "Gül"]),
        ("Guilbert", "tguilt", ["t", *(f"{JOINER}{letter}" for letter in "guilt")]),  # not at the start or the end
    ],
)
def test_as_many_first_letters_of_words_are_copied(source: str, target: str, tokens: list[str]) -> None:
    tokenizer = make_tokenizer(texts=("egilmtuGMTU",), changes=("[digraphs]", "[first_4]"))
    assert read_target(tokenizer, target, source) == tokens


def test_acronyms_are_copied_initials_of_words_in_a_row() -> None:
    tokenizer = make_tokenizer(texts=("abcdnBDNOSX",), changes=("[initial]",))
    source = "dear Bo, ask Nora of Dental and Boat Society, a sad story of Oscar B. Xu"
    assert read_target(tokenizer, "DBS", source) == [
        *("[initial]", "Dental", JOINER, "[initial]", "Boat", JOINER, "[initial]", "Society")
    ]
    names = ["[initial]", "Ada", JOINER, "[initial]", "Dorn"]
    assert read_target(tokenizer, "AD", f"a dear day, {source}, Ada Dorn") == names
    assert read_target(tokenizer, "nd", source)[:3] == ["[lower]", "[initial]", "Nora"]
    assert read_target(tokenizer, "OBX", source) == ["[initial]", "Oscar", JOINER, "B", JOINER, "[initial]", "Xu"]
    assert read_target(tokenizer, "BNX", source) == ["B", f"{JOINER}N", f"{JOINER}X"]  # these are not in a row
    assert read_target(tokenizer, "Bo D", source) == ["Bo", "D"]  # too far from what is copied next to it
    assert read_target(tokenizer, "Nora D", source) == ["Nora", "[initial]", "Dental"]


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        ("University of Oslo", "UO", ["University", "Oslo"]),
        ("the Bank of Oklahoma City", "BOC", ["Bank", "Oklahoma", "City"]),
        ("Dental Garden and Dental Boat Society", "DBS", ["Dental", "Boat", "Society"]),
        ("please me pergal kolgaljur brudor", "PKB", ["pergal", "kolgaljur", "brudor"]),
        ("Αγάπη Σοφία", "ας", []),  # the capital of either sigma is one
    ],
)
def test_the_words_of_an_acronym_are_in_a_row(source: str, target: str, names: list[str]) -> None:
    tokenizer = make_tokenizer(texts=("BCDKOPSUας",), changes=("[initial]",))
    tokens = read_target(tokenizer, target, source)
    assert [token for token in tokens if token in source.split()] == names
    assert SEGMENTERS["word_punct"].join(tokens) == target


@settings(deadline=None, max_examples=200)
@given(
    word=st.text("abAB", min_size=2, max_size=4), source=st.lists(st.text("abAB", min_size=1, max_size=2), max_size=9)
)
def test_an_acronym_is_of_the_row_with_the_fewest_words_in_lower_case_and_left_out(
    word: str, source: list[str]
) -> None:
    """The oracle: all rows."""
    rows: list[tuple[int, int, list[str]]] = []
    for places in combinations(range(len(source)), len(word)):
        names = [source[place] for place in places]
        left_out = [source[place] for place in range(places[0], places[-1]) if place not in places]
        is_row = len(left_out) <= MAX_LEFT_OUT and all(map(str.islower, left_out))
        if is_row and "".join(name[0] for name in names).lower() == word.lower():
            rows.append((sum(map(str.islower, names)), len(left_out), names))
    tokens = find_acronym(word, source) or []
    assert [token for token in tokens if token not in MARKS] == min(rows, default=(0, 0, []))[2]


@pytest.mark.parametrize(
    ("source", "target", "copied"),
    [
        ("Zed Quist Miller", "Miller", []),  # beyond the slots, and spelled
        ("Anna bought a car", "Anna a", ["Anna", "a"]),
        ("Hello, I met anna miller", "amiller", ["anna", "miller"]),
        ("by Jan van den Berg", "jvdberg", ["Jan", "van", "den", "Berg"]),
    ],
)
def test_initials_are_of_words_that_can_be_copied(source: str, target: str, copied: list[str]) -> None:
    texts, slots = ["abdegijlmnrtvABHIM ,"], 1 if "Zed" in source else 9
    tokenizer = CopyNetTokenizer.train_from_iterator(
        texts, 500, "word_punct", 1, slots, chains=True, changes=[INITIAL]
    )
    written = read_target(tokenizer, target, source)
    assert SEGMENTERS["word_punct"].join(written) == target
    assert [token for token in written if token in source.split()] == copied


def test_empty_words_have_no_initial() -> None:
    tokenizer = make_tokenizer(texts=("ab",), changes=("[initial]",))
    [source] = tokenizer.encode_sources([["Anna", "", "Baker"]], is_split_into_words=True)
    assert "Anna" in source.spell(tokenizer.encode_target("abaker AB", source))


def test_parts_of_a_word_are_copied_where_words_are_cut() -> None:
    tokenizer = make_tokenizer("word_parts", ("a_b a_b a_b",))
    target = read_target(tokenizer, "wex_error")
    assert target == ["[lower]", "Wex", f"{JOINER}_{JOINER}", "[lower]", "Error"]


def test_a_letter_that_neither_training_nor_the_source_shows_is_unknown() -> None:
    tokenizer = make_tokenizer(texts=("abc",))
    assert read_target(tokenizer, "abd Miller", "Miller") == ["<unk>", "Miller"]


def test_without_marks_in_the_vocabulary_there_are_no_chains() -> None:
    tokenizer = CopyNetTokenizer.train_from_iterator(["a b"], 100, "word_punct")
    assert read_target(tokenizer, "16258") == ["<unk>"]


def test_other_segmenters_have_none_even_if_the_vocabulary_has_a_joiner() -> None:
    tokenizer = CopyNetTokenizer.train_from_iterator([f"a {JOINER} b"], 100, "whitespace")
    assert read_target(tokenizer, "ab", "c") == ["<unk>"]


def join(tokens: tuple[str, ...]) -> str:
    return SEGMENTERS["word_punct"].join(tokens)


@settings(deadline=None, max_examples=100)
@given(
    word=st.text("abA", min_size=1, max_size=4),
    source=st.lists(st.text("abA", min_size=1, max_size=2), max_size=3),
    known=st.lists(st.text("ab", min_size=2, max_size=3), max_size=2),
)
def test_no_shorter_chain_exists_and_none_of_its_length_with_more_copies_of_several_letters(
    word: str, source: list[str], known: list[str]
) -> None:
    """The oracle: all sequences of up to as many pieces, joined."""
    marks = list_marks({"abA": 1})
    found = Chains({*marks, *known}).find(word, source)
    assert found is not None
    assert join(tuple(found)) == word
    pieces: dict[str, int] = {}  # the text of each piece, and whether it can be a copy
    for text in [*"abA", *known]:
        pieces.setdefault(text, 0)
    for text in source:
        for change in (str, *CASES.values()):
            pieces[change(text)] = len(text) > 1
    number, copies = count_pieces(found, set(source))
    best = 0
    for length in range(1, number + 1):
        for chain in product(pieces, repeat=length):
            if "".join(chain) == word:
                assert length == number, chain
                best = max(best, sum(pieces[piece] for piece in chain))
    assert copies == best


def count_pieces(tokens: list[str], source: set[str]) -> tuple[int, int]:
    words = [token for token in tokens if token != JOINER and token not in CASES]
    return len(words), sum(word in source and len(word) > 1 for word in words)


def test_a_word_that_is_spelled_copies_no_single_letters() -> None:
    # Else its tokens would depend on other words of its source, here on the preposition and on "871-K".
    tokenizer = make_tokenizer(texts=("Соловская X Kk",))
    letters = [f"{JOINER}{letter}" for letter in "оловская"]
    assert read_target(tokenizer, "Соловская", "с 09.07 Заказ 871-к для Соловскую") == ["С", *letters]
    assert read_target(tokenizer, "X42", "X-42 или K") == ["X", JOINER, "42"]
    assert read_target(tokenizer, "x42", "X-42 или K") == ["[lower]", "X", JOINER, "42"]
    assert read_target(tokenizer, "7X", "7 X") == ["7", JOINER, "X"]  # as 12X
    assert read_target(tokenizer, "XkK", "X. k. и K") == ["X", "￭k", "￭K"]
    marks = make_tokenizer(texts=("काम",))
    assert read_target(marks, "काम", "म 5") == ["क", f"{JOINER}ा", f"{JOINER}म"]


def test_letters_that_stand_in_a_row_are_copied() -> None:
    tokenizer = make_tokenizer("word_digits", (ALPHABET, "USC"))
    assert read_target(tokenizer, "USA", "the U. S. A. won") == ["U", JOINER, "S", JOINER, "A"]
    assert read_target(tokenizer, "CA7", "6c:a7:f3") == ["[upper]", "c", JOINER, "[upper]", "a", JOINER, "7"]
    assert read_target(tokenizer, "AC", "6c:a7:f3") == ["A", f"{JOINER}C"]
