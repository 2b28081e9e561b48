"""Evaluation: metrics, scores of a model, model cards."""
