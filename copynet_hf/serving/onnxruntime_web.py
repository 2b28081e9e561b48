"""The files of onnxruntime-web that a web page needs: one version, from the npm registry or from a folder.

Its WebAssembly alone has 14 MB, more than all of this package, so it is no part of it: the first export downloads it
and keeps it in the user's cache.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tarfile
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

VERSION = "1.30.0"
FILE_DIGESTS = {  # SHA-512 in npm's form
    "ort.wasm.bundle.min.mjs": (
        "sha512-1KcF8CWAZeqtTcvLgKPtOMXIbkWeh++LDCQpDhQ5ARVxHAL1VNL5rr0OI+MxTbmNIANldE/A/q+O4gSKgSMjWQ=="
    ),
    "ort-wasm-simd-threaded.wasm": (
        "sha512-Gt7e1iIDIZ/PXEhM/OVleqWHVom0kEI/hs8cod0crXcV9jDGM39B23HuQnlOOgDOC3x4k5pxIgtdgzaL9up3MA=="
    ),
}
PUBLIC_REGISTRY = "https://registry.npmjs.org"
TIMEOUT = 60  # seconds without an answer of the registry


def load_runtime(folder: str | Path | None = None) -> dict[str, bytes]:
    """The contents of the files, by name.

    Args:
        folder: the npm package, unpacked, or its folder `dist`. None: the user's cache, and if they are not there the
            npm registry, or the one that the variable NPM_CONFIG_REGISTRY names.

    Raises:
        ValueError: a file is missing in the folder, or is not that of `VERSION`.
        OSError: the registry cannot be reached.
    """
    fix = f"pass the unpacked npm package onnxruntime-web@{VERSION}"
    if folder is not None:
        dist = Path(folder, "dist") if Path(folder, "dist").is_dir() else Path(folder)
        if missing := [name for name in FILE_DIGESTS if not (dist / name).is_file()]:
            raise ValueError(f"--onnxruntime_web {folder} holds no {missing[0]}: {fix}")
        files = {name: (dist / name).read_bytes() for name in FILE_DIGESTS}
        if others := _find_others(files):
            raise ValueError(f"{dist / others[0]} is not the file of onnxruntime-web {VERSION}: {fix}")
        return files
    cache = Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "copynet_hf", f"onnxruntime-web-{VERSION}"
    )
    try:
        return load_runtime(cache)
    except ValueError:  # missing, or damaged
        files = _download()
    cache.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        partial = cache / f"{name}.{os.getpid()}"
        partial.write_bytes(content)
        partial.replace(cache / name)
    return files


def _download() -> dict[str, bytes]:
    registry = os.environ.get("NPM_CONFIG_REGISTRY") or PUBLIC_REGISTRY
    url = f"{registry.rstrip('/')}/onnxruntime-web/-/onnxruntime-web-{VERSION}.tgz"
    try:
        with urlopen(url, timeout=TIMEOUT) as response, tarfile.open(fileobj=BytesIO(response.read())) as archive:
            members = {name: archive.extractfile(f"package/dist/{name}") for name in FILE_DIGESTS}
            files = {name: member.read() for name, member in members.items() if member is not None}
    except (OSError, HTTPException) as error:
        raise OSError(
            f"{url} cannot be downloaded ({error}): check the network, or pass the unpacked npm package with "
            "--onnxruntime_web"
        ) from None
    except (KeyError, EOFError, tarfile.TarError):
        files = {}
    if _find_others(files):
        raise ValueError(f"{url} is not onnxruntime-web {VERSION}, its SHA-512 differs: use another registry")
    return files


def _find_others(files: dict[str, bytes]) -> list[str]:
    """The files whose contents are not those of `VERSION`."""
    return [name for name, digest in FILE_DIGESTS.items() if _digest(files.get(name, b"")) != digest]


def _digest(content: bytes) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
