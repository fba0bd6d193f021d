"""Why a server did not answer, in words; the same for the API server, a registry and Flyte."""

import errno
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tasks.preflight.findings import Unknown

_HOST = "Check the address, and the network or VPN from this machine"


@dataclass(frozen=True)
class Patience:
    """How long is waited for an answer."""

    request: float = 10.0
    """Seconds, of one request."""
    all: float = 30.0
    """Seconds, of all requests to one server together."""


def unreachable(error: BaseException, url: str, seconds: float) -> Unknown:
    """What an error of the network means.

    Args:
        error: as a library raised it, from or while handling the system's own.
        url: of the request.
        seconds: that were waited.
    """
    place = urlsplit(url).netloc or url
    causes = list(_causes(error))
    if tls := next((one for one in causes if isinstance(one, ssl.SSLError)), None):
        return _tls(tls, place)
    for cause in causes:
        if isinstance(cause, TimeoutError) or getattr(cause, "errno", None) == errno.ETIMEDOUT:
            return Unknown(f"{place}: no answer within {round(seconds, 1):g} s", f"{_HOST}; a slow server: --timeout")
        if isinstance(cause, socket.gaierror):
            return Unknown(f"{place}: no such host is known here", f"Check the host's name for a misprint. {_HOST}")
        if isinstance(cause, ConnectionRefusedError):
            return Unknown(f"{place}: the connection is refused", f"Start the server, or mend the port. {_HOST}")
    return Unknown(f"{place}: {_last(causes)}", _HOST)


def _tls(error: ssl.SSLError, place: str) -> Unknown:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unknown(
            f"{place}: its TLS certificate is not accepted: {error.verify_message}",
            "Name the authority that signed it: certificate-authority-data in the kubeconfig for the cluster, "
            "REQUESTS_CA_BUNDLE for the others",
        )
    return Unknown(
        f"{place}: no TLS connection: {error.reason or error}",
        "Check whether the server speaks TLS on this port: http:// and https:// are different addresses",
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _last(causes: list[BaseException]) -> str:
    text = " ".join(str(causes[-1]).split())
    return text or type(causes[-1]).__name__
