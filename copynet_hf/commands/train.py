"""`copynet-hf train`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..arguments import (
    ArgumentParser,
    Arguments,
    CardArguments,
    Command,
    DataArguments,
    ModelArguments,
    RunArguments,
    TokenizerArguments,
)

# The arguments that --help lists first.
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
# The arguments of Seq2SeqTrainingArguments that it lists as well: for each its metavar, help and default.
TRAINER_GROUP = "training (of Transformers' Trainer)"
TRAINER_HELP: dict[str, tuple[str, str, object]] = {
    "output_dir": ("FOLDER", "folder for the model, its card and its scores", None),
    "num_train_epochs": ("X", "number of epochs", "5 to 60, computed from the number of pairs"),
    "learning_rate": ("X", "initial learning rate", "0.002 or 0.0005"),
    "per_device_train_batch_size": ("N", "training batch size per process", 16),
    "seed": ("N", "random seed", 42),
    "max_steps": ("N", "training steps, in place of epochs", -1),
    "gradient_accumulation_steps": ("N", "batches per step", 1),
    "warmup_steps": ("X", "steps of warmup", "100, at most half"),
    "weight_decay": ("X", "weight decay of AdamW", 0.0),
    "label_smoothing_factor": ("X", "label smoothing", "0.1 for words that are spelled, else 0"),
    "bf16": ("BOOL", "train in bfloat16 mixed precision", False),
    "predict_with_generate": ("BOOL", "evaluate with ROUGE, BLEU and exact match", False),
    "eval_strategy": ("{no,steps,epoch}", "when to evaluate", "steps with validation"),
    "metric_for_best_model": (
        "NAME",
        "metric of the best checkpoint",
        "accuracy, or rougeL with predict_with_generate",
    ),
    "train_sampling_strategy": (
        "NAME",
        "order of training pairs: random, sequential, group_by_length",
        "group_by_length; random with streaming or predict_with_generate",
    ),
    "resume_from_checkpoint": (
        "NAME",
        "checkpoint, True for the last in output_dir, or auto: the last if there is one",
        None,
    ),
    "report_to": ("NAME", "where to log, e.g. tensorboard", "none"),
    "push_to_hub": ("BOOL", "push the trained model to the Hub", False),
    "hub_model_id": ("NAME", "name of the model on the Hub", None),
}
# How --help_all shows the computed defaults of its other arguments.
TRAINER_DEFAULTS = {
    "eval_steps": "0.025, a share of the training",
    "save_strategy": "as eval_strategy",
    "save_steps": "as eval_steps",
    "load_best_model_at_end": "with validation pairs",
    "dataloader_pin_memory": "with an accelerator",
    "use_cpu": "without an accelerator",
}


class TrainArgumentParser(ArgumentParser):
    """The parser of `copynet-hf train`. Its `--help` has the everyday arguments first, and does not import
    Transformers; `--help_all` has every argument."""

    def __init__(self, dataclass_types: Sequence[type[Arguments]], **kwargs: Any) -> None:
        super().__init__(dataclass_types, **kwargs)
        for name, (metavar, text, default) in TRAINER_HELP.items():
            nargs = "?" if metavar == "BOOL" else None
            self.add_argument(f"--{name}", metavar=metavar, nargs=nargs, help=text, default=default)
        self.add_argument("--help_all", action="store_true", help="list every argument, and exit")

    def parse_given(self, argv: Sequence[str]) -> dict[str, Any]:
        if not {"-h", "--help"} & {*argv}:
            self._add_trainer_arguments()
        if "--help_all" in argv:
            print(self.format_sections(show_all=True), end="")
            self.exit()
        return super().parse_given(argv)

    def parse_dataclasses(self, argv: Sequence[str]) -> tuple[Any, ...]:
        """The arguments that were given, since defaults depend on the data."""
        return (self.parse_given(argv),)

    def _add_trainer_arguments(self) -> None:
        """Adds all arguments of Seq2SeqTrainingArguments, which replace those that the help lists."""
        from transformers import HfArgumentParser, Seq2SeqTrainingArguments

        from ..training.defaults import TRAINING_DEFAULTS

        defaults = TRAINING_DEFAULTS | TRAINER_DEFAULTS
        self._add_container_actions(HfArgumentParser(Seq2SeqTrainingArguments, add_help=False))  # type: ignore[arg-type]
        for action in self._actions:
            action.default = defaults.get(action.dest, action.default)
            if action.dest in TRAINER_HELP:
                _, action.help, action.default = TRAINER_HELP[action.dest]

    def format_help(self) -> str:
        return self.format_sections(show_all=False)

    def format_sections(self, show_all: bool) -> str:
        """The help text, with `show_all` also the Trainer's arguments that `TRAINER_HELP` leaves out."""
        actions = {action.dest: action for action in reversed(self._actions)}  # --name rather than --no_name
        sections = {"everyday arguments": list(EVERYDAY_ARGUMENTS)}
        for dataclass_type in self.dataclass_types:
            if dataclass_type is ModelArguments:
                sections[ENCODER_GROUP] = list(ENCODER_ARGUMENTS)
            entries = dataclasses.fields(dataclass_type)  # type: ignore[arg-type]
            sections[getattr(dataclass_type, "_argument_group_name", "options")] = [entry.name for entry in entries]
        others = [action.dest for action in self._actions if not action.dest.startswith("help")]
        sections[TRAINER_GROUP] = others if show_all else list(TRAINER_HELP)
        sections["help"] = ["help", "help_all"]

        formatter = self.formatter_class(prog=self.prog)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for title, names in sections.items():
            formatter.start_section(title)
            formatter.add_arguments([actions.pop(name) for name in names if name in actions])  # each argument once
            formatter.end_section()
        return formatter.format_help()


def train(arguments: dict[str, Any]) -> None:
    """Trains a model on pairs of texts. A JSON or YAML file of arguments may come first; the arguments after it
    override it. Any argument of Seq2SeqTrainingArguments can be given too, see --help_all."""
    from ..training.run import train_from_arguments

    metrics = train_from_arguments(arguments)
    for name, value in metrics.items():
        print(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}")
    if not arguments.get("dry_run"):
        print(f"saved in {arguments['output_dir']}")


COMMAND = Command(
    train,
    "[CONFIG] --train_file FILE --output_dir FOLDER ",
    (DataArguments, TokenizerArguments, ModelArguments, RunArguments, CardArguments),
    TrainArgumentParser,
)
