"""The finished runs of a reproduction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.artifacts import ArtifactRef, Store
from tasks.report.history import History, load_finished
from tasks.report.ledger import Ledger, make_ledger
from tasks.reproduce.sampled import Sampled, read_sampled


@dataclass(frozen=True)
class SystemRun:
    """A run, and which of a reproduction's it is."""

    model: str
    system: str
    seed: int
    history: History
    ledger: Ledger
    sampled: Sampled | None = None
    """Its responses; None before its first stage."""

    @property
    def name(self) -> str:
        """``tiny, mu_grpo, seed 0``."""
        return f"{self.model}, {self.system}, seed {self.seed}"


def load_run(store: Store, model: str, system: str, seed: int, report: ArtifactRef) -> SystemRun:
    """A run by its report.

    Raises:
        ArtifactError: an artifact of the run is missing or corrupted.
    """
    history = replace(load_finished(store, store.manifest(report)), seed=seed)
    return SystemRun(model, system, seed, history, make_ledger(history), read_sampled(store, history))


def of_system(runs: Sequence[SystemRun], model: str, system: str) -> list[SystemRun]:
    """The runs of a system with a model, seed by seed."""
    found = [run for run in runs if (run.model, run.system) == (model, system)]
    return sorted(found, key=lambda run: run.seed)
