"""`copynet-hf export --target web`: the page's JavaScript finds the ids and positions of the Python package."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import (
    BART,
    LETTERED,
    refused,
    request_pair,
    save_parts,
    serve_app,
    serve_folder,
    tiny_model,
    tiny_tokenizer,
    watch_tab,
)
from helpers import SEARCHES as ALL_SEARCHES

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.cli import main
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.model.prediction import Prediction, _cut_span, predict
from copynet_hf.model.segmentation import (
    CHAINED,
    CHANGES,
    DIGRAPHS,
    DROP_FIRST,
    DROP_LAST,
    INITIAL,
    JOINER,
    OPTIONAL,
    get_segmenter,
)
from copynet_hf.model.source import add_spaces, find_matching_ids, skipped_ids
from copynet_hf.serving import onnxruntime_web, web_export
from copynet_hf.serving.page import build_demo

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

CASED = ["DIYARBAKIR", "Sivaslı", "iğdır", "İSTANBUL", "ıx"]
CASED += ["ΟΔΟΣ", "ΑΣ", "Σ", "straße", "ßa", "ﬁx", "ǆep", "Ǆep", "ᾳb", "თბილისი", "éA", "e\u0301A"]
SEGMENTERS = ["char", "whitespace", *CHAINED]
HOSTILE = [
    "",
    " ",
    "\n\t \u3000\x1c\x85\u2028",
    "a",
    "please call Mira at noon",
    '  please   call "Mira", <b>now</b> &amp; at ${1+1}{{value}}` -- \\ ',
    "3.14 -flag /usr/bin (a, b) x=[1]; don't… ￭ a￭b [￭] ￭￭",
    "👩‍👩‍👧‍👦 calls 🇩🇪🏳️‍🌈 at 👍🏽",
    "e\u0301a\u0308 \u0301start Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤ȧ̈l̃",
    "请问華為在哪里？《書》。",
    "カタカナとひらがな、ﾊﾝｶｸ ㍿",
    "مرحبا بالعالم \u202eabc\u202c שָׁלוֹם",
    "नमस्ते दुनिया क्षि ไทย ខ្មែរ 한국어 ᄒ\u1161",
    "\ud83d a\udc00b \ud83dx",
    "\x00\x01 a\x07b \x7f\u200b\u200d\ufeffz\u00ad",
    "𝒞𝓸𝓹𝔂 𠮷𠀀 ½ ² Ⅷ ⑧ ௧ ٣ ﹏_ x_1",
    "<pad> <s> </s> <unk> <oov-0> x</s>y",
    "__proto__ constructor toString hasOwnProperty __proto__ at constructor",
    "I\u0307 ı İ ß ſ ŉ Å Å ﬁ",
    "\r\n\r\r\n a\r\n",
    "A A A B A B C C D D E F G H I J K L M N O P Q R S T U V W X Y Z A Z",
    "call " + "x" * 300,
    " ".join(f"word{number}" for number in range(80)),
]


def texts(count: int) -> list[str]:
    """Hostile texts, random ones of all scripts, requests, and lines of this file."""
    generator = random.Random(1)
    lines = [line for line in Path(__file__).read_text(encoding="utf-8").splitlines() if line]
    assigned = [chr(code) for code in range(0x30000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    found = list(HOSTILE)
    while len(found) < count:
        source = request_pair(generator)[0]
        noise = "".join(generator.choices([*assigned[:200], *generator.sample(assigned, 50), " "], k=30))
        found += [source, noise, source.replace("call", noise[:7]), generator.choice(lines)]
    return found[:count]


class Page(NamedTuple):
    """A page that the command wrote, and the same model in Python."""

    folder: Path
    address: str
    onnx: OnnxCopyNet
    tokenizer: CopyNetTokenizer


def export_page(
    folder: Path,
    runtime: Path,
    model: CopyNetForConditionalGeneration,
    tokenizer: CopyNetTokenizer,
    *options: str,
    graphs: Path | None = None,
) -> Iterator[Page]:
    """Saves the model, exports it by the command, whose graphs may be there already, and serves the page."""

    def copy_graphs(model: object, folder: Path, quantize: object) -> None:
        for name in ("encoder.onnx", "decoder.onnx"):
            shutil.copy(graphs / name, folder)

    save_parts(folder / "saved model", model, tokenizer)
    argv = ["export", "--target=web", f"--model={folder / 'saved model'}", f"--output_dir={folder / 'page'}"]
    with pytest.MonkeyPatch.context() as patch:
        if graphs:
            patch.setattr(web_export, "write_graphs", copy_graphs)
        assert main([*argv, *options, f"--onnxruntime_web={runtime}", "--examples", EXAMPLE]) == 0
    onnx = OnnxCopyNet.from_pretrained(folder / "page" / "model", threads=1)
    with serve_folder(folder / "page") as (address, _):
        yield Page(folder / "page", address, onnx, tokenizer)


@pytest.fixture(scope="module")
def exported(runtime: Path, requests: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A model trained for two seconds to copy words and punctuation."""
    model, tokenizer = (
        each.from_pretrained(requests / "model") for each in (CopyNetForConditionalGeneration, CopyNetTokenizer)
    )
    model.config.calibration = [0.6, 0.4]
    folder = tmp_path_factory.mktemp("exported")
    yield from export_page(folder, runtime, model, tokenizer, graphs=requests / "onnx")


@pytest.fixture(scope="module")
def with_features(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A model that reads features and copies nothing."""
    tokenizer = tiny_tokenizer()
    features = CopyNetTokenizer(tokenizer.get_vocab(), "whitespace", 4, feature_vocab=["PST", "V", "constructor"])
    model = tiny_model(copy_mechanism="none", feature_vocab_size=features.feature_vocab_size)
    yield from export_page(tmp_path_factory.mktemp("features"), runtime, model, features)


@pytest.fixture(scope="module")
def of_transformers(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A model whose encoder and decoder are those of Transformers, over words."""
    model = tiny_model(encoder=BART, encoder_reads="words", decoder=BART)
    yield from export_page(tmp_path_factory.mktemp("transformers"), runtime, model, tiny_tokenizer())


@pytest.fixture(scope="module")
def with_chains(
    runtime: Path, exported_once: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    """A random model whose vocabulary is mostly marks and letters, and which reads features and the letters of other
    words."""
    marks = sorted({JOINER, DIGRAPHS, DROP_FIRST, DROP_LAST, INITIAL})
    words = ["<pad>", "<s>", "</s>", "<unk>", *marks, " ", "1", "Z", "a"]
    more = {"letter_vocab": "MilZ\u00e9", "feature_vocab": ["PST", "V", "constructor"]}
    tokenizer = CopyNetTokenizer({word: index for index, word in enumerate(words)}, "word_parts", 4, **more)
    graphs = exported_once(**LETTERED)
    folder = tmp_path_factory.mktemp("chains")
    yield from export_page(folder, runtime, tiny_model(**LETTERED), tokenizer, graphs=graphs)


@pytest.fixture(scope="module")
def int8(exported: Page, runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The trained model with weights of 8 bits."""
    model = CopyNetForConditionalGeneration.from_pretrained(exported.folder.parent / "saved model")
    yield from export_page(tmp_path_factory.mktemp("int8"), runtime, model, exported.tokenizer, "--quantize=int8")


@pytest.fixture(scope="module")
def watched_tab(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    with watch_tab(browser) as watched:
        yield watched


@pytest.fixture
def tab(watched_tab: tuple[Any, list[str]]) -> Iterator[Any]:
    """The tab of all tests: a page takes seconds to load. A test leaves the settings of the form as they were."""
    tab, wrong = watched_tab
    yield tab
    found = wrong.copy()
    wrong.clear()
    assert found == []


def open_page(tab: Any, page: Page) -> None:
    """Opens the page, if it is not open, and waits for the output of its example: onnxruntime-web runs one search at a
    time."""
    if tab.url != page.address:
        tab.goto(page.address)
        tab.get_by_text("Generated in ").wait_for()


def run_script(tab: Any, script: str, argument: Any) -> Any:
    """What the JavaScript function returns; in it, `load()` is the page's model. JSON passes lone surrogates, which
    Playwright does not."""
    called = f"""async (argument) => {{
        const module = await import("./copynet.js").catch(() => null); // the page of a server has none
        const load = async () => (globalThis.loaded ??= await module.CopyNet.fromPretrained("./model/"));
        const toArray = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
        return JSON.stringify(await ({script})(JSON.parse(argument)), toArray);
    }}"""
    return json.loads(tab.evaluate(called, json.dumps(argument)))


# ---- words and ids


def test_segmenters_find_and_join_the_same_words(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    script = """async ([name, texts, rows]) => {
        const { split, space } = (await import("./tokenizer.js")).SEGMENTERS[name];
        return [texts.map(split), rows.map((words) => space(words).join(""))];
    }"""
    sources = [*texts(80), "5 0e1f2a 9 cafe01_2, 7EADBEEF0 19bed095f3 B48906"]
    # every character, with and without a letter and a space next to it; of the large blocks of ideographs, syllables
    # and ancient scripts, every thirtieth one
    large = [*range(0x3400, 0xA000), *range(0xAC00, 0xD7A4), *range(0x10000, 0x1F000), *range(0x20000, 0x32000)]
    codes = {*range(0x32000)} - {*large} | {*large[::30]}
    assigned = [chr(code) for code in sorted(codes) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    cases = run_script(tab, "async (all) => all.map((c) => [c.toLowerCase(), c.toUpperCase()])", assigned)
    same = [each for each, case in zip(assigned, cases, strict=True) if case == [each.lower(), each.upper()]]
    assert len(assigned) - len(same) < 100  # letters that have got another case since Python's version of Unicode
    characters = ["".join(f"a{each}b {each} {each}{each}," for each in same[start::8]) for start in range(8)]
    for name in SEGMENTERS:
        segmenter = get_segmenter(name)
        split = [segmenter.split(text) for text in sources]
        generator = random.Random(1)
        pool = sorted({word for words in split for word in words})
        rows = [generator.choices(pool, k=9) for _ in range(100)] + split
        rows += [[mark, word, "x"] for mark in CHANGES for word in CASED]
        rows += [["[title]", f"{each}x"] for each in same if each.upper() != each]
        # word_digits cuts what the others with chains find
        more = [] if name in CHAINED and name != "word_digits" else characters
        found, joined = run_script(tab, script, [name, [*sources, *more], rows])
        for text, words in zip([*sources, *more], found, strict=True):
            assert words == segmenter.split(text), (name, text[:80])
        assert joined == [segmenter.join(row) for row in rows]


def test_marks_cut_the_same_spans(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    words = [*CASED, "Müller", "Weißmann", "Jose\u0301"]
    one, two, three = (list(itertools.permutations(("[upper]", *OPTIONAL), length)) for length in (1, 2, 3))
    changes = [*one, *two, *random.Random(0).sample(three, 500)]
    script = """async ([words, changes]) => {
        const { cutSpan } = await import("./tokenizer.js");
        return words.map((word) => changes.map((marks) => cutSpan(`- ${word}.`, [2, 2 + word.length], marks)));
    }"""
    found = run_script(tab, script, [words, changes])
    for word, spans in zip(words, found, strict=True):
        text = f"- {word}."
        expected = [_cut_span(text, (2, 2 + len(word)), marks) for marks in changes]
        assert [span and count_characters(text, *span) for span in spans] == expected, word


TOKENIZERS: dict[str, dict[str, Any]] = {
    "few slots": {"max_source_oov": 2},
    "no slots": {"max_source_oov": 0},
    "truncated": {"max_source_oov": 4, "model_max_length": 5},
    "truncated left": {"max_source_oov": 4, "model_max_length": 5, "truncation_side": "left"},
    "unk ends": {"max_source_oov": 4, "unk_token": "</s>"},
    "features": {"max_source_oov": 4, "feature_vocab": ["V", "PST", "constructor"]},
    "letters": {"max_source_oov": 9, "letter_vocab": "aeo东￭\u0301👩"},
    "folded whitespace": {"max_source_oov": 9, "fold_whitespace": True},
    "folded, truncated": {"max_source_oov": 9, "fold_whitespace": True, "model_max_length": 5},
    "folded characters": {"max_source_oov": 9, "fold_whitespace": True, "segmenter": "char"},
    "case variants": {"max_source_oov": 9, "letter_vocab": "aeo", "case_variants": True, "segmenter": "whitespace"},
}


def test_sources_get_the_same_ids_and_outputs_the_same_words(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    for options in TOKENIZERS.values():
        check_tokenizer(tab, options)


def check_tokenizer(tab: Any, options: dict[str, Any]) -> None:
    script = """async ([vocabulary, texts, features, ids]) => {
        const tokenizer = new (await import("./tokenizer.js")).Tokenizer(vocabulary);
        return texts.map((text) => {
            const source = tokenizer.encode(text, features);
            const words = tokenizer.decodeWords(ids, source);
            return { ...source, decoded: words, spaced: tokenizer.addSpaces(words) };
        });
    }"""
    words = ["<pad>", "<s>", "</s>", "<unk>", "call", "at", "constructor", "。", "x", "￭.", " "]
    options = {"segmenter": "word_punct", **options}
    tokenizer = CopyNetTokenizer({word: index for index, word in enumerate(words)}, **options)
    tokenizer.add_tokens(["Mira"])
    features = ["PST", "new", "PST", "constructor"] if tokenizer.feature_vocab else []
    sources, ids = [*texts(40), "CALL Call mira at XY <unk> <S>"], [1, *range(len(tokenizer) + 5), 4, 2, 0]
    found = run_script(tab, script, [web_export.describe_tokenizer(tokenizer), sources, features, ids])
    for text, source in zip(sources, found, strict=True):
        encoded = tokenizer([text], truncation=True, **({"features": [features]} if features else {}))
        length = tokenizer.model_max_length
        known = tokenizer.encode_source(text, max_length=length)
        decoded = known.spell(ids, skipped_ids(tokenizer))
        expected = {
            "words": known.words,
            "spacedWords": add_spaces(tokenizer, known.words),
            "ids": known.ids,
            "oov": [index >= len(tokenizer) for index in known.ids],
            "oovWords": known.oov_words,
            "featureIds": encoded["feature_ids"][0] if features else [],
            "letterIds": known.letter_ids or [],
            "isTruncated": known.is_truncated,
            "text": text,
            "spans": [None if span is None else count_units(text, span) for span in known.offsets],
            "decoded": decoded,
            "spaced": add_spaces(tokenizer, decoded),
        }
        assert source == expected, (options, text)


def count_units(text: str, span: tuple[int, int]) -> list[int]:
    """A span in the units of UTF-16."""
    return [len(text[:place].encode("utf-16-le", "surrogatepass")) // 2 for place in span]


# ---- searches

SEARCHES = {
    "greedy, not short": {"num_beams": 1, "min_new_tokens": 4, "max_new_tokens": 9, "forbid_unk": True},
    "null is left out": {"num_beams": None, "length_penalty": None, "max_new_tokens": 6},
    **ALL_SEARCHES,
}
# The outputs of each text, and what the model generated and traced for them.
SEARCH = """async ([texts, options]) => {
    const model = await load();
    const found = [];
    for (const text of texts) {
        const made = {};
        for (const name of ["generate", "traceCopies"]) {
            const own = Object.getPrototypeOf(model)[name];
            model[name] = async (...given) => (made[name] = await own.apply(model, given));
        }
        found.push({ outputs: await model.predict(text, options), ...made });
    }
    return found;
}"""
# What is the same in both, and what is nearly so.
EXACT = {"text": "text", "words": "words", "copied": "copied", "sourcePositions": "source_positions"}
EXACT |= {"accepted": "accepted", "isTruncated": "is_truncated", "isCut": "is_cut", "isEmpty": "is_empty"}
NEAR = {"score": "score", "confidence": "confidence", "wordScores": "word_scores", "copyShares": "copy_shares"}


def count_characters(text: str, *units: int) -> tuple[int, ...]:
    """Places in JavaScript's units of UTF-16 as places in Python's characters."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return tuple(len(encoded[: 2 * unit].decode("utf-16-le", "surrogatepass")) for unit in units)


def check_output(output: dict[str, Any], expected: Prediction, tolerance: float) -> None:
    """Compares an output of the page with one of Python. Spans of JavaScript count the units of UTF-16."""
    for name, field in EXACT.items():
        assert output[name] == getattr(expected, field), name
    for name, field in NEAR.items():
        value = getattr(expected, field)
        assert output[name] == (None if value is None else pytest.approx(value, abs=tolerance, rel=1e-2)), name

    source = output["source"]["text"]
    spans = [None if span is None else count_characters(source, *span) for span in output["sourceSpans"]]
    assert spans == expected.source_spans
    assert [
        (*count_characters(expected.text, *span[:2]), *count_characters(source, *span[2:]))
        for span in output["copiedSpans"]
    ] == expected.copied_spans


def check_searches(
    tab: Any, page: Page, sources: Sequence[str], options: dict[str, Any], tolerance: float = 1e-4
) -> list[dict[str, Any]]:
    """Compares ids, positions, probabilities and outputs with those of OnnxCopyNet; returns the outputs."""
    open_page(tab, page)
    features = ["V", "new"] if page.tokenizer.feature_vocab else []
    found = run_script(tab, SEARCH, [sources, {**options, "features": features}])
    search = {name: value for name, value in options.items() if name != "min_confidence"}
    if "copied_only" in search:
        search["copied_only"] = find_matching_ids(page.tokenizer, search["copied_only"])
    for text, result in zip(sources, found, strict=True):
        more = {"features": [features]} if features else {}
        inputs = page.tokenizer([text], truncation=True, return_tensors="np", return_token_type_ids=False, **more)
        sequences = page.onnx.generate(**inputs, **search)
        assert result["generate"] == sequences.tolist(), text
        trace = page.onnx.trace_copies(sequences, eos_token_id=options.get("eos_token_id"), **inputs)
        traced = result["traceCopies"]
        assert traced["sourcePositions"] == trace.source_positions.tolist(), text
        for name, array in (
            ("tokenProbs", trace.token_probs),
            ("copied", trace.copied),
            ("copyProbs", trace.copy_probs),
        ):
            np.testing.assert_allclose(np.array(traced[name]), array, atol=tolerance, rtol=1e-3)
        source_words = page.tokenizer.encode_source(text, max_length=page.tokenizer.model_max_length).words
        expected = predict(page.onnx, page.tokenizer, [text], **more, **options)[0]
        for output, each in zip(result["outputs"], expected, strict=True):
            assert output["source"]["words"] == source_words
            check_output(output, each, tolerance)
    return [output for result in found for output in result["outputs"]]


def test_every_option_has_the_same_effect(tab: Any, exported: Page) -> None:
    for options in SEARCHES.values():
        check_searches(tab, exported, ["", *HOSTILE[3:8]], options)


def count_copies(outputs: Sequence[dict[str, Any]]) -> int:
    return sum(sum(output["copied"]) for output in outputs)


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_outputs_have_the_same_ids_and_positions(tab: Any, exported: Page, count: int) -> None:
    for beams in (1, 4):
        outputs = check_searches(tab, exported, texts(count), {"num_beams": beams, "max_new_tokens": 16})
        assert count_copies(outputs) > count  # the comparison is about copying


def test_outputs_below_a_confidence_are_marked_as_in_python(tab: Any, exported: Page) -> None:
    options: dict[str, Any] = {"num_beams": 1, "max_new_tokens": 12}
    ((output,),) = predict(exported.onnx, exported.tokenizer, ["a"], **options)
    assert output.score is not None
    assert output.confidence is not None
    options["min_confidence"] = (output.score + output.confidence) / 2  # its score is below that
    accepted = [each["accepted"] for each in check_searches(tab, exported, ["a", "", *HOSTILE[4:8]], options)]
    assert accepted[:2] == [True, False]
    assert False in accepted[2:]
    options |= {"min_confidence": 0, "max_new_tokens": 1}  # cut
    assert not check_searches(tab, exported, ["a"], options)[0]["accepted"]


def test_regular_expressions_find_the_words_that_they_find_in_python(tab: Any, exported: Page) -> None:
    words = ["été", "3é", "3", "ab", "a-b", "12:30", "x_y", "é", "ａ３", "B\u0301", "$5"]
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", *words]
    tokenizer = CopyNetTokenizer({word: number for number, word in enumerate(vocabulary)}, "whitespace")
    patterns = [r"\b3\b", r"\bt", r"\B", r"é\B", r"\A\w\Z", r"\-", r"[\-\:]\w", r"\:|\$", r"\W\b", r"\w\B\w"]
    patterns.append(r"[a-b\d]+\b.")
    script = """async ([vocabulary, patterns]) => {
        const tokenizer = new (await import("./tokenizer.js")).Tokenizer(vocabulary);
        return patterns.map((pattern) => tokenizer.matchingIds(pattern));
    }"""
    open_page(tab, exported)
    found = run_script(tab, script, [web_export.describe_tokenizer(tokenizer), patterns])
    assert found == [list(find_matching_ids(tokenizer, pattern)) for pattern in patterns]
    assert found.count([]) == 1  # no word has a t after a boundary


def test_unknown_options_are_refused_and_a_signal_stops_the_search(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    script = """async () => {
        const model = await load();
        const messages = [];
        const wrong = [
            { numBeams: 2 },
            { num_return_sequences: 2, num_beams: 1 },
            { num_beams: 0 },
            { signal: AbortSignal.abort() },
            { copied_only: "(?i)a" },
            { copied_only: "[\\\\W_]" },
            { num_beams: NaN },
            { length_penalty: "x" },
            { min_new_tokens: 9, max_new_tokens: 8 },
            { min_new_tokens: "x" },
            { min_confidence: 9 },
            { min_confidence: "0.5" },
            { features: "V;PST" },
            { features: ["V"] },
        ];
        for (const options of wrong) {
            await model.predict("a", options).catch((error) => messages.push(error.message));
        }
        await model.predict(5).catch((error) => messages.push(error.message));
        for (const num_beams of [1, 3]) {
            const [output] = await model.predict("a", { num_beams, max_time: 1e-9, min_new_tokens: 3 });
            messages.push(output.words.length);
        }
        return messages;
    }"""
    unknown, returned, none, stopped, *others, greedy, beams = run_script(tab, script, None)
    assert "nvalid" in others[0]
    assert others[1:] == [
        r"\W in brackets is not supported",
        "num_beams is NaN: use a whole number, 1 or more.",
        "length_penalty is x: use a number.",
        "min_new_tokens is 9, and max_new_tokens 8: use a smaller min_new_tokens.",
        "min_new_tokens is x: use a whole number, 0 or more.",
        "min_confidence is 9: use a number between 0 and 1.",
        "min_confidence is 0.5: use a number between 0 and 1.",
        "features are given, but the model reads none: leave them out.",
        "features are given, but the model reads none: leave them out.",
        "text is 5: pass a string.",
    ]
    assert (greedy, beams) == (1, 1)
    assert unknown.startswith("numBeams is not supported: use num_beams, ")
    assert returned == "num_return_sequences=2 is more than num_beams=1: use at least as many beams."
    assert none == "num_beams is 0: use a whole number, 1 or more."
    assert "aborted" in stopped


def test_the_demos_server_gives_the_page_the_same_outputs(browser: Any, tab: Any, exported: Page) -> None:
    script = """async ([texts, options]) => {
        const page = await (await fetch("page.json")).json();
        const model = page.model ? new (await import("./remote.js")).RemoteCopyNet(page.model) : await load();
        const outputs = [];
        for (const text of texts) outputs.push(...(await model.predict(text, options)));
        return outputs.map(({ text, score, words, wordScores, oov, copied, sourcePositions, copyProbs, source }) => ({
            ...{ text, words, oov, copied, sourcePositions, copyProbs, scores: [score, ...wordScores] },
            source: source.spacedWords.map((word, position) => [word.trim(), source.oov[position]]),
        }));
    }"""
    sources, options = ['please call "Krahn" at 14.', "a", HOSTILE[9]], {"num_beams": 2, "num_return_sequences": 2}
    open_page(tab, exported)
    local = run_script(tab, script, [sources, options])
    model = CopyNetForConditionalGeneration.from_pretrained(exported.folder.parent / "saved model")
    with serve_app(build_demo(model, exported.tokenizer)) as address:
        other = browser.new_page()
        other.goto(address)
        remote = run_script(other, script, [sources, options])
        other.close()
    for one, two in zip(remote, local, strict=True):
        for name in ("copyProbs", "scores"):
            np.testing.assert_allclose(one.pop(name), two.pop(name), atol=1e-3)
        assert one == two
    assert len(local) == 6
    assert any(any(output["copied"]) for output in local)


# ---- the page

EXAMPLE = 'please call "Mira" at noon.'


def ask(tab: Any, text: str) -> list[str]:
    """Types the text and presses the button; returns the words of the output."""
    tab.get_by_label("Text").fill(text)
    tab.get_by_role("button", name="Generate").click()
    tab.get_by_text("Generated in ").wait_for()
    return tab.locator("#output span").all_inner_texts()


def test_an_output_of_an_earlier_text_does_not_stay_beside_an_error(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    ask(tab, "a b")
    assert tab.locator("#result").is_visible()
    tab.get_by_label("Text").fill(" ")
    tab.get_by_role("button", name="Generate").click()
    tab.get_by_text("The text is empty").wait_for()
    assert tab.locator("#result").is_hidden()


def test_a_copied_word_highlights_its_source_position(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    assert tab.title() == "saved model"
    words = ask(tab, 'please call "Krahn" at 14.')
    assert "".join(words) == 'called"Krahn"at14.'
    assert tab.locator("#output").inner_text() == 'called "Krahn" at 14.'
    assert tab.locator("#source").inner_text() == 'please call "Krahn" at 14.'
    assert tab.locator("#output .oov").all_inner_texts() == ['"', "Krahn", '"', "14"]
    place, word = tab.locator('[data-at="3"]'), tab.locator('[data-from="3"]')
    assert place.inner_text() == word.inner_text() == "Krahn"
    word.hover()
    assert tab.locator(".words .linked").all_inner_texts() == ["Krahn"]
    assert "linked" in (place.get_attribute("class") or "")
    assert tab.locator("#origin").inner_text().startswith("Krahn: copied from word 4 of the source with probability ")
    place.hover()
    assert "linked" in (word.get_attribute("class") or "")
    tab.mouse.move(0, 0)
    assert tab.locator(".words .linked").count() == 0
    assert tab.locator("#origin").inner_text().startswith("Point at a word, or press Tab,")
    assert tab.get_by_text("Ctrl+Enter").is_visible()
    cell = tab.locator("#heatmap tbody tr", has_text="Krahn").locator("td").nth(3)
    assert float(cell.get_attribute("aria-label")) > 0.5


def test_the_page_can_be_used_with_the_keyboard(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    tab.get_by_label("Text").focus()
    tab.keyboard.press("Control+A")
    tab.keyboard.type("please call Krahn at 14.")
    tab.keyboard.press("Control+Enter")
    tab.get_by_text("Generated in ").wait_for()
    tab.get_by_role("button", name="Generate").focus()
    for _ in range(3):  # the button that copies, the first word, the second
        tab.keyboard.press("Tab")
    focused = tab.evaluate("document.activeElement.ariaLabel")
    assert focused.startswith("Krahn: copied from word 3 of the source")
    assert tab.locator(".words .linked").all_inner_texts() == ["Krahn"]


def test_settings_start_from_the_generation_config_and_reach_the_search(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    assert tab.get_by_label("Beam width").input_value() == "3"
    assert tab.get_by_label("Features").is_hidden()
    length = tab.get_by_label("Max length")
    saved = length.input_value()
    length.fill("1")
    assert ask(tab, "please call Krahn at 14.") == ["called"]
    length.fill(saved)


def test_words_that_match_are_written_only_if_the_source_has_them(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    field = tab.get_by_label("Only from the source")
    field.fill("^called$|at")
    assert not {"called", "at"} & set(ask(tab, "please call Krahn."))
    assert "at" in ask(tab, "please call Krahn at 14.")
    field.fill("(")
    tab.get_by_role("button", name="Generate").click()
    tab.get_by_text("Invalid regular expression").wait_for()
    field.fill("")


def test_examples_generate_and_texts_are_shown_as_text(tab: Any, exported: Page) -> None:
    open_page(tab, exported)
    tab.get_by_label("Text").fill("")
    tab.get_by_role("button", name="Generate").click()
    tab.get_by_text("The text is empty").wait_for()
    tab.get_by_role("button", name=EXAMPLE).click()
    tab.get_by_text("Generated in ").wait_for()
    assert tab.locator("#output").inner_text() == 'called "Mira" at noon.'
    hostile = "<img src=x onerror=alert(1)> call <b>at</b>"
    ask(tab, hostile)
    assert tab.locator("#source").inner_text() == hostile


def test_the_output_can_be_copied(tab: Any, exported: Page) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(tab, exported)
    ask(tab, EXAMPLE)
    tab.get_by_role("button", name="Copy the output").click()
    tab.get_by_text("The output is on the clipboard.").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == 'called "Mira" at noon.'


def test_a_phone_shows_the_example_without_shortcut_and_does_not_scroll_sideways(browser: Any, exported: Page) -> None:
    phone = {"viewport": {"width": 320, "height": 700}, "has_touch": True, "is_mobile": True}
    with watch_tab(browser, **phone) as (tab, wrong):
        open_page(tab, exported)
        assert tab.locator("#output").inner_text() == 'called "Mira" at noon.'
        assert tab.get_by_text("Ctrl+Enter").is_hidden()
        assert tab.locator("#origin").inner_text().startswith("Tap a word")
        ask(tab, "please call " + "x" * 200 + " at " + "y z " * 40)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert wrong == []


# ---- other models, each of whose pages is opened once more


@pytest.mark.slow  # an export
def test_int8_weights_give_the_outputs_of_python(tab: Any, int8: Page) -> None:
    for beams in (1, 4):
        # a difference in float32's last digit can move an input of a product by one of its 256 steps
        options = {"num_beams": beams, "max_new_tokens": 16}
        assert count_copies(check_searches(tab, int8, texts(40), options, tolerance=0.01)) > 40


@pytest.mark.slow  # an export each
@pytest.mark.parametrize("fixture", ["with_features", "of_transformers"])
def test_features_are_read_and_the_past_of_a_transformers_decoder_grows(
    tab: Any, fixture: str, request: pytest.FixtureRequest
) -> None:
    for beams in (1, 3):
        page = request.getfixturevalue(fixture)
        check_searches(tab, page, ["a b zebra", "", *HOSTILE[4:7]], {"num_beams": beams})


@pytest.mark.slow  # an export
def test_what_are_no_features_is_refused_as_in_python(tab: Any, with_features: Page) -> None:
    open_page(tab, with_features)
    script = """async (all) => {
        const model = await load();
        const predict = (features) => model.predict("a", { features }).then(() => "", (error) => error.message);
        return Promise.all(all.map(predict));
    }"""
    assert run_script(tab, script, [None, "V;PST", [5], ["V;PST"], [], ["new"]]) == [
        "the model reads features, and the text has none: pass features, a list of strings.",
        'features is "V;PST": pass a list of strings.',
        "features is [5]: pass a list of strings.",
        'features has "V;PST": pass one string for each feature, ["V","PST"].',
        "",
        "",
    ]


JOINED = ["Anna MillerZ owes 16,258.73", "max_size WexError", "été_ ÉCOLE a-1"]


def test_joined_words_are_written_and_traced_as_in_python(tab: Any, with_chains: Page) -> None:
    for beams in (1, 4):
        options = {"num_beams": beams, "max_new_tokens": 12}
        written = [output["words"] for output in check_searches(tab, with_chains, [*JOINED, *HOSTILE[3:9]], options)]
        assert any("" not in words and len("".join(words).split()) < len(words) for words in written)  # joined


def test_words_for_copying_only_are_those_of_python(tab: Any, with_chains: Page) -> None:
    sources = [JOINED[0], "a 1 a", HOSTILE[4], HOSTILE[6], HOSTILE[14]]

    def search(**options: str) -> list[str]:
        outputs = check_searches(tab, with_chains, sources, {"num_beams": 3, "max_new_tokens": 12, **options})
        return [output["text"] for output in outputs]

    free = search()
    for pattern in ("Z", r"^[\w]$", r"^\W$|[aZ\d]|\d", r"\s|\D\D"):
        assert search(copied_only=pattern) != free
    assert search(copied_only=r"\\d") == free  # no word has a backslash


@pytest.mark.slow  # an export
def test_features_have_a_box_and_a_model_that_copies_nothing_no_heatmap(tab: Any, with_features: Page) -> None:
    open_page(tab, with_features)
    tab.get_by_label("Features").fill("V; PST")
    ask(tab, "a b zebra")
    assert tab.locator("#heatmap").is_hidden()
    assert tab.locator("#output .copied").count() == 0


# ---- the folder


def test_the_folder_is_a_space_and_names_the_licence(exported: Page) -> None:
    assert not (exported.folder / "remote.js").exists()
    readme = (exported.folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith('---\ntitle: "saved model"\nsdk: static\n---\n')
    assert f"onnxruntime-web) {onnxruntime_web.VERSION} under the MIT licence" in readme
    assert "MIT License" in (exported.folder / "onnxruntime-web" / "LICENSE").read_text(encoding="utf-8")
    assert not list(exported.folder.rglob("*.py"))


# ---- models that are refused


BERT = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # fields of the config, options of the tokenizer
    "segmenter is 'jieba', and the page has char, whitespace, word_p": ({}, {"segmenter": "jieba"}),
    "segmenter is 'fugashi', and the page has char, whitespace, word_p": ({}, {"segmenter": "fugashi"}),
    r"split_special_tokens is False, .* export it with --target onnx": ({}, {"split_special_tokens": False}),
    "copy_mechanism is 'retrieval', and the page reads no facts": ({"copy_mechanism": "retrieval"}, {}),
    "the encoder is a bert, and the page has no tokenizer for it": ({"encoder": BERT}, {}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_the_page_cannot_run_is_refused(message: str) -> None:
    fields, options = REFUSED[message]
    with pytest.raises(ValueError, match=message):
        web_export.check_web_support(CopyNetConfig(vocab_size=13, **fields), tiny_tokenizer(**options))


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(ValueError, match="the tokenizer is a object, and the page runs CopyNetTokenizer"):
        web_export.check_web_support(CopyNetConfig(vocab_size=13), object())  # type: ignore[arg-type]


def test_the_command_refuses_wrong_targets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ["--model=some/one", f"--output_dir={tmp_path / 'out'}"]
    assert refused(capsys, "export", *argv, "--target=wasm").endswith("--target is wasm: choose onnx or web")
    message = refused(capsys, "export", *argv, "--examples", "a")
    assert message.endswith("--examples belongs to the page: use --target web, or leave it out")
