"""HTTP connections of which silent ones cannot keep others out, by uvicorn."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0


class Connection(H11Protocol):
    """A connection that is closed unless the headers of a request arrive within `HEADER_SECONDS`.

    Above `max_connections`, the one that has been silent for the longest time is closed, among those for which no
    answer is being computed.
    """

    def __init__(self, *args: Any, max_connections: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_connections = max_connections
        self.last_arrival = self.loop.time()
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether a request has arrived whole, and nothing of its answer has been sent."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_started

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._limit_header_time()
        if len(self.connections) > self.max_connections:
            others = (each for each in self.connections if isinstance(each, Connection) and not each.is_answering)
            silent = min(others, key=lambda each: each.last_arrival)  # at least this one
            self.connections.discard(silent)
            silent.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.last_arrival = self.loop.time()
        super().data_received(data)
        self._limit_header_time()

    def _limit_header_time(self) -> None:
        """Lets the time for the headers run while they are not complete."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
