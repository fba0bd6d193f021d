"""Verification: verdicts on responses, by math-verify, by tests of programs, or by a function of the user.

Responses are judged in worker processes, which are killed at a deadline.
"""

from tasks.verify.verdicts import Outcome

__all__ = ["Outcome"]
