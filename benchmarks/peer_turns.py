"""What the worker processes of peers.py share. They run in two environments: only the standard library is imported."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def connect() -> Connection:
    """The connection to peers.py, whose file descriptor is the first argument of the process."""
    return Connection(int(sys.argv[1]))


def peak_mebibytes() -> float:
    """The peak resident memory of this process. (getrusage would count the process that started it as well.)"""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class StepTurns:
    """Lets a Trainer take `steps` training steps whenever the other end of the connection asks for a turn.

    The callbacks of a Trainer call `begin_step` and `end_step`; between turns the process sleeps in `begin_step`.
    """

    def __init__(self, connection: Connection, steps: int) -> None:
        self.connection, self.steps = connection, steps
        self.taken = 0
        self.import_mebibytes = round(peak_mebibytes())

    def begin_step(self) -> None:
        if self.taken % self.steps == 0:
            self.connection.recv()

    def end_step(self) -> None:
        self.taken += 1
        if self.taken % self.steps == 0:
            self.connection.send("done")

    def report(self, **facts: Any) -> None:
        """Sends `facts` and the peak memory, now and before the training, after the last turn."""
        peaks = {"import_mebibytes": self.import_mebibytes, "peak_mebibytes": round(peak_mebibytes())}
        self.connection.send({**peaks, **facts})
