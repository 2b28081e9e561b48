"""The files of onnxruntime-web: downloaded once from the npm registry, checked, or from a folder."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from helpers import serve_folder

from copynet_hf.serving import onnxruntime_web
from copynet_hf.serving.onnxruntime_web import load_runtime


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A registry with a package of small files; the paths that were asked for."""
    files = {name: name.encode() for name in onnxruntime_web.FILE_DIGESTS}
    package = tmp_path / "registry" / "onnxruntime-web" / "-" / f"onnxruntime-web-{onnxruntime_web.VERSION}.tgz"
    for name, content in files.items():
        path = tmp_path / "package" / "dist" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    package.parent.mkdir(parents=True)
    with tarfile.open(package, "w:gz") as archive:
        archive.add(tmp_path / "package", "package")
    digests = {name: onnxruntime_web._digest(content) for name, content in files.items()}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(onnxruntime_web, "FILE_DIGESTS", digests)
    with serve_folder(tmp_path / "registry") as (address, asked):
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", address)
        yield asked


def test_onnxruntime_web_is_downloaded_once(registry: list[str], tmp_path: Path) -> None:
    files = load_runtime()
    assert files == {name: name.encode() for name in onnxruntime_web.FILE_DIGESTS}
    assert load_runtime() == files
    assert load_runtime(tmp_path / "package") == files
    assert len(registry) == 1
    cached = next((tmp_path / "cache").rglob("*.wasm"))
    cached.write_bytes(b"damaged")
    assert load_runtime() == files
    assert len(registry) == 2


def test_a_download_that_breaks_off_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"cut")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", f"http://127.0.0.1:{server.server_address[1]}")
    with pytest.raises(OSError, match=r"\.tgz cannot be downloaded \(IncompleteRead.*: check the network"):
        load_runtime()
    server.server_close()


def test_another_onnxruntime_web_is_refused(
    registry: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "package"
    next(folder.rglob("*.wasm")).write_bytes(b"another version")
    with pytest.raises(
        ValueError, match=r"\.wasm is not the file of onnxruntime-web .*: pass the unpacked npm package"
    ):
        load_runtime(folder)
    shutil.rmtree(folder / "dist")
    with pytest.raises(ValueError, match=r"--onnxruntime_web .*package holds no ort\.wasm\.bundle\.min\.mjs: pass"):
        load_runtime(folder)
    name = next(iter(onnxruntime_web.FILE_DIGESTS))
    monkeypatch.setitem(onnxruntime_web.FILE_DIGESTS, name, "sha512-")
    with pytest.raises(ValueError, match=r"\.tgz is not onnxruntime-web .*, its SHA-512 differs"):
        load_runtime()
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"\.tgz cannot be downloaded \(.*\): check the network, or pass the unpacked"):
        load_runtime()
