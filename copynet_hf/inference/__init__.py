"""Inference: from texts to outputs, and to where their words came from."""
