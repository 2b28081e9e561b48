"""The page of peers.py: results/peers.md from results/peers.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from measure import format_table, median_milliseconds, median_ratio

OURS, THEIRS = "copynet_hf", "yoyodyne"
SOURCE = "https://github.com/CUNY-CL/yoyodyne/blob/master"

_PAGE = """# Comparison with yoyodyne

[yoyodyne](https://github.com/CUNY-CL/yoyodyne) trains small sequence-to-sequence models on TSV files of strings and
features, with PyTorch and Lightning. It is the maintained package whose purpose is closest to this one's. Here both
learn inflection (SIGMORPHON–UniMorph 2022): the form of a lemma with given features, such as `walk` and `V;PST`:
`walked`. copynet_hf runs its default command, yoyodyne {version} its pointer-generator GRU. Written by `python
benchmarks/peers.py`, which installs yoyodyne in an environment of its own.

## Speed and memory

{speed}

Medians of {rounds} rounds in which the two alternate, one thread each, and medians of the ratios within a round: below
1 copynet_hf is faster. A training step is one of each package's own Trainer: loading the batch, forward, backward,
update. The searches predict the {words} words of {searched}, from text to text, with the models trained on
{search_set}; copynet_hf also traces every letter to its position in the lemma.

{memory}

Peak resident memory of a training process on one thread, without evaluation; in brackets that of the imports alone.
yoyodyne's data loader is a process of its own, which is not counted.

## Accuracy

{accuracy}

Exact match in percent, beam 5, one model each (seed {seed}); the test set was scored once. An unseen letter is one
that occurs in no lemma and no form of the training set: the words counted here have one in their form. CPU minutes
are those of the training command, evaluations included.

## What was equal, and what was not

- Equal: data, features, {epochs} epochs, one thread, float32; embeddings of {embedding_size}, a bidirectional GRU
  encoder of {encoder_hidden_size} per direction, a GRU decoder of {hidden_size}, one layer each, dropout {dropout}.
  The training steps that were timed have the same batches in the same order; all searches have batches of
  {search_batch_size}.
- Not equal: the attention's hidden layer has {attention_size} units in copynet_hf, and as many as the decoder in
  yoyodyne. Both attend to the features separately (yoyodyne with its linear features encoder); copynet_hf also adds
  their sum to the encoder's states.
- For accuracy each package trains in its own way. copynet_hf: batches of {our_batch_size}, AdamW with a linearly
  decaying learning rate, vocabulary dropout, label smoothing 0.1, averaged weights. yoyodyne: its defaults (batches of
  {their_batch_size}, and therefore half as many updates; Adam with a constant learning rate of 0.001), with dropout
  and gradient clipping as in its [example configurations]({source}/configs/README.md). Other settings, such as its
  default hidden size of 512, may score higher.
- Both select the checkpoint by accuracy on the dev set under teacher forcing: copynet_hf by the mean of word and
  letter accuracy, evaluated 40 times; yoyodyne by word accuracy, evaluated after every epoch.
- In searches copynet_hf sorts the words by length; yoyodyne keeps the order of the file.

## Unseen letters

A letter that is not in the training set is `<UNK>` in yoyodyne's index
([indexes.py]({source}/yoyodyne/data/indexes.py)). Its pointer-generator adds the attention to the probabilities of
the vocabulary ([pointer_generator/rnn.py]({source}/yoyodyne/models/pointer_generator/rnn.py)), so copying such a
letter gives `<UNK>`, which is left out of the output ([mappers.py]({source}/yoyodyne/data/mappers.py)). copynet_hf
gives the letter a slot of its source, and copies the letter itself.

## What yoyodyne does better

- More architectures for the same task: transformers with absolute, sinusoidal or rotary positions, hard monotonic
  attention, transducers trained by imitation, LSTMs, and a choice of encoders for the features.
- Student forcing in training, and hyperparameter sweeps with Weights & Biases.
- YAML configurations that can be combined and overridden, and Lightning's Trainer with all its accelerators,
  precisions and loggers.

## How it was made

copynet_hf: {machine}

yoyodyne {version}: {yoyodyne_versions}, on the same machine.
"""


def render_page(results: Mapping[str, Any]) -> str:
    """The text of results/peers.md."""
    sizes, batch_sizes = results["sizes"], results["batch_sizes"]
    search = results["searches"][0]
    return _PAGE.format(
        version=results["yoyodyne"],
        source=SOURCE,
        speed=render_speed(results),
        memory=render_memory(results),
        accuracy=render_accuracy(results),
        rounds=len(search["seconds"][OURS]),
        words=f"{search['words']:,}",
        searched=f"`{search['file']}`",
        search_set=results["accuracy"][0]["set"],
        our_batch_size=batch_sizes[OURS],
        their_batch_size=batch_sizes[THEIRS],
        **{name: results[name] for name in ("seed", "epochs", "search_batch_size", "machine", "yoyodyne_versions")},
        **sizes,
    )


def render_speed(results: Mapping[str, Any]) -> str:
    rows = []
    for measured in results["steps"]:
        steps = {
            system: [each / measured["steps"] for each in measured["seconds"][system]] for system in (OURS, THEIRS)
        }
        times = [f"{median_milliseconds(steps[system]):.0f} ms" for system in (OURS, THEIRS)]
        name = f"training step, {measured['set']}, batch {measured['batch_size']}"
        rows.append([name, *times, f"{median_ratio(steps, OURS, THEIRS):.2f}"])
    for measured in results["searches"]:
        seconds = measured["seconds"]
        times = [f"{median_milliseconds(seconds[system]) / 1000:.1f} s" for system in (OURS, THEIRS)]
        ratio = f"{median_ratio(seconds, OURS, THEIRS):.2f}"
        rows.append([f"{measured['search']}, {measured['words']:,} words", *times, ratio])
    return format_table(["", OURS, THEIRS, "ratio"], rows)


def render_memory(results: Mapping[str, Any]) -> str:
    header = ["training", *(f"{system}, {unit}" for unit in ("MiB", "parameters") for system in (OURS, THEIRS))]
    rows = []
    for measured in results["steps"]:
        peaks = [
            f"{measured['peak_mebibytes'][system]:,} ({measured['import_mebibytes'][system]:,})"
            for system in (OURS, THEIRS)
        ]
        parameters = [f"{measured['parameters'][system]:,}" for system in (OURS, THEIRS)]
        rows.append([f"{measured['set']}, batch {measured['batch_size']}", *peaks, *parameters])
    return format_table(header, rows)


def render_accuracy(results: Mapping[str, Any]) -> str:
    rows = []
    for scored in results["accuracy"]:
        num_unseen = scored["unseen_words"]
        for system in (OURS, THEIRS):
            scores = scored["systems"][system]
            unseen = f"{scores['unseen_right']} of {num_unseen}" if num_unseen else "no such words"
            minutes = f"{scores['cpu_minutes']:.1f}"
            rows.append([scored["set"], system, scores["dev"], scores["test"], unseen, minutes])
    header = ["training set", "package", "dev", "test", "test, unseen letter", "CPU minutes"]
    return format_table(header, rows)
