"""Runs a command of `copynet-hf`: its exit code, the line that an error ends with, and closed pipes."""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError

from . import __version__, register_classes
from .arguments import Command
from .commands import COMMANDS
from .saved.checks import check_model_name

_HELP = """usage: copynet-hf COMMAND [ARGUMENTS]

commands:
{commands}
copynet-hf COMMAND --help lists the arguments, copynet-hf --version prints the version.
With COPYNET_DEBUG=1 an error comes with its traceback."""


def main(argv: Sequence[str], importing: Callable[[], AbstractContextManager[None]] = nullcontext) -> int:
    """Runs one command, `argv[0]`, with the arguments after it, or shows the help text, and returns the exit code.

    Args:
        importing: in whose context torch and Transformers are imported.

    Returns:
        0 after success; 2 after an error, which is one line on stderr: what a command cannot use raises ValueError,
        OSError or ImportError; 130 when interrupted; 141 when the reader of standard output has closed it, as `head`
        does.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    try:
        try:
            return _run(importing, *argv)
        finally:
            sys.stdout.flush()  # here rather than at exit, where a closed pipe cannot be handled
    except BrokenPipeError:
        _discard_output()
        return 141
    except OSError as error:  # `_run` has reported those of the command
        _discard_output()
        print(f"copynet-hf: standard output cannot be written ({error.strerror})", file=sys.stderr)
        return 2


def format_help() -> str:
    """What `copynet-hf --help` prints."""
    return _HELP.format(commands="".join(f"  {name:12} {summary}\n" for name, summary in COMMANDS.items()))


def _run(importing: Callable[[], AbstractContextManager[None]], name: str = "help", *argv: str) -> int:
    if name in ("-h", "--help", "help", "--version"):
        print(f"copynet-hf {__version__}" if name == "--version" else format_help())
        return 0
    if name not in COMMANDS:
        print(f"copynet-hf: unknown command {name!r}: use one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("copynet_hf").setLevel(logging.INFO)
    os.environ.setdefault("TQDM_DELAY", "2")  # seconds after which a progress bar appears
    if not sys.stderr.isatty():
        for interval in ("TQDM_MININTERVAL", "TQDM_MAXINTERVAL"):
            os.environ.setdefault(interval, "60")  # seconds between its lines in a log
    # torch's threads sleep while they wait for one another: busy waiting is many times slower on cores that others use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        command: Command = import_module(f".commands.{name}", __package__).COMMAND
        with importing():  # the parser of `train` does so, too
            arguments = command.build_parser(name).parse(argv)
            if command.uses_transformers:
                if model := getattr(arguments, "model", None):
                    check_model_name(model)  # before what takes seconds
                register_classes()
        command.run(arguments)
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("COPYNET_DEBUG"):
            traceback.print_exc()
        from .inference.console import escape_controls

        message = " ".join(line.strip() for line in str(error).splitlines())
        if isinstance(error, PackageNotFoundError):  # of a check by Transformers, which names what an option needs
            needed = (re.findall("'(.+?)'", error.name) or [error.name])[0]
            message = f"{needed} is not installed: pip install '{needed}'"
        elif isinstance(error, ModuleNotFoundError):
            message = f"{error.name} is not installed: install copynet-hf again, without --no-deps"
        with suppress(OSError):  # of a full disk that holds the log as well
            print(f"copynet-hf {name}: {escape_controls(message)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"copynet-hf {name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _discard_output() -> None:
    """Lets the interpreter's flush at exit succeed although the pipe is closed."""
    with suppress(OSError, ValueError):  # a stream without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
