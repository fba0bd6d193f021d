"""Immutable, content-addressed outputs of steps."""

from tasks.artifacts.draft import Draft, Parents
from tasks.artifacts.records import ArtifactRef, StoreRef
from tasks.artifacts.store import Store

__all__ = ["ArtifactRef", "Draft", "Parents", "Store", "StoreRef"]
