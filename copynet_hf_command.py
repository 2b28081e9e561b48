"""The console script `copynet-hf`.

It is outside the package, whose import takes seconds where it registers the models. Most commands parse their
arguments before that; Ctrl-C ends a command silently until it runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

REGISTER_LATER = "COPYNET_REGISTER_LATER"  # in the environment: importing the package imports no Transformers


def main() -> int:
    """Runs the command of `sys.argv` and returns its exit code, that of `copynet_hf.cli.main`."""
    with silent_interrupts():
        os.environ[REGISTER_LATER] = "1"  # by cli, once the arguments are parsed
        try:
            from copynet_hf.cli import main as run_command
        finally:
            del os.environ[REGISTER_LATER]
    return run_command(sys.argv[1:], importing=silent_interrupts)


@contextmanager
def silent_interrupts() -> Iterator[None]:
    """Ends the process with exit code 130 at Ctrl-C, whatever an imported package makes of KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, as under nohup
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(main())
