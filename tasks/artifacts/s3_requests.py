"""Requests to a bucket: tried again while what fails may pass, and explained when it does not."""

import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fsspec.asyn import sync
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_delay, wait_random_exponential

from tasks.artifacts.s3_connection import OfObject, connect, explain, first_error, lost, transient
from tasks.errors import ArtifactError, DamagedError
from tasks.logs import logger

_QUIET_ATTEMPTS = 5
"""Failures of one request before it is told."""

T = TypeVar("T")


class Requests:
    """Requests below ``s3://bucket/prefix``; every key is relative to it.

    Args:
        uri: ``s3://bucket/prefix``.
        connections: at most.
        patience: seconds for which a request that fails is tried again, and for which an answer is waited; those of
            ``MU_GRPO_S3_PATIENCE`` and of the connection without it.
    """

    def __init__(self, uri: str, connections: int, patience: float | None) -> None:
        self.uri = uri.rstrip("/")
        self._bucket, _, self._prefix = f"{self.uri.removeprefix('s3://')}/".partition("/")
        self._fs = connect(connections, patience)
        self._patience = float(os.environ.get("MU_GRPO_S3_PATIENCE", "120")) if patience is None else patience

    async def _request(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        """One attempt; ``key`` is empty for a request about the bucket."""
        of_object = {"Key": self._name(key)} if key else {}
        answer: dict[str, Any] = await self._fs._call_s3(method, Bucket=self._bucket, **of_object, **arguments)
        return answer

    async def _call(self, method: str, key: str = "", **arguments: Any) -> dict[str, Any]:
        return await self._retried(lambda: self._request(method, key, **arguments))

    async def _retried(self, operation: Callable[[], Awaitable[T]]) -> T:
        retrying = AsyncRetrying(
            retry=retry_if_exception(transient),
            wait=wait_random_exponential(multiplier=0.2, max=20),
            stop=stop_after_delay(self._patience),
            before_sleep=self._tell,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                return await operation()
        raise AssertionError("a retry ends with a result or an error")

    def _name(self, key: str) -> str:
        """The name of an object in the bucket, or the beginning of names."""
        return f"{self._prefix}{key}"

    def _run(self, key: str, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; its errors are about the object ``key`` unless they name another."""
        try:
            result: T = sync(self._fs.loop, first_error, work)
        except Exception as error:  # of whatever kind: raised again, with its object where that explains it
            of_object = error if isinstance(error, OfObject) else OfObject(key, error)
            if explained := explain(self.uri, of_object, self._patience):
                raise (DamagedError if lost(of_object.error) else ArtifactError)(explained) from of_object.error
            raise of_object.error from None
        return result

    def _tell(self, state: RetryCallState) -> None:
        """Says that a request is tried again: the first times only when asked for, later because somebody waits."""
        error = state.outcome.exception() if state.outcome else None
        level = logging.DEBUG if state.attempt_number < _QUIET_ATTEMPTS else logging.WARNING
        logger().log(
            level,
            "%s: %s; attempt %d failed, trying again for %.0f s",
            *(self.uri, error or "no answer", state.attempt_number),
            max(0.0, self._patience - (state.seconds_since_start or 0.0)),
        )
