"""Finished runs of a store, found by their reports."""

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.errors import DataError


def find_reports(store: Store, seed: int | None = None, algorithm: str | None = None) -> list[Manifest]:
    """Manifests of the reports, the latest first.

    Raises:
        DataError: there is none.
    """
    found = [
        manifest
        for manifest in store.manifests("report")
        if seed in (None, manifest.seed) and algorithm in (None, manifest.facts["algorithm"])
    ]
    if not found:
        named = (("seed", seed), ("algorithm", algorithm))
        wanted = ", ".join(f"{name} {value}" for name, value in named if value is not None)
        which = f"no finished run{f' with {wanted}' if wanted else ''} in this store"
        raise DataError(f"{store.ref.uri}: {which}. Run it, or name another.")
    return found
