"""What the commands can be told: one dataclass for each subject, and reading them from a command line or a file.

Names follow transformers' run_summarization.py. `read_arguments` returns only what was said, so that a default can
depend on the data: the number of epochs, say, on the number of pairs.
"""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from transformers import HfArgumentParser

CONFIG_FILES = (".json", ".yaml", ".yml")

T = TypeVar("T")


def _argument(help: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": help})


def _switch(help: str) -> Any:
    """A yes or no whose default is decided elsewhere: `--name`, or `--name False`."""
    return field(default=None, metadata={"help": help, "nargs": "?", "const": True})


@dataclass
class PairsArguments:
    """Where pairs are, and which of their columns count."""

    test_file: str | None = _argument(
        "pairs that the model is scored on: .jsonl, .csv, .tsv, .parquet or raw LCSTS .txt"
    )
    dataset_name: str | None = _argument("a data set on the Hub, in place of files")
    dataset_config_name: str | None = _argument("its configuration")
    text_column: str | None = _argument("the column of the sources; guessed when left out")
    summary_column: str | None = _argument("the column of the targets; guessed when left out")
    max_eval_samples: int | None = _argument("use no more validation or test pairs than this")

    def source(self) -> dict[str, Any]:
        """What `load_pairs` is told beside the files."""
        names = ("dataset_name", "dataset_config_name", "text_column", "summary_column")
        return {name: getattr(self, name) for name in names}


@dataclass
class DataArguments(PairsArguments):
    """Where the pairs are."""

    train_file: str | None = _argument("pairs to learn from: .jsonl, .csv, .tsv, .parquet or raw LCSTS .txt")
    validation_file: str | None = _argument("pairs that choose the best checkpoint and end the training in time")
    streaming: bool = _argument("read the pairs while training instead of before; needs --max_steps", False)
    max_source_length: int = _argument("words of a source that are read", 512)
    max_target_length: int = _argument("words of a target, its end included", 128)
    max_train_samples: int | None = _argument("use no more training pairs than this")
    preprocessing_num_workers: int | None = _argument("processes that tokenize")


@dataclass
class TokenizerArguments:
    """What a word is, and which words the model knows."""

    tokenizer_name: str | None = _argument("folder or Hub name of a finished tokenizer; else one is trained")
    segmenter: str = _argument(
        "auto (char for Chinese and Japanese, else word_punct), char, whitespace, jieba, fugashi or word_punct", "auto"
    )
    vocab_size: int | None = _argument("words the model can generate; by default 3000 characters or 10000 words")
    min_frequency: int = _argument("a word seen less often in the training pairs can only be copied", 5)
    max_source_oov: int | None = _argument("slots for the unseen words of a source; by default enough for all")


@dataclass
class ModelArguments:
    """The model. Fields of `CopyNetConfig` are described there; left out, they are those of the preset."""

    model_name_or_path: str | None = _argument("a model to go on from")
    preset: str | None = _argument("the paper's sizes: synthetic, lcsts_char or lcsts_word")
    embedding_size: int | None = _argument("width of the embeddings")
    hidden_size: int | None = _argument("width of the decoder's state")
    encoder_hidden_size: int | None = _argument("width of the encoder's state, per direction")
    num_hidden_layers: int | None = _argument("layers of the encoder")
    attention_size: int | None = _argument("width of the attention's hidden layer")
    dropout: float | None = _argument("dropout")
    copy_mechanism: str | None = _argument("copynet, pointer_generator, gated, pointer, retrieval or none")
    attention: bool | None = _switch("attentive read; without it, the encoder's last state")
    selective_read: bool | None = _switch("selective read")
    readout: list[str] | None = _argument(  # noqa: RUF009 - what it makes is a dataclass field
        "what the scores see: state context embedding selective_read"
    )
    use_coverage: bool | None = _switch("the attention sees where it has been")
    copies_from: list[str] | None = _argument(  # noqa: RUF009 - what it makes is a dataclass field
        "with retrieval, what is written from: question facts"
    )
    coverage_loss_weight: float | None = _argument("λ of the coverage loss")
    gate_loss_weight: float | None = _argument("of whether the target stands in the source, with gated")
    gated_loss: str | None = _argument("mixture, or summed as in the Chainer article")
    aligned_words: int | None = _argument("with gated, words that each source word allows; 0: the whole vocabulary")
    frequent_words: int | None = _argument("with aligned_words, words that are always allowed")
    use_fused: bool | None = _switch("the faster recurrence")
    initializer_range: float | None = _argument("embeddings start in ± this")
    tie_word_embeddings: bool | None = _switch("generate scores use the embedding table")
    num_beams: int = _argument("beams, saved with the model", 5)
    forbid_unk: bool = _argument("never generate <unk>, saved with the model", True)


@dataclass
class RunArguments:
    """The run as a whole, beside transformers' own training arguments."""

    early_stopping_patience: int = _argument("evaluations without improvement that end the training; 0: none", 5)
    overwrite_output_dir: bool = _argument("replace the model that output_dir holds", False)
    max_minutes: float | None = _argument("the training ends after so many minutes, as if after its last epoch")
    threads: int | None = _argument("threads of torch")


@dataclass
class CardArguments:
    """What the model's card says that the data do not."""

    language: str | None = _argument("language of the texts, such as zh, for the model's card")
    license: str | None = _argument("licence of the weights, by its identifier on the Hub, for the model's card")


@dataclass
class DecodingArguments:
    """How outputs are searched; what is left out is as the model was saved."""

    model: str | None = _argument("folder or Hub name of the model")
    batch_size: int = _argument("sources decoded together", 32)
    num_beams: int | None = _argument("beams")
    length_penalty: float | None = _argument("exponent of the length; above 0 favours longer outputs")
    max_source_length: int | None = _argument("words of a source that are read")
    max_target_length: int | None = _argument("words of an output, its end included")
    forbid_unk: bool | None = _switch("never generate <unk>")
    bf16: bool = _argument("compute in bfloat16", False)
    device: str | None = _argument("cpu, cuda, ...; by default a GPU where there is one")
    threads: int | None = _argument("threads of torch")


@dataclass
class EvaluateArguments(PairsArguments, DecodingArguments):
    """Prints one JSON object of scores. All are percentages but examples and seconds; copied_fraction is the share of
    the outputs' words that stand in the source, whether they were copied or generated, and copy_mode_fraction, which
    only models that copy have, the share of the outputs' words that the copy mode gave more than half of the
    probability.
    """

    num_return_sequences: int = _argument("outputs for each source, for exact_match_top_k", 1)
    output_file: str | None = _argument("a new file for the predictions, as JSON lines")
    overwrite_output_file: bool = _argument("replace output_file if it is there", False)


@dataclass
class GenerateArguments(DecodingArguments):
    """What to answer; without --text, the lines of standard input."""

    text: list[str] | None = _argument("one or more sources")  # noqa: RUF009
    facts: list[str] | None = _argument(  # noqa: RUF009 - what it makes is a dataclass field
        "what is known for all sources, one or more times 'subject | property | object'"
    )
    show_copies: bool = _argument("mark copied words: in colour on a terminal, else in [brackets]", False)


@dataclass
class DemoArguments:
    """A page in the browser to try a model on."""

    model: str | None = _argument("folder or Hub name of the model")
    host: str = _argument("address that is listened to; 0.0.0.0 lets other machines in", "127.0.0.1")
    port: int = _argument("port", 7860)
    share: bool = _argument("open a public link through gradio's servers", False)
    examples: list[str] | None = _argument("texts to choose from")  # noqa: RUF009
    device: str | None = _argument("cpu, cuda, ...; by default a GPU where there is one")


@dataclass
class ExportArguments:
    """Writes ONNX graphs of the encoder and of a decoder step, for copynet_hf.inference.onnx_search."""

    model: str | None = _argument("folder or Hub name of the model")
    output_dir: str | None = _argument("folder for the graphs, the config and the tokenizer")
    overwrite_output_dir: bool = _argument("replace the model that output_dir holds", False)


@dataclass
class QuickstartArguments:
    """The quickstart."""

    output_dir: str = _argument("folder of the model and the picture", "copynet-quickstart")
    seed: int = _argument("seed of data and model", 0)
    threads: int = _argument("threads of torch; so small a model gains nothing from more", 1)


class ArgumentParser(HfArgumentParser):
    """A parser whose errors are ValueErrors of one line; argparse prints all of the 200 arguments first."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def read_arguments(
    kinds: Sequence[Any], argv: Sequence[str], prog: str, defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What `argv` says, by name and with the types of the dataclasses `kinds`; nothing of what it leaves out.

    The first argument may be a JSON or YAML file of arguments; what follows it has the last word.

    Args:
        defaults: shown by `--help` in place of the dataclasses' own.

    Raises:
        ValueError: an unknown argument or a value of another type.
    """
    parser = ArgumentParser(kinds, prog=prog, description=kinds[0].__doc__, allow_abbrev=False)
    parser.set_defaults(**(defaults or {}))
    argv = list(argv)
    if argv and argv[0].endswith(CONFIG_FILES):
        argv = [*_file_arguments(Path(argv[0])), *argv[1:]]
    names = [entry.name for kind in kinds for entry in dataclasses.fields(kind)]
    unsaid = object()  # argparse leaves alone what the namespace has already
    said = parser.parse_args(argv, Namespace(**dict.fromkeys(names, unsaid)))
    return {name: value for name, value in vars(said).items() if value is not unsaid}


def pick(kind: type[T], said: Mapping[str, Any]) -> T:
    """The dataclass made of those arguments that are its own."""
    names = {entry.name for entry in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in said.items() if name in names})


def check_positive(arguments: Any, *names: str) -> None:
    """Raises ValueError for an argument below 1, naming it."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value}: give 1 or more")


def _file_arguments(path: Path) -> list[str]:
    """The contents of a JSON or YAML file as a command line, so that both are read by the same rules."""
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not valid ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: give a mapping from argument names to values")
    given = {name: value for name, value in content.items() if value is not None}
    return [part for name, value in given.items() for part in (f"--{name}", *_words(value))]


def _words(value: Any) -> Iterable[str]:
    if isinstance(value, list):
        return [str(item) for item in value]
    return [json.dumps(value) if isinstance(value, dict) else str(value)]
