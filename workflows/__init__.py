"""Graphs of steps, and nothing else."""
