"""Immutable, content-addressed outputs of steps."""

from tasks.artifacts.records import ArtifactRef, StoreRef
from tasks.artifacts.store import Draft, Parents, Store

__all__ = ["ArtifactRef", "Draft", "Parents", "Store", "StoreRef"]
