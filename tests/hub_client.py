"""What a user does with a Hub, for a process of its own: the client reads where the Hub is when it is imported."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from elsewhere import answers
from huggingface_hub import CommitOperationAdd, HfApi
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

CARD = "---\nlibrary_name: transformers\n---\n\n# A card with scores\n"


def push(folders: dict[str, str], texts: Sequence[str], page: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Pushes the saved models v1, main and next as these revisions of me/tiny, the first as me/secret too, and from
    folders with a card and without, a trained one as me/trained, and what the page says.

    Returns what the Hub and the trained model said to it.
    """
    models = {name: AutoModelForSeq2SeqLM.from_pretrained(folder) for name, folder in folders.items()}
    tokenizer = AutoTokenizer.from_pretrained(folders["v1"])
    models["v1"].push_to_hub("tiny")
    tokenizer.push_to_hub("tiny")
    api = HfApi()
    api.create_tag("me/tiny", tag="v1")
    models["main"].push_to_hub("me/tiny")
    models["next"].push_to_hub("me/tiny", revision="next")
    models["v1"].push_to_hub("me/secret", private=True)
    tokenizer.push_to_hub("me/secret")

    card = CommitOperationAdd("README.md", b"---\ntags: copynet\n---\n")
    refused = {
        "without a token": complaint(models["v1"].push_to_hub, "me/tiny", token=False),
        "somebody else's": complaint(models["v1"].push_to_hub, "you/tiny"),
        "bad front matter": complaint(api.create_commit, "me/tiny", [card], commit_message="card"),
    }
    train(models["v1"], tokenizer, texts)
    Path("carded").mkdir()
    Path("carded", "README.md").write_text(CARD, encoding="utf-8")
    for folder in ("carded", "uncarded"):
        models["v1"].save_pretrained(folder, push_to_hub=True)
        tokenizer.save_pretrained(folder, push_to_hub=True)
    refs = api.list_repo_refs("me/tiny")
    return {
        "user": api.whoami()["name"],
        "refs": [ref.name for ref in (*refs.branches, *refs.tags)],
        "refused": refused,
        "trained": answers("trained", texts),
        "card": Path("carded", "README.md").read_text(encoding="utf-8"),
        "page": complaint(follow, page),
    }


def train(model: Any, tokenizer: Any, texts: Sequence[str]) -> None:
    """Two steps, pushed after each as the Trainer does, and in the end."""
    arguments = Seq2SeqTrainingArguments(
        "trained", push_to_hub=True, max_steps=2, save_steps=1, learning_rate=0.1, report_to=[], use_cpu=True
    )
    trainer = Seq2SeqTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(dict(tokenizer(texts, text_target=["X a", "Z", "b c"]))),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )
    trainer.train()
    trainer.push_to_hub()


def follow(page: Sequence[tuple[str, str]]) -> None:
    """The Python and the commands of a page, these with few steps, small sizes and a test file."""
    from copynet_hf.cli import main

    small = {
        "train": ["--max_steps=1", "--hidden_size=8", "--test_file=train.jsonl", "--max_target_length=4"],
        "generate": ["--max_target_length=4"],
    }
    names: dict[str, Any] = {}
    for language, text in page:
        if language == "python":
            exec(compile(text, "the page", "exec"), names)
        for line in text.splitlines() if language == "bash" else []:
            program, command, *said = shlex.split(line)
            if program == "copynet-hf" and main([command, *said, *small[command]]):
                raise RuntimeError(f"failed: {line}")


def load(names: Sequence[str], texts: Sequence[str], **options: Any) -> dict[str, Any]:
    """The answers of models by name or name@revision, or why there are none."""
    found = {}
    for name in names:
        repo, _, revision = name.partition("@")
        asked = {"revision": revision} if revision else {}
        try:
            found[name] = answers(repo, texts, **asked, **options)
        except OSError as error:
            found[name] = str(error)
    return found


def push_over_encoder(folder: str, texts: Sequence[str]) -> dict[str, Any]:
    """Pushes an encoder as me/encoder, and a model over it, by that name, as me/over; returns what that answers."""
    from copynet_hf import CopyNetForConditionalGeneration, CopyNetTokenizer

    AutoModel.from_pretrained(folder).push_to_hub("me/encoder")
    AutoTokenizer.from_pretrained(folder).push_to_hub("me/encoder")
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 10, "whitespace", encoder_tokenizer="me/encoder")
    sizes = {"hidden_size": 14, "embedding_size": 6, "attention_size": 10, "initializer_range": 2.0}
    torch.manual_seed(0)
    model = CopyNetForConditionalGeneration.from_encoder_pretrained("me/encoder", tokenizer=tokenizer, **sizes)
    model.generation_config.update(num_beams=2, max_new_tokens=6)
    model.push_to_hub("me/over")
    tokenizer.push_to_hub("me/over")
    model.save_pretrained("over")
    tokenizer.save_pretrained("over")
    return answers("over", texts) | {"encoder": model.config.encoder.name_or_path}


def complaint(action: Callable[..., Any], *arguments: Any, **options: Any) -> str | None:
    """The error of a call, None where it has none."""
    try:
        action(*arguments, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
