"""Times a training step (forward, backward, Adam) of CopyNet and of a plain attention seq2seq without copying.

    python benchmarks/training.py [--rounds 20]

Half of the target words are in the source. "by default" are the dropout, the readout, the letters, the coverage and
the tied repetitions of `copynet-hf train`, with a fifth of the source's words unseen and some words twice in it. In
the other rows CopyNet's readout has the inputs of the plain model's, [s; c; e], and a tanh layer, there is no dropout,
and all words are known. "unpacked" is the plain model without packing and masks, "narrow" with CopyNet's tanh layer.
The large tasks are only timed with the last number of --threads. Writes its section of results/benchmarks.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import measure
import torch
from plain_seq2seq import PlainSeq2Seq
from torch import Tensor

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration
from copynet_hf.model.vocabularies import BOUNDARY, NUM_SPECIAL_LETTERS
from copynet_hf.training.presets import DEFAULT_SIZES

NUM_LETTERS, LETTERS_OF_WORD = 60, 6  # of unseen words, by default


@dataclass
class Task:
    """Sizes of model and batch.

    With `mixed`, lengths vary between a third of `source` and `source`; with `by_default`, the model has the defaults
    of `copynet-hf train`, and the source unseen and repeated words.
    """

    name: str
    source: int
    target: int
    vocab_size: int
    embedding: int
    hidden: int
    batch: int = 64
    mixed: bool = False
    by_default: bool = False

    def known(self, ids: Tensor) -> Tensor:
        """The ids as a model without copying reads them: unseen words are the unknown word."""
        return ids.masked_fill(ids >= self.vocab_size, 3)


SYNTHETIC = Task("synthetic", 25, 20, 1_002, 150, 300)
LCSTS = Task("LCSTS's sizes, 3,000", 110, 18, 3_000, 350, 500)
LCSTS_MIXED = replace(LCSTS, name="LCSTS's sizes, mixed lengths", mixed=True)
SMALL = [SYNTHETIC, replace(SYNTHETIC, name="synthetic, by default", by_default=True)]
TASKS = [*SMALL, LCSTS, LCSTS_MIXED, replace(LCSTS_MIXED, name=f"{LCSTS_MIXED.name}, by default", by_default=True)]
TASKS += [replace(LCSTS, name="LCSTS's sizes, 10,000", vocab_size=10_000)]
LARGE_VOCABULARY = replace(LCSTS, name="LCSTS's sizes, 50,000", vocab_size=50_000)


def make_batch(task: Task) -> dict[str, Tensor]:
    torch.manual_seed(0)
    lengths = torch.full((task.batch,), task.source)
    if task.mixed:
        lengths = torch.randint(task.source // 3, task.source + 1, (task.batch,))
        lengths[0] = task.source
    source = torch.randint(4, task.vocab_size, (task.batch, task.source))
    if task.by_default:
        source = _add_unseen_words(source, task.vocab_size)
    labels = torch.randint(4, task.vocab_size, (task.batch, task.target))
    copied = torch.arange(0, task.target, 2)
    labels[:, copied] = source[:, copied % (task.source // 3)]
    mask = (torch.arange(task.source) < lengths[:, None]).long()
    start = torch.ones(task.batch, 1, dtype=torch.long)
    letters = {"letter_ids": _draw_letters(source, task.vocab_size)} if task.by_default else {}
    return letters | {
        "input_ids": source * mask,
        "attention_mask": mask,
        "labels": labels,
        "words": torch.cat([start, labels[:, :-1]], dim=1),
        "lengths": lengths,
    }


def _add_unseen_words(source: Tensor, vocab_size: int) -> Tensor:
    """Makes a fifth of the words unseen, and a fifth of those in the second half repeat one of the first."""
    middle = source.shape[1] // 2
    repeated = torch.rand(source.shape) < 0.2
    repeated[:, :middle] = False
    unseen = (torch.rand(source.shape) < 0.2) & ~repeated
    source = torch.where(unseen, vocab_size - 1 + unseen.cumsum(dim=1), source)
    return torch.where(repeated, source.roll(middle, dims=1), source)


def _draw_letters(source: Tensor, vocab_size: int) -> Tensor:
    """Random letters of the unseen words, as the tokenizer returns them."""
    most = int((source >= vocab_size).sum(dim=1).max())
    letters = torch.randint(NUM_SPECIAL_LETTERS, NUM_LETTERS, (source.shape[0], most, 1 + LETTERS_OF_WORD))
    letters[..., 0] = BOUNDARY
    return letters.flatten(1)


def build_plain_step(task: Task, narrow: bool = False, packed: bool = True, device: str = "cpu") -> Any:
    model: Any = PlainSeq2Seq(task.vocab_size, task.embedding, task.hidden, narrow, packed).to(device)
    batch = make_batch(task)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    source, words, labels = (task.known(batch[name]).to(device) for name in ("input_ids", "words", "labels"))

    def step() -> None:
        optimizer.zero_grad()
        model(source, batch["lengths"], words, labels).backward()
        optimizer.step()

    return step


def build_copynet_step(task: Task, bf16: bool = False, device: str = "cpu", use_fused: bool = True) -> Any:
    batch = {name: value.to(device) for name, value in make_batch(task).items() if name not in ("words", "lengths")}
    model: Any = CopyNetForConditionalGeneration(make_config(task, use_fused)).to(device)
    if task.by_default:
        model.get_encoder().tied_repetitions.is_rare[task.vocab_size // 10 :] = True
    return measure.build_training_step(model, batch, bf16)


def make_config(task: Task, use_fused: bool = True) -> CopyNetConfig:
    return CopyNetConfig(
        vocab_size=task.vocab_size,
        embedding_size=task.embedding,
        hidden_size=task.hidden,
        encoder_hidden_size=task.hidden,
        attention_size=task.hidden,
        max_source_oov=task.source if task.by_default else 8,
        letter_vocab_size=NUM_LETTERS if task.by_default else 0,
        dropout=DEFAULT_SIZES["dropout"] if task.by_default else 0.0,
        encoder_residual=task.by_default,
        tie_repetitions=task.by_default,
        use_coverage=task.by_default,
        readout=None if task.by_default else ["state", "context", "embedding"],
        use_fused=use_fused,
    )


def time_steps(task: Task, threads: int, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(threads)
    calls = {"plain": build_plain_step(task), "unpacked": build_plain_step(task, packed=False)}
    calls |= {"narrow": build_plain_step(task, narrow=True)}
    calls |= {"copynet": build_copynet_step(task), "bf16": build_copynet_step(task, bf16=True)}
    return measure.time_side_by_side(calls, rounds)


def measure_memory(task: Task, kind: str) -> float:
    """Peak mebibytes of three steps, above those of the imports."""
    torch.set_num_threads(1)
    before = measure.peak_mebibytes()
    step = {"plain": build_plain_step, "copynet": build_copynet_step}[kind](task)
    for _ in range(3):
        step()
    return measure.peak_mebibytes() - before


def measure_loss_memory(use_fused: bool) -> float:
    """Peak memory of a step with a vocabulary of 50,000, relative to the float32 scores (batch, steps, vocabulary).

    The layers are narrow, so that they take little memory.
    """
    torch.set_num_threads(1)
    config = make_config(replace(LARGE_VOCABULARY, embedding=16, hidden=16), use_fused)
    batch = {name: value for name, value in make_batch(LARGE_VOCABULARY).items() if name not in ("words", "lengths")}
    model = CopyNetForConditionalGeneration(config).train()
    before = measure.peak_mebibytes()
    model(**batch, num_items_in_batch=batch["labels"].numel()).loss.backward()
    scores = 4 * batch["labels"].numel() * config.vocab_size / 2**20
    return (measure.peak_mebibytes() - before) / scores


def main() -> None:
    args = measure.parse_arguments(__doc__, threads=measure.THREADS)
    rows = []
    for task in TASKS:
        peaks = [f"{measure.run_in_process(measure_memory, task, kind):.0f}" for kind in ("plain", "copynet")]
        for threads in args.threads if task in SMALL else args.threads[-1:]:
            seconds = measure.run_in_process(time_steps, task, threads, args.rounds)
            pairs = [(ours, plain) for plain in ("plain", "unpacked") for ours in ("copynet", "bf16")]
            pairs += [("copynet", "narrow")]
            rows.append(
                [
                    *(task.name, threads, *measure.format_times(seconds, seconds)),
                    *(measure.format_ratio(seconds, *pair) for pair in pairs),
                    *peaks,
                ]
            )
            print(rows[-1], flush=True)
    header = ["task", "threads", "plain ms", "unpacked ms", "narrow ms", "CopyNet ms", "bf16 ms"]
    header += ["CopyNet / plain", "bf16 / plain", "CopyNet / unpacked", "bf16 / unpacked", "CopyNet / narrow"]
    header += ["plain MiB", "CopyNet MiB"]
    by_hand, by_autograd = (measure.run_in_process(measure_loss_memory, use_fused) for use_fused in (True, False))
    measure.write_section(
        "Training",
        "training",
        rounds=args.rounds,
        batch=SYNTHETIC.batch,
        table=measure.format_table(header, rows),
        by_hand=by_hand,
        by_autograd=by_autograd,
    )


if __name__ == "__main__":
    main()
