"""The encoder: the source becomes M = {h_j}.

Letters: `copy_distribution.py`; shapes: `memory.py`, and B rows, L letters with the boundaries between words, W words
that own slots.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import can_return_tuple

from .configuration_copynet import CopyNetConfig
from .copy_distribution import has_values, replace_by_unk
from .fast import find_fast_form_obstacles
from .gru import FusedGRU, gru_states
from .layers import AddedProjection, Dropout, TiedRepetitions
from .outputs import (
    CopyNetEncoderOutput,
    SourceInputs,
    check_no_slots,
    check_not_negative,
    check_shape,
    value_or_default,
)
from .pretrained import CopyNetPreTrainedModel
from .vocabularies import BOUNDARY, UNKNOWN_FEATURE, UNKNOWN_LETTER

OBJECT_TOKEN_TYPE = 3
LETTER_SIZE = 32  # the width of a letter's embedding


class CopyNetEncoderLayer(nn.GRU, GradientCheckpointingLayer):
    """One bidirectional GRU layer, whose states do not depend on padding, on either side.

    The parameters are `nn.GRU`'s, whose own forward needs padding on the right and lengths on the CPU. Here the state
    passes through padded positions unchanged.
    """

    def __init__(self, config: CopyNetConfig, input_size: int) -> None:
        super().__init__(input_size, config.encoder_hidden_size, batch_first=True, bidirectional=True)
        self.config = config

    def forward(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """From (B, S, input) and (B, S) bool to states (B, S, D), zero on padding, and last states (B, D)."""
        by_step, keep = inputs.transpose(0, 1), mask.t()[..., None]
        w_ih, w_hh, b_ih, b_hh = (torch.stack(pair) for pair in zip(*self.all_weights, strict=True))
        ordered = torch.stack([by_step, by_step.flip(0)])  # each direction in its own order
        gates = torch.baddbmm(b_ih[:, None, :], ordered.flatten(1, 2), w_ih.transpose(1, 2))
        gru = gru_states if find_fast_form_obstacles(self.config) else FusedGRU.apply
        forward_states, backward_states = gru(
            gates.view(*ordered.shape[:3], -1),
            torch.stack([keep, keep.flip(0)]),
            w_hh.transpose(1, 2),
            b_hh[:, None, :],
        ).unbind(0)
        last_hidden_state = torch.cat([forward_states, backward_states.flip(0)], dim=-1).transpose(0, 1)
        return last_hidden_state * mask[..., None], torch.cat([forward_states[-1], backward_states[-1]], dim=-1)


def build_layers(config: CopyNetConfig) -> nn.ModuleList:
    """The bidirectional GRU layers, the first of which reads embeddings."""
    widths = [config.embedding_size] + [config.memory_size] * (config.num_hidden_layers - 1)
    return nn.ModuleList(CopyNetEncoderLayer(config, width) for width in widths)


class Positions(NamedTuple):
    """What the positions of the sources hold, (B, S) bool each.

    read: words that the encoder reads: all, or with facts those of the question.
    copyable: what can be copied.
    is_object: the objects of facts; None: facts are not told apart.
    """

    read: Tensor
    copyable: Tensor
    is_object: Tensor | None = None


def embed_facts(embeddings: Tensor, is_object: Tensor | None) -> Tensor | None:
    """f_j = [e(subject); e(property); e(object)] at each object's position, zero elsewhere: (B, S, 3E)."""
    if is_object is None:
        return None
    triples = torch.cat([embeddings.roll(2, dims=1), embeddings.roll(1, dims=1), embeddings], dim=-1)
    return triples * is_object[..., None]


class LetterEncoder(nn.Module):
    """W max_i ReLU(F [l_{i-1}; l_i; l_{i+1}] + b) + V [l_{n-2}; l_{n-1}; l_n] over the letters l_1 … l_n of a word,
    with l = 0 before and after it.

    The first part is a convolution (Kim et al. 2016), here with filters of one width: it says what is in a word. The
    second has the last three letters in their order, because other words and endings agree with them.

    Ids from the number of letters on stand for words in another case, not for letters: see `vocabularies.py`.
    """

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__()
        self.embed_letters = nn.Embedding(config.letter_vocab_size, LETTER_SIZE)
        self.filters = nn.Linear(3 * LETTER_SIZE, config.embedding_size)  # F and b
        self.output_proj = nn.Linear(config.embedding_size, config.embedding_size, bias=False)  # W
        self.ending_proj = AddedProjection(3 * LETTER_SIZE, config.embedding_size)  # V

    def forward(self, letter_ids: Tensor) -> tuple[Tensor, Tensor]:
        """From (B, L) what the letters of each word add to its embedding (B, W, E), zero for a word without letters;
        and (B, W) the id of the same word in another case, −1 where the vocabulary has none.

        W is the largest number of words in a row, or L if traced.
        """
        if letter_ids.shape[1] == 0:  # no row has words: one without letters, so that every weight has a gradient
            letter_ids = nn.functional.pad(letter_ids, (0, 1), value=BOUNDARY)
        num_letters = self.embed_letters.num_embeddings
        is_letter = find_letters(letter_ids, num_letters)[..., None]
        variants = letter_ids - num_letters  # words in another case, below zero for letters
        letter_ids = torch.where(variants < 0, letter_ids, UNKNOWN_LETTER)
        letters = self.embed_letters(letter_ids) * is_letter
        before, after = _move(letters, 1), _move(letters, -1)
        filtered = torch.relu(self.filters(torch.cat([before, letters, after], dim=-1))) * is_letter
        is_last = is_letter & ~_move(is_letter, -1)
        last = torch.cat([_move(before * is_letter, 1), before, letters], dim=-1) * is_last

        words = (letter_ids == BOUNDARY).cumsum(-1) - 1
        num_words = _count_words(words, is_letter[..., 0])
        words = words.clamp(0, num_words - 1)[..., None]
        zeros = filtered.new_zeros(letter_ids.shape[0], num_words, filtered.shape[-1])
        pooled = zeros.scatter_reduce(1, words.expand_as(filtered), filtered, "amax")
        zeros = last.new_zeros(letter_ids.shape[0], num_words, last.shape[-1])
        endings = zeros.scatter_add(1, words.expand_as(last), last)
        zeros = variants.new_zeros(letter_ids.shape[0], num_words)  # 0 is no word, until 1 is subtracted
        of_words = zeros.scatter_add(1, words[..., 0], (variants + 1).clamp(min=0)) - 1
        return self.output_proj(pooled) + self.ending_proj(endings), of_words


def find_letters(letter_ids: Tensor, num_letters: int) -> Tensor:
    """(B, L) bool: which are letters, neither boundaries nor words in another case."""
    return (letter_ids != BOUNDARY) & (letter_ids < num_letters)


def hide_letters(letter_ids: Tensor, num_letters: int) -> Tensor:
    """The letters (B, L), each of them unknown with the probability 1/2."""
    is_hidden = torch.rand(letter_ids.shape, device=letter_ids.device) < 0.5
    return torch.where(is_hidden & find_letters(letter_ids, num_letters), UNKNOWN_LETTER, letter_ids)


def _move(values: Tensor, places: int) -> Tensor:
    """Values (B, L, D) moved to the right by one place, or to the left by one if `places` is −1, with zeros behind."""
    padded = nn.functional.pad(values, (0, 0, max(places, 0), max(-places, 0)))
    return padded[:, :-1] if places > 0 else padded[:, 1:]


def _count_words(words: Tensor, is_letter: Tensor) -> int:
    """The words of the row that has most, without those of padding; if traced, as many as there are letters.

    Args:
        words: (B, L) the word of each letter.
        is_letter: (B, L) bool, false at boundaries and padding.
    """
    return int((words * is_letter).max()) + 1 if has_values(words) else words.shape[1]


class SourceEncoder(CopyNetPreTrainedModel):
    """What every encoder of a source has: the embeddings of words, and the checks of its inputs. A new one defines
    `encode`."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.feature_embeddings = self.feature_state_proj = None
        if config.feature_vocab_size:
            self.feature_embeddings = nn.Embedding(config.feature_vocab_size, config.embedding_size)
            self.feature_state_proj = nn.Linear(config.embedding_size, config.memory_size, bias=False)  # W_h
        self.letter_encoder = LetterEncoder(config) if config.letter_vocab_size else None
        self.dropout = Dropout(config.dropout)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        input_features: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        feature_ids: Tensor | None = None,
        letter_ids: Tensor | None = None,
        encoder_input_ids: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        word_index: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
    ) -> CopyNetEncoderOutput:
        """Encodes the source.

        Args:
            input_ids: (B, S) extended ids.
            attention_mask: (B, S) 1 on words, 0 on padding, anywhere in the row. None: 0 at `pad_token_id`.
            inputs_embeds: (B, S, E) replaces the embeddings of `input_ids`; a model that copies needs both. Not over
                an encoder that reads pieces.
            input_features: (B, S, num_features) replaces words if the config says so; position j has slot j.
            token_type_ids: (B, S) with "retrieval": 0 on the question, then for each fact 1, 2, 3 on its subject,
                property and object, side by side. Other models read all of it as one text.
            feature_ids: (B, F) of a model with `feature_vocab_size`, 0 on padding; None: no features.
            letter_ids: (B, L) of a model with `letter_vocab_size`, else ignored: the letters of the words that own
                slots, each word after a 0 and, if the vocabulary has it in another case, that word
                (`vocabularies.py`); None: there are no such words.
            encoder_input_ids: (B, P) pieces, as the Transformers encoder's own tokenizer numbers them; ignored, as the
                next two, by a model without such an encoder. Pieces of facts are not read.
            encoder_attention_mask: (B, P) 1 on pieces, 0 on padding.
            word_index: (B, P) the word of each piece, counted from 0 over the row's words, wherever `input_ids` has
                padding; −1 for special pieces and padding.
            output_hidden_states: whether to return `CopyNetEncoderOutput.hidden_states`.
            output_attentions: ignored; the library passes it.

        Raises:
            ValueError: no ids or pieces, ids below 0, shapes that differ, features of a model without, no letters of
                words outside the vocabulary, points or embeddings where the model reads words, or more pieces than the
                encoder has positions.
        """
        source = SourceInputs(
            input_ids,
            attention_mask,
            inputs_embeds,
            input_features,
            token_type_ids,
            feature_ids,
            letter_ids,
            encoder_input_ids,
            encoder_attention_mask,
            word_index,
        )
        return self.encode(source, value_or_default(output_hidden_states, self.config, "output_hidden_states"))

    def encode(self, source: SourceInputs, output_hidden_states: bool) -> CopyNetEncoderOutput:
        """The encoder's own part of `forward`."""
        raise NotImplementedError

    def embed(self, ids: Tensor, slot_embeddings: Tensor | None = None) -> Tensor:
        """e(y) (B, T, E) of extended ids (B, T): a word outside the vocabulary has the embedding of UNK, unless its
        slot has one of its own.

        Args:
            slot_embeddings: (N, W, E) those of the first W slots of N sources, B / N rows side by side for each.
        """
        embeddings: Tensor = self.get_input_embeddings()(
            replace_by_unk(ids, self.config.vocab_size, self.config.unk_token_id)
        )
        if slot_embeddings is None:
            return embeddings
        slots, (sources, width, size) = ids - self.config.vocab_size, slot_embeddings.shape
        rows = torch.arange(ids.shape[0], device=ids.device) // (ids.shape[0] // sources)
        owned = rows[:, None] * width + slots.clamp(0, width - 1)
        own = slot_embeddings.reshape(-1, size).index_select(0, owned.flatten()).view_as(embeddings)
        return torch.where(((slots >= 0) & (slots < width))[..., None], own.to(embeddings.dtype), embeddings)

    def embed_slots(self, letter_ids: Tensor | None, input_ids: Tensor) -> Tensor | None:
        """For the words that own the first W slots, e(UNK), or e(y) of the same word in another case, + the letters'
        part (B, W, E); None without letters."""
        if self.letter_encoder is None:
            return None
        if letter_ids is None:
            check_no_slots(input_ids, self.config.vocab_size)
            return None
        self._check_rows("letter_ids", letter_ids, input_ids)
        added, variants = self.letter_encoder(letter_ids)
        return self.embed(torch.where(variants < 0, self.config.unk_token_id, variants)) + added

    def embed_source(self, ids: Tensor, slot_embeddings: Tensor | None, letter_ids: Tensor | None) -> Tensor:
        """e(x_j) (B, S, E) of a source's ids (B, S), as `embed`. In training, with the probability `letter_dropout`,
        each letter of a slot's word is hidden with probability 1/2: a name that looks like none in training is then
        still copied for its place in the text, and a word in capitals still looks like one. e(y_{t-1}) keeps its
        letters, which endings agree with."""
        if letter_ids is not None and slot_embeddings is not None and self.training and self.config.letter_dropout:
            is_kept = torch.rand(slot_embeddings.shape[:2], device=ids.device) >= self.config.letter_dropout
            hidden_letters = hide_letters(letter_ids, self.config.letter_vocab_size)
            hidden = cast(Tensor, self.embed_slots(hidden_letters, ids))
            slot_embeddings = torch.where(is_kept[..., None], slot_embeddings, hidden)
        return self.embed(ids, slot_embeddings)

    def embed_features(self, feature_ids: Tensor | None, input_ids: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """e(f_k) (B, F, E) of features (B, F), zero for those that are not known, and (B, F) bool: which are."""
        if feature_ids is None:
            return None, None
        if self.feature_embeddings is None:
            raise ValueError(
                "feature_ids are given, but feature_vocab_size is 0: leave them out, or train a model with features."
            )
        self._check_rows("feature_ids", feature_ids, input_ids)
        if feature_ids.shape[1] == 0:
            return None, None
        known = feature_ids.masked_fill(feature_ids >= self.config.feature_vocab_size, UNKNOWN_FEATURE)
        mask = known > UNKNOWN_FEATURE
        return self.feature_embeddings(known) * mask[..., None], mask

    def add_features(self, states: Tensor, mask: Tensor, features: Tensor | None) -> Tensor:
        """h_j + Σ_k W_h e(f_k), (B, S, D), without dropout of e(f_k); h_j stays zero where the mask (B, S) is false.

        A sum has no order, and a feature adds the same in combinations that training has not seen.
        """
        if features is None or self.feature_state_proj is None:
            return states
        return states + self.feature_state_proj(features.sum(1, keepdim=True)) * mask[..., None]

    def find_positions(self, mask: Tensor, source: SourceInputs) -> Positions:
        """What the positions hold of sources with the mask (B, S) bool, false on padding."""
        return self._split_facts(mask, self._check_token_types(source.token_type_ids, mask))

    def _split_facts(self, mask: Tensor, token_types: Tensor | None) -> Positions:
        """The positions of the question and of the facts.

        Args:
            mask: (B, S) bool, false where there is nothing to read.
            token_types: (B, S) of `_check_token_types`.
        """
        if token_types is None:
            return Positions(mask, mask)
        is_question, is_object = mask & (token_types == 0), token_types == OBJECT_TOKEN_TYPE
        copyable = torch.zeros_like(mask)
        for memory, is_position in (("question", is_question), ("facts", is_object)):
            copyable = copyable | is_position if memory in self.config.copies_from else copyable
        return Positions(is_question, copyable, is_object)

    def _make_output(
        self,
        source: SourceInputs,
        ids: Tensor,
        positions: Positions,
        states: Tensor,
        final_state: Tensor,
        *,
        slots: Tensor | None,
        facts: Tensor | None,
        hidden_states: tuple[Tensor, ...] | None,
    ) -> CopyNetEncoderOutput:
        """What `encode` returns: h_j (B, S, D), `states`, with the source's features, and what else is read of it.

        Args:
            ids: (B, S) of `_check_source`.
            final_state: (B, D), without dropout.
            slots: e(y) (B, W, E) of the words that own slots.
            facts: f_j (B, S, 3E).
        """
        features, feature_mask = self.embed_features(source.feature_ids, ids)
        return CopyNetEncoderOutput(
            last_hidden_state=self.add_features(states, positions.read, features),
            final_state=self.dropout(final_state),
            source_ids=ids,
            source_mask=positions.copyable,
            slot_embeddings=slots if self.config.copies else None,  # else no y_{t-1} is outside the vocabulary
            facts=facts,
            is_object=positions.is_object,
            is_question=None if positions.is_object is None else positions.read,
            features=None if features is None else self.dropout(features),
            feature_mask=feature_mask,
            hidden_states=hidden_states,
        )

    def _check_rows(self, name: str, ids: Tensor, input_ids: Tensor) -> None:
        """Raises ValueError unless these are ids (B, …) of the rows of input_ids (B, S)."""
        if ids.dim() != 2 or ids.shape[0] != input_ids.shape[0]:
            raise ValueError(
                f"{name} has shape {tuple(ids.shape)}, the source {tuple(input_ids.shape)}: pass both as the "
                "tokenizer returned them."
            )
        check_not_negative(name, ids)

    def _check_token_types(self, token_type_ids: Tensor | None, mask: Tensor) -> Tensor | None:
        """(B, S) token types, 0 on padding; None: the model does not tell facts apart."""
        if not self.config.mechanism.retrieves:
            return None
        if token_type_ids is None or not token_type_ids.shape[1]:  # all sources are empty
            return torch.zeros_like(mask, dtype=torch.long)
        if token_type_ids.shape != mask.shape:
            raise ValueError(
                f"token_type_ids has shape {tuple(token_type_ids.shape)}, the source {tuple(mask.shape)}: pass both "
                "as the tokenizer returned them."
            )
        return token_type_ids * mask

    def _check_source(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, inputs_embeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if input_ids is None:
            if inputs_embeds is None:
                raise ValueError("input_ids is missing: pass the source.")
            if self.config.copies:
                raise ValueError(
                    "inputs_embeds does not say which words to copy: pass input_ids as well, or use a model with "
                    "copy_mechanism='none'."
                )
            input_ids = inputs_embeds.new_full(inputs_embeds.shape[:2], self.config.unk_token_id, dtype=torch.long)
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids has shape {tuple(input_ids.shape)}: pass (rows, words).")
        if input_ids.shape[0] == 0:
            raise ValueError("the batch has no rows: pass at least one source.")
        check_not_negative("input_ids", input_ids)
        mask = input_ids != self.config.pad_token_id if attention_mask is None else attention_mask.bool()
        if input_ids.shape[1] == 0:  # empty sources: one position of padding
            input_ids = input_ids.new_full((input_ids.shape[0], 1), self.config.pad_token_id)
            mask = torch.zeros_like(input_ids, dtype=torch.bool)
        if mask.shape != input_ids.shape:
            raise ValueError(
                f"attention_mask has shape {tuple(mask.shape)}, input_ids {tuple(input_ids.shape)}: they must agree."
            )
        return replace_by_unk(input_ids, self.config.extended_vocab_size, self.config.unk_token_id), mask


class CopyNetEncoder(SourceEncoder):
    """Embeddings and bidirectional GRU layers, section 3.1."""

    def __init__(self, config: CopyNetConfig) -> None:
        super().__init__(config)
        self.feature_proj = nn.Linear(config.num_features, config.embedding_size) if config.num_features else None
        if config.num_features:
            self.main_input_name = "input_features"
        self.layers = build_layers(config)
        width, memory_size = config.embedding_size, config.memory_size
        self.residual_proj = nn.Linear(width, memory_size, bias=False) if config.encoder_residual else None  # W_x
        self.tied_repetitions = TiedRepetitions(config) if config.tie_repetitions else None
        self.gradient_checkpointing = False
        self.post_init()

    def encode(self, source: SourceInputs, output_hidden_states: bool) -> CopyNetEncoderOutput:
        """See `SourceEncoder.forward`."""
        config, input_features = self.config, source.input_features
        input_ids, inputs_embeds = source.input_ids, source.inputs_embeds
        points = self._project_points(input_features)
        if input_features is not None:
            if input_ids is not None or inputs_embeds is not None:
                raise ValueError("input_features replaces words: leave input_ids and inputs_embeds out.")
            input_ids, inputs_embeds = self._slot_ids(input_features, source.attention_mask), points
        input_ids, mask = self._check_source(input_ids, source.attention_mask, inputs_embeds)
        if inputs_embeds is not None:
            check_shape("inputs_embeds", inputs_embeds, (*input_ids.shape, config.embedding_size))
        slots = self.embed_slots(source.letter_ids, input_ids) if points is None else points
        embeddings = self.embed_source(input_ids, slots, source.letter_ids) if inputs_embeds is None else inputs_embeds
        states = self.dropout(embeddings)
        positions = self.find_positions(mask, source)
        facts, read = embed_facts(states, positions.is_object), positions.read
        if self.tied_repetitions is not None:
            partners = self.tied_repetitions.find_partners(input_ids, read)
            states = self.tied_repetitions.mark(states, partners, read)
        hidden_states: tuple[Tensor, ...] = (states,)
        final_state = states
        for layer in self.layers:
            states, final_state = layer(states, read)
            if self.tied_repetitions is not None and layer is self.layers[-1]:
                states = self.tied_repetitions.add_partners(states, partners)
            if self.residual_proj is not None and layer is self.layers[-1]:
                states = states + self.residual_proj(embeddings) * read[..., None]
            states = self.dropout(states)
            hidden_states += (states,)
        return self._make_output(
            source,
            input_ids,
            positions,
            states,
            final_state,
            slots=slots,
            facts=facts,
            hidden_states=hidden_states if output_hidden_states else None,
        )

    def _project_points(self, input_features: Tensor | None) -> Tensor | None:
        size = self.config.num_features
        if self.feature_proj is None and input_features is None:
            return None
        if self.feature_proj is None or input_features is None or input_features.shape[-1] != size:
            shape = None if input_features is None else tuple(input_features.shape)
            raise ValueError(
                f"input_features has shape {shape}, and num_features is {size}: pass (batch, positions, {size}), or "
                "input_ids if it is 0."
            )
        if input_features.shape[1] == 0:  # empty sources: one position of padding
            input_features = input_features.new_zeros(input_features.shape[0], 1, size)
        return self.feature_proj(input_features)

    def _slot_ids(self, input_features: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Ids (B, S) of positions that are no words: position j has slot j."""
        first, length = self.config.vocab_size, input_features.shape[1]
        if length > self.config.max_source_oov:
            raise ValueError(
                f"the source has {length} positions, but max_source_oov is {self.config.max_source_oov}: create "
                "the model with as many slots as the longest source has positions."
            )
        ids = torch.arange(first, first + length, device=input_features.device).expand(input_features.shape[0], -1)
        return ids if attention_mask is None else ids.masked_fill(attention_mask == 0, self.config.pad_token_id)
