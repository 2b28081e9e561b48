"""Trains and scores models, and stores what they score."""
