"""Responses become verdicts: mathematics by math-verify, programs by tests, in processes that can be killed."""
