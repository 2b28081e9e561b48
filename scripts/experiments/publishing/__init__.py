"""Publishes trained models on the Hub."""
