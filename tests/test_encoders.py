"""A CopyNet over a Transformers encoder: words and pieces, pooled states, and what must not change them."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import MECHANISMS, TINY, save_parts, tiny_model
from oracle import Oracle
from tiny_encoders import FAMILIES, SUMMARIES, TEXTS, batch_of, copynet_over, save_encoder, word_tokenizer
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForTextEncoding,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    DataCollatorForSeq2Seq,
    FSMTConfig,
    FunnelConfig,
    ModernBertConfig,
    RobertaConfig,
    T5GemmaConfig,
    ViTConfig,
    YosoConfig,
    pipeline,
)
from transformers.modeling_outputs import BaseModelOutput

from copynet_hf import CopyNetConfig, CopyNetForConditionalGeneration, CopyNetTokenizer
from copynet_hf.arguments import TrainArguments
from copynet_hf.model.text_models import build_text_encoder, find_max_positions
from copynet_hf.model.transformer_encoder import pool_pieces
from copynet_hf.training.data_report import find_warnings
from copynet_hf.training.dataset import encode_pairs

families = pytest.mark.parametrize("family", FAMILIES)
tokenizers = pytest.mark.parametrize(  # the others have one of these, too
    "family", ["bert", "roberta", "deberta-v2", "modernbert", "xlm-roberta", "t5", "gemma"]
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {family: save_encoder(tmp_path_factory.mktemp(family), family) for family in FAMILIES}


@pytest.fixture(scope="module")
def bert(folders):
    """A model over BERT and its tokenizer; tests leave both as they are."""
    tokenizer = word_tokenizer(folders["bert"])
    return copynet_over(folders["bert"], tokenizer), tokenizer


@pytest.fixture(scope="module")
def made(folders):
    """A model over an encoder of each family and its tokenizer; tests leave them as they are."""
    tokenizers = {family: word_tokenizer(folders[family]) for family in FAMILIES}
    return {family: (copynet_over(folders[family], tokenizers[family]), tokenizers[family]) for family in FAMILIES}


@pytest.fixture(params=["bert", "roberta", "deberta-v2", "modernbert", "big-bird", "t5", "gemma"])
def over(request, made):
    """A model over an encoder of each kind and its tokenizer, which tests may change; the others share their code."""
    model, tokenizer = made[request.param]
    return copy.deepcopy(model), tokenizer


def sources(batch):
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def words_by_offsets(own, text):
    """The word of each piece of a text whose words have spaces between them; a space belongs to the word after it."""
    whole = own(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    owners = []
    for (start, _), is_special in zip(whole["offset_mapping"], whole["special_tokens_mask"], strict=True):
        while text[start : start + 1] == " ":
            start += 1
        owners.append(-1 if is_special else text[:start].count(" "))
    return owners


# --- pieces ---------------------------------------------------------------------------------------------------------


@tokenizers
def test_words_between_spaces_have_the_pieces_of_the_whole_text(folders, made, family):
    own = AutoTokenizer.from_pretrained(folders[family])
    encoded = made[family][1](TEXTS)
    for text, pieces, index in zip(TEXTS, encoded["encoder_input_ids"], encoded["word_index"], strict=True):
        assert pieces == own(text)["input_ids"]
        assert index == words_by_offsets(own, text)


@tokenizers
def test_punctuation_has_the_pieces_it_has_in_the_text(folders, family):
    """No space is added before a word that has none, and no joiner of the segmenter reaches the encoder."""
    text = "hello, world (again)!"
    own = AutoTokenizer.from_pretrained(folders[family])
    tokenizer = word_tokenizer(folders[family], "word_punct")
    assert "￭," in tokenizer.tokenize(text)
    assert tokenizer(text)["encoder_input_ids"] == own(text)["input_ids"]


def test_a_space_that_the_tokenizer_puts_before_a_text_is_before_the_first_word(tmp_path):
    """As people load RoBERTa's tokenizer for words; a saved tokenizer does the same, and theirs stays as it is."""
    folder = save_encoder(tmp_path / "encoder", "roberta")
    own = AutoTokenizer.from_pretrained(folder, add_prefix_space=True)
    tokenizer = word_tokenizer(own)
    tokenizer.save_pretrained(tmp_path / "saved")
    for text in ("please call Ottilie", " Krahn"):
        expected = own(text)["input_ids"]
        for each in (
            tokenizer,
            AutoTokenizer.from_pretrained(tmp_path / "saved"),
            pickle.loads(pickle.dumps(tokenizer)),
        ):
            assert each(text)["encoder_input_ids"] == expected
    assert own("call")["input_ids"] == own(" call")["input_ids"]
    assert word_tokenizer(folder)("call")["encoder_input_ids"] != tokenizer("call")["encoder_input_ids"]


def test_a_character_is_a_word(folders):
    own = AutoTokenizer.from_pretrained(folders["bert"])
    tokenizer = word_tokenizer(folders["bert"], "char", ["今天下雨"])
    encoded = tokenizer("今天北京下雨了")
    assert encoded["encoder_input_ids"] == own("今天北京下雨了")["input_ids"]
    assert encoded["word_index"] == [-1, *range(7), -1]


ODD_WORDS = ["😀", "👩‍👩‍👧", "\n", "", " ", "e\u0301", "\ud800", "[CLS]", "</s>", "▁", "\u200b", "東京", "￭", "a b"]


@tokenizers
def test_odd_words_never_shift_others(folders, family):
    tokenizer = word_tokenizer(folders[family], encoder_max_length=500)

    def encode(words):
        return tokenizer.encode_source(words, is_split_into_words=True).pieces

    words = [each for odd in ODD_WORDS for each in ("today", odd)]
    pieces, index = encode(words)
    today = [piece for piece, word in zip(*encode(["nine", "today"]), strict=True) if word == 1]
    for number in range(2, len(words), 2):
        own = [piece for piece, word in zip(pieces, index, strict=True) if word == number]
        assert own == today, words[number - 1]
    assert max(index) < len(words)
    assert [word for word in index if word >= 0] == sorted(word for word in index if word >= 0)


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_special_tokens_in_a_text_are_ordinary_text(folders, family):
    own = AutoTokenizer.from_pretrained(folders[family])
    tokenizer = pickle.loads(pickle.dumps(word_tokenizer(folders[family])))  # as in processes of Dataset.map
    encoded = tokenizer("[CLS] </s> <pad> [SEP]")
    special = set(own.all_special_ids) - {own.unk_token_id}
    inside = zip(encoded["encoder_input_ids"], encoded["word_index"], strict=True)
    assert not special & {piece for piece, word in inside if word >= 0}


@pytest.mark.parametrize("side", ["right", "left"])
def test_words_beyond_the_encoders_limit_have_no_piece(folders, side):
    tokenizer = word_tokenizer(folders["bert"], encoder_max_length=12, truncation_side=side)
    words = ["today"] * 30
    encoded = tokenizer(" ".join(words))
    assert len(encoded["input_ids"]) == 30
    assert len(encoded["encoder_input_ids"]) == 12
    kept = [word for word in encoded["word_index"] if word >= 0]
    assert encoded["word_index"][0] == encoded["word_index"][-1] == -1
    assert (kept[0] == 0) if side == "right" else (kept[-1] == 29)
    for number, is_truncated in ((30, True), (11, True), (10, False)):
        source = tokenizer.encode_source(" ".join(words[:number]))
        assert source.is_truncated == is_truncated
        assert source.offsets == [(6 * place, 6 * place + 5) for place in range(number)]
        facts = tokenizer.encode_source(" ".join(words[: number - 3]), [("a", "today", "today")])
        assert facts.is_truncated == (number > 9)


def test_sources_beyond_the_encoders_limit_are_reported(folders):
    tokenizer = word_tokenizer(folders["bert"], encoder_max_length=12)
    rows = Dataset.from_list([{"text": "today " * count, "summary": "days"} for count in (4, 9, 20)])
    encoded = {"train": encode_pairs(rows, tokenizer)}
    args = TrainArguments(max_source_length=100, max_target_length=100)
    *_, warning = find_warnings({"train": rows}, encoded, args, 12)
    assert warning.startswith("1 of 3 training sources have 12 pieces or more, of which the encoder reads no more")


def test_the_limit_is_the_tokenizers_or_the_configs(folders, tmp_path):
    assert word_tokenizer(folders["bert"]).encoder_tokenizer.max_length == 64
    own = AutoTokenizer.from_pretrained(folders["bert"])
    own.model_max_length = int(1e30)
    assert word_tokenizer(own).encoder_tokenizer.max_length is None
    save_parts(tmp_path, AutoModel.from_pretrained(folders["bert"]), own)
    assert word_tokenizer(str(tmp_path)).encoder_tokenizer.max_length == 64
    shorter = word_tokenizer(str(tmp_path), encoder_max_length=20)
    assert shorter.encoder_tokenizer.max_length == 20
    shorter.save_pretrained(tmp_path / "words")
    assert AutoTokenizer.from_pretrained(tmp_path / "words").encoder_tokenizer.max_length == 20
    changed = AutoTokenizer.from_pretrained(tmp_path / "words", encoder_max_length=9)
    assert len(changed("today " * 30)["encoder_input_ids"]) == 9
    for limit in (-5, 0, 2):
        with pytest.raises(ValueError, match=f"encoder_max_length is {limit}: use more than the 2 special pieces"):
            word_tokenizer(folders["bert"], encoder_max_length=limit)


def test_the_configs_limit_does_not_count_positions_of_padding(folders, tmp_path):
    own = AutoTokenizer.from_pretrained(folders["roberta"])
    own.model_max_length = int(1e30)
    save_parts(tmp_path, AutoModel.from_pretrained(folders["roberta"]), own)
    tokenizer = word_tokenizer(str(tmp_path))
    assert tokenizer.encoder_tokenizer.max_length == 64  # of 66 positions
    model = copynet_over(str(tmp_path), tokenizer)
    model(**tokenizer("today " * 200, text_target="today", return_tensors="pt"))


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_are_padded(bert, side):
    _, tokenizer = bert
    together = tokenizer(TEXTS, padding=True, padding_side=side)
    rows = [tokenizer(text) for text in TEXTS]
    collated = tokenizer.pad(rows, padding_side=side)
    for name, lists in together.items():
        assert collated[name] == lists, name
    width = max(len(row["encoder_input_ids"]) for row in rows)
    for row, alone in enumerate(rows):
        length = len(alone["encoder_input_ids"])
        for name, value in (("encoder_input_ids", 0), ("encoder_attention_mask", 0), ("word_index", -1)):
            assert together[name][row] == alone[name] + [value] * (width - length)


def test_padding_follows_its_arguments(bert):
    _, tokenizer = bert
    assert np.shape(tokenizer(TEXTS, padding=True, pad_to_multiple_of=8)["word_index"])[1] % 8 == 0
    assert np.shape(tokenizer(TEXTS, padding="max_length", max_length=20)["word_index"]) == (4, 64)
    assert len({len(row) for row in tokenizer(TEXTS)["word_index"]}) > 1
    collator = DataCollatorForSeq2Seq(tokenizer)
    collated = collator([dict(tokenizer(*pair)) for pair in zip(TEXTS, [None] * 4, strict=True)])
    together = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert all(torch.equal(collated[name], tensor) for name, tensor in together.items())
    single = tokenizer(TEXTS[0], padding="max_length", max_length=20)
    assert len(single["word_index"]) == 64
    assert set(tokenizer(["", ""], padding=True)["word_index"][0]) == {-1}
    for kind in ("pt", "np"):
        batch = tokenizer(TEXTS, padding=True, return_tensors=kind)
        assert all(np.array_equal(tensor, together[name]) for name, tensor in tokenizer.pad(batch).items())
    assert all(value == [] for value in tokenizer([], padding=True).values())
    long = tokenizer(["today " * 100], padding=True, pad_to_multiple_of=48)
    assert np.shape(long["word_index"]) == (1, 64)  # the encoder has no more positions


# --- states ---------------------------------------------------------------------------------------------------------


def loop_states(encoder, own, text, pooling, initial):
    """The state of each word of a text between spaces, by offsets of the encoder's own tokenizer, and the first."""
    whole, owners = own(text, return_tensors="pt"), words_by_offsets(own, text)
    with torch.no_grad():
        states = encoder(whole["input_ids"], attention_mask=whole["attention_mask"]).last_hidden_state[0].numpy()
    pool = {"mean": lambda rows: sum(rows) / len(rows), "first": lambda rows: rows[0], "last": lambda rows: rows[-1]}
    words = []
    for number in range(len(text.split())):
        words.append(pool[pooling]([states[piece] for piece, owner in enumerate(owners) if owner == number]))
    return np.array(words), pool[initial](list(states))


@pytest.mark.parametrize(
    ("family", "pooling"), [*((family, "mean") for family in FAMILIES), ("bert", "first"), ("t5", "last")]
)
def test_states_are_those_of_a_loop_over_words(folders, family, pooling):
    """Each text on its own, through Transformers alone, against a padded batch; in float64, since the random weights
    of a T5 magnify rounding."""
    name = folders[family]
    is_t5 = family in ("t5", "mt5", "umt5")
    encoder = (AutoModelForTextEncoding if is_t5 else AutoModel).from_pretrained(name).double().eval()
    if family == "big-bird":
        encoder.set_attention_type("original_full")
    own = AutoTokenizer.from_pretrained(name)
    initial = {"mean": "first", "first": "last", "last": "mean"}[pooling]
    tokenizer = word_tokenizer(name)
    model = copynet_over(name, tokenizer, encoder_pooling=pooling, initial_state=initial).double()
    assert not model.training
    proj = model.get_encoder().states_proj
    weight, bias = (tensor.detach().numpy() for tensor in (proj.weight, proj.bias))
    for side in ("right", "left"):
        batch = sources(batch_of(tokenizer, padding_side=side))
        with torch.no_grad():
            output = model.get_encoder()(**batch)
        for row, text in enumerate(TEXTS):
            words, first = loop_states(encoder, own, text, pooling, initial)
            mask = batch["attention_mask"][row].bool()
            assert torch.equal(output.source_mask[row], mask)
            found = output.last_hidden_state[row]
            np.testing.assert_allclose(found[mask], words @ weight.T + bias, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(output.final_state[row], first @ weight.T + bias, rtol=1e-9, atol=1e-9)
            assert not found[~mask].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_mean_of_many_pieces_is_right_in_half_precision(dtype):
    """Their sum is above the largest number of float16."""
    states = torch.full((2, 512, 3), 200.0, dtype=dtype)
    pooled = pool_pieces(states, torch.zeros(2, 512, dtype=torch.long), 1, "mean")
    assert torch.equal(pooled, states[:, :1])


class TableEncoder(nn.Module):
    """An encoder whose state of a piece is its row in a table."""

    def __init__(self, pieces, width):
        super().__init__()
        self.table = nn.Embedding(pieces, width)

    def forward(self, input_ids, attention_mask, return_dict):
        return BaseModelOutput(last_hidden_state=self.table(input_ids))


class TableOracle(Oracle):
    """`source` holds pairs of a word's id and its pieces; words without pieces are left out."""

    def encode(self, source, inputs=None):
        prefix = "model.encoder."
        table = self.w[prefix + "text_encoder.table.weight"]
        weight, bias = self.w[prefix + "states_proj.weight"], self.w[prefix + "states_proj.bias"]
        words = [weight @ table[self.pieces[j]].mean(0) + bias for j in range(len(source))]
        if self.c.encoder_gru:
            return super().encode(source, [word + self.embed(x) for word, x in zip(words, source, strict=True)])
        return words, weight @ table[2] + bias


@pytest.mark.parametrize(
    ("mechanism", "fields"),
    [
        *((mechanism, {}) for mechanism in ("copynet", "pointer_generator", "gated", "none")),
        ("copynet", {"encoder_gru": True}),
        ("pointer_generator", {"encoder_gru": True, "num_hidden_layers": 2}),
    ],
)
def test_over_a_table_the_probabilities_equal_the_oracles(mechanism, fields):
    """Sources of which one word has no piece: it is as if it were not there."""
    torch.manual_seed(0)
    encoder = BertConfig(vocab_size=20, hidden_size=9, num_hidden_layers=1, num_attention_heads=1)
    config = CopyNetConfig(**TINY | fields, encoder=encoder, copy_mechanism=mechanism)
    model = CopyNetForConditionalGeneration(config).eval()
    model.get_encoder().text_encoder = TableEncoder(20, 9)
    model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 2 / parameter.shape[-1] ** 0.5)
    rows = [([5, 13, 6, 14, 13], [[7], [8, 9], [], [10, 11, 12], [8, 9]]), ([4, 13, 13], [[5, 5], [8, 9], [19]])]
    targets = [[13, 5, 14, 2], [13, 4, 2]]
    words, pieces, index = torch.zeros(2, 6).long(), torch.zeros(2, 10).long(), torch.full((2, 10), -1)
    for row, (ids, lists) in enumerate(rows):
        words[row, -len(ids) :] = torch.tensor(ids)  # padding on the left
        flat = [2, *(piece for each in lists for piece in each), 3]
        owners = [-1, *(number for number, each in enumerate(lists) for _ in each), -1]
        pieces[row, : len(flat)], index[row, : len(flat)] = torch.tensor(flat), torch.tensor(owners)
    batch = {"input_ids": words, "encoder_input_ids": pieces, "word_index": index}
    batch |= {"attention_mask": (words != 0).long(), "encoder_attention_mask": (pieces != 0).long()}
    for row, target in enumerate(targets):
        inputs = {name: tensor[row : row + 1] for name, tensor in batch.items()}
        output = model(**inputs, labels=torch.tensor([target]))
        oracle = TableOracle(model)
        ids, lists = rows[row]
        oracle.pieces = [each for each in lists if each]
        source = [word for word, each in zip(ids, lists, strict=True) if each]
        trace = oracle.run(source, [1, *target[:-1]])
        for step, probs in enumerate(trace.probs):
            for word, expected in probs.items():
                assert output.logits[0, step, word].exp().item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert output.loss.item() == pytest.approx(oracle.loss(source, target))


# --- what must not change the states --------------------------------------------------------------------------------


def test_a_tokenizer_that_could_not_be_saved_is_as_before(folders, tmp_path):
    tokenizer = word_tokenizer(folders["t5"])
    expected = tokenizer(TEXTS)["encoder_input_ids"]
    with pytest.raises(Exception, match="No such file"):  # of no narrower type in the tokenizers library
        tokenizer.encoder_tokenizer.save(tmp_path / "missing" / "tokenizer.json")
    assert tokenizer(TEXTS)["encoder_input_ids"] == expected


def test_words_beyond_the_limit_cannot_be_written(folders):
    tokenizer = word_tokenizer(folders["bert"], encoder_max_length=4)
    model = copynet_over(folders["bert"], tokenizer)
    text = "call Xaver Yvonne Zacharias"
    batch = tokenizer([text], text_target=["Zacharias"], return_tensors="pt")
    encoded = model.get_encoder()(**sources(batch))
    slots = batch["input_ids"][0, 1:]
    mask = encoded.source_mask[0]
    assert mask[0]
    assert not mask[-1]
    outputs = model.generate(**sources(batch), num_beams=8, num_return_sequences=8, max_new_tokens=4)
    assert not (outputs == slots[-1]).any()
    assert model(**batch).loss.isfinite()  # the target is UNK
    unk = model(**batch | {"labels": torch.tensor([[tokenizer.unk_token_id, tokenizer.eos_token_id]])}).loss
    torch.testing.assert_close(model(**batch).loss, unk)


def test_sources_may_be_empty(over):
    model, tokenizer = over[0].train(), over[1]
    batch = tokenizer(["", "call"], text_target=["today", "call"], padding=True, return_tensors="pt")
    loss = model(**batch).loss
    loss.backward()
    assert loss.isfinite()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    empty = tokenizer(["", ""], padding=True, return_tensors="pt", add_special_tokens=False)
    assert model.eval().generate(**empty, max_new_tokens=2).shape[0] == 2


def pickle_attributes(encoder):
    """All attributes of all modules: weights, buffers, public and private ones."""
    attributes = {}
    for name, module in encoder.named_modules():
        values = vars(module) | {"_modules": [id(part) for part in module.children()]}
        attributes |= {f"{name}.{key}": pickle.dumps(value) for key, value in values.items()}
    return attributes


def test_a_forward_leaves_the_encoder_as_it_is(over):
    """A text has the same states whatever was read before, and whatever is read with it; in float64, since the random
    weights of some encoders magnify the rounding of other batch sizes."""
    model, tokenizer = over[0].double(), over[1]
    encoder = model.get_encoder()
    long, short = tokenizer(" ".join(TEXTS * 2), return_tensors="pt"), tokenizer(TEXTS[1], return_tensors="pt")
    assert long["encoder_input_ids"].shape[1] > 30
    before = pickle_attributes(encoder)
    with torch.no_grad():
        first = encoder(**long).last_hidden_state
        alone = encoder(**short).last_hidden_state
        again = encoder(**long).last_hidden_state
        together = encoder(**tokenizer([TEXTS[1], " ".join(TEXTS * 2)], padding=True, return_tensors="pt"))
    assert torch.equal(again, first)
    torch.testing.assert_close(together.last_hidden_state[1:], first)
    torch.testing.assert_close(together.last_hidden_state[:1, : alone.shape[1]], alone)
    after = pickle_attributes(encoder)
    assert {name for name in before.keys() | after.keys() if after.get(name) != before.get(name)} == set()


# --- models ---------------------------------------------------------------------------------------------------------


def test_every_weight_is_trained(over):
    model, tokenizer = over[0].train(), over[1]
    model(**batch_of(tokenizer)).loss.backward()
    without = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert without == set()


def test_a_frozen_encoder_gets_no_gradients_and_has_no_dropout(over):
    model, tokenizer = over[0].double(), over[1]
    batch = batch_of(tokenizer)
    expected = model(**batch).loss
    model.freeze_encoder()
    torch.testing.assert_close(model.train()(**batch).loss, expected)
    model(**batch).loss.backward()
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert not any("text_encoder" in name for name in trained)
    assert {"model.encoder.states_proj.weight", "model.encoder.embed_tokens.weight"} <= trained


@families
def test_a_saved_model_is_the_same_when_loaded(folders, made, family, tmp_path):
    model, tokenizer = made[family]
    save_parts(tmp_path, model, tokenizer)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    words = AutoTokenizer.from_pretrained(tmp_path)
    batch = batch_of(words)
    for name, tensor in batch_of(tokenizer).items():
        assert torch.equal(batch[name], tensor), name
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    assert type(loaded.config.encoder) is type(model.config.encoder)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"vocab.json", "encoder_tokenizer.json", "tokenizer_config.json"} <= names
    assert str(folders[family]) not in (tmp_path / "config.json").read_text(encoding="utf-8")
    again = tmp_path / "again"
    words.save_pretrained(again)
    for name in ("vocab.json", "encoder_tokenizer.json"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_an_encoder_without_weights_is_given_by_its_config(folders, tmp_path):
    tokenizer = word_tokenizer(folders["bert"])
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 12}
    encoder = BertConfig(vocab_size=len(tokenizer.encoder_tokenizer), **sizes)
    config = CopyNetConfig.for_tokenizer(tokenizer, encoder=encoder)
    torch.manual_seed(0)
    model = CopyNetForConditionalGeneration(config)
    again = CopyNetForConditionalGeneration(CopyNetConfig.for_tokenizer(tokenizer, encoder=encoder.to_dict()))
    assert again.config.encoder.to_dict() == model.config.encoder.to_dict()
    weights = model.get_encoder().text_encoder.embeddings.word_embeddings.weight
    assert 0.015 < weights.std() < 0.025  # BERT's own initialisation
    model.save_pretrained(tmp_path)
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path).config.encoder.hidden_size == 8


def test_a_model_without_such_an_encoder_is_what_it_was(tmp_path):
    """No file and no weight of an encoder is saved."""
    model = tiny_model()
    assert json.loads(model.config.to_json_string())["encoder"] is None
    model.save_pretrained(tmp_path)
    tokenizer = CopyNetTokenizer.train_from_iterator(TEXTS, 30)
    (tmp_path / "encoder_tokenizer.json").write_text("of another tokenizer", encoding="utf-8")
    tokenizer.save_pretrained(tmp_path)
    assert not (tmp_path / "encoder_tokenizer.json").exists()
    assert set(tokenizer("call")) == {"input_ids", "attention_mask"}
    assert AutoTokenizer.from_pretrained(tmp_path).encoder_tokenizer is None
    assert "encoder" not in (tmp_path / "tokenizer_config.json").read_text(encoding="utf-8")


def test_a_model_without_such_an_encoder_ignores_pieces(folders):
    tokenizer = word_tokenizer(folders["bert"])
    model = CopyNetForConditionalGeneration(CopyNetConfig.for_tokenizer(tokenizer, hidden_size=8)).eval()
    batch = batch_of(tokenizer)
    plain = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    with torch.no_grad():
        assert torch.equal(model(**batch).loss, model(**plain).loss)
    del plain["labels"]
    assert torch.equal(model.generate(**sources(batch), max_new_tokens=4), model.generate(**plain, max_new_tokens=4))


def test_positions_are_counted_where_an_encoder_has_a_table_of_them():
    sizes = {"vocab_size": 9, "d_model": 4, "encoder_layers": 1, "encoder_attention_heads": 1, "encoder_ffn_dim": 4}
    sizes |= {"decoder_layers": 1, "decoder_attention_heads": 1}
    assert find_max_positions(build_text_encoder(BartConfig(max_position_embeddings=32, **sizes))) == 32
    sizes = {"vocab_size": 9, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1}
    assert (
        find_max_positions(build_text_encoder(RobertaConfig(max_position_embeddings=34, pad_token_id=1, **sizes)))
        == 32
    )
    assert (
        find_max_positions(build_text_encoder(YosoConfig(max_position_embeddings=32, **sizes))) == 32
    )  # a table of 34
    assert find_max_positions(build_text_encoder(ModernBertConfig(**sizes, pad_token_id=1))) is None


def test_an_encoder_in_half_precision_is_read(folders):
    tokenizer = word_tokenizer(folders["bert"])
    load = CopyNetForConditionalGeneration.from_encoder_pretrained
    models = [
        load(folders["bert"], tokenizer=tokenizer, encoder_options={"dtype": dtype}, hidden_size=8)
        for dtype in (torch.float32, torch.bfloat16)
    ]
    models[1].get_encoder().states_proj.load_state_dict(models[0].get_encoder().states_proj.state_dict())
    batch = sources(batch_of(tokenizer))
    with torch.no_grad():
        full, half = (model.get_encoder()(**batch).last_hidden_state for model in models)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, full, rtol=0, atol=0.1)


def test_inputs_may_be_of_32_bits(bert):
    model, tokenizer = bert
    batch = sources(batch_of(tokenizer))
    short = {name: tensor.int() for name, tensor in batch.items()}
    with torch.no_grad():
        states = [model.get_encoder()(**each).last_hidden_state for each in (batch, short)]
    assert torch.equal(*states)


def test_the_first_of_two_base_models_is_the_encoder():
    sizes = {"block_sizes": [1], "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 8}
    encoder = build_text_encoder(FunnelConfig(vocab_size=9, num_decoder_layers=1, **sizes))
    assert encoder(torch.ones(1, 5).long()).last_hidden_state.shape == (1, 5, 8)


def test_wrong_calls_say_what_to_do(bert, folders, tmp_path):
    model, tokenizer = bert
    with pytest.raises(ValueError, match=r"encoder is None.*: leave freezing out"):
        tiny_model().freeze_encoder()
    batch = sources(batch_of(tokenizer)) | {"decoder_input_ids": torch.tensor([[1]] * 4)}
    with pytest.raises(ValueError, match="encoder_input_ids, encoder_attention_mask or word_index is missing: pass"):
        model(**{name: tensor for name, tensor in batch.items() if name != "word_index"})
    with pytest.raises(ValueError, match=r"word_index has shape .*: pass all of them as the tokenizer returned them"):
        model(**batch | {"word_index": batch["word_index"][:, 1:]})
    pieces = {name: torch.ones(4, 70).long() for name in ("encoder_input_ids", "encoder_attention_mask")}
    with pytest.raises(ValueError, match=r"has 70 pieces, and the encoder has 64 positions.*encoder_max_length=64"):
        model(**batch | pieces | {"word_index": torch.full((4, 70), -1)})
    with pytest.raises(ValueError, match=r"inputs_embeds is for models without config.encoder: pass input_ids"):
        model(**batch, inputs_embeds=torch.zeros(4, 9, 6))
    with pytest.raises(ValueError, match=r"encoder_pooling='max' is unknown: use one of mean, first, last"):
        CopyNetConfig(encoder=BertConfig(), encoder_pooling="max")
    with pytest.raises(ValueError, match=r"initial_state='cls' is unknown"):
        CopyNetConfig(encoder=BertConfig(), initial_state="cls")
    with pytest.raises(ValueError, match=r"encoder is set, but num_features=2.*: leave one out"):
        CopyNetConfig(encoder=BertConfig(), num_features=2, copy_mechanism="pointer")
    with pytest.raises(ValueError, match=r"encoder_tokenizer is a CopyNetTokenizer.*: pass a fast tokenizer"):
        word_tokenizer(CopyNetTokenizer.train_from_iterator(TEXTS, 30))
    load = CopyNetForConditionalGeneration.from_encoder_pretrained
    with pytest.raises(ValueError, match=r"the tokenizer returns no pieces: create it with encoder_tokenizer="):
        load(folders["bert"], tokenizer=CopyNetTokenizer.train_from_iterator(TEXTS, 30))
    with pytest.raises(ValueError, match=r"encoder_tokenizer has 320 pieces, the encoder .* has \d+: pass"):
        load(folders["bert"], tokenizer=word_tokenizer(folders["roberta"]))
    wider = save_encoder(tmp_path / "wider", hidden_size=20)
    with pytest.raises(ValueError, match=r"has states of 20 numbers, and the model was made for 16: use another"):
        copynet_over(folders["bert"], tokenizer).load_encoder(wider, tokenizer)
    fsmt = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "src_vocab_size": 9, "tgt_vocab_size": 9}
    for config in (T5GemmaConfig(), ViTConfig(), FSMTConfig(**fsmt)):
        with pytest.raises(
            ValueError, match=rf"model_type '{config.model_type}', for which Transformers has no encod"
        ):
            build_text_encoder(config)
    for limit, told in ((65, "up to 65"), (None, "any number of")):
        own = AutoTokenizer.from_pretrained(folders["roberta"])
        own.model_max_length = limit or int(1e30)
        with pytest.raises(ValueError, match=rf"returns {told} pieces, .* 64 positions: .*encoder_max_length=64"):
            load(folders["roberta"], tokenizer=word_tokenizer(own))


COPYING = {name: changes for name, changes in MECHANISMS.items() if changes.get("attention", True)} | {
    "pointer": {"copy_mechanism": "pointer"},
    "copynet, GRU": {"encoder_gru": True},
    "retrieval, GRU": {"copy_mechanism": "retrieval", "encoder_gru": True, "num_hidden_layers": 2},
}


@pytest.mark.parametrize("changes", COPYING.values(), ids=COPYING)
def test_every_mechanism_trains_generates_and_is_traced(folders, changes):
    tokenizer = word_tokenizer(folders["bert"])
    model = copynet_over(folders["bert"], tokenizer, **changes)
    targets = ["send Ottilie", "call", "nine", "today"] if changes.get("copy_mechanism") == "pointer" else SUMMARIES
    batch = tokenizer(TEXTS, text_target=targets, padding=True, return_tensors="pt")
    model.train()(**batch).loss.backward()
    assert model.get_encoder().text_encoder.get_input_embeddings().weight.grad.any()
    model.eval()
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 5}
    outputs = model.generate(**sources(batch), **options)
    assert len(outputs) == 2 * len(TEXTS)
    if model.config.copies:
        trace = model.trace_copies(outputs, **sources(batch))
        assert (trace.copied <= 1).all()
    pipe = pipeline("copy-text2text", model=model, tokenizer=tokenizer, num_beams=2, max_new_tokens=5)
    together, alone = pipe(TEXTS, batch_size=4), [pipe(text) for text in TEXTS[:2]]
    assert [each[0]["words"] for each in together[:2]] == [each[0]["words"] for each in alone]
    assert [each[0]["source_words"] for each in together] == [text.split() for text in TEXTS]


@pytest.mark.parametrize(
    ("copies_from", "family"),
    [(["question"], "bert"), (["facts"], "bert"), (["question", "facts"], "bert"), (["question"], "roberta")],
)
def test_retrieval_reads_the_questions_pieces_and_the_facts_words(folders, copies_from, family):
    """The facts' pieces change no state of the question, nor does a second symbol between the texts of a pair; their
    objects can be retrieved."""
    tokenizer = word_tokenizer(folders[family])
    fields = {"copy_mechanism": "retrieval", "copies_from": copies_from, "initial_state": "mean"}
    model = copynet_over(folders[family], tokenizer, **fields).double()
    facts = [[("Ottilie", "born", "1971"), ("Ottilie", "city", "Bonn")], [("Krahn", "born", "1980")]]
    questions = ["call Ottilie", "call Krahn today"]
    options = {"padding": True, "return_tensors": "pt"}
    batch = tokenizer(questions, facts=facts, text_target=["1971", "1980"], **options)
    output = model.get_encoder()(**sources(batch))
    plain = model.get_encoder()(**tokenizer(questions, **options))
    kinds = batch["token_type_ids"]
    for row, question in enumerate(questions):
        length = len(question.split())
        mask = output.source_mask[row]
        assert mask[:length].all() == ("question" in copies_from)
        assert torch.equal(mask[length:], (kinds[row, length:] == 3) & ("facts" in copies_from))
        torch.testing.assert_close(output.final_state[row], plain.final_state[row])
        torch.testing.assert_close(output.last_hidden_state[row, :length], plain.last_hidden_state[row, :length])
    assert output.facts[0, 4].any()
    assert not output.facts[0, 3].any()
    model.train()(**batch).loss.backward()


def test_new_words_move_the_slots_and_leave_the_encoder(folders):
    tokenizer = word_tokenizer(folders["bert"])
    model = copynet_over(folders["bert"], tokenizer)
    tokenizer.add_tokens(["Xaver"])
    model.resize_token_embeddings(len(tokenizer))
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.encoder.vocab_size == len(tokenizer.encoder_tokenizer)
    assert model(**batch_of(tokenizer)).logits.shape[-1] == len(tokenizer) + 12
