"""Small tensors, for which threads would only wait for each other, and what tests of training start from."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tasks.settings import EngineSettings
from tasks.store import ArtifactRef
from tasks.train.batches import Responses
from tests.prepared import PROMPTS, prepare_stage
from tests.train.small import LONGEST, Small, responses_with, sample_rows


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def responses(small: Small) -> Responses:
    """Sampled by the policy itself, with rewards drawn by chance."""
    problems = [f"{10 + 7 * i}+{2 + i % 8}=" for i in range(12)]
    rows = sample_rows(small[0].path(small[1]), problems, LONGEST, EngineSettings())
    return responses_with(rows, np.random.default_rng(0).integers(0, 2, len(rows)).astype(float))


@pytest.fixture(scope="module")
def shards(small: Small) -> list[ArtifactRef]:
    return prepare_stage(small[0], PROMPTS, 0, 0)
