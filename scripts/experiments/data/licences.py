"""The licences of the data sets, and what they mean for a model that was trained on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataLicence:
    """What a data set's licence allows.

    Attributes:
        identifier: of the licence of a model's weights, as the Hub writes it.
        name: of the licence, where the identifier is "other".
        restriction: what the licence does not allow; None where a model may be published without further conditions.
    """

    identifier: str
    name: str | None = None
    restriction: str | None = None


_OWN = DataLicence("apache-2.0")  # made by the scripts of this repository

LICENCES = {
    "copynet-rules": _OWN,
    "copynet-dialogue": _OWN,
    "copynet-birthdays": _OWN,
    "points": _OWN,
    "nl2bash": DataLicence("mit"),
    "dbdc3": DataLicence("mit"),
    "sigmorphon2022": DataLicence("cc"),  # CC BY-SA of UniMorph, from which the triples are taken
    "lcsts": DataLicence(
        "other",
        "lcsts-research-only",
        "the pairs of LCSTS (Hu et al. 2015) are for research only, without commercial use",
    ),
    "utterance-rewriting-zh": DataLicence(
        "other",
        "no-licence-stated",
        "the dialogues of Su et al. 2019 come without a licence, so that they may be used for evaluation only",
    ),
}


def find_licence(dataset: str) -> DataLicence:
    """Looks up the licence of a data set.

    Raises:
        ValueError: it is not known.
    """
    if dataset not in LICENCES:
        raise ValueError(f"the licence of {dataset} is unknown: add it to scripts/experiments/data/licences.py")
    return LICENCES[dataset]


def check_consent(dataset: str, accepted: bool) -> None:
    """Checks that a model of this data set may be published.

    Args:
        accepted: whether the user has accepted what the licence does not allow.

    Raises:
        ValueError: it may not without consent.
    """
    licence = find_licence(dataset)
    if licence.restriction is not None and not accepted:
        raise ValueError(
            f"{licence.restriction}: give --accept_data_licence if you may publish a model trained on them; its card "
            f"will have license {licence.identifier}, license_name {licence.name}, and repeat this restriction"
        )
