"""Pairs of texts; here those of a small synthetic task that requires copying."""

from .assistant_requests import quickstart_pairs
from .files import DataFileError

__all__ = ["DataFileError", "quickstart_pairs"]
