"""A workflow's graph as it is registered, and what each of its steps took in a run.

graphs.json holds the graphs; ``make graph`` reads them from what ``pyflyte package`` makes of workflows/.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from tasks.artifacts.records import Manifest
from tasks.report.history import History
from tasks.report.ledger import at_work
from tasks.settings.deployment import Image

FILE = Path(__file__).with_name("graphs.json")

Step = tuple[str, int | None]
"""A step of a workflow: its task, and its stage."""


class Node(BaseModel):
    """A node of a workflow."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    task: str
    stage: int | None = None
    """Counts from 1; an evaluation is of the stage whose policy it takes. None before the stages and after them."""
    mapped: bool = False
    """Whether it is a map task over shards."""
    image: Image
    """Of its pod, in a deployment with GPUs."""
    after: tuple[str, ...] = ()
    """The nodes that it waits for, without those that one of them waits for."""

    @property
    def step(self) -> Step:
        """What names it within its graph."""
        return self.task, self.stage


Graph = tuple[Node, ...]
"""The nodes of a workflow, each after those that it waits for."""
GRAPHS: TypeAdapter[dict[str, Graph]] = TypeAdapter(dict[str, Graph])


@dataclass(frozen=True)
class Measured:
    """What a step took."""

    seconds: float
    """During which some part of it was at work, also in earlier attempts."""
    artifacts: int
    """That it gave; of a map task, its shards."""
    found: bool
    """Whether the process that finished the run found it done."""


@cache
def graphs() -> dict[str, Graph]:
    """The graphs of the workflows that end with a report, by the workflow's name."""
    return GRAPHS.validate_json(FILE.read_bytes())


def measured_steps(history: History) -> dict[Step, Measured]:
    """Every step of a run that left an artifact."""
    made = _made(history)
    last = history.manifests[history.evaluated[-1].evaluations[-1].evaluation].timings.process
    mine = {step for step, manifests in made.items() if any(one.timings.process == last for one in manifests)}
    # A pod runs a single step: there it is not known what an execution found.
    known = len(mine) > 1
    return {
        step: Measured(at_work(manifests), len(manifests), known and step not in mine)
        for step, manifests in made.items()
    }


def graph_of(steps: Iterable[Step], planned: int = 0) -> Graph | None:
    """The graph of which these are the steps; None when there is none, as for other numbers of stages.

    Args:
        steps: of a run.
        planned: its stages, where it has not come to all of them.
    """
    steps = set(steps)
    stages = max(planned, *(stage or 0 for _, stage in steps), 0)
    for graph in graphs().values():
        if stages == max(node.stage or 0 for node in graph) and steps <= {node.step for node in graph}:
            return graph
    return None


def _made(history: History) -> dict[Step, list[Manifest]]:
    """What every step of a run gave. A step that alternates gave rollouts and verdicts beside its policy."""
    made: dict[Step, dict[str, Manifest]] = {}
    for manifest, stage in (*_evaluated(history), *_trained(history)):
        made.setdefault((manifest.task, stage), {})[manifest.digest] = manifest
    for policy in history.of_kind("policy"):
        if "policy" not in policy.parents:
            made.setdefault((policy.task, None), {})[policy.digest] = policy
    return {step: list(manifests.values()) for step, manifests in made.items()}


def _evaluated(history: History) -> Iterator[tuple[Manifest, int | None]]:
    """Evaluations and their problems, each with its stage."""
    for policy in history.evaluated:
        for one in policy.evaluations:
            evaluation = history.manifests[one.evaluation]
            yield evaluation, policy.stage or None
            for problems in evaluation.parents.get("prompts", []):
                yield history.manifests[problems], None


def _trained(history: History) -> Iterator[tuple[Manifest, int | None]]:
    """Policies, and what they learned from, each with its stage."""
    for stage in history.stages:
        for manifest in (stage.policy, *stage.rollouts, *stage.verdicts):
            yield manifest, stage.number
        for rollouts in stage.rollouts:
            for prompts in rollouts.parents.get("prompts", []):
                yield history.manifests[prompts], stage.number
