"""Rollouts and verdicts become updates of the policy."""
