"""Turns stored results into Markdown pages, model cards and figures."""
