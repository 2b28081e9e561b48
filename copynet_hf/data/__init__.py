"""Pairs of texts: from files or the Hub, from LCSTS, and a small synthetic task that requires copying."""

from .assistant_requests import quickstart_pairs
from .pairs import load_lcsts, load_pairs
from .records import DataFileError

__all__ = ["DataFileError", "load_lcsts", "load_pairs", "quickstart_pairs"]
