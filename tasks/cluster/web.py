"""Bounded requests to registries and to Flyte, with every failure in words."""

from collections.abc import Mapping

import requests

from tasks.cluster.findings import unreachable


def _no_login(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keep a request as it is: requests would add a login from this user's .netrc, also over a token."""
    return request


def fetch(url: str, seconds: float, headers: Mapping[str, str] | None = None, method: str = "GET") -> requests.Response:
    """Return the answer of a server, of whatever status.

    Args:
        url: an address of http or https.
        seconds: how long the connection and the answer are waited for.
        headers: the headers of the request.
        method: GET or HEAD.

    Raises:
        Unknown: there is no answer.
    """
    try:
        return requests.request(method, url, headers=headers, timeout=seconds, allow_redirects=True, auth=_no_login)
    except requests.RequestException as error:
        raise unreachable(error, url, seconds) from None
