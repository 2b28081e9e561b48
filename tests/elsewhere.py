"""Another machine, as far as a process can be one: nothing downloaded yet, nothing at home, and packages that it does
not have.

The file is also what such a process runs, so it imports nothing but the standard library until it is known what is
missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

OPTIONAL = ("copynet_hf", "jieba", "fugashi", "unidic_lite")  # what a saved model must do without


def run_elsewhere(
    function: Callable[..., Any], folder: Path, *arguments: Any, without: Sequence[str] = (), **variables: str
) -> Any:
    """What `function` returns in a process of its own, where the package is imported or missing.

    Args:
        function: one of a module in this folder. Where the package is missing it is called with the option that
            `from_pretrained` then needs.
        folder: the process's own, with its cache.
        arguments: what JSON can hold, as what is returned.
        without: names of packages that it cannot import.
        variables: of the environment; it is offline unless they say otherwise.
    """
    folder.mkdir(exist_ok=True)
    places = {"HOME": str(folder), "TMPDIR": str(folder), "HF_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps([function.__module__, function.__name__, arguments, without], default=str),
        cwd=folder,
        env={**os.environ, **places, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def answers(
    name: str | Path,
    texts: Sequence[str],
    again: str | Path | None = None,
    features: Sequence[Sequence[str]] | None = None,
    with_states: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """What a saved model, loaded by the Auto classes, makes of texts, searching as its generation config says.

    With `again` it is then saved once more, to that folder. Without `with_states` no `AutoModel` is loaded: an
    ensemble has none.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    model = AutoModelForSeq2SeqLM.from_pretrained(name, **options)
    base = AutoModel.from_pretrained(name, **options) if with_states else model
    config = AutoConfig.from_pretrained(name, **options)
    pipe = pipeline("copy-text2text", model=str(name), **options)
    of_tokenizer = {} if features is None else {"features": features}
    inputs = tokenizer(texts, **of_tokenizer, padding=True, return_tensors="pt")
    rows: list[Any] = list(texts)
    if features is not None:
        rows = [{"text": text, "features": row} for text, row in zip(texts, features, strict=True)]
    output = model.generate(**inputs)
    with torch.no_grad():
        outputs = base(**inputs, decoder_input_ids=output[:, :-1])
    if again is not None:
        model.save_pretrained(again)
        tokenizer.save_pretrained(again)
    return {
        "sequences": output.tolist(),
        "texts": tokenizer.batch_decode(output, source=texts),
        "greedy": model.generate(**inputs, num_beams=1).tolist(),
        "state_sum": outputs.last_hidden_state.sum().item() if with_states else None,
        "copied": model.trace_copies(output, **inputs).copied.sum().item(),
        "pipeline": [output["generated_text"] for (output,) in pipe(rows)],
        "config": config.to_diff_dict() == model.config.to_diff_dict(),
        "search": [getattr(model.generation_config, field) for field in ("num_beams", "forbid_unk", "max_new_tokens")],
        "modules": sorted({type(thing).__module__.split(".")[0] for thing in (tokenizer, model, base, config, pipe)}),
        "package": "copynet_hf" in sys.modules,
    }


def answer_all(calls: Sequence[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """What `answers` returns for the arguments of each call."""
    return [answers(**arguments, **options) for arguments in calls]


class Missing:
    """Comes before the finders of packages and says of these that they are not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> None:
    module, function, arguments, without = json.load(sys.stdin)
    sys.meta_path.insert(0, Missing(without))
    options = {"trust_remote_code": True} if "copynet_hf" in without else {}
    if not options:
        import copynet_hf  # noqa: F401 (registers the model)
    returned = getattr(import_module(module), function)(*arguments, **options)
    print("\n" + json.dumps(returned))


if __name__ == "__main__":
    main()
