"""`copynet-hf serve`: the outputs of predict(), without torch, and its behaviour under bad input."""

from __future__ import annotations

import codecs
import http.client
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import LETTERED, refused, save_tiny_model, tiny_tokenizer
from transformers import GenerationConfig

from copynet_hf import CopyNetTokenizer
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.model.prediction import Prediction, predict
from copynet_hf.serving.process import load_predict

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
text_string_to_metric_families = pytest.importorskip("prometheus_client.parser").text_string_to_metric_families
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[1]
# The command in a process that cannot import what a server does without.
COMMAND = """
import sys
sys.modules |= dict.fromkeys(sys.argv.pop(1).split())
from copynet_hf.cli import main
sys.exit(main(sys.argv[1:]))
"""
MISSING = "torch transformers tokenizers huggingface_hub datasets"
TEXTS = ["e tokio.txt f Mira tokio.txt", "", "Ada", "g Lou h Kim i a b c d", "a\tb \x1b[31m é 😀 /etc/passwd ../x"]
FEATURES = [["V", "PST"], None, [], ["N"], ["unseen"]]
FACTS = [[["f", "g", "Lima"]], None, [], None, [["Ada", "b", "Kim"], ["c", "d", "e"]]]
MODELS: dict[str, dict[str, Any]] = {
    "features": LETTERED,
    "retrieval": {"copy_mechanism": "retrieval", "seed": 1},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "saved settings": {},
    "n-best": {"num_beams": 4, "num_return_sequences": 3, "min_new_tokens": 3, "max_new_tokens": 6},
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
        """Of a model that reads features: the texts have none unless they are given."""
        return self.request("POST", "/predict", {"features": [None] * len(fields["texts"]), **fields})

    def metrics(self) -> dict[str, float]:
        """The samples of /metrics."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "text/plain; version=0.0.4; charset=utf-8"
        families = text_string_to_metric_families(answer.read().decode())
        return {name_sample(sample): sample.value for family in families for sample in family.samples}


def name_sample(sample: Any) -> str:
    """As in the text of the page."""
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
    return sample.name + (f"{{{labels}}}" if labels else "")


@contextmanager
def run_command(*argv: str, missing: str = MISSING) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, missing, "serve", *argv, "--port=0", "--threads=1"],
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
def folders(tmp_path_factory: pytest.TempPathFactory, exported_once: Callable[..., Path]) -> dict[str, Path]:
    """Exported models with their tokenizers."""
    folders = {}
    for name, fields in MODELS.items():
        folders[name] = tmp_path_factory.mktemp("served") / name
        shutil.copytree(exported_once(**fields), folders[name])
        saved = GenerationConfig.from_pretrained(folders[name])
        saved.update(num_beams=3, max_new_tokens=5)
        saved.save_pretrained(folders[name])
        features = {"feature_vocab": ["N", "PST", "V"], "letter_vocab": "daKiA"} if name == "features" else {}
        tiny_tokenizer(model_max_length=12, **features).save_pretrained(folders[name])
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
    return json.loads(json.dumps([[prediction.to_dict() for prediction in each] for each in outputs]))


def check_outputs(found: list[Any], expected: list[Any]) -> None:
    """Probabilities differ by rounding, since batches are padded to different lengths."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        for output, known in zip(one, other, strict=True):
            for name in ("score", "confidence", "word_scores", "copy_shares"):
                assert output.pop(name) == pytest.approx(known.pop(name), abs=1e-5)
            assert output == known


# ---- outputs


@pytest.mark.parametrize("search", OPTIONS)
def test_answers_are_the_outputs_of_predict(served: tuple[str, Path, Server], search: str) -> None:
    name, folder, server = served
    more: dict[str, Any] = {"features": FEATURES} if name == "features" else {"facts": FACTS}
    model = OnnxCopyNet.from_pretrained(folder, threads=1)
    tokenizer = CopyNetTokenizer.from_pretrained(folder)
    for columns in ({"features": [[]] * len(TEXTS)} if name == "features" else {}, more):
        expected = to_json(predict(model, tokenizer, TEXTS, **columns, **OPTIONS[search]))
        status, answer = server.predict(texts=TEXTS, **columns, **OPTIONS[search])
        assert status == 200
        check_outputs(answer["outputs"], expected)
        assert columns.get("facts") or {output["text"] for output in answer["outputs"][1]} == {""}  # TEXTS[1] is ""
        assert any(output["words"] for outputs in expected for output in outputs)


def test_a_request_names_the_confidence_from_which_outputs_are_accepted(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(folders["features"], tmp_path / "model")
    saved = GenerationConfig.from_pretrained(folder)
    saved.update(eos_token_id=list(range(2, 13)))  # the first word ends the output, which is not cut
    saved.save_pretrained(folder)
    texts = ["a b X", ""]
    with run_command(f"--model={folder}") as server:
        _, answer = server.predict(texts=texts)
        sure, empty = (outputs[0]["confidence"] for outputs in answer["outputs"])
        assert empty is None
        assert {outputs[0]["accepted"] for outputs in answer["outputs"]} == {None}
        for threshold, expected in ((sure - 1e-4, [True, False]), (sure + 1e-4, [False, False])):
            _, answer = server.predict(texts=texts, min_confidence=threshold)
            assert [outputs[0]["accepted"] for outputs in answer["outputs"]] == expected


def test_answers_are_utf_8_with_lone_surrogates_as_escapes() -> None:
    from copynet_hf.serving.server import _json  # which imports FastAPI

    body = bytes(_json({"texts": ["Begoña ☎ 東京", "\udc80"]}).body)
    assert body == '{"texts": ["Begoña ☎ 東京", "\\udc80"]}'.encode()
    assert json.loads(body) == {"texts": ["Begoña ☎ 東京", "\udc80"]}


def test_requests_at_once_get_their_own_answers_in_common_batches(served: tuple[str, Path, Server]) -> None:
    name, folder, server = served
    none: dict[str, Any] = {"features": [[]] * 2} if name == "features" else {}
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
        expected = predict(model, tokenizer, texts[number], num_beams=1 + number % 2, **none)
        check_outputs(answer["outputs"], to_json(expected))
    after = server.metrics()
    rise = {sample: after[sample] - before.get(sample, 0) for sample in after}
    assert rise["copynet_requests_total"] == rise["copynet_request_seconds_count"] == 40
    assert rise["copynet_batch_texts_sum"] == 80
    assert rise["copynet_batch_texts_count"] < 40
    assert after["copynet_queue_texts"] == 0
    assert not any("errors" in sample and count for sample, count in rise.items())


def test_the_search_and_the_trace_are_stopped_between_steps(folders: dict[str, Path]) -> None:
    predict_batch, saved = load_predict(str(folders["features"]), threads=1)
    assert saved == {"num_beams": 3, "max_new_tokens": 5}
    options = {"num_beams": 1, "min_new_tokens": 5}
    calls: list[None] = []
    predict_batch([{"text": "a b", "features": None}], options, lambda: calls.append(None))
    assert len(calls) == 2 * (1 + 5)  # the encoder and five steps, for the search and for the trace
    for allowed in (0, 3, 8):
        steps = iter(range(allowed))

        def check() -> None:
            if next(steps, None) is None:  # noqa: B023 - called in this round only
                raise TimeoutError

        with pytest.raises(TimeoutError):
            predict_batch([{"text": "a b", "features": None}], options, check)


@pytest.fixture
def splitting(folders: dict[str, Path], tmp_path: Path) -> Path:
    """An exported model whose tokenizer is read by Transformers: it splits texts at special tokens."""
    folder = shutil.copytree(folders["features"], tmp_path / "model")
    tokenizer = CopyNetTokenizer.from_pretrained(folder)
    tokenizer.split_special_tokens = False
    tokenizer.save_pretrained(folder)
    return folder


def test_transformers_reads_the_texts_where_the_tokenizer_needs_it_without_torch(splitting: Path) -> None:
    model, tokenizer = OnnxCopyNet.from_pretrained(splitting, threads=1), CopyNetTokenizer.from_pretrained(splitting)
    texts = ["a </s> Mira", "Ada b"]
    expected = to_json(predict(model, tokenizer, texts, features=[[], []]))
    assert len(expected[0][0]["source_words"]) == 3
    with run_command(f"--model={splitting}", missing="torch datasets") as server:
        status, answer = server.predict(texts=texts)
    assert status == 200
    check_outputs(answer["outputs"], expected)


def test_the_command_says_how_to_install_transformers(splitting: Path) -> None:
    argv = [sys.executable, "-c", COMMAND, MISSING, "serve", f"--model={splitting}"]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "copynet-hf serve: transformers is not installed: pip install transformers\n"


# ---- bad input


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 422, "body: Invalid JSON"),
        (b"\xff\xfe", 422, "body: Invalid JSON"),
        (b'{"texts": ["\\ud800"]}', 422, "body: Invalid JSON"),
        (b'{"texts": ["a"], "length_penalty": NaN}', 422, "length_penalty: Input should be a finite number"),
        ([], 422, "body: Input should be an object"),
        ({}, 422, "texts: Field required"),
        ({"texts": ["a", None]}, 422, "texts[1]: Input should be a valid string"),
        (
            {"texts": ["a"] * 4},
            422,
            "texts: List should have at most 3 items after validation, not 4: send fewer",
        ),
        ({"texts": ["a", "b" * 101]}, 422, "texts[1] has 101 characters: send at most 100"),
        ({"texts": ["a"], "features": [["x"] * 100]}, 422, "texts[0] has 101 characters"),
        ({"texts": ["a"], "facts": [[["b", "c"]]]}, 422, "facts[0][0][2]: Field required"),
        (
            {"texts": ["a"]},
            422,
            "the model reads features, and the texts have none: pass features, a list for each text",
        ),
        ({"texts": ["a"], "features": [["N;PST"]]}, 422, "features[0] has 'N;PST': pass one string for each fea"),
        ({"texts": ["a"], "features": None}, 422, "the model reads features, and the texts have none"),
        (
            {"texts": ["a"], "features": [[]], "min_new_tokens": 6},
            422,
            "min_new_tokens is 6, and max_new_tokens 5: use",
        ),
        (
            {"texts": ["a"], "features": [[]], "facts": [[["b", "c", "d"]] * 5]},
            422,
            "max_length=12 is too small for a source with 15",
        ),
        ({"texts": ["a"], "features": [["x"], ["y"]]}, 422, "features has 2 rows, texts 1: they must match"),
        ({"texts": ["a"], "num_beams": 5}, 422, "num_beams: Input should be less than or equal to 4"),
        ({"texts": ["a"], "num_beams": "2"}, 422, "num_beams: Input should be a valid integer"),
        ({"texts": ["a"], "max_new_tokens": 10}, 422, "max_new_tokens: Input should be less than or equal to 9"),
        (
            {"texts": ["a"], "features": [[]], "num_return_sequences": 4},
            422,
            "num_return_sequences=4 is more than num_beams=3",
        ),
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


def test_a_client_that_sends_too_much_reads_the_reason(server: Server) -> None:
    for size in (5001, 20_000_000):
        status, answer = server.request("POST", "/predict", b" " * size)
        assert (status, answer["error"][:40]) == (413, "the request has more than 5000 bytes: se")


def test_a_client_that_asks_before_it_sends_too_much_is_not_told_to_go_on(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest("POST", "/predict")
    for name, value in (("Content-Length", "20000000"), ("Expect", "100-continue")):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.sock.recv(12) == b"HTTP/1.1 413"  # `getresponse` would skip a 100
    connection.close()


def test_a_byte_order_mark_is_no_part_of_the_request(server: Server) -> None:
    body = json.dumps({"texts": ["a b"], "features": [["N"]]}).encode()
    assert server.request("POST", "/predict", codecs.BOM_UTF8 + body) == server.request("POST", "/predict", body)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/predict", 405), ("GET", "/", 404), ("GET", "/../../etc/passwd", 404), ("GET", "/docs", 404)],
)
def test_other_paths_and_methods_are_refused(server: Server, method: str, path: str, status: int) -> None:
    found, answer = server.request(method, path)
    assert (found, list(answer)) == (status, ["error"])
    reason = f"{method} is not allowed for {path}" if status == 405 else "no such path"
    assert answer["error"] == f"{reason}: POST to /predict, or GET /health, /metrics or /openapi.json"


def test_health_and_description(server: Server) -> None:
    assert server.request("GET", "/health") == (200, {"status": "ok"})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("HEAD", "/health")
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("content-length"), answer.read()) == (200, "15", b"")
    connection.request("PUT", "/health")
    assert connection.getresponse().getheader("allow") == "GET"
    connection.close()
    _, description = server.request("GET", "/openapi.json")
    schema = description["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["texts"]["maxItems"] == 3
    answers = description["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    fields = answers["properties"]["outputs"]["items"]["items"]["properties"]
    _, answer = server.predict(texts=["a b X"])
    assert list(fields) == list(answer["outputs"][0][0])
    assert fields["score"]["description"].startswith("p(y | x)")
    assert all(field["description"] for field in fields.values())


# ---- the end


def test_sigterm_answers_what_was_accepted(folders: dict[str, Path]) -> None:
    steps = {"min_new_tokens": 100, "max_new_tokens": 100, "num_beams": 8}
    with run_command(f"--model={folders['features']}", "--max_target_length=100", "--batch_size=4") as server:
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


# ---- errors of the command, and of the package without torch


def test_errors_of_the_command(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = f"--model={folders['features']}"
    assert "--model is missing" in refused(capsys, "serve")
    assert "no such folder; pass one that copynet-hf export" in refused(capsys, "serve", "--model=user/name")
    similar = f"no such folder; did you mean {folders['features']}?"
    assert similar in refused(capsys, "serve", f"{model}x")
    assert "config.json is missing" in refused(capsys, "serve", f"--model={tmp_path}")
    saved = save_tiny_model(tmp_path / "my model")
    run_export = f"run copynet-hf export --model '{saved}' --output_dir 'my model-onnx', and use"
    assert f"holds no decoder.onnx: {run_export}" in refused(capsys, "serve", f"--model={saved}")
    assert "--timeout is nan: use 1 or more" in refused(capsys, "serve", model, "--timeout=nan")
    assert "--batch_size is 0: use 1 or more" in refused(capsys, "serve", model, "--batch_size=0")
    assert "--port is 70000" in refused(capsys, "serve", model, "--port=70000")
    assert "--port: invalid int value: 'x'" in refused(capsys, "serve", model, "--port=x")
    assert "--threds is not an argument; did you mean --threads? (see " in refused(
        capsys, "serve", model, "--threds=2"
    )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"--host 127.0.0.1 --port {port} cannot be used" in refused(capsys, "serve", model, f"--port={port}")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install fastapi uvicorn onnxruntime prometheus-client" in refused(capsys, "serve", model)


def test_handlers_of_logging_stay_open(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Those of other packages, some of which close their stream as well: absl's closed sys.stderr."""

    class Handler(logging.Handler):
        is_open = True

        def close(self) -> None:
            self.is_open = False
            super().close()

    handler = Handler()
    with socket.create_server(("127.0.0.1", 0)) as other:
        error = refused(capsys, "serve", f"--model={folders['features']}", f"--port={other.getsockname()[1]}")
    assert "cannot be used" in error
    assert handler.is_open


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_features": 2}, "reads points, not words"),
        ({"vocab_size": 14}, "the tokenizer has 13 words, the model vocab_size=14"),
    ],
)
def test_folders_that_do_not_fit_together_are_refused(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, int], said: str
) -> None:
    folder = shutil.copytree(folders["features"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert said in refused(capsys, "serve", f"--model={folder}")


WITHOUT_TORCH = """
import sys
sys.modules |= dict.fromkeys(("torch", "transformers", "tokenizers", "huggingface_hub", "datasets"))
import copynet_hf
from copynet_hf import OnnxCopyNet, PlainTokenizer
from copynet_hf.cli import main
from copynet_hf.model.prediction import predict
model, tokenizer = OnnxCopyNet.from_pretrained(sys.argv[1]), PlainTokenizer.from_pretrained(sys.argv[1])
print(len(predict(model, tokenizer, ["a Kim"], features=[["N"]])))
try:
    copynet_hf.CopyNetForConditionalGeneration
except ImportError as error:
    print(error)
print(main(["generate", "--model", "some/one"]))
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
    assert "copynet_hf.CopyNetForConditionalGeneration needs torch, which is not installed: install" in lines[1]
    assert lines[-1] == "2"
    assert "copynet-hf generate: torch is not installed: install copynet-hf again, without --no-deps" in done.stderr
