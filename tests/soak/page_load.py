"""The page of `copynet-hf demo` under load: 20 clients, texts with markup, and paths that are not the page's.

    python tests/soak/page_load.py --rounds 2000 --clients 20

The server listens on 127.0.0.1 only, and ends with this script or after `--minutes` and three more.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import ROOT, Check, fitted_growth, parse_arguments, resident_bytes, temporary_folder
from helpers import tiny_model, tiny_tokenizer

LOAD = """Clients send texts of 1 to 60 words, some of them markup, with 1 to 4 beams, and read the answers. Each
answer must show the same text. The resident memory of the server is measured after every ten answers: a line fitted to
the second half may rise by at most 16 MiB."""
PROBES = """Paths that must not lead out of the page's folder: no answer may hold a line of /etc/passwd or a file of
the model's folder."""
TRAFFIC = """Python's audit events in the server, from its start to the end of the load: all connections and lookups
must be to this machine."""
LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
LIMIT_MIB = 16.0

# The command in a process that writes down where it connects to, and ends by itself.
SERVER = """
import signal, sys
log = open(sys.argv[1], "a", buffering=1)
def note(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        log.write(f"{arguments[1][0]}\\n")
    elif event == "socket.getaddrinfo" and arguments[0]:
        name = arguments[0]
        log.write(f"{name.decode() if isinstance(name, bytes) else name}\\n")
sys.addaudithook(note)
signal.alarm(int(sys.argv[2]))
from copynet_hf.serving.page import launch_demo
launch_demo(sys.argv[3], port=0, device="cpu")
"""
WORDS = ("a", "b", "<script>alert(1)</script>", '"><img', "{{7*7}}", "&lt;", "${7*7}", "]]>", "\x07", "e\u0301")
PROBED_PATHS = (
    "/../../../../../../etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/..%2f..%2f..%2f..%2f..%2f..%2fetc/passwd",
    "//etc/passwd",
    "/onnxruntime-web/../../page.py",
    "/model/config.json",
    "/{folder}/config.json",
    "/{folder}/secret.txt",
)
SECRET = "the secret of the soak test"


@contextmanager
def start_server(folder: Path, minutes: float) -> Iterator[tuple[int, int, Path]]:
    """Yields the process id of the server, its port, and the file of the addresses that it connects to."""
    for part in (tiny_model(seed=1), tiny_tokenizer()):
        part.save_pretrained(folder / "model")
    (folder / "model" / "secret.txt").write_text(SECRET, encoding="utf-8")
    addresses = folder / "addresses.txt"
    argv = [str(addresses), str(int(60 * minutes) + 180), str(folder / "model")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, *argv], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert server.stdout is not None
        yield server.pid, int(server.stdout.readline().rpartition(":")[2]), addresses
    finally:
        server.kill()
        server.wait()


def request(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of an answer; the path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check_load(arguments: Namespace, pid: int, port: int) -> bool:
    end, sizes = time.monotonic() + 60 * arguments.minutes, list[int]()

    def send_request(number: int) -> str | None:
        """What is wrong with the answer; None: the time is over."""
        if time.monotonic() > end:
            return None
        draw = random.Random(f"{arguments.seed}-{number}")
        text = " ".join(draw.choices([*WORDS, f"X{number}"], k=draw.randint(1, 60)))
        fields = {"texts": [text], "num_beams": draw.randint(1, 4), "max_new_tokens": draw.randint(1, 10)}
        try:
            status, answer = request(port, "POST", "/predict", json.dumps(fields).encode())
            if status != 200:
                return f"status {status}: {answer[:200]!r}"
            shown = "".join(json.loads(answer)["outputs"][0][0]["spaced_source"])
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        if number % 10 == 0:
            sizes.append(resident_bytes(pid))
        return "" if shown == text else "the answer is that of another text"

    with Check("page, load", LOAD, arguments) as check, ThreadPoolExecutor(arguments.clients) as clients:
        for problem in clients.map(send_request, range(arguments.rounds)):
            if problem:
                check.fail(problem, problem[:60])
            elif problem is not None:
                check.passed()
        growth = fitted_growth(sizes)
        if len(sizes) >= 50 and growth > LIMIT_MIB:
            check.failed += 1
            check.kinds["the fitted line of the memory rises"] = 1
        check.figure = (
            f"{growth:+.1f} MiB over the second half, {resident_bytes(pid) / 2**20:.0f} MiB at the end; "
            f"{arguments.clients} clients"
        )
    return check.failed > 0


def check_probes(arguments: Namespace, port: int, folder: Path) -> bool:
    statuses: list[int] = []
    with Check("page, path probes", PROBES, arguments) as check:
        for probe in PROBED_PATHS:
            status, answer = request(port, "GET", probe.format(folder=folder))
            statuses.append(status)
            found = [
                secret for secret in (b"root:x:0", SECRET.encode(), b'"model_type"', b"import") if secret in answer
            ]
            if found:
                check.fail(f"{probe}: the answer holds {found[0]!r} (status {status})")
            else:
                check.passed()
        check.figure = "status " + ", ".join(f"{status}: {statuses.count(status)}" for status in sorted(set(statuses)))
    return check.failed > 0


def check_traffic(arguments: Namespace, addresses: Path) -> bool:
    with Check("page, traffic", TRAFFIC, arguments) as check:
        found = addresses.read_text(encoding="utf-8").split()
        for address in found:
            if address in LOOPBACK:
                check.passed()
            else:
                check.fail(f"connects to {address}", address)
        if not found:
            check.passed()
        check.figure = f"to {', '.join(sorted(set(found))) or 'no address'}"
    return check.failed > 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments: Any = parse_arguments("page_load.py", __doc__, 2_000, argv, clients={"type": int, "default": 20})
    with temporary_folder() as folder, start_server(folder, arguments.minutes) as (pid, port, addresses):
        failed = check_load(arguments, pid, port)
        failed |= check_traffic(arguments, addresses)
        failed |= check_probes(arguments, port, folder / "model")
    return failed


if __name__ == "__main__":
    sys.exit(main())
