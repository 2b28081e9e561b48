"""Pairs of texts: from files or the Hub, from LCSTS, and a small synthetic task that requires copying.

What reads pairs is imported when first used, as `datasets` and pandas take a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .assistant_requests import quickstart_pairs
from .records import DataFileError

if TYPE_CHECKING:
    from .pairs import load_lcsts, load_pairs

__all__ = ["DataFileError", "load_lcsts", "load_pairs", "quickstart_pairs"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".pairs", __name__), name)
