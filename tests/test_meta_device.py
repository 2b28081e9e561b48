"""Every tensor is made on the model's device: on the meta device, one made elsewhere is an error."""

from __future__ import annotations

import pytest
import torch
from helpers import POINTER, RECURRENT, TARGETS, batch, padded, tiny_model

# Without Transformers decoders, whose masks are made by looking at values, and without those that make the tensors of
# another one.
SAME = {"unk_elsewhere", "no_attention", "coverage", "pointer_generator", "pointer_generator_state", "gated"}
SAME |= {"state_and_selective_read", "rnnsearch"}
MODELS = {name: changes for name, changes in RECURRENT.items() if name not in SAME} | {
    "pointer": POINTER,
    "pointer_features": POINTER | {"num_features": 2},
    "retrieval": {"copy_mechanism": "retrieval"},
    "aligned_words": {"copy_mechanism": "gated", "aligned_words": 2, "frequent_words": 3},
}
models = pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
META = torch.device("meta")


def source(model):
    inputs = batch("left", config=model.config)
    if model.config.num_features:
        inputs["input_features"] = torch.zeros(*inputs.pop("input_ids").shape, 2)
    return {name: tensor.to(META) for name, tensor in inputs.items() if name != "labels"}


@models
def test_outputs_loss_and_gradients(changes):
    model = tiny_model(**changes).to(META).train()
    output = model(
        **source(model), labels=padded(TARGETS, -100).to(META), output_attentions=True, output_hidden_states=True
    )
    for tensor in (output.loss, output.logits, output.encoder_last_hidden_state):
        assert tensor.is_meta
    assert output.logits.shape == (4, 5, model.config.extended_vocab_size)
    output.loss.backward()
    assert all(parameter.grad.is_meta for parameter in model.parameters())


@models
@torch.no_grad()
def test_steps_of_a_search_whose_rows_share_their_source(changes):
    model = tiny_model(**changes).to(META)
    encoded = model.get_encoder()(**source(model))
    words, cache = torch.zeros(8, 1, dtype=torch.long, device=META), None
    for _ in range(2):
        output = model(encoder_outputs=encoded, decoder_input_ids=words, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        cache.reorder_cache(torch.zeros(8, dtype=torch.long, device=META))
        assert output.logits.shape == (8, 1, model.config.extended_vocab_size)
    kwargs = {"encoder_outputs": encoded}
    processor = model._extended_vocabulary_processor(model.generation_config, kwargs)
    assert processor(words, output.logits[:, -1]).is_meta


@models
@torch.no_grad()
def test_decoder_inputs_embeds(changes):
    model = tiny_model(**changes).to(META)
    embeddings = torch.zeros(4, 3, model.config.embedding_size, device=META)
    assert model(**source(model), decoder_inputs_embeds=embeddings).logits.is_meta
