"""The arguments of the commands: one dataclass for each subject, and the parser that reads them.

Names follow Transformers' run_summarization.py. `parse_arguments` returns only the arguments that were given, so that
a default can depend on the data: the number of epochs, for example, on the number of pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from transformers import HfArgumentParser, Seq2SeqTrainingArguments

CONFIG_FILE_SUFFIXES = (".json", ".yaml", ".yml")
MAX_SIZE = 2**63 - 1  # of a tensor
BACKEND_HELP = "torch; onnx if exported"
TRUST_HELP = "run code from the model's folder"

T = TypeVar("T")


def _argument(help: str, default: Any = None, metavar: str | None = None) -> Any:
    return field(default=default, metadata={"help": help} | ({"metavar": metavar} if metavar else {}))


def _optional_bool(help: str) -> Any:
    """`--name` or `--name False`; None, the default, leaves the choice to the model's config."""
    return field(default=None, metadata={"help": help, "nargs": "?", "const": True})


@dataclass
class PairsArguments:
    """Files of pairs and their columns, as `load_pairs` reads them."""

    _argument_group_name = "data"

    test_file: str | None = _argument("test pairs: JSON, CSV, parquet or LCSTS", metavar="FILE")
    dataset_name: str | None = _argument("dataset on the Hub, in place of files", metavar="NAME")
    dataset_config_name: str | None = _argument("configuration of that dataset", metavar="NAME")
    text_column: str | None = _argument("column of the sources; guessed by default", metavar="NAME")
    summary_column: str | None = _argument("column of the targets; guessed by default", metavar="NAME")
    features_column: str | None = _argument("column of the features: read, never copied", metavar="NAME")
    features_separator: str = _argument("between features", ";", "TEXT")
    column_names: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "columns of CSV or TSV files without a header", metavar="NAME"
    )
    delimiter: str | None = _argument("of CSV and TSV files; guessed by default", metavar="TEXT")
    max_eval_samples: int | None = _argument("use at most N validation and N test pairs")

    def dataset_options(self) -> dict[str, Any]:
        """The arguments of `load_pairs` other than its files."""
        names = ("dataset_name", "dataset_config_name", "text_column", "summary_column")
        more = ("features_column", "features_separator", "column_names", "delimiter")
        return {name: getattr(self, name) for name in names + more}


@dataclass
class DataArguments(PairsArguments):
    """Pairs for training and evaluation, and how many words of them are used."""

    train_file: str | None = _argument("training pairs: JSON, CSV, parquet or LCSTS", metavar="FILE")
    validation_file: str | None = _argument("pairs for the best checkpoint, early stopping", metavar="FILE")
    streaming: bool = _argument("read pairs during training (needs --max_steps)", False)
    max_source_length: int = _argument("truncate sources to N words", 512)
    max_target_length: int = _argument("truncate targets to N words", 128)
    max_train_samples: int | None = _argument("use at most N training pairs")
    preprocessing_num_workers: int | None = _argument("number of processes for tokenization")


@dataclass
class TokenizerArguments:
    """The tokenizer: its segmenter and its vocabulary."""

    _argument_group_name = "tokenizer"

    tokenizer_name: str | None = _argument("use this tokenizer; by default one is trained", metavar="NAME")
    segmenter: str = _argument("char, whitespace, jieba, fugashi, word_punct, or auto: chosen by the pairs", "auto")
    vocab_size: int | None = _argument("size")
    min_frequency: int | None = _argument("rarer words are copied")
    max_source_oov: int | None = _argument("slots")


@dataclass
class ModelArguments:
    """The model: fields of `CopyNetConfig`, and the generation settings that are saved with it."""

    _argument_group_name = "model (by default the fields of the preset, or those shown)"

    model_name_or_path: str | None = _argument("folder or Hub name of a model to continue from", metavar="NAME")
    trust_remote_code: bool = _argument(TRUST_HELP, False)
    encoder_name_or_path: str | None = _argument("its folder or Hub name", metavar="NAME")
    encoder_pooling: str | None = _argument("of a word: mean, first or last", metavar="NAME")
    initial_state: str | None = _argument("s_0: from the first, mean or last piece", metavar="NAME")
    embeddings_from_encoder: bool = _argument("initialise word embeddings by its pieces", False)
    embedding_file: str | None = _argument("initialise them by word2vec or GloVe text", metavar="FILE")
    preset: str | None = _argument("the paper's synthetic, lcsts_char, lcsts_word", metavar="NAME")
    embedding_size: int | None = _argument("embedding size")
    hidden_size: int | None = _argument("size of the decoder state")
    encoder_hidden_size: int | None = _argument("encoder state, per direction")
    num_hidden_layers: int | None = _argument("number of encoder layers")
    attention_size: int | None = _argument("hidden size of the attention")
    dropout: float | None = _argument("dropout probability")
    copy_mechanism: str | None = _argument(
        "copynet, pointer_generator, gated, pointer, retrieval or none", metavar="NAME"
    )
    attention: bool | None = _optional_bool("attention over the source")
    selective_read: bool | None = _optional_bool("selective read")
    readout: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "inputs of the scores, such as state context", metavar="NAME"
    )
    use_coverage: bool | None = _optional_bool("coverage as an input of the attention")
    copies_from: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "retrieval: one or both", metavar="NAME"
    )
    coverage_loss_weight: float | None = _argument("weight λ of the coverage loss")
    gate_loss_weight: float | None = _argument("gated: weight of the gate's loss")
    gated_loss: str | None = _argument("gated: mixture or summed", metavar="NAME")
    aligned_words: int | None = _argument("gated: target words per source word; 0 for all")
    frequent_words: int | None = _argument("gated: words always allowed")
    use_fused: bool | None = _optional_bool("fused recurrence")
    initializer_range: float | None = _argument("embeddings are initialised in ± X")
    tie_word_embeddings: bool | None = _optional_bool("share the embeddings with the output layer")
    num_beams: int = _argument("beam size, saved with the model", 5)
    forbid_unk: bool = _argument("never generate <unk>", True)


@dataclass
class RunArguments:
    """The run, in addition to `Seq2SeqTrainingArguments`."""

    _argument_group_name = "run"

    dry_run: bool = _argument("describe and time the run, write nothing", False)
    vocabulary_dropout: float = _argument("share of copied words made unseen", 0.1)
    ema_decay: float = _argument("decay of the averaged weights", 0.998)
    early_stopping_patience: int = _argument("stop after N evaluations without improvement", 0)
    overwrite_output_dir: bool = _argument("replace the model in output_dir", False)
    freeze_encoder: bool = _argument("do not train it", False)
    encoder_learning_rate: float | None = _argument("its learning rate (2e-5; the decoder's is 5e-4)")
    cache_encoder_states: bool = _argument("frozen: compute its states once per text", False)
    max_minutes: float | None = _argument("stop training after X minutes")
    threads: int | None = _argument("number of PyTorch threads")


@dataclass
class CardArguments:
    """What the model card says in addition to what the run knows."""

    _argument_group_name = "model card"

    language: str | None = _argument("language of the texts, such as zh", metavar="CODE")
    license: str | None = _argument("licence of the weights, as the Hub spells it", metavar="NAME")


@dataclass
class DecodingArguments:
    """The model, and how it decodes; by default with the settings saved with the model."""

    _argument_group_name = "model and decoding (by default the settings saved with the model)"

    model: str | None = _argument("folder or Hub name of the model", metavar="NAME")
    backend: str = _argument(BACKEND_HELP, "torch", "NAME")
    trust_remote_code: bool = _argument(TRUST_HELP, False)
    batch_size: int = _argument("batch size", 32)
    num_beams: int | None = _argument("beam size")
    length_penalty: float | None = _argument("exponent of the length; above 0 favours longer outputs")
    max_source_length: int | None = _argument("truncate sources to N words")
    max_target_length: int | None = _argument("generate at most N words, the end symbol included")
    forbid_unk: bool | None = _optional_bool("never generate <unk>")
    bf16: bool = _argument("compute in bfloat16", False)
    device: str | None = _argument("cpu, cuda, ...; by default a GPU if there is one", metavar="NAME")
    threads: int | None = _argument("number of threads")

    def model_options(self) -> dict[str, Any]:
        """The arguments of `load_backend`."""
        return {
            "name": self.model,
            "backend": self.backend,
            "device": self.device,
            "bf16": self.bf16,
            "trust_remote_code": self.trust_remote_code,
            "threads": self.threads,
        }


@dataclass
class EvaluateArguments:
    """The outputs of `copynet-hf evaluate`."""

    _argument_group_name = "outputs"

    num_return_sequences: int = _argument("outputs per source, for exact_match_top_N", 1)
    output_file: str | None = _argument("write the predictions to this file, as JSON lines", metavar="FILE")
    overwrite_output_file: bool = _argument("replace output_file if it exists", False)


@dataclass
class GenerateArguments:
    """The inputs and outputs of `copynet-hf generate`."""

    _argument_group_name = "input and output"

    text: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "sources; by default the lines of standard input", metavar="TEXT"
    )
    facts: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "facts for all sources, each 'subject | property | object'", metavar="FACT"
    )
    features: str | None = _argument("features of all sources, such as 'V;PST'", metavar="TEXT")
    features_separator: str = _argument("what separates the features", ";", "TEXT")
    show_copies: bool = _argument("mark copied words, by colour in a terminal, else by [brackets]", False)


@dataclass
class PredictArguments:
    """The inputs and outputs of `copynet-hf predict`."""

    _argument_group_name = "input and output"

    input_file: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "JSON lines, CSV, TSV or parquet: files, folders or patterns", metavar="FILE"
    )
    output_file: str | None = _argument("of .jsonl, .csv, .tsv (all with .gz) or .parquet", metavar="FILE")
    overwrite_output_file: bool = _argument("replace output_file if it exists", False)
    text_column: str | None = _argument("column of the sources; guessed by default", metavar="NAME")
    delimiter: str | None = _argument("of CSV and TSV files; guessed by default", metavar="TEXT")
    facts_column: str = _argument("column of the facts, if any", "facts", "NAME")
    features_column: str = _argument("column of the features", "features", "NAME")
    features_separator: str = _argument("between features", ";", "TEXT")
    prediction_column: str = _argument("column of the outputs", "prediction", "NAME")
    with_origins: bool = _argument("add the words and where they were copied from", False)
    num_proc: int = _argument("processes, one thread each", 1)
    window: int = _argument("rows sorted and written together", 1024)


@dataclass
class DemoArguments:
    """The arguments of `copynet-hf demo`."""

    model: str | None = _argument("folder or Hub name of the model", metavar="NAME")
    backend: str = _argument(BACKEND_HELP, "torch", "NAME")
    trust_remote_code: bool = _argument(TRUST_HELP, False)
    host: str = _argument("address to listen on; 0.0.0.0 accepts other machines", "127.0.0.1", "ADDRESS")
    port: int = _argument("port to listen on", 7860)
    examples: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "example texts on the page", metavar="TEXT"
    )
    device: str | None = _argument("cpu, cuda, ...; by default a GPU if there is one", metavar="NAME")


@dataclass
class ExportArguments:
    """The arguments of `copynet-hf export`."""

    model: str | None = _argument("folder or Hub name of the model", metavar="NAME")
    trust_remote_code: bool = _argument(TRUST_HELP, False)
    output_dir: str | None = _argument("folder for the graphs, the config and the tokenizer", metavar="FOLDER")
    overwrite_output_dir: bool = _argument("replace the model in output_dir", False)
    target: str = _argument("onnx: for Python, or web: a page that runs the model in the browser", "onnx")
    quantize: str | None = _argument("int8: weights of 8 bits; by default float32", metavar="NAME")
    examples: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "web: example texts on the page", metavar="TEXT"
    )
    onnxruntime_web: str | None = _argument(
        "web: the unpacked npm package; by default it is downloaded", metavar="FOLDER"
    )


@dataclass
class EnsembleArguments:
    """The arguments of `copynet-hf ensemble`."""

    models: list[str] | None = _argument(  # noqa: RUF009 - the call returns a dataclass field
        "folders or Hub names of two or more models", metavar="NAME"
    )
    trust_remote_code: bool = _argument(TRUST_HELP, False)
    output_dir: str | None = _argument("folder for the ensemble and its tokenizer", metavar="FOLDER")
    overwrite_output_dir: bool = _argument("replace the model in output_dir", False)


@dataclass
class QuickstartArguments:
    """The arguments of `copynet-hf quickstart`."""

    output_dir: str = _argument("folder for the model and the picture", "copynet-quickstart", "FOLDER")
    seed: int = _argument("random seed of the data and the model", 0)
    threads: int = _argument("number of PyTorch threads; more do not help so small a model", 1)


# The arguments that `copynet-hf train --help` lists first.
EVERYDAY_ARGUMENTS = (
    "train_file",
    "validation_file",
    "test_file",
    "text_column",
    "summary_column",
    "output_dir",
    "copy_mechanism",
    "num_train_epochs",
    "learning_rate",
    "per_device_train_batch_size",
    "num_beams",
    "seed",
)
# Those that it lists together, whatever their dataclass.
ENCODER_GROUP = "Transformers encoder in place of the GRU encoder"
ENCODER_ARGUMENTS = (
    "encoder_name_or_path",
    "encoder_learning_rate",
    "freeze_encoder",
    "cache_encoder_states",
    "encoder_pooling",
    "initial_state",
    "embeddings_from_encoder",
    "embedding_file",
)
# The arguments of Seq2SeqTrainingArguments that it lists as well, in this order.
TRAINER_GROUP = "training (of Transformers' Trainer)"
TRAINER_HELP = {
    "output_dir": "folder for the model, its card and its scores",
    "num_train_epochs": "number of epochs",
    "learning_rate": "initial learning rate",
    "per_device_train_batch_size": "training batch size per process",
    "seed": "random seed",
    "max_steps": "training steps, in place of epochs",
    "gradient_accumulation_steps": "batches per step",
    "warmup_steps": "steps of warmup",
    "weight_decay": "weight decay of AdamW",
    "label_smoothing_factor": "label smoothing",
    "bf16": "train in bfloat16 mixed precision",
    "predict_with_generate": "evaluate with ROUGE, BLEU and exact match",
    "eval_strategy": "when to evaluate",
    "metric_for_best_model": "metric of the best checkpoint",
    "train_sampling_strategy": "order of training pairs",
    "resume_from_checkpoint": "checkpoint, True for the last in output_dir, or auto: the last if there is one",
    "report_to": "where to log, e.g. tensorboard",
    "push_to_hub": "push the trained model to the Hub",
    "hub_model_id": "name of the model on the Hub",
}

METAVARS = {"int": "N", "float": "X", "string_to_bool": "BOOL", "dict": "JSON"}  # by the name of the type


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows one spelling of each argument, a short name for its type, and defaults other than None, False and 0."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        option = next(name for name in action.option_strings if name.startswith("--"))
        values = "" if action.nargs == 0 else self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{option} {values}".strip()

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        if action.dest == "output_dir":
            return "FOLDER"
        return METAVARS.get(getattr(action.type, "__name__", ""), "NAME")

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default else action.help


class ArgumentParser(HfArgumentParser):
    """An `HfArgumentParser` whose errors are ValueErrors of one line, without the usage."""

    def __init__(self, dataclass_types: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(dataclass_types, formatter_class=HelpFormatter, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


class _HelpAll(argparse.Action):
    """`--help_all` of a `TrainArgumentParser`."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        assert isinstance(parser, TrainArgumentParser)
        print(parser.format_sections(show_all=True), end="")
        parser.exit()


class TrainArgumentParser(ArgumentParser):
    """The parser of `copynet-hf train`. Its `--help` has the everyday arguments first, `--help_all` every argument.

    Args:
        defaults: shown in the help in place of the dataclasses' own; strings for those computed from the data.
    """

    def __init__(self, defaults: Mapping[str, Any], **kwargs: Any) -> None:
        own = [DataArguments, TokenizerArguments, ModelArguments, RunArguments, CardArguments]
        super().__init__([*own, Seq2SeqTrainingArguments], **kwargs)
        help_all = "list every argument, and exit"
        self.add_argument("--help_all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help=help_all)
        self.set_defaults(**defaults)
        for action in self._actions:
            action.help = TRAINER_HELP.get(action.dest, action.help)

    def format_help(self) -> str:
        return self.format_sections(show_all=False)

    def format_sections(self, show_all: bool) -> str:
        """The help text, with `show_all` also the Trainer's arguments that `TRAINER_HELP` leaves out."""
        sections = {"everyday arguments": list(EVERYDAY_ARGUMENTS)}
        for dataclass_type in self.dataclass_types:
            if dataclass_type is ModelArguments:
                sections[ENCODER_GROUP] = list(ENCODER_ARGUMENTS)
            title = getattr(dataclass_type, "_argument_group_name", TRAINER_GROUP)
            sections[title] = [entry.name for entry in dataclasses.fields(dataclass_type) if entry.init]
        if not show_all:
            sections[TRAINER_GROUP] = list(TRAINER_HELP)
        sections["help"] = ["help", "help_all"]

        actions = {action.dest: action for action in reversed(self._actions)}  # --name rather than --no_name
        formatter = self.formatter_class(prog=self.prog)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, names in sections.items():
            formatter.start_section(title)
            formatter.add_arguments([actions.pop(name) for name in names if name in actions])  # each argument once
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parse_arguments(parser: ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """The arguments that `argv` gives, by name and with the types of the parser's dataclasses, without any defaults.

    The first argument may be a JSON or YAML file of arguments, which those after it override.

    Raises:
        ValueError: an unknown argument, or a value of another type.
    """
    argv = list(argv)
    if argv and argv[0].endswith(CONFIG_FILE_SUFFIXES):
        argv = [*_read_argument_file(Path(argv[0])), *argv[1:]]
    names = [entry.name for dataclass_type in parser.dataclass_types for entry in dataclasses.fields(dataclass_type)]
    unset = object()  # argparse sets no default where the namespace has a value
    parsed = parser.parse_args(argv, argparse.Namespace(**dict.fromkeys(names, unset)))
    return {name: value for name, value in vars(parsed).items() if value is not unset}


def build_dataclass(dataclass_type: type[T], arguments: Mapping[str, Any]) -> T:
    """An instance of `dataclass_type` from those of the arguments that are its fields."""
    names = {entry.name for entry in dataclasses.fields(dataclass_type)}  # type: ignore[arg-type]
    return dataclass_type(**{name: value for name, value in arguments.items() if name in names})


def check_positive(arguments: Any, *names: str) -> None:
    """Raises ValueError for the first of the named arguments that is below 1, or too large for a tensor's size."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} is {value}: give 1 or more")
        if value is not None and value > MAX_SIZE:
            raise ValueError(f"--{name} is {value}: give at most {MAX_SIZE}")


def _read_argument_file(path: Path) -> list[str]:
    """The contents of a JSON or YAML file as a command line, so that one parser checks both."""
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid JSON or YAML ({' '.join(str(error).split())}): correct it") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is a {type(content).__name__}: give a mapping from argument names to values")
    argv = []
    for name, value in content.items():
        if value is not None:
            values = value if isinstance(value, list) else [value]
            argv += [f"--{name}", *(json.dumps(each) if isinstance(each, dict) else str(each) for each in values)]
    return argv
