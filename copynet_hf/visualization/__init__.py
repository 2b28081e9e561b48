"""Copied words made visible: marked in text and HTML, and as a heatmap."""
