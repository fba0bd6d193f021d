"""Results of checks, and requests to servers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import requests

State = Literal["ok", "warning", "failed", "not tried"]
Result = tuple[State, str, str]
"""The state, what is found, and the fix."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    state: State
    found: str
    fix: str = ""


class Unknown(Exception):
    """A question to a server has no answer.

    Args:
        why: the reason.
        fix: what would bring an answer.
    """

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


def checked(name: str, check: Callable[[], Result], unknown: State = "not tried") -> Finding:
    """Return what a check finds, or a finding with the state ``unknown`` if something that it needs is not known."""
    try:
        return Finding(name, *check())
    except Unknown as error:
        return Finding(name, unknown, error.why, error.fix)


def fetch(url: str, seconds: float, headers: Mapping[str, str] | None = None, method: str = "GET") -> requests.Response:
    """Return the answer of a server, of whatever status.

    Raises:
        Unknown: there is no answer within so many seconds.
    """
    try:
        # The function keeps requests from adding a login of this user's .netrc.
        return requests.request(method, url, headers=headers, timeout=seconds, auth=lambda request: request)
    except requests.RequestException as error:
        cause: BaseException = error
        while (deeper := cause.__cause__ or cause.__context__) is not None:
            cause = deeper
        fix = "Check the address, its certificate (REQUESTS_CA_BUNDLE), the network or VPN; a slow server: --timeout"
        raise Unknown(f"{url}: {' '.join(str(cause).split())}", fix) from None
