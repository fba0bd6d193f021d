"""Log of a run. The variable ``MU_GRPO_LOG_LEVEL`` sets its level: debug, info (the default) or warning.

Progress has the level info. Debug adds the artifacts that were found in the store, and every retry of a request.
"""

import logging
import os
import sys
from functools import cache
from io import TextIOWrapper

from tasks.errors import SettingsError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


@cache
def logger() -> logging.Logger:
    """Return the logger of the run, which writes lines to standard output.

    Raises:
        SettingsError: ``MU_GRPO_LOG_LEVEL`` is not a level.
    """
    name = os.environ.get("MU_GRPO_LOG_LEVEL", "info").lower()
    if name not in LEVELS:
        raise SettingsError(f"MU_GRPO_LOG_LEVEL: got {name!r}; allowed: {', '.join(LEVELS)}")
    log = logging.getLogger("mu_grpo")
    log.setLevel(LEVELS[name])
    log.propagate = False
    log.addHandler(_StdoutHandler())
    return log


def print_any_text() -> None:
    """Print a question mark for a character that the encoding of the terminal lacks, as ASCII lacks those of tables."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


class _StdoutHandler(logging.Handler):
    """A handler that writes to the current ``sys.stdout``, which may be replaced at any time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stdout, flush=True)
