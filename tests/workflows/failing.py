"""A task that ends with the error that it is asked for."""

import builtins

from tasks import errors
from tasks.flyte.decorators import uncached


@uncached
def fail(kind: str) -> str:
    """Raises an error of a kind, of the project's or of Python's; for ``ok`` it returns."""
    if kind != "ok":
        raise (getattr(errors, kind, None) or getattr(builtins, kind))("what went wrong")
    return kind
