"""Reading pairs of texts: LCSTS, your own files or the Hub, and a small made-up task that needs copying."""

from .lcsts import load_lcsts
from .pairs import load_pairs
from .records import DataFileError
from .requests import load_quickstart, quickstart_pairs

__all__ = ["DataFileError", "load_lcsts", "load_pairs", "load_quickstart", "quickstart_pairs"]
