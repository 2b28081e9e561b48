"""Configuration of an ensemble of CopyNets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig

from .confidence import read_calibration
from .configuration_copynet import CopyNetBaseConfig, CopyNetConfig

# What all members share, because they read the same ids and their probabilities are averaged word by word.
SHARED_FIELDS = (
    "vocab_size",
    "max_source_oov",
    "feature_vocab_size",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "unk_token_id",
    "decoder_start_token_id",
)
# What a config says of the file that it was read from.
_FILE_FIELDS = ("architectures", "auto_map", "custom_pipelines", "dtype", "transformers_version")


class CopyNetEnsembleConfig(CopyNetBaseConfig):
    """Configuration of a `CopyNetEnsemble`: those of its members.

    Args:
        members: the configs of the members, as objects or dicts. They may differ in sizes and mechanism.
        vocab_size, max_source_oov, feature_vocab_size: see `CopyNetConfig`; these and the special ids are the
            members'. None: taken from them.
        calibration: see `CopyNetConfig`; that of a member says nothing of the ensemble.
        letter_vocab_size: that of the members that read letters, 0 if none does; set from them.

    Raises:
        ValueError: there are no members, they disagree in what they have to share, one of them writes only words of
            its source, or they read different letters or pieces.
    """

    model_type = "copynet_ensemble"

    # Each is set when the config is made.
    members: list[CopyNetConfig] = None  # type: ignore[assignment]
    vocab_size: int = None  # type: ignore[assignment]
    max_source_oov: int = None  # type: ignore[assignment]
    feature_vocab_size: int = None  # type: ignore[assignment]
    letter_vocab_size: int = 0
    pad_token_id: int = None  # type: ignore[assignment]
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    unk_token_id: int = None  # type: ignore[assignment]
    decoder_start_token_id: int = None  # type: ignore[assignment]

    calibration: list[float] | tuple[float, float] | None = None
    use_cache: bool = True
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if not self.members:
            raise ValueError("members is empty: pass one or more configs.")
        if not isinstance(self.members, list | tuple):
            raise ValueError(f"members is {self.members!r:.100}: pass a list of configs.")
        self.members = [_read_member(number, member) for number, member in enumerate(self.members)]
        self._share_fields()
        self._check_members()
        read_calibration(self)
        super().__post_init__(**kwargs)

    def to_dict(self) -> dict[str, Any]:
        """As in the library, with each member's config as a dict."""
        output = super().to_dict()
        output["members"] = [_strip(member.to_diff_dict()) for member in self.members]
        return output

    @property
    def copies(self) -> bool:
        """Whether a member copies."""
        return any(member.copies for member in self.members)

    @property
    def retrieves(self) -> bool:
        """Whether a member reads facts."""
        return any(member.retrieves for member in self.members)

    @property
    def num_features(self) -> int:
        """0: all members read words."""
        return 0

    @property
    def piece_encoder(self) -> PreTrainedConfig | None:
        """The config of a member's Transformers encoder that reads pieces, None if no member has one."""
        return next((member.piece_encoder for member in self.members if member.piece_encoder is not None), None)

    @property
    def seq2seq(self) -> bool:
        """Whether a member is a pretrained encoder-decoder; see `CopyNetConfig`."""
        return any(member.seq2seq for member in self.members)

    def _share_fields(self) -> None:
        """Sets the fields that the members share; refuses members that differ in them."""
        first: CopyNetConfig = self.members[0]
        for name in SHARED_FIELDS:
            shared, own = getattr(first, name), getattr(self, name)
            for number, member in enumerate(self.members):
                if getattr(member, name) != shared:
                    raise ValueError(
                        f"{name} is {shared} in members[0] and {getattr(member, name)} in members[{number}]: train "
                        "the members with one tokenizer."
                    )
            if own is not None and own != shared:
                raise ValueError(f"{name} is {own}, but {shared} in the members: leave {name} out.")
            setattr(self, name, shared)

    def _check_members(self) -> None:
        """Refuses members without a vocabulary, and those that read different letters or pieces."""
        for number, member in enumerate(self.members):
            if not member.mechanism.generates:
                raise ValueError(
                    f"members[{number}] has copy_mechanism={member.copy_mechanism!r}, which has no vocabulary: leave "
                    "it out of the ensemble."
                )
        letters = {member.letter_vocab_size for member in self.members} - {0}
        if len(letters) > 1:
            raise ValueError(
                f"letter_vocab_size is {' and '.join(map(str, sorted(letters)))} in the members: train the members "
                "with one tokenizer."
            )
        self.letter_vocab_size = max(letters, default=0)
        sizes = {member.piece_encoder.vocab_size for member in self.members if member.piece_encoder is not None}
        if len(sizes) > 1:
            raise ValueError(
                f"the members' Transformers encoders have {' and '.join(map(str, sorted(sizes)))} pieces: train the "
                "members over encoders with one tokenizer."
            )


def _read_member(number: int, member: object) -> CopyNetConfig:
    """A copy of a member's config, given as an object or a dict."""
    fields = member.to_dict() if isinstance(member, PreTrainedConfig) else member
    model_type = CopyNetConfig.model_type
    if not isinstance(fields, Mapping) or fields.get("model_type", model_type) != model_type:
        raise ValueError(f"members[{number}] is {member!r:.100}: pass a CopyNetConfig or its dict.")
    return CopyNetConfig.from_dict(_strip(fields))


def _strip(fields: Mapping[str, object]) -> dict[str, object]:
    """The fields of a member's config without those of its file."""
    return {name: value for name, value in fields.items() if name not in _FILE_FIELDS}


__all__ = ["CopyNetEnsembleConfig"]
