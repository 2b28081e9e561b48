"""Evaluation: metrics, the scores of a model, model cards."""
