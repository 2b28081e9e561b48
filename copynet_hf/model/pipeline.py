"""`pipeline("copy-text2text")`: texts in; out come texts, and for each word whether and from where it was copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import Pipeline

from .words import encode_sources, hidden_ids, output_words, source_words, text_pieces

TASK = "copy-text2text"

Source = str | Mapping[str, Any]


class CopyText2TextPipeline(Pipeline):
    """Texts from texts, with the origin of each word.

    It takes a text, or a dict of a "text" and its "facts"; a list, a generator or a dataset of them for many. A model
    that does not retrieve reads text and facts as one source, as in `copynet-hf train`. Each gives a list of dicts,
    one for each output that was asked for, best first:

    - generated_text: the output.
    - words: its words, each with the space that belongs before it; together they are the text.
    - copied: for each word, whether copying gave more than half of its probability.
    - copy_shares: for each word, the share of its probability that copying gave, from 0 to 1.
    - source_positions: for each word the likeliest position that it was copied from; None where the source does not
      have it.
    - source_words: the words of the source; positions count these, from 0.
    - copy_probs: for each word the probability of copying from each position, whatever the word; only on request.

    A model that copies nothing has the same fields, with nothing copied. Arguments of the call or of `pipeline()`:

        max_source_length: words of a source that are read; by default what the tokenizer was saved with.
        return_copy_probs: adds `copy_probs`.
        batch_size: how many texts are read at once.
        The others: for `generate()`, such as `num_beams`, `num_return_sequences`, `max_new_tokens` and `forbid_unk`.

    Raises:
        ValueError: an input that is neither a text nor a dict with one.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    model: Any
    tokenizer: Any

    def _sanitize_parameters(
        self, max_source_length: int | None = None, return_copy_probs: bool | None = None, **generation: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        length = {} if max_source_length is None else {"max_source_length": max_source_length}
        returned = {} if return_copy_probs is None else {"return_copy_probs": return_copy_probs}
        return length, generation, length | returned

    def preprocess(self, input_: Source, max_source_length: int | None = None) -> dict[str, Any]:  # type: ignore[override]
        row: Mapping[str, Any] = {"text": input_} if isinstance(input_, str) else input_
        if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
            raise ValueError(f"cannot read {input_!r:.200}: give a text, or a dict with a 'text' (and 'facts')")
        retrieves = self.model.config.mechanism.retrieves
        facts = list(row.get("facts") or []) or ([] if retrieves else None)
        encoded = encode_sources(self.tokenizer, [row["text"]], None if facts is None else [facts], max_source_length)
        if not retrieves:  # texts with facts would not fit into a batch with others
            encoded.pop("token_type_ids", None)
        return {**encoded, "text": row["text"], "facts": facts}

    def _forward(self, inputs: dict[str, Any], **generation: Any) -> dict[str, Any]:  # type: ignore[override]
        """The words of all outputs and where they came from, (B, outputs of one source, T, …)."""
        kept = {name: inputs.pop(name) for name in ("text", "facts")}
        sequences = self.model.generate(**inputs, **{**generation, "return_dict_in_generate": False})
        sources, positions = inputs["input_ids"].shape
        words = sequences[:, 1:]
        if self.model.config.copies:
            trace = self.model.trace_copies(sequences, **inputs)
            found = {"copy_shares": trace.copied, "places": trace.source_positions, "copy_probs": trace.copy_probs}
        else:
            nothing = torch.zeros(*words.shape, positions)
            found = {"copy_shares": nothing.sum(-1), "places": torch.full_like(words, -1), "copy_probs": nothing}
        found = {"words": words, **found}
        by_source = {name: field.view(sources, -1, *field.shape[1:]) for name, field in found.items()}
        return {**by_source, **kept, "input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}

    def postprocess(  # type: ignore[override]
        self, found: dict[str, Any], max_source_length: int | None = None, return_copy_probs: bool = False
    ) -> list[dict[str, Any]]:
        given = (found["text"], max_source_length, found["facts"])
        is_word = found["attention_mask"][0].bool()  # in a batch there may be padding before and behind
        source = source_words(self.tokenizer, found["input_ids"][0][is_word].tolist(), *given)
        number = (is_word.cumsum(0) - 1).tolist()
        hidden = hidden_ids(self.tokenizer)
        outputs = []
        for row, words in enumerate(found["words"][0].tolist()):
            shown = [step for step, word in enumerate(words) if word not in hidden]
            pieces = text_pieces(self.tokenizer, output_words(self.tokenizer, words, *given))
            shares, places = (found[name][0, row, shown].tolist() for name in ("copy_shares", "places"))
            output = {
                "generated_text": "".join(pieces).strip(),
                "words": pieces,
                "copied": [share > 0.5 for share in shares],
                "copy_shares": shares,
                "source_positions": [None if place < 0 else number[place] for place in places],
                "source_words": source,
            }
            if return_copy_probs:  # a source without a word was read as one of padding
                output["copy_probs"] = found["copy_probs"][0, row, shown, : len(is_word)][:, is_word].tolist()
            outputs.append(output)
        return outputs


CUSTOM_PIPELINES = {TASK: {"impl": "pipeline.CopyText2TextPipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}}
"""What a saved config says of it, for loading without the package."""
