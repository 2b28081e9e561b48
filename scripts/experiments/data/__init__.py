"""Data sets: rows with a source `text`, its reference `summary`, and what the scores of an experiment need."""
