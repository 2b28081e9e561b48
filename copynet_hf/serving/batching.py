"""Batches of texts from different requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ..model.prediction import Prediction
from .limits import BatchSettings

logger = logging.getLogger(__name__)

Options = Mapping[str, Any]


Row = Mapping[str, Any]
"""The arguments `text`, `facts` and `features` of `encode_source`, the last two None where there are none."""
Predict = Callable[[Sequence[Row], Options], list[list[Prediction]]]
"""From the rows of a batch, and options of `generate()`, to the outputs of each."""


def count_characters(row: Row) -> int:
    """The characters of a text, its facts and features, at least one for each word of a fact and each feature."""
    words = (word for fact in row.get("facts") or () for word in fact)
    return len(row["text"]) + sum(max(len(word), 1) for word in (*words, *(row.get("features") or ())))


class QueueFullError(Exception):
    """More texts are waiting than the server accepts."""


@dataclass
class _Waiting:
    source: Row
    options: Options
    deadline: float
    future: asyncio.Future[list[Prediction]]
    arrival: float = field(default_factory=time.monotonic)


class Batcher:
    """Collects the texts of concurrent requests and predicts those with the same options in batches, one at a time.

    Args:
        predict: called in a thread of its own; its option `max_time` is the number of seconds until the last text of
            the batch reaches its deadline.
        on_batch: called with the number of texts of each batch.
    """

    def __init__(self, predict: Predict, settings: BatchSettings, on_batch: Callable[[int], None]) -> None:
        self._predict, self._settings, self._on_batch = predict, settings, on_batch
        self._waiting: deque[_Waiting] = deque()
        self._has_arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        """The number of texts that are in no batch yet."""
        return len(self._waiting)

    async def predict(self, sources: Sequence[Row], options: Options, deadline: float) -> list[list[Prediction]]:
        """The outputs of each source, best first. Sources of a cancelled call wait no longer.

        Args:
            deadline: the value of `time.monotonic()` after which the caller no longer needs the outputs.

        Raises:
            QueueFullError: too many texts are waiting.
            ValueError: the model does not accept a source or an option.
        """
        if len(self._waiting) + len(sources) > self._settings.max_waiting:
            raise QueueFullError
        loop = asyncio.get_running_loop()
        rows = [_Waiting(source, options, deadline, loop.create_future()) for source in sources]
        self._waiting.extend(rows)
        self._has_arrived.set()
        try:
            return await asyncio.gather(*(row.future for row in rows))
        except BaseException:  # an error of one row, or a cancellation
            for row in rows:
                row.future.cancel()
            self._waiting = deque(row for row in self._waiting if not row.future.done())
            raise

    async def run(self) -> None:
        """Predicts batch after batch until it is cancelled."""
        loop = asyncio.get_running_loop()
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
        end = self._waiting[0].arrival + self._settings.window
        while len(self._waiting) < self._settings.batch_size and (rest := end - time.monotonic()) > 0:
            self._has_arrived.clear()
            try:
                await asyncio.wait_for(self._has_arrived.wait(), rest)
            except TimeoutError:
                return

    def _take_batch(self) -> list[_Waiting]:
        """Removes and returns the oldest waiting text and those with the same options, as many as fit into a batch."""
        batch: list[_Waiting] = []
        others: deque[_Waiting] = deque()
        longest = 0
        for row in self._waiting:
            if row.future.done():
                continue
            longer = max(longest, count_characters(row.source))
            fits = len(batch) < self._settings.batch_size and (
                not batch
                or (
                    row.options == batch[0].options
                    and (len(batch) + 1) * longer <= self._settings.max_batch_characters
                )
            )
            if fits:
                batch.append(row)
                longest = longer
            else:
                others.append(row)
        self._waiting = others
        return batch

    def _run_batch(self, batch: Sequence[_Waiting]) -> list[list[Prediction] | Exception]:
        """The outputs of each text; where a batch fails, of each text alone, so that no request fails for another."""
        rest = max(row.deadline for row in batch) - time.monotonic()
        options = {**batch[0].options, "max_time": max(rest, 0.0)}
        try:
            return list(self._predict([row.source for row in batch], options))
        except Exception as error:
            if len(batch) == 1:
                if not isinstance(error, ValueError):
                    logger.exception("a text could not be predicted")
                return [error]
        return [self._run_batch([row])[0] for row in batch]
