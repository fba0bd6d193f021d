"""A task that uses S3 as the project's do, for ``test_pods_end``."""

from tasks.flyte.decorators import always
from tasks.store import Store


@always
def opens(store: str) -> str:
    """The id of a store."""
    return Store.open(store).ref.id
