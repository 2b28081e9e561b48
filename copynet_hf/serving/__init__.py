"""Serving: an exported model over HTTP, without torch and Transformers."""
