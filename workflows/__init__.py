"""Graphs only: which step follows which."""
