"""Random configurations: distributions, finite gradients, the fast form against the readable one, the oracle.

python tests/soak/random_configurations.py --rounds 10000
python tests/soak/random_configurations.py --only 4711    # one configuration again, with its traceback
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from harness import Check, Crash, parse_arguments, run_tasks

import torch  # isort: skip - after harness, which sets the number of threads
from helpers import padded, tiny_model
from oracle import Oracle

from copynet_hf import CopyNetForConditionalGeneration
from copynet_hf.model.configuration_copynet import COPY_MECHANISMS, READOUT_PARTS

WHAT = """Mechanisms, options, sizes, special ids, weights and batches are drawn at random. In float32 all
probabilities must lie in [0, 1] and sum to 1 within 1e-5, in evaluation and in training with dropout, and loss and
gradients must be finite. In float64 the fast form must give the probabilities, loss and gradients of the readable
form within 1e-8, and, where [tests/oracle.py](../tests/oracle.py) covers the configuration, its probabilities and
loss within 1e-8."""
TOLERANCE = 1e-8


# ---- configurations and batches


def draw_fields(draw: random.Random) -> dict[str, Any]:
    """The fields of a config, with any mechanism and any options that it accepts."""
    name = draw.choice(list(COPY_MECHANISMS))
    mechanism = COPY_MECHANISMS[name]
    vocab_size = draw.randint(5, 23)
    fields: dict[str, Any] = {
        "copy_mechanism": name,
        "vocab_size": vocab_size,
        "embedding_size": draw.randint(1, 9),
        "hidden_size": draw.randint(1, 9),
        "encoder_hidden_size": draw.randint(1, 6),
        "num_hidden_layers": draw.choice([1, 1, 2, 3]),
        "attention_size": draw.randint(1, 8),
        "max_source_oov": draw.randint(0, 6),
        "dropout": draw.choice([0.0, 0.1, 0.5]),
    }
    ids = draw.sample(range(vocab_size), 5)
    fields |= dict(zip(("pad_token_id", "bos_token_id", "unk_token_id", "decoder_start_token_id"), ids, strict=False))
    ends = [ids[4], [ids[4]], [ids[4], ids[1]], None]
    fields["eos_token_id"] = draw.choice(ends[:3] if name == "pointer" else ends)
    options = mechanism.options
    if "attention" in options:
        fields["attention"] = draw.random() < 0.8
    if "selective_read" in options:
        fields["selective_read"] = draw.random() < 0.7
    if "use_coverage" in options and fields.get("attention", True) and draw.random() < 0.5:
        fields |= {"use_coverage": True, "coverage_loss_weight": draw.choice([0.0, 0.3, 1])}
    if "readout" in options and draw.random() < 0.5:
        available = [part for part in READOUT_PARTS[1:] if part != "selective_read" or fields.get("selective_read")]
        fields["readout"] = ["state", *draw.sample(available, draw.randint(0, len(available)))]
    if "tie_word_embeddings" in options:
        fields["tie_word_embeddings"] = draw.random() < 0.3
    if "copies_from" in options:
        fields["copies_from"] = draw.choice([["question", "facts"]] * 3 + [["question"], ["facts"], []])
    if "num_features" in options:
        fields["num_features"] = draw.choice([0, 1, 2, 3])
    if "feature_vocab_size" in options and fields.get("attention", True):
        fields["feature_vocab_size"] = draw.choice([0, 5])
    if "aligned_words" in options and draw.random() < 0.3:
        fields |= {"aligned_words": draw.randint(1, 4), "frequent_words": draw.randint(0, vocab_size)}
    if "gated_loss" in options:
        fields |= {"gated_loss": draw.choice(["mixture", "summed"]), "gate_loss_weight": draw.choice([0, 0.5, 1.0])}
    if name == "pointer":
        fields["max_source_oov"] = draw.randint(10, 14)  # a slot for each position
    return fields


def draw_batch(draw: random.Random, config: Any) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """The model's inputs, and the rows that they are made of: source and target, kinds or points, features."""
    vocab_size, slots = config.vocab_size, config.max_source_oov
    special = {config.pad_token_id, *config.end_token_ids}
    words = [word for word in range(vocab_size + slots) if word not in special]
    if config.copy_mechanism != "pointer" and draw.random() < 0.2:
        words += [*special, vocab_size + slots, vocab_size + slots + 1]  # also words beyond the last slot
    rows = []
    for _ in range(draw.randint(1, 4)):
        length = draw.randint(1, 9)
        row: dict[str, Any] = {"source": draw.choices(words, k=length)}
        readable = row["source"]
        if config.num_features:
            row["source"] = readable = [vocab_size + j for j in range(length)]
            row["points"] = [[draw.uniform(-1, 1) for _ in range(config.num_features)] for _ in range(length)]
        if config.mechanism.retrieves:
            facts = draw.randint(0, 3)
            objects = draw.choices(words, k=facts)
            triples = [word for each in objects for word in (*draw.choices(words, k=2), each)]
            row |= {"source": row["source"] + triples, "kinds": [0] * length + [1, 2, 3] * facts}
            readable = readable + objects
        if config.feature_vocab_size:
            row["features"] = draw.choices(range(config.feature_vocab_size + 2), k=draw.randint(0, 4))
        generated = [] if config.copy_mechanism == "pointer" else list(range(vocab_size))
        target = [draw.choice(readable if draw.random() < 0.6 or not generated else generated) for _ in range(6)]
        end = [config.end_token_ids[0]] if config.end_token_ids else []
        row["target"] = target[: draw.randint(0 if end else 1, 6)] + end
        rows.append(row)
    side = "right" if config.num_features else draw.choice(["left", "right"])  # a point's slot is its column
    return pack(rows, config, side), rows


def pack(rows: Sequence[dict[str, Any]], config: Any, side: str) -> dict[str, torch.Tensor]:
    """The padded tensors of the rows."""
    inputs = {"labels": padded([row["target"] for row in rows], -100)}
    inputs["attention_mask"] = padded([[1] * len(row["source"]) for row in rows], 0, side)
    if config.num_features:
        width = inputs["attention_mask"].shape[1]
        blank = [[9.0] * config.num_features]
        fills = [blank * (width - len(row["points"])) for row in rows]
        points = [row["points"] + fill for row, fill in zip(rows, fills, strict=True)]
        inputs["input_features"] = torch.tensor(points, dtype=torch.float64)
    else:
        inputs["input_ids"] = padded([row["source"] for row in rows], config.pad_token_id, side)
    if config.feature_vocab_size:
        inputs["feature_ids"] = padded([row["features"] or [0] for row in rows], 0)
    if config.mechanism.retrieves:
        inputs["token_type_ids"] = padded([row["kinds"] for row in rows], 0, side)
    return inputs


# ---- one configuration


def check_configuration(seed: int, number: int) -> list[str]:
    """What does not hold for one configuration; the first item names the configuration."""
    torch.set_num_threads(1)
    draw = random.Random(f"{seed}-{number}")
    fields, scale = draw_fields(draw), draw.uniform(0.3, 2.5)
    problems: list[str] = []
    models = {}
    for use_fused in (True, False):
        models[use_fused] = tiny_model(seed=number, scale=scale, use_fused=use_fused, **fields)
        if models[use_fused].alignments is not None:
            table = models[use_fused].alignments.table
            filled = [random.Random(f"{number}-{i}").randrange(len(table)) for i in range(table.numel())]
            table.copy_(torch.tensor(filled).view_as(table))
    inputs, rows = draw_batch(draw, models[True].config)
    single = {name: value.float() if name == "input_features" else value for name, value in inputs.items()}
    problems += [f"float32: {problem}" for problem in find_float32_problems(models[True], single)]
    models = {form: model.double().eval() for form, model in models.items()}
    problems += compare_forms(models, inputs)
    problems += compare_with_oracle(models[True], inputs, rows)
    return [f"{fields} scale={scale:.2f}", *problems] if problems else []


def find_float32_problems(model: CopyNetForConditionalGeneration, inputs: dict[str, torch.Tensor]) -> list[str]:
    """What is no distribution, or not finite, in evaluation and in training."""
    problems = []
    for mode, training in (("evaluation", False), ("training", True)):
        model.train(training).zero_grad()
        output = model(**inputs)
        probs = output.logits.detach().exp()
        sums = probs.sum(-1)
        if not torch.isfinite(probs).all() or probs.min() < 0 or probs.max() > 1 + 1e-5:
            problems.append(f"a probability is not in [0, 1] in {mode}: {probs.min():g} to {probs.max():g}")
        elif (sums - 1).abs().max() > 1e-5:
            problems.append(f"probabilities sum to {sums.min():.7f} to {sums.max():.7f} in {mode}")
        if not torch.isfinite(output.loss):
            problems.append(f"the loss is {output.loss.item()} in {mode}")
        output.loss.backward()
        bad = [
            name
            for name, parameter in model.named_parameters()
            if parameter.grad is not None and not torch.isfinite(parameter.grad).all()
        ]
        if bad:
            problems.append(f"gradients are not finite in {mode}: {', '.join(bad)}")
    return problems


def compare_forms(models: dict[bool, CopyNetForConditionalGeneration], inputs: dict[str, torch.Tensor]) -> list[str]:
    """Where the fast form differs from the readable one, in float64."""
    outputs, gradients = {}, {}
    for form, model in models.items():
        model.zero_grad()
        outputs[form] = model(**inputs)
        outputs[form].loss.backward()
        gradients[form] = {name: parameter.grad for name, parameter in model.named_parameters()}
    problems = []
    difference = (outputs[True].logits.exp() - outputs[False].logits.exp()).abs().max().item()
    if not difference < TOLERANCE:
        problems.append(f"the fast form's probabilities differ by {difference:g}")
    fast, readable = (outputs[form].loss.item() for form in (True, False))
    if not math.isclose(fast, readable, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        problems.append(f"the fast form's loss is {fast!r}, the readable form's {readable!r}")
    for name, expected in gradients[False].items():
        found = gradients[True][name]
        if (found is None) != (expected is None):
            found = torch.zeros(1) if found is None else found
            expected = torch.zeros(1) if expected is None else expected
        if expected is None:
            continue
        difference = (found - expected).abs().max().item()
        if not difference < TOLERANCE * max(expected.abs().max().item(), 1.0):
            problems.append(f"the fast form's gradient of {name} differs by {difference:g}")
    return problems


def compare_with_oracle(
    model: CopyNetForConditionalGeneration, inputs: dict[str, torch.Tensor], rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Where probabilities or loss differ from the oracle's; it covers neither aligned words nor a part of CoreQA."""
    config = model.config
    is_partial = config.mechanism.retrieves and (len(config.copies_from) < 2 or config.tie_word_embeddings)
    if config.aligned_words or is_partial:
        return []
    with torch.no_grad():
        output = model(**inputs)
    oracle, problems, total = Oracle(model), [], 0.0
    for index, row in enumerate(rows):
        source = [_fold(word, config) for word in row["source"]]
        copied = source
        if config.mechanism.retrieves:
            copied = [word for word, kind in zip(source, row["kinds"], strict=True) if kind in (0, 3)]
        target = [
            word if word < config.vocab_size or word in copied else config.unk_token_id for word in row["target"]
        ]
        words = [config.decoder_start_token_id, *target[:-1]]
        oracle.features = row.get("features", [])
        steps, loss = _run_oracle(oracle, source, words, target, row)
        total += loss
        for t, probs in enumerate(steps):
            actual = output.logits[index, t].exp().numpy()
            difference = max(abs(actual[word] - share) for word, share in probs.items())
            if not difference < TOLERANCE:
                problems.append(f"probabilities of row {index}, step {t} differ from the oracle's by {difference:g}")
    total /= sum(len(row["target"]) for row in rows)
    is_covered = not (config.copy_mechanism == "gated" and isinstance(config.eos_token_id, list))
    if is_covered and not math.isclose(output.loss.item(), total, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        problems.append(f"the loss is {output.loss.item()!r}, the oracle's {total!r}")
    return problems


def _fold(word: int, config: Any) -> int:
    """UNK for a word beyond the last slot."""
    return word if word < config.extended_vocab_size else config.unk_token_id


def _run_oracle(
    oracle: Oracle, source: list[int], words: list[int], target: list[int], row: dict[str, Any]
) -> tuple[list[dict[int, float]], float]:
    """The oracle's {id: p} of each step, and its loss summed over the steps."""
    config = oracle.c
    if config.copy_mechanism == "pointer":
        steps = []
        for share in oracle.point(source, words, row.get("points")):
            probs = {config.end_token_ids[0]: share[-1]}
            for word, each in zip(source, share, strict=False):
                probs[word] = probs.get(word, 0.0) + each
            steps.append(probs)
    elif config.mechanism.retrieves:
        steps = [probs for probs, _ in oracle.retrieve(source, row["kinds"], words)]
    else:
        probs = oracle.run(source, words).probs
        return probs, oracle.loss(source, target) * len(target)
    losses = [-np.log(probs[word]) for probs, word in zip(steps, target, strict=True)]
    return steps, float(sum(losses))


# ---- all of them


def check_safely(seed: int, number: int) -> list[str]:
    """As `check_configuration`; an exception is a problem as well."""
    try:
        return check_configuration(seed, number)
    except Exception as error:
        return ["", f"{type(error).__name__}: {error}"]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(
        "random_configurations.py",
        __doc__,
        10_000,
        argv,
        processes={"type": int, "default": 2},
        only={"type": int, "default": None},
    )
    if arguments.only is not None:
        problems = check_configuration(arguments.seed, arguments.only)
        print("\n".join(problems) or "nothing to report")
        return len(problems) > 0
    with Check("random configurations", WHAT, arguments) as check:
        task = partial(check_safely, arguments.seed)
        for number, problems in run_tasks(task, range(arguments.rounds), arguments.processes, 120, arguments.minutes):
            if isinstance(problems, Crash):
                problems = ["", problems.reason]
            if problems:
                check.fail(f"--only {number}: {'; '.join(problems[1:])} with {problems[0]}", _kind(problems[1]))
            else:
                check.passed()
        check.figure = f"{check.failed} differences"
    return check.failed > 0


def _kind(problem: str) -> str:
    """The problem without its numbers."""
    import re

    return re.sub(r"-?\d+\.?\d*(e-?\d+)?|nan|inf", "N", problem)


if __name__ == "__main__":
    sys.exit(main())
