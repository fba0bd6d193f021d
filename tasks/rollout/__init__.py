"""Prompts become responses with behavior log-probabilities."""
