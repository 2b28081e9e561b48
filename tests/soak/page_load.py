"""The page of `copynet-hf demo` under load: 20 clients, texts with markup, and paths that are not the page's.

    python tests/soak/page_load.py --rounds 2000 --clients 20

The server listens on 127.0.0.1 alone, reports any connection to another address, and ends with this script or after
`--minutes` and one more, whichever is first.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness import ROOT, Check, fitted_growth, parse_arguments, resident_bytes, temporary_folder
from helpers import tiny_model, tiny_tokenizer

LOAD = """Clients send texts of 1 to 60 words, with 1 to 4 beams, and read the answers. Each answer must be the HTML
of the same text. The resident memory of the server is measured after every ten answers: a line fitted to the second
half may rise by at most 16 MiB."""
INJECTIONS = """Texts with markup, scripts, templates and control characters. The answer must parse as XML with no
elements and no attributes but those that the page writes; the text must come back unchanged."""
PROBES = """Paths and proxies that must not lead out of the page: no answer may hold a line of /etc/passwd, the
model's config or another file of its folder, and none may make the server connect to another host or look up its
name."""
TRAFFIC = """Python's audit events in the server, from its start to the end of the load: all connections and look-
ups must be to this machine."""
LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
UPLOAD = """A file of 32 MiB sent to the page's upload, which it does not need, must be refused."""
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
from copynet_hf.cli import main
sys.exit(main(sys.argv[3:]))
"""
INJECTED_TEXTS = (
    "a <script>alert(1)</script> b",
    '"><img src=x onerror=alert(1)> a',
    "a </span></p><iframe src=javascript:alert(1)></iframe>",
    "a {{7*7}} ${7*7} <%= 7*7 %> b",
    "a &lt;script&gt; &amp; &#60;b&#62;",
    "a <svg/onload=alert(1)> ]]> <!-- b",
    "a ' onmouseover='alert(1) \" style=\"x b",
)
PROBED_PATHS = (
    "/file=/etc/passwd",
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/file=../../../../etc/passwd",
    "/gradio_api/file=%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/gradio_api/file=file:///etc/passwd",
    "/gradio_api/file={folder}/secret.txt",
    "/gradio_api/file={folder}/config.json",
    "/gradio_api/file=http://127.0.0.1:9/x",
    "/gradio_api/proxy=http://127.0.0.1:9/x",
    "/proxy=https://example.com/",
    "/static/../../../../../../etc/passwd",
    "/static/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/assets/..%2f..%2f..%2f..%2f..%2fetc/passwd",
    "/svelte/../../../../../etc/passwd",
    "/custom_component/x/server/component/../../../../etc/passwd",
    "//etc/passwd",
)
SECRET = "the secret of the soak test"
# What `copies_html` writes: one div, one style, two p.
ELEMENTS = {"div": 1, "style": 1, "p": 2, "span": 100, "u": 100}
ATTRIBUTES = {
    *("class", "lang", "role", "tabindex", "aria-label"),
    *("data-name", "data-hint", "data-at", "data-from"),
}


# ---- the server and its clients


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def start_server(folder: Path, minutes: float) -> Iterator[tuple[int, int, Path]]:
    """Yields the process id of the server, its port, and the file of the addresses that it connects to."""
    for part in (tiny_model(seed=1), tiny_tokenizer()):
        part.save_pretrained(folder / "model")
    (folder / "model" / "secret.txt").write_text(SECRET, encoding="utf-8")
    script, addresses, log, port = folder / "server.py", folder / "addresses.txt", folder / "log.txt", free_port()
    script.write_text(SERVER, encoding="utf-8")
    argv = ["demo", f"--model={folder / 'model'}", "--host=127.0.0.1", f"--port={port}", "--device=cpu"]
    seconds = str(int(60 * (minutes + 1)) + 120)
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, str(script), str(addresses), seconds, *argv],
            env={**os.environ, "PYTHONPATH": str(ROOT), "GRADIO_ANALYTICS_ENABLED": "False"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_for_page(server, port, log)
        yield server.pid, port, addresses
    finally:
        if server.poll() is not None:
            print(f"the server had ended with exit code {server.returncode}: {log.read_text()[-2000:]}")
        server.kill()
        server.wait()


def wait_for_page(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        with suppress(OSError):
            if request(port, "GET", "/config")[0] == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"the page did not start: {log.read_text()[-2000:]}")


def request(
    port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of an answer, of which at most 4 MiB are read; the path is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(4 << 20)
    finally:
        connection.close()


def generate(port: int, text: str, beams: int, words: int) -> str:
    """The HTML that the page shows for the text."""
    body = json.dumps({"data": [text, "", "", beams, False, words]}).encode()
    status, answer = request(port, "POST", "/gradio_api/call/generate", body, {"Content-Type": "application/json"})
    if status != 200:
        raise RuntimeError(f"status {status}: {answer[:200]!r}")
    _, events = request(port, "GET", f"/gradio_api/call/generate/{json.loads(answer)['event_id']}")
    lines = events.decode().splitlines()
    if "event: complete" not in lines:
        raise RuntimeError(f"no answer: {events[:200]!r}")
    data = lines[lines.index("event: complete") + 1].removeprefix("data: ")
    return str(json.loads(data)[0])


def shown_source(shown: str) -> str:
    """The text of the source in the page's HTML."""
    return "".join(ET.fromstring(shown).findall("p")[0].itertext())


# ---- the checks


def check_load(arguments: Namespace, pid: int, port: int) -> bool:
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(arguments.rounds):
        numbers.put(number)
    outcomes: list[str] = []
    seconds: list[float] = []
    sizes: list[int] = []
    end, lock = time.monotonic() + 60 * arguments.minutes, threading.Lock()

    def send_requests() -> None:
        while time.monotonic() < end:
            try:
                number = numbers.get_nowait()
            except queue.Empty:
                return
            draw, problem, started = random.Random(f"{arguments.seed}-{number}"), "", time.monotonic()
            text = " ".join(draw.choice(["a", "b", "c", f"X{number}", "<i>", "&"]) for _ in range(draw.randint(1, 60)))
            try:
                shown = generate(port, text, draw.randint(1, 4), draw.randint(1, 10))
                if shown_source(shown) != text:
                    problem = "the answer is that of another text"
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            with lock:
                outcomes.append(problem)
                seconds.append(time.monotonic() - started)
                if len(outcomes) % 10 == 0:
                    sizes.append(resident_bytes(pid))

    with Check("page, load", LOAD, arguments) as check:
        clients = [threading.Thread(target=send_requests, daemon=True) for _ in range(arguments.clients)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(timeout=max(1.0, end + 120 - time.monotonic()))
        for problem in outcomes:
            if problem:
                check.fail(problem, problem[:60])
            else:
                check.passed()
        growth = fitted_growth(sizes)
        if len(sizes) >= 50 and growth > LIMIT_MIB:
            check.failed += 1
            check.kinds["the fitted line of the memory rises"] = 1
        median = sorted(seconds)[len(seconds) // 2] if seconds else 0.0
        check.figure = (
            f"{growth:+.1f} MiB over the second half, {resident_bytes(pid) / 2**20:.0f} MiB at the end; "
            f"{arguments.clients} clients, median answer {median:.1f} s"
        )
    return check.failed > 0


def check_injections(arguments: Namespace, port: int) -> bool:
    with Check("page, injections", INJECTIONS, arguments) as check:
        for text in INJECTED_TEXTS:
            try:
                problem = find_injection(generate(port, text, 1, 4), text)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                check.fail(f"{text!r}: {problem}")
            else:
                check.passed()
        check.figure = f"{check.failed} came through"
    return check.failed > 0


def find_injection(shown: str, text: str) -> str:
    """What of the text became markup, or an empty text."""
    root = ET.fromstring(shown)
    counts = Counter(element.tag for element in root.iter())
    elements = [name for name, count in counts.items() if count > ELEMENTS.get(name, 0)]
    attributes = {name for element in root.iter() for name in element.attrib} - ATTRIBUTES
    if elements or attributes:
        return f"elements {elements}, attributes {sorted(attributes)}"
    return "" if shown_source(shown) == text else f"the source is shown as {shown_source(shown)!r}"


def check_probes(arguments: Namespace, port: int, folder: Path, addresses: Path) -> bool:
    statuses: list[int] = []
    with Check("page, path probes", PROBES, arguments) as check:
        for probe in PROBED_PATHS:
            before = len(read_addresses(addresses))
            try:
                status, answer = request(port, "GET", probe.format(folder=folder / "model"))
            except OSError as error:
                check.fail(f"{probe}: {type(error).__name__}: {error}")
                continue
            statuses.append(status)
            text = answer.decode("utf-8", "replace")
            found = [secret for secret in ("root:x:0", SECRET, '"model_type"') if secret in text]
            others = [address for address in read_addresses(addresses)[before:] if address not in LOOPBACK]
            if found or others:
                happened = f"the answer holds {found[0]!r}" if found else f"the server looked up {others[0]}"
                check.fail(f"{probe}: {happened} (status {status})")
            else:
                check.passed()
        check.figure = "status " + ", ".join(f"{status}: {statuses.count(status)}" for status in sorted(set(statuses)))
    return check.failed > 0


def check_upload(arguments: Namespace, port: int) -> bool:
    boundary = "soak"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="x.txt"\r\n\r\n'.encode()
    body = head + b"x" * (32 << 20) + f"\r\n--{boundary}--\r\n".encode()
    with Check("page, upload", UPLOAD, arguments) as check:
        try:
            headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
            status, _ = request(port, "POST", "/gradio_api/upload", body, headers)
            check.figure = f"status {status}"
        except OSError as error:  # the server closed the connection
            status, check.figure = 0, type(error).__name__
        if status == 200:
            check.fail("the upload of 32 MiB was accepted")
        else:
            check.passed()
    return check.failed > 0


def check_traffic(arguments: Namespace, addresses: Path) -> bool:
    with Check("page, traffic", TRAFFIC, arguments) as check:
        found = read_addresses(addresses)
        for address in found:
            if address in LOOPBACK:
                check.passed()
            else:
                check.fail(f"connects to {address}", address)
        if not found:
            check.passed()
        check.figure = f"to {', '.join(sorted(set(found))) or 'no address'}"
    return check.failed > 0


def read_addresses(file: Path) -> list[str]:
    """The addresses that the server has connected to, and the names that it has looked up."""
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def main(argv: Sequence[str] | None = None) -> int:
    arguments: Any = parse_arguments("page_load.py", __doc__, 2_000, argv, clients={"type": int, "default": 20})
    with temporary_folder() as folder, start_server(folder, arguments.minutes) as (pid, port, addresses):
        failed = check_injections(arguments, port)
        failed |= check_load(arguments, pid, port)
        failed |= check_traffic(arguments, addresses)
        failed |= check_probes(arguments, port, folder, addresses)
        failed |= check_upload(arguments, port)
    return failed


if __name__ == "__main__":
    sys.exit(main())
