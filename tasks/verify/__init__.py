"""Responses become verdicts: by math-verify, by tests of programs, or by a function of the user's own.

Judging happens in worker processes, which can be killed.
"""

from tasks.verify.verdicts import Outcome

__all__ = ["Outcome"]
