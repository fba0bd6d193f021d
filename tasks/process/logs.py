"""The log of a run. ``MU_GRPO_LOG_LEVEL`` is its level: debug, info (the default) or warning.

Progress is info; debug adds what was found in the store and every request that is tried again.
"""

import logging
import os
import sys
from functools import cache

from tasks.errors import SettingsError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


@cache
def logger() -> logging.Logger:
    """Return the run's logger, which writes lines to standard output; raise SettingsError for an unknown level."""
    name = os.environ.get("MU_GRPO_LOG_LEVEL", "info").lower()
    if name not in LEVELS:
        raise SettingsError(f"MU_GRPO_LOG_LEVEL: got {name!r}; allowed: {', '.join(LEVELS)}")
    made = logging.getLogger("mu_grpo")
    made.setLevel(LEVELS[name])
    made.propagate = False
    made.addHandler(_Lines())
    return made


class _Lines(logging.Handler):
    """A handler that writes to the current standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stdout, flush=True)
