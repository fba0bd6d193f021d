"""What a step shows of what it made: HTML for Flyte's decks."""
