"""The library's own suite for models, from its source distribution; what does not apply is listed with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
import transformers

pytestmark = pytest.mark.slow

OF_ALL = {
    "test_generation_tester_mixin_inheritance": "the source distribution lacks GenerationTesterMixin",
}
NOT_APPLICABLE = {
    "RNNSearchSuite": OF_ALL,
    "CopyNetSuite": OF_ALL
    | {
        "test_resize_tokens_embeddings": "pad_to_multiple_of would turn slots into words, so it is refused",
    },
    "TransformerSuite": OF_ALL
    | {
        "test_resize_tokens_embeddings": "pad_to_multiple_of would turn slots into words, so it is refused",
    },
    "Seq2SeqSuite": OF_ALL
    | {
        "test_inputs_embeds": "embeddings do not say which words to copy; the suite excuses base models alone",
    },
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """For each class the failure of each of its tests, empty where it passed or the library skipped it."""
    pytest.importorskip("parameterized")
    folder, name = tmp_path_factory.mktemp("library"), f"transformers-{transformers.__version__}"
    source = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest", "."]
    fetched = subprocess.run([*source, name.replace("-", "==")], cwd=folder, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"pip cannot fetch the source of {name}: {fetched.stderr.splitlines()[-1:]}")
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (folder / name / "tests" / "__init__.py").touch()  # is not in the distribution
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # the library's tests have marks of their own
    tests, report = Path(__file__).parent, folder / "report.xml"
    paths = [str(folder / name), str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]
    options = ["-c", str(folder / "pytest.ini"), "--rootdir", str(tests), f"--junitxml={report}"]
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    run = [sys.executable, "-m", "pytest", *options, *plugins, str(tests / "library_suite.py")]
    subprocess.run(run, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True)
    found: dict[str, dict[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        failures = [part.get("message", "") for part in case if part.tag in ("failure", "error")]
        suite, test = case.get("classname", "").rpartition(".")[2], case.get("name", "").partition(" ")[0]
        tests_of_suite = found.setdefault(suite, {})
        tests_of_suite[test] = tests_of_suite.get(test, "") + "".join(failures)
    return found


@pytest.mark.parametrize("suite", NOT_APPLICABLE)
def test_the_librarys_tests_pass_where_they_apply(suite: str, outcomes: dict[str, dict[str, str]]) -> None:
    failures = {test: message for test, message in outcomes[suite].items() if message}
    assert len(outcomes[suite]) > 100
    assert {test: message for test, message in failures.items() if test not in NOT_APPLICABLE[suite]} == {}
    assert failures.keys() == NOT_APPLICABLE[suite].keys()  # what has become applicable leaves the list


def test_the_librarys_tests_of_configs_pass(outcomes: dict[str, dict[str, str]]) -> None:
    assert outcomes["ConfigSuite"] == dict.fromkeys(("test_without_an_encoder", "test_with_an_encoder"), "")
