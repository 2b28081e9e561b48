"""The page of `copynet-hf demo`: its outputs for each mechanism, and its behaviour in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from helpers import MECHANISMS, POINTER, ask_app, refused, serve_app, tiny_model, tiny_tokenizer, watch_tab
from tiny_encoders import copynet_over, save_encoder, word_tokenizer
from transformers import GenerationConfig, pipeline

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.cli import main
from copynet_hf.serving import process
from copynet_hf.serving.page import build_demo

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

# with seeds whose models copy, where they can
MODELS = {name: {"seed": 5} | fields for name, fields in MECHANISMS.items()}
MODELS |= {"retrieval": {"seed": 3} | MECHANISMS["retrieval"], "no_slots": {"seed": 5, "max_source_oov": 0}}
TEXT = "a X  b <i>Y</i> X"
FACTS = [["X", "b", "1931"], ["X", "c", '"Z"']]


# ---- without a browser


@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_the_page_shows_the_outputs_and_origins_of_every_mechanism(fields: dict[str, Any]) -> None:
    options = {"num_beams": 2, "min_new_tokens": 6, "max_new_tokens": 6}
    model = tiny_model(**fields)
    tokenizer = tiny_tokenizer(max_source_oov=model.config.max_source_oov)
    facts = FACTS if model.config.retrieves else None
    status, answer = ask_app(build_demo(model, tokenizer), texts=[TEXT], facts=[facts], **options)
    assert status == 200, answer
    ((found,),) = answer["outputs"]
    pipe: Any = pipeline("copy-text2text", model=model, tokenizer=tokenizer)
    (expected,) = pipe({"text": TEXT, "facts": facts}, return_copy_probs=True, **options)
    assert found["text"] == expected["generated_text"]
    for name in ("words", "copied", "source_positions", "source_words"):
        assert found[name] == expected[name]
    np.testing.assert_allclose(found["probabilities"], expected["copy_probs"], atol=1e-4)
    assert "".join(found["spaced_source"]) == (f'{TEXT}\nX\tb\t1931\nX\tc\t"Z"' if facts else TEXT)
    known = {*"abcdefghi", "<unk>"}
    for words, flags in ((found["source_words"], found["source_oov"]), (found["words"], found["oov"])):
        assert flags == [model.config.max_source_oov > 0 and word.strip() not in known for word in words]
    assert any(found["copied"]) == model.config.copies


@pytest.mark.parametrize(("side", "longer"), [("right", "a  X b c"), ("left", "c a a  X b")])
def test_a_truncated_source_is_shown_as_far_as_it_was_read(side: str, longer: str) -> None:
    app = build_demo(tiny_model(), tiny_tokenizer(model_max_length=3, truncation_side=side))
    _, answer = ask_app(app, texts=["a  X b", longer])
    shown = [outputs[0] for outputs in answer["outputs"]]
    assert [output["source_words"] for output in shown] == [["a", "X", "b"]] * 2
    assert [output["spaced_source"] for output in shown] == [["a", "  X", " b"]] * 2
    assert [output["is_truncated"] for output in shown] == [False, True]


def test_a_model_over_a_transformers_encoder_is_shown(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(name := save_encoder(tmp_path))
    status, answer = ask_app(build_demo(copynet_over(name, tokenizer), tokenizer), texts=["call  Krahn"])
    assert status == 200
    assert answer["outputs"][0][0]["spaced_source"] == ["call", "  Krahn"]


@pytest.mark.parametrize(("saved", "length"), [({}, 20), ({"max_length": 31}, 30), ({"max_new_tokens": 25}, 25)])
def test_outputs_are_as_long_as_the_saved_settings_say(saved: dict[str, int], length: int) -> None:
    model = tiny_model()
    model.generation_config.update(eos_token_id=None, **saved)  # an output never ends
    status, answer = ask_app(build_demo(model, tiny_tokenizer()), texts=["a X"])
    assert (status, len(answer["outputs"][0][0]["words"])) == (200, length)


def test_full_memory_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust_memory(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(CopyNetForConditionalGeneration, "generate", exhaust_memory)
    status, answer = ask_app(build_demo(tiny_model(), tiny_tokenizer()), texts=["a X"])
    assert status == 422
    assert answer["error"].startswith("the memory is full (20.00 GiB more were needed): ")


def test_texts_have_a_limit_and_only_the_files_of_the_page_are_served() -> None:
    app = build_demo(tiny_model(), tiny_tokenizer())
    status, answer = ask_app(app, texts=["z" * 50_000])
    assert (status, answer["error"]) == (422, "texts[0] has 50000 characters: send at most 10000")
    assert ask_app(app, texts=["a X" + " a" * 4000], num_beams=1, max_new_tokens=5)[0] == 200
    with serve_app(app) as address:
        assert b"<!doctype html>" in urlopen(address).read()
        for path in ("model/config.json", "../page.py", "%2e%2e/page.py", "..%2fpage.py", "/etc/passwd", "nothing"):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"{address}{path}")


def test_models_over_points_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_model(**POINTER | {"num_features": 2}).save_pretrained(tmp_path)
    assert "reads points, not words" in refused(capsys, "demo", f"--model={tmp_path}")


# ---- in a browser

EXAMPLE = "please call Mira at noon."


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab; the test fails if it requests anything from another host or reports an error."""
    with watch_tab(browser) as (tab, wrong):
        yield tab
        assert wrong == []


def generate(tab: Any, text: str) -> str:
    """Types the text, presses the button and returns the output."""
    tab.get_by_label("Text").fill(text)
    tab.get_by_role("button", name="Generate").click()
    tab.get_by_text("Generated in ").wait_for()
    return tab.locator("#output").inner_text()


def test_the_page_of_the_command_opens_with_the_output_of_an_example(
    tab: Any, requests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the process that serves it: test_serving."""
    shutil.copytree(requests / "model", tmp_path / "my model")
    settings = GenerationConfig.from_pretrained(tmp_path / "my model")
    settings.num_return_sequences = 3
    settings.save_pretrained(tmp_path / "my model")
    served: list[tuple[Any, ...]] = []
    monkeypatch.setattr(process, "run_server", lambda *arguments: served.append(arguments))
    assert main(["demo", f"--model={tmp_path / 'my model'}", "--port=7000", "--examples", EXAMPLE]) == 0
    ((app, name, *place),) = served
    assert (name, place) == (str(tmp_path / "my model"), ["127.0.0.1", 7000])
    with serve_app(app) as address:
        tab.goto(address)
        tab.get_by_text("Generated in ").wait_for()
        assert tab.title() == tab.locator("h1").inner_text() == "my model"
        assert tab.locator("#output").inner_text() == "called Mira at noon."
        tab.get_by_label("Beam width").fill("1")
        tab.get_by_label("Max length").fill("2")
        tab.get_by_label("Never write <unk>").check()
        assert generate(tab, "please call Krahn at 14.") == "called Krahn"
        assert tab.locator("#heatmap tbody tr").count() == 2


def test_facts_and_features_have_boxes_where_the_model_reads_them(tab: Any) -> None:
    tokenizer = tiny_tokenizer(feature_vocab=["PST", "V"])
    model = tiny_model(copy_mechanism="retrieval", feature_vocab_size=tokenizer.feature_vocab_size)
    with serve_app(build_demo(model, tokenizer)) as address:
        tab.goto(address)
        tab.get_by_label("Features").fill("V; PST")
        tab.get_by_label("Facts").fill("X | b | c\n\nX | b")
        tab.get_by_label("Text").fill("a  X")
        tab.get_by_role("button", name="Generate").click()
        tab.get_by_text('"X | b" is not a fact: write subject | property | object on each line.').wait_for()
        tab.get_by_label("Facts").fill("X | b | <i>\n")
        generate(tab, "a  X")
        assert tab.locator("#source").inner_text() == "a  X\nX\tb\t<i>"
        assert tab.locator("#source span").all_inner_texts() == ["a", "X", "X", "b", "<i>"]


def test_the_page_shows_which_words_the_server_writes_only_from_the_source(tab: Any) -> None:
    for pattern in (r"\d", None):
        with serve_app(build_demo(tiny_model(), tiny_tokenizer(), copied_only=pattern)) as address:
            tab.goto(address)
            tab.get_by_text("Ready.").wait_for()
            field = tab.get_by_label("Only from the source")
            assert (field.is_visible(), field.is_editable()) == (bool(pattern), False)
            assert field.input_value() == (pattern or "")
            generate(tab, "a X")


def test_the_servers_errors_are_shown(browser: Any) -> None:
    tab = browser.new_page()
    with serve_app(build_demo(tiny_model(), tiny_tokenizer())) as address:
        tab.goto(address)
        tab.get_by_label("Text").evaluate("box => { box.removeAttribute('maxlength') }")
        tab.get_by_label("Text").fill("z" * 50_000)
        tab.get_by_role("button", name="Generate").click()
        tab.get_by_text("texts[0] has 50000 characters: send at most 10000").wait_for()
    tab.close()
