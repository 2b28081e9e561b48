"""The HTTP interface: POST /predict, GET /health, GET /metrics."""

from __future__ import annotations

import asyncio
import codecs
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from inspect import getdoc
from typing import Annotated, Any, TypeVar, cast, get_type_hints

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..arguments import MAX_EXPONENT
from ..model.prediction import Prediction
from .batching import Batcher, Options, Predict, RequestRow, count_characters
from .limits import Limits

logger = logging.getLogger(__name__)
T = TypeVar("T")

REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
PATHS = "POST to /predict, or GET /health, /metrics or /openapi.json"
MAX_DISCARDED, DISCARD_SECONDS = 2**25, 5  # bytes of a request that is too large, and how long they are read
CLOSED_BY_CLIENT = 499  # nginx's status for a client that has gone; it appears in the metrics only


class Measurements:
    """What /metrics says: what one server has done since its start.

    Args:
        count_waiting: gives the number of texts that wait for a batch.
    """

    def __init__(self, count_waiting: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("copynet_requests", "Answered requests.", registry=registry)
        self.errors = Counter(
            "copynet_request_errors", "Requests answered with an error.", ["status"], registry=registry
        )
        self.request_seconds = Histogram(
            "copynet_request_seconds", "Time from a request to its answer.", registry=registry, buckets=REQUEST_SECONDS
        )
        self.batch_texts = Histogram(
            "copynet_batch_texts", "Texts in a batch.", registry=registry, buckets=BATCH_TEXTS
        )
        waiting = Gauge("copynet_queue_texts", "Texts that wait for a batch.", registry=registry)
        waiting.set_function(count_waiting)

    def record_request(self, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self.requests.inc()
        self.request_seconds.observe(seconds)
        if status >= 400:
            self.errors.labels(status).inc()


def build_request_model(limits: Limits) -> type[BaseModel]:
    """The fields of a request, whose bounds are the server's limits. A generation option that is left out or null has
    the value saved with the model."""
    beams, words = (
        Annotated[int, Field(ge=1, le=bound)] | None for bound in (limits.max_beams, limits.max_target_length)
    )
    fields: dict[str, Any] = {
        "texts": (Annotated[list[str], Field(min_length=1, max_length=limits.max_texts)], ...),
        "facts": (list[list[tuple[str, str, str]] | None] | None, None),
        "features": (list[list[str] | None] | None, None),
        "num_beams": (beams, None),
        "num_return_sequences": (beams, None),
        "max_new_tokens": (words, None),
        "min_new_tokens": (Annotated[int, Field(ge=0, le=limits.max_target_length)] | None, None),
        "length_penalty": (
            Annotated[float, Field(ge=-MAX_EXPONENT, le=MAX_EXPONENT, allow_inf_nan=False)] | None,
            None,
        ),
        "forbid_unk": (bool | None, None),
        "min_confidence": (Annotated[float, Field(ge=0, le=1)] | None, None),
    }
    return create_model("PredictRequest", __config__=ConfigDict(extra="forbid", strict=True), **fields)


def describe_answer() -> dict[str, Any]:
    """The JSON schema of an answer: for each text its outputs, with the fields of `Prediction` and what it says of
    them."""
    # getdoc, because from Python 3.13 on a docstring has lost its indentation
    described = dict(re.findall(r"^(\w+): ((?:.|\n {4})+)", getdoc(Prediction) or "", re.MULTILINE))
    fields: dict[str, Any] = {
        name: (hint, Field(description=" ".join(described.get(name, "").split())))
        for name, hint in get_type_hints(Prediction).items()
        if name != "copy_probs"
    }
    outputs = {"type": "array", "items": create_model("Prediction", **fields).model_json_schema()}
    return {"type": "object", "properties": {"outputs": {"type": "array", "items": outputs}}, "required": ["outputs"]}


def build_app(predict: Predict, saved_options: Options, limits: Limits, max_requests: int = 1024) -> FastAPI:
    """The server as an ASGI application.

    Args:
        predict: gives the outputs of a batch; it raises ValueError for sources and options that the model does not
            accept.
        saved_options: for requests that leave them out.
        max_requests: how many may wait or be predicted.
    """
    limits = replace(limits, max_texts=min(limits.max_texts, limits.max_waiting))
    request_model = build_request_model(limits)
    measurements = Measurements(lambda: batcher.waiting)
    batcher = Batcher(predict, limits, max_requests, measurements.batch_texts.observe)

    @asynccontextmanager
    async def run_batcher(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(batcher.run())
        yield
        task.cancel()

    # The documentation pages of FastAPI load scripts from other hosts; /openapi.json is served.
    app = FastAPI(title="copynet_hf", docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=run_batcher)

    async def answer(request: Request) -> Response:
        deadline = time.monotonic() + limits.timeout
        async with asyncio.timeout(limits.timeout):
            body = await _read_body(request, limits.max_request_bytes)
            sources, options = _read_request(request_model, body, limits)
            options = {**saved_options, **options}
            _check_work(sources, options, limits)
            outputs = await _while_connected(request, batcher.predict(sources, options, deadline))
        return _json({"outputs": [[output.to_dict() for output in each] for each in outputs]})

    schema = {"content": {"application/json": {"schema": request_model.model_json_schema()}}, "required": True}

    answers: dict[int | str, Any] = {200: {"content": {"application/json": {"schema": describe_answer()}}}}

    @app.post("/predict", openapi_extra={"requestBody": schema}, responses=answers)
    async def post_predict(request: Request) -> Response:
        """The outputs of each text, best first, with their probability and the origin of each word."""
        start = time.monotonic()
        try:
            response = await answer(request)
        except HTTPException as error:
            response = _error(error.status_code, error.detail)
        except ValueError as error:  # of the model, for a source or an option
            response = _error(422, str(error))
        except asyncio.QueueFull:
            response = _error(503, "too many texts are waiting: try again later")
            response.headers["Retry-After"] = "1"
        except TimeoutError:
            reason = f"the request cannot be answered within {limits.timeout:g} seconds: send fewer or shorter texts"
            response = _error(504, reason)
        except ClientDisconnect:
            response = _error(CLOSED_BY_CLIENT, "the client has gone")
        except Exception:
            logger.exception("a request failed")
            response = _error(500, "the server failed: its log says why")
        measurements.record_request(response.status_code, time.monotonic() - start)
        return response

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def get_health() -> dict[str, str]:
        """That the server accepts requests."""
        return {"status": "ok"}

    @app.get("/metrics")
    async def get_metrics() -> Response:
        """Requests, errors, times, batches and the queue, in the text format of Prometheus."""
        return Response(generate_latest(measurements.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.exception_handler(HTTPException)
    async def explain(request: Request, error: HTTPException) -> Response:
        reasons = {404: "no such path", 405: f"{request.method} is not allowed for {request.url.path}"}
        reason = reasons.get(error.status_code)
        response = _error(error.status_code, f"{reason}: {PATHS}" if reason else error.detail)
        response.headers.update(error.headers or {})
        return response

    return app


async def _while_connected(request: Request, task: Coroutine[object, None, T]) -> T:
    """The task's result; raises ClientDisconnect if the client leaves. Then, or if the caller is cancelled, so is the
    task."""

    async def wait_until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    running, gone = asyncio.create_task(task), asyncio.create_task(wait_until_gone())
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise ClientDisconnect
    finally:
        running.cancel()
        gone.cancel()


async def _read_body(request: Request, limit: int) -> bytes:
    """The body of a request, without a byte order mark; raises HTTPException if it has more bytes than the limit."""
    chunks, body = request.stream(), bytearray()
    is_large = int(request.headers.get("content-length", 0)) > limit
    while not is_large and (chunk := await anext(chunks, None)) is not None:
        body += chunk
        is_large = len(body) > limit
    if is_large:
        if request.headers.get("expect", "").lower() != "100-continue":  # else the client has sent nothing yet
            await _discard(chunks)
        raise HTTPException(413, f"the request has more than {limit} bytes: send fewer texts at a time")
    return bytes(body.removeprefix(codecs.BOM_UTF8))


async def _discard(chunks: AsyncGenerator[bytes]) -> None:
    """Reads the rest of a body that is too large, within limits: a client may read no answer while it sends."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            async for chunk in chunks:
                size += len(chunk)
                if size > MAX_DISCARDED:
                    return


def _read_request(model: type[BaseModel], body: bytes, limits: Limits) -> tuple[list[RequestRow], Options]:
    """The sources of a request and its options of `generate()`; raises HTTPException for a body that is none."""
    try:
        fields = model.model_validate_json(body).model_dump(exclude_none=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        fix = ": send fewer at a time" if first["type"] == "too_long" else ""
        raise HTTPException(422, f"{_name_field(first['loc'])}: {first['msg']}{fix}") from None
    texts: list[str] = fields.pop("texts")
    columns: dict[str, Sequence[object]] = {"text": texts}
    for name in ("facts", "features"):
        if name not in fields:
            continue
        columns[name] = fields.pop(name)
        if len(columns[name]) != len(texts):
            raise HTTPException(422, f"{name} has {len(columns[name])} rows, texts {len(texts)}: they must match")
    rows = zip(*columns.values(), strict=True)
    sources = [cast("RequestRow", dict(zip(columns, row, strict=True))) for row in rows]
    for number, source in enumerate(sources):
        if (count := count_characters(source)) > limits.max_characters:
            raise HTTPException(422, f"texts[{number}] has {count} characters: send at most {limits.max_characters}")
    return sources, fields


def _check_work(sources: Sequence[RequestRow], options: Options, limits: Limits) -> None:
    """Raises HTTPException for a request that would take the server for too long."""
    characters = sum(map(count_characters, sources))
    beams, words = options["num_beams"], options["max_new_tokens"]
    if (work := characters * beams * words) > limits.max_work:
        raise HTTPException(
            413,
            f"{characters} characters times {beams} beams times {words} words are {work}: send at most "
            f"{limits.max_work}, with fewer or shorter texts, fewer beams or smaller max_new_tokens",
        )


def _name_field(location: Sequence[str | int]) -> str:
    """The place of an error as in Python: `texts[0]`; "body" for the whole."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")
    return path or "body"


def _error(status: int, reason: str) -> Response:
    return _json({"error": reason}, status)


def _json(content: object, status: int = 200) -> Response:
    """JSON in UTF-8, in which lone surrogates, which a vocabulary may hold, are escapes."""
    text = json.dumps(content, ensure_ascii=False).encode(errors="backslashreplace")
    return Response(text, status, media_type="application/json")
