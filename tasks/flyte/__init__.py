"""All code that uses Flyte besides the graphs in workflows/: tasks, inputs, pods, attempts, decks and the client."""
