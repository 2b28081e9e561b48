"""`copynet-hf serve`."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import Arguments, Command, argument, at_least, between, count
from ..serving.limits import BatchSettings, Limits

LIMITS, BATCHES = Limits(), BatchSettings()


@dataclass
class ServeArguments(Arguments):
    """The arguments of `copynet-hf serve`."""

    model: str | None = argument("folder that copynet-hf export wrote", metavar="FOLDER")
    host: str = argument("address to listen on; 0.0.0.0 accepts other machines", "127.0.0.1", "ADDRESS")
    port: int = argument("port to listen on; 0 for a free one", 8000, check=between(0, 65535))
    threads: int | None = count("number of onnxruntime's threads; by default one per core")
    max_source_length: int | None = count("truncate sources to N words; by default as in training")
    batch_size: int = count("texts of a batch, from any requests", BATCHES.batch_size)
    batch_window: float = argument(
        "milliseconds for which a text waits for others", 1e3 * BATCHES.window, check=at_least(0)
    )
    max_waiting: int = count("texts that may wait; further ones get 503", BATCHES.max_waiting)
    max_request_bytes: int = count("bytes of a request", LIMITS.max_request_bytes)
    max_texts: int = count("texts of a request", LIMITS.max_texts)
    max_characters: int = count("characters of a text, with facts and features", LIMITS.max_characters)
    max_beams: int = count("beams that a request may ask for", LIMITS.max_beams)
    max_target_length: int = count("words of an output that a request may ask for", LIMITS.max_new_tokens)
    max_work: int = count("characters of a request, times beams, times words of an output", LIMITS.max_work)
    timeout: float = argument("seconds for a request; then it gets 504", LIMITS.timeout, check=at_least(1))


def serve(args: ServeArguments) -> None:
    """Serves an exported model over HTTP, without torch: POST /predict, GET /health, GET /metrics."""
    from ..serving.command import count_connections, serve_model

    limits = Limits(
        args.max_request_bytes,
        args.max_texts,
        args.max_characters,
        args.max_beams,
        args.max_target_length,
        args.max_work,
        args.timeout,
    )
    batches = BatchSettings(
        args.batch_size,
        args.batch_window / 1e3,
        max_waiting=args.max_waiting,
        max_requests=3 * count_connections() // 4,  # the others are for health and metrics
        max_batch_seconds=args.timeout / 2,
    )
    serve_model(args.model, args.host, args.port, limits, batches, args.threads, args.max_source_length)


COMMAND = Command(serve, "--model FOLDER ", ServeArguments, uses_transformers=False)
