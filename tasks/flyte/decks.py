"""Decks of steps: what a step made, or how it ended, in Flyte's console."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from flytekit import Deck, FlyteContextManager, current_context
from flytekit.core.context_manager import ExecutionParameters

from tasks.artifacts import ArtifactRef, Store, StoreRef
from tasks.errors import UserError
from tasks.flyte.attempts import in_pod
from tasks.logs import logger
from tasks.settings.base import Settings


def in_group() -> bool:
    """Whether this process was started by Elastic, as one of several that do a step together."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def begin() -> None:
    """Forgets what other tasks of this process have shown: ``pyflyte run`` gives all of them one list."""
    _begin(current_context())


@lru_cache(maxsize=1)
def _begin(parameters: ExecutionParameters) -> None:
    parameters.decks.clear()  # Each task has parameters of its own.


def show(store: StoreRef, task: str, made: ArtifactRef | Sequence[ArtifactRef], started: float) -> None:
    """Shows what a step made. That this cannot be drawn is told, and does the step no harm.

    Args:
        store: where it is.
        task: the step.
        made: its artifacts.
        started: Unix seconds at which the step was asked for.
    """

    def draw() -> Mapping[str, str]:
        from tasks.decks.deck import draw_deck

        return draw_deck(Store(store), made, started)

    _show(task, draw)


def show_unfinished(task: str, inputs: Iterable[object], error: UserError, started: float) -> None:
    """Shows how a step ended that has made nothing.

    Args:
        task: the step.
        inputs: what it was given; the settings among them are shown.
        error: how it ended.
        started: Unix seconds.
    """

    def draw() -> Mapping[str, str]:
        from tasks.decks.deck import draw_unfinished

        settings = {one.title(): one.model_dump(mode="json") for one in inputs if isinstance(one, Settings)}
        return {task: draw_unfinished(task, settings, error, time.time() - started)}

    _show(task, draw, unfinished=True)


def _show(task: str, draw: Callable[[], Mapping[str, str]], unfinished: bool = False) -> None:
    if not _seen():
        return
    from tasks.decks.deck import DRAWING_ERRORS

    try:
        pages = draw()
    except DRAWING_ERRORS as error:
        logger().warning("%s: no deck, because it could not be drawn: %s: %s", task, type(error).__name__, error)
        return
    begin()
    for title, page in pages.items():
        Deck(title, page)
    # What a process of a group shows is handed to the one that started it. Pods of map tasks write no decks themselves,
    # nor do those that flytekit is told to write nothing of.
    if in_pod() and not in_group() and (unfinished or not current_context().enable_deck):
        _publish()


def _seen() -> bool:
    """Whether what is shown goes anywhere: ``pyflyte run`` writes no decks of map tasks."""
    return in_pod() or bool(current_context().enable_deck)


def _publish() -> None:
    """Writes the deck beside the task's outputs."""
    context = FlyteContextManager.current_context()
    state = context.execution_state
    assert state is not None
    assert state.user_space_params is not None
    parameters = state.user_space_params.with_enable_deck(enable_deck=True).build()
    with FlyteContextManager.with_context(
        context.with_execution_state(state.with_params(user_space_params=parameters))
    ):
        Deck.publish()
