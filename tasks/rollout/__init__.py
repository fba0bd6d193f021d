"""Generation: an engine samples responses to prompts, with their log-probabilities."""
