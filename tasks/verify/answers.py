"""Finds the answer in a response: what stands in its last closed box."""

import re
from dataclasses import dataclass

# An escaped character is one token, so that the braces of \{1, 2\} do not count.
_TOKEN = re.compile(r"(?P<box>\\boxed\s*+\{)|\\.|[{}]", re.DOTALL)


@dataclass(frozen=True)
class Extracted:
    """What a response answers."""

    answer: str | None
    """The content of the last closed box; None without one."""
    shows_working: bool
    """Whether any text stands before that box; False without one."""


def extract(response: str) -> Extracted:
    r"""The content of the ``\boxed{...}`` that closes last, so of the outer one where boxes are nested.

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
