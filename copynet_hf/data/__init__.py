"""Reading pairs of texts: LCSTS, your own files or the Hub, and a small made-up task that needs copying."""

from .lcsts import load_lcsts
from .pairs import load_pairs
from .quickstart import load_quickstart, quickstart_pairs
from .records import DataFileError

__all__ = ["DataFileError", "load_lcsts", "load_pairs", "load_quickstart", "quickstart_pairs"]
