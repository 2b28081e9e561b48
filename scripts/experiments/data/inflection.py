"""SIGMORPHON–UniMorph 2022 and 2023, task 0 part 1: a lemma and features to the inflected form.

The task of 2022 (Kodner et al. 2022) has training sets of two sizes; that of 2023 (Goldman et al. 2023) one of 10,000
triples a language, no lemma of which is in the other files, in another order of columns.
"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .rows import Row

FOLDER, FOLDER_2023 = "sigmorphon2022", "sigmorphon2023"
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
# The sets of 2023; Hebrew has two, with vowels and without.
SETS_2023 = (
    "afb", "amh", "arz", "bel", "dan", "deu", "eng", "fin", "fra", "grc", "heb", "heb_unvoc", "hun", "hye", "ita",
    "jap", "kat", "klr", "mkd", "nav", "rus", "san", "sme", "spa", "sqi", "swa", "tur",
)
# fmt: on
SIZES = {"small": SMALL, "large": LARGE}
ORDER, ORDER_2023 = ("lemma", "form", "features"), ("lemma", "features", "form")
# The arguments with which `copynet-hf` reads the files of each task.
COLUMNS: dict[str, Any] = {"features_column": "features"}
COLUMNS_2023: dict[str, Any] = {**COLUMNS, "column_names": list(ORDER_2023)}


def list_files(data_dir: Path, language: str, size: str) -> dict[str, str]:
    """The training and validation files of a set, as arguments of `copynet-hf train`."""
    folder = data_dir / FOLDER
    return {
        "train_file": str(folder / f"{language}_{size}.train"),
        "validation_file": str(folder / f"{language}.dev"),
    }


def list_files_2023(data_dir: Path, language: str) -> dict[str, str]:
    """The training and validation files of a set of 2023, as arguments of `copynet-hf train`."""
    folder = data_dir / FOLDER_2023
    return {"train_file": str(folder / f"{language}.trn"), "validation_file": str(folder / f"{language}.dev")}


def find_sets_2023(data_dir: Path) -> list[str]:
    """The sets of 2023 whose three files are there, the test with its answers.

    Raises:
        FileNotFoundError: there is none.
    """
    folder = data_dir / FOLDER_2023
    found = [
        language
        for language in SETS_2023
        if all((folder / f"{language}.{part}").is_file() for part in ("trn", "dev", "tst"))
        and all(row["summary"] for row in read_test_rows_2023(data_dir, language))
    ]
    if not found:
        raise _missing(folder / f"{SETS_2023[0]}.trn")
    return found


def read_test_rows(data_dir: Path, language: str) -> list[Row]:
    """The test triples, with texts in NFC, in which they are compared.

    Raises:
        FileNotFoundError: the file is missing.
    """
    return _read_rows(data_dir / FOLDER / f"{language}.gold", ORDER)


def read_test_rows_2023(data_dir: Path, language: str) -> list[Row]:
    """The same of 2023; the form is empty where the answers are held back."""
    return _read_rows(data_dir / FOLDER_2023 / f"{language}.tst", ORDER_2023)


def _read_rows(path: Path, order: Sequence[str]) -> list[Row]:
    if not path.is_file():
        raise _missing(path)
    rows: list[Row] = []
    for line in unicodedata.normalize("NFC", path.read_text(encoding="utf-8")).splitlines():
        cells = dict.fromkeys(order, "") | dict(zip(order, line.split("\t"), strict=False))
        rows.append({"text": cells["lemma"], "summary": cells["form"], "features": cells["features"].split(";")})
    return rows


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(f"{path} is missing: name the folder of the data with --data_dir or COPYNET_DATA")


def read_accuracies(data_dir: Path) -> dict[str, dict[str, float | None]]:
    """Published test accuracies in percent, by set such as `got_small`, then by system; also `train_pairs` and
    `test_words`. The rows `all small (by word)` and `all large (by word)` are means weighted by test words."""
    path = data_dir / FOLDER / "published_test_accuracy.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {row.pop("set"): {name: float(value) if value else None for name, value in row.items()} for row in rows}
