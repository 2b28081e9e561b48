"""Letters of words outside the vocabulary: against the oracle, in searches, saved models, ONNX graphs, training."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import (
    FEATURED,
    LETTERED,
    READERS,
    SOURCES,
    SPELLED,
    TARGETS,
    beside,
    check_same_outputs,
    flat,
    padded,
    save_parts,
    sources,
    tiny_model,
    tiny_tokenizer,
)
from safetensors.torch import load_file, save_file
from tiny_encoders import copynet_over, save_encoder, word_tokenizer
from torch import Tensor
from transformers import DataCollatorForSeq2Seq

from copynet_hf import (
    CopyNetConfig,
    CopyNetEnsemble,
    CopyNetForConditionalGeneration,
    CopyNetTokenizer,
    PlainTokenizer,
)
from copynet_hf.arguments import TrainArguments
from copynet_hf.cli import main
from copynet_hf.inference.onnx_search import OnnxCopyNet
from copynet_hf.inference.quantization import write_int8
from copynet_hf.model.encoder import hide_letters
from copynet_hf.model.prediction import predict
from copynet_hf.model.vocabularies import MAX_LETTERS_OF_WORD, list_letters, number_entries
from copynet_hf.saved.ensembles import join_models
from copynet_hf.saved.loading import load_model
from copynet_hf.training.dataset import encode_pairs
from copynet_hf.training.model_setup import build_model
from copynet_hf.training.tokenizer_setup import train_tokenizer
from copynet_hf.training.vocabulary_dropout import append_letters, drop_from_vocabulary

CASES = {name: changes for name, changes in READERS.items() if "letter_vocab_size" in changes}
WITH_OTHERS = CASES | {"coreqa": {"copy_mechanism": "retrieval"}, "pointer": {"copy_mechanism": "pointer"}}
cases = pytest.mark.parametrize("changes", WITH_OTHERS.values(), ids=WITH_OTHERS)
TEXTS = ["a xyz b zyx xyz", "zz c", "a b c d", "", "abcdefgh"]
TARGET = padded([[1, *target[:-1]] for target in TARGETS], 0)


def make(**changes: Any) -> CopyNetForConditionalGeneration:
    return tiny_model(**{"letter_vocab_size": 7, "seed": 1, **changes})


def make_tokenizer() -> CopyNetTokenizer:
    return tiny_tokenizer(letter_vocab="xyzab")


def batch(rows: slice = slice(None)) -> dict[str, Tensor]:
    return sources(SOURCES[rows]) | beside(CopyNetConfig(**SPELLED), rows)


# equations


@cases
def test_padding_does_not_matter(changes: dict[str, Any]) -> None:
    model, inputs = make(**changes), batch()
    logits = model(**inputs, decoder_input_ids=TARGET).logits
    wider = inputs | {"letter_ids": torch.nn.functional.pad(inputs["letter_ids"], (0, 40))}
    assert torch.allclose(model(**wider, decoder_input_ids=TARGET).logits, logits, atol=1e-5)


@cases
def test_without_letters_all_words_have_the_embedding_of_unk(changes: dict[str, Any]) -> None:
    model, plain = make(**changes), make(**changes | {"letter_vocab_size": 0})
    plain.load_state_dict({name: weight for name, weight in model.state_dict().items() if "letter" not in name})
    inputs = batch()
    letters = inputs.pop("letter_ids")
    expected = plain(**inputs, decoder_input_ids=TARGET).logits
    for none in (letters[:, :0], torch.zeros_like(letters)):
        assert torch.equal(model(**inputs, letter_ids=none, decoder_input_ids=TARGET).logits, expected)
    ignored = plain(**inputs, letter_ids=letters, decoder_input_ids=TARGET).logits  # as by a member of an ensemble
    assert torch.equal(ignored, expected)
    assert not torch.allclose(
        model(**inputs, letter_ids=letters, decoder_input_ids=TARGET).logits, expected, atol=0.01
    )


def test_a_batch_without_letters_has_all_gradients() -> None:
    model = make()  # as distributed training requires
    inputs = batch(rows=slice(2, 3))
    model(**inputs, labels=torch.tensor(TARGETS[2:3])).loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_a_model_without_letters_and_features_has_no_weights_for_them() -> None:
    assert not any("letter" in name or "feature" in name for name in tiny_model().state_dict())


def test_a_model_saved_without_the_weights_for_endings_gives_what_it_gave(tmp_path: Path) -> None:
    model, inputs = make(), batch()
    torch.nn.init.zeros_(model.get_encoder().letter_encoder.ending_proj.weight)
    CopyNetEnsemble.from_models([model, make(seed=2)]).save_pretrained(tmp_path / "both")
    model.save_pretrained(tmp_path / "one")
    for folder, name in (("one", "model."), ("both", "member_0.model.")):
        path, name = tmp_path / folder / "model.safetensors", f"{name}encoder.letter_encoder.ending_proj.weight"
        weights = load_file(path)
        assert name in weights
        save_file({key: weight for key, weight in weights.items() if key != name}, path, {"format": "pt"})
    one, told = CopyNetForConditionalGeneration.from_pretrained(tmp_path / "one", output_loading_info=True)
    assert not told["missing_keys"]
    expected = model(**inputs, decoder_input_ids=TARGET).logits
    assert torch.equal(one(**inputs, decoder_input_ids=TARGET).logits, expected)
    both, told = CopyNetEnsemble.from_pretrained(tmp_path / "both", output_loading_info=True)
    assert not told["missing_keys"]
    assert torch.equal(both.members[0](**inputs, decoder_input_ids=TARGET).logits, expected)


def test_capitals_begin_as_small_letters_with_one_difference() -> None:
    tokenizer = tiny_tokenizer(letter_vocab="ab\u00e9\u0416AB\u00c9Z7")
    model = build_model(tokenizer, TrainArguments())
    of = dict(
        zip(tokenizer.letter_vocab, model.get_encoder().letter_encoder.embed_letters.weight.detach()[2:], strict=True)
    )
    difference = of["A"] - of["a"]
    for capital in "B\u00c9":
        assert torch.allclose(of[capital] - of[capital.lower()], difference, atol=1e-5)
    assert difference.std() == pytest.approx(of["a"].std().item(), rel=0.5)
    for first, second in combinations("ab\u00e9\u0416Z7", 2):
        assert not torch.allclose(of[first] - of[second], difference, atol=0.1)


@cases
def test_in_training_letters_of_some_words_are_hidden_from_the_encoder(changes: dict[str, Any]) -> None:
    """Half of the letters of half of the words; the decoder still has all of them."""
    encoder = make(**changes, dropout=0.0).get_encoder()
    rows = 4000
    source, letters = torch.tensor([[13, 14]] * rows), torch.tensor([flat([[2, 3], [4]])] * rows)
    slots = encoder.embed_slots(letters, source)
    assert torch.equal(encoder.embed_source(source, slots, letters), encoder.embed(source, slots))
    encoder.train()
    in_another_case = torch.tensor([flat([[7 + 5, 2, 3], [4]])] * 99)
    assert (hide_letters(in_another_case, 7) == 7 + 5).sum() == 99
    read = encoder.embed_source(source, slots, letters)
    shares = {(2, 3): 0.625, (1, 3): 0.125, (2, 1): 0.125, (1, 1): 0.125, (4,): 0.75, (1,): 0.25}  # 1: unknown
    for seen, share in shares.items():
        word = int(len(seen) == 1)
        both = torch.tensor([flat([[2, 3], list(seen)] if word else [list(seen), [4]])])
        shown = encoder.embed(source[:1], encoder.embed_slots(both, source[:1]))[0, word]
        is_shown = torch.isclose(read[:, word], shown, atol=1e-6).all(-1)
        assert is_shown.float().mean().item() == pytest.approx(share, abs=0.04)
    fed_back = encoder(source, letter_ids=letters).slot_embeddings
    assert fed_back is None or torch.allclose(fed_back, slots)  # all have their letters
    encoder.config.letter_dropout = 0.0
    assert torch.equal(encoder.embed_source(source, slots, letters), encoder.embed(source, slots))


# ensembles


def test_ensembles_read_features_and_letters_of_the_members_that_have_them() -> None:
    members = [make(**FEATURED), make(**FEATURED, seed=2, hidden_size=8), tiny_model(**FEATURED)]
    ensemble = CopyNetEnsemble.from_models(members)
    assert ensemble.config.letter_vocab_size == 7
    inputs = sources() | beside(ensemble.config)
    logits = ensemble(**inputs, decoder_input_ids=TARGET).logits
    means = torch.stack([model(**inputs, decoder_input_ids=TARGET).logits.exp() for model in members]).mean(0)
    assert torch.allclose(logits.exp(), means, atol=1e-5)
    found = ensemble.generate(**inputs, num_beams=2, max_new_tokens=5)
    assert torch.equal(found, ensemble.generate(**inputs, num_beams=2, max_new_tokens=5, use_cache=False))
    with pytest.raises(ValueError, match="letter_vocab_size is 7 and 8 in the members"):
        CopyNetEnsemble.from_models([make(), make(letter_vocab_size=8)])


# tokenizers


def test_the_tokenizer_returns_the_letters_of_words_that_own_slots() -> None:
    tokenizer = make_tokenizer()
    encoded = tokenizer(["a xyz b q xyz", "a"], facts=[[("b", "x", "yy")], None])
    assert encoded["letter_ids"] == [flat([[2], [3, 3], [2, 3, 4], [1]]), []]  # those of facts first
    assert [len(tokenizer), tokenizer.letter_vocab_size] == [13, 7]
    many = tokenizer("j k l m n o")  # four slots
    assert many["letter_ids"] == flat([[1]] * 4)
    long = "x" * 20 + "y" * 40
    assert tokenizer(long)["letter_ids"] == [0, *[2] * 16, *[3] * 16]
    assert len(tokenizer.find_letter_ids(["x" * MAX_LETTERS_OF_WORD])) == 1 + MAX_LETTERS_OF_WORD
    assert "letter_ids" not in tiny_tokenizer()("a xyz")


@pytest.mark.parametrize("plain", [False, True], ids=["copynet", "plain"])
def test_words_in_another_case_are_those_of_the_vocabulary(plain: bool, tmp_path: Path) -> None:
    texts = ["salt Salt salt us US us US US STRASSE straße ÉTÉ"]
    made = CopyNetTokenizer.train_from_iterator(texts, 99, "word_punct", max_source_oov=9, letters=True)
    made.save_pretrained(tmp_path)
    tokenizer = PlainTokenizer.from_pretrained(tmp_path) if plain else made
    first, words = made.letter_vocab_size, made.get_vocab()

    def find(word: str) -> str | None:
        ids = tokenizer.find_letter_ids([word])
        assert ids[2 if ids[1] >= first else 1 :] == [made.letter_vocab.get(letter, 1) for letter in word]
        return made.convert_ids_to_tokens(ids[1] - first) if ids[1] >= first else None

    found = {"SALT": "salt", "Us": "US", "été": "ÉTÉ", "Straße": "straße", "strasse": "STRASSE", "sal": None}
    assert {word: find(word) for word in found} == found
    assert {find(word) for word in ("<S>", "<s>", "<PAD>", "<unk>")} == {None}  # no words
    # of those in the vocabulary, which vocabulary dropout takes out of it
    assert {word: find(word) for word in ("salt", "Salt", "us", "US")} == {
        "salt": None,
        "Salt": "salt",
        "us": "US",
        "US": None,
    }
    source = tokenizer.encode_source("SALT and Us")
    assert source.letter_ids == tokenizer.find_letter_ids(["SALT", "and", "Us"])
    assert first + words["salt"] in source.letter_ids


def test_a_word_in_another_case_has_that_words_embedding_and_its_letters() -> None:
    encoder, source = make().get_encoder(), torch.tensor([[13, 14]])
    letters, known = encoder.letter_encoder(torch.tensor([[0, 2, 3, 0, 4]]))
    assert known.tolist() == [[-1, -1]]
    for second in ([4], [7 + 13, 4]):  # no word has this id
        slots = encoder.embed_slots(torch.tensor([flat([[7 + 5, 2, 3], second])]), source)
        assert torch.allclose(slots[0], encoder.embed(torch.tensor([[5, 3]]))[0] + letters[0])


def test_a_tokenizer_without_case_variants_stays_as_it_is(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    assert "case_variants" not in (tmp_path / "tokenizer_config.json").read_text(encoding="utf-8")
    for tokenizer in (CopyNetTokenizer.from_pretrained(tmp_path), PlainTokenizer.from_pretrained(tmp_path)):
        assert tokenizer.encode_source("A x").letter_ids == [0, 1, 0, 2]


def test_collators_pad_letters_on_the_right() -> None:
    tokenizer = make_tokenizer()
    tokenizer.padding_side = "left"
    rows = [tokenizer(text, text_target="a") for text in ("a xyz", "b", "x zz a")]
    padded_rows = DataCollatorForSeq2Seq(tokenizer)(rows)["letter_ids"]
    assert padded_rows.tolist() == [[0, 2, 3, 4, 0], [0] * 5, [0, 2, 0, 4, 4]]
    pairs = Dataset.from_list([{"text": text, "summary": "a"} for text in TEXTS])
    encoded = encode_pairs(pairs, tokenizer)
    assert encoded["letter_ids"][:] == [tokenizer(text)["letter_ids"] for text in TEXTS]


def test_trained_letters_are_the_frequent_ones() -> None:
    texts = ["abb aé", "é日\ud800\ud800 b"]
    tokenizer = CopyNetTokenizer.train_from_iterator(texts, 5, "whitespace", letters=True)
    assert list(tokenizer.letter_vocab) == ["b", "a", "é"]  # 日 occurs once, and no file can hold a surrogate
    assert list_letters({"ab": 2, "b": 3}) == "ba"
    assert not CopyNetTokenizer.train_from_iterator(texts, 5, "whitespace").letter_vocab


@pytest.mark.parametrize(("letters", "message"), [(["ab"], "one character"), ("aa", "'a' twice"), ([1], "contains 1")])
def test_letters_are_checked(letters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        number_entries("letter", letters)


@pytest.mark.parametrize(
    ("changes", "letters", "message"),
    [
        ({}, [[0, 2], [0, 3]], r"letter_ids has shape \(2, 2\), the source \(1, 2\)"),
        ({}, [0, 2], r"letter_ids has shape \(2,\)"),
        ({}, [[-1]], "letter_ids holds -1, and ids start at 0"),
    ],
)
def test_letter_ids_are_checked(changes: dict[str, Any], letters: Any, message: str) -> None:
    words = torch.tensor([[5, 6]])
    with pytest.raises(ValueError, match=message):
        make(**changes)(input_ids=words, letter_ids=torch.tensor(letters), decoder_input_ids=words)


def test_out_of_vocabulary_words_without_letters_are_refused(exported_once: Callable[..., Path]) -> None:
    model, onnx = tiny_model(**LETTERED), OnnxCopyNet.from_pretrained(exported_once(**LETTERED), threads=1)
    known, unknown = torch.tensor([[5, 6]]), torch.tensor([[5, 13]])
    assert torch.equal(
        model.generate(known, max_new_tokens=3), torch.tensor(onnx.generate(known.numpy(), max_new_tokens=3))
    )
    with pytest.raises(ValueError, match=r"letter_ids are missing, and input_ids holds 13, .* model.generate\(\*\*"):
        model.generate(unknown, max_new_tokens=3)
    with pytest.raises(ValueError, match="letter_ids is missing: pass what the tokenizer returned"):
        onnx.generate(unknown.numpy(), max_new_tokens=3)


def test_points_have_no_letters() -> None:
    with pytest.raises(ValueError, match="letter_vocab_size=7 is for words, but num_features=2"):
        make(copy_mechanism="pointer", num_features=2)


# saving


def test_a_saved_tokenizer_has_the_models_letters(tmp_path: Path) -> None:
    save_parts(tmp_path, make(), make_tokenizer())
    model, tokenizer = load_model(str(tmp_path))
    assert tokenizer.letter_vocab == make_tokenizer().letter_vocab
    predict(model, tokenizer, TEXTS, max_new_tokens=6)
    with pytest.raises(ValueError, match="letter_ids are missing"):
        predict(model, tiny_tokenizer(), TEXTS, max_new_tokens=6)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="the tokenizer has letter_vocab_size=0, the model letter_vocab_size=7"):
        load_model(str(tmp_path))


def test_models_with_letters_and_without_join_an_ensemble(tmp_path: Path) -> None:
    in_another_case = tiny_tokenizer(letter_vocab="xyzab", case_variants=True)
    parts = {"a": tiny_tokenizer(), "b": in_another_case, "c": make_tokenizer()}
    for name, tokenizer in parts.items():
        model = tiny_model() if name == "a" else make()
        save_parts(tmp_path / name, model, tokenizer)
    ensemble, tokenizer = join_models([str(tmp_path / "a"), str(tmp_path / "b")])
    save_parts(tmp_path / "both", ensemble, tokenizer)
    loaded, tokenizer = load_model(str(tmp_path / "both"), "cpu")
    assert tokenizer("xyz A")["letter_ids"] == in_another_case("xyz A")["letter_ids"] == [0, 2, 3, 4, 0, 11, 1]
    with pytest.raises(ValueError, match=r"has the case variants setting 'False' where .*b has 'True'"):
        join_models([str(tmp_path / "b"), str(tmp_path / "c")])
    expected = CopyNetEnsemble.from_models([tiny_model(), make()])
    assert predict(loaded, tokenizer, TEXTS) == predict(expected, make_tokenizer(), TEXTS)


def test_predictions_over_graphs_read_features_and_letters(exported_once: Callable[..., Path], tmp_path: Path) -> None:
    model, onnx = tiny_model(**LETTERED), OnnxCopyNet.from_pretrained(exported_once(**LETTERED), threads=1)
    tokenizer = tiny_tokenizer(feature_vocab=["N", "PST", "V"], letter_vocab="xyzab")
    tokenizer.save_pretrained(tmp_path)
    options = {"features": [["V", "PST"], ["PL"], ["N"], [], None], "num_beams": 2, "max_new_tokens": 6}
    for each in (tokenizer, PlainTokenizer.from_pretrained(tmp_path)):
        check_same_outputs((model, tokenizer), (onnx, each), TEXTS, **options)


def test_graphs_of_8_bits_read_letters(exported_once: Callable[..., Path], tmp_path: Path) -> None:
    ir = pytest.importorskip("onnx_ir")
    folder, model = shutil.copytree(exported_once(**LETTERED), tmp_path / "int8"), tiny_model(**LETTERED)
    for name in ("encoder.onnx", "decoder.onnx"):
        write_int8(ir.load(folder / name), folder / name)
    onnx = OnnxCopyNet.from_pretrained(folder, threads=1)
    source = {name: value.numpy() for name, value in batch().items()}
    sequences = model.generate(**batch(), max_new_tokens=5)
    exact = model.trace_copies(sequences, **batch()).token_probs.numpy()
    without = dict(source, letter_ids=np.zeros_like(source["letter_ids"]))
    near, far = (onnx.trace_copies(sequences.numpy(), **each).token_probs for each in (source, without))
    assert np.abs(near - exact).max() < 0.1
    assert np.abs(far - exact).max() > 2 * np.abs(near - exact).max()


# a Transformers encoder


def test_over_a_transformers_encoder_letters_are_fed_back(tmp_path: Path) -> None:
    encoder = save_encoder(tmp_path / "bert")
    tokenizer = word_tokenizer(encoder, letter_vocab="Bendikta")
    model = copynet_over(encoder, tokenizer)
    inputs = tokenizer(["call Benedikta", "today"], padding=True, return_tensors="pt")
    first = len(tokenizer)
    words = torch.tensor([[1, first, 6], [1, 5, 6]])
    logits = model(**inputs, decoder_input_ids=words).logits
    without = model(**inputs | {"letter_ids": inputs["letter_ids"][:, :0]}, decoder_input_ids=words).logits
    assert torch.equal(logits[:, 0], without[:, 0])
    assert torch.equal(logits[1], without[1])
    assert not torch.allclose(logits[0, 1], without[0, 1], atol=1e-4)
    model(**inputs, labels=words).loss.backward()
    assert all(weight.grad.abs().max() > 0 for weight in model.get_encoder().letter_encoder.parameters())


# training


def test_words_dropped_from_the_vocabulary_have_their_letters() -> None:
    torch.manual_seed(0)
    config = CopyNetConfig(vocab_size=13, max_source_oov=4)
    sources, targets = [[5, 13, 6, 5, 7], [6, 7], [13, 14, 15, 16, 5]], [[7, 5, 13, 2], [7, 6, 2], [5, 2]]
    own = [[[2, 3]], [], [[2], [3], [4], [5]]]
    letters = [[0, word] for word in range(13)]
    for side in ("right", "left"):
        source = padded(sources, 0, side)
        always = torch.ones(2, config.extended_vocab_size)
        changed, _ = drop_from_vocabulary(source, padded(targets, -100), always, config, source != 0)
        found = append_letters(padded([flat(words) for words in own], 0), source, changed, letters, 13)
        assert changed[0][changed[0] > 0].tolist() == [14, 13, 6, 14, 15]
        assert found.tolist() == [
            row + [0] * (8 - len(row)) for row in ([0, 2, 3, 0, 5, 0, 7], [0, 6, 0, 7], flat(own[2]))
        ]
    source, changed = torch.tensor([[13, 14, 5]] * 99), torch.tensor([[13, 14, 15]] * 99)
    row = [0, 2, 3, 0, 5, 0, 5]
    assert append_letters(torch.tensor([row[:5]] * 99), source, changed, letters, 13).tolist() == [row] * 99
    known = torch.tensor([[4, 5], [6, 5]])  # no word owns a slot
    assert append_letters(padded([[0], [0]], 0), known, known, letters, 13).tolist() == [[0], [0]]


@pytest.mark.parametrize(
    ("arguments", "has_letters"),
    [
        ({}, True),
        ({"max_source_oov": 4}, True),
        ({"letters": False}, False),
        ({"segmenter": "char"}, False),
        ({"segmenter": "whitespace"}, False),
        ({"segmenter": "whitespace", "letters": True}, True),
    ],
)
def test_a_trained_tokenizer_has_letters_where_its_words_may_have_parts(
    arguments: dict[str, Any], has_letters: bool
) -> None:
    pairs = Dataset.from_list([{"text": "call Ada", "summary": "called Ada"}] * 9)
    tokenizer = train_tokenizer(pairs, TrainArguments(**{"segmenter": "word_punct", **arguments}))
    assert bool(tokenizer.letter_vocab) is tokenizer.case_variants is has_letters


def test_the_command_trains_with_letters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"7": "number", "ov": "name"}  # told by the last letters alone
    rows = [f"{a}{b}{c}{end}\t{kind}" for a in "kpt" for b in "aei" for c in "lmn" for end, kind in kinds.items()]
    for name, part in (("train.tsv", rows[12:]), ("test.tsv", rows[:12])):
        (tmp_path / name).write_text("\n".join(part) + "\n", encoding="utf-8")
    sizes = "--embedding_size 24 --hidden_size 24 --encoder_hidden_size 24 --attention_size 24 --dropout 0"
    rates = "--max_steps 60 --ema_decay 0 --learning_rate 0.02 --per_device_train_batch_size 8 --segmenter word_punct"
    files = f"--train_file {tmp_path}/train.tsv --test_file {tmp_path}/test.tsv --column_names text summary"
    arguments = f"{files} {sizes} {rates} --min_frequency 2 --max_source_oov 4 --save_strategy no --seed 1".split()
    assert main(["train", *arguments, f"--output_dir={tmp_path / 'model'}"]) == 0
    capsys.readouterr()
    assert main(["generate", f"--model={tmp_path / 'model'}", "--text", "kelp7", "kelpov"]) == 0
    assert capsys.readouterr().out.split() == ["number", "name"]


def test_the_first_thousand_pairs_may_have_no_letters() -> None:
    """`datasets` takes the types of columns from the first rows, where these would be lists of nothing."""
    words = ["call me now"] * 9
    tokenizer = CopyNetTokenizer.train_from_iterator(
        words, 50, segmenter="word_punct", min_frequency=2, letters=True, max_source_oov=4
    )
    rows = [{"text": "call me", "summary": "me"}] * 1000 + [{"text": "call Kalx", "summary": "Kalx"}]
    encoded = encode_pairs(Dataset.from_list(rows), tokenizer)
    assert encoded[0]["letter_ids"] == []
    assert encoded[1000]["letter_ids"] == tokenizer("call Kalx")["letter_ids"]
