"""What a request may ask for, and how batches are built: arguments of `copynet-hf serve`."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import Arguments, argument, at_least, count

# The largest product of the number of texts of a batch, the characters of the longest and the beams, which bounds the
# memory; a single text may exceed it.
MAX_BATCH_CHARACTERS = 32_000


@dataclass(frozen=True)
class Limits(Arguments):
    """Characters of a text include those of its facts and features."""

    batch_size: int = count("texts of a batch, from any requests", 32)
    batch_window: float = argument("milliseconds for which a text waits for others", 2.0, check=at_least(0))
    max_waiting: int = count("texts that may wait; further ones get 503", 1024)
    max_request_bytes: int = count("bytes of a request", 1 << 20)
    max_texts: int = count("texts of a request", 64)
    max_characters: int = count("characters of a text, with facts and features", 10_000)
    max_beams: int = count("beams that a request may ask for", 10)
    max_target_length: int = count("words of an output that a request may ask for", 256)
    max_work: int = count("characters of a request, times beams, times words of an output", 2_000_000)
    timeout: float = argument("seconds for a request; then it gets 504", 20.0, check=at_least(1))
