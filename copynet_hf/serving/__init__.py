"""Serving: an exported model over HTTP, without torch; pages to try a model in the browser."""
