"""The doors of the step that provides prompts."""

from tasks.platform import Artifact, StoreHandle, once, step
from tasks.settings import EvaluateSettings, PromptsSettings

VERSION = "1"


@step(VERSION)
def prepare_prompts(
    store: StoreHandle, settings: PromptsSettings, source: str, stage: int, seed: int
) -> list[Artifact]:
    """The prompts of a stage, a list of shards. ``source`` is a fingerprint of the files that settings name."""
    from tasks.prompts import step as logic

    return once(store, "prepare_prompts", VERSION, logic.prepare_stage, settings, source, stage, seed)


@step(VERSION)
def prepare_held_out(
    store: StoreHandle, settings: PromptsSettings, evaluate: EvaluateSettings, source: str
) -> Artifact:
    """The held-out problems that every policy of the run is evaluated on."""
    from tasks.prompts import step as logic

    return once(store, "prepare_held_out", VERSION, logic.prepare_held_out, settings, source, evaluate.problems)
