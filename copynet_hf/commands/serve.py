"""`copynet-hf serve`."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import COPIED_ONLY_HELP, MIN_CONFIDENCE_HELP, Command, argument, between, count
from ..serving.limits import Limits


@dataclass(frozen=True)
class ServeArguments(Limits):
    model: str | None = argument("folder that copynet-hf export wrote", metavar="FOLDER")
    host: str = argument("address to listen on; 0.0.0.0 accepts other machines", "127.0.0.1", "ADDRESS")
    port: int = argument("port to listen on; 0 for a free one", 8000, check=between(0, 65535))
    threads: int | None = count("number of onnxruntime's threads; by default one per core")
    max_source_length: int | None = count("truncate sources to N words; by default as in training")
    copied_only: str | None = argument(COPIED_ONLY_HELP, metavar="REGEX")
    min_confidence: float | None = argument(MIN_CONFIDENCE_HELP, check=between(0, 1))


def serve(args: ServeArguments) -> None:
    """Serves an exported model over HTTP, without torch: POST /predict, GET /health, GET /metrics."""
    from ..serving.process import count_connections, explain_missing_packages, load_predict, run_server

    with explain_missing_packages():
        from ..serving.server import build_app
    names = ("max_source_length", "copied_only", "min_confidence")
    options = {name: getattr(args, name) for name in names}
    predict_batch, saved_options = load_predict(args.model, args.threads, options)
    max_requests = 3 * count_connections() // 4  # the other connections are for health and metrics
    app = build_app(predict_batch, saved_options, args, max_requests)
    run_server(app, str(args.model), args.host, args.port, args.timeout)


COMMAND = Command(serve, "--model FOLDER ", ServeArguments, uses_transformers=False)
