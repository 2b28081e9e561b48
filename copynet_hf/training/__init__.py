"""Training: from pairs of texts to a saved model."""
