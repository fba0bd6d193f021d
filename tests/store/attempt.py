"""A training of four parts in a process of its own. It stays at one of them until a file lets it go on; a step follows.

    python -m tests.store.attempt STORE LOG PART SECONDS

PART is the one where it stays, -1 for none; a holder without a beat counts as dead after SECONDS.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow as pa

from tasks.process.interruption import save_on_sigterm
from tasks.process.provenance import EXECUTION
from tasks.store import ArtifactRef, Store, lease
from tasks.store.work import run_once
from tests.store.writers import write

ADDRESS, LOG, STAYS_AT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
lease.HEARTBEAT_SECONDS /= 20
lease.POLL_SECONDS, lease.SILENCE_SECONDS = 0.1, float(sys.argv[4])


def log(text: str) -> None:
    with LOG.open("a") as file:
        file.write(text + "\n")


@save_on_sigterm
def train(store: Store, parts: int) -> ArtifactRef:
    with store.write("rollouts", settings={}, parents={}, seed=0) as draft:
        for number in range(parts):

            def make(number: int = number) -> pa.Table:
                log(f"begun {number}")
                while number == STAYS_AT and not LOG.with_suffix(".go").exists():
                    time.sleep(0.05)
                return pa.table({"number": [number]})

            table = store.progress.table("part", number, make)
            log(f"has {number}")
            (draft.path / f"{number}.txt").write_text(str(table.to_pydict()))
    return draft.ref


ref = Store.open(ADDRESS).ref
print("made", run_once(ref, "train", "1", train, 4).digest)
run_once(ref, "next", "1", write, os.environ[EXECUTION])
