"""The map of the package in CONTRIBUTING.md: every file is on it, imports follow its order, its names exist."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from helpers import save_parts, tiny_model, tiny_tokenizer

from copynet_hf import CopyNetEnsemble

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE_INITS = {
    f"{room}/__init__.py"
    for room in ("training", "serving", "evaluation", "inference", "saved", "visualization", "model")
}  # a docstring each


def read_map() -> list[str]:
    """The package's files, top to bottom, as paths below the package."""
    files, folder = [], ""
    for line in PAGE.split("```text\ncopynet_hf/\n")[1].split("```")[0].splitlines():
        name = line.split()[0]
        indent = len(line) - len(line.lstrip())
        if name.endswith("/"):
            folder = name
        else:
            files.append(name if indent == 2 else folder + name)
    return files


def find_imports(path: Path, package: Path) -> set[str]:
    """The package's files that a file imports, wherever in the file, under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            folder = path.parents[node.level - 1]
        elif (node.module or "").split(".")[0] == package.name:
            folder = package.parent
        else:
            continue
        module = folder.joinpath(*(node.module or "").split(".")) if node.module else folder
        for name in node.names:
            options = (module / f"{name.name}.py", module.with_suffix(".py"), module / "__init__.py")
            found.add(next(option for option in options if option.exists()).relative_to(package).as_posix())
    return found


FILES = read_map()


def test_every_file_is_on_the_map():
    package = ROOT / "copynet_hf"
    existing = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    assert set(FILES) == existing - PACKAGE_INITS
    assert len(FILES) == len(set(FILES))


@pytest.mark.parametrize("file", FILES)
def test_imports_go_down_the_map(file):
    package = ROOT / "copynet_hf"
    imports = find_imports(package / file, package)
    if file == "data/__init__.py":  # a room's own entry re-exports what is in it
        imports = {path for path in imports if not path.startswith("data/")}
    upwards = {path for path in imports if FILES.index(path) <= FILES.index(file)}
    assert not upwards


def test_no_other_room_is_imported_by_the_models_files():
    for file in (file for file in FILES if file.startswith("model/")):
        text = (ROOT / "copynet_hf" / file).read_text(encoding="utf-8")
        levels = [node.level for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level]
        assert set(levels) <= {1}
        assert "copynet_hf" not in re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)


def test_the_models_room_is_what_is_saved(tmp_path):
    model, room = tiny_model(), {file for file in FILES if file.startswith("model/")}
    of_ensembles = {"model/modeling_ensemble.py", "model/configuration_ensemble.py"}
    for each, expected in ((model, room - of_ensembles), (CopyNetEnsemble.from_models([model]), room)):
        folder = save_parts(tmp_path / type(each).__name__, each, tiny_tokenizer())
        assert {f"model/{path.name}" for path in folder.glob("*.py")} == expected


def test_the_functions_named_for_each_equation_exist():
    section = PAGE.split("## Where each equation is")[1].split("\n## ")[0]
    names = re.findall(r"`(\w+)\.([\w.]+)`", section)
    assert len(names) > 20
    for module, name in names:
        found = import_module(f"copynet_hf.model.{module}")
        for part in name.split("."):
            found = getattr(found, part)


def test_the_functions_named_for_other_files_exist():
    names = re.findall(r"`([\w/]+\.py)`[:,] (?:class )?((?:`\w+`(?:, | and )?)+)", PAGE)
    assert len(names) > 10
    for file, listed in names:
        tree = ast.parse((ROOT / "copynet_hf" / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert {*re.findall(r"\w+", listed)} - {"and"} <= defined, file
