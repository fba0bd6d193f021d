"""A training of four parts in a process of its own. It stays at one of them until a file lets it go on; a step follows.

    python -m tests.store.attempt STORE LOG PART SECONDS

PART is the one where it stays, -1 for none; a holder without a beat counts as dead after SECONDS. LOG gets a line for
every part that it begins, and none for the parts that it finds.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow as pa

from tasks.process.interruption import save_on_sigterm
from tasks.process.provenance import EXECUTION
from tasks.store import Store, lease
from tasks.store.work import run_once
from tests.faults.steps import Step
from tests.store.writers import write

ADDRESS, LOG, STAYS_AT = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
lease.HEARTBEAT_SECONDS /= 20
lease.POLL_SECONDS, lease.SILENCE_SECONDS = 0.1, float(sys.argv[4])


class Training(Step):
    def make(self, number: int) -> pa.Table:
        with LOG.open("a") as file:
            file.write(f"begun {number}\n")
        while number == STAYS_AT and not LOG.with_suffix(".go").exists():
            time.sleep(0.05)
        return super().make(number)


ref = Store.open(ADDRESS).ref
print("made", run_once(ref, "train", "1", save_on_sigterm(Training())).digest)
run_once(ref, "next", "1", write, os.environ[EXECUTION])
