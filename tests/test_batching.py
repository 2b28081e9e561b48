"""The server's batches, and clients that leave, say nothing or ask for too much, with a model that is a function."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from helpers import serve_app

from copynet_hf.model.prediction import Prediction
from copynet_hf.serving import batching
from copynet_hf.serving.batching import Batcher, RequestRow
from copynet_hf.serving.limits import Limits

LIMITS = Limits()
SAVED = {"num_beams": 2, "max_new_tokens": 1}
pytest.importorskip("uvicorn")
connections = pytest.importorskip("copynet_hf.serving.connections")
build_app = pytest.importorskip("copynet_hf.serving.server").build_app


class SlowModel:
    """Takes as many steps of 10 ms as the text says."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.steps = 0

    def __call__(
        self, sources: Sequence[RequestRow], options: Any, check: Callable[[], None]
    ) -> list[list[Prediction]]:
        self.batches.append([source["text"] for source in sources])
        if any(source["text"] == "broken" for source in sources):
            raise RuntimeError("broken model")
        for _ in range(max(int(source["text"]) for source in sources)):
            check()
            self.steps += 1
            time.sleep(0.01)
        return [[Prediction(source["text"])] for source in sources]


@contextmanager
def serve(limits: Limits = LIMITS, max_connections: int = 100, **options: int) -> Iterator[tuple[int, SlowModel]]:
    """Yields the port of a server, and its model."""
    model = SlowModel()
    protocol = partial(connections.Connection, max_connections=max_connections)
    app = build_app(model, SAVED, limits, **options)
    with serve_app(app, log_level="critical", http=protocol, ws="none", backlog=4) as address:
        yield urlsplit(address).port or 0, model


def send(port: int, texts: Sequence[str] = (), path: str = "/predict", **fields: Any) -> http.client.HTTPConnection:
    """Sends a request, whose answer is not waited for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    if path == "/health":
        connection.request("GET", path)
    else:
        connection.request("POST", path, json.dumps({"texts": texts, **fields}), {"Host": "example.com"})
    return connection


def ask(port: int, *arguments: Any, **fields: Any) -> tuple[int, str]:
    """The status of an answer, and its error or outputs."""
    answer = send(port, *arguments, **fields).getresponse()
    return answer.status, answer.read().decode()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- batches


def run_batches(
    limits: Limits, requests: Sequence[Sequence[str]], options: Sequence[dict[str, Any]] = ()
) -> tuple[list[Any], list[list[str]]]:
    """What simultaneous requests return or raise, and the batches."""
    model = SlowModel()

    async def run() -> list[Any]:
        batcher = Batcher(model, limits, 1024, lambda count: None)
        task, deadline = asyncio.create_task(batcher.run()), time.monotonic() + 10
        rows = [
            batcher.predict([{"text": text} for text in texts], chosen, deadline)
            for texts, chosen in zip(requests, options or [SAVED] * len(requests), strict=True)
        ]
        try:
            return await asyncio.gather(*rows, return_exceptions=True)
        finally:
            task.cancel()

    return asyncio.run(run()), model.batches


def test_requests_share_batches_of_limited_size() -> None:
    results, batches = run_batches(Limits(batch_size=4), [["1"], ["2", "3"], ["4", "5", "6"]])
    assert [[output.text for (output,) in result] for result in results] == [["1"], ["2", "3"], ["4", "5", "6"]]
    assert batches == [["1", "2", "3", "4"], ["5", "6"]]


def test_characters_and_beams_bound_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_BATCH_CHARACTERS", 20)
    _, batches = run_batches(Limits(), [["0" * size for size in (4, 5, 6, 20, 1)]])
    assert [[len(text) for text in batch] for batch in batches] == [[4, 5], [6], [20], [1]]
    for beams, sizes in ((1, [4]), (3, [3, 1]), (5, [2, 2]), (20, [1, 1, 1, 1])):
        monkeypatch.setattr(batching, "MAX_BATCH_CHARACTERS", 40)
        _, batches = run_batches(Limits(), [["0000"] * 4], [{"num_beams": beams}])
        assert [len(batch) for batch in batches] == sizes


def test_the_rest_of_a_large_request_waits_behind_others() -> None:
    options = [SAVED, {"num_beams": 3}, SAVED]
    _, batches = run_batches(Limits(batch_size=2), [["1"] * 5, ["2"], ["3"]], options)
    assert batches == [["1", "1"], ["2"], ["3", "1"], ["1", "1"]]


def test_a_batch_that_takes_long_gives_way_to_others_only() -> None:
    results, batches = run_batches(Limits(batch_size=1, timeout=1), [["100"], ["30"]])
    assert isinstance(results[0], TimeoutError)
    assert results[1][0][0].text == "30"
    assert batches == [["100"], ["30"]]


def test_a_failing_text_fails_alone() -> None:
    results, batches = run_batches(Limits(), [["1"], ["no number"], ["broken", "2"], ["3"]])
    assert [result[0][0].text for result in (results[0], results[3])] == ["1", "3"]
    assert [type(result) for result in results[1:3]] == [ValueError, RuntimeError]
    assert [len(batch) for batch in batches] == [5, 1, 1, 1, 1, 1]


def test_too_many_waiting_texts_are_refused() -> None:
    results, _ = run_batches(Limits(max_waiting=3), [["1", "2"], ["3", "4"], ["5"]])
    assert isinstance(results[1], asyncio.QueueFull)
    assert [len(results[0]), len(results[2])] == [2, 1]


# ---- what nobody waits for


def test_texts_of_clients_that_have_left_are_not_computed() -> None:
    with serve(Limits(batch_size=1)) as (port, model):
        clients = [send(port, ["1000", "1000"]) for _ in range(16)]
        wait_until(lambda: model.steps > 0)
        for client in clients:
            client.close()
        start = time.monotonic()
        assert ask(port, ["1"])[0] == 200
        assert time.monotonic() - start < 5  # not 32 times 10 seconds
        assert len(model.batches) <= 3
        assert 'status="499"} 16.0' in metrics_of(port)


def metrics_of(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def test_a_batch_stops_at_its_deadline_and_others_follow() -> None:
    with serve(Limits(timeout=1)) as (port, model):
        reason = "the request cannot be answered within 1 seconds: send fewer or shorter texts"
        assert ask(port, ["1000"]) == (504, json.dumps({"error": reason}))
        start = time.monotonic()
        assert ask(port, ["1"])[0] == 200
        assert time.monotonic() - start < 5  # not the 10 seconds of the first
        assert model.steps <= 101


# ---- too much


@pytest.mark.parametrize(
    ("request_fields", "status", "reason"),
    [
        (
            {"texts": ["1" * 30], "num_beams": 4},
            413,
            "30 characters times 4 beams times 1 words are 120: send at most 100",
        ),
        ({"texts": ["1" * 51]}, 413, "51 characters times 2 beams times 1 words"),  # the saved ones
        ({"texts": ["broken"]}, 500, "the server failed: its log says why"),
        ({"texts": ["1"], "path": "/predict/"}, 404, "no such path: POST to /predict"),
    ],
    ids=str,
)
def test_requests_that_can_never_be_answered_get_the_reason(
    request_fields: dict[str, Any], status: int, reason: str
) -> None:
    with serve(Limits(max_work=100, max_waiting=3)) as (port, _):
        found, answer = ask(port, **request_fields)
        assert found == status
        assert json.loads(answer)["error"].startswith(reason)
        assert "example.com" not in answer
        assert ask(port, ["1"])[0] == 200


def test_further_requests_are_refused_while_health_is_answered() -> None:
    with serve(Limits(batch_size=1), max_connections=4, max_requests=2) as (port, model):
        busy = [send(port, ["50"]) for _ in range(2)]
        wait_until(lambda: model.steps > 0 and "copynet_queue_texts 1.0" in metrics_of(port))
        assert ask(port, ["1"]) == (503, '{"error": "too many texts are waiting: try again later"}')
        assert ask(port, path="/health")[0] == 200
        assert [client.getresponse().status for client in busy] == [200, 200]


# ---- silent connections


def connect(port: int, first: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(first)
    return client


def is_closed(client: socket.socket) -> bool:
    client.settimeout(5)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_the_longest_silent_connection_gives_way_but_none_that_waits_for_its_answer() -> None:
    unfinished = (b"", b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    with serve(max_connections=6) as (port, model):
        waiting = send(port, ["150"])
        wait_until(lambda: model.steps > 0)
        silent = []
        for number in range(20):
            silent.append(connect(port, unfinished[number % 2]))
            assert ask(port, path="/health")[0] == 200
        assert all(is_closed(client) for client in silent[:12])
        assert waiting.getresponse().status == 200
        for client in silent:  # else the server waits for the rest of their requests
            client.close()


REQUEST = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("first", [b"", REQUEST[:-2] + b"X: ", REQUEST], ids=["silent", "slow", "after an answer"])
def test_headers_have_a_time_limit(monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.5)
    with serve() as (port, _):
        client, received = connect(port, first), b""
        while first == REQUEST and not received.endswith(b"}"):
            received += client.recv(1000)
        end = time.monotonic() + 4
        if first:  # byte by byte
            with suppress(OSError):
                while time.monotonic() < end:
                    client.sendall(b"a")
                    time.sleep(0.05)
        assert is_closed(client)
        assert time.monotonic() < end
