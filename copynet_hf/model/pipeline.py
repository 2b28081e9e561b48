"""`pipeline("copy-text2text")`: from texts to outputs, and to the source position of each output word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import Pipeline
from transformers.utils import logging

from .prediction import Prediction, describe_incomplete, predict, reads_features
from .vocabularies import check_tokenizer

logger = logging.get_logger(__name__)

TASK = "copy-text2text"

COLUMNS = ("facts", "features")  # of a source, besides its text
Fields = dict[str, Any]  # "text", and perhaps `COLUMNS`
Input = str | Fields


class CopyText2TextPipeline(Pipeline):
    """Generates texts from texts and traces each output word to the source.

    An input is a text, or a dict with a "text" and its "facts" or "features"; lists, generators and Transformers'
    `KeyDataset` hold many inputs. A model without retrieval reads text and facts as one source, as in `copynet-hf
    train`. The result for an input is a list of dicts, one for each returned output, best first: `generated_text`, the
    output, and the other fields of `Prediction`, `copy_probs` as lists and only with `return_copy_probs=True`. A call
    with a text or a list of them also warns of the number of truncated texts, and of cut outputs.

    A model that does not copy returns the same fields, with nothing copied. Arguments of the call or of `pipeline()`:

        max_source_length: the number of words to which a source is truncated; None: the tokenizer's
            `model_max_length`.
        min_confidence: the confidence from which outputs are accepted if they are not cut.
        return_copy_probs: whether to return `copy_probs`.
        batch_size: the number of texts in a batch.
        copied_only: a regular expression, such as r"\\d", for words that may be written only if the source has them.
        Others: arguments of `generate()`, such as `num_beams`, `num_return_sequences`, `max_new_tokens` and
            `forbid_unk`.

    Raises:
        ValueError: the tokenizer belongs to another model, or an input is neither a text nor a dict with a "text", has
            a misspelled key, or no features for a model that reads them.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    model: Any
    tokenizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_tokenizer(self.model.config, self.tokenizer)

    def __call__(self, inputs: object, *args: object, **kwargs: object) -> object:
        if isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):  # such as a column of `datasets`
            inputs = list(inputs)
            if not inputs:
                return []
        outputs = super().__call__(inputs, *args, **kwargs)
        if isinstance(outputs, list):  # else an iterator
            texts = outputs if isinstance(inputs, list) else [outputs]
            num_truncated, num_cut = (sum(text[0][name] for text in texts) for name in ("is_truncated", "is_cut"))
            for warning in describe_incomplete(num_truncated, num_cut, len(texts)):
                logger.warning(warning)
        return outputs

    def _sanitize_parameters(
        self, **options: object
    ) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
        return {}, options, {}

    def preprocess(self, input_: Input) -> Fields:  # type: ignore[override]
        row = {"text": input_} if isinstance(input_, str) else input_
        if not isinstance(row, Mapping) or not isinstance(row.get("text"), str):
            raise ValueError(
                f"the input is {input_!r:.200}: pass a text, or a dict with a 'text' (and 'facts' or 'features')"
            )
        for name in map(str, row.keys() - {*COLUMNS}):  # any other may be one of a dataset
            meant = f"{name.lower().removesuffix('s')}s"
            if meant in COLUMNS and meant not in row:
                raise ValueError(f"the input has {name!r}, which is not read; did you mean {meant!r}?")
        if reads_features(self.model) and "features" not in row:
            raise ValueError(f"the model reads features, and the input {row!r:.200} has none: add 'features'")
        inputs: Fields = {"text": row["text"]}
        for name in COLUMNS:
            value = row.get(name) or ()
            inputs[name] = value if isinstance(value, str) else list(value)  # the tokenizer refuses a string
        return inputs

    def _forward(self, inputs: Fields, **options: Any) -> dict[str, object]:  # type: ignore[override]
        """One row, or with `batch_size` above 1 a list of rows for each field, which Transformers unbatches again."""
        is_batch = isinstance(inputs["text"], list)
        columns = {name: values if is_batch else [values] for name, values in inputs.items()}
        more: Fields = {name: columns[name] for name in COLUMNS if any(columns[name])}
        if reads_features(self.model):
            more["features"] = columns["features"]
        predictions = predict(self.model, self.tokenizer, columns["text"], **more, **options)
        return {"predictions": predictions if is_batch else predictions[0]}

    def postprocess(self, outputs: dict[str, list[Prediction]]) -> list[dict[str, object]]:  # type: ignore[override]
        return [_describe_prediction(prediction) for prediction in outputs["predictions"]]


def _describe_prediction(prediction: Prediction) -> dict[str, object]:
    fields, probs = prediction.to_dict(), prediction.copy_probs
    return {"generated_text": fields.pop("text"), **fields} | ({} if probs is None else {"copy_probs": probs.tolist()})


CUSTOM_PIPELINES = {TASK: {"impl": "pipeline.CopyText2TextPipeline", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}}
"""The entry in a saved config with which `pipeline()` finds this class where the package is not installed."""
