"""The door of the step that compares the laboratory's arms."""

from tasks.artifacts import Store
from tasks.laboratory.result import LaboratoryResult
from tasks.platform import Artifact, StoreHandle, always, once, step

VERSION = "3"


@step(VERSION)
def laboratory(store: StoreHandle, part: str, studies: list[Artifact]) -> Artifact:
    """A table and a figure of one part; ``studies`` holds the runs arm by arm, and the seeds of each in order."""
    from tasks.laboratory.step import compare_arms

    return once(store, "laboratory", VERSION, compare_arms, part, studies)


@always
def close_laboratory(store: StoreHandle, result: Artifact) -> LaboratoryResult:
    """The table that a part ends with."""
    from tasks.laboratory.step import load_result

    return load_result(Store(store), result)
