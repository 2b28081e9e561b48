"""A way to train that the defaults were compared with, and that `copynet-hf train` does not offer."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from copynet_hf import CopyNetForConditionalGeneration

NUM_SPECIAL_WORDS = 4  # of a trained tokenizer: padding, start, end, UNK


class CopiedWordAugmentation:
    """A data collator that replaces some of the words that a target has from its source, in both of them.

    Args:
        collate: collates the rows, changed while the model is in training mode.
        rows: the training rows, from which other words are drawn, as often as they are copied there.
        probability: that of a word to be replaced.
    """

    def __init__(
        self,
        collate: Callable[..., Any],
        model: CopyNetForConditionalGeneration,
        rows: Sequence[Mapping[str, Any]],
        probability: float,
    ) -> None:
        self.collate, self.model, self.probability = collate, model, probability
        self.random = random.Random(0)
        counts = Counter(word for row in rows for word in self._copied_words(row))
        self.words, self.counts = list(counts), list(counts.values())

    def _copied_words(self, row: Mapping[str, Any]) -> list[int]:
        shared = set(row["input_ids"]) & set(row["labels"])
        return sorted(word for word in shared if NUM_SPECIAL_WORDS <= word < self.model.config.vocab_size)

    def __call__(self, rows: Sequence[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        return self.collate([self._change(row) if self.model.training else row for row in rows], *args, **kwargs)

    def _change(self, row: dict[str, Any]) -> dict[str, Any]:
        changes: dict[int, int] = {}
        for word in self._copied_words(row):
            if self.random.random() < self.probability:
                changes[word] = self.random.choices(self.words, self.counts)[0]
        changed = {name: [changes.get(index, index) for index in row[name]] for name in ("input_ids", "labels")}
        return {**row, **changed}
