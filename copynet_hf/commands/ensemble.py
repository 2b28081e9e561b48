"""`copynet-hf ensemble`."""

from __future__ import annotations

from dataclasses import dataclass

from ..arguments import TRUST_HELP, Command, PairsArguments, argument


@dataclass
class EnsembleArguments(PairsArguments):
    _argument_group_name = "ensemble"

    models: list[str] | None = argument("folders or Hub names of two or more models", metavar="NAME")
    trust_remote_code: bool = argument(TRUST_HELP, False)
    output_dir: str | None = argument("folder for the ensemble and its tokenizer", metavar="FOLDER")
    overwrite_output_dir: bool = argument("replace the model in output_dir", False)
    validation_file: str | None = argument("pairs on which the confidence is calibrated", metavar="FILE")


def ensemble(args: EnsembleArguments) -> None:
    """Joins trained models of one vocabulary to one model, whose probabilities are the mean of theirs. Its generation
    settings are those of the first one. Validation pairs calibrate its confidence, which else is its score."""
    from ..evaluation.scoring import calibrate_model
    from ..saved.cards import write_model_card
    from ..saved.ensembles import join_models
    from ..saved.whole_folder import OLD_MODEL_FILES, replace_folder
    from ..training.dataset import read_split
    from ..training.run_folder import check_output_dir

    folder = check_output_dir(args.output_dir, args.overwrite_output_dir)
    model, tokenizer = join_models(args.models or (), args.trust_remote_code)
    if args.validation_file is not None or args.dataset_name is not None:
        pairs = read_split(args, "validation", args.validation_file, tokenizer)
        calibrate_model(model, tokenizer, pairs)
    with replace_folder(folder, OLD_MODEL_FILES) as unfinished:
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        write_model_card(unfinished, model, tokenizer, title=folder.resolve().name)
    print(f"saved in {folder}")


COMMAND = Command(ensemble, "--models NAME ... --output_dir FOLDER ", EnsembleArguments)
