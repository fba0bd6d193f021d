"""A process that follows a leader reads its store and leaves nothing there."""

from pathlib import Path

import pytest

from tasks.artifacts import Store
from tasks.settings import TrackerSettings
from tasks.tracking.journal import shown


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def leader(store: Store) -> Store:
    """A store in which work has begun."""
    leader = Store(store.ref, work="key")
    leader.progress.put("part", 1, lambda folder: (folder / "state").write_text("one"))
    return leader


def test_a_follower_finds_what_the_leader_saved(leader: Store) -> None:
    newest = Store(leader.ref, work="key", follows=True).progress.newest("part")
    assert newest is not None
    assert (newest[0], (newest[1] / "state").read_text()) == (1, "one")


def test_a_follower_goes_through_the_motions_and_leaves_nothing(leader: Store) -> None:
    before = files(leader.root)
    follower = Store(leader.ref, work="key", follows=True)
    filled: list[str] = []

    def fill(folder: Path) -> None:
        (folder / "state").write_text("two")
        filled.append(folder.name)

    follower.progress.put("part", 2, fill)
    follower.progress.keep_newest("part", 1)
    follower.progress.clear()
    with follower.write("policy", settings={}, parents={}, seed=0) as draft:
        (draft.path / "weights").write_text("x")
    assert draft.ref.kind == "policy"
    with shown(TrackerSettings(kind="tensorboard", run="run"), follower, "part", {}) as show:
        show("optimize", {"update": 1, "loss": 0.5})
    assert len(filled) == 1
    assert files(leader.root) == before
