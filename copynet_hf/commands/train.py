"""`copynet-hf train`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..arguments import ArgumentParser, Arguments, Command, TrainArguments, Values, argument

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


@dataclass
class TrainerArguments(Arguments):
    """Those arguments of `Seq2SeqTrainingArguments` that --help lists; --help_all has the others."""

    _argument_group_name = "training (of Transformers' Trainer)"

    output_dir: str | None = argument("folder for the model, its card and its scores", metavar="FOLDER")
    num_train_epochs: float | None = argument("epochs", shown="5 to 60, more below 800 pairs")
    learning_rate: float | None = argument("initial learning rate", shown="0.0001 to 0.002")
    per_device_train_batch_size: int | None = argument("training batch size per process", shown=16)
    seed: int | None = argument("random seed", shown=42)
    max_steps: int | None = argument("training steps, in place of epochs", shown=-1)
    gradient_accumulation_steps: int | None = argument("batches per step", shown=1)
    warmup_steps: float | None = argument("steps of warmup", shown="100, at most half")
    weight_decay: float | None = argument("weight decay of AdamW", shown=0.0)
    label_smoothing_factor: float | None = argument("label smoothing", shown="0.1, other losses 0")
    bf16: bool | None = argument("train in bfloat16 mixed precision")
    predict_with_generate: bool | None = argument("evaluate with ROUGE, BLEU and exact match")
    eval_strategy: str | None = argument("when: no, steps or epoch", shown="steps with validation")
    metric_for_best_model: str | None = argument(
        "metric of the best checkpoint", shown="mean_accuracy, or rougeL with predict_with_generate"
    )
    train_sampling_strategy: str | None = argument(
        "order of training pairs: random, sequential, group_by_length", shown="group_by_length; random with streaming"
    )
    resume_from_checkpoint: str | None = argument(
        "checkpoint, True for the last in output_dir, or auto: the last if there is one"
    )
    report_to: str | None = argument("where to log, e.g. tensorboard", shown="none")
    push_to_hub: bool | None = argument("push the trained model to the Hub")
    hub_model_id: str | None = argument("name of the model on the Hub")


@dataclass
class TrainCommandArguments(TrainArguments, TrainerArguments):
    """What the parser reads."""


class TrainArgumentParser(ArgumentParser):
    """The parser of `copynet-hf train`. Its `--help` has the everyday arguments first, and does not import
    Transformers; `--help_all` has every argument."""

    def __init__(self, arguments_type: type[Arguments], **kwargs: object) -> None:
        super().__init__(arguments_type, EVERYDAY_ARGUMENTS, add_help=False, **kwargs)
        group = self.add_argument_group("help")
        group.add_argument("-h", "--help", action="help", help="show this help message and exit")
        group.add_argument("--help_all", action="help", help="list every argument, and exit")

    def parse_given(self, argv: Sequence[str]) -> Values:
        if not {"-h", "--help"} & {*argv}:
            self._add_trainer_arguments()
        return super().parse_given(argv)

    def parse(self, argv: Sequence[str]) -> Values:
        """The arguments that were given, since defaults depend on the data."""
        return self.parse_given(argv)

    def _add_trainer_arguments(self) -> None:
        """Adds all other arguments of Seq2SeqTrainingArguments."""
        from transformers import HfArgumentParser, Seq2SeqTrainingArguments

        from ..training.defaults import TRAINING_DEFAULTS

        group = self.add_argument_group("other arguments of Transformers' Trainer")
        listed = {action.dest for action in self._actions}
        parser = HfArgumentParser(Seq2SeqTrainingArguments, add_help=False)  # type: ignore[arg-type]
        for action in parser._actions:
            if action.dest not in listed:
                action.default = TRAINING_DEFAULTS.get(action.dest, action.default)
                group._add_action(action)


def train(arguments: Values) -> None:
    """Trains a model on pairs of texts. A JSON or YAML file of arguments may come first; the arguments after it
    override it. Any argument of Seq2SeqTrainingArguments can be given too, see --help_all."""
    from ..training.run import train_from_arguments
    from ..training.run_folder import is_first_process

    is_first = is_first_process()
    if not is_first:
        logging.getLogger("copynet_hf").setLevel(logging.ERROR)
    if not sys.stderr.isatty():  # in a log, the rows of evaluations are enough
        arguments = {"disable_tqdm": True, **arguments}
    metrics = train_from_arguments(arguments)
    if not is_first:
        return
    for name, value in metrics.items():
        if name.endswith(("total_flos", "_per_second")) or value is None:
            continue  # in all_results.json
        print(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}")
    if not arguments.get("dry_run"):
        print(f"saved in {arguments['output_dir']}")


COMMAND = Command(train, "[CONFIG] --train_file FILE --output_dir FOLDER ", TrainCommandArguments, TrainArgumentParser)
