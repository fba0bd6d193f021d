"""Runs that a store holds: found, and taken as the start of other work."""
