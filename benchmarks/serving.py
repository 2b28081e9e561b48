"""Times requests to `copynet-hf serve`, in an environment that holds what it needs and nothing else.

    python benchmarks/serving.py --model my-onnx [--requests 1000] [--clients 20] [--threads 1 2]

Builds a wheel, installs it without its dependencies and the packages of the extra `serve` in a fresh environment, and
asks pip for nothing else. Each client sends one text after another over one connection. Every answer must be that of
`predict` with the same ONNX model. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from measure import THREADS, format_table, parse_arguments, run_in_process, write_section

ROOT = Path(__file__).parents[1]
SEARCHES = {"greedy": 1, "beam 4": 4}


def build_environment(folder: Path) -> tuple[Path, float]:
    """Installs the package and the extra `serve`; returns the environment's Python and its size in MB."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*install, "--no-deps", *folder.glob("*.whl")], check=True)
    subprocess.run([*install, *project["optional-dependencies"]["serve"]], check=True)
    size = sum(path.lstat().st_size for path in (folder / "venv").rglob("*") if path.is_file())
    return python, size / 1e6


@contextmanager
def start_server(python: Path, model: str, threads: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields the server's process and its port."""
    argv = [
        "-m",
        "copynet_hf",
        "serve",
        f"--model={Path(model).resolve()}",
        "--port=0",
        f"--threads={threads}",
    ]
    with subprocess.Popen([python, *argv], stdout=subprocess.PIPE, text=True, cwd=python.parent) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


def predict_all(model: str, texts: Sequence[str], beams: int) -> list[str]:
    """The outputs without a server."""
    from transformers import AutoTokenizer

    import copynet_hf  # noqa: F401 (registers the tokenizer)
    from copynet_hf.inference.onnx_search import OnnxCopyNet
    from copynet_hf.inference.predictor import predict_in_batches

    onnx, tokenizer = OnnxCopyNet.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    return [outputs[0].text for outputs in predict_in_batches(onnx, tokenizer, texts, num_beams=beams)]


def send_texts(port: int, texts: Sequence[str], beams: int) -> tuple[list[str], list[float]]:
    """Answers and seconds of requests of one text each, one after another over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answers, seconds = [], []
    for text in texts:
        start = time.perf_counter()
        connection.request("POST", "/predict", json.dumps({"texts": [text], "num_beams": beams}))
        response = connection.getresponse()
        content = json.loads(response.read())
        seconds.append(time.perf_counter() - start)
        assert response.status == 200, content
        answers.append(content["outputs"][0][0]["text"])
    return answers, seconds


def measure_load(port: int, texts: Sequence[str], clients: int, beams: int) -> tuple[list[str], list[float], float]:
    """Answers in the order of the texts, seconds of each request, and requests a second of all clients."""
    shares = [list(islice(texts, client, None, clients)) for client in range(clients)]
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        results = list(pool.map(lambda share: send_texts(port, share, beams), shares))
    rate = len(texts) / (time.perf_counter() - start)
    answers = [results[number % clients][0][number // clients] for number in range(len(texts))]
    return answers, [each for _, seconds in results for each in seconds], rate


def read_batch_size(port: int) -> tuple[float, float]:
    """The number of texts and of batches so far."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    texts, batches = (
        re.search(rf"^copynet_batch_texts_{name} (\S+)$", page, re.MULTILINE) for name in ("sum", "count")
    )
    assert texts is not None
    assert batches is not None
    return float(texts[1]), float(batches[1])


def read_resident_megabytes(pid: int) -> float:
    match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) / 1e3


def main() -> None:
    model = {"required": True, "help": "folder that copynet-hf export wrote"}
    counts = {name: {"type": int, "default": default} for name, default in (("requests", 1000), ("clients", 20))}
    args = parse_arguments(__doc__, threads=THREADS, model=model, **counts)
    from copynet_hf.data import quickstart_pairs

    texts = [pair["text"] for pair in quickstart_pairs("test", args.requests)]
    expected = {beams: run_in_process(predict_all, args.model, texts, beams) for beams in SEARCHES.values()}
    rows: list[list[Any]] = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        python, size = build_environment(Path(folder))
        for threads in args.threads:
            with start_server(python, args.model, threads) as (process, port):
                for name, beams in SEARCHES.items():
                    for clients in (1, args.clients):
                        before = read_batch_size(port)
                        share = texts if clients > 1 else texts[: len(texts) // 10]
                        answers, seconds, rate = measure_load(port, share, clients, beams)
                        assert answers == expected[beams][: len(share)]
                        sent, batches = (b - a for a, b in zip(before, read_batch_size(port), strict=True))
                        p50, p99 = np.percentile(1e3 * np.array(seconds), [50, 99])
                        times = [f"{p50:.0f}", f"{p99:.0f}", f"{rate:.0f}", f"{sent / batches:.1f}"]
                        rows.append([name, threads, clients, len(share), *times])
                        print(rows[-1], flush=True)
                memory = read_resident_megabytes(process.pid)
    header = ["search", "threads", "clients", "requests", "p50 ms", "p99 ms", "requests a second", "texts a batch"]
    table = format_table(header, rows)
    write_section("Serving", "serving", size=size, memory=memory, load=load, table=table)


if __name__ == "__main__":
    main()
