"""Out of memory is told with the setting to change."""

import pytest
import torch

from tasks.errors import SettingsError
from tasks.models.loading import enough_memory
from tasks.rollout.engine import Request, Sampling
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import EngineSettings
from tasks.store import ArtifactRef, Store


def test_an_allocation_that_fails_names_the_setting() -> None:
    with (
        pytest.raises(SettingsError, match=r"work: out of memory. Lower it. \(.*can't allocate memory"),
        enough_memory("work", "Lower it."),
    ):
        torch.empty(2**58)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"), enough_memory("work", "Lower it."):
        torch.ones(2) + torch.ones(3)


def test_generation_says_what_to_lower(small: tuple[Store, ArtifactRef]) -> None:
    store, policy = small
    engine = TransformersEngine.load(store.path(policy), EngineSettings())
    requests = [Request("a", 0, [1, 2, 3], 0)]
    with pytest.raises(SettingsError, match=r"generate: out of memory. Lower rollout.engine.batch_size"):
        engine.generate(requests, Sampling(2**55), lambda responses, tokens: None)
