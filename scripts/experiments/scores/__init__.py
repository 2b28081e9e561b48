"""Scores and baselines that `copynet_hf.evaluation` does not have."""
