"""A run that is killed again and again, and what that cost."""

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
"""Units that one interruption may cost: a part of a shard or of an evaluation (and greedy beside sampled responses), a
shard, a checkpoint interval."""
_SECONDS = 600


@dataclass
class KilledRun:
    """The end of a run that was killed, and what it did again."""

    moments: Counter[str] = field(default_factory=Counter)
    """Kills, by what the run had done last."""
    repeated: Counter[str] = field(default_factory=Counter)
    """Units that were complete and done again, over all attempts."""
    worst: Counter[str] = field(default_factory=Counter)
    """The most units of a kind that one attempt did again."""
    digest: str = ""
    """The digest of the final policy."""

    @property
    def kills(self) -> int:
        """The number of kills."""
        return self.moments.total()

    @property
    def within_limits(self) -> bool:
        """True if no interruption cost more than it may."""
        return all(self.worst[kind] <= limit for kind, limit in LIMITS.items())


@dataclass
class FinishedRun:
    """A run that ended well."""

    units: list[str]
    """Units of work, as ``counting`` writes them."""
    digest: str
    """The digest of the final policy."""
    output: str


def run_at_once(folders: Sequence[Path], store: str, environment: Mapping[str, str]) -> list[FinishedRun]:
    """The same run started from several folders at once, each with a home, and so a Flyte cache, of its own."""
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
    """The digest of the final policy of a run that nothing disturbs."""
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
    own = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1", **environment}
    return Program([*command, *options], own, together=True)


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
