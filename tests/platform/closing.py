"""A task that uses S3 as the project's do, for ``test_pods_end``."""

from tasks.artifacts import Store
from tasks.flyte.decorators import always


@always
def opens(store: str) -> str:
    """The id of a store."""
    return Store.open(store).ref.id
