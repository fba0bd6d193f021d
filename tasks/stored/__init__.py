"""Runs that a store holds, as the start of other work."""
