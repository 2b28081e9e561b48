"""A web page that shows a model's output for a text, the origin of the output's words, and a heatmap.

`copynet-hf demo --model DIR` serves it. This file is also the app.py of a Hugging Face Space, with `copynet-hf[demo]`
in requirements.txt and the name of a model in the variable COPYNET_MODEL.
"""

from __future__ import annotations

import gc
import html
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import GenerationConfig, PreTrainedTokenizerBase

from copynet_hf.data.features import SEPARATOR, split_features
from copynet_hf.inference.backends import OnnxModel, load_backend
from copynet_hf.inference.predictor import parse_facts
from copynet_hf.model.pipeline import CopyText2TextPipeline
from copynet_hf.model.source import join_words
from copynet_hf.saved.loading import LoadedModel
from copynet_hf.saved.model_size import explain_memory_errors
from copynet_hf.visualization.heatmap import plot_copy_heatmap
from copynet_hf.visualization.highlighting import copies_html

if TYPE_CHECKING:
    from gradio import Blocks
    from matplotlib.figure import Figure

MAX_BEAMS = 10
MAX_WORDS = 128
MAX_COLUMNS, MAX_ROWS = 60, 256  # of the heatmap
MAX_CHARACTERS = 10_000  # of text, facts and features
MAX_SECONDS = 20  # of a search, which then returns what it has
MAX_WAITING = 64  # requests, beyond which further ones are refused
MAX_SESSIONS = 100  # whose last texts and pictures gradio keeps, about 100 kB each; more than can wait
MAX_REQUEST_BYTES = 1 << 20
FILE_ROUTES = re.compile(r"/(?:upload/?$|(?:file|proxy)=|(?:file|stream)/)")
INTRODUCTION = f"""
Coloured words are copied: point at one to see its position in the source. Underlined words are not in the model's
vocabulary. The heatmap shows the probability of copying from each source position; of a long source, the {MAX_COLUMNS}
most important positions. A search ends after {MAX_SECONDS} seconds.
"""
FONTS = ("system-ui", "sans-serif")  # installed fonts, so that nothing is loaded from other hosts
CSS = """
#heatmap .matplotlib { overflow-x: auto; align-items: safe center }
#heatmap img { max-width: none }
"""


def build_demo(
    model: LoadedModel | OnnxModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[str] = (),
) -> Blocks:
    """Builds the page, to be launched or mounted. Its initial settings are those of the saved generation config.

    Args:
        model: with PyTorch or ONNX, as `load_backend` returns it.
        examples: texts to offer.

    Raises:
        ImportError: gradio is not installed.
    """
    try:
        import gradio as gr
    except ImportError:
        raise ImportError("gradio is not installed: pip install 'copynet-hf[demo]'") from None
    config, saved = model.config, model.generation_config
    saved = GenerationConfig(**saved) if isinstance(saved, dict) else saved  # a dict of ONNX graphs
    pipe = CopyText2TextPipeline(model=model, tokenizer=tokenizer, device=model.device)  # type: ignore[arg-type]

    def show(text: str, facts: str, features: str, beams: int, forbid_unk: bool, words: int) -> tuple[str, Any]:
        # gradio evaluates these type hints, so their names must exist at runtime.
        options = {"num_beams": beams, "forbid_unk": forbid_unk, "max_new_tokens": words, "max_time": MAX_SECONDS}
        try:
            with explain_memory_errors():
                return show_output(pipe, text, facts, features, **options)
        except ValueError as error:
            return f"<p>{html.escape(str(error))}</p>", None

    beams, words = saved.num_beams or 1, saved.max_new_tokens or MAX_WORDS
    with gr.Blocks(title="copynet_hf", analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION)
        text = gr.Textbox("", label="Text", lines=3, autofocus=True)
        facts = gr.Textbox("", label="Facts", info="subject | property | object", lines=3, visible=config.retrieves)
        features = gr.Textbox(
            "", label="Features", info=f"separated by {SEPARATOR}", visible=config.feature_vocab_size > 0
        )
        if examples:
            gr.Examples(list(examples), text)
        with gr.Row():
            settings = [
                gr.Slider(1, max(beams, MAX_BEAMS), beams, step=1, label="Beam width"),
                gr.Checkbox(getattr(saved, "forbid_unk", False), label="Never write <unk>"),
                gr.Slider(1, max(words, MAX_WORDS), words, step=1, label="Max length"),
            ]
        button = gr.Button("Generate", variant="primary")
        output = gr.HTML()
        heatmap = gr.Plot(format="png", show_label=False, elem_id="heatmap", visible=config.copies)
        inputs = [text, facts, features, *settings]
        gr.on([button.click, text.submit], show, inputs, [output, heatmap], api_name="generate")
    return page.queue(max_size=MAX_WAITING)


def show_output(
    pipe: CopyText2TextPipeline, text: str, facts: str = "", features: str = "", **generation: Any
) -> tuple[str, Figure | None]:
    """Generates an output; returns its HTML from `copies_html`, and its heatmap if the model copies.

    Args:
        facts: lines for `parse_facts`, for models with retrieval.
        features: separated by semicolons, for models that read features.
        generation: arguments of `generate()`.

    Raises:
        ValueError: the text is empty or too long, or a line is not a fact.
    """
    if not text.strip():
        raise ValueError("The text is empty: type one and press Generate.")
    if (length := len(text) + len(facts) + len(features)) > MAX_CHARACTERS:
        raise ValueError(f"The text has {length} characters: give at most {MAX_CHARACTERS}.")
    config, tokenizer, triples = pipe.model.config, pipe.tokenizer, parse_facts(facts)
    generation = {**generation, "num_return_sequences": 1}  # overrides the saved generation config
    source = {"text": text, "facts": triples, "features": split_features(features, SEPARATOR)}
    (output,) = pipe(source, return_copy_probs=True, **generation)
    oov = []
    if config.max_source_oov:  # a tokenizer without slots may lack oov_words
        tokens = tokenizer.oov_words(text, tokenizer.model_max_length, facts=triples)
        oov = [join_words(tokenizer, [token]) for token in tokens]
    copies = copies_html(f"{text}\n{facts}".strip(), output, oov)
    return copies, _heatmap(output) if config.copies else None


def _heatmap(output: Mapping[str, Any]) -> Figure | None:
    """The heatmap, of a long source only the positions that were copied from and the likeliest others, of a long
    output only its start. None if the source or the output is empty."""
    source, words = output["source_words"], output["words"][:MAX_ROWS]
    if not source or not words:
        return None
    probs = np.asarray(output["copy_probs"][:MAX_ROWS])
    weight = probs.max(axis=0)
    weight[[position for position in output["source_positions"][:MAX_ROWS] if position is not None]] += 1
    columns = np.sort(np.argsort(-weight, kind="stable")[:MAX_COLUMNS])
    return plot_copy_heatmap(probs[:, columns], [source[column] for column in columns], words)


class RequestLimits:
    """ASGI middleware that refuses gradio's routes of files, which the page has no use for, and bodies of unbounded
    length. For a `file=` that holds an address, gradio would look up names on the internet."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status = self._refusal(scope) if scope["type"] == "http" else None
        if status is None:
            await self.app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b""})

    @staticmethod
    def _refusal(scope: Any) -> int | None:
        """The HTTP status of a refused request, None for others."""
        if FILE_ROUTES.search(scope["path"]):
            return 403
        headers = dict(scope["headers"])
        if b"transfer-encoding" in headers:  # a body whose length is not stated
            return 411
        return 413 if int(headers.get(b"content-length", 0)) > MAX_REQUEST_BYTES else None


def launch_demo(
    name: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    share: bool = False,
    backend: str = "torch",
    device: str | None = None,
    trust_remote_code: bool = False,
    examples: Sequence[str] = (),
) -> None:
    """Loads the model and serves its page until interrupted.

    Args:
        name: the model's folder or its name on the Hub.
        host, port: the page's address; None: from gradio's environment variables, which a Space sets.
        share: whether to open a public link through gradio's servers.
        backend, device, trust_remote_code: see `load_backend`.
        examples: texts to offer.

    Raises:
        ValueError: the model cannot be loaded; see `load_backend`.
        OSError: the host or port is not available.
    """
    loaded = load_backend(name, backend, device=device, trust_remote_code=trust_remote_code)
    page = build_demo(*loaded, examples)
    from gradio.themes import Default  # after build_demo, which checks that gradio is installed
    from starlette.middleware import Middleware

    # Figures are reference cycles. Among the many objects of the packages, Python would seldom collect them.
    gc.collect()
    gc.freeze()
    page.launch(
        server_name=host,
        server_port=port,
        share=share,
        theme=Default(font=FONTS),
        css=CSS,
        state_session_capacity=MAX_SESSIONS,
        app_kwargs={"middleware": [Middleware(RequestLimits)]},
    )


if __name__ == "__main__":
    if not os.environ.get("COPYNET_MODEL"):
        sys.exit("COPYNET_MODEL is not set: set it to the folder of a model or its name on the Hub")
    launch_demo(os.environ["COPYNET_MODEL"])
