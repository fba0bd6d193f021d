"""The engines that can generate, by their names in the settings. Nothing else needs to know which engines there are."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class EngineKind:
    """An engine, and what a plan of a run must know of it before it is loaded."""

    path: str
    """``module:class`` of a class that follows ``tasks.rollout.engine.Engine``. It is imported when it is needed."""
    refills: bool = True
    """Whether a waiting response takes the place of a complete one; otherwise a batch ends with its longest one."""
    own_weights: bool = True
    """Whether the engine keeps weights beside those of a trainer with which it takes turns, in a reserved share of a
    GPU's memory; otherwise it uses the trainer's tensors."""
    several_devices: bool = True
    """Whether ``tensor_parallel`` may be above 1."""

    def load_class(self) -> Any:
        """Return the class of the engine."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)


ENGINES = {
    "transformers": EngineKind("tasks.rollout.transformers_engine:TransformersEngine", False, False, False),
    "vllm": EngineKind("tasks.rollout.vllm_engine:VllmEngine"),
}
"""All engines; a new one is a row here."""
