"""What /metrics says, by prometheus_client."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Measurements:
    """What one server has done since its start.

    Args:
        count_waiting: gives the number of texts that wait for a batch.
    """

    def __init__(self, count_waiting: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("copynet_requests", "Answered requests.", registry=registry)
        self.errors = Counter(
            "copynet_request_errors", "Requests answered with an error.", ["status"], registry=registry
        )
        self.request_seconds = Histogram(
            "copynet_request_seconds", "Time from a request to its answer.", registry=registry, buckets=SECONDS
        )
        self.batch_texts = Histogram("copynet_batch_texts", "Texts in a batch.", registry=registry, buckets=TEXTS)
        waiting = Gauge("copynet_queue_texts", "Texts that wait for a batch.", registry=registry)
        waiting.set_function(count_waiting)

    def record_request(self, status: int, seconds: float) -> None:
        """Counts an answered request."""
        self.requests.inc()
        self.request_seconds.observe(seconds)
        if status >= 400:
            self.errors.labels(status).inc()
