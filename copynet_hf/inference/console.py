"""Standard input as batches of lines; texts and JSON that are safe to show on a terminal."""

from __future__ import annotations

import codecs
import json
import logging
import re
import select
from collections.abc import Iterator
from io import BufferedReader, BytesIO

logger = logging.getLogger(__name__)

_CHUNK_SIZE = 1 << 20  # bytes
_GRACE_SECONDS = 0.01  # for a writer that is still filling the pipe
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\ud800-\udfff]")  # of what JSON does not escape itself


def escape_controls(text: str) -> str:
    r"""Replaces control characters other than tab and line feed by their escapes, such as `\x1b`.

    A terminal would obey them: they can change its title, its colours and what is shown.
    """
    return _CONTROLS.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def format_json(value: object, encoding: str | None) -> str:
    """JSON with letters as they are, if the encoding has them, and control characters and lone surrogates escaped."""
    text = json.dumps(value, ensure_ascii=False)
    text = _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def read_line_batches(stream: BufferedReader | BytesIO, batch_size: int) -> Iterator[list[str]]:
    """The lines of a file, pipe or terminal without line ends and byte order mark, in batches of at most `batch_size`.

    A batch is shorter where no further input is waiting, so that each line of a slow pipe is read as soon as it is
    there. Bytes that are not UTF-8 become U+FFFD, with a warning that names the line.
    """
    batch: list[str] = []
    number = 0
    for line in _read_waiting_lines(stream):
        if line is not None:
            number += 1
            batch.append(_decode_line(line, number))
        if len(batch) == batch_size or (line is None and batch):
            yield batch
            batch = []
    if batch:
        yield batch


def _read_waiting_lines(stream: BufferedReader | BytesIO) -> Iterator[bytes | None]:
    """The lines, and None wherever the next one would have to be waited for."""
    unfinished: list[bytes] = []  # the chunks of a line whose end has not come in
    while chunk := stream.read1(_CHUNK_SIZE):  # unlike read, it returns what is there
        unfinished.append(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(unfinished).split(b"\n")
            unfinished = [rest]
            yield from lines
        if not _is_input_waiting(stream):
            yield None
    if rest := b"".join(unfinished):
        yield rest


def _is_input_waiting(stream: BufferedReader | BytesIO) -> bool:
    try:
        return bool(select.select([stream], [], [], _GRACE_SECONDS)[0])
    except (OSError, ValueError):  # Windows selects sockets only
        return False


def _decode_line(line: bytes, number: int) -> str:
    line = line.removesuffix(b"\r")
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        logger.warning("line %d of standard input is not UTF-8: its invalid bytes are read as U+FFFD", number)
        return line.decode("utf-8", errors="replace")
