"""Runs that are killed repeatedly, and the work that they repeat."""

import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tasks.store import Store
from tools.forked import Program
from tools.runs import CONFIG

WORKFLOW = "mu_grpo_2"
OVERRIDES = (
    "policy.tiny.warm_start.working_updates=40 policy.tiny.warm_start.guessing_updates=20 "
    "rollout.responses_per_part=128 evaluate.responses_per_part=100 operation.updates_per_checkpoint=2"
)
LIMITS = {"generate": 128, "evaluate": 128, "verify": 512, "update": 2}
"""Largest number of units that one interruption may cost, by kind: a part of a shard or of an evaluation, with its
greedy responses; a shard; a checkpoint interval."""
_SECONDS = 600


@dataclass
class KilledRun:
    """The result of a run with kills, with its repeated work."""

    moments: Counter[str] = field(default_factory=Counter)
    """Number of kills, by the kind of the last complete unit."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Number of complete units that were repeated, by kind, over all attempts."""
    worst: Counter[str] = field(default_factory=Counter)
    """Largest number of units that one attempt repeated, by kind."""
    digest: str = ""
    """The digest of the final policy."""

    @property
    def kills(self) -> int:
        """Number of kills."""
        return self.moments.total()

    @property
    def within_limits(self) -> bool:
        """True if no attempt repeated more units than ``LIMITS`` allows."""
        return all(self.worst[kind] <= limit for kind, limit in LIMITS.items())


@dataclass
class FinishedRun:
    """A run that succeeded."""

    units: list[str]
    """Lines of the log of ``counting``."""
    digest: str
    """The digest of the final policy."""
    output: str


def run_at_once(folders: Sequence[Path], store: str, environment: Mapping[str, str]) -> list[FinishedRun]:
    """Start the same run from several folders at once. Each folder has its own home, and so its own Flyte cache."""
    logs = [folder / "units.log" for folder in folders]
    pairs = zip(folders, logs, strict=True)
    processes = [_start(folder, store, environment, log) for folder, log in pairs]
    ended = [process.end(_SECONDS) for process in processes]
    for one in ended:
        assert one.returncode == 0, one.stdout
    digest = _final_policy(store, environment)
    units = [log.read_text().splitlines() if log.exists() else [] for log in logs]
    return [FinishedRun(done, digest, one.stdout) for done, one in zip(units, ended, strict=True)]


def run_undisturbed(folder: Path, store: str, environment: Mapping[str, str]) -> str:
    """Return the digest of the final policy of an undisturbed run."""
    return run_at_once([folder], store, environment)[0].digest


def run_with_kills(
    folder: Path,
    store: str,
    environment: Mapping[str, str],
    times: int,
    seed: int,
    how: Sequence[signal.Signals] = (signal.SIGKILL,),
) -> KilledRun:
    """Kills the run ``times`` times, with these signals in turn, and lets it end then.

    A kill comes after a random number of units and a random moment.
    """
    random = np.random.default_rng(seed)
    result, before = KilledRun(), Counter[str]()
    for attempt in range(times + 1):
        log = folder / f"attempt-{attempt}.log"
        process = _start(folder, store, environment, log)
        if attempt < times:
            _wait_for(log, int(random.integers(1, 4)), process)
            time.sleep(float(random.uniform(0, 0.4)))
            process.send(how[attempt % len(how)], to_all=True)
        done = process.end(_SECONDS)
        ended = done.returncode == 0
        lines = log.read_text().splitlines() if log.exists() else []
        if not ended:
            assert attempt < times, done.stdout
            result.moments[lines[-1].split()[0] if lines else "start"] += 1
        again: Counter[str] = Counter()
        for line in lines:
            kind, _, amount = line.split()
            if kind in LIMITS and before[line]:
                again[kind] += int(amount)
            before[line] += 1
        result.repeated += again
        result.worst |= again
        if ended:
            break
    result.digest = _final_policy(store, environment)
    return result


def _start(folder: Path, store: str, environment: Mapping[str, str], log: Path) -> Program:
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    command = ["-m", "tools.faults.counting", str(log), "run", "workflows/mu_grpo.py", WORKFLOW]
    options = ["--inputs-file", str(CONFIG), "--store", store, "--overrides", OVERRIDES]
    variables = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1", **environment}
    return Program([*command, *options], variables, together=True)


def _wait_for(log: Path, units: int, process: Program) -> None:
    for _ in range(_SECONDS * 50):
        if process.returncode is not None or (log.exists() and log.read_text().count("\n") >= units):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{log}: no {units} units in {_SECONDS} s")


def _final_policy(store: str, environment: Mapping[str, str]) -> str:
    with patch.dict(os.environ, environment):
        policies = Store.open(store, create=False).manifests("policy")
    return max(policies, key=lambda policy: policy.facts["stage"]).digest
