"""The console script `copynet-hf`.

It is outside the package because importing the package takes seconds: `--help` and `--version` do not need it, and
Ctrl-C during the import ends the command silently.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HELP = """usage: copynet-hf COMMAND [ARGUMENTS]

commands:
  quickstart   train a small model on synthetic requests and show what it copies, in under three minutes
  train        train a model on pairs of texts
  evaluate     score a model on pairs of texts
  generate     generate an output for each line of text
  predict      add a column of outputs to files of any size
  demo         try a model on a web page
  export       export a model to ONNX
  ensemble     join trained models to one that averages their probabilities
  serve        serve an exported model over HTTP, without torch

copynet-hf COMMAND --help lists the arguments, copynet-hf --version prints the version.
With COPYNET_DEBUG=1 an error comes with its traceback.
"""
HELP_ARGUMENTS = ("-h", "--help", "help")


def main() -> int:
    """Runs the command of `sys.argv` and returns its exit code, that of `copynet_hf.cli.main`."""
    with _silent_interrupts():
        arguments = sys.argv[1:]
        if not arguments or arguments[0] in HELP_ARGUMENTS:
            return _write(HELP)
        if arguments[0] == "--version":
            from importlib.metadata import version

            return _write(f"copynet-hf {version('copynet-hf')}\n")
        from copynet_hf.cli import main as run_command
    return run_command(arguments)


@contextmanager
def _silent_interrupts() -> Iterator[None]:
    """Ends the process with exit code 130 at Ctrl-C, whatever an imported package makes of KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, as under nohup
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _write(text: str) -> int:
    """Writes to standard output without a buffer, whose flush at exit would fail if the reader has closed the pipe."""
    try:
        os.write(sys.stdout.fileno(), text.encode())
    except BrokenPipeError:
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
