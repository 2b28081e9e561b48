"""The console script `copynet-hf`.

It is outside the package, whose import takes seconds where it registers the models. Most commands parse their
arguments before that; Ctrl-C ends a command silently until it runs.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

HELP = """usage: copynet-hf COMMAND [ARGUMENTS]

commands:
{commands}
copynet-hf COMMAND --help lists the arguments, copynet-hf --version prints the version.
With COPYNET_DEBUG=1 an error comes with its traceback.
"""
HELP_ARGUMENTS = ("-h", "--help", "help")
REGISTER_LATER = "COPYNET_REGISTER_LATER"  # in the environment: importing the package imports no Transformers


def main() -> int:
    """Runs the command of `sys.argv` and returns its exit code, that of `copynet_hf.cli.main`."""
    with silent_interrupts():
        arguments = sys.argv[1:]
        if arguments[:1] == ["--version"]:
            from importlib.metadata import version

            return _write(f"copynet-hf {version('copynet-hf')}\n")
        os.environ[REGISTER_LATER] = "1"  # by cli, once the arguments are parsed
        try:
            from copynet_hf.cli import main as run_command
            from copynet_hf.commands import COMMANDS
        finally:
            del os.environ[REGISTER_LATER]
        if not arguments or arguments[0] in HELP_ARGUMENTS:
            return _write(format_help(COMMANDS))
    return run_command(arguments, importing=silent_interrupts)


def format_help(commands: Mapping[str, str]) -> str:
    """The help text; `commands` says what each command does."""
    return HELP.format(commands="".join(f"  {name:12} {summary}\n" for name, summary in commands.items()))


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
        os.write(1, text.encode())
    except BrokenPipeError:
        return 141
    except OSError:  # closed, or full
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
