"""The arguments of a training run, completed by what its pairs and the model that it starts from say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase, Seq2SeqTrainingArguments
from transformers.integrations import get_reporting_integration_callbacks

from ..arguments import (
    MAX_SOURCE_LENGTH,
    NUM_BEAMS,
    Check,
    EncoderArguments,
    TrainArguments,
    Values,
    above_zero,
    at_least,
    between,
    check_argument,
    check_types,
    select_fields,
)
from ..evaluation.metrics import LOWER_IS_BETTER
from ..evaluation.teacher_forcing import ACCURACIES
from ..model.configuration_copynet import ENCODER_FIELDS, SOURCE_PARTS, CopyNetConfig
from ..model.loss import list_other_losses
from ..model.modeling_copynet import CopyNetForConditionalGeneration
from ..model.pieces import find_max_length
from ..saved.cards import METRICS
from ..saved.loading import warn_of_slow_bfloat16
from .data_report import count_updates
from .dataset import Pairs
from .guided_attention import choose_guided_attention
from .presets import make_config, select_config_fields

TRAINING_DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "per_device_eval_batch_size": 64,
    "learning_rate": 2e-3,
    "warmup_steps": 100,
    "logging_steps": 50,
    "save_total_limit": 2,
    "report_to": "none",
    "hub_strategy": "end",  # earlier pushes of the Trainer lack the model's code
    "dataloader_pin_memory": torch.accelerator.is_available(),
    "use_cpu": not torch.accelerator.is_available(),  # without it the Trainer refuses bf16 on a CPU
}
NUM_EVALUATIONS = 40
OUTPUT_SCORES = (*METRICS, "copied_fraction", "oov_recall", *LOWER_IS_BETTER)  # with `predict_with_generate`
LABEL_SMOOTHING = 0.1  # at the start: `CopyNetTrainer.compute_loss` lowers it
# The number of steps from which the number of epochs is computed, and its bounds; few pairs have more epochs, since a
# model needs so many steps to learn a task at all.
TRAINING_STEPS, MIN_EPOCHS, MAX_EPOCHS, MIN_STEPS = 8000, 5, 60, 3000
BATCH_SIZES = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
# Of fields of Seq2SeqTrainingArguments.
RANGES: dict[str, Check] = {
    **dict.fromkeys(BATCH_SIZES, at_least(1)),
    **dict.fromkeys(("logging_steps", "eval_steps", "save_steps"), above_zero),
    **dict.fromkeys(("learning_rate", "weight_decay", "warmup_steps", "max_grad_norm"), at_least(0)),
    "label_smoothing_factor": between(0, 1),
}
ENCODER_LEARNING_RATE = 5e-5
# Of all other weights, if no GRU layer reads the encoder's states. With the 0.002 of models with one, the decoder
# learns to do without states that are not yet fit for it (docs/encoders.md).
DECODER_LEARNING_RATE = 1e-3
# Of a Transformer that is trained from scratch, whose warm-up takes several times that of a GRU, and which learns for
# longer from few pairs (results/recipe.md); of a pretrained encoder-decoder with a copy head.
TRANSFORMER_LEARNING_RATE, TRANSFORMER_WARMUP_FACTOR, TRANSFORMER_MIN_STEPS = 1e-3, 4, 8000
SEQ2SEQ_LEARNING_RATE = 1e-4
# Fields of Seq2SeqTrainingArguments that are not read, and what to do instead.
NOT_READ = {
    "generation_max_length": "use --max_target_length, which is saved with the model",
    "generation_num_beams": "use --num_beams, which is saved with the model",
    "generation_config": "use --num_beams, or others, which are saved with the model",
    **dict.fromkeys(("do_train", "do_eval", "do_predict"), "leave it out; copynet-hf evaluate scores a trained model"),
    "label_names": "use --summary_column, which names the column of the targets",
}
# Of a new model; one that is trained further keeps its own.
NEW_SETTINGS: dict[str, object] = {
    "max_source_length": MAX_SOURCE_LENGTH,
    "num_beams": NUM_BEAMS,
    "forbid_unk": True,
}


def complete_arguments(
    args: TrainArguments,
    values: Values,
    pairs: Mapping[str, Pairs],
    tokenizer: PreTrainedTokenizerBase | None = None,
    model: CopyNetForConditionalGeneration | None = None,
) -> tuple[TrainArguments, Seq2SeqTrainingArguments]:
    """The arguments of `copynet-hf train`, with every default that depends on the data, or on the model and the
    tokenizer that the run starts from.

    Args:
        args: those that are not the Trainer's, as they were given.
        values: all that were given, by name.
        pairs: the splits `train` and, where given, `validation`.
        tokenizer, model: None for new ones.

    Raises:
        ValueError: arguments that contradict each other, or the model.
        ImportError: the package of a tracker is missing.
    """
    train = pairs["train"]
    fields = {name: value for name, value in select_config_fields(args).items() if name not in ENCODER_FIELDS}
    if args.seq2seq_name_or_path is not None:
        fields = {}  # of its copy head, which may name a layer that this config has not
    config = make_config(args.preset, fields) if model is None else model.config
    has_encoder = args.encoder_name_or_path is not None or config.piece_encoder is not None
    is_pretrained = args.seq2seq_name_or_path is not None or config.seq2seq
    is_transformer = config.decoder is not None and not is_pretrained
    training = build_training_arguments(values, train, "validation" in pairs, is_transformer=is_transformer)
    completed: dict[str, Any] = {"encoder_learning_rate": choose_encoder_learning_rate(args, has_encoder)}
    has_gru = config.encoder_gru
    if model is None and args.encoder_name_or_path is not None:
        has_gru = completed["encoder_gru"] = args.encoder_gru is not False
    if "learning_rate" not in values:
        training.learning_rate = choose_learning_rate(training, config, has_encoder and not has_gru, is_pretrained)
    training.label_smoothing_factor = choose_label_smoothing(
        values.get("label_smoothing_factor"), config, is_pretrained=is_pretrained
    )
    if args.guided_attention is None:
        completed["guided_attention"] = choose_guided_attention(train)
    if args.early_stopping_patience and not training.load_best_model_at_end:
        reason = "there are no validation pairs: pass --validation_file"
        if "validation" in pairs:
            reason = "no best checkpoint is kept: leave out --eval_strategy, --save_strategy, --load_best_model_at_end"
        raise ValueError(f"--early_stopping_patience is {args.early_stopping_patience}, but {reason}")
    settings = NEW_SETTINGS | ({} if model is None or tokenizer is None else _read_settings(model, tokenizer))
    completed |= {name: value for name, value in settings.items() if getattr(args, name) is None}
    return replace(args, **completed), training


def build_training_arguments(
    arguments: Values, train_pairs: Pairs, has_validation: bool, *, is_transformer: bool = False
) -> Seq2SeqTrainingArguments:
    """The `Seq2SeqTrainingArguments` among the arguments that were given, with defaults that follow from the data.

    Args:
        is_transformer: whether the decoder is a Transformer that is trained from scratch.
    """
    given = select_fields(Seq2SeqTrainingArguments, arguments)
    check_types(Seq2SeqTrainingArguments, given)
    if given.get("hub_token"):
        raise ValueError(
            "--hub_token is saved in training_args.bin and pushed with the model: log in with hf auth login, or set "
            "HF_TOKEN instead"
        )
    for name, value in {"prediction_loss_only": True, "eval_do_concat_batches": False}.items():
        if given.get(name) is value:
            raise ValueError(f"--{name} {value} leaves nothing to measure the accuracy by: leave it out")
    for name, fix in NOT_READ.items():
        if given.get(name) is not None and given[name] is not True:  # --do_train is what is done
            raise ValueError(f"--{name} is not read: {fix}")
    for name, check in RANGES.items():
        if given.get(name) is not None:
            check_argument(name, given[name], check)
    _check_length(given)
    streams, generates = isinstance(train_pairs, IterableDataset), given.get("predict_with_generate", False)
    defaults = dict(TRAINING_DEFAULTS)
    if streams:
        # else the first process would read for all, and accelerate would join batches of different lengths
        defaults["accelerator_config"] = {"dispatch_batches": False}
        if given.get("max_steps", -1) <= 0:
            raise ValueError("no --max_steps: pass the number of steps, because --streaming hides that of the pairs")
        if given.get("train_sampling_strategy") == "group_by_length":
            raise ValueError(
                "--train_sampling_strategy group_by_length needs all lengths: leave it out, or --streaming"
            )
    else:
        defaults["train_sampling_strategy"] = "group_by_length"
    defaults |= _evaluation_schedule(given, has_validation)
    if has_validation:
        metric = given.get("metric_for_best_model", "rougeL" if generates else "mean_accuracy")
        _check_metric(metric, generates)
        is_better_lower = metric.removeprefix("eval_") in ("loss", *LOWER_IS_BETTER)
        defaults |= {"metric_for_best_model": metric, "greater_is_better": not is_better_lower}
    training_args = Seq2SeqTrainingArguments(**{**defaults, **given})
    if not streams and "num_train_epochs" not in given:
        batch_size = training_args.train_batch_size * training_args.world_size
        steps = len(train_pairs) / (batch_size * training_args.gradient_accumulation_steps)  # of an epoch
        least = TRANSFORMER_MIN_STEPS if is_transformer else MIN_STEPS
        most = max(MAX_EPOCHS, round(least / math.ceil(steps)))
        training_args.num_train_epochs = min(max(round(TRAINING_STEPS / steps), MIN_EPOCHS), most)
    updates = training_args.max_steps if streams else count_updates(len(train_pairs), training_args)[0]
    if "warmup_steps" not in given:  # else a short training would end before the learning rate falls
        factor = TRANSFORMER_WARMUP_FACTOR if is_transformer else 1
        training_args.warmup_steps = min(factor * training_args.warmup_steps, updates // 2)
    for name in ("logging_steps", "eval_steps", "save_steps"):  # a resumed Trainer compares them with whole numbers
        share = getattr(training_args, name)
        if share is not None and share < 1:
            setattr(training_args, name, math.ceil(updates * share))
    _check_report_to(training_args)
    if training_args.bf16:
        warn_of_slow_bfloat16(training_args.device.type)
    return training_args


def _check_metric(metric: str, generates: bool) -> None:
    """Raises ValueError for a score that no evaluation has."""
    name, names = metric.removeprefix("eval_"), ("loss", *ACCURACIES, *(OUTPUT_SCORES if generates else ()))
    if name not in names:
        hint = ", or --predict_with_generate" if name in OUTPUT_SCORES else ""
        raise ValueError(f"--metric_for_best_model is {metric}: use one of {', '.join(names)}{hint}")


def _check_length(given: Values) -> None:
    """Raises ValueError if there is nothing to train."""
    epochs, max_steps = given.get("num_train_epochs", 1), given.get("max_steps", -1)
    if not 0 < epochs < math.inf:
        raise ValueError(f"--num_train_epochs is {epochs:g}: use a number above 0")
    if max_steps < 1 and max_steps != -1:  # -1 is Transformers' default
        raise ValueError(f"--max_steps is {max_steps}: use 1 or more")


def _check_report_to(training_args: Seq2SeqTrainingArguments) -> None:
    """Raises ImportError if the package of a tracker is missing."""
    for name in training_args.report_to or ():
        try:
            get_reporting_integration_callbacks([name])[0]()
        except RuntimeError as error:
            fix = "pip install tensorboard" if name == "tensorboard" else "install its package"
            raise ImportError(f"--report_to {name} cannot be used ({error}): {fix}, or leave it out") from None


def _evaluation_schedule(given: Values, has_validation: bool) -> dict[str, object]:
    """When to evaluate and save, by default together, `NUM_EVALUATIONS` times."""
    saves = given.get("save_strategy")
    strategy = given.get("eval_strategy") or (saves if saves == "epoch" else "steps")
    schedule: dict[str, object] = {"save_strategy": strategy}
    if strategy == "steps":
        steps = given.get("eval_steps") or given.get("save_steps") or 1 / NUM_EVALUATIONS
        schedule |= {"eval_steps": steps, "save_steps": steps}
    if has_validation:
        saves_best = strategy != "no" and (saves or strategy) in (strategy, "best")
        schedule |= {"eval_strategy": strategy, "load_best_model_at_end": saves_best}
    elif given.get("load_best_model_at_end"):
        raise ValueError("--load_best_model_at_end, but there are no validation pairs: pass --validation_file")
    return schedule


def choose_encoder_learning_rate(args: EncoderArguments, has_encoder: bool) -> float | None:
    """The learning rate of the model's Transformers encoder; None: it has none, or one that is not trained."""
    rate = args.encoder_learning_rate
    if not has_encoder:
        for name in ("freeze_encoder", "encoder_learning_rate", "cache_encoder_states"):
            if getattr(args, name) not in (None, False):
                raise ValueError(
                    f"--{name} is for a Transformers encoder: pass --encoder_name_or_path, or leave it out"
                )
        return None
    if args.cache_encoder_states and not args.freeze_encoder:
        raise ValueError(
            "--cache_encoder_states keeps states that training would change: pass --freeze_encoder as well"
        )
    if rate is not None and (args.freeze_encoder or not rate > 0):
        reason = "--freeze_encoder trains no encoder: leave one out" if args.freeze_encoder else "use more than 0"
        raise ValueError(f"--encoder_learning_rate is {rate:g}: {reason}")
    if args.freeze_encoder:
        return None
    return ENCODER_LEARNING_RATE if rate is None else rate


def choose_learning_rate(
    training: Seq2SeqTrainingArguments, config: CopyNetConfig, reads_encoder: bool, is_pretrained: bool
) -> float:
    """The default learning rate of all weights but those of a pretrained encoder.

    Args:
        reads_encoder: whether the decoder reads a Transformers encoder's states, with no GRU layer between them.
    """
    if is_pretrained:
        return SEQ2SEQ_LEARNING_RATE
    if config.decoder is not None:
        return TRANSFORMER_LEARNING_RATE
    return DECODER_LEARNING_RATE if reads_encoder else training.learning_rate


def choose_label_smoothing(given: float | None, config: CopyNetConfig, *, is_pretrained: bool = False) -> float:
    """The label smoothing factor: by default `LABEL_SMOOTHING`, but 0 for a pretrained encoder-decoder, and where the
    loss cannot be smoothed. The smoothed loss is a function of the log-probabilities alone, without additional losses,
    and reads words that some models may not generate."""
    ignored = list_other_losses(config)
    ignored += ["aligned_words"] if config.aligned_words else []
    ignored += ["copies_from"] if config.mechanism.retrieves and len(config.copies_from) < len(SOURCE_PARTS) else []
    if given is None:
        return LABEL_SMOOTHING if config.mechanism.generates and not (ignored or is_pretrained) else 0.0
    if given and ignored:
        raise ValueError(
            f"--label_smoothing_factor is {given}, but the Trainer's smoothed loss ignores {' and '.join(ignored)}: "
            "leave one of them out"
        )
    return given


def _read_settings(model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase) -> dict[str, object]:
    """The lengths and the decoding of a trained model, by the names of the arguments that set them."""
    settings = {
        "max_source_length": find_max_length(tokenizer),
        "max_target_length": model.generation_config.max_new_tokens,
        "num_beams": model.generation_config.num_beams,
        "forbid_unk": getattr(model.generation_config, "forbid_unk", None),
    }
    return {name: value for name, value in settings.items() if value is not None}
