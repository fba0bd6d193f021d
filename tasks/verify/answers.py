"""Finds the answer in a response: what stands in its last closed box, or its last block of Python."""

import re
from dataclasses import dataclass

# An escaped character is one token, so that the braces of \{1, 2\} do not count.
_TOKEN = re.compile(r"(?P<box>\\boxed\s*+\{)|\\.|[{}]", re.DOTALL)
_FENCE = re.compile(r"^```([^\n`]*)$", re.MULTILINE)
_PYTHON = ("python", "python3", "py")


@dataclass(frozen=True)
class Extracted:
    """The answer that was found in a response."""

    answer: str | None
    """The content of the last closed box or block; None without one."""
    shows_working: bool
    """Whether any text stands before it; False without one."""


def extract(response: str) -> Extracted:
    r"""Find the content of the ``\boxed{...}`` that closes last, which is the outer one where boxes are nested.

    Takes time linear in the length of the response and raises nothing, whatever the text. A box that never closes, as
    in a truncated response, is no box; those inside and before it count.
    """
    if r"\boxed" not in response:
        return Extracted(None, False)
    opened: list[tuple[int, int] | None] = []  # start of the box and of its content; None for a plain brace
    start = content = end = -1
    for token in _TOKEN.finditer(response):
        text = token.group()
        if text == "}" and opened:
            if box := opened.pop():
                (start, content), end = box, token.start()
        elif text == "{":
            opened.append(None)
        elif token["box"]:
            opened.append(token.span())
    if start < 0:
        return Extracted(None, False)
    return Extracted(response[content:end], bool(response[:start].strip()))


def extract_program(response: str) -> Extracted:
    """Find the last closed block of Python, between a line ```` ```python ```` and the next line of a fence.

    A block in another language, or in none that is named, is no answer; nor is one that never closes, as in a truncated
    response. Takes time linear in the length of the response.
    """
    start = content = end = -1
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(response):
        if opened is None:
            opened = fence
            continue
        if opened[1].strip().lower() in _PYTHON and not fence[1].strip():
            start, content, end = opened.start(), opened.end() + 1, fence.start()
        opened = None if not fence[1].strip() else fence
    if start < 0:
        return Extracted(None, False)
    return Extracted(response[content:end], bool(response[:start].strip()))
