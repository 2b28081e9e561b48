"""A model by one of its backends: PyTorch, or the ONNX graphs that `copynet-hf export` wrote."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig, PreTrainedTokenizerBase

from ..model.vocabularies import check_tokenizer
from ..saved.checks import check_model_name, read_export_config
from ..saved.loading import LoadedModel, load_model, load_tokenizer
from .onnx_search import DECODER, OnnxCopyNet

BACKENDS = ("torch", "onnx")


class OnnxModel(OnnxCopyNet):
    """`OnnxCopyNet` with the attributes of a Transformers model that the pipeline and the commands read."""

    device = torch.device("cpu")

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        threads: int | None = None,
        providers: Sequence[object] | None = None,
        **kwargs: object,
    ) -> OnnxModel:
        """As `OnnxCopyNet`, but by default with `default_threads()`; `kwargs`, which `pipeline()` passes to a model of
        PyTorch, are not used."""
        if (Path(folder) / DECODER).is_file():
            read_export_config(Path(folder))
        model = super().from_pretrained(folder, default_threads() if threads is None else threads, providers)
        assert isinstance(model, cls)
        copies, model.config = model.config.copies, AutoConfig.from_pretrained(folder)
        assert model.config.copies == copies
        return model

    def to(self, device: object) -> OnnxModel:
        """Returns the model, which stays on the CPU."""
        return self

    def can_generate(self) -> bool:
        return True


def load_backend(
    name: str | None,
    backend: str = "torch",
    *,
    device: str | None = None,
    bf16: bool = False,
    trust_remote_code: bool = False,
    threads: int | None = None,
) -> tuple[LoadedModel | OnnxModel, PreTrainedTokenizerBase]:
    """Loads a model and its tokenizer for `predict`.

    Args:
        name: a folder, or with PyTorch a name on the Hub; for ONNX a folder that `copynet-hf export` wrote.
        backend: "torch" or "onnx", which runs on the CPU, in the precision of the export.
        device, bf16, trust_remote_code: see `load_model`.
        threads: the number of threads; with PyTorch that of the process. None: one in a worker process, else the
            library's default.

    Raises:
        ImportError: onnxruntime is not installed.
        ValueError: the model cannot be loaded, or not by this backend.
    """
    if backend not in BACKENDS:
        raise ValueError(f"the backend is {backend!r}: use {' or '.join(BACKENDS)}")
    name = check_model_name(name)
    if backend == "torch":
        if threads or _is_worker():
            torch.set_num_threads(threads or 1)
        return load_model(name, device, bf16, trust_remote_code)
    for option, value in (("device", None if device == "cpu" else device), ("bf16", bf16)):
        if value:
            raise ValueError(
                f"{option} is for the backend torch; onnx runs on the CPU in the precision of the export: leave it out"
            )
    model = OnnxModel.from_pretrained(name, threads)
    tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
    check_tokenizer(model.config, tokenizer)
    return model, tokenizer


def default_threads() -> int:
    """The number of threads of an ONNX graph: one in a worker process, OMP_NUM_THREADS where it is set, as it is in
    the workers of Ray and Spark, else 0, which is one for each core."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return 1 if _is_worker() else int(threads) if threads.isdigit() else 0


def _is_worker() -> bool:
    """Whether this process was started by `multiprocessing`, or by `multiprocess`, which `datasets` uses."""
    other = sys.modules.get("multiprocess")
    return any(module.parent_process() is not None for module in (multiprocessing, other) if module is not None)
