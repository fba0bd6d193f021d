"""Training sets, benchmarks and prompts, from files, the hub or generated arithmetic."""
