"""The demo page: that of the web export, over a model in this process. `copynet-hf demo --model NAME` serves it.

The page's remote.js asks the server of `copynet-hf serve` for outputs with the fields of `PageOutput`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedTokenizerBase

from ..data.remembered import find_separator
from ..inference.backends import OnnxModel
from ..model.prediction import Prediction
from ..model.source import find_matching_ids
from ..model.tokenization_copynet import CopyNetTokenizer
from ..saved.loading import LoadedModel
from ..saved.model_size import explain_memory_errors
from ..visualization.highlighting import find_words
from .batching import Options, RequestRow
from .limits import Limits
from .process import explain_missing_packages, make_stoppable, predict_requests
from .web_export import PAGE

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULTS = {"num_beams": 1, "max_new_tokens": 20, "forbid_unk": False}  # of `generate()`
MAX_BEAMS, MAX_WORDS = 10, 512  # of the page's form, unless the saved settings are larger


@dataclass(kw_only=True)
class PageOutput(Prediction):
    """A prediction and what else the page shows of it: T words of the output, S words of the source.

    oov: T flags: whether the word is out-of-vocabulary.
    spaced_source: the S words of the source, each behind the text that precedes it. Facts follow the text, one a line.
    source_oov: S flags: whether the word is out-of-vocabulary.
    probabilities: (T, S) probability of copying from each position at each step.
    """

    oov: list[bool]
    spaced_source: list[str]
    source_oov: list[bool]
    probabilities: list[list[float]]


def build_demo(
    model: LoadedModel | OnnxModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[str] = (),
    title: str = "CopyNet",
    copied_only: str | None = None,
) -> FastAPI:
    """Builds the page as an ASGI application. Its initial settings are those of the saved generation config.

    Args:
        model: with PyTorch or ONNX, as `load_backend` returns it.
        examples: texts to offer; the output of the first is shown when the page opens.
        copied_only: as for `predict`.

    Raises:
        ImportError: fastapi is not installed.
        ValueError: `copied_only` is no regular expression.
    """
    with explain_missing_packages():
        from fastapi.staticfiles import StaticFiles

        from .server import build_app
    find_matching_ids(tokenizer, copied_only or "")
    config, saved = model.config, model.generation_config
    saved = saved if isinstance(saved, dict) else saved.to_dict()  # a dict of ONNX graphs
    if saved.get("max_length") and not saved.get("max_new_tokens"):  # which counts the start token
        saved = saved | {"max_new_tokens": saved["max_length"] - 1}
    settings = {name: saved.get(name) or default for name, default in DEFAULTS.items()}
    description = {
        "copies": config.copies,
        "reads_facts": config.retrieves,
        "reads_features": config.feature_vocab_size > 0,
        "features_separator": find_separator(tokenizer, None),
        "copied_only": copied_only or "",
        "generation_config": settings,
    }

    def predict_batch(
        rows: Sequence[RequestRow], options: Options, check: Callable[[], None]
    ) -> list[list[Prediction]]:
        check()
        stoppable = model
        if isinstance(model, OnnxModel):
            stoppable = make_stoppable(model, check)
        else:

            def check_step(input_ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
                check()  # which may raise; no output ends by itself
                return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

            options = {**options, "stopping_criteria": [check_step]}
        options = {"return_copy_probs": True, "copied_only": copied_only, **options}
        with explain_memory_errors():
            batch = predict_requests(stoppable, tokenizer, rows, **options)
        with_outputs = zip(rows, batch, strict=True)
        return [[_describe_output(tokenizer, row, each) for each in outputs] for row, outputs in with_outputs]

    beams, words = max(settings["num_beams"], MAX_BEAMS), max(settings["max_new_tokens"], MAX_WORDS)
    saved_options = {name: settings[name] for name in ("num_beams", "max_new_tokens")}
    limits = Limits(max_beams=beams, max_target_length=words, max_work=beams * words * Limits.max_characters)
    app = build_app(predict_batch, saved_options, limits)

    @app.get("/page.json")
    async def get_page() -> dict[str, object]:
        """The page's title and examples, and what the model reads."""
        return {"title": title, "examples": list(examples), "model": description}

    app.mount("/", StaticFiles(directory=PAGE, html=True))
    return app


def _describe_output(tokenizer: PreTrainedTokenizerBase, row: RequestRow, output: Prediction) -> PageOutput:
    facts = row.get("facts") or []
    text = "\n".join([row["text"], *("\t".join(fact) for fact in facts)])
    oov: set[str] = set()
    source = None
    if isinstance(tokenizer, CopyNetTokenizer):
        source = tokenizer.encode_source(row["text"], facts, max_length=tokenizer.model_max_length)
        oov = {tokenizer.convert_tokens_to_string([word]) for word in source.oov_words}
        starts = [span[0] for span in source.offsets if span is not None]
        text = text[starts[0] if output.is_truncated and starts else 0 :]  # what left truncation has left
    found, rest = find_words(text, output.source_words)
    has_rest = source is None and bool(rest.strip())  # a tokenizer of Python does not say whether it truncated
    assert output.copy_probs is not None
    return PageOutput(
        **vars(output) | {"copy_probs": None, "is_truncated": output.is_truncated or has_rest},
        oov=[word.strip() in oov for word in output.words],
        spaced_source=[before + word for before, word in found],
        source_oov=[word in oov for word in output.source_words],
        probabilities=output.copy_probs.astype(float).round(4).tolist(),
    )
