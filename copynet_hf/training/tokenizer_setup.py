"""The tokenizer of a training run: loaded, or trained on its pairs, whose words are counted so that what can be copied
is copied."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase

from ..arguments import MAX_SOURCE_LENGTH, TokenizerArguments, TrainArguments
from ..data.files import Row
from ..evaluation.compute_metrics import spells_words
from ..model.chains import Chains, Joined, find_acronym, find_cases, is_joined, is_spelled, list_marks, list_parts
from ..model.segmentation import CHAINED, ENDING_CUTS, INITIAL, MARKS, fold_case, get_segmenter
from ..model.tokenization_copynet import CopyNetTokenizer
from ..saved.loading import load_tokenizer
from .dataset import Pairs, spread
from .endings import SourceEnds, find_ends, find_regular
from .presets import make_config
from .reach import find_changes, measure_reach
from .segmenters import are_few, choose_min_frequency, choose_segmenter

REACH_SAMPLE_SIZE = 1000  # pairs that show what sources and targets are made of
STREAM_SAMPLE_SIZE = 100_000  # pairs from which alignments are computed and, of a stream, vocabulary and slots
MAX_GENERATED = 0.02
"""The share of a word's targets whose sources may lack it, for a word that sources often have in another form."""
MAX_WHITESPACE = 0.01  # of the targets have whitespace outside the vocabulary, if that is read as a space
MIN_WHITESPACE = 0.05  # of the sources have whitespace that is then in the vocabulary, unless a target has it
MIN_UNITS, MIN_SUMS = 5, 20
"""The different numbers that are written with the same unit, as in 7w, and those to which the same digits are added,
as 000 for thousands."""

_Frame = tuple[str, str]
"""What a word of a target has before and after a number of its source."""
_Framed = tuple[str, int, set[_Frame]]
"""A word of a target, how often it counted, and what may have been written before and after a number of its source."""


def load_given_tokenizer(name: str, args: TrainArguments, *, is_checkpoint: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer that a run starts from.

    Args:
        name: folder or Hub name of a tokenizer, a model or a checkpoint.
        args: those of a new tokenizer must agree with this one, unless it is of the checkpoint that the run resumes.
    """
    tokenizer = load_tokenizer(name, trust_remote_code=args.trust_remote_code)
    for field in () if is_checkpoint else dataclasses.fields(TokenizerArguments):
        value = getattr(args, field.name)
        if field.name != "tokenizer_name" and value not in (field.default, getattr(tokenizer, field.name, None)):
            raise ValueError(
                f"--{field.name} is {value}, but the tokenizer of {name} is used as it is: leave --{field.name} out"
            )
    for token in ("pad_token", "eos_token"):
        if getattr(tokenizer, token) is None:
            raise ValueError(
                f"{token} of the tokenizer {name} is None: set it and save the tokenizer again, for example with "
                f"tokenizer.add_special_tokens({{{token!r}: '<{token.removesuffix('_token')}>'}})"
            )
    if getattr(tokenizer, "feature_vocab_size", 0) and args.features_column is None:
        raise ValueError(f"{name} reads features: name their column with --features_column")
    return tokenizer


def train_tokenizer(train_pairs: Pairs, args: TrainArguments) -> CopyNetTokenizer:
    """A `CopyNetTokenizer` of the words in sources, targets and facts and of all features, with slots for the
    out-of-vocabulary words of every source. What the arguments leave open follows from the preset, else from the
    pairs."""
    segmenter, encoder = choose_segmenter(args, train_pairs), args.encoder_name_or_path
    preset = None if args.preset is None else make_config(args.preset, {})
    vocab_size = args.vocab_size or (preset and preset.vocab_size) or (3_000 if segmenter == "char" else 10_000)
    max_source_oov = preset.max_source_oov if preset and args.max_source_oov is None else args.max_source_oov
    min_frequency, count_of_spelled, count_of_read = args.min_frequency, 1, 1
    if min_frequency is None:
        count_of_read = 2
        is_spelled = spells_words(segmenter, (row["text"] for row in spread(train_pairs, REACH_SAMPLE_SIZE)))
        min_frequency = choose_min_frequency(train_pairs, spelled=is_spelled)
        count_of_spelled = min_frequency if are_few(train_pairs) else 1
    max_length = args.max_source_length or MAX_SOURCE_LENGTH
    sample = train_pairs.take(STREAM_SAMPLE_SIZE) if isinstance(train_pairs, IterableDataset) else train_pairs
    has_chains = args.chains and segmenter in CHAINED
    has_letters = args.letters
    if has_letters is None:  # a Transformers encoder tells words apart by their pieces
        has_letters = segmenter in CHAINED and preset is None and encoder is None

    def train(generated_count: int = 1, changes: Sequence[str] = ()) -> CopyNetTokenizer:
        return CopyNetTokenizer.train_from_iterator(
            list_words(sample, segmenter, generated_count, count_of_read, has_chains=has_chains, changes=changes),
            vocab_size,
            segmenter=segmenter,
            min_frequency=min_frequency,
            max_source_oov=max_length if max_source_oov is None else max_source_oov,
            is_split_into_words=True,
            features=(row.get("features") for row in sample),
            chains=has_chains,
            changes=changes,
            letters=has_letters,
            model_max_length=max_length,
        )

    tokenizer, rows = train(count_of_spelled), list(spread(sample, REACH_SAMPLE_SIZE))
    if has_chains:
        spelling = train() if count_of_spelled > 1 else tokenizer
        changes = find_changes(spelling, rows, measure_reach(spelling, rows))
        tokenizer = train(count_of_spelled, changes) if changes else tokenizer
    vocab, folds_whitespace = _choose_whitespace(tokenizer, rows)
    return CopyNetTokenizer(
        vocab,
        segmenter=segmenter,
        max_source_oov=_count_slots(tokenizer, sample) if max_source_oov is None else max_source_oov,
        encoder_tokenizer=encoder,
        model_max_length=max_length,
        feature_vocab=tokenizer.feature_vocab,
        letter_vocab=tokenizer.letter_vocab,
        case_variants=tokenizer.case_variants,
        fold_whitespace=folds_whitespace,
    )


def _choose_whitespace(tokenizer: CopyNetTokenizer, rows: Sequence[Row]) -> tuple[dict[str, int], bool]:
    """The vocabulary, and whether line breaks and other whitespace outside it may be read as a space: hardly a target
    has any that it could copy. The vocabulary is then without whitespace that few sources and no target have, which a
    model would hardly learn to read."""
    vocab, split = tokenizer.get_vocab(), get_segmenter(tokenizer.segmenter).split
    in_sources, in_targets = (
        Counter(word for row in rows for word in {*split(row[name])} if word.isspace()) for name in ("text", "summary")
    )
    if sum(count for word, count in in_targets.items() if word not in vocab) > MAX_WHITESPACE * len(rows):
        return vocab, False
    is_read = {" ", *in_targets, *(word for word, count in in_sources.items() if count >= MIN_WHITESPACE * len(rows))}
    known = [word for word in vocab if word in is_read or not word.isspace()]
    return {word: index for index, word in enumerate(known)}, True


def _count_slots(tokenizer: CopyNetTokenizer, sample: Pairs) -> int:
    """As many as the source with the most different words has, since a later one may have none of the vocabulary:
    names that these pairs have in common are in it, and would not be counted."""
    limit = tokenizer.model_max_length
    sources = (tokenizer.encode_source(row["text"], row.get("facts"), max_length=limit) for row in sample)
    return min(max(16, max(len({*source.words}) for source in sources)), limit)


def list_words(
    pairs: Iterable[Row],
    segmenter: str,
    generated_count: int,
    read_count: int = 1,
    *,
    has_chains: bool,
    changes: Sequence[str] = (),
) -> Iterator[list[str]]:
    """The words of sources, facts and targets, each as often as it counts.

    Without chains, all count. With them, a word of a target counts where its source has it, or where the source does
    not give it in another form: a word in another case, for example, several words joined, their initials, a name with
    another ending, or a number with digits or a unit that many others have, too. A word that is always copied, and
    sometimes in another form, does not count at all: a model that knows it would write it from memory, and not where
    it sees a new one.

    Args:
        generated_count: how often a word of a target counts that would have to be spelled.
        read_count: how often a word counts that is only read: no target has it, or is made of it. A word that is
            copied occurs twice in its pair.
        changes: the marks of `OPTIONAL` that chains have.
    """
    counts = _WordCounts(segmenter, generated_count, changes, has_chains=has_chains)
    for row in pairs:
        counts.add(row)
    counts.leave_out_framed()
    counts.leave_out_inflected()
    counts.leave_out_changed()
    for word in counts.read.keys() - counts.used - counts.generated.keys():
        counts.read[word] *= read_count
    return (
        [word] * number for each in (counts.read, counts.copied, counts.generated) for word, number in each.items()
    )


class _WordCounts:
    """How often words are read in sources, and copied, changed and generated in targets.

    Attributes:
        read, copied, changed, generated: the counts; `changed` are words that the source has in another form.
        used: words of sources that targets have in some form.
        inflected: for each word that chains make by cutting the ending of another, that other word each time, as Anny
            of Anna, or None where they cut none.
        ends: for each word, how source words that chains make it of differ from it at one end, in each pair whose
            source lacks it.
        inside: words that are not always the first of their source.
        num_pairs: the number of pairs.
        framed: words made of a number of their source and of what may be written around many.
    """

    def __init__(self, segmenter: str, generated_count: int, changes: Sequence[str], *, has_chains: bool) -> None:
        self.split, self.has_chains, self.changes = get_segmenter(segmenter).split, has_chains, changes
        self.of_words = [mark for mark in changes if mark != INITIAL]
        self.generated_count = generated_count
        self.read, self.copied, self.changed, self.generated = (Counter[str]() for _ in range(4))
        self.used: set[str] = set()
        self.inside: set[str] = set()
        self.num_pairs = 0
        self.inflected: dict[str, list[str | None]] = {}
        self.ends: dict[str, list[SourceEnds]] = {}
        self.framed: list[_Framed] = []

    def add(self, row: Row) -> None:
        """Counts the words of a pair."""
        text, facts = self.split(row["text"]), [word for fact in row.get("facts") or () for word in fact]
        source, target = [*text, *facts], self.split(row["summary"])
        in_source = {*source}
        self.num_pairs += 1
        self.inside.update(source[1:])
        forms_of = {word: {*_list_forms(word, self.of_words)} if self.has_chains else {word} for word in in_source}
        in_another_form = set().union(*forms_of.values())
        others = [word for word in target if word not in in_source]
        joined = Joined.of_words(text if self.has_chains else [])
        made = {word for word in others if word in in_another_form or is_joined(word, joined)}
        if INITIAL in self.changes:
            capitals = {word for word in others if word.isupper()} - made
            made |= {word for word in capitals if _is_acronym(word, text)}
        self.read.update(source)
        self.copied.update(word for word in target if word in in_source)
        self.changed.update(word for word in others if word in made)
        self.generated.update(word for word in others if word not in made)
        folded = fold_case(" ".join(target))
        self.used.update(word for word, forms in forms_of.items() if any(fold_case(form) in folded for form in forms))
        self._add_hard(others, made, source, joined)

    def _add_hard(self, words: Sequence[str], made: Collection[str], source: Sequence[str], joined: Joined) -> None:
        """Counts the words that would have to be spelled again, up to `generated_count` times, and notes what chains
        may make of a source word or number.

        Args:
            words: those of a target that its source does not have.
            made: those of them that it has in another form.
        """
        needs_chains = self.generated_count > 1 or not ENDING_CUTS.isdisjoint(self.changes)
        in_source = {*source}
        ends_of = find_ends({*words}.difference(made), source) if self.has_chains else {}
        compared = words if needs_chains else [word for word in words if ends_of.get(word)]
        chains = _find_chains(compared, source, self.changes) if self.has_chains else {}
        for word, chain in chains.items():
            if word not in made and word.isalpha():
                self.inflected.setdefault(word, []).extend([_find_cut_word(chain)] * words.count(word))
        spelled = [word for word in words if word not in chains] if self.generated_count > 1 else []
        self.generated.update((self.generated_count - 1) * spelled)
        for word, ends in ends_of.items():
            self.ends.setdefault(word, []).append(ends if word in chains else {})
        for word in words if self.has_chains else ():
            if word not in made and (frames := _find_frames(word, in_source, joined)):
                self.framed.append((word, self.generated_count if word in spelled else 1, frames))

    def leave_out_framed(self) -> None:
        """Words in which many numbers are written with the same letters or digits are changed, not generated."""
        for word, times in _find_framed(self.framed):
            self.generated[word], self.changed[word] = self.generated[word] - times, self.changed[word] + 1

    def leave_out_inflected(self) -> None:
        """Words that are made of several others by cutting their endings are changed, not generated. One that is
        always made of the same, as send of sent, is generated, unless it changes like others."""
        for word, cut_words in self.inflected.items():
            if len({*cut_words} - {None}) + bool(self.copied[word]) > 1:
                self.generated[word] -= len(cut_words)
                self.changed[word] += len(cut_words)
        for word in find_regular(self.ends, self.inside, self.num_pairs):
            self.changed[word] += self.generated.pop(word, 0)

    def leave_out_changed(self) -> None:
        """Words that are changed, or copied, nearly always do not count."""
        for word, number in self.changed.items():
            if self.generated[word] <= MAX_GENERATED * (number + self.copied[word]):
                del self.read[word], self.copied[word], self.generated[word]
                self.read[word] = int(word in self.inflected)  # once, for the letters of its ending


def _is_acronym(word: str, source: Sequence[str]) -> bool:
    """Whether the initials of words in a row give the word. Those of words in lower case alone do so by chance."""
    return any(not piece.islower() for piece in find_acronym(word, source) or () if piece not in MARKS)


def _find_frames(word: str, source: Collection[str], joined: Joined) -> set[_Frame]:
    """What the word has before and after a number of its source, perhaps joined from several there: x and w of x11w,
    where the source has 11; nothing and 000 of 31000, where it has 31."""
    if word.isdecimal():
        parts = [("", word[:size], word[size:]) for size in range(1, len(word))]
    else:
        found = re.fullmatch(r"([^\W\d]*)(\d+)([^\W\d]*)", word)
        parts = [(found[1], found[2], found[3])] if found else []
    return {(before, after) for before, number, after in parts if number in source or is_joined(number, joined)}


def _find_framed(framed: Iterable[_Framed]) -> Iterator[tuple[str, int]]:
    """The words in which many numbers are written with the same letters or digits, and how often each counted."""
    words: dict[_Frame, set[str]] = {}
    for word, _, frames in framed:
        for frame in frames:
            words.setdefault(frame, set()).add(word)
    often = {
        frame for frame, found in words.items() if len(found) >= (MIN_SUMS if frame[1].isdecimal() else MIN_UNITS)
    }
    return ((word, times) for word, times, frames in framed if not often.isdisjoint(frames))


def _list_forms(word: str, changes: Sequence[str]) -> Iterator[str]:
    """What marks of case and these make of the word."""
    for part, _ in list_parts(word, changes):
        yield part
        yield from (change(part) for change in find_cases(changes).values())


def _find_chains(words: Sequence[str], source: Sequence[str], changes: Sequence[str]) -> dict[str, list[str]]:
    """The chains of those words that would not have to be spelled."""
    chains = Chains(list_marks(Counter(words), changes=changes))
    found = ((word, chains.find(word, source)) for word in dict.fromkeys(words))
    return {word: chain for word, chain in found if chain is not None and not is_spelled(chain, source)}


def _find_cut_word(chain: Sequence[str]) -> str | None:
    """The source word whose ending the chain cuts; None: it cuts none."""
    return None if ENDING_CUTS.isdisjoint(chain) else next(token for token in chain if token not in MARKS)
