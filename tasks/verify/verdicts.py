"""Outcomes and verdicts, and the answer in a response: its last closed box, or its last block of Python code."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

# An escaped character is one token, so that the braces of \{1, 2\} do not count. All alternatives begin with a
# literal, because re then skips other characters fast.
_TOKEN = re.compile(r"\\(?:(?P<box>boxed\s*+\{)|.)|\{|\}", re.DOTALL)
_SPACE = r"(?:[\s$*~]|\\[()\[\] ,;:]|\\q?quad(?![a-zA-Z]))*+"
_BETWEEN = re.compile(rf"{_SPACE}(?:[,;]|(?:,{_SPACE})?(?:and|or|\\text\s*\{{\s*(?:and|or)\s*\}})){_SPACE}")
_FENCE = re.compile(r"^```([^\n`]*)$", re.MULTILINE)
_PYTHON = ("python", "python3", "py")


class Outcome(StrEnum):
    """The way in which the check of a response ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    """The response has no closed box or block, its content is too long, or the content of a box is not mathematics; or
    a user's function returned None."""
    GOLD_UNPARSABLE = "gold_unparsable"
    """The gold answer cannot be read. It is read only if the response has an answer."""
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The worker died or reached its memory limit, math-verify or the user's function raised, or the function returned
    an invalid reward. A program that crashes is ``wrong``, not ``crashed``."""
    MISSING = "missing"
    """There is no response: it could not be generated."""


FAILURES = (Outcome.TIMEOUT, Outcome.CRASHED)
_REWARDS = {Outcome.CORRECT: 1.0, Outcome.WRONG: 0.0, Outcome.NO_ANSWER: 0.0}


class Extracted(NamedTuple):
    """The content of the last closed box or block of a response, or of a list of boxes, and if there is text before it.

    Both are None for a response that a user's function judges, as a whole.
    """

    answer: str | None = None
    shows_working: bool | None = False


class Judgement(NamedTuple):
    """The outcome of a response, as a judge returns it."""

    outcome: Outcome
    reward: float | None = None
    """The number that a user's function returned; None where the reward follows from the outcome."""
    error: str | None = None
    """The traceback of a function that raised, or how its process ended."""


@dataclass(frozen=True)
class Verdict:
    """The outcome and reward of a response, and the answer that was extracted from it."""

    outcome: Outcome
    reward: float | None
    """The number that a user's function returned; else 1 if correct, 0 if wrong or without an answer. None where the
    verifier could not judge."""
    extracted: str | None
    shows_working: bool | None

    @classmethod
    def of(cls, judgement: Judgement, extracted: Extracted) -> "Verdict":
        """Return the verdict for a judgement."""
        outcome, reward, _ = judgement
        return cls(outcome, _REWARDS.get(outcome) if reward is None else reward, *extracted)


def extract(response: str) -> Extracted:
    r"""Find the content of the ``\boxed{...}`` that closes last; of nested boxes, that is the outer one.

    Boxes with only a comma, a semicolon, "and" or "or" between them are a list: ``\boxed{2} and \boxed{3}`` is 2, 3.

    The time is linear in the length of the response, and no text raises an error. A box that never closes, as in a
    truncated response, is ignored; boxes inside and before it count.
    """
    before, box_word, _ = response.partition(r"\boxed")
    if not box_word:
        return Extracted()
    opened: list[tuple[int, int] | None] = []  # start of the box and of its content; None for a plain brace
    boxes: list[tuple[int, int, int]] = []
    # Braces before the first box open and close none; the backslashes before it tell whether it is one.
    for token in _TOKEN.finditer(response, len(before.rstrip("\\"))):
        text = token.group()
        if text == "}" and opened:
            if box := opened.pop():
                if not (boxes and _BETWEEN.fullmatch(response, boxes[-1][2] + 1, box[0])):
                    boxes = []
                boxes.append((*box, token.start()))
        elif text == "{":
            opened.append(None)
        elif token["box"]:
            opened.append(token.span())
    return _cut(response, boxes)


def extract_program(response: str) -> Extracted:
    """Find the last closed block of Python code, between a line ```` ```python ```` and the next line of a fence.

    A block that names another language, or no language, is not an answer. A block that never closes, as in a truncated
    response, is not an answer either. The time is linear in the length of the response.
    """
    last, opened = [], None
    for fence in _FENCE.finditer(response):
        if opened and opened[1].strip().lower() in _PYTHON and not fence[1].strip():
            last = [(opened.start(), opened.end() + 1, fence.start())]
        opened = fence
    return _cut(response, last)


def _cut(response: str, parts: list[tuple[int, int, int]]) -> Extracted:
    if not parts:
        return Extracted()
    answer = ", ".join(response[content:end] for _, content, end in parts)
    return Extracted(answer, bool(response[: parts[0][0]].strip()))
