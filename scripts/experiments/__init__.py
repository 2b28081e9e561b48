"""What `scripts/reproduce.py` runs: a module for each of the paper's experiments and for each task beyond it."""
