"""Evaluation: metrics, and the scores of a model."""
