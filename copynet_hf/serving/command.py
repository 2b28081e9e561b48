"""`copynet-hf serve`: its arguments, the exported model, and the process that serves it.

Its parser is argparse's, because `copynet_hf.arguments` needs Transformers.
"""

from __future__ import annotations

import argparse
import math
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..inference.onnx_search import OnnxCopyNet
from ..model.prediction import Prediction, predict
from ..saved.compatibility import check_tokenizer
from ..saved.generation_settings import check_generation_config
from .batching import Options, Predict, Source
from .limits import BatchSettings, Limits
from .tokenizer import PlainTokenizer, read_json

MAX_CONNECTIONS = 1000
GRACE_SECONDS = 5  # for sending the last answers
LIMITS, BATCHES = Limits(), BatchSettings()
# Name, type, default, metavar and help of each argument.
ARGUMENTS: tuple[tuple[str, Any, Any, str, str], ...] = (
    ("model", str, None, "FOLDER", "folder that copynet-hf export wrote"),
    ("host", str, "127.0.0.1", "ADDRESS", "address to listen on; 0.0.0.0 accepts other machines"),
    ("port", int, 8000, "N", "port to listen on; 0 for a free one"),
    ("threads", int, None, "N", "number of onnxruntime's threads; by default one per core"),
    ("max_source_length", int, None, "N", "truncate sources to N words; by default as in training"),
    ("batch_size", int, BATCHES.batch_size, "N", "texts of a batch, from any requests"),
    ("batch_window", float, 1e3 * BATCHES.window, "X", "milliseconds for which a text waits for others"),
    ("max_waiting", int, BATCHES.max_waiting, "N", "texts that may wait; further ones get 503"),
    ("max_request_bytes", int, LIMITS.max_request_bytes, "N", "bytes of a request"),
    ("max_texts", int, LIMITS.max_texts, "N", "texts of a request"),
    ("max_characters", int, LIMITS.max_characters, "N", "characters of a text, with facts and features"),
    ("max_beams", int, LIMITS.max_beams, "N", "beams that a request may ask for"),
    ("max_target_length", int, LIMITS.max_new_tokens, "N", "words of an output that a request may ask for"),
    ("max_work", int, LIMITS.max_work, "N", "characters of a request, times beams, times words of an output"),
    ("timeout", float, LIMITS.timeout, "X", "seconds for a request; then it gets 504"),
)


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults other than None."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def parse_arguments(argv: Sequence[str], description: str | None) -> argparse.Namespace:
    """The arguments of `copynet-hf serve`.

    Raises:
        ValueError: an argument is unknown, of another type or not positive.
    """
    parser = argparse.ArgumentParser(
        prog="copynet-hf serve",
        usage="%(prog)s --model FOLDER [ARGUMENTS]",
        description=description,
        formatter_class=_Formatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for name, kind, default, metavar, text in ARGUMENTS:
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)
    try:
        args, unknown = parser.parse_known_args(argv)
    except argparse.ArgumentError as error:
        raise ValueError(f"{error}: see --help") from None
    if unknown:
        raise ValueError(f"{unknown[0]} is not an argument: see --help")
    for name, kind, *_ in ARGUMENTS:
        value = getattr(args, name)
        lowest = 0 if name in ("port", "batch_window") else 1
        if kind is not str and value is not None and not lowest <= value < math.inf:
            raise ValueError(f"--{name} is {value}: give a number of at least {lowest}")
    if args.port > 65535:
        raise ValueError(f"--port is {args.port}: give a number of at most 65535")
    return args


class _StoppableSession:
    """A session of onnxruntime that calls `check` before it runs."""

    def __init__(self, session: Any, check: Callable[[], None]) -> None:
        self._session, self._check = session, check
        self.get_inputs, self.get_outputs = session.get_inputs, session.get_outputs

    def run(self, *arguments: Any) -> Any:
        self._check()
        return self._session.run(*arguments)


def load_predict(
    folder: str | None, threads: int | None = None, max_source_length: int | None = None
) -> tuple[Predict, Options]:
    """The function that predicts batches with an exported model, after a first one; and the saved options.

    Raises:
        ImportError: onnxruntime, or a package of the segmenter, is not installed.
        ValueError: the folder holds no exported model over words, or its files do not belong together.
    """
    if folder is None:
        raise ValueError("--model is missing: give a folder that copynet-hf export wrote")
    if not Path(folder).is_dir():
        raise ValueError(
            f"--model {folder}: no such folder; give one that copynet-hf export wrote (models on the Hub have to be "
            "downloaded first)"
        )
    generation_file = Path(folder) / "generation_config.json"
    config = read_json(Path(folder) / "config.json")
    if config.get("num_features"):
        raise ValueError(f"--model {folder} reads points, not words: run it in Python with OnnxCopyNet")
    tokenizer = PlainTokenizer.from_pretrained(folder)
    check_generation_config(read_json(generation_file), generation_file, len(tokenizer))
    try:
        model = OnnxCopyNet.from_pretrained(folder, threads or 0, keep_memory=False)
    except (ImportError, ValueError):
        raise
    except Exception as error:  # onnxruntime's errors have no common class
        raise ValueError(f"--model {folder} cannot be loaded ({error}): export the model again") from error
    check_tokenizer(model.config, tokenizer)

    def predict_batch(
        sources: Sequence[Source], options: Options, check: Callable[[], None]
    ) -> list[list[Prediction]]:
        columns: dict[str, Any] = {
            "facts": [each.facts for each in sources],
            "features": [each.features for each in sources],
        }
        given = {name: column for name, column in columns.items() if any(value is not None for value in column)}
        texts = [each.text for each in sources]
        options = {"max_source_length": max_source_length, **options}
        encoder, decoder = (_StoppableSession(session, check) for session in (model.encoder, model.decoder))
        stoppable = OnnxCopyNet(encoder, decoder, vars(model.config), model.generation_config)
        return predict(stoppable, tokenizer, texts, **given, **options)  # type: ignore[arg-type]  # of the tokenizer

    predict_batch([Source("a")], {"max_new_tokens": 1}, lambda: None)
    search = model.search_options({})
    return predict_batch, {"num_beams": search.num_beams, "max_new_tokens": search.max_new_tokens}


def serve(argv: Sequence[str], description: str | None = None) -> None:
    """Serves an exported model until SIGTERM or Ctrl-C, after which the accepted requests are answered.

    Raises:
        ImportError: fastapi, uvicorn or onnxruntime is not installed.
        OSError: the host or port is not available.
        ValueError: an argument is wrong, or the folder holds no exported model.
    """
    args = parse_arguments(argv, description)
    try:
        import uvicorn

        from .connections import Connection
        from .server import build_app
    except ModuleNotFoundError as error:
        raise ImportError(f"{error.name} is not installed: pip install 'copynet-hf[serve]'") from None
    predict_batch, saved_options = load_predict(args.model, args.threads, args.max_source_length)
    limits = Limits(
        args.max_request_bytes,
        args.max_texts,
        args.max_characters,
        args.max_beams,
        args.max_target_length,
        args.max_work,
        args.timeout,
    )
    connections = _count_connections()
    batches = BatchSettings(
        args.batch_size,
        args.batch_window / 1e3,
        max_waiting=args.max_waiting,
        max_requests=3 * connections // 4,  # the others are for health and metrics
        max_batch_seconds=args.timeout / 2,
    )
    config = uvicorn.Config(
        build_app(predict_batch, saved_options, limits, batches),
        log_level="warning",
        access_log=False,
        server_header=False,
        http=partial(Connection, max_connections=connections),  # type: ignore[arg-type]  # as good as a class
        ws="none",
        backlog=min(128, connections // 8),  # asyncio accepts as many at once, before `Connection` counts them
        timeout_graceful_shutdown=math.ceil(args.timeout) + GRACE_SECONDS,
    )
    with _listen(args.host, args.port) as listener:
        # uvicorn ends in order and then sends itself the signal again, which is not to end the process with an error.
        signal.signal(signal.SIGTERM, lambda *_: None)
        host, port = listener.getsockname()[:2]
        print(f"serving {args.model} at http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def _count_connections() -> int:
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
        raise OSError(f"--host {host} --port {port} cannot be used ({error.strerror}): give others") from None
    # Connections inherit it. Else an answer, sent in two parts, would wait 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
