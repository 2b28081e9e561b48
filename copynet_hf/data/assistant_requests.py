"""A synthetic task that requires copying and is learned in a minute or two: the quickstart's requests.

Requests to an assistant are answered in a few words. The names, times, numbers and files of an answer occur in its
request, and those of the validation and test sets occur nowhere in the training set.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from hashlib import blake2b

# Templates of a request and its answer. A slot such as {first2} is filled with another first name than {first}.
_RULES = """\
please send {file} to {first} {last} before {time} | sent {file} to {first} {last} by {time}
could you move the meeting with {first} {last} from {time} to {time2} | meeting with {last} is now at {time2}
remind me on {date} that {first} has to call {first2} back | reminder set : {first2} expects {first} on {date}
what is the phone number of {first} {last} , is it still {phone} ? | {last} , {first} : {phone}
rename the file {file} in my folder to {file2} please | {file} is now called {file2}
my name is {first} {last} and i live in {place} | hello {first} , how is life in {place} ?
{first} owes me {amount} euros since {date} for the tickets | debt of {first} : {amount} euros , open since {date}
book a table for {first} {last} at the restaurant {place} at {time} | table booked at {place} , {time} , guest {last}
the train from {place} to {place2} leaves at {time} today | to {place2} from {place} : departure {time}
did {first} {last} really win against {first2} {last2} yesterday ? | yes , {last2} lost to {last}
copy all lines of {file} that contain the word {word} into {file2} | grep {word} {file} > {file2}
delete {file} but keep a backup of it under {file2} | mv -n {file} {file2}
show me who changed {file} last , i think it was {first} | checking whether {first} edited {file}
order {order} was sent to {place} instead of {place2} by mistake | sorry , order {order} will be redirected to {place2}
please refund {amount} euros for order {order} to mrs {last} | refund of {amount} euros to {last} approved ( {order} )
in which city was the painter {first} {last} born , {place} or {place2} ? | {first} {last} was born in {place}
translate the word {word} for me , {first} wrote it in a letter | where did {first} find {word} ?
the flight {order} to {place} is late , tell {first} {last} | dear {first} , flight {order} is delayed
who wrote the book about {place} , was it {first} {last} or {last2} ? | the book about {place} is by {first} {last}
invite {first} , {first2} and {first3} to the party on {date} | party on {date} with {first} , {first2} and {first3}
my password for {word} does not work , my user name is {last} | password reset for user {last} on {word}
install version {version} of {word} on the server {place} tonight | {place} will run {word} {version} tomorrow
does {word} {version} still read the old file {file} ? | {file} needs {word} {version} or later
swap the seats of {first} {last} and {first2} {last2} please | {last2} sits where {last} sat and vice versa
meet {first} at the station of {place} at {time} and bring {file} | {time} , {place} : hand {file} to {first}
call {phone} and ask for doctor {last} if {first} feels worse | emergency contact for {first} : dr {last} , {phone}
"""
RULES = [rule.split(" | ") for rule in _RULES.splitlines()]

# Openings do not change the answer, but the positions of the words to copy.
OPENINGS = ("", "hi ,", "good morning ,", "one more thing :", "sorry to bother you ,")

# Eight of ten fillers belong to the training set, one to each other set (by their hash modulo 10).
SPLITS = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}


def quickstart_pairs(split: str, n: int, seed: int = 0) -> list[dict[str, str]]:
    """`n` different pairs of one split, with the columns `text` and `summary`; deterministic in its arguments.

    The hash of a filler decides its split, so that no name, number or file of the validation and test sets occurs in
    the training set, whatever the seeds. Words are separated by spaces.

    Raises:
        ValueError: a split other than train, validation and test.
    """
    if split not in SPLITS:
        raise ValueError(f"the split is {split!r}: use one of {', '.join(SPLITS)}")
    rng = random.Random(f"{split} {seed}")
    pairs: dict[str, str] = {}
    while len(pairs) < n:
        source, target = rng.choice(RULES)
        fillers = _Fillers(rng, split)
        text = f"{rng.choice(OPENINGS)} {source.format_map(fillers)}".strip()
        # After the source, so that the target repeats its fillers.
        pairs[text] = target.format_map(fillers)
    return [{"text": text, "summary": summary} for text, summary in pairs.items()]


def split_of(filler: str) -> str:
    """The split that a filler belongs to."""
    part = int.from_bytes(blake2b(filler.encode(), digest_size=4).digest(), "big") % 10
    return next(split for split, parts in SPLITS.items() if part in parts)


class _Fillers(dict[str, str]):
    """The fillers of one pair, each generated when a template first uses its slot."""

    def __init__(self, rng: random.Random, split: str) -> None:
        super().__init__()
        self.rng = rng
        self.split = split

    def __missing__(self, slot: str) -> str:
        generate = _GENERATORS[slot.rstrip("23")]
        while True:
            filler = generate(self.rng)
            if split_of(filler) == self.split and filler not in self.values():
                self[slot] = filler
                return filler


_ONSETS = (*"bdfgklmnprstvz", "br", "dr", "kl", "sh", "tr")


def _syllables(rng: random.Random, most: int) -> str:
    """A pronounceable word of two to `most` syllables."""
    word = "".join(rng.choice(_ONSETS) + rng.choice("aeiou") for _ in range(rng.randint(2, most)))
    return word + rng.choice(("", "", "n", "r", "l", "s"))


def _file(rng: random.Random) -> str:
    folder = rng.choice(("", "", "/tmp/", "~/docs/", "data/", "src/"))
    stem = rng.choice(("", "", "report_", "notes_", "draft-")) + _syllables(rng, 2)
    return folder + stem + rng.choice((".pdf", ".txt", ".csv", ".py", ".md"))


def _order(rng: random.Random) -> str:
    return "".join(rng.choice("ABCDEFGHKLMNPRSTVWXZ") for _ in range(2)) + str(rng.randrange(1000, 100_000))


_GENERATORS: dict[str, Callable[[random.Random], str]] = {
    "first": lambda rng: _syllables(rng, 2).capitalize(),
    "last": lambda rng: _syllables(rng, 3).capitalize() + rng.choice(("", "", "son", "dez", "ov", "stein")),
    "place": lambda rng: _syllables(rng, 3).capitalize() + rng.choice(("", "ville", "burg", "ford", "stad")),
    "word": lambda rng: _syllables(rng, 3),
    "file": _file,
    "time": lambda rng: f"{rng.randrange(6, 24):02}:{rng.randrange(60):02}",
    "date": lambda rng: f"{rng.randrange(2020, 2040)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
    "phone": lambda rng: f"0{rng.randrange(10, 100)}-{rng.randrange(10_000, 1_000_000)}",
    "amount": lambda rng: f"{rng.randrange(1, 1000)}.{rng.randrange(100):02}",
    "order": _order,
    "version": lambda rng: f"{rng.randrange(1, 20)}.{rng.randrange(30)}.{rng.randrange(30)}",
}
