"""What a request may ask for, and how batches are built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    max_request_bytes: of its body.
    max_texts: texts of a request.
    max_characters: of a text with its facts and features.
    max_beams: beams, and outputs of a text.
    max_new_tokens: words of an output.
    max_work: characters of all its texts, times beams, times words of an output; bounds the time.
    timeout: seconds from the start of a request to its answer.
    """

    max_request_bytes: int = 1 << 20
    max_texts: int = 64
    max_characters: int = 10_000
    max_beams: int = 10
    max_new_tokens: int = 256
    max_work: int = 2_000_000
    timeout: float = 20.0


@dataclass(frozen=True)
class BatchSettings:
    """How batches are built.

    batch_size: the largest number of texts of a batch.
    window: the seconds that a text waits for others, unless the batch is full.
    max_batch_characters: the largest product of the number of texts, the characters of the longest and the beams,
        which bounds the memory; a single text may exceed it.
    max_waiting: the number of waiting texts above which further ones are refused.
    max_requests: the same for requests whose texts wait or are being predicted.
    max_batch_seconds: the time after which a batch is given up if further texts wait.
    """

    batch_size: int = 32
    window: float = 0.002
    max_batch_characters: int = 32_000
    max_waiting: int = 1024
    max_requests: int = 1024
    max_batch_seconds: float = 10.0
