"""Runs that a store holds: found, recorded, checked, cleared of garbage, and taken as the start of other work."""
