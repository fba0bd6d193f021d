"""Prompts: training sets and benchmarks from files, the hub or generated arithmetic."""
