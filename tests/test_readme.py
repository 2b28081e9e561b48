"""The README's Python runs as it stands there and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_every_python_block_runs_and_prints_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed = ""
    compared = 0
    for language, text in BLOCKS:
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, "README.md", "exec"), names)
            printed = output.getvalue()
        elif language == "text":
            expected, actual = text.splitlines(), printed.splitlines()[-len(text.splitlines()) :]
            assert [shown(line) for line in actual] == [shown(line) for line in expected]
            compared += 1
    assert compared == 5


def shown(line: str) -> str:
    """A line without what may differ from one processor to another: a word of both vocabulary and source is copied or
    generated with nearly the same probability."""
    word, _, origin = line.partition(" ")
    return word if word in ("to", "by", "sent") and ("copied" in origin or "generated" in origin) else line


def test_the_two_commands_are_there_as_they_are_run():
    commands = [text.strip() for language, text in BLOCKS if language == "bash"]
    assert commands[0] == "pip install -c constraints.txt -e . && copynet-hf quickstart"
    assert commands[1] == 'pip install -c constraints.txt -e ".[dev]" && pytest'
