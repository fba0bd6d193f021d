"""Predict the time and price of a run on a cluster, and check that the run can start there (preflight)."""
