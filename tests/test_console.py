"""`copynet-hf generate` in pipes and terminals: slow, closed and undecodable input, and hostile characters."""

from __future__ import annotations

import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from helpers import save_tiny_model

from copynet_hf import __version__
from copynet_hf.cli import format_help, main
from copynet_hf.commands import COMMANDS
from copynet_hf.inference.console import escape_controls, format_json, read_line_batches

TITLE = "\x1b]0;owned\x07"  # sets the title of a terminal's window


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pointer network, whose outputs are words of the source."""
    search = {"max_new_tokens": 3, "min_new_tokens": 3}
    return save_tiny_model(tmp_path_factory.mktemp("model"), search=search, copy_mechanism="pointer")


def command(*argv: Any) -> list[str]:
    return [sys.executable, "-m", "copynet_hf", *map(str, argv)]


# ---- standard input


@pytest.fixture
def pipe() -> Iterator[tuple[Any, int]]:
    """The reading end of a pipe as a stream, and its writing end."""
    end, writer = os.pipe()
    with os.fdopen(end, "rb") as reader:
        yield reader, writer


def test_a_line_is_read_as_soon_as_it_is_there(pipe: tuple[Any, int]) -> None:
    reader, writer = pipe
    batches = read_line_batches(reader, 4)
    for lines in (["one"], ["two", "three"], ["four"]):
        os.write(writer, "".join(f"{line}\n" for line in lines).encode())
        assert next(batches) == lines
    os.write(writer, b"half a ")
    thread = Thread(target=lambda: (time.sleep(0.1), os.write(writer, b"line\nthe rest"), os.close(writer)))
    thread.start()
    assert [line for batch in batches for line in batch] == ["half a line", "the rest"]
    thread.join()


def test_batches_are_full_where_input_is_waiting(pipe: tuple[Any, int]) -> None:
    reader, writer = pipe
    texts = [f"{number} {'x' * 500}" for number in range(2000)]  # more than a pipe holds

    def write() -> None:
        with os.fdopen(writer, "w") as file:
            file.writelines(f"{text}\n" for text in texts)

    thread = Thread(target=write)
    thread.start()
    batches = list(read_line_batches(reader, 32))
    thread.join()
    assert [text for batch in batches for text in batch] == texts
    assert len(batches) == 63


@pytest.mark.parametrize(
    ("data", "lines"),
    {
        b"": [],
        b"\n": [""],
        b"a": ["a"],
        b"\xef\xbb\xbfa\n\xef\xbb\xbfb": ["a", "\ufeffb"],  # a byte order mark, and what is none
        b"a\r\nb\r\n": ["a", "b"],
        b"a\rb\x0b\xe2\x80\xa8c\n\nd": ["a\rb\x0b\u2028c", "", "d"],  # only \n ends a line, as for wc and paste
    }.items(),
)
def test_lines_end_with_a_line_feed(data: bytes, lines: list[str]) -> None:
    assert [line for batch in read_line_batches(io.BytesIO(data), 2) for line in batch] == lines


def test_a_line_that_is_not_utf_8_is_named_and_the_next_one_read(caplog: pytest.LogCaptureFixture) -> None:
    assert list(read_line_batches(io.BytesIO(b"a\n\xff b\nc\xc3\n"), 9)) == [["a", "\ufffd b", "c\ufffd"]]
    named = [record.getMessage() for record in caplog.records]
    assert [line.partition(" of standard input is not UTF-8")[0] for line in named] == ["line 2", "line 3"]


def test_generate_answers_a_slow_pipe_line_by_line_until_it_is_interrupted(model: Path) -> None:
    with subprocess.Popen(
        command("generate", "--model", model), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"a b X\n", b"\xff\n", b"c Y\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 60)[0]
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    line, *_ = errors.splitlines()  # no progress bar of a model that loads at once
    assert line.startswith(b"line 2 of standard input")
    assert b"Traceback" not in errors


# ---- standard output


def argparse_ignores_errors() -> bool:
    """Whether this Python's argparse does where it writes its help: that of 3.11.7 does, that of 3.11.2 does not."""

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    try:
        ArgumentParser().print_help(Closed())
    except BrokenPipeError:
        return False
    return True


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["train", "--help"], 0 if argparse_ignores_errors() else 141), (["help"], 141), (["--help"], 141)],
)
def test_a_closed_pipe_ends_the_command_silently(argv: list[str], code: int) -> None:
    end, writer = os.pipe()
    os.close(end)
    done = subprocess.run(command(*argv), stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == code
    assert "Error" not in done.stderr
    assert "copynet-hf" not in done.stderr


def test_outputs_for_a_closed_pipe_end_the_command(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end, writer = os.pipe()
    os.close(end)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writer, "w"))
    assert main(["generate", f"--model={model}", "--text", *(["a b c d e f"] * 500)]) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_output_is_an_error_of_one_line(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", os.fdopen(os.open("/dev/full", os.O_WRONLY), "w"))
    assert main(["generate", f"--model={model}", "--text", "a b"]) == 2
    assert capsys.readouterr().err.endswith(
        "copynet-hf: standard output cannot be written (No space left on device)\n"
    )


def test_commands_run_without_standard_output(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as after >&- in a shell
    assert main(["generate", f"--model={model}", "--text", "a b"]) == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("show_copies", [[], ["--show_copies"]])
def test_control_characters_do_not_reach_a_terminal(
    model: Path, monkeypatch: pytest.MonkeyPatch, show_copies: list[str]
) -> None:
    texts = [f"{TITLE}X {TITLE}X {TITLE}X", "\x9b31mX \x7f \x08"]
    argv = ["generate", f"--model={model}", *show_copies, "--text", *texts]
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(argv) == 0
    shown = sys.stdout.getvalue()
    for mark in ("\x1b[1;32m", "\x1b[0m"):  # of copied words
        assert (mark in shown) == bool(show_copies)
        shown = shown.replace(mark, "")
    assert shown == escape_controls(shown)
    assert r"\x1b]0;owned\x07X" in shown


def test_files_and_pipes_get_the_characters_as_they_are(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["generate", f"--model={model}", "--text", f"{TITLE}X {TITLE}X"]) == 0
    assert TITLE in capsys.readouterr().out


def test_errors_show_control_characters_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["generate", f"--model=a{TITLE}", "--text", "a"]) == 2
    assert r"a\x1b]0;owned\x07" in capsys.readouterr().err


def test_escaping_leaves_other_characters_alone() -> None:
    text = "a\tb\nç 中文 \u202e 🙂"
    assert escape_controls(text) == text
    assert escape_controls("\x00\x1b\x7f\x85\r") == r"\x00\x1b\x7f\x85\x0d"


# ---- interruption


SCRIPT = Path(__file__).parents[1] / "copynet_hf_command.py"


SLOW_PACKAGE = """
import time
print("imported", flush=True)
for _ in range(100):
    try:
        time.sleep(0.1)
    except BaseException:  # as where an interrupt comes in a destructor or a callback
        pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT")
def test_an_interrupt_while_the_package_is_imported_is_silent(tmp_path: Path) -> None:
    script = shutil.copy(SCRIPT, tmp_path)
    (tmp_path / "copynet_hf").mkdir()
    (tmp_path / "copynet_hf" / "__init__.py").write_text(SLOW_PACKAGE)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, script, "generate"], cwd=tmp_path, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"imported\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=5) == (b"", b"")
    assert process.returncode == 130


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"], ["--version"]], ids=" ".join)
def test_help_and_version_import_no_package(arguments: list[str]) -> None:
    code = "import runpy, sys; "
    code += "sys.argv[1:] = sys.argv[2:]; "
    code += f"module = runpy.run_path({str(SCRIPT)!r}); "
    code += "code = module['main'](); sys.exit(code or 'torch' in sys.modules or 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (f"copynet-hf {__version__}\n" if arguments == ["--version"] else f"{format_help()}\n")


HELP = """
import sys
from copynet_hf_command import main
for name in sys.argv[1:]:
    sys.argv = ["copynet-hf", name, "--help"]
    try:
        main()
    except SystemExit:
        pass
print(sorted({"torch", "transformers", "datasets"} & sys.modules.keys()))
"""


def test_the_help_of_a_command_imports_neither_torch_nor_transformers() -> None:
    """And fits a screen; that of train is longer."""
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", HELP, *COMMANDS], env=environment, capture_output=True, text=True)
    _, *pages = done.stdout.removesuffix("[]\n").split("usage: copynet-hf ")
    assert done.stdout.endswith("[]\n"), done.stderr
    for name, page in zip(COMMANDS, pages, strict=True):
        lines = page.splitlines()
        assert lines[0].startswith(f"{name} ")
        assert len(lines) <= (145 if name == "train" else 50)
        assert all(len(line) <= 80 for line in lines[1:])
    assert "\neveryday arguments:\n  --train_file" in done.stdout


IMPORT = """
import sys
import torch
from transformers import GenerationMixin, PreTrainedModel
from transformers.pipelines import PIPELINE_REGISTRY
before = {*sys.modules}
import copynet_hf
print(*(sys.modules.keys() - before))
from copynet_hf.data import remembered
from copynet_hf.inference import backends, predictor
from copynet_hf.visualization import highlighting
print(*({"datasets", "pandas"} & sys.modules.keys()))
"""


@pytest.mark.slow  # imports all in another process, to count it
def test_little_more_is_imported_than_the_classes_that_the_package_extends() -> None:
    """And for `generate`, which reads no files, no package for that."""
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert done.stderr.strip() == ""
    modules, for_files = (line.split() for line in done.stdout.splitlines())
    assert "copynet_hf.model.modeling_copynet" in modules
    others = {module for module in modules if module.partition(".")[0] != "copynet_hf"}
    assert others <= {"transformers.modeling_layers", "numpy.typing", "numpy._typing._add_docstring"}
    assert for_files == []


def test_ignored_interrupts_stay_ignored() -> None:
    code = f"import runpy, signal; module = runpy.run_path({str(SCRIPT)!r}); "
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwith module['silent_interrupts'](): "
    code += "signal.raise_signal(signal.SIGINT)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("encoding", "text", "written"),
    [
        ("utf-8", "kód ε", '"kód ε"'),
        (None, "kód ε", '"kód ε"'),
        ("ascii", "kód ε", '"k\\u00f3d \\u03b5"'),
        ("cp1252", "kód", '"kód"'),
        ("utf-8", "a\x1b\x9b\ud800ó", '"a\\u001b\\u009b\\ud800ó"'),
    ],
)
def test_json_has_the_letters_that_the_terminal_can_show(encoding: str | None, text: str, written: str) -> None:
    assert format_json(text, encoding) == written
    assert json.loads(written) == text
