"""The arguments of the commands: dataclasses of those that several modules read, and the parser.

Names follow Transformers' run_summarization.py. Neither torch nor Transformers is imported, so that `--help` is shown
at once. The parser returns only the arguments that were given, so that a default can depend on the data: the number of
epochs, for example, on the number of pairs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from numbers import Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

CONFIG_FILE_SUFFIXES = (".json", ".yaml", ".yml")
MAX_SIZE = 2**63 - 1  # of a tensor
MAX_EXPONENT = 100  # of the length: larger ones overflow
# Of a new model, unless other values are given.
MAX_SOURCE_LENGTH, MIN_TARGET_LENGTH, MAX_TARGET_LENGTH, NUM_BEAMS = 512, 128, 512, 5
BACKEND_HELP = "torch; onnx if exported"
COPIED_ONLY_HELP = "write words that match only if the source has them"
MIN_CONFIDENCE_HELP = "mark outputs that are right with a lower probability"
TRUST_HELP = "run code from the model's folder"

Values = Mapping[str, Any]  # arguments by name
# What is to be done about a number that is out of its range; None: it is within.
Check = Callable[[float], str | None]


def at_least(lowest: int) -> Check:
    """The check of a number of at least `lowest` that a tensor's size can be."""

    def check(value: float) -> str | None:
        if not value >= lowest:
            return f"use {lowest} or more"
        return f"use at most {MAX_SIZE}" if value > MAX_SIZE else None

    return check


def between(lowest: float, highest: float) -> Check:
    """The check of a number of these bounds."""
    return lambda value: None if lowest <= value <= highest else f"use a number between {lowest} and {highest}"


def _share(value: float) -> str | None:
    return None if 0 <= value < 1 else "use a number from 0, which turns it off, to below 1"


def above_zero(value: float) -> str | None:
    """The check of a number above 0."""
    return None if value > 0 else "use more than 0"


def argument(
    help: str, default: object = None, metavar: str | None = None, *, shown: object = None, check: Check | None = None
) -> Any:
    """A field of a dataclass of arguments.

    Args:
        shown: as the help text shows the default where it is computed.
        check: what the value, if it is not None, has to pass.
    """
    return field(default=default, metadata={"help": help, "metavar": metavar, "shown": shown, "check": check})


def count(help: str, default: int | None = None, *, shown: object = None) -> Any:
    """A field that is a number of at least 1."""
    return argument(help, default, shown=shown, check=at_least(1))


class Arguments:
    """Base class of the dataclasses. Raises ValueError for a value that is out of its range."""

    def __post_init__(self) -> None:
        check_types(type(self), vars(self))
        for entry in dataclasses.fields(self):  # type: ignore[arg-type]
            value, check = getattr(self, entry.name), entry.metadata.get("check")
            if value is not None and check is not None:
                check_argument(entry.name, value, check)


def check_argument(name: str, value: float, check: Check) -> None:
    """Raises ValueError if the value of the argument does not pass the check."""
    fix = check(value)
    if fix is not None:
        raise ValueError(f"--{name} is {value if isinstance(value, int) else format(value, 'g')}: {fix}")


# By the type of a field: whether it may hold a value, and what a message asks for otherwise.
_ACCEPTED: dict[object, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda value: isinstance(value, Real) and value in (0, 1), "True or False"),
    int: (lambda value: isinstance(value, Real) and float(value).is_integer(), "a whole number"),
    float: (lambda value: isinstance(value, Real), "a number"),
    str: (
        lambda value: isinstance(value, str | os.PathLike) or value is True,
        "a string",
    ),  # resume_from_checkpoint=True
}


def check_types(kind: type, values: Values) -> None:
    """Raises ValueError for a value that is not of the type of its field in this dataclass: unlike the command line,
    Python may pass any object. Only fields of one type in `_ACCEPTED` are checked; None always passes."""
    types = get_type_hints(kind)
    for name, value in values.items():
        wanted = _list_types(types.get(name))
        if value is not None and len(wanted) == 1 and wanted[0] in _ACCEPTED:
            accepts, noun = _ACCEPTED[wanted[0]]
            if not accepts(value.item() if getattr(value, "ndim", None) == 0 else value):  # of NumPy or torch
                shown = repr(value) if isinstance(value, str | Real) else f"a {type(value).__name__}"
                raise ValueError(f"--{name} is {shown}: pass {noun}")


def _list_types(hint: object) -> list[object]:
    """The types of a hint but None: those of a union, or the one."""
    types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [each for each in types if each is not NoneType]


A = TypeVar("A", bound=Arguments)


@dataclass
class PairsArguments(Arguments):
    """A dataset of pairs or the columns of its files, as `load_pairs` reads them."""

    _argument_group_name = "data"

    dataset_name: str | None = argument("dataset (Hub name or folder), in place of files", metavar="NAME")
    dataset_config_name: str | None = argument("configuration of that dataset", metavar="NAME")
    text_column: str | None = argument("column of the sources; guessed by default", metavar="NAME")
    summary_column: str | None = argument("column of the targets; guessed by default", metavar="NAME")
    features_column: str | None = argument("column of the features: read, never copied", metavar="NAME")
    features_separator: str | None = argument("between features", metavar="TEXT", shown=";")
    column_names: list[str] | None = argument("columns of CSV or TSV files without a header", metavar="NAME")
    delimiter: str | None = argument("of CSV and TSV files; guessed by default", metavar="TEXT")
    max_eval_samples: int | None = count("use at most N validation and N test pairs")


@dataclass
class TestArguments(PairsArguments):
    """Test pairs."""

    test_file: str | None = argument("test pairs: JSON, CSV, parquet or LCSTS", metavar="FILE")


@dataclass
class DataArguments(TestArguments):
    """Pairs for training and evaluation, and how many words of them are used."""

    train_file: str | None = argument("training pairs: JSON, CSV, parquet or LCSTS", metavar="FILE")
    validation_file: str | None = argument("pairs for the best checkpoint, early stopping", metavar="FILE")
    streaming: bool = argument("read pairs during training (needs --max_steps)", False)
    max_source_length: int | None = count("truncate sources to N words", shown=MAX_SOURCE_LENGTH)
    max_target_length: int | None = count(
        "truncate targets to N words", shown=f"{MIN_TARGET_LENGTH}–{MAX_TARGET_LENGTH}"
    )
    max_train_samples: int | None = count("use at most N training pairs")
    preprocessing_num_workers: int | None = count("number of processes for tokenization")


@dataclass
class TokenizerArguments(Arguments):
    """The tokenizer: its segmenter and its vocabulary."""

    _argument_group_name = "tokenizer"

    tokenizer_name: str | None = argument("use this tokenizer; by default one is trained", metavar="NAME")
    segmenter: str = argument("char, whitespace, jieba, fugashi, word_punct, {word,code}_{parts,digits}", "auto")
    vocab_size: int | None = count("size", shown="3000 characters or 10000 words")
    min_frequency: int | None = count("rarer words are copied", shown="5, 3 or 1")
    chains: bool = argument("join target words from others", True)
    letters: bool | None = argument("letters of rare words", shown="word_*, code_*")
    max_source_oov: int | None = argument("slots", shown="computed from the sources")


@dataclass
class EncoderArguments(Arguments):
    """A pretrained encoder, and embeddings to start from."""

    _argument_group_name = "Transformers encoder in place of the GRU encoder"

    encoder_name_or_path: str | None = argument("its folder or Hub name", metavar="NAME")
    encoder_learning_rate: float | None = argument("its learning rate", shown="5e-5")
    freeze_encoder: bool = argument("do not train it", False)
    cache_encoder_states: bool = argument("frozen: compute its states once per text", False)
    encoder_pooling: str | None = argument("of a word: mean, first or last", metavar="NAME", shown="mean")
    encoder_gru: bool | None = argument("GRU layers over its states", shown=True)
    initial_state: str | None = argument("s_0 without: first, mean, last", metavar="NAME", shown="first")
    embeddings_from_encoder: bool = argument("initialise word embeddings by its pieces", False)
    embedding_file: str | None = argument("initialise them by word2vec or GloVe text", metavar="FILE")


@dataclass
class ModelArguments(EncoderArguments):
    """The model: fields of `CopyNetConfig`, and the generation settings that are saved with it."""

    _argument_group_name = "model (defaults as shown, or those of the preset, encoder or decoder)"

    model_name_or_path: str | None = argument("folder or Hub name of a model to continue from", metavar="NAME")
    seq2seq_name_or_path: str | None = argument("add a copy head to this encoder-decoder", metavar="NAME")
    trust_remote_code: bool = argument(TRUST_HELP, False)
    preset: str | None = argument("the paper's synthetic, lcsts_char, lcsts_word", metavar="NAME")
    embedding_size: int | None = argument("embedding size", shown=128)
    hidden_size: int | None = argument("size of the decoder state", shown=256)
    encoder_hidden_size: int | None = argument("encoder state, per direction", shown=128)
    num_hidden_layers: int | None = argument("number of encoder layers", shown=1)
    encoder_residual: bool | None = argument("add embeddings to its states", shown=True)
    tie_repetitions: bool | None = argument("tie the mentions of rare words", shown=True)
    decoder: str | None = argument("gru, or transformer (encoder too)", metavar="NAME", shown="gru")
    copy_layer: int | None = argument("transformer: layer whose attention is copied by", shown="the last")
    copy_head: int | None = argument("transformer: its head", shown="the average")
    attention_size: int | None = argument("hidden size of the attention", shown=128)
    dropout: float | None = argument("dropout probability", shown=0.3)
    copy_mechanism: str | None = argument(
        "copynet, pointer_generator, gated, pointer, retrieval or none", metavar="NAME", shown="copynet"
    )
    attention: bool | None = argument("attention over the source", shown=True)
    selective_read: bool | None = argument("selective read", shown="True for copynet")
    readout: list[str] | None = argument(
        "inputs of the scores, such as state context", metavar="NAME", shown="those of the mechanism"
    )
    use_coverage: bool | None = argument("coverage (See et al. 2017)", shown=True)
    copies_from: list[str] | None = argument("retrieval: one or both", metavar="NAME", shown="question facts")
    coverage_loss_weight: float | None = argument("weight λ of the coverage loss")
    gate_loss_weight: float | None = argument("gated: weight of the gate's loss", shown=1.0)
    gated_loss: str | None = argument("gated: mixture or summed", metavar="NAME", shown="mixture")
    aligned_words: int | None = argument("gated: target words per source word; 0 for all")
    frequent_words: int | None = argument("gated: words always allowed", shown=2000)
    use_fused: bool | None = argument("fused recurrence", shown=True)
    initializer_range: float | None = argument("embeddings are initialised in ± X", shown=0.1)
    tie_word_embeddings: bool | None = argument("share the embeddings with the output layer")
    num_beams: int | None = count("beam size, saved with the model", shown=NUM_BEAMS)
    forbid_unk: bool | None = argument("never generate <unk>", shown=True)


@dataclass
class RunArguments(Arguments):
    """The run, in addition to `Seq2SeqTrainingArguments`."""

    _argument_group_name = "run"

    dry_run: bool = argument("describe and time the run, write nothing", False)
    vocabulary_dropout: float = argument("share of source words made unseen", 0.1, check=_share)
    compound_copies: float = argument("share of augmented pairs", 0.3, check=_share)
    guided_attention: float | None = argument("attention guide's weight", shown="0.2 or 0", check=at_least(0))
    ema_decay: float = argument("decay of the averaged weights", 0.998, check=_share)
    early_stopping_patience: int | None = argument("evaluations without a gain", shown="1/4 of all", check=at_least(0))
    overwrite_output_dir: bool = argument("replace the model in output_dir", False)
    max_minutes: float | None = argument("stop training after X minutes", check=above_zero)
    threads: int | None = count("number of PyTorch threads")


@dataclass
class CardArguments(Arguments):
    """What the model card says in addition to what the run knows."""

    _argument_group_name = "model card"

    language: str | None = argument("language of the texts, such as zh", metavar="CODE")
    license: str | None = argument("licence of the weights, as the Hub spells it", metavar="NAME")


@dataclass
class TrainArguments(DataArguments, TokenizerArguments, ModelArguments, RunArguments, CardArguments):
    """The arguments of a training run; None: the default depends on the pairs, or on the model it starts from."""


@dataclass
class DecodingArguments(Arguments):
    """The model, and how it decodes; by default with the settings saved with the model."""

    _argument_group_name = "model and decoding (by default the settings saved with the model)"

    model: str | None = argument("folder or Hub name of the model", metavar="NAME")
    backend: str = argument(BACKEND_HELP, "torch", "NAME")
    trust_remote_code: bool = argument(TRUST_HELP, False)
    batch_size: int = count("batch size", 32)
    num_beams: int | None = count("beam size")
    length_penalty: float | None = argument(
        "exponent of the length; above 0 favours longer outputs", check=between(-MAX_EXPONENT, MAX_EXPONENT)
    )
    max_source_length: int | None = count("truncate sources to N words")
    max_target_length: int | None = count("generate at most N words, with the end symbol")
    forbid_unk: bool | None = argument("never generate <unk>")
    copied_only: str | None = argument(COPIED_ONLY_HELP, metavar="REGEX")
    bf16: bool = argument("compute in bfloat16", False)
    device: str | None = argument("cpu, cuda, ...; by default a GPU if there is one", metavar="NAME")
    threads: int | None = count("number of threads")

    def model_options(self) -> Values:
        """The arguments of `load_backend`."""
        options = {name: getattr(self, name) for name in ("backend", "device", "bf16", "trust_remote_code", "threads")}
        return {"name": self.model, **options}

    def search_options(self) -> Values:
        """The keyword arguments of `predict_in_batches`."""
        names = ("batch_size", "num_beams", "length_penalty", "max_source_length", "forbid_unk", "copied_only")
        return {"max_new_tokens": self.max_target_length, **{name: getattr(self, name) for name in names}}


METAVARS = {"int": "N", "float": "X", "string_to_bool": "BOOL", "dict": "JSON"}  # by the name of the type


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows one spelling of each argument, a short name for its type, and defaults other than None, False and 0."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        option = next(name for name in action.option_strings if name.startswith("--"))
        values = "" if action.nargs == 0 else self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{option} {values}".strip()

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return METAVARS.get(getattr(action.type, "__name__", ""), "NAME")

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default else action.help


class ArgumentParser(argparse.ArgumentParser):
    """Reads the fields of a dataclass, in a group of the help text for each of its base classes. Its errors are
    ValueErrors of one line, without the usage.

    Args:
        first: the arguments that the help text lists first.
    """

    def __init__(self, arguments_type: type[Arguments], first: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(formatter_class=partial(HelpFormatter, max_help_position=30), allow_abbrev=False, **kwargs)
        self.arguments_type = arguments_type
        groups: dict[str, argparse._ActionsContainer] = {"options": self}
        if first:
            groups["first"] = self.add_argument_group("everyday arguments")
        types = get_type_hints(arguments_type)
        fields = {entry.name: entry for entry in dataclasses.fields(arguments_type)}  # type: ignore[arg-type]
        for kind in arguments_type.__mro__:
            title = getattr(kind, "_argument_group_name", "options")
            for name in [name for name in vars(kind).get("__annotations__", ()) if name in fields]:
                key = "first" if name in first else title
                if key not in groups:
                    groups[key] = self.add_argument_group(title)
                _add_field(groups[key], fields.pop(name), types[name])

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")

    def parse_given(self, argv: Sequence[str]) -> Values:
        """The arguments that `argv` gives, by name and with the types of the fields, without any defaults.

        The first argument may be a JSON or YAML file of arguments, which those after it override.
        """
        if argv and not argv[0].startswith("-") and argv[0].endswith(CONFIG_FILE_SUFFIXES):
            argv = [*_read_argument_file(Path(argv[0])), *argv[1:]]
        unset = object()  # argparse sets no default where the namespace has a value
        names = [action.dest for action in self._actions]
        words = [_underscore(word) for word in argv]
        parsed, rest = self.parse_known_args(words, argparse.Namespace(**dict.fromkeys(names, unset)))
        if rest:
            self._refuse(rest)
        return expand_home({name: value for name, value in vars(parsed).items() if value is not unset})

    def parse(self, argv: Sequence[str]) -> Any:
        """What the command's function is called with: the dataclass."""
        return build_arguments(self.arguments_type, self.parse_given(argv))

    def _refuse(self, words: Sequence[str]) -> NoReturn:
        """Raises ValueError for words of the command line that are no arguments, with the nearest argument."""
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        if not options:
            self.error(f"{' '.join(words)!r} belongs to no argument; a value with spaces needs quotes")
        known = [name for action in self._actions for name in action.option_strings]
        longer = sorted((name for name in known if name.startswith(f"{options[0]}_")), key=len)
        ending = [name for name in known if name.endswith(f"_{options[0].removeprefix('--')}")]  # --epochs
        ending.sort(key=lambda name: name.count("_"))
        nearest = [*longer, *get_close_matches(options[0], known, 1, 0.75), *ending]
        self.error(f"{options[0]} is not an argument" + (f"; did you mean {nearest[0]}?" if nearest else ""))


def _add_field(group: argparse._ActionsContainer, entry: dataclasses.Field[object], kind: object) -> None:
    """Adds the argument of a field of this type, with `--no_NAME` for a boolean that is true by default."""
    (kind,) = _list_types(kind)
    settings: dict[str, Any] = {"type": kind}
    if kind is bool:
        settings = {"type": string_to_bool, "nargs": "?", "const": True}
    elif get_origin(kind) is list:
        settings = {"type": str, "nargs": "+"}
    shown, text = entry.metadata["shown"], entry.metadata["help"]
    settings["default"] = entry.default if shown is None else shown
    group.add_argument(f"--{entry.name}", help=text, metavar=entry.metadata["metavar"], **settings)
    if settings["default"] is True:
        group.add_argument(f"--no_{entry.name}", action="store_false", dest=entry.name, help=argparse.SUPPRESS)


def _underscore(word: str) -> str:
    """The name of an argument may be spelled with hyphens."""
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else word


def string_to_bool(value: str) -> bool:
    """The value of a boolean argument, in the spellings that Transformers accepts."""
    if value.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if value.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{value} is neither true nor false")


# The arguments that may be paths although their names do not end so.
OTHER_PATHS = ("model", "models", "tokenizer_name", "resume_from_checkpoint", "dataset_name", "onnxruntime_web")


def expand_home(values: Values) -> Values:
    """The values, with the home folder for `~` in paths; shells leave it where it follows `=`."""

    def expand(value: Any) -> Any:
        if isinstance(value, list):
            return [expand(each) for each in value]
        return os.path.expanduser(value) if isinstance(value, str | os.PathLike) else value  # noqa: PTH111 - not ~a

    is_path = {name: name.endswith(("_dir", "_file", "_path")) or name in OTHER_PATHS for name in values}
    return {name: expand(value) if is_path[name] else value for name, value in values.items()}


def build_arguments(kind: type[A], given: Values) -> A:
    """An instance of a dataclass from those of the given arguments that are its fields.

    Raises:
        ValueError: a value that is out of its range.
    """
    return kind(**select_fields(kind, given))


def select_fields(kind: type, values: Values) -> Values:
    """Those of the values that are fields of a dataclass."""
    names = {entry.name for entry in dataclasses.fields(kind) if entry.init}
    return {name: value for name, value in values.items() if name in names}


@dataclass(frozen=True)
class Command:
    """What a file of `commands/` defines as `COMMAND`.

    Attributes:
        run: is called with what the parser's `parse` returns; its docstring is in the help text.
        usage: what the usage line has between the name of the command and its other arguments.
        uses_transformers: whether Transformers has to know the package's classes.
    """

    run: Callable[..., None]
    usage: str
    arguments_type: type[Arguments]
    parser_type: type[ArgumentParser] = ArgumentParser
    uses_transformers: bool = True

    def build_parser(self, name: str) -> ArgumentParser:
        """The parser of the command, which is called `name`."""
        return self.parser_type(
            self.arguments_type,
            prog=f"copynet-hf {name}",
            usage=f"%(prog)s {self.usage}[ARGUMENTS]",
            description=self.run.__doc__,
        )


def _read_argument_file(path: Path) -> list[str]:
    """The contents of a JSON or YAML file as a command line, so that one parser checks both."""
    import yaml  # type: ignore[import-untyped]

    class Loader(yaml.SafeLoader):
        """In which `no`, the value of some arguments, is a text, as in YAML 1.2; booleans may have any spelling."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
            letter: [(tag, pattern) for tag, pattern in resolvers if letter in "tTfF" or not tag.endswith(":bool")]
            for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON or YAML ({' '.join(str(error).split())}): correct it") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} is a {type(content).__name__}: pass a mapping from argument names to values")
    argv = []
    for name, value in content.items():
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        words = [json.dumps(each) if isinstance(each, dict) else str(each) for each in values]
        # after "=", a single value may begin with a hyphen
        argv += [f"--{name}={words[0]}"] if len(words) == 1 else [f"--{name}", *words]
    return argv
