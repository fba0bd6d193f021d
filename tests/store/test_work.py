"""Work is done once: found when it is done, done again when it is damaged.

test_lease.py has two processes at once, and tests/faults/test_flaky_server.py has another machine.
"""

from tasks.settings import OperationSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.work import run_once, work_key
from tests.store.writers import write


class Step:
    """A step that counts how often it runs."""

    def __init__(self) -> None:
        self.runs = 0

    def one(self, store: Store, text: str, operation: OperationSettings | None = None) -> ArtifactRef:
        self.runs += 1
        return write(store, text)

    def many(self, store: Store, texts: list[str]) -> list[ArtifactRef]:
        return [self.one(store, text) for text in texts]


def test_done_work_is_found(store: Store) -> None:
    step = Step()
    refs = [run_once(store.ref, "t", "1", step.one, "hello") for _ in range(2)]
    assert (refs[0], step.runs) == (refs[1], 1)
    both = [run_once(store.ref, "t", "1", step.many, ["a", "b"]) for _ in range(2)]
    assert (both[0], step.runs) == (both[1], 3)


def test_the_work_key_holds_the_inputs_that_decide_the_result_alone(store: Store) -> None:
    ref = ArtifactRef(kind="policy", digest="a" * 64)
    other, settings = ArtifactRef(kind="policy", digest="b" * 64), VerifySettings()
    inputs = [
        *([settings, ref, 0], [VerifySettings(deadline_seconds=3.0), ref, 0], [settings, other, 0]),
        *([settings, ref, 1], [settings, [ref], 0]),
    ]
    keys = [work_key("t", "1", one) for one in inputs]
    assert len({*keys, work_key("u", "1", inputs[0]), work_key("t", "2", inputs[0])}) == len(inputs) + 2
    assert work_key("t", "1", [VerifySettings(workers=3), ref, 0]) == keys[0]
    step = Step()
    for every in (1, 2):
        run_once(store.ref, "t", "1", step.one, "x", operation=OperationSettings(updates_per_checkpoint=every))
    assert step.runs == 1


def test_damaged_artifacts_are_made_again(store: Store) -> None:
    step = Step()
    ref = run_once(store.ref, "t", "1", step.one, "hello")
    (store.root / ref.folder / "sub/data.txt").write_text("hellp")
    assert run_once(store.ref, "t", "1", step.one, "hello") == ref
    assert step.runs == 2
    assert (store.path(ref) / "sub/data.txt").read_text() == "hello"
    (record,) = (store.root / "made").iterdir()
    record.write_text("{")
    run_once(store.ref, "t", "1", step.one, "hello")
    assert step.runs == 3
