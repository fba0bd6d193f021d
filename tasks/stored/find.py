"""Finds artifacts of a store by what a user types."""

from collections.abc import Iterable

from tasks.errors import DataError
from tasks.formats import some
from tasks.store import Store
from tasks.store.layout import KINDS, Kind
from tasks.store.records import ArtifactRef
from tasks.stored.reports import find_reports

LATEST = "latest"
_FEWEST_CHARACTERS = 4
_CANDIDATES = 12


def find_artifact(store: Store, wanted: str) -> ArtifactRef:
    """Return the artifact of ``kind/digest``, whose digest may be abbreviated, or the last policy of the latest run.

    Raises:
        DataError: there is none, or more than one; candidates are named.
    """
    if wanted == LATEST:
        # Workflows give a report its evaluations in the order of stages.
        return store.manifest(find_reports(store)[0].parents["evaluations"][-1]).parents["policy"][0]
    kind = kind_of(wanted)
    found = match([ref.folder for ref in store.refs(kind)], wanted)
    return store.manifest(ArtifactRef.of(found)).ref


def find_policy(store: Store, wanted: str) -> ArtifactRef:
    """Return the policy of ``policy/digest``, whose digest may be abbreviated, or the last one of the latest run.

    Raises:
        DataError: there is none, or it is something else.
    """
    found = find_artifact(store, wanted)
    if found.kind != "policy":
        raise DataError(f"{wanted!r}: names no policy; allowed: policy/digest, or {LATEST}.")
    return found


def kind_of(wanted: str) -> Kind:
    """Return the kind in ``kind/digest``.

    Raises:
        DataError: it is none, or the digest is too short.
    """
    kind, _, digest = wanted.partition("/")
    if kind not in KINDS or not digest:
        raise DataError(
            f"{wanted!r}: names no artifact; allowed: kind/digest, as in policy/0123abcd, with one of the kinds "
            f"{', '.join(KINDS)}; or {LATEST}, the last policy of the latest run."
        )
    if len(digest) < _FEWEST_CHARACTERS:
        raise DataError(f"{wanted!r}: give at least {_FEWEST_CHARACTERS} characters of the digest.")
    return kind


def match(names: Iterable[str], wanted: str) -> str:
    """Return the one of some artifacts that ``kind/digest`` names, whose digest may be abbreviated.

    Raises:
        DataError: there is none, or more than one; candidates are named.
    """
    kind = kind_of(wanted)
    candidates = sorted(name for name in names if name.startswith(f"{kind}/"))
    # Folders have 16 characters of a digest; somebody may have copied all of it.
    found = [name for name in candidates if name.startswith(wanted[: len(kind) + 17])]
    if len(found) > 1:
        raise DataError(f"{wanted!r}: names {len(found)} artifacts: {some(found, _CANDIDATES)}. Give more characters.")
    if not found:
        here = some(candidates, _CANDIDATES) if candidates else f"no {kind}"
        raise DataError(f"{wanted!r}: no such artifact in this store. There is {here}.")
    return found[0]
