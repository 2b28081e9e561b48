"""Saved models: loading and checking them, their size in memory, generation settings, ensembles and cards."""
