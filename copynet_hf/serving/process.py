"""An exported model, served over HTTP: loading it, and the process."""

from __future__ import annotations

import copy
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..inference.onnx_search import OnnxCopyNet
from ..model.prediction import CopyModel, Prediction, predict, reads_features
from ..model.vocabularies import check_tokenizer
from ..saved.checks import read_export_config, suggest_folder
from .batching import Options, Predict, RequestRow
from .limits import Limits
from .tokenizer import load_exported_tokenizer

if TYPE_CHECKING:
    from fastapi import FastAPI

PACKAGES = "fastapi uvicorn onnxruntime prometheus-client"  # of the extra `serve`
MAX_CONNECTIONS = 1000
GRACE_SECONDS = 5  # for sending the last answers
Model = TypeVar("Model", bound=OnnxCopyNet)


def make_stoppable(model: Model, check: Callable[[], None]) -> Model:
    """The model, but it calls `check`, which may raise, before each step."""
    stoppable = copy.copy(model)
    stoppable.before_run = check
    return stoppable


def load_predict(
    folder: str | None, threads: int | None = None, options: Options | None = None
) -> tuple[Predict, Options]:
    """The function that predicts batches with an exported model, after a first one; and the saved options.

    Args:
        options: of `predict`, for every batch.

    Raises:
        ImportError: onnxruntime, or a package of the tokenizer, is not installed.
        ValueError: the folder holds no exported model over words, or its files do not belong together.
    """
    if folder is None:
        raise ValueError("--model is missing: pass a folder that copynet-hf export wrote")
    if not Path(folder).is_dir():
        fix = "pass one that copynet-hf export wrote (models on the Hub have to be downloaded first)"
        raise ValueError(f"model {folder}: no such folder; {suggest_folder(Path(folder)) or fix}")
    if read_export_config(Path(folder)).get("num_features"):
        raise ValueError(f"model {folder} reads points, not words: run it in Python with OnnxCopyNet")
    with explain_missing_packages("transformers"):
        tokenizer = load_exported_tokenizer(folder)
    model = OnnxCopyNet.from_pretrained(folder, threads or 0, keep_memory=False)
    check_tokenizer(model.config, tokenizer)
    fixed = {} if options is None else options

    def predict_batch(
        rows: Sequence[RequestRow], options: Options, check: Callable[[], None]
    ) -> list[list[Prediction]]:
        return predict_requests(make_stoppable(model, check), tokenizer, rows, **{**fixed, **options})

    predict_batch([{"text": "a", "features": None}], {"min_new_tokens": 0, "max_new_tokens": 1}, lambda: None)
    search = model.search_options({})
    return predict_batch, {"num_beams": search.num_beams, "max_new_tokens": search.max_new_tokens}


def predict_requests(
    model: CopyModel, tokenizer: Any, rows: Sequence[RequestRow], **options: Any
) -> list[list[Prediction]]:
    """`predict` for the rows of a batch, of which some may have facts or features. If the model reads features, and a
    row comes from a request without them, `predict` refuses the batch."""
    texts = [row["text"] for row in rows]
    columns = {"facts": [row.get("facts") for row in rows], "features": [row.get("features") for row in rows]}
    given: dict[str, Any] = {name: column for name, column in columns.items() if column != [None] * len(rows)}
    if reads_features(model):
        given["features"] = columns["features"] if all("features" in row for row in rows) else None
    return predict(model, tokenizer, texts, **given, **options)


@contextmanager
def explain_missing_packages(packages: str = PACKAGES) -> Iterator[None]:
    """Names the packages to install in the error about one that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install {packages}") from None


def run_server(app: FastAPI, name: str, host: str, port: int, timeout: float = Limits().timeout) -> None:
    """Serves a model of this name until SIGTERM or Ctrl-C, after which the accepted requests are answered, each within
    `timeout` seconds."""
    with explain_missing_packages():
        import uvicorn

        from .connections import Connection
    connections = count_connections()
    config = uvicorn.Config(
        app,
        log_config=None,  # uvicorn's would close the handlers of the process, and absl's handler its stream, stderr
        log_level="warning",
        access_log=False,
        server_header=False,
        http=partial(Connection, max_connections=connections),  # type: ignore[arg-type]  # as good as a class
        ws="none",
        backlog=min(128, connections // 8),  # asyncio accepts as many at once, before `Connection` counts them
        timeout_graceful_shutdown=math.ceil(timeout) + GRACE_SECONDS,
    )
    with _listen(host, port) as listener:
        # uvicorn ends in order and then sends itself the signal again, which is not to end the process with an error.
        signal.signal(signal.SIGTERM, lambda *_: None)
        host, port = listener.getsockname()[:2]
        print(f"serving {name} at http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def count_connections() -> int:
    """How many connections may be open: half as many as files."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(files // 2, 8))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise OSError(f"--host {host} --port {port} cannot be used ({error.strerror}): use others") from None
    # Connections inherit it. Else an answer, sent in two parts, would wait 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
