"""CPU time of `import copynet_hf` beside that of the classes it extends, of `--help`, and of a line of `generate`.

    python benchmarks/startup.py [--rounds 5]

Each is a process of its own, on one thread. The model has the default sizes and is untrained. User and system time
are counted, which other programs on the machine hardly change. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measure import format_ratio, format_times, parse_arguments, time_side_by_side, write_section

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.commands import COMMANDS
from copynet_hf.data import quickstart_pairs
from copynet_hf.training.presets import DEFAULT_SIZES

ROOT = Path(__file__).parents[1]
EXTENDED = "import torch; from transformers import GenerationMixin, PreTrainedModel; "
EXTENDED += "from transformers.pipelines import PIPELINE_REGISTRY"
CODE = {"libraries": "import torch, transformers", "extended": EXTENDED, "package": "import copynet_hf"}
PAIRS = quickstart_pairs("train", 2000)


def run(*argv: str) -> None:
    """A Python process on one thread; it may read one line of text."""
    environment, line = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, PAIRS[0]["text"].encode()
    subprocess.run([sys.executable, *argv], env=environment, input=line, stdout=subprocess.DEVNULL, check=True)


def count_processor_seconds() -> float:
    """User and system time of the processes that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def save_model(folder: str) -> None:
    texts = (text for pair in PAIRS for text in pair.values())
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, vocab_size=500, segmenter="word_punct", min_frequency=5)
    CopyNetForConditionalGeneration(CopyNetConfig.for_tokenizer(tokenizer, **DEFAULT_SIZES)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def collect_figures(seconds: Mapping[str, list[float]]) -> dict[str, Any]:
    """What the template shows, from the seconds of each call."""
    helps = [name for name in seconds if name.startswith("help ")]
    return {
        "seconds": {name: f"{float(format_times(seconds, [name])[0]) / 1e3:.2f}" for name in seconds},
        "ratios": {name: format_ratio(seconds, "package", name) for name in ("libraries", "extended")},
        "slowest_help": max(float(format_times(seconds, [name])[0]) for name in helps),
        "commands": len(helps),
    }


def main() -> None:
    arguments = parse_arguments(__doc__, rounds=5)
    with TemporaryDirectory() as folder:
        save_model(folder)
        calls = {name: partial(run, "-c", code) for name, code in CODE.items()}
        script = str(ROOT / "copynet_hf_command.py")
        calls["generate"] = partial(run, script, "generate", "--model", folder)
        calls |= {f"help {name}": partial(run, script, name, "--help") for name in COMMANDS}
        seconds = time_side_by_side(calls, arguments.rounds, warmup=1, clock=count_processor_seconds)
    write_section("Startup", "startup", rounds=arguments.rounds, **collect_figures(seconds))


if __name__ == "__main__":
    main()
