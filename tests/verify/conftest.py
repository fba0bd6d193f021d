from collections.abc import Iterator

import pytest

from tasks.process.resident import release
from tasks.verify.pool import Verifier
from tests.verify.helpers import workers_of


@pytest.fixture(scope="module")
def verifier(request: pytest.FixtureRequest) -> Iterator[Verifier]:
    """A verifier for the tests of a file, which has its settings as ``VERIFIER``."""
    with Verifier(request.module.VERIFIER) as verifier:
        yield verifier


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
