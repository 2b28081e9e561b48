"""Wheel and source distribution: complete, the same, and at work where there is no checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import copynet_hf

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
WITHOUT_CHECKOUT = [
    f"test_{name}.py" for name in ("configuration", "modeling", "onnxruntime_web", "tokenization", "web_export")
]
TRAIN = """
from copynet_hf.training.quickstart import run_quickstart

run_quickstart("model", train_pairs=64, test_pairs=4)
"""


def run(*command: str | Path, cwd: Path, text: str = "") -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = {"cwd": cwd, "env": environment, "input": text, "capture_output": True, "text": True}
    done = subprocess.run(list(map(str, command)), **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The source distribution, the wheel made of it, and the wheel made of the checkout."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("distributions")
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT, cwd=folder)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "checkout", ROOT, cwd=folder)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    (of_checkout,) = (folder / "checkout").glob("*.whl")
    return sdist, wheel, of_checkout


@pytest.fixture(scope="module")
def unpacked(distributions: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(distributions[0]) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; all other packages are this one's, but no checkout."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    Path(own, "others.pth").write_text("\n".join(others), encoding="utf-8")  # without their .pth files, of checkouts
    programs = folder / "bin"
    install = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-deps"]
    run(*install, "--ignore-installed", distributions[1], cwd=folder)
    imported = run(programs / "python", "-c", "import copynet_hf; print(copynet_hf.__file__)", cwd=folder)
    assert Path(imported.strip()).is_relative_to(own)
    return programs


def read_wheel(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_both_hold_every_file_of_the_package(distributions: tuple[Path, Path, Path], unpacked: Path) -> None:
    tracked = run("git", "ls-files", cwd=ROOT).split("\n")[:-1]
    wheel = read_wheel(distributions[1])
    package = [name for name in tracked if name.startswith("copynet_hf")]
    assert {"copynet_hf/py.typed", "copynet_hf/serving/web/page.js", "copynet_hf_command.py"} <= set(package)
    assert [name for name in package if name not in wheel] == []
    assert wheel["copynet_hf/saved/model_card_template.md"] == (ROOT / "model_cards/template.md").read_bytes()
    assert [name for name in tracked if not (unpacked / name).is_file() and not name.startswith(".")] == []


def test_the_wheel_of_the_source_distribution_is_that_of_the_checkout(distributions: tuple[Path, Path, Path]) -> None:
    _, wheel, of_checkout = map(read_wheel, (distributions[1], *distributions[1:]))
    assert wheel == of_checkout


def test_the_metadata_are_complete(distributions: tuple[Path, Path, Path]) -> None:
    (text,) = (data for name, data in read_wheel(distributions[1]).items() if name.endswith("METADATA"))
    metadata: Message = Parser().parsestr(text.decode())
    for name in ("Summary", "Author", "License-Expression", "License-File", "Keywords", "Project-URL", "Classifier"):
        assert metadata[name], name
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert description.startswith("# copynet_hf\n")
    assert "pip install -c constraints.txt -e ." in description
    links = re.findall(r"\]\(([^)\s]*)", description)
    assert [link for link in links if not link.startswith("https://")] == []


def test_twine_has_nothing_to_say(distributions: tuple[Path, Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *distributions, cwd=tmp_path)


def test_installed_it_trains_and_generates(installed: Path, tmp_path: Path) -> None:
    run(installed / "python", "-c", TRAIN, cwd=tmp_path)
    program = installed / "copynet-hf"
    outputs = run(program, "generate", "--model", "model", cwd=tmp_path, text="please call Ottilie Krahn\n")
    assert outputs.count("\n") == 1
    assert run(program, "--version", cwd=tmp_path) == f"copynet-hf {copynet_hf.__version__}\n"


def test_installed_it_passes_the_tests_that_need_no_checkout(installed: Path, unpacked: Path, tmp_path: Path) -> None:
    shutil.copytree(unpacked / "tests", tmp_path / "tests")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    tests = [tmp_path / "tests" / name for name in WITHOUT_CHECKOUT]
    run(installed / "python", "-P", "-m", "pytest", "-q", "-m", "not slow", *tests, cwd=tmp_path)
