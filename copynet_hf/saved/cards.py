"""Model cards: a model's README.md on the Hub, from the template model_cards/template.md.

`save_pretrained` writes one from the model's config; `copynet-hf train` adds the data, the command and the scores.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml

from ..model.configuration_copynet import ENCODER_FIELDS
from ..model.copy_distribution import MODES
from ..model.pieces import find_max_length
from ..model.source import ExtendedVocabulary
from ..model.vocabularies import NUM_SPECIAL_FEATURES

if TYPE_CHECKING:
    from os import PathLike

    from transformers import PreTrainedConfig, PreTrainedTokenizerBase

    from ..model.configuration_copynet import CopyNetConfig
    from ..model.pretrained import PublishedModel

PIPELINE_TAG = "text-generation"
TAGS = ("copynet", "copy-mechanism", "seq2seq")
CARD, RESULTS = "README.md", ".eval_results/copynet-hf.yaml"

SETTINGS = (
    "copy_mechanism",
    "vocab_size",
    "max_source_oov",
    "embedding_size",
    "encoder_hidden_size",
    "num_hidden_layers",
    "hidden_size",
    "attention_size",
    "attention",
    "selective_read",
    "readout",
    "use_coverage",
    "tie_word_embeddings",
)
# Scores of `evaluate_pairs`: for each the name of its metric on the Hub and a title.
METRICS = {
    "exact_match": ("exact_match", "exact match"),
    "rouge1": ("rouge", "ROUGE-1"),
    "rouge2": ("rouge", "ROUGE-2"),
    "rougeL": ("rouge", "ROUGE-L"),
    "bleu": ("bleu", "BLEU"),
}
COPYING = {
    "oov_recall": "out-of-vocabulary recall",
    "copied_fraction": "words from the source",
    "copy_mode_fraction": "words or parts from the copy mode",
    "unk_rate": "unknown words",
}


def write_model_card(
    folder: str | PathLike[str],
    model: PublishedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    title: str | None = None,
    language: str | Sequence[str] | None = None,
    license: str | None = None,
    datasets: Sequence[str] = (),
    tags: Sequence[str] = (),
    data: str | None = None,
    training: str | None = None,
    command: str | None = None,
    scores: Mapping[str, Mapping[str, Any]] | None = None,
    signature: Mapping[str, str] | None = None,
) -> ModelCard:
    """Writes a model card, README.md, into the model's folder. Sections without content are left out.

    Args:
        folder: the model's folder.
        title: the heading, and the model's name in the metadata; None: the name of the folder.
        language: the language of the texts, such as "zh".
        license: the license of the weights, by its identifier on the Hub; None: no statement.
        datasets: names on the Hub of the training data. With a single data set, scores are also written to
            .eval_results, which the Hub's leaderboards read.
        tags: additional tags for the metadata.
        data: a sentence on the training data.
        training: a sentence on the training: its duration, the versions of the packages.
        command: the command that trained the model.
        scores: for each split the scores of `evaluate_pairs`.
        signature: for each metric its signature, from `metric_signature`.

    Returns:
        The card.
    """
    folder, configs = Path(folder), [cast("CopyNetConfig", member.config) for member in _members(model)]
    # Where one text speaks of an ensemble as a whole: a member that copies, and has the knowledge of an encoder.
    config = max(configs, key=lambda each: (each.copies, each.encoder is not None))
    mechanisms, is_ensemble = [each.copy_mechanism for each in configs], hasattr(model, "members")
    name = title or folder.resolve().name
    scores = {split: row for split, row in (scores or {}).items() if set(row) & set(METRICS)}
    titles = {score: title for score, (_, title) in METRICS.items()}
    metrics = list(dict.fromkeys(METRICS[score][0] for row in scores.values() for score in METRICS if score in row))
    card = render_card(
        ModelCardData(
            model_name=name,
            library_name="transformers",
            language=language,  # type: ignore[arg-type]
            license=license,
            datasets=list(datasets) or None,
            metrics=metrics or None,
            pipeline_tag=PIPELINE_TAG,
            tags=list(dict.fromkeys([*TAGS, *mechanisms, *(["ensemble"] if is_ensemble else []), *tags])),
            eval_results=_eval_results(scores, datasets, name) or None,
        ),
        title=name,
        config=config,
        encoder=config.encoder and _name_encoder(config),
        is_ensemble=is_ensemble,
        num_models=len(configs),
        can_generate=model.can_generate(),
        num_features=config.feature_vocab_size - NUM_SPECIAL_FEATURES,
        max_length=tokenizer and find_max_length(tokenizer),
        has_chains=isinstance(tokenizer, ExtendedVocabulary) and tokenizer.chains.is_possible,
        model=_description(model),
        data=data,
        training=training,
        command=command,
        about_scores="In percent, from a single run.",
        scores="\n\n".join(filter(None, (_score_table(scores, titles), _score_table(scores, COPYING)))),
        signature="\n".join(f"- {metric}: `{text}`" for metric, text in (signature or {}).items()),
    )
    card.save(folder / CARD)
    (folder / RESULTS).unlink(missing_ok=True)  # of an earlier model
    if len(datasets) == 1 and any("rougeL" in row for row in scores.values()):
        _write_results(folder, scores, datasets[0])
    return card


def render_card(data: ModelCardData, /, **fields: Any) -> ModelCard:
    """Fills the template with the fields; sections without content are left out. The template is in a wheel next to
    this file, in a checkout in model_cards/."""
    installed = Path(__file__).with_name("model_card_template.md")
    template = installed if installed.exists() else Path(__file__).parents[2] / "model_cards" / "template.md"
    card: ModelCard = ModelCard.from_template(data, str(template), **fields)
    return card


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; floats with one decimal, None as an empty cell."""
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def command_line(arguments: Mapping[str, object]) -> str:
    """The command `copynet-hf train` with these arguments; paths are reduced to their last component."""
    words = ["copynet-hf", "train"]
    for name, value in arguments.items():
        # The last two do not change the model.
        if name not in ("output_dir", "disable_tqdm", "resume_from_checkpoint"):
            values = [_format_value(name, each) for each in (value if isinstance(value, list) else [value])]
            is_option = len(values) == 1 and values[0].startswith("-")  # as an argument of its own
            words += [f"--{name}={values[0]}"] if is_option else [f"--{name}", *values]
    return shlex.join([*words, "--output_dir", Path(str(arguments.get("output_dir"))).name])


def _format_value(name: str, value: object) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    text = str(value)
    is_path = isinstance(value, str) and (text[:1] in ("/", "~", ".") or ("/" in text and Path(text).exists()))
    return Path(text).name if is_path and name != "hub_model_id" else text


def _name_encoder(config: CopyNetConfig) -> str:
    """The name of the Transformers encoder where it has one, and its type."""
    encoder = cast("PreTrainedConfig", config.encoder)
    return f"{encoder.name_or_path} ({encoder.model_type})" if encoder.name_or_path else encoder.model_type


def _members(model: PublishedModel) -> list[PublishedModel]:
    """The models of an ensemble; else the model itself."""
    return getattr(model, "members", [model])


def _description(model: PublishedModel) -> str:
    """The equation of each copy mechanism, from the docstring of its function, and a table of settings."""
    members = _members(model)
    mechanisms = dict.fromkeys(cast("CopyNetConfig", member.config).copy_mechanism for member in members)
    equations = "\n\n".join(inspect.getdoc(MODES[mechanism]) or "" for mechanism in mechanisms)
    columns = [_settings(member) for member in members]
    names = dict.fromkeys(name for column in columns for name in column)
    header = ["value"] if len(columns) == 1 else [f"model {number}" for number in range(1, len(columns) + 1)]
    settings = table(["setting", *header], [[name, *(column.get(name) for column in columns)] for name in names])
    return "\n".join(f"> {line}".rstrip() for line in equations.splitlines()) + f"\n\n{settings}"


def _settings(model: PublishedModel) -> dict[str, object]:
    """The number of parameters and the fields of the config, by their name in the card's table."""
    config = cast("CopyNetConfig", model.config)
    values = {name: getattr(config, name) for name in SETTINGS}
    if config.encoder is not None:
        if not config.encoder_gru:
            del values["num_hidden_layers"]
        values |= {name: getattr(config, name) for name in ENCODER_FIELDS} | {"encoder": _name_encoder(config)}
    if config.decoder is not None:
        values |= {
            "decoder": cast("PreTrainedConfig", config.decoder).model_type,
            "copy_layer": config.copy_layer,
            "copy_head": config.copy_head,
        }
    fields = {f"`{name}`": " ".join(value) if isinstance(value, list) else value for name, value in values.items()}
    return {"parameters": f"{model.num_parameters():,}"} | fields


def _score_table(scores: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str | None:
    names = [name for name in titles if any(row.get(name) is not None for row in scores.values())]
    if not names:
        return None
    labels = [f"{split}, {row['examples']:,} pairs" if "examples" in row else split for split, row in scores.items()]
    rows = [[label, *map(row.get, names)] for label, row in zip(labels, scores.values(), strict=True)]
    return table(["", *(titles[name] for name in names)], rows)


def _eval_results(scores: Mapping[str, Mapping[str, Any]], datasets: Sequence[str], name: str) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=PIPELINE_TAG,
            dataset_type=datasets[0] if datasets else "pairs",
            dataset_name=datasets[0] if datasets else f"the pairs of {name}",
            dataset_split=split,
            metric_type=metric,
            metric_name=title,
            metric_value=round(row[score], 2),
        )
        for split, row in scores.items()
        for score, (metric, title) in METRICS.items()
        if row.get(score) is not None
    ]


def _write_results(folder: Path, scores: Mapping[str, Mapping[str, Any]], dataset: str) -> None:
    """Writes scores in the Hub's format, one entry per split: ROUGE-L, with the other metrics as notes."""
    entries = [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=split,
            value=round(row["rougeL"], 2),
            notes=", ".join(f"{title} {row[score]:.2f}" for score, (_, title) in METRICS.items() if score in row),
        )
        for split, row in scores.items()
        if "rougeL" in row
    ]
    write_eval_results(folder, entries)


def write_eval_results(folder: Path, entries: Sequence[EvalResultEntry]) -> None:
    """Writes .eval_results/copynet-hf.yaml, which the Hub's leaderboards read, into a model's folder."""
    path = folder / RESULTS
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(eval_result_entries_to_yaml([*entries]), sort_keys=False), encoding="utf-8")
