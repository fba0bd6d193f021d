"""Whether a run's store can be written, from this machine and with its credentials."""

import uuid

from tasks.artifacts.places import bucket_of
from tasks.errors import ArtifactError
from tasks.preflight.findings import Finding

_PREFIX = "preflight"
_HERE = "seen from this machine, with its credentials; pods have their own"
_MEND = "Mend what it names; a store inside of the cluster: kubectl port-forward, and AWS_ENDPOINT_URL for it"


def store_check(uri: str, seconds: float) -> Finding:
    """Writes a small object below a prefix of its own, tries to write it a second time, reads it and removes it.

    Args:
        uri: of the store.
        seconds: for which a request is tried.
    """
    name = "store"
    bucket = bucket_of(uri, seconds)
    if bucket is None:
        mend = "Name a prefix of a bucket: store=s3://bucket/prefix"
        return Finding(name, "failed", f"{uri} is a folder, which no pod of a cluster reaches", mend)
    key = f"{_PREFIX}/{uuid.uuid4().hex}"
    try:
        bucket.write_new(key, b"first")
        try:
            bucket.write_new(key, b"second")
            kept = bucket.read(key)
        finally:
            bucket.delete([key])
    except (ArtifactError, ValueError) as error:  # The client's own for an endpoint that is no URL.
        message = error.message if isinstance(error, ArtifactError) else f"{uri}: {error}"
        return Finding(name, "failed", f"{message} ({_HERE})", _MEND)
    if kept != b"first":
        return Finding(
            name,
            "warning",
            f"{uri}: written, but If-None-Match is ignored: of two runs that do the same work the last one's counts",
            "Use a server that knows conditional writes, or start one run at a time",
        )
    return Finding(name, "ok", f"{uri}: written with If-None-Match, read and removed; {_HERE}")
