"""Chinese dialogues whose last utterance is rewritten with what it omits (Su et al. 2019)."""

from __future__ import annotations

from pathlib import Path

from .rows import Row, read_rows


def read_dialogues(data_dir: Path) -> dict[str, list[Row]]:
    """Reads train, validation and test: `text` is the context and the utterance, one per line, `summary` the rewritten
    utterance."""
    return {
        split: [
            {"text": "\n".join([*row["context"], row["utterance"]]), "summary": row["target"]}
            for row in read_rows(data_dir / "utterance_rewriting_zh" / f"{split}.jsonl")
        ]
        for split in ("train", "validation", "test")
    }
