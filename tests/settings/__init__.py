from tasks.settings import RunSettings


def override(run: RunSettings, overrides: str) -> RunSettings:
    """The settings with single fields overridden, as in ``optimize.preset=relaxed seed=1``."""
    return run.merged(run.given(), overrides)
