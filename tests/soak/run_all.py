"""Runs all soak scripts one after the other, each for its full length or for `--rounds` rounds.

python tests/soak/run_all.py
python tests/soak/run_all.py --rounds 2 --results /tmp/reliability.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import encoders_twice
import full_disk
import hostile_clients
import killed_exports
import killed_predictions
import kills
import memory
import mutated_files
import random_configurations
from harness import RESULTS, start_forked, wait_until_ended

# Each with the rounds of its full length.
SCRIPTS: tuple[tuple[Callable[[Sequence[str]], int], list[str]], ...] = (
    (random_configurations.main, ["--rounds=10000"]),
    (memory.main, ["--rounds=2000"]),
    (encoders_twice.main, ["--rounds=1200"]),
    (mutated_files.main, ["--rounds=5000", "--folders=500"]),
    (kills.main, ["--rounds=50"]),
    (kills.main, ["--rounds=30", "--epochs=3", "--sampling=group_by_length"]),
    (kills.main, ["--rounds=10", "--processes=2"]),
    (killed_predictions.main, ["--rounds=20"]),
    (killed_exports.main, ["--rounds=30"]),
    (hostile_clients.main, ["--rounds=30"]),
    (full_disk.main, []),
)


def shorten(argv: Sequence[str], rounds: int) -> list[str]:
    """The arguments with fewer rounds."""
    names = [argument.partition("=")[0] for argument in argv]
    return [*argv, f"--rounds={rounds}", *(f"{name}={rounds}" for name in names if name == "--folders")]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if nothing failed, 1 if a check failed, 2 if a script did not reach its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, help="of each script; default: its full length")
    parser.add_argument("--minutes", type=float, default=60.0, help="of each check")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    codes = []
    for script, full_length in SCRIPTS:
        script_argv = full_length if arguments.rounds is None else shorten(full_length, arguments.rounds)
        if arguments.rounds is not None and script is kills.main and len(full_length) > 1:
            continue  # the other forms of the same check, which take longer
        common = [f"--seed={arguments.seed}", f"--minutes={arguments.minutes}", f"--results={arguments.results}"]
        # In a process of its own: threads that one script has started would not survive the forks of the next.
        pid = start_forked(lambda run=script, given=(*script_argv, *common): int(run(given)), None)
        codes.append(wait_until_ended(pid, float("inf")))
    return 2 if any(code not in (0, 1) for code in codes) else max(codes)


if __name__ == "__main__":
    sys.exit(main())
