"""SIGMORPHON–UniMorph 2022, task 0 part 1 (Kodner et al. 2022): a lemma and features to the inflected form."""

from __future__ import annotations

import csv
import unicodedata
from pathlib import Path
from typing import Any

from .rows import Row

FOLDER = "sigmorphon2022"
# The languages that have training sets of up to 700 and of 7,000 triples, by the codes of ISO 639-3; `poma` is Pomak.
# fmt: off
SMALL = (
    "ang", "ara", "asm", "bra", "ckt", "evn", "gml", "goh", "got", "guj", "heb", "hsb", "hsi", "hun", "hye", "itl",
    "kat", "kaz", "ket", "khk", "kor", "krl", "lud", "mag", "nds", "non", "pol", "poma", "sjo", "slk", "slp", "tur",
    "vep",
)
LARGE = (
    "ang", "ara", "asm", "evn", "got", "heb", "hun", "hye", "kat", "kaz", "khk", "kor", "krl", "lud", "non", "pol",
    "poma", "slk", "tur", "vep",
)
# fmt: on
SIZES = {"small": SMALL, "large": LARGE}
# The arguments with which `copynet-hf` reads the files of the task.
COLUMNS: dict[str, Any] = {"features_column": "features"}


def list_files(data_dir: Path, language: str, size: str) -> dict[str, str]:
    """The training and validation files of a set, as arguments of `copynet-hf train`."""
    folder = data_dir / FOLDER
    return {
        "train_file": str(folder / f"{language}_{size}.train"),
        "validation_file": str(folder / f"{language}.dev"),
    }


def read_test_rows(data_dir: Path, language: str) -> list[Row]:
    """The test triples, with texts in NFC, in which they are compared.

    Raises:
        FileNotFoundError: the file is missing.
    """
    path = data_dir / FOLDER / f"{language}.gold"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: name the folder of the data with --data_dir or COPYNET_DATA")
    rows: list[Row] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        lemma, form, features = unicodedata.normalize("NFC", line).split("\t")
        rows.append({"text": lemma, "summary": form, "features": features.split(";")})
    return rows


def read_published(data_dir: Path) -> dict[str, dict[str, float | None]]:
    """Published test accuracies in percent, by set such as `got_small`, then by system; also `train_pairs` and
    `test_words`. The rows `all small (by word)` and `all large (by word)` are means weighted by test words."""
    path = data_dir / FOLDER / "published_test_accuracy.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {row.pop("set"): {name: float(value) if value else None for name, value in row.items()} for row in rows}
