"""Cards: a model's README.md on the Hub, from one template, model_cards/template.md.

`save_pretrained` writes one with what the model knows of itself, `copynet-hf train` adds data, command and scores.
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

from ..model.copy_distribution import MODES

if TYPE_CHECKING:
    from os import PathLike

    from transformers import PreTrainedTokenizerBase

    from ..model.configuration_copynet import CopyNetConfig
    from ..model.pretrained import CopyNetPreTrainedModel

PIPELINE_TAG = "text-generation"
TAGS = ("copynet", "copy-mechanism", "seq2seq")
CARD, RESULTS = "README.md", ".eval_results/copynet-hf.yaml"

IMPORT = """import copynet_hf  # registers the model; without the package, pass trust_remote_code=True
"""
USE = f"""from transformers import pipeline

{IMPORT}
pipe = pipeline("copy-text2text", model="{{name}}")
print(pipe("a text")[0]["generated_text"])"""
LOAD = f"""from transformers import {{auto}}

{IMPORT}
model = {{auto}}.from_pretrained("{{name}}")"""

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
# Of `score_outputs` and `evaluate_pairs`: their names on the Hub, and titles for readers.
METRICS = {
    "exact_match": ("exact_match", "exact match"),
    "rouge1": ("rouge", "ROUGE-1"),
    "rouge2": ("rouge", "ROUGE-2"),
    "rougeL": ("rouge", "ROUGE-L"),
    "bleu": ("bleu", "BLEU"),
}
COPYING = {
    "oov_recall": "unseen words recalled",
    "copied_fraction": "words that stand in the source",
    "copy_mode_fraction": "words that the copy mode wrote",
    "unk_rate": "unknown words",
}


def write_model_card(
    folder: str | PathLike[str],
    model: CopyNetPreTrainedModel,
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
    """Writes README.md into the model's folder: what the model is, and as much as is told of where it comes from.

    Args:
        folder: of the model; its name is the title where none is given.
        title: the heading, and the model's name in the metadata.
        language: of the texts, such as "zh".
        license: of the weights, by its identifier on the Hub. Left out, none is claimed.
        datasets: names on the Hub of what it learned from. Scores of a model of one data set are also written to
            .eval_results, where the Hub's leaderboards look.
        tags: more of them for the metadata.
        data: what it learned from, in a sentence.
        training: how long, with which versions, in a sentence.
        command: what made it.
        scores: by split, scores as `evaluate_pairs` gives them.
        signature: what exactly each score is, as `metric_signature` gives it.
    """
    folder, config = Path(folder), cast("CopyNetConfig", model.config)
    name = title or folder.resolve().name
    scores = {split: known for split, known in (scores or {}).items() if set(known) & set(METRICS)}
    measured = list(
        dict.fromkeys(METRICS[score][0] for known in scores.values() for score in METRICS if score in known)
    )
    card = render_card(
        ModelCardData(
            model_name=name,
            library_name="transformers",
            language=language,  # type: ignore[arg-type]
            license=license,
            datasets=list(datasets) or None,
            metrics=measured or None,
            pipeline_tag=PIPELINE_TAG,
            tags=list(dict.fromkeys([*TAGS, config.copy_mechanism, *tags])),
            eval_results=_eval_results(scores, datasets, name) or None,
        ),
        title=name,
        kind=f"It is a recurrent network {_does(config)} (`copy_mechanism` is `{config.copy_mechanism}`).",
        use=_use(model, name),
        model=_model(model),
        data=data,
        training=training,
        command=command,
        about_scores="Percentages, measured once.",
        scores="\n\n".join(filter(None, (_score_table(scores, METRICS), _score_table(scores, COPYING)))),
        signature="\n".join(f"- {metric}: `{said}`" for metric, said in (signature or {}).items()),
        limits=_limits(config, tokenizer),
    )
    card.save(folder / CARD)
    (folder / RESULTS).unlink(missing_ok=True)  # of an earlier model
    if len(datasets) == 1 and any("rougeL" in known for known in scores.values()):
        _write_results(folder / RESULTS, scores, datasets[0])
    return card


def render_card(data: ModelCardData, /, **fields: Any) -> ModelCard:
    """The template with these fields; those that are empty or left out take their headings with them."""
    return ModelCard.from_template(data, template_path=str(_template()), **fields)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; numbers with one decimal, None as an empty cell."""
    lines = [header, ["---"] * len(header), *([_cell(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def command_line(said: Mapping[str, Any]) -> str:
    """`copynet-hf train` with what was said; of paths the last part alone."""
    words = ["copynet-hf", "train"]
    for name, value in said.items():
        if name != "output_dir":
            words.append(f"--{name}")
            words += [_told(name, each) for each in (value if isinstance(value, list) else [value])]
    return shlex.join([*words, "--output_dir", Path(str(said["output_dir"])).name])


def _told(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    is_path = isinstance(value, str) and (value[:1] in ("/", "~", ".") or ("/" in value and Path(value).exists()))
    return Path(value).name if is_path and name != "hub_model_id" else str(value)


# ---- what the model knows of itself


def _does(config: CopyNetConfig) -> str:
    if config.num_features:
        return "that points at positions of its input, which is numbers"
    if not config.mechanism.generates:
        return "from texts to texts that are made of the input's words alone"
    if config.copies:
        return "from texts to texts that copies words of its input"
    return "from texts to texts that copies nothing, a baseline"


def _use(model: CopyNetPreTrainedModel, name: str) -> str:
    if not model.can_generate():
        return LOAD.format(auto="AutoModel", name=name)
    reads_texts = not cast("CopyNetConfig", model.config).num_features
    return (USE if reads_texts else LOAD).format(auto="AutoModelForSeq2SeqLM", name=name)


def _model(model: CopyNetPreTrainedModel) -> str:
    """The equation of the mechanism in the words of its own docstring, and the settings."""
    config = cast("CopyNetConfig", model.config)
    equation = inspect.getdoc(MODES[config.copy_mechanism]) or ""
    shown = {name: getattr(config, name) for name in SETTINGS}
    rows = [[f"`{name}`", " ".join(value) if isinstance(value, list) else value] for name, value in shown.items()]
    settings = table(["setting", "value"], [["parameters", f"{model.num_parameters():,}"], *rows])
    return "\n".join(f"> {line}".rstrip() for line in equation.splitlines()) + f"\n\n{settings}"


def _limits(config: CopyNetConfig, tokenizer: PreTrainedTokenizerBase | None) -> str:
    read = getattr(tokenizer, "model_max_length", None)
    parts = ["It has learned its task from examples and nothing else: of anything else it knows nothing."]
    unseen = f"of which up to {config.max_source_oov:,} may be unseen"
    if config.num_features:
        parts.append(
            f"Its input has {config.num_features} numbers at each of up to {config.max_source_oov:,} positions."
        )
    elif not config.mechanism.generates:
        parts.append(f"It can write the words of its source, {unseen}, and no others.")
    elif config.copies:
        parts.append(
            f"It can write the {config.vocab_size:,} words of its vocabulary and those of its source, {unseen}; other "
            "words it cannot write. What it copies stands in the source, but not always where it belongs: names and "
            "numbers may be confused with each other."
        )
    else:
        parts.append(f"It can write the {config.vocab_size:,} words of its vocabulary and no others.")
    if isinstance(read, int) and read < 1_000_000:
        parts.append(f"Of a longer source it reads {read:,} words.")
    return " ".join(parts)


# ---- scores


def _score_table(scores: Mapping[str, Mapping[str, Any]], titles: Mapping[str, Any]) -> str | None:
    shown = [name for name in titles if any(known.get(name) is not None for known in scores.values())]
    if not shown:
        return None
    header = [title if isinstance(title := titles[name], str) else title[1] for name in shown]
    labels = [
        f"{split}, {known['examples']:,} pairs" if "examples" in known else split for split, known in scores.items()
    ]
    rows = [[label, *map(known.get, shown)] for label, known in zip(labels, scores.values(), strict=True)]
    return table(["", *header], rows)


def _eval_results(scores: Mapping[str, Mapping[str, Any]], datasets: Sequence[str], name: str) -> list[EvalResult]:
    return [
        EvalResult(
            task_type=PIPELINE_TAG,
            dataset_type=datasets[0] if datasets else "pairs",
            dataset_name=datasets[0] if datasets else f"the pairs of {name}",
            dataset_split=split,
            metric_type=metric,
            metric_name=title,
            metric_value=round(known[score], 2),
        )
        for split, known in scores.items()
        for score, (metric, title) in METRICS.items()
        if known.get(score) is not None
    ]


def _write_results(path: Path, scores: Mapping[str, Mapping[str, Any]], dataset: str) -> None:
    """The Hub's own form, one entry for each split: ROUGE-L, with the others in a note."""
    entries = [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=split,
            value=round(known["rougeL"], 2),
            notes=", ".join(f"{title} {known[score]:.2f}" for score, (_, title) in METRICS.items() if score in known),
        )
        for split, known in scores.items()
        if "rougeL" in known
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False), encoding="utf-8")


def _template() -> Path:
    """In a wheel beside this file; in a checkout where the cards are."""
    beside = Path(__file__).with_name("model_card_template.md")
    return beside if beside.exists() else Path(__file__).parents[2] / "model_cards" / "template.md"
