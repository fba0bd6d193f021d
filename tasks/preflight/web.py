"""Requests to servers that are no API server: bounded, and with every failure in words."""

from collections.abc import Mapping

import requests

from tasks.preflight.findings import Unknown
from tasks.preflight.reach import unreachable


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Instead of a login from this user's .netrc, which would also replace a token."""
    return request


def fetch(
    url: str, seconds: float, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> requests.Response | Unknown:
    """The answer of a server, of whatever status; or why there is none.

    Args:
        url: of http or https.
        seconds: for the connection, and for the answer.
        headers: of the request.
        method: GET or HEAD.
    """
    try:
        return requests.request(method, url, headers=headers, timeout=seconds, allow_redirects=True, auth=_as_it_is)
    except requests.RequestException as error:
        return unreachable(error, url, seconds)
