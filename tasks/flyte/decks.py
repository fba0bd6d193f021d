"""Decks of steps in Flyte's console, which show the artifacts of a step or its error."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from flytekit import Deck, FlyteContextManager, current_context

from tasks.errors import UserError
from tasks.flyte.attempts import in_pod, is_group_member
from tasks.process.logs import logger
from tasks.settings.base import Settings
from tasks.store import ArtifactRef, Store, StoreRef


def show(store: StoreRef, task: str, artifacts: ArtifactRef | Sequence[ArtifactRef], started: float) -> None:
    """Add the deck of a finished step; ``started`` is the time of the step's call, in Unix seconds."""

    def draw() -> Mapping[str, str]:
        from tasks.report.deck import draw_deck

        return draw_deck(Store(store), artifacts, started)

    _show(task, draw)


def show_unfinished(task: str, inputs: Iterable[object], error: UserError, started: float) -> None:
    """Add the deck of a step that ended with an error; it shows the settings among the inputs."""

    def draw() -> Mapping[str, str]:
        from tasks.report.deck import draw_unfinished

        sections = [value for value in inputs if isinstance(value, Settings)]
        settings = {section.title(): section.model_dump(mode="json") for section in sections}
        return {task: draw_unfinished(task, settings, error, time.time() - started)}

    _show(task, draw, unfinished=True)


def _show(task: str, draw: Callable[[], Mapping[str, str]], unfinished: bool = False) -> None:
    """Add pages to the task's deck. An error in drawing them is logged and does not fail the step."""
    if not in_pod() and not current_context().enable_deck:  # ``pyflyte run`` keeps no decks of map tasks.
        return
    try:
        pages = draw()
    except Exception as error:  # Artifacts of other versions of the code can have any content.
        logger().warning("%s: no deck, because it could not be drawn: %s: %s", task, type(error).__name__, error)
        return
    for title, page in pages.items():
        Deck(title, page)
    # A process of a group hands its decks to its parent. flytekit writes no deck for a pod of a map task, nor for an
    # attempt that ends with IgnoreOutputs.
    if in_pod() and not is_group_member() and (unfinished or not current_context().enable_deck):
        _publish()


def _publish() -> None:
    """Write the deck beside the task's outputs."""
    context = FlyteContextManager.current_context()
    state = context.execution_state
    assert state is not None
    assert state.user_space_params is not None
    parameters = state.user_space_params.with_enable_deck(enable_deck=True).build()
    with FlyteContextManager.with_context(
        context.with_execution_state(state.with_params(user_space_params=parameters))
    ):
        Deck.publish()
