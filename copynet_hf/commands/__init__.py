"""The commands of `copynet-hf`, one file each: its arguments and the function that it runs."""

# For each command, a file of this folder, what it does.
COMMANDS = {
    "quickstart": "train a small model on synthetic requests and show what it copies, in under three minutes",
    "train": "train a model on pairs of texts",
    "evaluate": "score a model on pairs of texts",
    "generate": "generate an output for each line of text",
    "predict": "add a column of outputs to files of any size",
    "demo": "try a model on a web page",
    "export": "export a model to ONNX",
    "ensemble": "join trained models to one that averages their probabilities",
    "serve": "serve an exported model over HTTP, without torch",
}
