"""All that knows Flyte, besides the graphs in workflows/: its tasks, their inputs, pods, attempts, decks and client."""
