"""Metrics of generated texts: exact match, ROUGE, BLEU, and how much of a text was copied.

The module imports nothing of the package and can be used alone as a metric of `evaluate`:
`evaluate.load("copynet_hf/evaluation/metrics.py")`.
"""

from __future__ import annotations

import importlib.metadata
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import datasets

# Not `from evaluate import Metric`: `evaluate.load` takes the first metric class it finds in this module.
import evaluate
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU

Texts = Sequence[str] | Sequence[Sequence[str]]
Tokenization = Literal["auto", "char", "word"]
Unit = Literal["char", "word"]

UNK = "<unk>"
# Of the scores below; a higher value of the others is better.
LOWER_IS_BETTER = ("edit_distance", "character_error_rate", "unk_rate")
ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")
# Classes of the characters of scripts that put no spaces between words.
HAN = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = r"\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
ALPHABETS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
CJK, UNSPACED = HAN + KANA, HAN + KANA + ALPHABETS


def score_outputs(
    predictions: Texts,
    references: Texts,
    sources: Sequence[str] | None = None,
    *,
    tokenize: Tokenization = "auto",
    words: Callable[[str], list[str]] | None = None,
    vocabulary: Container[str] | None = None,
    edit_distance: bool = False,
) -> dict[str, float]:
    """Computes all metrics of a test set.

    Args:
        predictions: for each example a text, or an n-best list.
        references: for each example a text, or several.
        sources: for each example its source text; needed for `copied_fraction` and `oov_recall`.
        tokenize: the unit of exact match, ROUGE and BLEU; "auto": characters if at least a third of the references'
            letters are of scripts without spaces between words, such as Chinese, else words.
        words: splits a text into the words that the last three metrics count, such as a tokenizer's `tokenize`; None:
            characters or words, as `tokenize`.
        vocabulary: the words that are not out-of-vocabulary; needed for `oov_recall`.
        edit_distance: whether to compute `edit_distance` and `character_error_rate`, which suit outputs that are
            spelled, such as inflected words.

    Returns:
        Percentages, except `examples` and `edit_distance`. All are computed on the first prediction of an n-best list,
        except `exact_match_top_k`.

        - exact_match: predictions equal to a reference, whatever the width of the whitespace between words; whitespace
          between characters is ignored.
        - exact_match_top_k: n-best lists, of at most k predictions, that contain a reference; only with n-best lists.
        - rouge1, rouge2, rougeL: mean F1 (Lin 2004) against the best reference, lower-cased; over non-space
          characters, or over words without punctuation, which for English are those of rouge_score.
        - bleu: corpus BLEU of sacrebleu.
        - edit_distance: mean number of characters to insert, delete or replace until the prediction is the nearest
          reference (Levenshtein); `<unk>` is one character, and so is a run of whitespace.
        - character_error_rate: the sum of these numbers relative to the length of these references; can exceed 100,
          and is 0 if all of them are empty.
        - unk_rate: share of `<unk>` in the predicted words.
        - copied_fraction: share of the predicted words that the source contains, whether copied or generated.
        - oov_recall: of the reference words that the source contains and `vocabulary` does not, the share that the
          prediction contains, with multiplicity; of several references, the one recalled best. Left out if there is no
          such word, since loggers expect numbers.
        - examples: the number of examples.

    Raises:
        ValueError: there are no examples, or the numbers of predictions, references and sources differ.
    """
    ranked = [[row] if isinstance(row, str) else list(row) or [""] for row in predictions]
    accepted = [[row] if isinstance(row, str) else list(row) for row in references]
    _check_lengths(ranked, accepted, sources)
    unit = _find_unit(accepted) if tokenize == "auto" else tokenize
    best = [row[0] for row in ranked]
    scores = _exact_match(ranked, accepted, unit) | _rouge(best, accepted, unit)
    scores["bleu"] = _bleu(best, accepted, unit)[0]
    if edit_distance:
        scores |= _edit_distance(best, accepted)
    scores |= _copying(best, accepted, sources, words or _SPLIT[unit], vocabulary)
    return scores | {"examples": len(best)}


def metric_signature(references: Texts) -> dict[str, str]:
    """For each metric its signature, to be reported with the scores: versions, tokens, case, number of references."""
    accepted = [[row] if isinstance(row, str) else list(row) for row in references]
    unit = _find_unit(accepted)
    tokens = "char|spaces:no" if unit == "char" else "word|punctuation:no"
    version = importlib.metadata.version("rouge-score")
    rouge = f"F1|nrefs:{max(map(len, accepted))}|best-ref|mean|case:lc|tok:{tokens}|rouge_score:{version}"
    spaces = "no" if unit == "char" else "collapsed"
    return {
        **dict.fromkeys(ROUGE_TYPES, rouge),
        "bleu": _bleu([row[0] for row in accepted], accepted, unit)[1],
        "exact_match": f"any-ref|case:mixed|spaces:{spaces}",
    }


class CopyMetrics(evaluate.Metric):
    """`score_outputs` as a metric of `evaluate`. `compute` takes `sources` and the other arguments."""

    def _info(self) -> evaluate.MetricInfo:
        text, texts = datasets.Value("string"), datasets.Sequence(datasets.Value("string"))
        return evaluate.MetricInfo(
            description=__doc__ or "",
            citation="",
            inputs_description=score_outputs.__doc__ or "",
            features=[
                datasets.Features({"predictions": prediction, "references": reference})
                for prediction in (text, texts)
                for reference in (text, texts)
            ],
        )

    def _compute(self, predictions: Texts, references: Texts, **options: Any) -> dict[str, float]:
        return score_outputs(predictions, references, **options)


def _find_unit(references: Sequence[Sequence[str]]) -> Unit:
    return "char" if are_mostly(UNSPACED, (text for row in references for text in row)) else "word"


def are_mostly(characters: str, texts: Iterable[str]) -> bool:
    """Whether at least a third of the letters are of a class, such as `CJK` and `UNSPACED`."""
    letters = "".join(filter(str.isalpha, "".join(texts)))
    return 3 * len(re.findall(f"[{characters}]", letters)) >= max(len(letters), 1)


def _characters(text: str) -> list[str]:
    return re.findall(rf"{UNK}|\S", text)


def _lowered_words(text: str) -> list[str]:
    """The words of rouge_score's tokenizer, which knows the letters a to z only, for all alphabets."""
    kept = (c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in text.lower())
    return "".join(kept).split()


_SPLIT: dict[str, Callable[[str], list[str]]] = {"char": _characters, "word": str.split}


def _check_lengths(ranked: list[list[str]], references: list[list[str]], sources: Sequence[str] | None) -> None:
    if not ranked:
        raise ValueError("there are no predictions: pass at least one")
    for name, rows in (("references", references), ("sources", sources)):
        if rows is not None and len(rows) != len(ranked):
            raise ValueError(f"{len(ranked)} predictions have {len(rows)} {name}: pass one for each prediction")
    if not all(references):
        raise ValueError(f"row {[bool(row) for row in references].index(False)} has no reference: pass at least one")


def find_exact_matches(predictions: Sequence[str], references: Texts) -> list[bool]:
    """Whether each prediction is right by `exact_match`; see `score_outputs`."""
    accepted = [[row] if isinstance(row, str) else list(row) for row in references]
    return [row[0] for row in _find_hits([[text] for text in predictions], accepted, _find_unit(accepted))]


def _find_hits(ranked: list[list[str]], references: list[list[str]], unit: Unit) -> list[list[bool]]:
    split = _SPLIT[unit]
    hits: list[list[bool]] = []
    for row, accepted in zip(ranked, references, strict=True):
        correct = [split(text) for text in accepted]
        hits.append([split(text) in correct for text in row])
    return hits


def _exact_match(ranked: list[list[str]], references: list[list[str]], unit: Unit) -> dict[str, float]:
    hits = _find_hits(ranked, references, unit)
    scores = {"exact_match": _percent(sum(row[0] for row in hits), len(hits))}
    k = max(map(len, ranked))
    if k > 1:
        scores[f"exact_match_top_{k}"] = _percent(sum(map(any, hits)), len(hits))
    return scores


def _rouge(best: list[str], references: list[list[str]], unit: Unit) -> dict[str, float]:
    # The default tokenizer of rouge_score finds no tokens in Chinese, and scores 0.
    tokenize = _lowered_words if unit == "word" else lambda text: _characters(text.lower())
    scorer = rouge_scorer.RougeScorer(ROUGE_TYPES, tokenizer=SimpleNamespace(tokenize=tokenize))
    rows = [scorer.score_multi(accepted, text) for text, accepted in zip(best, references, strict=True)]
    return {kind: _round(100 * sum(row[kind].fmeasure for row in rows) / len(rows)) for kind in ROUGE_TYPES}


def _bleu(best: list[str], references: list[list[str]], unit: Unit) -> tuple[float, str]:
    """Corpus BLEU and its signature. sacrebleu's "zh" splits Chinese into characters, but not Latin words."""
    has_others = any(re.search(f"[{KANA}{ALPHABETS}]", text) for row in references for text in row)
    # With force it does not warn of full stops set apart by a space.
    scorer = BLEU(tokenize="13a" if unit == "word" else "char" if has_others else "zh", force=True)
    # One list per reference; None for examples with fewer references.
    streams: list[Any] = [
        [row[rank] if rank < len(row) else None for row in references] for rank in range(max(map(len, references)))
    ]
    score = scorer.corpus_score(best, streams).score
    return _round(score), str(scorer.get_signature())


def _edit_distance(best: list[str], references: list[list[str]]) -> dict[str, float]:
    total = length = 0
    for prediction, accepted in zip(map(_spell, best), references, strict=True):
        distance, size = min((_levenshtein(prediction, text), len(text)) for text in map(_spell, accepted))
        total, length = total + distance, length + size
    return {"edit_distance": total / len(best), "character_error_rate": _percent(total, length)}


def _spell(text: str) -> list[str]:
    return re.findall(rf"{UNK}|.", " ".join(text.split()), re.DOTALL)


def _levenshtein(first: Sequence[str], second: Sequence[str]) -> int:
    """The least number of insertions, deletions and replacements between two sequences."""
    row = list(range(len(second) + 1))  # from nothing to each prefix of the second
    for number, symbol in enumerate(first, 1):
        diagonal, row[0] = row[0], number
        for column, other in enumerate(second, 1):
            replaced = diagonal + (symbol != other)
            diagonal = row[column]
            row[column] = min(replaced, diagonal + 1, row[column - 1] + 1)
    return row[-1]


def _round(score: float) -> float:
    """Drops the last digits: a perfect score can be 100.00000000000004."""
    return round(score, 10)


def _copying(
    best: list[str],
    references: list[list[str]],
    sources: Sequence[str] | None,
    words: Callable[[str], list[str]],
    vocabulary: Container[str] | None,
) -> dict[str, float]:
    predicted = [_split_around_unk(text, words) for text in best]
    total = sum(map(len, predicted))
    scores = {"unk_rate": _percent(sum(row.count(UNK) for row in predicted), total)}
    if sources is None:
        return scores
    copied = recalled = recallable = 0
    for row, accepted, source in zip(predicted, references, sources, strict=True):
        in_source = set(words(source))
        copied += sum(word in in_source for word in row)
        if vocabulary is not None:
            known = [[word for word in words(text) if word in in_source] for text in accepted]
            oov = [Counter(word for word in each if word not in vocabulary) for each in known]
            counts = [((Counter(row) & each).total(), each.total()) for each in oov]
            hits, count = max(counts, key=lambda pair: pair[0] / pair[1] if pair[1] else -1.0)
            recalled, recallable = recalled + hits, recallable + count
    scores["copied_fraction"] = _percent(copied, total)
    if recallable:
        scores["oov_recall"] = _percent(recalled, recallable)
    return scores


def _split_around_unk(text: str, words: Callable[[str], list[str]]) -> list[str]:
    """The words of a prediction, in which `words` alone might split `<unk>`."""
    parts = text.split(UNK)
    if " " not in words("a b"):  # a space beside `<unk>` is none of its own
        parts = [part.strip(" ") for part in parts]
    first, *others = parts
    return words(first) + [word for part in others for word in (UNK, *words(part))]


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
