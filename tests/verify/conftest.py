import pytest

from tests.verify.helpers import workers_of


@pytest.fixture(autouse=True, scope="module")
def no_worker_is_left():
    yield
    assert workers_of() == []
