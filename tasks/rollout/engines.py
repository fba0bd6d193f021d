"""The engine that the settings name, loaded once per policy and process."""

import gc
from pathlib import Path

import torch

from tasks.policy.loading import stop_token_ids
from tasks.resident import resident
from tasks.rollout.engine import Engine
from tasks.settings import EngineSettings


def engine_of(folder: Path, policy_digest: str, settings: EngineSettings) -> Engine:
    """The engine of a policy; the one that this process has loaded already when it is the same.

    Args:
        folder: of the policy.
        policy_digest: its digest.
        settings: which engine, and how it uses its devices.

    Raises:
        SettingsError: the engine is not installed, or it asks for more than the machine has.
    """
    return resident("engine", (policy_digest, settings.model_dump_json()), lambda: load_engine(folder, settings))


def load_engine(folder: Path, settings: EngineSettings, takes_turns: bool = False) -> Engine:
    """An engine of its own for a policy folder; to be closed by the caller.

    Args:
        folder: of the policy.
        settings: which engine, and how it uses its devices.
        takes_turns: this process trains too: it gives the engine weights, and needs the device while the engine rests.
    """
    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()  # What training before this has cached is taken to an engine in another process.
    if settings.kind == "vllm":
        from tasks.rollout.vllm_engine import VllmEngine

        return VllmEngine(folder, settings, stop_token_ids(folder), takes_turns)
    from tasks.rollout.transformers_engine import TransformersEngine

    return TransformersEngine.load(folder, settings)
