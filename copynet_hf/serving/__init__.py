"""Serving: an exported model over HTTP, without torch and Transformers; pages to try a model in the browser."""
