"""A policy becomes accuracy with intervals on held-out problems."""
