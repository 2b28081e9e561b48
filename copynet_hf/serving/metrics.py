"""Counts and times of requests in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """Counts of values up to each of some bounds, with their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last: of values above all bounds
        self.sum = 0.0

    def observe(self, value: float) -> None:
        place = next((place for place, bound in enumerate(self.bounds) if value <= bound), len(self.bounds))
        self.counts[place] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.sum:.9g}"
        yield f"{name}_count {total}"


class Metrics:
    """What the server has done since its start. Used by one thread."""

    def __init__(self) -> None:
        self.requests = 0
        self.errors: Counter[int] = Counter()  # by HTTP status
        self.request_seconds = Histogram(SECONDS)
        self.batch_texts = Histogram(TEXTS)

    def record_request(self, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self.requests += 1
        self.request_seconds.observe(seconds)
        if status >= 400:
            self.errors[status] += 1

    def render(self, queued_texts: int) -> str:
        """The page of /metrics."""
        errors = [
            f'copynet_request_errors_total{{status="{status}"}} {self.errors[status]}'
            for status in sorted(self.errors)
        ]
        families: list[tuple[str, str, str, Iterable[str]]] = [
            ("copynet_requests_total", "counter", "Answered requests.", [f"copynet_requests_total {self.requests}"]),
            ("copynet_request_errors_total", "counter", "Requests answered with an error.", errors),
            (
                "copynet_request_seconds",
                "histogram",
                "Time from a request to its answer.",
                self.request_seconds.lines("copynet_request_seconds"),
            ),
            (
                "copynet_batch_texts",
                "histogram",
                "Texts in a batch.",
                self.batch_texts.lines("copynet_batch_texts"),
            ),
            ("copynet_queue_texts", "gauge", "Texts that wait for a batch.", [f"copynet_queue_texts {queued_texts}"]),
        ]
        lines: list[str] = []
        for name, kind, description, samples in families:
            lines += [f"# HELP {name} {description}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"
