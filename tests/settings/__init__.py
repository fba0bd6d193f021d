import shlex

from tasks.settings import RunSettings
from tools import ROOT


def override(run: RunSettings, overrides: str) -> RunSettings:
    """The settings with single fields overridden, as in ``optimize.preset=relaxed seed=1``."""
    return run.merged(run.given(), overrides)


def deepspeed(zero_stage: int, processes: int = 1) -> str:
    """Overrides for training with DeepSpeed; quoted, because the path of a checkout can have spaces."""
    file = shlex.quote(str(ROOT / f"configs/deepspeed/zero{zero_stage}.json"))
    return f"optimize.backend.kind=deepspeed optimize.backend.processes={processes} optimize.backend.deepspeed={file}"
