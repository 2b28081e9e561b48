"""Guided attention: what goes together, which steps are guided, and what the training makes of it."""

from __future__ import annotations

import math
from itertools import product
from random import Random
from typing import Any

import pytest
import torch
from datasets import Dataset
from helpers import tiny_model, training_arguments

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.training.guided_attention import (
    GUIDED_ATTENTION,
    GUIDED_UPDATES,
    MAX_PAIRS,
    AttentionGuide,
    build_guide,
    choose_guided_attention,
    find_partners,
    log_likelihood_ratio,
)
from copynet_hf.training.trainer import CopyNetTrainer

STREETS = {"calle": "CL", "plaza": "PZ", "ronda": "RD", "avenida": "AV"}
NUMBERS = {"uno": "41", "dos": "52", "tres": "63", "cuatro": "74"}
PARTS = {"platos": "plato", "cubos": "cubo"}
FILLERS = ["lunes", "martes", "jueves", "viernes", "por", "la", "tarde", "con", "el"]


def make_pairs(count: int) -> list[dict[str, str]]:
    """Names, numbers and days that are copied or left out, and words that are looked up."""
    random, pairs = Random(0), []
    for _ in range(count):
        street, number, part = (random.choice([*table]) for table in (STREETS, NUMBERS, PARTS))
        name = "".join(random.choices("abcdefghijklmnop", k=6)).capitalize()
        house = random.randint(800, 999)
        filler = " ".join(random.choices(FILLERS, k=8))
        words = [f"{street} {name} {house}", number, part, filler]
        random.shuffle(words)
        summary = f"{STREETS[street]} {name} {house} | {NUMBERS[number]} | {PARTS[part]}"
        pairs.append({"text": " ".join(words), "summary": summary})
    return pairs


class Guided:
    """Pairs as a tokenizer of their words encodes them, and the guide that they give."""

    def __init__(
        self, pairs: list[dict[str, str]], min_frequency: int = 3, segmenter: str = "word_digits", *sides: str
    ) -> None:
        texts = (pair[side] for pair in pairs for side in sides or ("text", "summary"))
        self.tokenizer = CopyNetTokenizer.train_from_iterator(texts, 300, segmenter, min_frequency, chains=True)
        self.rows = [self.encode(pair["text"], pair["summary"]) for pair in pairs]
        self.guide = AttentionGuide(self.tokenizer, self.rows)

    def encode(self, text: str, summary: str) -> dict[str, Any]:
        return dict(self.tokenizer(text, text_target=summary))

    def explain(self, row: dict[str, Any]) -> list[tuple[str, str]]:
        """The tokens of the guided steps, with the words that they should attend to."""
        source, labels = row["input_ids"], row["labels"]
        return [
            tuple(self.tokenizer.convert_ids_to_tokens([labels[t], source[j]]))  # type: ignore[misc]
            for t, j in self.guide.find_places(source, labels)
        ]


@pytest.fixture(scope="module")
def task() -> Guided:
    return Guided(make_pairs(200), min_frequency=5)


def test_words_that_are_looked_up_go_with_what_they_stand_for(task: Guided) -> None:
    """A number's digits go with the word for it, although the source has such digits elsewhere."""
    row = task.encode("cubos dos lunes avenida Quevedo 825", "AV Quevedo 825 | 52 | cubo")
    assert task.explain(row) == [("AV", "avenida"), ("5", "dos"), ("2", "dos"), ("cubo", "cubos")]


def test_all_places_of_the_closest_partner_are_attended_to(task: Guided) -> None:
    row = task.encode("avenida cubos avenida", "AV")
    assert task.guide.find_places(row["input_ids"], row["labels"]) == [(0, 0), (0, 2)]
    assert task.guide.find_places(task.tokenizer("cubos")["input_ids"], row["labels"]) == []


def test_a_spelled_word_is_one() -> None:
    pairs = [{"text": f"{word} {side}", "summary": word[::-1]} for word in ("salz", "reis") for side in "abcdefgh"]
    spelled = Guided(pairs, 3, "word_punct", "text")
    assert [word for _, word in spelled.explain(spelled.rows[0])] == ["salz"] * 4


def test_what_is_copied_or_always_there_goes_with_nothing(task: Guided) -> None:
    tokens = {token for row in task.rows for token, _ in task.explain(row)}
    assert tokens == {*STREETS.values(), *"".join(NUMBERS.values()), *PARTS.values()}


def test_one_form_of_several_goes_with_no_name_of_a_field() -> None:
    """`lan`, `ren` … follow from the letters of the name before them, `kitap` from the field."""
    names = [a + b + c for a, b, c in product("bdgk", "aeou", "lnrt")]
    pairs = [{"text": f"kime {name}", "summary": f"kitap {name} {name[2] + name[1]}n"} for name in names * 2]
    pairs += [{"text": f"kim {name}", "summary": f"masa {name}"} for name in names]
    fields = Guided(pairs, 8, "whitespace")
    assert "lan" in fields.tokenizer.get_vocab()
    words = {fields.tokenizer.convert_ids_to_tokens(list(word))[0] for word in fields.guide.partners}
    assert words == {"kitap", "masa"}


def test_a_number_goes_with_what_it_stands_for_as_a_whole() -> None:
    """`mayo` with 05, not with the 5 of a 15 or 52."""
    months = {"enero": "01", "mayo": "05", "junio": "06"}
    rows = [(month, f"1{day} {day}2 {months[month]}") for month in months for day in (1, 3, 5, 6)] * 4
    numbers = Guided([{"text": text, "summary": month} for month, text in rows])
    assert numbers.explain(numbers.encode("15 05 52", "mayo")) == [("mayo", "0"), ("mayo", "5")]


def test_a_single_digit_is_no_copy_of_one_in_a_number() -> None:
    """`tres` with 3, though the number of the case has a 3, too."""
    levels = {"uno": "1", "dos": "2", "tres": "3"}
    pairs = [
        {"text": f"caso 41{number}23 nivel {word}", "summary": f"41{number}23 {level}"}
        for word, level in levels.items()
        for number in range(20)
    ]
    cases = Guided(pairs)
    assert cases.explain(cases.rows[-1]) == [("3", "tres")]
    assert cases.explain(cases.encode("caso 3 nivel tres", "3")) == []


def test_letters_and_streams_have_no_guide(task: Guided) -> None:
    tokenizer, rows = task.tokenizer, Dataset.from_list(task.rows)
    letters = CopyNetTokenizer.train_from_iterator(["calle CL"], 300, segmenter="char", min_frequency=1)
    assert not AttentionGuide(letters, [dict(letters("calle", text_target="CL"))] * 50).partners
    assert build_guide(tiny_model(), tokenizer, rows) is not None
    assert build_guide(tiny_model(), tokenizer, rows.to_iterable_dataset()) is None
    assert build_guide(tiny_model(attention=False, copy_mechanism="none"), tokenizer, rows) is None


def test_words_that_are_drawn_at_random_go_together_as_often_as_significance_says() -> None:
    found = 0
    for seed in range(40):
        random = Random(seed)
        rows = [(random.choices(range(20), k=3), random.choices(range(30), k=6)) for _ in range(150)]
        pairs = [({(word,) for word in target}, {(word,) for word in source}) for target, source in rows]
        found += sum(map(len, find_partners(pairs).values()))
    assert found <= 3


def test_the_ratio_is_that_of_the_likelihoods() -> None:
    """Dunning 1993: twice the log-ratio of the likelihoods with two probabilities and with one, each at its best."""

    def log_likelihood(count: int, total: int, p: float) -> float:
        return (count * math.log(p) if count else 0) + ((total - count) * math.log(1 - p) if total > count else 0)

    for first, second, both in product((1, 7, 30), (3, 20, 39), range(4)):
        if both > min(first, second):
            continue
        with_first, without = (both, first), (second - both, 40 - first)
        two = sum(log_likelihood(count, total, count / total) for count, total in (with_first, without))
        one = sum(log_likelihood(count, total, second / 40) for count, total in (with_first, without))
        expected = 2 * (two - one) if both * 40 > first * second else 0
        assert log_likelihood_ratio(both, first, second, 40) == pytest.approx(expected, abs=1e-9)


def test_the_loss_is_that_of_a_loop(task: Guided) -> None:
    tokenizer, guide, rows = task.tokenizer, task.guide, task.rows[:5]
    model = tiny_model(vocab_size=len(tokenizer), max_source_oov=tokenizer.max_source_oov)
    batch = tokenizer.pad([{"input_ids": row["input_ids"]} for row in rows], return_tensors="pt")
    longest = max(len(row["labels"]) for row in rows)
    labels = torch.tensor([row["labels"] + [-100] * (longest - len(row["labels"])) for row in rows])
    attention = model(**batch, labels=labels, output_attentions=True).cross_attentions[0][:, 0]
    weights = attention.tolist()
    expected = 0.0
    for number, row in enumerate(rows):
        places = guide.find_places(row["input_ids"], row["labels"])
        for step in {t for t, _ in places}:
            expected -= math.log(sum(weights[number][t][j] for t, j in places if t == step))
    loss = guide.compute_loss(attention, batch["input_ids"], labels)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    gradient = model.model.decoder.attention.query_proj.weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


@pytest.fixture
def make_trainer(task: Guided, tmp_path: Any) -> Any:
    tokenizer = task.tokenizer

    def make(**options: Any) -> CopyNetTrainer:
        torch.manual_seed(0)
        sizes = {"embedding_size": 32, "hidden_size": 64, "encoder_hidden_size": 32, "attention_size": 32}
        model = CopyNetForConditionalGeneration(CopyNetConfig.for_tokenizer(tokenizer, dropout=0.0, **sizes))
        arguments = training_arguments(
            tmp_path,
            max_steps=160,
            learning_rate=5e-3,
            per_device_train_batch_size=16,
            save_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        run = TrainArguments(vocabulary_dropout=0.0, ema_decay=0.0, **options)
        return CopyNetTrainer(model, tokenizer, {"train": Dataset.from_list(make_pairs(200))}, arguments, run)

    return make


@pytest.mark.parametrize(("num_updates", "num_guided"), [(1000, 500), (10 * GUIDED_UPDATES, GUIDED_UPDATES)])
def test_the_weight_falls_to_zero(make_trainer: Any, num_updates: int, num_guided: int) -> None:
    trainer = make_trainer(guided_attention=0.5)
    batch = trainer.data_collator([trainer.train_dataset[number] for number in range(4)])
    losses = {}
    for step in (0, num_guided // 2, num_guided, num_updates):
        trainer.state.max_steps, trainer.state.global_step = num_updates, step
        trainer.model.train()
        losses[step] = trainer.compute_loss(trainer.model, dict(batch)).item()
        trainer.model.eval()
        evaluated = trainer.compute_loss(trainer.model, dict(batch)).item()
    own, guided = losses[num_updates], losses[0] - losses[num_updates]
    assert evaluated == pytest.approx(own)
    assert losses[num_guided] == pytest.approx(own)
    assert guided > 0.1
    assert losses[num_guided // 2] == pytest.approx(own + guided / 2, rel=1e-4)


def test_many_pairs_are_not_guided_by_default() -> None:
    rows = Dataset.from_dict({"text": ["a"] * (MAX_PAIRS + 1)})
    weights = [
        choose_guided_attention(each) for each in (rows, rows.select(range(MAX_PAIRS)), rows.to_iterable_dataset())
    ]
    assert weights == [0.0, GUIDED_ATTENTION, 0.0]


@pytest.mark.slow  # two trainings, which show what guided attention is for; its loss is tested above
def test_lookups_are_learned_sooner(make_trainer: Any) -> None:
    losses = {}
    for weight in (0.0, 0.5):
        trainer = make_trainer(guided_attention=weight)
        trainer.train()
        losses[weight] = trainer.evaluate(trainer.train_dataset)["eval_loss"]
    assert losses[0.5] < losses[0.0] / 2
