"""An artifact that is being made."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tasks.artifacts.records import ArtifactRef

Parents = Mapping[str, ArtifactRef | Sequence[ArtifactRef]]


class Draft:
    """An artifact while it is written: files go below ``path``, ``phase`` times work, ``facts`` holds small results."""

    def __init__(self, path: Path, parents: Parents) -> None:
        self.path = path
        self.parents: dict[str, ArtifactRef | Sequence[ArtifactRef]] = dict(parents)
        self.facts: dict[str, Any] = {}
        self.phases: dict[str, float] = {}
        self.earlier: dict[str, float] = {}
        """Seconds by phase that earlier attempts spent on the parts that were found."""
        self.started = time.time()
        self._open: tuple[str, float] | None = None
        self._ref: ArtifactRef | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the seconds spent inside the block to the phase ``name``; phases must not be nested."""
        self._open = name, time.perf_counter()
        try:
            yield
        finally:
            self.phases, self._open = self._own(), None

    def spent(self) -> dict[str, float]:
        """Return the seconds by phase until now, with those of earlier attempts."""
        own = self._own()
        return {name: self.earlier.get(name, 0.0) + own.get(name, 0.0) for name in {**self.earlier, **own}}

    def _own(self) -> dict[str, float]:
        if self._open is None:
            return dict(self.phases)
        name, start = self._open
        return {**self.phases, name: self.phases.get(name, 0.0) + time.perf_counter() - start}

    @property
    def ref(self) -> ArtifactRef:
        """The committed artifact; valid after the ``with`` block."""
        if self._ref is None:
            raise RuntimeError("the artifact is not committed: its with block has not ended")
        return self._ref
