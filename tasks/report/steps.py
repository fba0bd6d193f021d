"""The steps of a workflow as a picture: a column per stage, and a card per step, from the first to the last.

A stage's steps wait for each other from top to bottom, and a stage waits for the policy of the one before it. A report
draws the steps of its run and the time that they took, docs/mu_grpo.svg (``make graph``) what each of them runs on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.formats import duration
from tasks.report.drawing import Picture, Series
from tasks.report.history import History
from tasks.report.ledger import at_work
from tasks.report.look import render
from tasks.store.records import Manifest

BEFORE, AFTER = "before the stages", "after the stages"
_ORDER = (
    *("prepare_benchmark", "prepare_training_set", "prepare_policy", "prepare_prompts"),
    *("generate", "verify", "optimize", "alternate", "evaluate"),
)
"""Tasks in the order of their cards; those that are not named stand below."""
_MAPPED = ("prepare_benchmark", "generate", "evaluate")
_RUNS_ON = {
    "generate": ("engine", "orange"),
    "evaluate": ("engine", "orange"),
    "optimize": ("trainer", "blue"),
    "alternate": ("engine and trainer", "blue"),
}
"""The engine or trainer whose GPUs a task runs on, and its color; all others run on CPUs."""
SHORT = ("average",)
"""Tasks that take no time and are not drawn."""


@dataclass(frozen=True)
class Card:
    """A step as it is drawn."""

    name: str
    below: str
    color: str
    mapped: bool = False
    """Drawn as a pile, as its task is mapped over shards."""

    @classmethod
    def of_task(cls, task: str) -> "Card":
        """Return the card of a task that tells what it runs on."""
        runs_on, color = _RUNS_ON.get(task, ("CPU", "muted"))
        mapped = task in _MAPPED
        return cls(task, f"{runs_on}, per shard" if mapped else runs_on, color, mapped)


def draw(columns: Mapping[str, Sequence[Card]], title: str, *, alone: bool = False) -> str:
    """Return cards, by the heading of their column, as an ``<svg>`` element.

    A picture that stands ``alone``, in a file of its own, brings the colors of both schemes.
    """
    said = ". ".join(
        f"{heading}: {'; '.join(f'{card.name}, {card.below}' for card in cards)}" for heading, cards in columns.items()
    )
    return render("report/steps.svg.j2", columns=columns, title=title, said=said, alone=alone, ends=(BEFORE, AFTER))


def draw_run(history: History) -> Picture | None:
    """Draw the steps of a run with the time that each took; None where no artifact names its task."""
    stages = _stages(history)
    made: dict[tuple[int, str], list[Manifest]] = {}
    for manifest in history.manifests.values():
        if manifest.task and manifest.task not in SHORT:
            made.setdefault((stages.get(manifest.digest, 0), manifest.task), []).append(manifest)
    columns: dict[str, list[Card]] = {}
    series = []
    for stage, task in sorted(
        made, key=lambda key: (key[0], _ORDER.index(key[1]) if key[1] in _ORDER else len(_ORDER))
    ):
        count, seconds = len(made[stage, task]), at_work(made[stage, task])
        card, name = Card.of_task(task), f"stage {stage}" if stage else ""
        card = replace(card, name=f"{task} ({count})" if card.mapped else task, below=duration(seconds))
        columns.setdefault(name or BEFORE, []).append(card)
        series.append(Series(name, task, [count], [seconds]))
    title = f"The steps of {history.algorithm}, seed {history.seed}"
    return Picture(draw(columns, title), series) if columns else None


def _stages(history: History) -> dict[str, int]:
    """Return the stage of everything that was made in one, by digest."""
    # Rollouts and verdicts of no policy are those of the stage that comes next.
    sampled = history.of_kind("rollouts")
    found = {one.digest: len(history.stages) + 1 for one in (*sampled, *history.of_kind("verdicts"))}
    for stage in history.stages:
        found |= {one.digest: stage.number for one in (stage.policy, *stage.rollouts, *stage.verdicts)}
    for rollouts in sampled:
        found |= {prompts.digest: found[rollouts.digest] for prompts in rollouts.parents.get("prompts", [])}
    for policy in history.evaluated:
        found |= {one.evaluation.digest: policy.stage for one in policy.evaluations}
    return found
