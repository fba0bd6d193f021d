"""Turn running out of memory into an error that names the setting to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tasks.errors import SettingsError


@contextmanager
def enough_memory(what: str, fix: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors in ``what`` into errors that say which settings fix them.

    Raises:
        SettingsError: an allocation failed, on a GPU or on the CPU.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SettingsError(f"{what}: out of memory. {fix} ({str(error).splitlines()[0]})") from error
