"""Batches of texts from different requests."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Required, TypedDict

from ..model.prediction import Prediction
from ..model.source import Fact
from .limits import MAX_BATCH_CHARACTERS, Limits

logger = logging.getLogger(__name__)

Options = Mapping[str, Any]
"""Options of `generate()`, `num_beams` and `max_new_tokens` among them."""


class RequestRow(TypedDict, total=False):
    """Arguments of `encode_source`, the last two missing where the request has none, None where the text has none."""

    text: Required[str]
    facts: Sequence[Fact] | None
    features: Sequence[str] | None


Predict = Callable[[Sequence[RequestRow], Options, Callable[[], None]], list[list[Prediction]]]
"""From the rows of a batch, options of `generate()`, and a function to call before each step, to the outputs of each
row. The function raises TimeoutError when they are no longer needed."""


def count_characters(row: RequestRow) -> int:
    """The characters of a text, its facts and features, at least one for each word of a fact and each feature."""
    words = (word for fact in row.get("facts") or () for word in fact)
    return len(row["text"]) + sum(max(len(word), 1) for word in (*words, *(row.get("features") or ())))


@dataclass
class _Waiting:
    source: RequestRow
    options: Options
    deadline: float
    request: int
    future: asyncio.Future[list[Prediction]]
    arrival: float = field(default_factory=time.monotonic)

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for the outputs. For any thread."""
        return not self.future.done() and time.monotonic() < self.deadline


class Batcher:
    """Collects the texts of concurrent requests and predicts those with the same options in batches, one at a time.

    Args:
        predict: called in a thread of its own. It is stopped when all texts of the batch have been cancelled or are
            past their deadlines, and after half of `limits.timeout` if further texts wait.
        max_requests: how many may wait or be predicted.
        on_batch: called with the number of texts of each batch.
    """

    def __init__(self, predict: Predict, limits: Limits, max_requests: int, on_batch: Callable[[int], None]) -> None:
        self._predict, self._limits, self._max_requests, self._on_batch = predict, limits, max_requests, on_batch
        self._waiting: deque[_Waiting] = deque()
        self._requests = 0
        self._numbers = itertools.count()
        self._has_arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of texts that are in no batch yet."""
        return len(self._waiting)

    async def predict(
        self, sources: Sequence[RequestRow], options: Options, deadline: float
    ) -> list[list[Prediction]]:
        """The outputs of each source, best first. Sources of a cancelled call wait no longer.

        Args:
            deadline: the value of `time.monotonic()` after which the caller no longer needs the outputs.

        Raises:
            asyncio.QueueFull: too many texts or requests are waiting.
            TimeoutError: the deadline has passed, or the batch took too long for the texts that wait.
            ValueError: the model does not accept a source or an option.
        """
        is_full = len(self._waiting) + len(sources) > self._limits.max_waiting
        if is_full or self._requests >= self._max_requests:
            raise asyncio.QueueFull
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        rows = [_Waiting(source, options, deadline, number, loop.create_future()) for source in sources]
        self._waiting.extend(rows)
        self._has_arrived.set()
        self._requests += 1
        try:
            return await asyncio.gather(*(row.future for row in rows))
        except BaseException:  # an error of one row, or a cancellation
            for row in rows:
                row.future.cancel()
            self._waiting = deque(row for row in self._waiting if not row.future.done())
            raise
        finally:
            self._requests -= 1

    async def run(self) -> None:
        """Predicts batch after batch until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._has_arrived = asyncio.Event()  # of this loop: an app may be served again by another
        with ThreadPoolExecutor(1, "predict") as executor:
            while True:
                await self._wait_for_batch()
                if batch := self._take_batch():
                    self._on_batch(len(batch))
                    results = await loop.run_in_executor(executor, self._run_batch, batch)
                    for row, result in zip(batch, results, strict=True):
                        if row.future.done():  # cancelled
                            continue
                        if isinstance(result, Exception):
                            row.future.set_exception(result)
                        else:
                            row.future.set_result(result)

    async def _wait_for_batch(self) -> None:
        """Returns when the batch of the oldest text is full, or that text has waited long enough."""
        while not self._waiting:
            self._has_arrived.clear()
            await self._has_arrived.wait()
        end = self._waiting[0].arrival + self._limits.batch_window / 1e3
        while len(self._waiting) < self._limits.batch_size and (rest := end - time.monotonic()) > 0:
            self._has_arrived.clear()
            try:
                await asyncio.wait_for(self._has_arrived.wait(), rest)
            except TimeoutError:
                return

    def _take_batch(self) -> list[_Waiting]:
        """Removes and returns the oldest waiting text and those with the same options, as many as fit into a batch.
        The rest of its request waits behind the others."""
        batch: list[_Waiting] = []
        others: list[_Waiting] = []
        longest = 0
        for row in self._waiting:
            if not row.is_wanted:
                if not row.future.done():
                    row.future.set_exception(TimeoutError())
                continue
            longer = max(longest, count_characters(row.source))
            characters = (len(batch) + 1) * longer * row.options["num_beams"]
            fits = len(batch) < self._limits.batch_size and (
                not batch or (row.options == batch[0].options and characters <= MAX_BATCH_CHARACTERS)
            )
            if fits:
                batch.append(row)
                longest = longer
            else:
                others.append(row)
        others.sort(key=lambda row: row.request == batch[0].request)
        self._waiting = deque(others)
        return batch

    def _run_batch(self, batch: Sequence[_Waiting]) -> list[list[Prediction] | Exception]:
        """The outputs of each text; where a batch fails, of each text alone, so that no request fails for another."""
        end = time.monotonic() + self._limits.timeout / 2

        def check_wanted() -> None:
            gives_way = self._waiting and time.monotonic() > end
            if gives_way or not any(row.is_wanted for row in batch):
                raise TimeoutError

        try:
            check_wanted()
            return list(self._predict([row.source for row in batch], batch[0].options, check_wanted))
        except TimeoutError as error:
            return [error] * len(batch)
        except Exception as error:
            if len(batch) == 1:
                if not isinstance(error, ValueError):
                    logger.exception("a text could not be predicted")
                return [error]
        return [self._run_batch([row])[0] for row in batch]
