"""What tests of training start from."""

from pathlib import Path

import numpy as np
import pytest

from tasks.settings import EngineSettings
from tasks.store import ArtifactRef
from tasks.train.batches import Responses
from tests.prepared import PROMPTS, prepare_prompts
from tests.train.small import LONGEST, Small, responses_with, sample_rows


@pytest.fixture(autouse=True, scope="module")
def small_tensors(one_thread: None) -> None:
    """Threads would only wait for each other."""


@pytest.fixture(scope="module")
def responses(base: Path) -> Responses:
    """Sampled by the policy itself, with rewards drawn by chance."""
    problems = [f"{10 + 7 * i}+{2 + i % 8}=" for i in range(12)]
    rows = sample_rows(base, problems, LONGEST, EngineSettings())
    return responses_with(rows, np.random.default_rng(0).integers(0, 2, len(rows)).astype(float))


@pytest.fixture(scope="module")
def shards(small: Small) -> list[ArtifactRef]:
    return prepare_prompts(small[0], PROMPTS, 0, 0)
