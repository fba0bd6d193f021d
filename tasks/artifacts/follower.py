"""The store of a process that works beside a leader: it reads as the leader does, and discards what it writes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.artifacts.draft import Draft, Parents
from tasks.artifacts.progress import Progress
from tasks.artifacts.records import ArtifactRef, Kind, StoreRef
from tasks.artifacts.staging import staged
from tasks.artifacts.store import Store
from tasks.settings.base import Settings


class FollowerStore(Store):
    """A store of which only the leader's copy changes; both make the same calls."""

    def __init__(self, ref: StoreRef, work: str) -> None:
        super().__init__(ref, work=work)
        self.progress = _FollowerProgress(self, work)

    @contextmanager
    def write(
        self,
        kind: Kind,
        *,
        settings: Mapping[str, Any] | Settings,  # noqa: ARG002 - as in Store
        parents: Parents,
        seed: int,  # noqa: ARG002 - as in Store
    ) -> Iterator[Draft]:
        """A draft that becomes nothing; its ``ref`` names no artifact."""
        with staged(self.root) as staging:
            draft = Draft(staging, parents)
            yield draft
            draft._ref = ArtifactRef(kind=kind, digest="")


class _FollowerProgress(Progress):
    def put(self, name: str, number: int, fill: Callable[[Path], None]) -> None:  # noqa: ARG002 - as in Progress
        with staged(self._store.root) as staging:
            fill(staging)

    def keep_newest(self, name: str, count: int) -> None:
        pass

    def clear(self) -> None:
        pass

    def _delete(self, place: str) -> None:
        pass
