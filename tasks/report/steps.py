"""The steps of a workflow as a picture: a column per stage, and a card per step, from the first to the last.

A stage's steps wait for each other from top to bottom, and a stage waits for the policy of the one before it. A report
draws the steps of its run and the time that they took, docs/mu_grpo.svg (``make graph``) what each of them runs on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.artifacts.records import Manifest
from tasks.report.drawing import Picture, Series
from tasks.report.formats import duration
from tasks.report.history import History
from tasks.report.ledger import at_work
from tasks.report.look import render

BEFORE, AFTER = "before the stages", "after the stages"
_STAGED = ("prepare_prompts", "generate", "verify", "optimize", "evaluate")
_ALTERNATING = ("prepare_prompts", "alternate", "evaluate")
_ORDER = ("prepare_benchmark", "prepare_training_set", "prepare_policy", "prepare_prompts", *_STAGED[1:4], "alternate")
"""Tasks in the order of their cards; those that are not named stand below."""
_MAPPED = ("prepare_benchmark", "generate", "evaluate")
_RUNS_ON = {
    "generate": ("engine", "orange"),
    "evaluate": ("engine", "orange"),
    "optimize": ("trainer", "blue"),
    "alternate": ("engine and trainer", "blue"),
}
"""What a task runs on in a deployment with GPUs, and its color; all others run on CPUs."""
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
    dashed: bool = False

    @classmethod
    def of_task(cls, task: str) -> "Card":
        """Return the card of a task that tells what it runs on."""
        runs_on, color = _RUNS_ON.get(task, ("CPU", "muted"))
        mapped = task in _MAPPED
        return cls(task, f"{runs_on}, per shard" if mapped else runs_on, color, mapped)


def draw(columns: Mapping[str, Sequence[Card]], title: str, *, alone: bool = False) -> str:
    """Return cards in columns as an ``<svg>`` element.

    Args:
        columns: the cards by the heading of their column.
        title: what a screen reader says first; it says the steps after it.
        alone: whether the picture is a file of its own and not a part of a page: it brings the colors of both schemes.
    """
    said = ". ".join(
        f"{heading}: {'; '.join(f'{card.name}, {card.below}' for card in cards)}" for heading, cards in columns.items()
    )
    return render("report/steps.svg.j2", columns=columns, title=title, said=said, alone=alone, ends=(BEFORE, AFTER))


def draw_run(history: History) -> Picture | None:
    """Draw the steps of a run with the time that each took, and those that an unfinished run has not made.

    None where no artifact names its task.
    """
    made = _made(history)
    last = history.manifests[history.evaluated[-1].evaluations[-1].evaluation].timings.process
    mine = {step for step, manifests in made.items() if any(one.timings.process == last for one in manifests)}
    columns: dict[str, dict[str, Card]] = {}
    shown = []
    for (stage, task), manifests in sorted(made.items(), key=lambda item: (item[0][0], _place(item[0][1]))):
        card, name, seconds = Card.of_task(task), f"stage {stage}" if stage else "", at_work(manifests)
        # Whether the process that finished the run found the step done. A pod, which runs a single step, does not know.
        found = len(mine) > 1 and (stage, task) not in mine
        columns.setdefault(name or BEFORE, {})[task] = replace(
            card,
            name=f"{task} ({len(manifests)})" if card.mapped else task,
            below=duration(seconds) + (", found" if found else ""),
            dashed=found,
        )
        shown.append(Series.of(name, task, [len(manifests)], [seconds]))
    alternates = any("alternate" in cards for cards in columns.values())
    for planned in history.planned:
        cards = columns.setdefault(f"stage {planned.number}", {})
        for task in _ALTERNATING if alternates else _STAGED:
            cards.setdefault(task, replace(Card.of_task(task), below="not made", color="muted", dashed=True))
    if not columns:
        return None
    ordered = {heading: [cards[task] for task in sorted(cards, key=_place)] for heading, cards in columns.items()}
    return Picture(draw(ordered, f"The steps of {history.algorithm}, seed {history.seed}"), shown)


def _place(task: str) -> int:
    return _ORDER.index(task) if task in _ORDER else len(_ORDER)


def _made(history: History) -> dict[tuple[int, str], list[Manifest]]:
    """Return the artifacts of every step, by its stage, which is 0 before the stages, and its task."""
    stages = _stages(history)
    made: dict[tuple[int, str], list[Manifest]] = {}
    for manifest in history.manifests.values():
        if manifest.task and manifest.task not in SHORT:
            made.setdefault((stages.get(manifest.digest, 0), manifest.task), []).append(manifest)
    return made


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
