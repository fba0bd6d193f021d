"""Evaluation: the accuracy of a policy on benchmarks, with intervals, and tests that compare runs."""
