"""Running out of memory as an error that names the setting to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tasks.errors import SettingsError


@contextmanager
def enough_memory(what: str, mend: str) -> Iterator[None]:
    """Inside the block, torch's out-of-memory errors become ones that a user can mend.

    Args:
        what: the work, such as ``optimize``.
        mend: which settings to change, and how.

    Raises:
        SettingsError: an allocation failed, on a GPU or on the CPU.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SettingsError(f"{what}: out of memory. {mend} ({str(error).splitlines()[0]})") from error
