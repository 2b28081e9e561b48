"""The console script `copynet-hf`, and the table of its commands.

It is outside the package, which `--help` and `--version` do not need. A command parses its arguments before torch and
Transformers are imported, which takes seconds; Ctrl-C during their import ends it silently.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# For each command, a file of copynet_hf/commands, what it does.
COMMANDS = {
    "quickstart": "train a small model on synthetic requests and show what it copies, in under three minutes",
    "train": "train a model on pairs of texts",
    "evaluate": "score a model on pairs of texts",
    "generate": "generate an output for each line of text",
    "predict": "add a column of outputs to files of any size",
    "demo": "try a model on a web page",
    "export": "export a model to ONNX",
    "ensemble": "join trained models to one that averages their probabilities",
    "serve": "serve an exported model over HTTP, without torch",
}
HELP = f"""usage: copynet-hf COMMAND [ARGUMENTS]

commands:
{"".join(f"  {name:12} {summary}" + chr(10) for name, summary in COMMANDS.items())}
copynet-hf COMMAND --help lists the arguments, copynet-hf --version prints the version.
With COPYNET_DEBUG=1 an error comes with its traceback.
"""
HELP_ARGUMENTS = ("-h", "--help", "help")
REGISTER_LATER = "COPYNET_REGISTER_LATER"  # in the environment: importing the package imports no Transformers


def main() -> int:
    """Runs the command of `sys.argv` and returns its exit code, that of `copynet_hf.cli.main`."""
    with silent_interrupts():
        arguments = sys.argv[1:]
        if not arguments or arguments[0] in HELP_ARGUMENTS:
            return _write(HELP)
        if arguments[0] == "--version":
            from importlib.metadata import version

            return _write(f"copynet-hf {version('copynet-hf')}\n")
        os.environ[REGISTER_LATER] = "1"  # by cli, once the arguments are parsed
        try:
            from copynet_hf.cli import main as run_command
        finally:
            del os.environ[REGISTER_LATER]
    return run_command(arguments)


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


def _write(text: str) -> int:
    """Writes to standard output without a buffer, whose flush at exit would fail if the reader has closed the pipe."""
    try:
        os.write(sys.stdout.fileno(), text.encode())
    except BrokenPipeError:
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
