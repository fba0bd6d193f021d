"""A check that a run's store can be written from this machine, with its credentials."""

import uuid

from tasks.artifacts.places import bucket_of
from tasks.cluster.findings import Finding
from tasks.errors import ArtifactError

_PREFIX = "preflight"
_HERE = "seen from this machine, with its credentials; pods have their own"
_FIX = "Correct what it names; for a store inside of the cluster: kubectl port-forward, and AWS_ENDPOINT_URL for it"


def store_check(uri: str, seconds: float) -> Finding:
    """Write a small object below a prefix of its own, try to write it a second time, read it and remove it.

    Args:
        uri: the store.
        seconds: how long a request is tried.
    """
    name = "store"
    bucket = bucket_of(uri, seconds)
    if bucket is None:
        fix = "Name a prefix of a bucket: store=s3://bucket/prefix"
        return Finding(name, "failed", f"{uri} is a folder, which no pod of a cluster reaches", fix)
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
        return Finding(name, "failed", f"{message} ({_HERE})", _FIX)
    if kept != b"first":
        return Finding(
            name,
            "warning",
            f"{uri}: written, but If-None-Match is ignored: of two runs that do the same work the last one's counts",
            "Use a server that knows conditional writes, or start one run at a time",
        )
    return Finding(name, "ok", f"{uri}: written with If-None-Match, read and removed; {_HERE}")
