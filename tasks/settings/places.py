"""Where files are: here, or in a bucket. An address of another kind would be taken for a folder's name."""

import re
from typing import Annotated

from pydantic import AfterValidator

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}|arn:.+")
"""Buckets as clients take them; servers allow less."""
STORES = "a folder, or s3://bucket/prefix"
"""Places of a store, for messages."""


def in_bucket(text: str) -> bool:
    """Whether a text names a bucket, or something in one."""
    bucket, _, _ = text.removeprefix("s3://").partition("/")
    return text.startswith("s3://") and _BUCKET.fullmatch(bucket) is not None


def is_place(text: str) -> bool:
    """Whether a text names something here, or in a bucket."""
    return in_bucket(text) or (bool(text.strip()) and _ADDRESS.match(text) is None)


def _place(allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        if not is_place(text):
            raise ValueError(f"no place that is known; allowed: {allowed}")
        return text

    return AfterValidator(check)


StorePlace = Annotated[str, _place(STORES)]
FilePlace = Annotated[str, _place("a file or a folder, here or at s3://bucket/key")]
ModelPlace = Annotated[str, _place("a folder, s3://bucket/prefix, or the name of a model on the Hugging Face hub")]
