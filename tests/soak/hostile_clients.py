"""Clients that leave, say nothing or ask for too much of `copynet-hf serve`: others are still answered.

python tests/soak/hostile_clients.py --rounds 30
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from harness import ROOT, Check, parse_arguments, resident_bytes, temporary_folder

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer, export_onnx

SERVED = """ The model reads letters, is untrained and has the default sizes; the server runs on one thread and may
open 1,024 files."""
GONE = """16 clients send `copynet-hf serve` 8 texts of 1,000 letters for a search with 10 beams, and leave at once.
A request of one short text has to be answered within 5 seconds after that."""
SILENT = """1,100 connections are held open, half of them with unfinished headers, the others without a byte; those
that the server closes are opened again. /health and a short text have to be answered within 5 seconds each, and the
log may not grow."""
LARGE = """10 texts of 10,000 letters with 10 beams and 10 outputs have to be refused. One such text with outputs of
20 words is the largest request within the limits: until 5 seconds after its answer, which may be its 504, /health and
a short text are asked for again and again, and have to be answered within 20 seconds; the memory has to stay below
2 GiB."""
OPEN_FILES, CONNECTIONS, MAX_SECONDS, MAX_BYTES = 1024, 1100, 5.0, 2 << 30
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Server(NamedTuple):
    pid: int
    port: int
    log: Path

    def send(self, texts: Sequence[str], **options: Any) -> HTTPConnection:
        """Sends a request, whose answer is not waited for."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/predict", json.dumps({"texts": texts, **options}))
        return connection

    def time_answers(self) -> dict[str, float | str]:
        """For /health and a short text the seconds until the answer, or what happened in its place."""
        found: dict[str, float | str] = {}
        for path in ("/health", "/predict"):
            start = time.monotonic()
            try:
                if path == "/health":
                    connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
                    connection.request("GET", path)
                else:
                    connection = self.send(["call mira"], max_new_tokens=4)
                status = connection.getresponse().status
                connection.close()
                found[path] = time.monotonic() - start if status == 200 else f"status {status}"
            except (OSError, HTTPException) as error:
                found[path] = type(error).__name__
        return found


@contextmanager
def start_server(folder: Path) -> Iterator[Server]:
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", " ", *LETTERS]
    config = CopyNetConfig(vocab_size=len(vocabulary))
    tokenizer = CopyNetTokenizer(
        {word: index for index, word in enumerate(vocabulary)}, "char", max_source_oov=config.max_source_oov
    )
    export_onnx(CopyNetForConditionalGeneration(config), folder / "model", tokenizer)
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "copynet_hf", "serve", f"--model={folder / 'model'}", "--port=0", "--threads=1"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES)),
        )
    try:
        while "serving" not in log.read_text() and process.poll() is None:
            time.sleep(0.1)
        yield Server(process.pid, int(log.read_text().split()[-1].rpartition(":")[2]), log)
    finally:
        process.kill()
        process.wait()


def record(check: Check, answers: dict[str, float | str], limit: float) -> list[float]:
    """Counts answers in time as passed, others as failed; returns the seconds."""
    for path, seconds in answers.items():
        if isinstance(seconds, str) or seconds > limit:
            check.fail(f"{path}: {seconds}", path)
        else:
            check.passed()
    return [seconds for seconds in answers.values() if isinstance(seconds, float)]


def check_gone_clients(arguments: Namespace, server: Server) -> bool:
    seconds: list[float] = []
    with Check("server, gone clients", GONE + SERVED, arguments) as check:
        for _ in range(arguments.rounds):
            clients = [server.send([LETTERS * 38] * 8, num_beams=10, max_new_tokens=20) for _ in range(16)]
            for client in clients:
                client.close()
            answers = server.time_answers()
            seconds += record(check, {"/predict": answers["/predict"]}, MAX_SECONDS)
        check.figure = f"others answered within {max(seconds, default=0):.1f} s"
    return check.failed > 0


def check_silent_connections(arguments: Namespace, server: Server) -> bool:
    held: list[socket.socket] = []
    seconds: list[float] = []
    before = server.log.stat().st_size
    with Check("server, silent connections", SILENT + SERVED, arguments) as check:
        for _ in range(arguments.rounds):
            held = [client for client in held if not is_closed(client)]
            reopened = CONNECTIONS - len(held)
            with suppress(OSError):
                while len(held) < CONNECTIONS:
                    client = socket.create_connection(("127.0.0.1", server.port), timeout=5)
                    client.sendall(b"GET /health HTTP/1.1\r\nHost:" if len(held) % 2 else b"")
                    held.append(client)
            seconds += record(check, server.time_answers(), MAX_SECONDS)
            time.sleep(0.5)
        growth = server.log.stat().st_size - before
        if growth:
            check.fail(f"the log grew by {growth} bytes", "the log grew")
        check.figure = (
            f"others answered within {max(seconds, default=0):.1f} s; {reopened} opened again in the last round; "
            f"log {growth:+,} bytes"
        )
        for client in held:
            client.close()
    return check.failed > 0


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def check_large_requests(arguments: Namespace, server: Server) -> bool:
    statuses: list[int] = []
    seconds: list[float] = []
    sizes = [resident_bytes(server.pid)]
    text, options = (LETTERS * 400)[:10_000], {"num_beams": 10, "num_return_sequences": 10, "max_new_tokens": 20}

    def send_largest() -> None:
        statuses.append(server.send([text], **options).getresponse().status)

    with Check("server, large requests", LARGE + SERVED, arguments) as check:
        for _ in range(max(1, arguments.rounds // 5)):
            if (status := server.send([text] * 10, **options).getresponse().status) != 413:
                check.fail(f"10 texts: status {status} in place of 413", "not refused")
            client, end = threading.Thread(target=send_largest), float("inf")
            client.start()
            while time.monotonic() < end:
                seconds += record(check, server.time_answers(), 20)
                sizes.append(resident_bytes(server.pid))
                if not client.is_alive():
                    end = min(end, time.monotonic() + 5)
        if max(sizes) > MAX_BYTES:
            check.fail(f"{max(sizes) / 2**20:.0f} MiB", "memory")
        check.figure = (
            f"answered with {', '.join(f'{status}: {statuses.count(status)}' for status in sorted(set(statuses)))}; "
            f"others within {max(seconds, default=0):.1f} s; {sizes[0] / 2**20:.0f} MiB before, at most "
            f"{max(sizes) / 2**20:.0f}, {sizes[-1] / 2**20:.0f} after"
        )
    return check.failed > 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments("hostile_clients.py", __doc__, 30, argv)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with temporary_folder() as folder, start_server(folder) as server:
        failed = check_gone_clients(arguments, server)
        failed |= check_silent_connections(arguments, server)
        failed |= check_large_requests(arguments, server)
    return failed


if __name__ == "__main__":
    sys.exit(main())
