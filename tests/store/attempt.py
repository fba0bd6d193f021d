"""An attempt at a training of four parts in a process of its own; it stays at one of them until it is told to go on."""

import sys
import time
from pathlib import Path

import pyarrow as pa

from tasks.interruption import heeding
from tasks.store import ArtifactRef, Store, lease
from tasks.store.work import once

lease.BEAT, lease.LOOK, lease.TAKEN_OVER_AFTER = 0.5, 0.2, 8.0
ADDRESS, LOG, HELD_AT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])


def told(text: str) -> None:
    with LOG.open("a") as file:
        file.write(text + "\n")


@heeding
def train(store: Store, parts: int) -> ArtifactRef:
    with store.write("rollouts", settings={}, parents={}, seed=0) as draft:
        for number in range(parts):

            def make(number: int = number) -> pa.Table:
                told(f"begun {number}")
                while number == HELD_AT and not LOG.with_suffix(".go").exists():
                    time.sleep(0.05)
                return pa.table({"number": [number]})

            table = store.progress.table("part", number, make)
            told(f"has {number}")
            (draft.path / f"{number}.txt").write_text(str(table.to_pydict()))
    return draft.ref


print("made", once(Store.open(ADDRESS).ref, "train", "1", train, 4).digest)
