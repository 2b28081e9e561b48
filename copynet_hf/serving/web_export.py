"""A model as a static web page, which is also a static Hugging Face Space: `copynet-hf export --target web`.

The page's JavaScript (`web/`) ports the segmenters, the tokenizer's extended ids, the search over the ONNX graphs and
the trace of copies.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..data.remembered import find_separator
from ..inference.onnx_export import check_export, write_graphs
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.pieces import find_max_length
from ..model.segmentation import CHAINED
from ..model.source import find_marks, skipped_ids
from ..model.vocabularies import BOUNDARY, MAX_LETTERS_OF_WORD, UNKNOWN_FEATURE, UNKNOWN_LETTER
from ..saved.whole_folder import replace_folder
from .onnxruntime_web import VERSION, load_runtime

PAGE = Path(__file__).with_name("web")
RUNTIME_FOLDER = "onnxruntime-web"
SEGMENTERS = ("char", "whitespace", *CHAINED)  # those of web/tokenizer.js


def export_web(
    model: CopyNetForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    name: str = "CopyNet",
    examples: Sequence[str] = (),
    onnxruntime_web: str | Path | None = None,
    quantize: str | None = None,
) -> None:
    """Writes the page: index.html, its modules, the graphs with config and vocabulary in `model/`, onnxruntime-web.

    The folder is replaced as a whole, by `replace_folder`.

    Args:
        name: the page's title.
        examples: texts to offer; the output of the first is shown when the page opens.
        onnxruntime_web: see `onnxruntime_web.load_runtime`.
        quantize: as for `export_onnx`.

    Raises:
        ImportError, ValueError, OSError: as `export_onnx`, `check_web_support` and `load_runtime`.
    """
    check_export(model, quantize)
    check_web_support(model.config, tokenizer)
    runtime = load_runtime(onnxruntime_web)
    with replace_folder(folder) as unfinished:
        shutil.copytree(PAGE, unfinished, ignore=shutil.ignore_patterns("remote.js"), dirs_exist_ok=True)
        for file, content in runtime.items():
            (unfinished / RUNTIME_FOLDER / file).write_bytes(content)
        _write_json(unfinished / "page.json", {"title": name, "examples": list(examples)})
        readme = Template((PAGE / "README.md").read_text(encoding="utf-8")).substitute(
            title=json.dumps(name, ensure_ascii=False),
            name=name,
            features=', features: ["a feature"]' if model.config.feature_vocab_size else "",
            runtime_size=f"{sum(map(len, runtime.values())) / 1e6:.1f}",
            runtime_version=VERSION,
        )
        (unfinished / "README.md").write_text(readme, encoding="utf-8")
        model_folder = unfinished / "model"
        model_folder.mkdir()
        write_graphs(model, model_folder, quantize)
        # without the Python files that save_pretrained adds
        model.config.to_json_file(model_folder / "config.json")
        model.generation_config.to_json_file(model_folder / "generation_config.json")
        _write_json(model_folder / "vocabulary.json", describe_tokenizer(tokenizer))


def check_web_support(config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ValueError for a model or tokenizer that the page's JavaScript cannot run."""
    fix = "export it with --target onnx"
    if config.mechanism.retrieves:
        raise ValueError(f"copy_mechanism is {config.copy_mechanism!r}, and the page reads no facts: {fix}")
    if config.piece_encoder is not None:
        raise ValueError(
            f"the encoder is a {config.piece_encoder.model_type}, and the page has no tokenizer for it: {fix}"
        )
    segmenter = getattr(tokenizer, "segmenter", None)
    if segmenter is None:
        raise ValueError(f"the tokenizer is a {type(tokenizer).__name__}, and the page runs CopyNetTokenizer: {fix}")
    if segmenter not in SEGMENTERS:
        raise ValueError(f"the segmenter is {segmenter!r}, and the page has {', '.join(SEGMENTERS)}: {fix}")
    if not tokenizer.split_special_tokens:
        raise ValueError(f"split_special_tokens is False, and the page reads special tokens as text: {fix}")


def describe_tokenizer(tokenizer: Any) -> dict[str, object]:
    """What vocabulary.json holds: the fields that the class `Tokenizer` of web/tokenizer.js reads."""
    letters = {
        "boundary_id": BOUNDARY,
        "unknown_id": UNKNOWN_LETTER,
        "most_of_word": MAX_LETTERS_OF_WORD,
        "first_variant": tokenizer.letter_vocab_size if tokenizer.case_variants else None,
    }
    return {
        "segmenter": tokenizer.segmenter,
        "marks": sorted(find_marks(tokenizer)),
        "words": tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))),  # in the order of their ids
        "special_words": list(tokenizer.all_special_tokens),
        "skipped_ids": sorted(skipped_ids(tokenizer)),
        "unk_token_id": tokenizer.unk_token_id,
        "max_source_oov": tokenizer.max_source_oov,
        "max_length": find_max_length(tokenizer),
        "truncation_side": tokenizer.truncation_side,
        "fold_whitespace": tokenizer.fold_whitespace,
        "feature_ids": tokenizer.feature_vocab,
        "features_separator": find_separator(tokenizer, None),
        "unknown_feature_id": UNKNOWN_FEATURE,
        "letter_ids": tokenizer.letter_vocab,
        "letters": letters,
    }


def _write_json(path: Path, content: object) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
    # UTF-8 cannot encode a lone surrogate; backslashreplace writes it as a valid JSON escape.
    path.write_bytes(text.encode("utf-8", errors="backslashreplace"))
