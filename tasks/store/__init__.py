"""The store: immutable, content-addressed outputs of steps."""

from tasks.store.records import ArtifactRef, StoreRef
from tasks.store.store import Draft, Parents, Store

__all__ = ["ArtifactRef", "Draft", "Parents", "Store", "StoreRef"]
