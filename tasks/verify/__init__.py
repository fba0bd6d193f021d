"""Responses become verdicts, by math-verify in worker processes that can be killed."""
