"""A page to try a model on: text in; out come the answer, where its words were copied from, and a heatmap.

`copynet-hf demo --model DIR` starts it. This file is a Space as well: copied there as app.py, with `copynet-hf[demo]`
in requirements.txt and the name of a model in the variable COPYNET_MODEL.
"""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from copynet_hf.inference.loading import load_model
from copynet_hf.inference.pictures import copies_html, plot_copy_heatmap
from copynet_hf.inference.predictor import read_facts
from copynet_hf.model.modeling_copynet import CopyNetForConditionalGeneration
from copynet_hf.model.pipeline import CopyText2TextPipeline

if TYPE_CHECKING:
    from gradio import Blocks
    from matplotlib.figure import Figure

MAX_BEAMS = 10
MAX_WORDS = 128
MAX_COLUMNS = 60  # of the heatmap
INTRODUCTION = f"""
Coloured words were copied: point at one, and its place in the source lights up. Underlined words are not in the
model's vocabulary. The picture has the probabilities of copying from each position; of a long source, the
{MAX_COLUMNS} that matter most.
"""
FONTS = ("system-ui", "sans-serif")  # the reader's own: nothing is loaded from elsewhere
CSS = """
#heatmap .matplotlib { overflow-x: auto; align-items: safe center }
#heatmap img { max-width: none }
"""


def build_demo(
    model: CopyNetForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, examples: Sequence[str] = ()
) -> Blocks:
    """The page, to be launched or mounted. Its settings begin as the model was saved.

    Args:
        examples: texts to choose from.

    Raises:
        ImportError: gradio is not installed.
    """
    try:
        import gradio as gr
    except ImportError:
        raise ImportError("the page needs gradio: pip install 'copynet-hf[demo]'") from None
    config, saved = model.config, model.generation_config
    pipe = CopyText2TextPipeline(model=model, tokenizer=tokenizer, device=model.device)  # type: ignore[arg-type]

    def show(text: str, facts: str, beams: int, forbid_unk: bool, words: int) -> tuple[str, Any]:
        # gradio evaluates these hints: all their names have to exist
        try:
            return answer(pipe, text, facts, num_beams=beams, forbid_unk=forbid_unk, max_new_tokens=words)
        except ValueError as error:
            return f"<p>{html.escape(str(error))}</p>", None

    beams, words = saved.num_beams or 1, saved.max_new_tokens or MAX_WORDS
    with gr.Blocks(title="copynet_hf", analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION)
        text = gr.Textbox("", label="Text", lines=3, autofocus=True)
        facts = gr.Textbox(
            "", label="Facts", info="subject | property | object", lines=3, visible=config.mechanism.retrieves
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
        gr.on([button.click, text.submit], show, [text, facts, *settings], [output, heatmap], api_name="generate")
    return page


def answer(pipe: CopyText2TextPipeline, text: str, facts: str = "", **generation: Any) -> tuple[str, Figure | None]:
    """The best output as `copies_html` shows it, and its heatmap; no heatmap where nothing can be copied.

    Args:
        facts: lines of `read_facts`, for models that retrieve.
        generation: for `generate()`.

    Raises:
        ValueError: no text, or a line that is no fact.
    """
    if not text.strip():
        raise ValueError("There is no text yet: type one, and press Generate.")
    config, tokenizer, known = pipe.model.config, pipe.tokenizer, read_facts(facts)
    generation = {**generation, "num_return_sequences": 1}  # whatever the model was saved with
    (output,) = pipe({"text": text, "facts": known}, return_copy_probs=True, **generation)
    unseen = []
    if config.max_source_oov:  # tokenizers without slots have no unseen words
        unseen = tokenizer.oov_words(text, tokenizer.model_max_length, facts=known)
    shown = copies_html(f"{text}\n{facts}".strip(), output, unseen)
    return shown, _heatmap(output) if config.copies else None


def _heatmap(output: Mapping[str, Any]) -> Figure | None:
    """Of a long source, what was copied from and the likeliest others alone; None where there are no words."""
    source, words = output["source_words"], [word.strip() for word in output["words"]]
    if not source or not words:
        return None
    probs = np.asarray(output["copy_probs"])
    weight = probs.max(axis=0)
    weight[[place for place in output["source_positions"] if place is not None]] += 1
    columns = np.sort(np.argsort(-weight, kind="stable")[:MAX_COLUMNS])
    return plot_copy_heatmap(probs[:, columns], [source[column] for column in columns], words)


def launch_demo(
    name: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    share: bool = False,
    device: str | None = None,
    examples: Sequence[str] = (),
) -> None:
    """Loads the model and serves its page until somebody stops it.

    Args:
        name: folder or Hub name of the model.
        host, port: where the page is; None: as gradio's variables say, which a Space sets.
        share: whether to open a public link through gradio's servers.

    Raises:
        ValueError: what `load_model` says.
        OSError: nothing can be served at that host and port.
    """
    page = build_demo(*load_model(name, device), examples)
    from gradio.themes import Default  # gradio is there, or build_demo would have said so

    page.launch(server_name=host, server_port=port, share=share, theme=Default(font=FONTS), css=CSS)


if __name__ == "__main__":
    if not os.environ.get("COPYNET_MODEL"):
        sys.exit("no COPYNET_MODEL: set it to the folder or the Hub name of a model")
    launch_demo(os.environ["COPYNET_MODEL"])
