"""Compares the speed of data-parallel training in two processes with training in one.

    python benchmarks/distributed.py [--rounds 5] [--steps 30]

One CPU thread per process, `copynet-hf train` under torchrun, the sizes of the synthetic task. Writes its section of
results/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import format_table, parse_arguments, write_section
from training import SYNTHETIC, make_batch

# Exits without shutting down the interpreter, in which gloo's threads may abort (pytorch/pytorch#179291).
SCRIPT = """
import os, sys
from copynet_hf.cli import main
code = main(sys.argv[1:])
sys.stdout.flush(), sys.stderr.flush()
os._exit(code)
"""


def write_pairs(file: Path, number: int) -> None:
    """Writes the rows of `make_batch` as texts."""
    batch = make_batch(SYNTHETIC)
    texts = [
        [" ".join(f"w{word}" for word in row) for row in batch[name].tolist()] for name in ("input_ids", "labels")
    ]
    rows = [json.dumps({"text": text, "summary": summary}) for text, summary in zip(*texts, strict=True)]
    file.write_text("".join(f"{rows[index % len(rows)]}\n" for index in range(number)), encoding="utf-8")


def measure_rate(folder: Path, processes: int, steps: int) -> float:
    """Trains for some steps in so many processes; returns the pairs per second."""
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    sizes = {"embedding_size": SYNTHETIC.embedding, "hidden_size": SYNTHETIC.hidden}
    sizes |= dict.fromkeys(("encoder_hidden_size", "attention_size"), SYNTHETIC.hidden)
    files = {"train_file": folder / "train.jsonl", "output_dir": folder / "model", "overwrite_output_dir": True}
    training = {"per_device_train_batch_size": SYNTHETIC.batch, "max_steps": steps, "min_frequency": 1}
    fixed = {"segmenter": "whitespace", "save_strategy": "no", "use_cpu": True, "threads": 1, "disable_tqdm": True}
    arguments = [f"--{name}={value}" for name, value in {**files, **sizes, **training, **fixed}.items()]
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    command = [sys.executable, *launch, str(folder / "train.py"), "train", *arguments]
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    results = json.loads((folder / "model" / "train_results.json").read_text(encoding="utf-8"))
    return float(results["train_samples_per_second"])


def main() -> None:
    args = parse_arguments(__doc__, rounds=5, steps={"type": int, "default": 30, "help": "of each training"})
    rates: dict[int, list[float]] = {1: [], 2: []}
    with TemporaryDirectory() as folder:
        write_pairs(Path(folder, "train.jsonl"), 2 * SYNTHETIC.batch * args.steps)
        for _ in range(args.rounds):  # in turns, so that slow moments of the machine affect both
            for processes, of_rounds in rates.items():
                of_rounds.append(measure_rate(Path(folder), processes, args.steps))
                print(f"{processes}: {of_rounds[-1]:.1f} pairs/s", flush=True)
    ratio = statistics.median(two / one for one, two in zip(rates[1], rates[2], strict=True))
    ratios = {1: "1.00", 2: f"{ratio:.2f}"}
    rows = [[number, f"{statistics.median(of_rounds):.0f}", ratios[number]] for number, of_rounds in rates.items()]
    table = format_table(["processes", "pairs/s", "ratio"], rows)
    write_section(
        "Two processes", "distributed", batch=SYNTHETIC.batch, rounds=args.rounds, steps=args.steps, table=table
    )


if __name__ == "__main__":
    main()
