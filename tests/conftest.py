"""What the tests share: no network, a cache of their own, the real data where they are at hand."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from datasets import Dataset

    from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer

# The Hugging Face libraries read these when they are first imported, which is after this file. A cache of our
# own keeps the tests from seeing what earlier runs left.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="copynet-tests-")
for name in ("HF_DATASETS_CACHE", "HF_MODULES_CACHE", "HF_EVALUATE_CACHE", "HF_METRICS_CACHE"):
    os.environ.pop(name, None)
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)


# Nearly all that is made while files are imported stays: looking for garbage in it costs each worker two seconds.
gc.disable()

# Ignored in the background of a shell, and then in every process that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Begun first, so that no worker is left alone with one of them; those that share an export are begun by turns.
LONGEST = ("web_export", "docs", "hub", "backends", "experiments", "segmenter_choice", "file_prediction", "training")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests, and refuses ids with sets of classes or addresses, which differ between the workers."""
    if unstable := [item.nodeid for item in items if re.search(r"\{<|0x[0-9a-f]{6}", item.nodeid)]:
        raise pytest.UsageError(f"{unstable[0]} has another id in each process: name its cases with ids=")
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.fixture(autouse=True, scope="session")
def _few_threads() -> None:
    """Models as small as the tests' gain nothing from a second thread, and lose much where cores are shared."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def _short_collections() -> None:
    """What earlier tests and files have imported stays. Frozen, it does not slow down garbage collections: every
    training begins with a full one, which takes a third of a second after an export has imported what it needs."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def only_warnings(caplog: pytest.LogCaptureFixture) -> None:
    """Commands of other tests have set another level."""
    caplog.set_level("WARNING", "copynet_hf")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the real data: $COPYNET_DATA, else `shared/data` beside the repository."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("COPYNET_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there (set COPYNET_DATA)")
    return folder


# Synthetic requests, and a tokenizer and a small model for them. The imports are here because of the variables above.


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    from datasets import Dataset

    from copynet_hf.data import quickstart_pairs

    return Dataset.from_list(quickstart_pairs("train", 64))


@pytest.fixture(scope="module")
def tokenizer(pairs: Dataset) -> CopyNetTokenizer:
    from copynet_hf.arguments import TrainArguments
    from copynet_hf.training.tokenizer_setup import train_tokenizer

    return train_tokenizer(pairs, TrainArguments(segmenter="whitespace", max_source_length=64))


@pytest.fixture
def model(tokenizer: CopyNetTokenizer) -> CopyNetForConditionalGeneration:
    import torch
    from helpers import SIZES

    from copynet_hf import CopyNetForConditionalGeneration
    from copynet_hf.training.model_setup import build_config

    torch.manual_seed(0)
    return CopyNetForConditionalGeneration(build_config(tokenizer, fields=SIZES)).eval()


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `tiny_model` and its tokenizer."""
    from helpers import save_tiny_model

    return save_tiny_model(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A function that returns the folder of a name, which it has filled by `make(folder)` once for all files and
    processes of a run. Who writes to the folder copies it."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared"
    shared.mkdir(exist_ok=True)

    def get(name: str, make: Callable[[Path], object]) -> Path:
        from filelock import FileLock

        made = shared / f"{name}.made"
        with FileLock(f"{made}.lock"):
            if not made.exists():
                make(shared / name)
                made.touch()
        return shared / name

    return get


@pytest.fixture(scope="session")
def exported_once(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Callable[..., Path]:
    """A function that returns the folder of `tiny_model(**fields)` as ONNX graphs, which are made once."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")

    def export(**fields: Any) -> Path:
        from helpers import tiny_model

        from copynet_hf import export_onnx

        name = sha1(json.dumps(fields, sort_keys=True).encode()).hexdigest()  # names of files may not be long
        return made_once(f"exported {name}", lambda folder: export_onnx(tiny_model(**fields), folder))

    return export


@pytest.fixture(scope="session")
def requests(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with a model trained for two seconds to copy words and punctuation, in `model`, and its graphs in
    `onnx`."""

    def make(folder: Path) -> None:
        from helpers import request_pair, save_parts, trained

        from copynet_hf import export_onnx

        generator = random.Random(0)
        pairs = [request_pair(generator) for _ in range(960)]
        model, tokenizer = trained(pairs, "word_punct", encoder_residual=True, tie_repetitions=True)
        save_parts(folder / "model", model, tokenizer)
        export_onnx(model, folder / "onnx", tokenizer)

    return made_once("requests", make)


@pytest.fixture(scope="session")
def quickstart(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with what a short quickstart with small sizes leaves: `model`, its scores in scores.json, what it
    printed in printed.txt."""

    def run(folder: Path) -> None:
        from copynet_hf.training import quickstart

        small = {"embedding_size": 32, "hidden_size": 64, "encoder_hidden_size": 32, "attention_size": 32}
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
            patch.setattr(quickstart, "ARGUMENTS", quickstart.ARGUMENTS | small | {"learning_rate": 1e-2})
            scores = quickstart.run_quickstart(folder / "model", train_pairs=2000, test_pairs=60, epochs=3)
        (folder / "printed.txt").write_text(printed.getvalue(), encoding="utf-8")
        (folder / "scores.json").write_text(json.dumps(scores), encoding="utf-8")

    return made_once("quickstart", run)


@pytest.fixture(scope="session")
def slots_model(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The folder of `train_slots`, with the model in `model`."""
    from helpers import train_slots

    return made_once("slots", train_slots)


@pytest.fixture(scope="session")
def browser_path() -> str:
    """Chromium, if it is installed."""
    return shutil.which("chromium") or shutil.which("google-chrome") or pytest.skip("no Chromium")


@pytest.fixture(scope="module")
def browser(browser_path: str) -> Iterator[Any]:
    """Headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """onnxruntime-web, from the user's cache or the npm registry."""
    from copynet_hf.serving.onnxruntime_web import load_runtime

    folder = tmp_path_factory.mktemp("onnxruntime-web")
    try:
        files = load_runtime()
    except OSError as error:
        pytest.skip(f"no onnxruntime-web: {error}")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
