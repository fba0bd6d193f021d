"""Verifier of responses: math-verify, tests of programs, or a user's own function.

Responses are judged in worker processes, which can be killed.
"""

from tasks.verify.verdicts import Outcome

__all__ = ["Outcome"]
