"""`copynet-hf serve`: the outputs of predict(), without torch and Transformers, and its behaviour under bad input."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import TINY, ask_app, save_tiny_model, tiny_model

from copynet_hf import CopyNetTokenizer, PlainTokenizer
from copynet_hf.cli import main
from copynet_hf.inference.onnx_export import export_onnx
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.serving.batching import Batcher, QueueFullError, Row
from copynet_hf.serving.limits import BatchSettings, Limits
from copynet_hf.serving.metrics import Histogram, Metrics

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[1]
# The command in a process that cannot import what a server does without.
COMMAND = """
import sys
sys.modules |= dict.fromkeys(("torch", "transformers", "tokenizers", "huggingface_hub", "datasets"))
from copynet_hf.cli import main
sys.exit(main(sys.argv[1:]))
"""
TEXTS = ["e tokio.txt f Mira tokio.txt", "", "Ada", "g Lou h Kim i a b c d", "a\tb \x1b[31m é 😀 /etc/passwd ../x"]
FEATURES = [["V", "PST"], None, [], ["N"], ["unseen"]]
FACTS = [[["f", "g", "Lima"]], None, [], None, [["Ada", "b", "Kim"], ["c", "d", "e"]]]
MODELS: dict[str, dict[str, Any]] = {
    "features": {"feature_vocab_size": 5, "copy_mechanism": "pointer_generator"},
    "retrieval": {"copy_mechanism": "retrieval", "seed": 1},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "saved settings": {},
    "greedy": {"num_beams": 1, "max_new_tokens": 7},
    "n-best": {"num_beams": 4, "num_return_sequences": 3, "min_new_tokens": 3, "max_new_tokens": 6},
    "other settings": {"num_beams": 2, "length_penalty": 0.3, "forbid_unk": True, "max_new_tokens": 5},
}


class Server(NamedTuple):
    process: subprocess.Popen[str]
    port: int

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of an answer; the body is JSON or, if it is one of bytes, sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def predict(self, **fields: Any) -> tuple[int, Any]:
        return self.request("POST", "/predict", fields)

    def metrics(self) -> dict[str, float]:
        """The samples of /metrics, after a check of their form."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/plain; version=0.0.4; charset=utf-8"
        return read_samples(answer.read().decode())


def read_samples(page: str) -> dict[str, float]:
    """The samples of a page in Prometheus' text format 0.0.4, whose grammar is checked."""
    assert page.endswith("\n")
    samples, family = {}, ""
    for line in page.splitlines():
        if comment := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line):
            family = comment[2]
            assert comment[1] == "HELP" or comment[3] in ("counter", "gauge", "histogram")
            continue
        sample = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"\\\n]*"\})? (\S+)', line)
        assert sample is not None, line
        assert sample[1].startswith(family)
        assert line.rpartition(" ")[0] not in samples
        samples[line.rpartition(" ")[0]] = float(sample[3])
    return samples


@contextmanager
def run_command(*argv: str) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", *argv, "--port=0", "--threads=1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), process.communicate()[1][-3000:]
        yield Server(process, int(line.rpartition(":")[2]))
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exported models with their tokenizers."""
    folders = {}
    for name, fields in MODELS.items():
        folders[name] = tmp_path_factory.mktemp(name)
        model = tiny_model(**fields)
        model.generation_config.update(num_beams=3, max_new_tokens=5)
        vocab = {word: index for index, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *"abcdefghi"])}
        features = {"feature_vocab": ["N", "PST", "V"]} if name == "features" else {}
        slots = TINY["max_source_oov"]
        tokenizer = CopyNetTokenizer(
            vocab, segmenter="whitespace", max_source_oov=slots, model_max_length=12, **features
        )
        export_onnx(model, folders[name], tokenizer)
    return folders


@pytest.fixture(scope="module", params=MODELS)
def served(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Iterator[tuple[str, Path, Server]]:
    with run_command(f"--model={folders[request.param]}", "--max_texts=40") as server:
        yield request.param, folders[request.param], server


@pytest.fixture(scope="module")
def server(folders: dict[str, Path]) -> Iterator[Server]:
    limits = ("--max_texts=3", "--max_characters=100", "--max_request_bytes=5000", "--max_beams=4")
    with run_command(f"--model={folders['features']}", *limits, "--max_target_length=9") as server:
        yield server


def to_json(outputs: Sequence[Sequence[Prediction]]) -> list[list[dict[str, Any]]]:
    fields = [[asdict(prediction) for prediction in each] for each in outputs]
    return [[{name: value for name, value in each.items() if name != "copy_probs"} for each in row] for row in fields]


def check_outputs(found: list[Any], expected: list[Any]) -> None:
    """Shares differ by rounding, since batches are padded to different lengths."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        for output, known in zip(one, other, strict=True):
            np.testing.assert_allclose(output.pop("copy_shares"), known["copy_shares"], atol=1e-5)
            assert output == {name: value for name, value in known.items() if name != "copy_shares"}


# ---- outputs


@pytest.mark.parametrize("search", OPTIONS)
def test_answers_are_the_outputs_of_predict(served: tuple[str, Path, Server], search: str) -> None:
    name, folder, server = served
    more: dict[str, Any] = {"features": FEATURES} if name == "features" else {"facts": FACTS}
    model = OnnxCopyNet.from_pretrained(folder, threads=1)
    tokenizer = CopyNetTokenizer.from_pretrained(folder)
    for columns in ({}, more):
        expected = to_json(predict(model, tokenizer, TEXTS, **columns, **OPTIONS[search]))
        status, answer = server.predict(texts=TEXTS, **columns, **OPTIONS[search])
        assert status == 200
        check_outputs(answer["outputs"], expected)
        assert columns.get("facts") or {output["text"] for output in answer["outputs"][1]} == {""}  # TEXTS[1] is ""
        copied = [word for outputs in expected for output in outputs for word in output["words"]]
        assert copied


def test_plain_tokenizer_and_onnx_model_predict_what_the_tokenizer_does(folders: dict[str, Path]) -> None:
    for name, more in (("features", {"features": FEATURES}), ("retrieval", {"facts": FACTS})):
        model = OnnxCopyNet.from_pretrained(folders[name], threads=1)
        options: dict[str, Any] = {**more, "return_copy_probs": True, "max_source_length": 7}
        found, expected = (
            predict(model, tokenizer, TEXTS, **options)  # type: ignore[arg-type]
            for tokenizer in (
                PlainTokenizer.from_pretrained(folders[name]),
                CopyNetTokenizer.from_pretrained(folders[name]),
            )
        )
        assert found == expected
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one[0].copy_probs, other[0].copy_probs)


def test_requests_at_once_get_their_own_answers_in_common_batches(served: tuple[str, Path, Server]) -> None:
    _, folder, server = served
    words = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "Ada", "Kim", "tokio.txt"]
    texts = [
        [" ".join(np.random.default_rng(seed).choice(words, 1 + seed % 9)) for seed in (2 * n, 2 * n + 1)]
        for n in range(40)
    ]
    model, tokenizer = OnnxCopyNet.from_pretrained(folder, threads=1), CopyNetTokenizer.from_pretrained(folder)
    before = server.metrics()
    with ThreadPoolExecutor(20) as clients:
        answers = list(
            clients.map(lambda number: server.predict(texts=texts[number], num_beams=1 + number % 2), range(40))
        )
    for number, (status, answer) in enumerate(answers):
        assert status == 200
        check_outputs(answer["outputs"], to_json(predict(model, tokenizer, texts[number], num_beams=1 + number % 2)))
    after = server.metrics()
    rise = {sample: after[sample] - before.get(sample, 0) for sample in after}
    assert rise["copynet_requests_total"] == rise["copynet_request_seconds_count"] == 40
    assert rise["copynet_batch_texts_sum"] == 80
    assert rise["copynet_batch_texts_count"] < 40
    assert after["copynet_queue_texts"] == 0
    assert not any("errors" in sample and count for sample, count in rise.items())


# ---- bad input


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 422, "body: Invalid JSON"),
        (b"texts", 422, "body: Invalid JSON"),
        (b"\xff\xfe", 422, "body: Invalid JSON"),
        (b"[" * 4000, 422, "body: Invalid JSON: recursion limit exceeded"),
        (b'{"texts": ["\\ud800"]}', 422, "body: Invalid JSON"),
        (b'{"texts": ["a"], "length_penalty": NaN}', 422, "length_penalty: Input should be a finite number"),
        (b'{"texts": ["a"], "num_beams": 1e999}', 422, "num_beams: Input should be a"),
        ([], 422, "body: Input should be an object"),
        ({}, 422, "texts: Field required"),
        ({"texts": []}, 422, "texts: List should have at least 1 item"),
        ({"texts": "a"}, 422, "texts: Input should be a valid"),
        ({"texts": ["a", None]}, 422, "texts[1]: Input should be a valid string"),
        ({"texts": ["a"] * 4}, 422, "texts: List should have at most 3 items"),
        ({"texts": ["a", "b" * 101]}, 422, "texts[1] has 101 characters: send at most 100"),
        ({"texts": ["a"], "features": [["x"] * 100]}, 422, "texts[0] has 101 characters"),
        ({"texts": ["a"], "facts": [[["", "", ""]] * 34]}, 422, "texts[0] has 103 characters"),
        ({"texts": ["a"], "facts": [[["b", "c"]]]}, 422, "facts[0][0][2]: Field required"),
        ({"texts": ["a"], "facts": [[["b", "c", "d"]] * 5]}, 422, "max_length=12 is too small for a source with 15"),
        ({"texts": ["a"], "features": [["x"], ["y"]]}, 422, "features has 2 rows, texts 1: they must match"),
        ({"texts": ["a"], "num_beams": 5}, 422, "num_beams: Input should be less than or equal to 4"),
        ({"texts": ["a"], "num_beams": 0}, 422, "num_beams: Input should be greater than or equal to 1"),
        ({"texts": ["a"], "num_beams": "2"}, 422, "num_beams: Input should be a valid integer"),
        ({"texts": ["a"], "num_beams": 10**30}, 422, "num_beams: "),
        ({"texts": ["a"], "max_new_tokens": 10}, 422, "max_new_tokens: Input should be less than or equal to 9"),
        ({"texts": ["a"], "num_return_sequences": 4}, 422, "num_return_sequences=4 is more than num_beams=3"),
        ({"texts": ["a"], "do_sample": True}, 422, "do_sample: Extra inputs are not permitted"),
        ({"texts": ["a" * 90] * 3, "x": "b" * 5000}, 413, "the request has more than 5000 bytes: send fewer texts"),
    ],
    ids=str,
)
def test_bad_input_is_answered_with_the_reason(server: Server, body: Any, status: int, reason: str) -> None:
    before = server.metrics().get(f'copynet_request_errors_total{{status="{status}"}}', 0)
    found, answer = server.request("POST", "/predict", body)
    assert (found, list(answer)) == (status, ["error"])
    assert answer["error"].startswith(reason)
    assert server.metrics()[f'copynet_request_errors_total{{status="{status}"}}'] == before + 1
    assert server.predict(texts=["a"])[0] == 200


def test_a_body_of_unstated_length_has_the_same_limit(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", "/predict", iter([b'{"texts": ["', b"a" * 3000, b"b" * 3000]), encode_chunked=True)
    assert connection.getresponse().status == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/predict", 405), ("GET", "/", 404), ("GET", "/../../etc/passwd", 404), ("GET", "/docs", 404)],
)
def test_other_paths_and_methods_are_refused(server: Server, method: str, path: str, status: int) -> None:
    found, answer = server.request(method, path)
    assert (found, list(answer)) == (status, ["error"])


def test_answers_do_not_wait_for_acknowledgements(server: Server) -> None:
    connection, seconds = http.client.HTTPConnection("127.0.0.1", server.port), []
    for _ in range(20):
        start = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        seconds.append(time.perf_counter() - start)
    connection.close()
    assert min(seconds[5:]) < 0.03  # a delayed acknowledgement takes 0.04; the first come at once


def test_health_and_description(server: Server) -> None:
    assert server.request("GET", "/health") == (200, {"status": "ok"})
    _, description = server.request("GET", "/openapi.json")
    schema = description["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["texts"]["maxItems"] == 3


# ---- the end


def test_sigterm_answers_what_was_accepted(folders: dict[str, Path]) -> None:
    steps = {"min_new_tokens": 300, "max_new_tokens": 300, "num_beams": 8}
    with run_command(f"--model={folders['features']}", "--max_target_length=300", "--batch_size=4") as server:
        statuses: list[int] = []
        clients = [
            threading.Thread(target=lambda: statuses.append(server.predict(texts=["a b"] * 4, **steps)[0]))
            for _ in range(6)
        ]
        for client in clients:
            client.start()
        end = time.monotonic() + 30
        while server.metrics()["copynet_queue_texts"] < 8 and time.monotonic() < end:
            time.sleep(0.01)
        assert server.metrics()["copynet_requests_total"] < 6
        server.process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join(60)
        assert statuses == [200] * 6
        assert server.process.wait(20) == 0
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


# ---- batches, with a model that is a function


def fake_predict(calls: list[int], seconds: float = 0.0) -> Callable[..., list[list[Prediction]]]:
    def predict_batch(sources: Sequence[Row], options: Any) -> list[list[Prediction]]:
        calls.append(len(sources))
        time.sleep(seconds)
        if any(source["text"] == "bad" for source in sources):
            raise ValueError("bad source")
        if any(source["text"] == "broken" for source in sources):
            raise RuntimeError("broken model")
        return [[Prediction(source["text"], [], [], [], [], [])] for source in sources]

    return predict_batch


def run_batcher(
    settings: BatchSettings, requests: Sequence[Sequence[str]], seconds: float = 0.0
) -> tuple[list[Any], list[int]]:
    """What simultaneous requests return or raise, and the sizes of the batches that were predicted."""
    calls: list[int] = []

    async def run() -> list[Any]:
        batcher = Batcher(fake_predict(calls, seconds), settings, lambda count: None)
        task = asyncio.create_task(batcher.run())
        deadline = time.monotonic() + 10
        rows = [batcher.predict([{"text": text} for text in request], {}, deadline) for request in requests]
        try:
            return await asyncio.gather(*rows, return_exceptions=True)
        finally:
            task.cancel()

    return asyncio.run(run()), calls


def test_requests_share_batches_of_limited_size() -> None:
    results, calls = run_batcher(BatchSettings(batch_size=4), [["a"], ["b", "c"], ["d", "e", "f"]])
    assert [[outputs[0].text for outputs in result] for result in results] == [["a"], ["b", "c"], ["d", "e", "f"]]
    assert calls == [4, 2]


def test_long_texts_make_small_batches() -> None:
    _, calls = run_batcher(BatchSettings(max_batch_characters=10), [["a" * 4, "b" * 5, "c" * 6, "d" * 20, "e"]])
    assert calls == [2, 1, 1, 1]  # a and b; c, with which e would exceed the limit; d; e


def test_a_failing_text_fails_alone() -> None:
    results, calls = run_batcher(BatchSettings(), [["a"], ["bad"], ["broken", "b"], ["c"]])
    assert [result[0][0].text for result in (results[0], results[3])] == ["a", "c"]
    assert [type(result) for result in results[1:3]] == [ValueError, RuntimeError]
    assert calls == [5, 1, 1, 1, 1, 1]


def test_too_many_waiting_texts_are_refused() -> None:
    results, _ = run_batcher(BatchSettings(max_waiting=3), [["a", "b"], ["c", "d"], ["e"]])
    assert isinstance(results[1], QueueFullError)
    assert [len(results[0]), len(results[2])] == [2, 1]


def test_texts_of_a_cancelled_call_enter_no_batch() -> None:
    calls: list[int] = []

    async def run() -> None:
        batcher = Batcher(fake_predict(calls, 0.3), BatchSettings(batch_size=1), lambda count: None)
        task, deadline = asyncio.create_task(batcher.run()), time.monotonic() + 10
        first = asyncio.create_task(batcher.predict([{"text": "a"}], {}, deadline))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.predict([{"text": "b"}] * 3, {}, deadline), 0.05)
        assert batcher.waiting == 0
        await first
        await batcher.predict([{"text": "c"}], {}, deadline)
        task.cancel()

    asyncio.run(run())
    assert calls == [1, 1]


@pytest.mark.parametrize(
    ("texts", "limits", "status", "reason"),
    [
        (["a"], Limits(timeout=0.2), 504, "the request took more than 0.2 seconds"),
        (["broken"], Limits(), 500, "the server failed: its log says why"),
        (["a", "b"], Limits(), 503, "too many texts are waiting: try again later"),
    ],
)
def test_failures_of_the_server_have_their_own_status(
    texts: list[str], limits: Limits, status: int, reason: str
) -> None:
    from copynet_hf.serving.server import build_app

    app = build_app(fake_predict([], 0.5), limits, BatchSettings(max_waiting=1))
    found, answer = ask_app(app, texts=texts)
    assert found == status
    assert answer["error"].startswith(reason)


def test_histograms_count_values_up_to_each_bound() -> None:
    histogram = Histogram((1, 2.5))
    for value in (0.5, 1, 2, 3, 100):
        histogram.observe(value)
    assert list(histogram.lines("x")) == [
        'x_bucket{le="1"} 2',
        'x_bucket{le="2.5"} 3',
        'x_bucket{le="+Inf"} 5',
        "x_sum 106.5",
        "x_count 5",
    ]
    metrics = Metrics()
    metrics.record_request(200, 0.003)
    metrics.record_request(422, 40.0)
    samples = read_samples(metrics.render(queued_texts=7))
    assert samples["copynet_requests_total"] == 2
    assert samples['copynet_request_errors_total{status="422"}'] == 1
    assert samples['copynet_request_seconds_bucket{le="30.0"}'] == 1
    assert samples["copynet_queue_texts"] == 7


# ---- errors of the command, and of the package without torch


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    capsys.readouterr()
    assert main(["serve", *argv]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_errors_of_the_command(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = f"--model={folders['features']}"
    assert "--model is missing" in refused(capsys)
    assert "no such folder" in refused(capsys, "--model=user/name")
    assert "config.json is missing" in refused(capsys, f"--model={tmp_path}")
    assert "holds no decoder.onnx" in refused(capsys, f"--model={save_tiny_model(tmp_path / 'saved')}")
    assert "--timeout is nan: use 1 or more" in refused(capsys, model, "--timeout=nan")
    assert "--batch_size is 0: use 1 or more" in refused(capsys, model, "--batch_size=0")
    assert "--port is 70000" in refused(capsys, model, "--port=70000")
    assert "--port: invalid int value: 'x'" in refused(capsys, model, "--port=x")
    assert "--threds is not an argument; did you mean --threads? (see " in refused(capsys, model, "--threds=2")
    with run_command(model) as server:
        assert f"--host 127.0.0.1 --port {server.port} cannot be used" in refused(
            capsys, model, f"--port={server.port}"
        )
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'copynet-hf[serve]'" in refused(capsys, model)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", {"num_features": 2}, "reads points, not words"),
        ("config.json", {"vocab_size": 14}, "the tokenizer has 13 words, the model vocab_size=14"),
        ("generation_config.json", {"num_beams": -1}, "num_beams is -1: write a whole number"),
        ("decoder.onnx", None, "cannot be loaded"),
    ],
)
def test_folders_that_do_not_fit_together_are_refused(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, change: Any, said: str
) -> None:
    for path in folders["features"].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = b"damaged" if change is None else json.dumps(json.loads((tmp_path / file).read_text()) | change).encode()
    (tmp_path / file).write_bytes(content)
    assert said in refused(capsys, f"--model={tmp_path}")


WITHOUT_TORCH = """
import sys
sys.modules |= dict.fromkeys(("torch", "transformers", "tokenizers", "huggingface_hub", "datasets"))
import copynet_hf
from copynet_hf import OnnxCopyNet, PlainTokenizer
from copynet_hf.cli import main
from copynet_hf.model.prediction import predict
model, tokenizer = OnnxCopyNet.from_pretrained(sys.argv[1]), PlainTokenizer.from_pretrained(sys.argv[1])
print(len(predict(model, tokenizer, ["a Kim"])))
for name in ("CopyNetForConditionalGeneration", "CopyNetTokenizer", "load_pairs"):
    try:
        getattr(copynet_hf, name)
    except ImportError as error:
        print(error)
print(main(["generate", "--model", "x"]))
"""


def test_without_torch_the_package_says_what_a_name_needs(folders: dict[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(folders["features"])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "1"
    assert "copynet_hf.CopyNetForConditionalGeneration needs torch, which is not installed: pip install" in lines[1]
    assert "copynet_hf.CopyNetTokenizer needs " in lines[2]
    assert lines[-1] == "2"
    assert "copynet-hf generate: datasets is not installed: pip install copynet-hf, without --no-deps" in done.stderr
