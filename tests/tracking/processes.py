"""The end of a stage in a process of its own: it trains, evaluates and reports, unless it is killed before.

    python -m tests.tracking.processes STORE KIND KILL POLICY HELD_OUT VERDICTS ROLLOUTS...

KILL is the update in which the process kills itself; 0 is none. It prints which trackers' packages are loaded, first
after a tracker that is off, then at the end.
"""

import os
import signal
import sys
from typing import Any

from tasks import tracking
from tasks.evaluate.metrics import average_evaluations
from tasks.evaluate.step import evaluate_policy
from tasks.report.step import write_report
from tasks.settings import OperationSettings, TrackerSettings
from tasks.store import ArtifactRef, Store
from tasks.store.work import run_once
from tasks.train.stage import optimize_stage
from tasks.train.trainer import Trainer
from tests.prepared import EVALUATE, OPTIMIZE, VERIFY


def die_in_update(number: int) -> None:
    whole = Trainer._update

    def update_or_die(trainer: Trainer, *inputs: Any) -> dict[str, Any]:
        if trainer.updates + 1 == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(trainer, *inputs)

    Trainer._update = update_or_die


def loaded() -> None:
    print("loaded:", *sorted({"wandb", "tensorboard"} & sys.modules.keys()), flush=True)


def main() -> None:
    place, kind, kill, *named = sys.argv[1:]
    store = Store.open(place)
    policy, held_out, verdicts, *rollouts = (store.manifest(ArtifactRef.of(name)).ref for name in named)
    with tracking.open_tracker(TrackerSettings(), store, "part", {}) as show:
        show("optimize", {"update": 1, "reward": 0.5})
    loaded()
    tracking.FLUSH_SECONDS = 0.0
    operation = OperationSettings.parse({"updates_per_checkpoint": 2, "tracker": {"kind": kind, "run": "a-run"}})
    inputs = OPTIMIZE, policy, policy, rollouts, verdicts, 0, 0
    die_in_update(int(kill))
    made = run_once(store.ref, "optimize", "1", optimize_stage, *inputs, operation=operation)
    averages = []
    for one in (policy, made):
        found = evaluate_policy(store, EVALUATE, VERIFY, one, held_out, 0, operation)
        averages.append(average_evaluations(store, one, [found], 0))
    print(made.digest, write_report(store, averages, 0))
    loaded()


if __name__ == "__main__":
    main()
