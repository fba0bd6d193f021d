from collections.abc import Iterator

import pytest

from tasks.process.resident import release
from tests.verify.helpers import workers_of


@pytest.fixture(autouse=True)
def no_standing_workers() -> Iterator[None]:
    """Tests here count the workers of this process: none stay from another test's step."""
    release("verifier")
    yield
    release("verifier")


@pytest.fixture(autouse=True, scope="module")
def no_worker_is_left() -> Iterator[None]:
    yield
    assert workers_of() == []
