"""`copynet-hf quickstart`."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import Arguments, Command, argument, count


@dataclass
class QuickstartArguments(Arguments):
    output_dir: str = argument("folder for the model and the picture", "copynet-quickstart", "FOLDER")
    overwrite_output_dir: bool = argument("replace the model in output_dir", False)
    seed: int = argument("random seed of the data and the model", 0)
    threads: int = count("number of PyTorch threads; more do not help so small a model", 1)


def quickstart(args: QuickstartArguments) -> None:
    """Trains a small model on synthetic requests and shows what it copies, in under three minutes."""
    from ..training.quickstart import run_quickstart

    run_quickstart(**vars(args))


COMMAND = Command(quickstart, "", QuickstartArguments)
