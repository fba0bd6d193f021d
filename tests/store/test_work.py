"""Work is done once: found when it is done, done again when it is damaged."""

from unittest.mock import Mock, create_autospec

import pytest

from tasks.errors import ArtifactError
from tasks.settings import VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.work import run_once, work_key
from tests.store.writers import write


@pytest.fixture
def step() -> Mock:
    """A step that counts how often it runs."""
    return create_autospec(write, side_effect=write)


def test_done_work_is_found(store: Store, step: Mock) -> None:
    refs = [run_once(store.ref, "t", "1", step, "hello") for _ in range(2)]
    assert (refs[0], step.call_count) == (refs[1], 1)

    def many(store: Store, texts: list[str]) -> list[ArtifactRef]:
        return [step(store, text) for text in texts]

    both = [run_once(store.ref, "t", "1", many, ["a", "b"]) for _ in range(2)]
    assert (both[0], step.call_count) == (both[1], 3)
    (store.root / both[0][0].folder / "other.txt").unlink()
    assert (run_once(store.ref, "t", "1", many, ["a", "b"]), step.call_count) == (both[0], 5)
    (store.root / "store.json").write_text('{"schema_version": 1, "id": "of another disk"}')
    with pytest.raises(ArtifactError, match="is not here any more: it was moved"):
        run_once(store.ref, "t", "1", step, "hello")


def test_the_work_key_holds_the_inputs_that_decide_the_result_alone(store: Store, step: Mock) -> None:
    ref = ArtifactRef(kind="policy", digest="a" * 64)
    other, settings = ArtifactRef(kind="policy", digest="b" * 64), VerifySettings()
    inputs = [
        *([settings, ref, 0], [VerifySettings(deadline_seconds=3.0), ref, 0], [settings, other, 0]),
        *([settings, ref, 1], [settings, [ref], 0]),
    ]
    keys = [work_key("t", "1", one) for one in inputs]
    assert len({*keys, work_key("u", "1", inputs[0]), work_key("t", "2", inputs[0])}) == len(inputs) + 2
    assert work_key("t", "1", [VerifySettings(workers=3), ref, 0]) == keys[0]
    assert len({run_once(store.ref, "t", "1", step, "x", seed=seed) for seed in (1, 2)}) == step.call_count == 1


def test_damaged_artifacts_are_made_again(store: Store, step: Mock) -> None:
    ref = run_once(store.ref, "t", "1", step, "hello")
    (store.root / ref.folder / "sub/data.txt").write_text("hellp")
    assert (run_once(store.ref, "t", "1", step, "hello"), step.call_count) == (ref, 2)
    assert (store.path(ref) / "sub/data.txt").read_text() == "hello"
    (record,) = (store.root / "made").iterdir()
    record.write_text("{")
    assert (run_once(store.ref, "t", "1", step, "hello"), step.call_count) == (ref, 3)
