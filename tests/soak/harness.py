"""What the soak scripts share: their arguments, tasks in processes of their own, and the page of results.

Each script runs many rounds of one kind of check and writes a row of results/reliability.json, from which
results/reliability.md is rendered.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

# Before the first import of the Hugging Face libraries: no network, and a cache that is removed at the end.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
if "HF_HOME" not in os.environ:
    os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="copynet-soak-cache-")
    _owner = os.getpid()
    atexit.register(lambda: os.getpid() == _owner and shutil.rmtree(os.environ["HF_HOME"], ignore_errors=True))

ROOT = Path(__file__).parents[2]
for folder in (ROOT, ROOT / "tests", ROOT / "scripts"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
from experiments.data.rows import change_json  # noqa: E402

RESULTS = ROOT / "results" / "reliability.json"
MAX_SHOWN_KINDS, MAX_SHOWN_EXAMPLES = 12, 3
UNCAUGHT = 70  # exit code of a forked function that raised
PR_SET_PDEATHSIG = 1  # Linux: the signal that a process receives when its parent ends


# ---- arguments


def parse_arguments(
    script: str, description: str | None, rounds: int, argv: Sequence[str] | None = None, **extra: Any
) -> argparse.Namespace:
    """The arguments that all scripts have, and those of `extra`: name to the keyword arguments of `add_argument`.

    Args:
        script: the name of its file, for the page.
        rounds: the default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--minutes", type=float, default=60.0, help="no further round begins after this time")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the JSON file; the page is written next to it")
    for name, options in extra.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args(argv, argparse.Namespace(script=script))


# ---- tasks in processes of their own


@dataclass(frozen=True)
class Crash:
    """A round that ended its process or exceeded its time limit."""

    reason: str


def run_tasks(
    task: Callable[[int], Any], rounds: Sequence[int], processes: int, time_limit: float, minutes: float
) -> Iterator[tuple[int, Any]]:
    """Yields each round's number and what `task` returned, in a process of its own, or a `Crash`: a signal, an exit or
    no end within the limit.

    Args:
        time_limit: seconds that one round may take.
        minutes: no further round begins after this time.
    """
    end, remaining = time.monotonic() + 60 * minutes, iter(rounds)
    running: dict[int, tuple[int, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while True:
            may_start = len(running) < processes and time.monotonic() < end
            if may_start and (number := next(remaining, None)) is not None:
                save = partial(_save_result, task, number, Path(folder, str(number)))
                running[number] = start_forked(save, Path(os.devnull)), time.monotonic()
            elif not running:
                return
            for number, (pid, started) in list(running.items()):
                code, result = wait_until_ended(pid, 0), Path(folder, str(number))
                if code is None and time.monotonic() - started < time_limit:
                    continue
                del running[number]
                if code is None:
                    kill_and_wait(pid)
                    yield number, Crash(f"no end within {time_limit:g} seconds")
                else:
                    is_done = code == 0 and result.exists()
                    yield number, pickle.loads(result.read_bytes()) if is_done else Crash(f"exit code {code}")
            time.sleep(0.002)


def _save_result(task: Callable[[int], Any], number: int, path: Path) -> int:
    path.write_bytes(pickle.dumps(task(number)))
    return 0


def _silence(log: Path) -> None:
    """Standard input from nowhere, standard output and error into a file."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)


def start_forked(function: Callable[[], int], log: Path | None) -> int:
    """Runs the function in a forked process, whose exit code is its result and whose output goes to `log`, if any.

    Returns its process id, for `os.waitpid`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    code = UNCAUGHT
    try:
        if log is not None:
            _silence(log)
        code = function()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait_until_ended(pid: int, seconds: float) -> int | None:
    """The exit code of a child, negative for a signal; None if it still runs after this time."""
    end = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.002)


def kill_and_wait(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def last_line(log: Path) -> str:
    return (log.read_text(errors="replace").strip().splitlines() or [""])[-1]


def has_ended(pid: int) -> bool:
    """Whether a child has ended, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


# ---- memory


def resident_bytes(pid: int | str = "self") -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fitted_growth(sizes: Sequence[int]) -> float:
    """How far a least-squares line rises over the second half of the measurements, in MiB."""
    import numpy as np

    second_half = np.asarray(sizes[len(sizes) // 2 :], dtype=float)
    if len(second_half) < 2:
        return 0.0
    slope = np.polyfit(np.arange(len(second_half)), second_half, 1)[0]
    return float(slope * (len(second_half) - 1) / 2**20)


# ---- results


@dataclass
class Row:
    """One check.

    Attributes:
        check: its name.
        what: what is done and what has to hold.
        command: that repeats it.
        rounds: how many were run.
        failed: how many of them failed.
        figure: what was measured.
        kinds: the failures by kind, the most frequent first.
        examples: the first failures, as text.
    """

    check: str
    what: str
    command: str
    rounds: int
    failed: int
    figure: str
    seed: int
    minutes: float
    commit: str
    kinds: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)


class Check:
    """Collects the outcomes of one check, and writes its row at the end of a `with` block, also when interrupted."""

    def __init__(self, name: str, what: str, arguments: argparse.Namespace) -> None:
        self.name, self.what, self.arguments = name, " ".join(what.split()), arguments
        self.rounds = self.failed = 0
        self.figure = ""
        self.kinds: Counter[str] = Counter()
        self.examples: list[str] = []

    def run_rounds(self, run_round: Callable[[int, random.Random], str]) -> Iterator[int]:
        """Yields after each round, of which `run_round` returns what went wrong, or an empty text."""
        end = time.monotonic() + 60 * self.arguments.minutes
        for number in range(self.arguments.rounds):
            if time.monotonic() > end:
                break
            if problem := run_round(number, random.Random(f"{self.arguments.seed}-{number}")):
                self.fail(f"round {number}: {problem}", problem)
            else:
                self.passed()
            yield number

    def __enter__(self) -> Check:
        self.started = time.monotonic()
        return self

    def passed(self, rounds: int = 1) -> None:
        self.rounds += rounds

    def fail(self, example: str, kind: str | None = None) -> None:
        """Counts a failed round.

        Args:
            kind: what failures of the same cause share.
        """
        self.rounds += 1
        self.failed += 1
        kind = kind or example
        if not self.kinds[kind] and len(self.examples) < 20:
            self.examples.append(_without_folders(example))
        self.kinds[_without_folders(kind)] += 1
        print(f"{self.name}: FAILED {_without_folders(example)}", flush=True)

    def __exit__(self, error_type: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        minutes = (time.monotonic() - self.started) / 60
        row = Row(
            self.name,
            self.what,
            _command(self.arguments),
            self.rounds,
            self.failed,
            self.figure,
            self.arguments.seed,
            round(minutes, 1),
            _commit(),
            dict(self.kinds.most_common()),
            self.examples,
        )
        if self.rounds:
            write_row(row, self.arguments.results)
        print(f"{row.check}: {row.rounds} rounds, {row.failed} failed; {row.figure} ({row.minutes} min)", flush=True)


def _command(arguments: argparse.Namespace) -> str:
    script = arguments.script
    hidden = ("script", "results", "minutes", "only", "only_folder")
    given = {name: value for name, value in vars(arguments).items() if name not in hidden and value is not None}
    return " ".join([f"python tests/soak/{script}", *(f"--{name} {value}" for name, value in given.items())])


def _commit() -> str:
    """The last commit that changed the package and its date, with a plus sign where it has uncommitted changes."""
    git = ["git", "-C", str(ROOT)]
    log = subprocess.run([*git, "log", "-1", "--format=%h %cs", "--", "copynet_hf"], capture_output=True, text=True)
    changes = subprocess.run([*git, "status", "--porcelain", "copynet_hf"], capture_output=True, text=True)
    name, _, date = log.stdout.strip().partition(" ")
    return (name or "unknown") + ("+" if changes.stdout.strip() else "") + (f" of {date}" if date else "")


def _without_folders(text: str) -> str:
    """The text on one line, without the folders of this machine."""
    text = " ".join(text.split()).replace(str(ROOT), ".")
    return re.sub(r"/(?:tmp|work|root|home|opt|var)/[^\s'\":,;)]*/", "", text)[:400]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder in memory where there is one, so that many small files are fast."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and shutil.disk_usage(memory).free > 2**30 else None
    with tempfile.TemporaryDirectory(prefix="copynet-soak-", dir=parent) as folder:
        yield Path(folder)


def write_row(row: Row, path: Path) -> None:
    """Puts the row into the JSON file in place of an earlier one of the same check, and renders the page."""
    with change_json(path, []) as rows:
        others = [each for each in rows if each["check"] != row.check]
        rows[:] = sorted([*others, asdict(row)], key=itemgetter("check"))
        path.with_suffix(".md").write_text(render_page(rows), encoding="utf-8")


INTRODUCTION = """# Reliability

Random inputs, damaged files, killed processes and full disks: each row of this page is written by a script in
[tests/soak](../tests/soak/run_all.py). `--seed` repeats the random draws; what a kill hits depends on timing as
well. `--rounds` sets the length of a run; `run_all.py` runs them all. Minutes are those of two cores shared with other
work. The commit is the last one that changed the package, with a plus sign where it had uncommitted changes. Later
defaults took no part: the kills of trainings of 22 November had neither averaged weights nor evaluations.
"""


def render_page(rows: Sequence[dict[str, Any]]) -> str:
    """The Markdown page of the rows."""
    lines = [
        INTRODUCTION,
        "| check | rounds | failed | measured | seed | minutes | commit |",
        "|---|---:|---:|---|---:|---:|---|",
    ]
    for row in rows:
        figure = row["figure"].replace("|", "\\|")
        link = f"[{row['check']}](#{row['check'].replace(' ', '-').replace(',', '')})"
        counts = f"{row['rounds']:,} | {row['failed']:,}"
        lines.append(f"| {link} | {counts} | {figure} | {row['seed']} | {row['minutes']} | {row['commit']} |")
    for row in rows:
        lines += ["", f"## {row['check']}", "", row["what"], "", f"`{row['command']}`"]
        if row["failed"]:
            lines += ["", "Failures by kind:", ""]
            lines += [f"- {count:,}: {_code(kind)}" for kind, count in row["kinds"].items()][:MAX_SHOWN_KINDS]
            lines += ["", "For example:", "", *(f"- {_code(each)}" for each in row["examples"][:MAX_SHOWN_EXAMPLES])]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """The text as code in Markdown."""
    return "`" + text.replace("`", "'") + "`"
