"""What a check found, and what is to be done about it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failed", "not tried"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: a line of the table."""

    name: str
    state: State
    found: str
    mend: str = ""


@dataclass(frozen=True)
class Unknown:
    """An answer that there is none of: why, and what would bring one."""

    why: str
    mend: str = ""

    def of(self, name: str, state: State = "not tried") -> Finding:
        """The finding of a check that needs the answer."""
        return Finding(name, state, self.why, self.mend)


def judged(name: str, found: str, wrong: Sequence[tuple[str, str]]) -> Finding:
    """Failed with everything that is wrong, each with its mend; ok with what was found when nothing is."""
    if not wrong:
        return Finding(name, "ok", found)
    return Finding(name, "failed", listed(what for what, _ in wrong), listed(mend for _, mend in wrong))


def listed(texts: Iterable[str]) -> str:
    """Different texts once each, in their order."""
    return "; ".join(dict.fromkeys(text for text in texts if text))
