"""`copynet-hf export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..arguments import TRUST_HELP, Arguments, Command, argument


@dataclass
class ExportArguments(Arguments):
    model: str | None = argument("folder or Hub name of the model", metavar="NAME")
    trust_remote_code: bool = argument(TRUST_HELP, False)
    output_dir: str | None = argument("folder for the graphs, the config and the tokenizer", metavar="FOLDER")
    overwrite_output_dir: bool = argument("replace the model in output_dir", False)
    target: str = argument("onnx: for Python, or web: a page that runs the model in the browser", "onnx")
    quantize: str | None = argument("int8: weights of 8 bits; by default float32", metavar="NAME")
    examples: list[str] | None = argument("web: example texts on the page", metavar="TEXT")
    onnxruntime_web: str | None = argument(
        "web: the unpacked npm package; by default it is downloaded", metavar="FOLDER"
    )


def export(args: ExportArguments) -> None:
    """Exports the encoder and one decoder step as ONNX graphs, which copynet_hf.OnnxCopyNet runs; with --target web in
    a page that runs them in the browser, which is also a static Hugging Face Space. --quantize int8 makes the graphs
    about four times smaller, and searches faster; some outputs change."""
    import torch

    from ..inference.onnx_export import export_onnx
    from ..inference.quantization import check_quantization
    from ..saved.checks import check_model_name
    from ..saved.loading import load_copynet, load_model, load_tokenizer
    from ..serving.web_export import export_web
    from ..training.run_folder import check_output_dir

    if args.target not in ("onnx", "web"):
        raise ValueError(f"--target is {args.target}: choose onnx or web")
    check_quantization(args.quantize)  # before the model is loaded
    folder = check_output_dir(args.output_dir, args.overwrite_output_dir)
    name = check_model_name(args.model)
    if args.target == "web":
        model, tokenizer = load_model(name, "cpu", trust_remote_code=args.trust_remote_code)
        export_web(
            model,  # type: ignore[arg-type]  # an ensemble is refused
            tokenizer,
            folder,
            name=Path(name).resolve().name,
            quantize=args.quantize,
            examples=args.examples or (),
            onnxruntime_web=args.onnxruntime_web,
        )
        print(f"saved in {folder}; to try it: python -m http.server --bind 127.0.0.1 --directory {folder}")
        return
    for option in ("examples", "onnxruntime_web"):
        if getattr(args, option) is not None:
            raise ValueError(f"--{option} belongs to the page: use --target web, or leave it out")
    exported = load_copynet(name, trust_remote_code=args.trust_remote_code, dtype=torch.float32)
    reads_words = not exported.config.num_features
    export_onnx(
        exported,  # type: ignore[arg-type]  # an ensemble is refused
        folder,
        load_tokenizer(name, trust_remote_code=args.trust_remote_code) if reads_words else None,
        quantize=args.quantize,
        replaces_model=folder.resolve() != Path(name).resolve(),
    )
    print(f"saved in {folder}" + (f"; to serve it: copynet-hf serve --model {folder}" if reads_words else ""))


COMMAND = Command(export, "--model NAME --output_dir FOLDER ", ExportArguments)
