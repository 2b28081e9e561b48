"""The page of `copynet-hf demo`: its contents for each mechanism, and its behaviour in a browser."""

from __future__ import annotations

import gc
import json
import random
import re
import runpy
import shutil
import socket
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import torch
from helpers import POINTER, tiny_model, trained
from transformers import pipeline

from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.cli import main
from copynet_hf.inference.predictor import parse_facts
from copynet_hf.serving.page import (
    MAX_CHARACTERS,
    MAX_COLUMNS,
    MAX_REQUEST_BYTES,
    RequestLimits,
    build_demo,
    show_output,
)
from copynet_hf.serving.page import __file__ as DEMO_FILE

MECHANISMS: dict[str, dict[str, Any]] = {
    "copynet": {},
    "no_slots": {"max_source_oov": 0},
    "none": {"copy_mechanism": "none"},
    "pointer_generator": {"copy_mechanism": "pointer_generator"},
    "gated": {"copy_mechanism": "gated"},
    "pointer": POINTER,
    "retrieval": {"copy_mechanism": "retrieval"},
}
TEXT = "a X  b <i>Y</i> X"
FACTS = 'X | b | 1931\n\nX | c | "Z"'


def word_tokenizer(slots: int) -> CopyNetTokenizer:
    vocab = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *"abcdefghi"])}
    return CopyNetTokenizer(vocab, segmenter="whitespace", max_source_oov=slots)


def make_pipe(model: CopyNetForConditionalGeneration) -> Any:
    return pipeline("copy-text2text", model=model, tokenizer=word_tokenizer(model.config.max_source_oov))


def lines(shown: str) -> dict[str, list[ET.Element]]:
    """The words of source and output. If the text were not escaped, it would not parse as XML."""
    return {line.get("data-name", ""): line.findall("span") for line in ET.fromstring(shown).findall("p")}


def text_of(element: ET.Element) -> str:
    return "".join(element.itertext())


# ---- without a browser


@pytest.mark.parametrize("fields", MECHANISMS.values(), ids=MECHANISMS)
def test_the_page_shows_the_outputs_and_origins_of_every_mechanism(fields: dict[str, Any]) -> None:
    options, any_copied = {"num_beams": 2, "min_new_tokens": 6, "max_new_tokens": 6}, False
    for seed in (3, 4, 5):
        model = tiny_model(seed=seed, **fields)
        config, pipe = model.config, make_pipe(model)
        facts = FACTS if config.mechanism.retrieves else ""
        shown, figure = show_output(pipe, TEXT, facts, **options)
        source, output = lines(shown).values()
        expected = pipe({"text": TEXT, "facts": parse_facts(facts)}, **options)[0]
        assert [text_of(word) for word in output] == expected["generated_text"].split()
        assert [word.get("class") == "copied" for word in output] == expected["copied"]
        places = {word.get("data-at"): text_of(word) for word in source}
        for word in output:
            if word.get("class"):
                assert text_of(word) in (places[word.get("data-from")], "<unk>")
        for word in [*source, *output]:
            is_unseen = config.max_source_oov > 0 and text_of(word) not in {*"abcdefghi", "<unk>"}
            assert (word.find("u") is not None) == is_unseen
        assert (figure is not None) == config.copies
        any_copied |= any(expected["copied"])
    assert any_copied == config.copies


def test_the_source_is_shown_as_typed_with_its_facts() -> None:
    model = tiny_model(copy_mechanism="retrieval")
    shown, _ = show_output(make_pipe(model), TEXT, FACTS, max_new_tokens=2)
    source = ET.fromstring(shown).findall("p")[0]
    assert text_of(source) == f"{TEXT}\n{FACTS}"
    assert [text_of(word) for word in source] == ["a", "X", "b", "<i>Y</i>", "X", "X", "b", "1931", "X", "c", '"Z"']


def test_one_output_is_shown_whatever_num_return_sequences_was_saved() -> None:
    model = tiny_model()
    model.generation_config.update(num_beams=3, num_return_sequences=3)
    shown, _ = show_output(make_pipe(model), TEXT, num_beams=2, max_new_tokens=3)
    assert len(lines(shown)) == 2


def test_empty_texts_and_malformed_facts_raise_an_error() -> None:
    pipe = make_pipe(tiny_model())
    with pytest.raises(ValueError, match="The text is empty"):
        show_output(pipe, " \n")
    with pytest.raises(ValueError, match=r"'X \| b' is not a fact: write subject \| property \| object"):
        show_output(pipe, "a", "X | b | c\nX | b")


def test_an_empty_output_has_no_heatmap() -> None:
    shown, figure = show_output(make_pipe(tiny_model(**POINTER)), "a", max_new_tokens=1, forced_eos_token_id=2)
    assert figure is None
    assert lines(shown)["output"] == []


def test_the_heatmap_of_a_long_source_includes_the_positions_copied_from() -> None:
    pipe = make_pipe(tiny_model(**POINTER))
    text = " ".join("abcdefghi"[place % 9] for place in range(200))
    shown, figure = show_output(pipe, text, min_new_tokens=4, max_new_tokens=4)
    (output,) = pipe(text, return_copy_probs=True, min_new_tokens=4, max_new_tokens=4)
    assert figure is not None
    drawn = figure.axes[0].images[0].get_array()
    assert drawn.shape == (4, MAX_COLUMNS)
    for row, probs, place in zip(drawn, output["copy_probs"], output["source_positions"], strict=True):
        assert probs[place] in row
    assert len(lines(shown)["source"]) == 200


def test_a_long_word_is_drawn_as_fast_as_a_short_one() -> None:
    pipe = make_pipe(tiny_model(**POINTER))
    options = {"min_new_tokens": 4, "max_new_tokens": 4}
    text = "a X " + "z" * (MAX_CHARACTERS - 4)
    shown, figure = show_output(pipe, text, **options)
    assert figure is not None
    labels = [label.get_text() for label in (*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels())]
    assert "X" in labels
    assert max(map(len, labels)) == 30
    source, _ = lines(shown).values()
    assert [text_of(word) for word in source] == text.split()
    assert max(len(word.get("aria-label", "")) for word in source) < 200


def test_texts_and_facts_have_a_limit() -> None:
    pipe = make_pipe(tiny_model(copy_mechanism="retrieval"))
    with pytest.raises(ValueError, match=f"The text has 50000 characters: give at most {MAX_CHARACTERS}"):
        show_output(pipe, "z" * 50_000)
    with pytest.raises(ValueError, match="The text has 50009 characters"):
        show_output(pipe, "a", f"b | c | {'z' * 50_000}")


def test_a_search_ends_after_the_time_limit() -> None:
    pytest.importorskip("gradio")
    model = tiny_model()
    model.generation_config.update(max_new_tokens=100_000, eos_token_id=None)
    page = build_demo(model, word_tokenizer(4))
    (show,) = [each.fn for each in page.fns.values() if each.api_name == "generate"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("copynet_hf.serving.page.MAX_SECONDS", 0.5)
        start = time.monotonic()
        shown, _ = show("a X", "", "", 1, False, 100_000)
    assert time.monotonic() - start < 60
    assert len(lines(shown)["output"]) > 1


def test_full_memory_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gradio")
    page = build_demo(tiny_model(), word_tokenizer(4))
    (show,) = [each.fn for each in page.fns.values() if each.api_name == "generate"]

    def exhaust_memory(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(CopyNetForConditionalGeneration, "generate", exhaust_memory)
    shown, figure = show("a X", "", "", 1, False, 5)
    assert text_of(ET.fromstring(shown)).startswith("the memory is full (20.00 GiB more were needed): ")
    assert figure is None


def test_the_pictures_of_finished_requests_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gradio = pytest.importorskip("gradio")
    from gradio.state_holder import StateHolder

    for part in (tiny_model(), word_tokenizer(4)):
        part.save_pretrained(tmp_path)
    monkeypatch.setattr("copynet_hf.serving.page.MAX_SESSIONS", 3)
    port = free_port()
    thread = Thread(target=main, args=[["demo", f"--model={tmp_path}", f"--port={port}"]], daemon=True)
    thread.start()
    wait_for(thread, port)
    address = f"http://127.0.0.1:{port}/gradio_api/call/generate"
    for number in range(6):
        body = json.dumps({"data": [f"a X{number}", "", "", 1, False, 3]}).encode()
        with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=30) as answer:
            event = json.load(answer)["event_id"]
        with urlopen(f"{address}/{event}", timeout=30) as answer:
            assert b"event: complete" in answer.read()
    sessions = [len(each.session_data) for each in gc.get_objects() if isinstance(each, StateHolder)]
    gradio.close_all()
    thread.join(timeout=10)
    assert max(sessions) == 3


def test_requests_leave_nothing_in_memory() -> None:
    pipe, counts = make_pipe(tiny_model()), []
    for _ in range(3):
        for _ in range(3):
            show_output(pipe, TEXT, max_new_tokens=3)
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 100


def test_without_gradio_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ImportError, match=r"pip install 'copynet-hf\[demo\]'"):
        build_demo(tiny_model(), word_tokenizer(4))


def test_analytics_are_off() -> None:
    pytest.importorskip("gradio")
    assert build_demo(tiny_model(), word_tokenizer(4)).analytics_enabled is False


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The error message of the command."""
    assert main(["demo", *argv]) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_models_over_points_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_model(**POINTER | {"num_features": 2}).save_pretrained(tmp_path)
    assert "reads points, not words" in refused(capsys, f"--model={tmp_path}")


def test_the_error_names_an_occupied_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gradio")
    tiny_model().save_pretrained(tmp_path)
    word_tokenizer(4).save_pretrained(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert str(port) in refused(capsys, f"--model={tmp_path}", f"--port={port}")
    assert "--port is 0" in refused(capsys, f"--model={tmp_path}", "--port=0")


# ---- in a browser


def english(generator: random.Random) -> tuple[str, str]:
    name, hour = ("".join(generator.choices("abcdefghijklm", k=6)) for _ in range(2))
    return f"please call {name} at {hour}", f"called {name} at {hour}"


def chinese(generator: random.Random) -> tuple[str, str]:
    place = "".join(map(chr, generator.sample(range(0x4E00, 0x9000), 2)))
    return f"请问{place}在哪里？", f"{place}在这里。"


@pytest.fixture(scope="module")
def servers(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Addresses of two pages: of the command with an English model, and of a Space's app.py with a Chinese one."""
    gradio = pytest.importorskip("gradio")
    folder, generator = tmp_path_factory.mktemp("demo"), random.Random(0)
    for language, pair, segmenter in (("english", english, "whitespace"), ("chinese", chinese, "char")):
        for part in trained([pair(generator) for _ in range(960)], segmenter):
            part.save_pretrained(folder / language)
    app = shutil.copy(DEMO_FILE, folder / "app.py")
    command, space = free_port(), free_port()
    argv = ["demo", f"--model={folder / 'english'}", f"--port={command}", "--examples", EXAMPLE]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COPYNET_MODEL", str(folder / "chinese"))
        patch.setattr(
            "gradio.http_server.INITIAL_PORT_VALUE", space
        )  # $GRADIO_SERVER_PORT, which gradio has read at its import
        threads = [
            Thread(target=main, args=[argv], daemon=True),
            Thread(target=runpy.run_path, args=[app, None, "__main__"], daemon=True),
        ]
        for thread, port in zip(threads, (command, space), strict=True):
            thread.start()
            wait_for(thread, port)
        yield {"command": f"http://127.0.0.1:{command}", "space": f"http://127.0.0.1:{space}"}
        gradio.close_all()
        for thread in threads:
            thread.join(timeout=10)
            assert not thread.is_alive()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(thread: Thread, port: int, seconds: float = 60) -> None:
    """Waits until the thread serves a page at the port."""
    end = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < end:
        with suppress(OSError):
            urlopen(f"http://127.0.0.1:{port}").close()
            return
        time.sleep(0.1)
    raise AssertionError(f"no page on port {port}")


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A tab; the test fails if it requests anything from another host or reports an error."""
    tab = browser.new_page()
    elsewhere: list[str] = []
    wrong: list[str] = []
    tab.on("request", lambda request: is_local(request.url) or elsewhere.append(request.url))
    tab.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    yield tab
    assert (elsewhere, wrong) == ([], [])
    tab.close()


def is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))


def ask(page: Any, text: str) -> list[str]:
    """Types the text, presses the button and waits for the output; returns its words."""
    page.get_by_label("Text").fill(text)
    page.get_by_role("button", name="Generate").click()
    page.wait_for_function("text => document.querySelector('[data-name=source]')?.textContent == text", arg=text)
    page.wait_for_selector("#heatmap img")
    return page.locator("[data-name=output] span").all_inner_texts()


def background(page: Any, selector: str) -> str:
    return page.locator(selector).evaluate("word => getComputedStyle(word).backgroundColor")


def said(page: Any, selector: str) -> str:
    return page.locator(selector).evaluate("word => getComputedStyle(word, '::after').content").strip('"')


EXAMPLE = "please call Mira at noon"
NONE, MARKED = "rgba(0, 0, 0, 0)", "rgba(230, 159, 0, 0.5)"


def test_a_copied_word_highlights_its_source_position(page: Any, servers: dict[str, str]) -> None:
    page.goto(servers["command"])
    text = 'please call <script>alert("Krahn")</script> at ${1+1}{{value}}`'
    _, _, name, _, hour = text.split()
    assert ask(page, text) == ["called", name, "at", hour]
    assert page.locator("[data-name=output] u").all_inner_texts() == [name, hour]
    place, word = '[data-at="2"]', '[data-from="2"]'
    assert background(page, place) == NONE
    page.locator(word).hover()
    assert background(page, place) == MARKED
    assert background(page, '[data-at="4"]') == NONE
    assert re.search("copied from position 2 with probability (1.00|0.[5-9].)$", said(page, word))
    page.mouse.move(0, 0)
    assert background(page, place) == NONE


def test_words_can_be_focused_with_the_keyboard(page: Any, servers: dict[str, str]) -> None:
    page.goto(servers["command"])
    ask(page, "please call Krahn at 14:35")
    page.get_by_role("button", name="Generate").focus()
    for _ in range(2):
        page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.ariaLabel")
    assert focused.startswith("Krahn: copied from position 2")
    assert background(page, '[data-at="2"]') == MARKED
    assert said(page, '[data-from="2"]') == focused


def test_settings_start_from_the_generation_config_and_reach_generate(page: Any, servers: dict[str, str]) -> None:
    page.goto(servers["command"])
    assert page.get_by_label("number input for Beam width").input_value() == "3"
    page.get_by_label("number input for Max length").fill("2")
    assert ask(page, "please call Krahn at 14:35") == ["called", "Krahn"]


def test_examples_fill_the_text_and_an_empty_text_shows_a_message(page: Any, servers: dict[str, str]) -> None:
    page.goto(servers["command"])
    page.get_by_role("button", name="Generate").click()
    page.get_by_text("The text is empty").wait_for()
    page.get_by_role("button", name=EXAMPLE).click()
    page.wait_for_function("text => document.querySelector('textarea').value == text", arg=EXAMPLE)
    assert ask(page, EXAMPLE) == ["called", "Mira", "at", "noon"]


def test_a_text_that_is_too_long_shows_a_message(page: Any, servers: dict[str, str]) -> None:
    page.goto(servers["command"])
    page.get_by_label("Text").fill("z" * 50_000)
    page.get_by_role("button", name="Generate").click()
    page.get_by_text("The text has 50000 characters").wait_for()


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [("/gradio_api/upload", 10, 403), ("/gradio_api/upload/", 10, 403), ("/gradio_api/queue/join", None, 413)],
)
def test_uploads_and_long_requests_are_refused(
    servers: dict[str, str], path: str, size: int | None, status: int
) -> None:
    for address in servers.values():
        request = Request(
            f"{address}{path}", data=b"x", headers={"Content-Length": str(size or MAX_REQUEST_BYTES + 1)}
        )
        with pytest.raises(HTTPError) as refusal:
            urlopen(request, timeout=20)
        assert refusal.value.code == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/gradio_api/file=http://127.0.0.1:9/x", 403),
        ("/file=/etc/passwd", 403),
        ("/gradio_api/proxy=http://127.0.0.1:9/x", 403),
        ("/gradio_api/upload", 403),
        ("/config", None),
        ("/gradio_api/queue/data", None),
    ],
)
def test_routes_of_files_do_not_reach_gradio(path: str, status: int | None) -> None:
    reached, sent = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    async def send(message: Any) -> None:
        sent.append(message)

    with suppress(StopIteration):  # without an event loop: nothing here waits
        RequestLimits(app)({"type": "http", "path": path, "headers": []}, None, send).send(None)
    assert reached == ([path] if status is None else [])
    assert [message["status"] for message in sent if "status" in message] == ([] if status is None else [status])


def test_the_file_runs_as_a_space_and_shows_chinese(page: Any, servers: dict[str, str]) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(servers["space"])
    assert ask(page, "请问华為在哪里？") == list("华為在这里。")
    assert page.locator("[data-name=output]").inner_text() == "华為在这里。"
    assert page.locator(".copynet-copies").get_attribute("lang") == "zh"
    page.locator('[data-from="3"]').hover()
    assert background(page, '[data-at="3"]') == MARKED
