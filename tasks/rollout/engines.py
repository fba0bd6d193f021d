"""Loading of the engine that the settings name, once per policy and process."""

import gc
from pathlib import Path

import torch

from tasks.resident import resident
from tasks.rollout.engine import Engine
from tasks.settings import EngineSettings


def engine_of(folder: Path, policy_digest: str, settings: EngineSettings) -> Engine:
    """Return the engine of a policy: the one that this process has loaded already when it is the same.

    Args:
        folder: of the policy.
        policy_digest: its digest.
        settings: which engine, and how it uses its devices.

    Raises:
        SettingsError: the engine is not installed, or it asks for more than the machine has.
    """
    return resident("engine", (policy_digest, settings.model_dump_json()), lambda: load_engine(folder, settings))


def load_engine(folder: Path, settings: EngineSettings, takes_turns: bool = False) -> Engine:
    """Load an engine for a policy folder, which the caller closes; see ``Engine.load``.

    Args:
        folder: of the policy.
        settings: which engine, and how it uses its devices.
        takes_turns: whether this process trains too.
    """
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()  # An engine in another process needs what earlier training has cached.
    loaded: Engine = settings.load_class().load(folder, settings, takes_turns)
    return loaded
