"""What a summary or an answer is scored by: ROUGE, BLEU, exact match, and how much of it was copied.

The file stands alone, so that it can be used as a metric of `evaluate` wherever it is copied to:
`evaluate.load("copynet_hf/evaluation/metrics.py")`.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import datasets

# Not `from evaluate import Metric`: `evaluate.load` takes the first metric class it finds in this module.
import evaluate
import numpy as np
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU

if TYPE_CHECKING:
    from transformers import EvalPrediction, PreTrainedTokenizerBase

Texts = Sequence[str] | Sequence[Sequence[str]]
Tokenization = Literal["auto", "char", "word"]

UNK = "<unk>"
ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")
_HAN = re.compile(r"[\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile(r"[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f]")
_CHECKED = 20  # of the rows that do not fit their references, so many are looked for in other rows


def score_outputs(
    predictions: Texts,
    references: Texts,
    sources: Sequence[str] | None = None,
    *,
    tokenize: Tokenization = "auto",
    words: Callable[[str], list[str]] | None = None,
    vocabulary: Container[str] | None = None,
) -> dict[str, float]:
    """All scores of a test set; every one but `examples` is a percentage.

    - exact_match: predictions equal to a reference, spacing aside.
    - exact_match_top_k: n-best lists of at most k predictions that hold one; only when lists are given.
      All other scores are those of the first prediction of each list.
    - rouge1, rouge2, rougeL: mean F1 (Lin 2004) against the best reference, in lower case. On the characters
      that are not spaces, or on words without punctuation, as rouge_score has them in English.
    - bleu: corpus BLEU by sacrebleu.
    - unk_rate: share of the predicted words that are `<unk>`.
    - copied_fraction: share of the predicted words that stand in the source, whether a model copied them or
      generated them. Only with `sources`.
    - oov_recall: of the reference words that stand in the source and are not in `vocabulary`, the share
      that stands in the prediction too, a word twice if it is there twice; of several references the one
      recalled best. Only with `sources` and `vocabulary`, and left out when there is no such word (loggers
      want numbers).

    `tokenize="auto"` takes characters when a third of the references' letters are Chinese or Japanese. The
    last three scores count what `words` returns (a tokenizer's `tokenize`), else characters or words by the
    same switch.

    Raises ValueError for no example at all and for sequences of different lengths.
    """
    ranked = [[row] if isinstance(row, str) else list(row) or [""] for row in predictions]
    answers = [[row] if isinstance(row, str) else list(row) for row in references]
    _check_lengths(ranked, answers, sources)
    unit = _unit(answers, tokenize)
    best = [row[0] for row in ranked]
    scores = _exact_match(ranked, answers, unit) | _rouge(best, answers, unit)
    scores["bleu"] = _bleu(best, answers, unit)[0]
    scores |= _copying(best, answers, sources, words or _PLAIN_WORDS[unit], vocabulary)
    return scores | {"examples": len(best)}


def metric_signature(references: Texts, tokenize: Tokenization = "auto") -> dict[str, str]:
    """What exactly each score is, to stand under a table: versions, tokens, case, number of references."""
    answers = [[row] if isinstance(row, str) else list(row) for row in references]
    unit = _unit(answers, tokenize)
    tokens = "char|spaces:no" if unit == "char" else "word|punctuation:no"
    version = importlib.metadata.version("rouge-score")
    rouge = f"F1|nrefs:{max(map(len, answers))}|best-ref|mean|case:lc|tok:{tokens}|rouge_score:{version}"
    spaces = "no" if unit == "char" else "collapsed"
    return {
        **dict.fromkeys(ROUGE_TYPES, rouge),
        "bleu": _bleu([row[0] for row in answers], answers, unit)[1],
        "exact_match": f"any-ref|case:mixed|spaces:{spaces}",
    }


class CopyMetrics(evaluate.Metric):
    """`score_outputs` as a metric of `evaluate`: `sources` and the options are given to `compute`.

    The options (`tokenize`, `words`, `vocabulary`) may also be given once, when the metric is made.
    """

    def __init__(
        self,
        *args: Any,
        tokenize: Tokenization = "auto",
        words: Callable[[str], list[str]] | None = None,
        vocabulary: Container[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.options = {"tokenize": tokenize, "words": words, "vocabulary": vocabulary}

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

    def _compute(
        self,
        predictions: Texts,
        references: Texts,
        sources: Sequence[str] | None = None,
        **options: Any,
    ) -> dict[str, float]:
        return score_outputs(predictions, references, sources, **(self.options | options))


def make_compute_metrics(
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    references: Texts | None = None,
    *,
    tokenize: Tokenization = "auto",
    max_source_length: int | None = None,
    facts: Sequence[Any] | None = None,
) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a `Seq2SeqTrainer` that generates (`predict_with_generate=True`).

    `sources` are the source texts in the order of the evaluation set: a CopyNet tokenizer needs them to turn
    the ids of copied words back into words. Any other tokenizer decodes as usual. Without `references` the
    labels are decoded; they may have been cut short, and a word that is neither in the vocabulary nor in the
    source has become `<unk>` there, which no prediction can match. `max_source_length` is what the sources
    were truncated to; the CopyNet tokenizer asks for it when it truncates on the left. `facts` are those of the
    sources, where they were encoded with some.

    Leave `train_sampling_strategy="group_by_length"` out then: the Trainer reorders the evaluation set with it, and
    outputs would be held against other rows' sources. The labels give that away: with `references` when they are those
    of other rows; without, and for a CopyNet tokenizer only, when they hold a word that is not in the row's source.

    Raises ValueError when there are not as many references as sources. What is returned raises it when there are fewer
    predictions, and when the labels show that the evaluation set stands in another order.
    """
    if references is not None and len(references) != len(sources):
        raise ValueError(f"{len(references)} references for {len(sources)} sources")
    # One of the two methods may pass the argument on to the other.
    methods = (tokenizer.decode, tokenizer.batch_decode)
    copies = any("source" in inspect.signature(method).parameters for method in methods)
    options: dict[str, Any] = {"tokenize": tokenize}
    decoding: dict[str, Any] = {}
    if copies:
        options |= {"words": tokenizer.tokenize, "vocabulary": tokenizer.get_vocab()}
        decoding = {"source": list(sources), "max_source_length": max_source_length}
        if facts is not None:
            decoding["facts"] = list(facts)
    writable = sources if facts is None else [with_objects(*row) for row in zip(sources, facts, strict=True)]

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        outputs, labels = (_rows(ids, len(sources)) for ids in (prediction.predictions, prediction.label_ids))
        texts = _decode(tokenizer, outputs, decoding)
        if copies:
            _check_slots(tokenizer, labels, sources, max_source_length, facts)
        if references is None:
            answers: Texts = [_unmatchable(text) for text in _decode(tokenizer, labels, decoding)]
        else:
            answers = references
            _check_order(tokenizer, labels, sources if copies else None, references, max_source_length, facts)
        return score_outputs(texts, answers, writable, **options)

    return compute_metrics


def _rows(ids: Any, count: int) -> np.ndarray:
    """The first `count` rows: several processes pad the last batch with rows of their own."""
    rows = np.asarray(ids[0] if isinstance(ids, tuple) else ids)
    if len(rows) < count:
        raise ValueError(f"{len(rows)} predictions for {count} sources")
    return rows[:count]


def _decode(tokenizer: PreTrainedTokenizerBase, rows: np.ndarray, options: dict[str, Any]) -> list[str]:
    """The texts of the rows, with `<unk>` where an id stands for an unknown word.

    `skip_special_tokens` would leave those out as well and make a wrong text equal to a right one.
    """
    texts = tokenizer.batch_decode(_shown(tokenizer, rows.tolist()), **options)
    return [text.replace(tokenizer.unk_token or UNK, UNK).strip() for text in texts]


def hidden_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The special symbols that no reader wants to see: all of them but `<unk>`."""
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def _shown(tokenizer: PreTrainedTokenizerBase, rows: Iterable[list[int]]) -> list[list[int]]:
    """The rows without padding and special symbols."""
    dropped = hidden_ids(tokenizer) | {-100}
    return [[index for index in row if index not in dropped] for row in rows]


def with_objects(text: str, facts: Iterable[Sequence[str]] | None) -> str:
    """All that may be written from: the text, and the objects of its facts."""
    return " ".join([text, *(fact[2] for fact in facts or ())])


def _check_slots(
    tokenizer: Any,
    labels: np.ndarray,
    sources: Sequence[str],
    max_source_length: int | None,
    facts: Sequence[Any] | None,
) -> None:
    """Raises ValueError for labels with an unseen word that is not in their own source."""
    first = len(tokenizer)
    for number, (highest, source) in enumerate(zip(labels.max(axis=1, initial=0), sources, strict=True)):
        own = {} if facts is None else {"facts": facts[number]}
        if highest >= first and highest - first >= len(tokenizer.oov_words(source, max_source_length, **own)):
            raise _another_order(f"the labels of row {number} hold a word that its source lacks")


def _check_order(
    tokenizer: PreTrainedTokenizerBase,
    labels: np.ndarray,
    sources: Sequence[str] | None,
    references: Texts,
    max_source_length: int | None,
    facts: Sequence[Any] | None,
) -> None:
    """Raises ValueError when labels are those of other rows' references; `sources` for a CopyNet tokenizer.

    That labels differ from their own references is no proof: they may have been made from another text. So those rows
    are looked for elsewhere, and half of them have to be found.
    """
    accepted = [[row] if isinstance(row, str) else list(row) for row in references]
    texts = [text for row in accepted for text in row]
    if sources is None:
        encoded = tokenizer(text_target=texts, verbose=False)["input_ids"]
    else:
        repeated = [source for source, row in zip(sources, accepted, strict=True) for _ in row]
        cut: dict[str, Any] = (
            {} if max_source_length is None else {"truncation": True, "max_length": max_source_length}
        )
        if facts is not None:
            cut["facts"] = [known for known, row in zip(facts, accepted, strict=True) for _ in row]
        encoded = tokenizer(repeated, text_target=texts, max_target_length=sys.maxsize, **cut)["labels"]
    each = iter(_shown(tokenizer, encoded))
    wanted = [[next(each) for _ in row] for row in accepted]
    held = _shown(tokenizer, labels.tolist())
    unk = tokenizer.unk_token_id
    misplaced = [
        number for number, row in enumerate(held) if not any(_agree(row, target, unk) for target in wanted[number])
    ]
    looked_for = misplaced[:_CHECKED]
    found = sum(any(_holds(target, held[number], unk) for row in wanted for target in row) for number in looked_for)
    if len(misplaced) > 1 and 2 * found >= len(looked_for):
        raise _another_order(f"the labels of row {misplaced[0]} are not of its reference, but of another row's")


def _agree(labels: list[int], target: list[int], unk: int | None) -> bool:
    """Whether one begins the other; `<unk>` may stand for any word: a source that was cut has fewer words."""
    return all(a == b or unk in (a, b) for a, b in zip(labels, target, strict=False))


def _holds(target: list[int], labels: list[int], unk: int | None) -> bool:
    """Whether the target, cut or whole, can have become these labels."""
    return len(labels) <= len(target) and _agree(labels, target, unk)


def _another_order(sign: str) -> ValueError:
    return ValueError(
        f"the evaluation set stands in another order than `sources` ({sign}): leave out "
        "train_sampling_strategy='group_by_length', and give `sources`, `references` and `max_source_length` as the "
        "evaluation set was made with"
    )


def _unmatchable(text: str) -> str:
    """A reference whose unknown words equal no predicted word, `<unk>` included."""
    return text.replace(UNK, "\ufffd")


def _unit(answers: Sequence[Sequence[str]], tokenize: Tokenization) -> Literal["char", "word"]:
    if tokenize != "auto":
        return tokenize
    return "char" if mostly_cjk(text for row in answers for text in row) else "word"


def mostly_cjk(texts: Iterable[str]) -> bool:
    """Whether a third of the letters are Chinese or Japanese."""
    text = "".join(texts)
    letters = sum(map(str.isalpha, text))
    return 3 * (len(_HAN.findall(text)) + len(_KANA.findall(text))) >= max(letters, 1)


def _characters(text: str) -> list[str]:
    return re.findall(rf"{UNK}|\S", text)


def _lowered_characters(text: str) -> list[str]:
    return _characters(text.lower())


def _lowered_words(text: str) -> list[str]:
    """The words of rouge_score's own tokenizer, for every alphabet: it knows a to z only."""
    kept = (c if c.isalnum() or unicodedata.category(c).startswith("M") else " " for c in text.lower())
    return "".join(kept).split()


_PLAIN_WORDS: dict[str, Callable[[str], list[str]]] = {"char": _characters, "word": str.split}


class _RougeTokenizer:
    """What rouge_score asks for; its default finds no token at all in Chinese and gives 0.0."""

    def __init__(self, unit: Literal["char", "word"]) -> None:
        self.tokenize = _lowered_characters if unit == "char" else _lowered_words


def _check_lengths(ranked: list[list[str]], answers: list[list[str]], sources: Sequence[str] | None) -> None:
    if not ranked:
        raise ValueError("no predictions to score")
    for name, rows in (("references", answers), ("sources", sources)):
        if rows is not None and len(rows) != len(ranked):
            raise ValueError(f"{len(ranked)} predictions, but {len(rows)} {name}")
    if not all(answers):
        raise ValueError(f"no reference in row {[bool(row) for row in answers].index(False)}")


def _exact_match(ranked: list[list[str]], answers: list[list[str]], unit: Literal["char", "word"]) -> dict[str, float]:
    split: Callable[[str], list[str]] = _characters if unit == "char" else str.split
    hits: list[list[bool]] = []
    for row, accepted in zip(ranked, answers, strict=True):
        correct = [split(text) for text in accepted]
        hits.append([split(text) in correct for text in row])
    scores = {"exact_match": _percent(sum(row[0] for row in hits), len(hits))}
    k = max(map(len, ranked))
    if k > 1:
        scores[f"exact_match_top_{k}"] = _percent(sum(map(any, hits)), len(hits))
    return scores


def _rouge(best: list[str], answers: list[list[str]], unit: Literal["char", "word"]) -> dict[str, float]:
    scorer = rouge_scorer.RougeScorer(ROUGE_TYPES, tokenizer=_RougeTokenizer(unit))
    rows = [scorer.score_multi(accepted, text) for text, accepted in zip(best, answers, strict=True)]
    return {kind: _rounded(100 * sum(row[kind].fmeasure for row in rows) / len(rows)) for kind in ROUGE_TYPES}


def _bleu(best: list[str], answers: list[list[str]], unit: Literal["char", "word"]) -> tuple[float, str]:
    """Corpus BLEU and its signature; on characters, Chinese keeps whole Latin words and numbers."""
    japanese = any(_KANA.search(text) for row in answers for text in row)
    scorer = BLEU(tokenize="13a" if unit == "word" else "char" if japanese else "zh")
    # One list per rank; rows with fewer references have None there.
    streams: list[Any] = [
        [row[rank] if rank < len(row) else None for row in answers] for rank in range(max(map(len, answers)))
    ]
    score = scorer.corpus_score(best, streams).score
    return _rounded(score), str(scorer.get_signature())


def _rounded(score: float) -> float:
    """Without the last digits, in which a perfect score is 100.00000000000004."""
    return round(score, 10)


def _copying(
    best: list[str],
    answers: list[list[str]],
    sources: Sequence[str] | None,
    words: Callable[[str], list[str]],
    vocabulary: Container[str] | None,
) -> dict[str, float]:
    predicted = [_with_unk(text, words) for text in best]
    total = sum(map(len, predicted))
    scores = {"unk_rate": _percent(sum(row.count(UNK) for row in predicted), total)}
    if sources is None:
        return scores
    copied = recalled = wanted = 0
    for row, accepted, source in zip(predicted, answers, sources, strict=True):
        in_source = set(words(source))
        copied += sum(word in in_source for word in row)
        if vocabulary is not None:
            unseen = [_unseen(words(text), in_source, vocabulary) for text in accepted]
            hits, of = max((((Counter(row) & each).total(), each.total()) for each in unseen), key=_share)
            recalled, wanted = recalled + hits, wanted + of
    scores["copied_fraction"] = _percent(copied, total)
    if wanted:
        scores["oov_recall"] = _percent(recalled, wanted)
    return scores


def _unseen(reference: list[str], in_source: set[str], vocabulary: Container[str]) -> Counter[str]:
    return Counter(word for word in reference if word in in_source and word not in vocabulary)


def _with_unk(text: str, words: Callable[[str], list[str]]) -> list[str]:
    """The words of a prediction; a tokenizer might cut `<unk>` in pieces, so it is set aside first."""
    first, *others = text.split(UNK)
    return words(first) + [word for part in others for word in (UNK, *words(part))]


def _share(counts: tuple[int, int]) -> float:
    return counts[0] / counts[1] if counts[1] else -1.0


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
