"""Results of checks, and reasons why a server gave no answer."""

import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

State = Literal["ok", "warning", "failed", "not tried"]
_HOST = "Check the address, and the network or VPN from this machine"


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

    def finding(self, name: str, state: State = "not tried") -> Finding:
        """Return the finding of a check that needs the answer."""
        return Finding(name, state, self.why, self.fix)


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for an answer."""

    request: float = 10.0
    """Seconds of one request."""
    all: float = 30.0
    """Seconds of all requests to the API server together."""


def checked(name: str, check: Callable[[], Finding]) -> Finding:
    """Return what a check finds; it is "not tried" if something that it needs is unknown."""
    try:
        return check()
    except Unknown as error:
        return error.finding(name)


def unreachable(error: BaseException, url: str, seconds: float) -> Unknown:
    """Return what an error of the network means.

    Args:
        error: the error as a library raised it, from or while handling the system's own error.
        url: the URL of the request.
        seconds: how long the answer was waited for.
    """
    place = urlsplit(url).netloc or url
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unknown(
                f"{place}: its TLS certificate is not accepted: {cause.verify_message}",
                "Name the authority that signed it: certificate-authority-data in the kubeconfig for the cluster, "
                "REQUESTS_CA_BUNDLE for the others",
            )
        if isinstance(cause, ssl.SSLError):
            return Unknown(
                f"{place}: no TLS connection: {cause.reason or cause}",
                "Check whether the server speaks TLS on this port: http:// and https:// are different addresses",
            )
        if isinstance(cause, TimeoutError) or getattr(cause, "errno", None) == errno.ETIMEDOUT:
            return Unknown(f"{place}: no answer within {round(seconds, 1):g} s", f"{_HOST}; a slow server: --timeout")
        if isinstance(cause, socket.gaierror):
            return Unknown(f"{place}: the host is not known", f"Check the spelling of the host. {_HOST}")
        if isinstance(cause, ConnectionRefusedError):
            return Unknown(f"{place}: the connection is refused", f"Start the server, or correct the port. {_HOST}")
    return Unknown(f"{place}: {' '.join(str(causes[-1]).split()) or type(causes[-1]).__name__}", _HOST)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
