"""Evaluation: the accuracy of a policy on held-out problems, with intervals."""
